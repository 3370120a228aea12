//! Searches with constraints and with several objectives, on problems whose answer is known or found on a fine grid.

use wiski::decide::{
    Acquisition, Dimension, Goal, Optimizer, OptimizerSettings, Outcome, Space, Strategy, Trial,
};
use wiski::persist;

/// The second problem of Gardner et al. (2014): two feasible basins of a hundredth of the square.
fn gardner(x: &[f64]) -> (f64, f64) {
    (x[0].sin() + x[1], x[0].sin() * x[1].sin() + 0.95)
}

fn square(side: f64) -> Space {
    Space::new(vec![Dimension::linear("a", 0.0, side), Dimension::linear("b", 0.0, side)]).unwrap()
}

fn constrained(seed: u64) -> OptimizerSettings {
    OptimizerSettings { constraints: vec!["c".into()], seed, ..OptimizerSettings::default() }
}

/// Asks for q points at a time and tells value and constraint of each.
fn search(search: &mut Optimizer, trials: usize, q: usize, f: impl Fn(&[f64]) -> (f64, f64)) {
    for _ in 0..trials / q {
        for x in search.ask(q).unwrap() {
            let (value, constraint) = f(&x);
            search.tell_trial(&Trial::new(x, value).with_constraints([constraint])).unwrap();
        }
    }
}

fn value(trial: &Trial) -> f64 {
    trial.values()[0]
}

#[test]
fn the_best_feasible_point_is_found() {
    let mut optimum = f64::INFINITY;
    for i in 0..=600 {
        for j in 0..=600 {
            let (y, c) = gardner(&[f64::from(i) / 100.0, f64::from(j) / 100.0]);
            optimum = if c <= 0.0 { optimum.min(y) } else { optimum };
        }
    }
    for (strategy, q, exact_until) in [
        (Strategy::default(), 1, 500),
        (Strategy::Greedy(Acquisition::ExpectedImprovement), 3, 500),
        (Strategy::Joint(Acquisition::LogExpectedImprovement), 2, 0),
        (Strategy::default(), 1, 20),
    ] {
        let settings = OptimizerSettings { strategy, exact_until, ..constrained(2) };
        let mut optimizer = Optimizer::new(square(6.0), settings).unwrap();
        search(&mut optimizer, 48, q, gardner);
        let best = optimizer.best().unwrap();
        assert!(best.constraints[0] <= 0.0 && gardner(&best.x) == (value(best), best.constraints[0]));
        // Of 48 random points most often none is feasible.
        assert!(value(best) < optimum + 0.1, "{strategy:?} {q}: {} {optimum}", value(best));
        // Better ones were tried, and do not count.
        assert!(optimizer.trials().iter().any(|t| value(t) < value(best)));
        let (x, mean, std) = optimizer.recommend().unwrap().unwrap();
        assert!(gardner(&x).1 <= 0.0 && (mean - gardner(&x).0).abs() < 4.0 * std + 0.1);
        assert!(optimizer.feasibility(&best.x).unwrap().unwrap() > 0.2);
        // Where the constraint is 0.95 off.
        assert!(optimizer.feasibility(&[0.0, 0.0]).unwrap().unwrap() < 0.3);
        assert_eq!(optimizer.front(), [best]);
    }
}

#[test]
fn a_feasible_point_is_sought_before_a_good_one() {
    // A disk of less than a hundredth of the square; values lead away from it.
    let f = |x: &[f64]| (x[0] - x[1], (x[0] - 0.8).hypot(x[1] - 0.15) - 0.05);
    for (seed, q) in [(0, 1), (1, 1), (2, 4)] {
        let mut optimizer = Optimizer::new(square(1.0), constrained(seed)).unwrap();
        search(&mut optimizer, 8, 1, f);
        assert!(optimizer.best().is_none() && optimizer.recommend().unwrap().is_none());
        // Points that are asked for together differ.
        let points = optimizer.ask(4).unwrap();
        for (i, a) in points.iter().enumerate() {
            assert!(points[..i].iter().all(|b| (a[0] - b[0]).hypot(a[1] - b[1]) > 1e-3), "{points:?}");
        }
        optimizer.forget_pending();
        search(&mut optimizer, 32, q, f);
        let best = optimizer.best().unwrap_or_else(|| panic!("{seed}: none is feasible"));
        // The best value in the disk is 0.65 − 0.05 √2.
        assert!(value(best) < 0.65 - 0.05 * 2f64.sqrt() + 0.02, "{seed}: {best:?}");
    }
}

