//! Searches among choices, whole numbers and dimensions that are not always there; many results at once; results that are
//! none.

use wiski::decide::{Dimension, Goal, Optimizer, OptimizerSettings, Outcome, Space, Trial};

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn settings(seed: u64) -> OptimizerSettings {
    OptimizerSettings { seed, ..OptimizerSettings::default() }
}

fn run(space: &Space, steps: usize, seed: u64, f: impl Fn(&[f64]) -> f64) -> Optimizer {
    let mut search = Optimizer::new(space.clone(), settings(seed)).unwrap();
    for _ in 0..steps {
        let x = search.ask(1).unwrap().remove(0);
        search.tell(&x, f(&x)).unwrap();
    }
    search
}

fn best(search: &Optimizer) -> f64 {
    let Some(Trial { outcome: Outcome::Value(value), .. }) = search.best() else { panic!("no result") };
    *value
}

#[test]
fn choices_that_interact_are_found() {
    let space = Space::new(vec![
        Dimension::choice("a", names(&["p", "q", "r"])),
        Dimension::choice("b", names(&["u", "v", "w"])),
        Dimension::linear("x", -2.0, 2.0),
    ])
    .unwrap();
    // One pair of nine is good, and each of its halves alone is not.
    let f = |x: &[f64]| {
        let off = x[2] - [-1.0, 0.3, 1.2][x[0] as usize];
        off * off + if (x[0], x[1]) == (1.0, 1.0) { 0.0 } else { 1.0 + 0.2 * x[1] }
    };
    for seed in 0..4 {
        let reached = best(&run(&space, 35, seed, f));
        assert!(reached < 0.01, "seed {seed}: {reached}");
    }
}

#[test]
fn no_whole_point_is_tried_twice_while_there_are_others() {
    let whole = |name: &str| Dimension { integer: true, ..Dimension::linear(name, 0.0, 5.0) };
    let space = Space::new(vec![whole("a"), whole("b")]).unwrap();
    let search = run(&space, 36, 3, |x| (x[0] - 2.0).powi(2) + (x[1] - 4.0).powi(2));
    // The initial design may repeat itself, being rounded; what the model proposes does not.
    let design = 2 * 2 + 3;
    let mut seen: Vec<&[f64]> = search.trials()[..design].iter().map(|t| t.x.as_slice()).collect();
    for trial in &search.trials()[design..] {
        assert!(!seen.contains(&trial.x.as_slice()) || seen.len() >= 36, "{:?} again", trial.x);
        seen.push(&trial.x);
    }
    assert_eq!(best(&search), 0.0);
}

#[test]
fn numbers_lie_on_their_steps() {
    let space = Space::new(vec![
        Dimension::linear("rate", 0.1, 0.4).with_step(0.1),
        Dimension { integer: true, ..Dimension::linear("width", 8.0, 50.0) }.with_step(16.0),
    ])
    .unwrap();
    assert_eq!(space.values(&[1.0, 1.0]), [0.1 + 3.0 * 0.1, 40.0]);
    assert_eq!(space.values(&[0.51, 0.15]), [0.1 + 2.0 * 0.1, 8.0]);
    // Twelve points, and the best one between two steps of both numbers: every one that is proposed is new.
    let search = run(&space, 12, 5, |x| (x[0] - 0.24).powi(2) + ((x[1] - 30.0) / 40.0).powi(2));
    assert!(search.trials().iter().all(|t| space.values(&space.to_unit(&t.x).unwrap()) == t.x));
    let design = 2 * 2 + 3;
    for (i, trial) in search.trials().iter().enumerate().skip(design) {
        assert!(search.trials()[..i].iter().all(|t| t.x != trial.x), "{:?} again", trial.x);
    }
    assert_eq!(search.best().unwrap().x, [0.1 + 0.1, 24.0]);

    let wrong = |d: Dimension| Space::new(vec![d]).unwrap_err().to_string();
    assert!(wrong(Dimension::linear("a", 0.0, 1.0).with_step(2.0)).contains("in steps of 2"));
    assert!(wrong(Dimension::linear("a", 0.0, 1.0).with_step(f64::NAN)).contains("in steps of NaN"));
    assert!(wrong(Dimension::log("a", 1.0, 9.0).with_step(1.0)).contains("linear scale"));
}