#[test]
fn constraints_of_choices_and_whole_numbers() {
    // The better solver breaks a limit of memory from five layers on.
    let space = Space::new(vec![
        Dimension { integer: true, ..Dimension::linear("layers", 1.0, 9.0) },
        Dimension::choice("solver", ["a", "b", "c"].map(String::from).to_vec()),
        Dimension::linear("x", 0.0, 1.0),
    ])
    .unwrap();
    let f = |x: &[f64]| {
        let own = [0.0, 0.5, 1.0][x[1] as usize];
        (
            (x[0] - 7.0).powi(2) / 10.0 + own + (x[2] - 0.3).powi(2),
            if x[1] == 0.0 { x[0] - 4.0 } else { x[0] - 8.0 },
        )
    };
    let mut optimizer = Optimizer::new(space, constrained(1)).unwrap();
    search(&mut optimizer, 45, 1, f);
    let best = optimizer.best().unwrap();
    // (4, a) costs 0.9, and (7, b) 0.5.
    assert_eq!((best.x[0], best.x[1]), (7.0, 1.0), "{best:?}");
    assert!(value(best) < 0.51, "{best:?}");
}

#[test]
fn a_search_goes_on_from_its_file() {
    let settings = OptimizerSettings {
        further: vec![Goal::Maximize],
        constraints: vec!["one".into(), "two".into()],
        exact_until: 16,
        ..OptimizerSettings::default()
    };
    let mut one = Optimizer::new(square(6.0), settings).unwrap();
    let mut two = one.clone();
    for round in 0..12 {
        if [1, 5, 9].contains(&round) {
            two = persist::from_bytes(&persist::to_bytes(&two).unwrap()).unwrap();
        }
        let (a, b) = (one.ask(2).unwrap(), two.ask(2).unwrap());
        assert_eq!(a, b, "{round}");
        for x in a {
            let (y, c) = gardner(&x);
            let trial = Trial::new(x.clone(), y).with_further([x[0]]).with_constraints([c, x[1] - 5.0]);
            one.tell_trial(&trial).unwrap();
            two.tell_trial(&trial).unwrap();
        }
    }
    assert_eq!(one.trials(), two.trials());
    assert!(one.surrogate().is_some_and(|model| !model.is_exact()) && one.front() == two.front());
}

#[test]
fn what_does_not_fit_is_rejected_and_changes_nothing() {
    let mut optimizer = Optimizer::new(square(6.0), constrained(0)).unwrap();
    search(&mut optimizer, 12, 1, gardner);
    let before = persist::to_bytes(&optimizer).unwrap();
    let at = [1.0, 1.0];
    for (trial, words) in [
        (Trial::new(at, 1.0), "constraints has 0 values where 1 are needed"),
        (Trial::new(at, 1.0).with_constraints([1.0, 2.0]), "constraints has 2 values where 1"),
        (Trial::new(at, 1.0).with_constraints([f64::NAN]), "NaN"),
        (
            Trial::new(at, 1.0).with_constraints([0.0]).with_further([1.0]),
            "further objectives has 1 values where 0",
        ),
        (Trial::new([1.0, 7.0], 1.0).with_constraints([0.0]), "b: 7 lies outside"),
        (Trial::new(at, 1.0).with_constraints([0.0]).with_noise(0.1), "learns its noise"),
    ] {
        let error = optimizer.tell_trial(&trial).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        let many = vec![Trial::new(at, 0.5).with_constraints([0.1]), trial];
        assert!(optimizer.tell_all(&many).is_err());
    }
    assert!(persist::to_bytes(&optimizer).unwrap() == before);
    let default = OptimizerSettings::default;
    for (settings, words) in [
        (OptimizerSettings { strategy: Strategy::Thompson, ..constrained(0) }, "expected improvement"),
        (
            OptimizerSettings { strategy: Strategy::Joint(Acquisition::UCB), ..constrained(0) },
            "expected improvement",
        ),
        (OptimizerSettings { local: Some(true), ..constrained(0) }, "whole box"),
        (OptimizerSettings { constraints: vec!["c".into(), "c".into()], ..default() }, "'c' stands for two"),
        (OptimizerSettings { further: vec![Goal::Minimize; 3], ..default() }, "4 are too many"),
        (
            OptimizerSettings { further: vec![Goal::Minimize], known_noise: true, ..default() },
            "noise is learned",
        ),
    ] {
        let error = Optimizer::new(square(1.0), settings).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn absurd_constraints_do_not_hide_where_they_hold() {
    let f = |x: &[f64]| {
        let (y, c) = gardner(x);
        (
            y,
            if c > 1.5 {
                f64::INFINITY
            } else if c > 1.2 {
                1e30
            } else {
                c
            },
        )
    };
    let mut optimizer = Optimizer::new(square(6.0), constrained(3)).unwrap();
    search(&mut optimizer, 40, 1, f);
    assert!(value(optimizer.best().unwrap()) < 0.45, "{:?}", optimizer.best());
    // The known noise of values goes with constraints, whose noise is learned.
    let settings = OptimizerSettings { known_noise: true, ..constrained(3) };
    let mut noisy = Optimizer::new(square(6.0), settings).unwrap();
    for _ in 0..15 {
        for x in noisy.ask(1).unwrap() {
            let (y, c) = gardner(&x);
            noisy.tell_trial(&Trial::new(x, y).with_constraints([c]).with_noise(1e-4)).unwrap();
        }
    }
    // A failed trial has no constraints, and is kept away from.
    noisy.tell_failed(&[3.0, 3.0]).unwrap();
    assert_eq!(noisy.trials().last().map(|t| t.outcome), Some(Outcome::Failed));
    noisy.ask(2).unwrap();
}

/// The area that points of two objectives, both to be small, dominate below a reference.
fn area(values: &[Vec<f64>], reference: [f64; 2]) -> f64 {
    let mut sorted: Vec<&Vec<f64>> = values.iter().filter(|v| v[0] < reference[0]).collect();
    sorted.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let (mut total, mut lowest) = (0.0, reference[1]);
    for v in sorted {
        if v[1] < lowest {
            total += (reference[0] - v[0]) * (lowest - v[1]);
            lowest = v[1];
        }
    }
    total
}

/// Distances to two corners: the front is the line between them.
fn distances(x: &[f64]) -> [f64; 2] {
    [x[0].hypot(x[1] - 0.2), (x[0] - 1.0).hypot(x[1] - 0.8)]
}

#[test]
fn the_front_of_two_objectives_is_found() {
    let length = distances(&[1.0, 0.8])[0];
    // Under a line from (0, L) to (L, 0), with the reference (1.2 L, 1.2 L).
    let all = 1.44 * length.powi(2) - 0.5 * length.powi(2);
    for (goals, q, exact_until) in [
        ([Goal::Minimize, Goal::Minimize], 1, 500),
        ([Goal::Maximize, Goal::Minimize], 3, 500),
        ([Goal::Minimize, Goal::Maximize], 1, 15),
    ] {
        let signs = goals.map(|goal| if goal == Goal::Minimize { 1.0 } else { -1.0 });
        let settings =
            OptimizerSettings { goal: goals[0], further: vec![goals[1]], exact_until, ..Default::default() };
        let mut optimizer = Optimizer::new(square(1.0), settings).unwrap();
        for _ in 0..30 / q {
            for x in optimizer.ask(q).unwrap() {
                let y = distances(&x);
                optimizer
                    .tell_trial(&Trial::new(x, signs[0] * y[0]).with_further([signs[1] * y[1]]))
                    .unwrap();
            }
        }
        let front: Vec<Vec<f64>> = optimizer.front().iter().map(|t| distances(&t.x).to_vec()).collect();
        let found = area(&front, [1.2 * length; 2]) / all;
        // 30 random points come to 0.85, and thirty on the line to 0.98.
        assert!(found > 0.94, "{goals:?} {q}: {found}");
        assert!(front.len() > 10, "{front:?}");
        assert!(optimizer.best().is_none() && optimizer.recommend().unwrap().is_none());
    }
}

#[test]
fn three_objectives_and_a_constraint() {
    let settings = OptimizerSettings {
        further: vec![Goal::Minimize; 2],
        constraints: vec!["left".into()],
        ..OptimizerSettings::default()
    };
    let mut optimizer = Optimizer::new(square(1.0), settings).unwrap();
    let corners = [[0.1, 0.1], [0.9, 0.2], [0.4, 0.9]];
    for _ in 0..15 {
        for x in optimizer.ask(2).unwrap() {
            let y = corners.map(|[a, b]| (x[0] - a).hypot(x[1] - b));
            let constraint = [x[0] - 0.5];
            optimizer
                .tell_trial(&Trial::new(x, y[0]).with_further([y[1], y[2]]).with_constraints(constraint))
                .unwrap();
        }
    }
    let front = optimizer.front();
    assert!(front.iter().all(|t| t.x[0] <= 0.5) && front.len() >= 12, "{front:?}");
    // Near each corner that can be reached, and as near as possible to the other.
    let nearest = |k: usize| front.iter().map(|t| t.values()[k]).fold(f64::INFINITY, f64::min);
    assert!(
        nearest(0) < 0.2 && nearest(1) < 0.5 && nearest(2) < 0.2,
        "{} {} {}",
        nearest(0),
        nearest(1),
        nearest(2)
    );
}