#[test]
fn what_is_not_there_makes_no_difference() {
    let space = Space::new(vec![
        Dimension::choice("kind", names(&["svm", "forest"])),
        Dimension::log("c", 1e-3, 1e3).only_if("kind", vec![0]),
        Dimension { integer: true, ..Dimension::linear("depth", 1.0, 30.0) }.only_if("kind", vec![1]),
    ])
    .unwrap();
    let one = space.to_unit(&[0.0, 10.0, 3.0]).unwrap();
    assert_eq!(one, space.to_unit(&[0.0, 10.0, 29.0]).unwrap());
    assert_ne!(one, space.to_unit(&[0.0, 11.0, 3.0]).unwrap());
    assert_eq!(space.to_unit(&[1.0, 10.0, 3.0]).unwrap(), space.to_unit(&[1.0, 0.1, 3.0]).unwrap());
    let f = |x: &[f64]| {
        if x[0] == 0.0 { (x[1].log10() - 1.0).powi(2) / 4.0 } else { 0.3 + ((x[2] - 12.0) / 10.0).powi(2) }
    };
    let search = run(&space, 30, 1, f);
    assert!(best(&search) < 1e-3, "{}", best(&search));

    let dimension = |choice: &str, at: usize| Dimension::linear("x", 0.0, 1.0).only_if(choice, vec![at]);
    let kind = Dimension::choice("kind", names(&["svm", "forest"]));
    for wrong in [dimension("kind", 2), dimension("none", 0)] {
        let error = Space::new(vec![kind.clone(), wrong]).unwrap_err().to_string();
        assert!(error.contains("no choice before it"), "{error}");
    }
    assert!(Space::new(vec![dimension("kind", 0), kind]).is_err());
}

#[test]
fn many_results_at_once_are_one_fit() {
    let space = Space::unit(2).unwrap();
    let f = |x: &[f64]| (x[0] - 0.3).powi(2) + (x[1] - 0.8).powi(2);
    let mut told = Optimizer::new(space.clone(), settings(0)).unwrap();
    let points = told.ask(120).unwrap();
    let trial = |x: &Vec<f64>| Trial::new(x.clone(), f(x));
    told.tell_all(&points.iter().map(trial).collect::<Vec<_>>()).unwrap();
    assert!(told.pending().is_empty() && told.trials().len() == 120);
    assert_eq!(told.surrogate().unwrap().count(), 120);
    // The same model of the function, to what hyperparameters leave open.
    let mut each = Optimizer::new(space, settings(0)).unwrap();
    points.iter().for_each(|x| each.tell(x, f(x)).unwrap());
    for x in [[0.3, 0.8], [0.5, 0.1], [0.9, 0.9]] {
        let (a, b) = (told.predict(&x).unwrap().unwrap().mean, each.predict(&x).unwrap().unwrap().mean);
        assert!((a - b).abs() < 1e-3, "{a} {b}");
    }
    // All or nothing.
    let before = told.trials().len();
    let mut bad: Vec<Trial> = points.iter().take(40).map(trial).collect();
    bad[30].outcome = Outcome::Value(f64::NAN);
    assert!(told.tell_all(&bad).is_err());
    bad[30] = Trial::new(vec![2.0, 0.5], 1.0);
    assert!(told.tell_all(&bad).is_err());
    assert_eq!(told.trials().len(), before);
}

#[test]
fn infinity_is_very_bad_and_failures_are_not_repeated() {
    for goal in [Goal::Minimize, Goal::Maximize] {
        let sign = if goal == Goal::Minimize { 1.0 } else { -1.0 };
        let mut search =
            Optimizer::new(Space::unit(1).unwrap(), OptimizerSettings { goal, ..settings(0) }).unwrap();
        for _ in 0..25 {
            let x = search.ask(1).unwrap().remove(0);
            let value = if x[0] > 0.6 { f64::INFINITY } else { (x[0] - 0.4).powi(2) };
            search.tell(&x, sign * value).unwrap();
        }
        assert!(sign * best(&search) < 1e-4, "{}", best(&search));
        let Some(model) = search.predict(&[0.9]).unwrap() else { panic!("no model") };
        assert!(sign * model.mean > 0.05, "{}", model.mean);
        // Infinitely good is not believed.
        search.tell(&[0.5], sign * f64::NEG_INFINITY).unwrap();
        assert_eq!(search.trials().last().unwrap().outcome, Outcome::Failed);
    }
    // Where the best is expected, every trial fails: others must get their turn.
    let mut search = Optimizer::new(Space::unit(1).unwrap(), settings(0)).unwrap();
    for _ in 0..30 {
        let x = search.ask(1).unwrap().remove(0);
        if x[0] > 0.7 { search.tell_failed(&x).unwrap() } else { search.tell(&x, -x[0]).unwrap() }
    }
    assert!(best(&search) < -0.6, "{}", best(&search));
    let failed: Vec<f64> =
        search.trials().iter().filter(|t| t.outcome == Outcome::Failed).map(|t| t.x[0]).collect();
    for (i, x) in failed.iter().enumerate() {
        assert!(failed[..i].iter().all(|other| (other - x).abs() > 1e-3), "{failed:?}");
    }
}

#[test]
fn programs_that_search_together_propose_different_points() {
    let asked = |trial: u64| {
        let mut search = Optimizer::new(Space::unit(3).unwrap(), settings(0)).unwrap();
        search.skip_to(trial);
        search.ask(1).unwrap().remove(0)
    };
    assert_eq!(asked(4), asked(4));
    assert_ne!(asked(4), asked(5));
    let mut search = Optimizer::new(Space::unit(1).unwrap(), settings(0)).unwrap();
    search.set_pending(vec![vec![0.25]]).unwrap();
    assert_eq!(search.pending(), [vec![0.25]]);
    assert!(search.set_pending(vec![vec![3.0]]).is_err());
    assert!(search.ask(0).is_err() && search.ask(1_000_000_000_000).is_err());
}
