//! Deciding: every criterion against a slow, obviously right computation, every gradient against central
//! differences, and the optimizer on functions whose optimum is known.

use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::decide::{
    Acquisition, Dimension, Goal, Maximizer, Optimizer, OptimizerSettings, Outcome, Space, Strategy,
    TestFunction,
};
use wiski::internals::decide::{BaseSamples, Incumbent, IntegratedVariance, SurrogateModel};
use wiski::internals::posterior::{Joint, Surface, Surrogate, Workspace};
use wiski::{Grid, Interrupt, Kernel, OnlineGp, Schedule, Wiski, persist};

const STEP: f64 = 1e-5;

/// A model that has learned a few points, on grids with the given numbers of axes.
fn model(axes: &[usize]) -> Wiski {
    let mut builder = Wiski::builder().noise(0.05);
    for &d in axes {
        builder = builder
            .grid(Grid::covering(&vec![(-1.0, 1.0); d], &vec![9 - d; d]).unwrap())
            .kernel(Kernel::matern52(&vec![0.7; d]).unwrap());
    }
    let mut model = builder.build().unwrap();
    let d: usize = axes.iter().sum();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    for _ in 0..25 {
        let x: Vec<f64> = (0..d).map(|_| rng.random_range(-1.0..1.0)).collect();
        let y = (2.0 * x[0]).sin() + 0.5 * x[d - 1];
        model.step(&x, y).unwrap();
    }
    model
}

fn points(q: usize, d: usize, seed: u64) -> Vec<f64> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..q * d).map(|_| rng.random_range(-0.95..0.95)).collect()
}

/// Compares a gradient with central differences of the value.
fn check_gradient(h: &[f64], gradient: &[f64], mut value: impl FnMut(&[f64]) -> f64, tolerance: f64) {
    for k in 0..h.len() {
        let at = |step: f64| {
            let mut h = h.to_vec();
            h[k] += step;
            h
        };
        let slope = (value(&at(STEP)) - value(&at(-STEP))) / (2.0 * STEP);
        assert!(
            (slope - gradient[k]).abs() <= tolerance * (1.0 + slope.abs()),
            "coordinate {k}: {slope} by differences, {} by the formula",
            gradient[k]
        );
    }
}

#[test]
fn a_surface_predicts_jointly_as_the_posterior_does() {
    for axes in [&[1][..], &[2], &[3], &[1, 2], &[1, 1, 1]] {
        let model = model(axes);
        let d: usize = axes.iter().sum();
        let surface = model.posterior().unwrap().surface();
        let h = points(4, d, 2);
        let (mean, covariance) = model.joint(&h).unwrap();
        let mut joint = Joint::default();
        surface.predict(&h, &mut joint).unwrap();
        for (a, b) in mean.iter().zip(&joint.mean).chain(covariance.iter().zip(&joint.covariance)) {
            assert!((a - b).abs() < 1e-12, "{axes:?}: {a} {b}");
        }
        // Any function of both: here Σ a_i μ_i + Σ b_ij C_ij.
        let by_mean: Vec<f64> = (0..4).map(|i| 0.3 * f64::from(i) - 0.4).collect();
        let by_covariance: Vec<f64> = (0..16).map(|e| (f64::from(e) * 0.7).sin()).collect();
        let mut gradient = vec![0.0; 4 * d];
        surface.vjp(&h, &joint, &by_mean, &by_covariance, &mut gradient).unwrap();
        let value = |h: &[f64]| {
            let mut joint = Joint::default();
            surface.predict(h, &mut joint).unwrap();
            let means: f64 = by_mean.iter().zip(&joint.mean).map(|(a, b)| a * b).sum();
            means + by_covariance.iter().zip(&joint.covariance).map(|(a, b)| a * b).sum::<f64>()
        };
        check_gradient(&h, &gradient, value, 1e-8);
        // Conditioning on the surface is conditioning the posterior.
        let mut conditioned = surface.clone();
        let pending = points(1, d, 3);
        conditioned.condition(&pending, 0.7, 1.0).unwrap();
        let fantasy = model.fantasize(&pending, &[0.7]).unwrap();
        let (mean, covariance) = fantasy.joint(&h, &mut Workspace::default()).unwrap();
        conditioned.predict(&h, &mut joint).unwrap();
        for (a, b) in mean.iter().zip(&joint.mean).chain(covariance.iter().zip(&joint.covariance)) {
            assert!((a - b).abs() < 1e-12, "{axes:?}: {a} {b}");
        }
    }
}

const ALL: [Acquisition; 5] = [
    Acquisition::MaxValueEntropy,
    Acquisition::UCB,
    Acquisition::ExpectedImprovement,
    Acquisition::LogExpectedImprovement,
    Acquisition::ProbabilityOfImprovement,
];

#[test]
fn criteria_of_one_point_are_their_integrals() {
    let model = model(&[2]);
    let surface = model.posterior().unwrap().surface();
    let samples = BaseSamples::new(1, 1, 0);
    let mut joint = Joint::default();
    for (seed, deviations) in [(1, -1.5), (2, 0.3), (3, 2.0), (4, 6.0)] {
        let h = points(1, 2, seed);
        surface.predict(&h, &mut joint).unwrap();
        let (mean, std) = (joint.mean[0], joint.variance(0).sqrt());
        let best = mean + deviations * std;
        // ∫ … φ by the trapezoid rule, which is exact to rounding for such functions but for the kink.
        let n = 400_000;
        let (mut improvement, mut probability) = (0.0, 0.0);
        for i in 0..n {
            let z = -12.0 + 24.0 * (f64::from(i) + 0.5) / f64::from(n);
            let weight = 24.0 / f64::from(n) * (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt();
            let f = mean + std * z;
            if f > best {
                improvement += weight * (f - best);
                probability += weight;
            }
        }
        let incumbent = Incumbent::with_best(best);
        let value =
            |a: Acquisition| a.value(&surface, (&h, &incumbent, &samples), &mut Joint::default()).unwrap();
        assert!((value(Acquisition::UCB) - (mean + 2.0 * std)).abs() < 1e-12);
        assert!((value(Acquisition::ExpectedImprovement) - improvement).abs() < 1e-9);
        assert!(
            (value(Acquisition::LogExpectedImprovement) - improvement.ln()).abs() < 1e-4,
            "{improvement}"
        );
        assert!((value(Acquisition::ProbabilityOfImprovement) - probability.ln()).abs() < 1e-3);
    }
}

#[test]
fn gradients_of_all_criteria() {
    for axes in [&[1][..], &[2], &[3], &[1, 2]] {
        let model = model(axes);
        let d: usize = axes.iter().sum();
        let surface = model.posterior().unwrap().surface();
        let incumbent = Incumbent { maxima: vec![0.9, 1.3, 2.0], ..Incumbent::with_best(0.2) };
        for q in 1..=3 {
            let samples = BaseSamples::new(q, 64, 5);
            for acquisition in ALL {
                let (h, mut gradient) = (points(q, d, 7), vec![0.0; q * d]);
                let mut joint = Joint::default();
                if q > 1 && !acquisition.is_joint() {
                    assert!(acquisition.value(&surface, (&h, &incumbent, &samples), &mut joint).is_err());
                    continue;
                }
                let value = acquisition
                    .value_and_gradient(&surface, (&h, &incumbent, &samples), &mut joint, &mut gradient)
                    .unwrap();
                let mut of =
                    |h: &[f64]| acquisition.value(&surface, (h, &incumbent, &samples), &mut joint).unwrap();
                assert_eq!(of(&h), value);
                // Criteria of several points have kinks where another point becomes the best of a sample; with
                // these seeds no difference straddles one.
                check_gradient(&h, &gradient, of, 1e-6);
            }
        }
    }
}

#[test]
fn criteria_of_several_points_are_their_expectations() {
    let model = model(&[2]);
    let surface = model.posterior().unwrap().surface();
    let h = points(3, 2, 8);
    let mut joint = Joint::default();
    surface.predict(&h, &mut joint).unwrap();
    // Independent samples of the joint normal by a Cholesky factor written down here.
    let q = 3;
    let mut l = [[0.0f64; 3]; 3];
    for i in 0..q {
        for j in 0..=i {
            let sum: f64 = (0..j).map(|k| l[i][k] * l[j][k]).sum();
            let rest = joint.covariance[i * q + j] - sum;
            l[i][j] = if i == j { rest.sqrt() } else { rest / l[j][j] };
        }
    }
    let best = joint.mean.iter().fold(f64::NEG_INFINITY, |m, v| m.max(*v));
    let (beta, n) = (4.0f64, 400_000);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(9);
    let (mut improvement, mut bound) = (0.0, 0.0);
    for _ in 0..n {
        let e: [f64; 3] = std::array::from_fn(|_| rng.sample(StandardNormal));
        let deviation: Vec<f64> = (0..q).map(|i| (0..=i).map(|j| l[i][j] * e[j]).sum()).collect();
        let top = (0..q).map(|i| joint.mean[i] + deviation[i]).fold(f64::NEG_INFINITY, f64::max);
        improvement += (top - best).max(0.0) / f64::from(n);
        let c = (beta * std::f64::consts::PI / 2.0).sqrt();
        let up = (0..q).map(|i| joint.mean[i] + c * deviation[i].abs()).fold(f64::NEG_INFINITY, f64::max);
        bound += up / f64::from(n);
    }
    let samples = BaseSamples::new(q, 4096, 10);
    let incumbent = Incumbent::with_best(best);
    let value =
        |a: Acquisition| a.value(&surface, (&h, &incumbent, &samples), &mut Joint::default()).unwrap();
    let close = |a: f64, b: f64, relative: f64| (a / b - 1.0).abs() < relative;
    assert!(close(value(Acquisition::ExpectedImprovement), improvement, 0.01));
    assert!(close(value(Acquisition::UCB), bound, 0.01));
    // The smoothing of the maximum divides by at most q^0.01.
    assert!(close(value(Acquisition::LogExpectedImprovement).exp(), improvement, 0.02));
    // The same point twice promises no more than once.
    let twice = [&h[..2], &h[..2]].concat();
    let (own, expected) = (joint.mean[0], Acquisition::ExpectedImprovement);
    let (samples, one) = (BaseSamples::new(2, 4096, 11), BaseSamples::new(1, 1, 0));
    let own = Incumbent::with_best(own);
    let double = expected.value(&surface, (&twice, &own, &samples), &mut joint).unwrap();
    let single = expected.value(&surface, (&h[..2], &own, &one), &mut joint).unwrap();
    assert!(close(double, single, 0.01), "{double} {single}");
}

/// The variance below a maximum by rejection, and the entropies by integration.
#[test]
fn information_about_the_maximum() {
    let model = model(&[2]);
    let surface = model.posterior().unwrap().surface();
    let (h, samples, mut joint) = (points(1, 2, 17), BaseSamples::new(1, 1, 0), Joint::default());
    surface.predict(&h, &mut joint).unwrap();
    let (mean, variance, noise) = (joint.mean[0], joint.variance(0), surface.noise());
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(18);
    for deviations in [-0.5, 0.4, 1.5] {
        let maximum = mean + deviations * variance.sqrt();
        let (mut n, mut sum, mut square) = (0.0, 0.0, 0.0);
        while n < 400_000.0 {
            let e: f64 = rng.sample(StandardNormal);
            if e < deviations {
                (n, sum, square) = (n + 1.0, sum + e, square + e * e);
            }
        }
        let left = variance * (square / n - (sum / n).powi(2)) + noise;
        let information = 0.5 * ((variance + noise) / left).ln();
        let incumbent = Incumbent { maxima: vec![maximum], ..Incumbent::default() };
        let of = |incumbent: &Incumbent| {
            let mut joint = Joint::default();
            Acquisition::MaxValueEntropy.value(&surface, (&h, incumbent, &samples), &mut joint).unwrap()
        };
        assert!((of(&incumbent) / information - 1.0).abs() < 0.01, "{} {information}", of(&incumbent));
        // The entropy of a truncated normal with noise, by integrating its density: at most that of the normal
        // with the same variance, so that the information is at least what is claimed.
        let (steps, width) = (2000, 8.0 * (variance + noise).sqrt());
        let below = |f: f64| (-0.5 * (f - mean).powi(2) / variance).exp();
        let grid = |i: i32| mean - width + (2.0 * width) * (f64::from(i) + 0.5) / f64::from(steps);
        let inside: Vec<f64> = (0..steps).map(grid).filter(|f| *f < maximum).collect();
        let total: f64 = inside.iter().map(|f| below(*f)).sum();
        let cell = 2.0 * width / f64::from(steps);
        let mut entropy = 0.0;
        for i in 0..steps {
            let y = grid(i);
            let density: f64 = inside
                .iter()
                .map(|f| below(*f) / total * (-0.5 * (y - f).powi(2) / noise).exp())
                .sum::<f64>()
                / (std::f64::consts::TAU * noise).sqrt();
            if density > 0.0 {
                entropy -= cell * density * density.ln();
            }
        }
        let whole = 0.5 * (std::f64::consts::TAU * std::f64::consts::E * (variance + noise)).ln();
        assert!(of(&incumbent) <= whole - entropy + 1e-6 && of(&incumbent) > 0.5 * (whole - entropy));
        // Several maxima count alike, and without any there is nothing to know.
        let twice = Incumbent { maxima: vec![maximum; 2], ..Incumbent::default() };
        assert!((of(&twice) - of(&incumbent)).abs() < 1e-14);
    }
    let nothing = Incumbent::default();
    assert!(Acquisition::MaxValueEntropy.value(&surface, (&h, &nothing, &samples), &mut joint).is_err());
}

/// The mean variance over reference points, by predicting each.
fn mean_variance(surface: &Surface, reference: &[f64], d: usize) -> f64 {
    let mut joint = Joint::default();
    let variance = |h: &[f64]| {
        surface.predict(h, &mut joint).unwrap();
        joint.variance(0)
    };
    reference.chunks_exact(d).map(variance).sum::<f64>() / (reference.len() / d) as f64
}

#[test]
fn the_reduction_of_the_variance_is_what_observing_takes_away() {
    for axes in [&[1][..], &[2], &[1, 2]] {
        let model = model(axes);
        let d: usize = axes.iter().sum();
        let reference = points(200, d, 12);
        let criterion = IntegratedVariance::new(model.posterior().unwrap(), &reference).unwrap();
        let surface = model.posterior().unwrap().surface();
        let before = mean_variance(&surface, &reference, d);
        assert!((criterion.mean_variance() - before).abs() < 1e-12);
        for q in 1..=3 {
            let h = points(q, d, 13);
            let mut after = surface.clone();
            // What is found does not matter.
            h.chunks_exact(d).for_each(|x| after.condition(x, 3.0, 1.0).unwrap());
            let taken = 200.0 * (before - mean_variance(&after, &reference, d));
            let reduction = criterion.reduction(&h).unwrap();
            assert!((reduction - taken).abs() < 1e-10 * (1.0 + taken), "{reduction} {taken}");
            let mut gradient = vec![0.0; q * d];
            assert_eq!(criterion.reduction_and_gradient(&h, &mut gradient).unwrap(), reduction);
            check_gradient(&h, &gradient, |h| criterion.reduction(h).unwrap(), 1e-7);
        }
        // Greedy choice from a pool, against trying every point.
        let pool = points(40, d, 14);
        let (mut now, mut expected) = (surface.clone(), Vec::new());
        for _ in 0..3 {
            let left = |i: &usize| !expected.contains(i);
            let score = |i: usize| {
                let mut then = now.clone();
                then.condition(&pool[i * d..(i + 1) * d], 0.0, 1.0).unwrap();
                mean_variance(&then, &reference, d)
            };
            let best = (0..40).filter(left).min_by(|a, b| score(*a).total_cmp(&score(*b))).unwrap();
            now.condition(&pool[best * d..(best + 1) * d], 0.0, 1.0).unwrap();
            expected.push(best);
        }
        assert_eq!(criterion.choose_from_pool(&pool, 3).unwrap(), expected);
        assert!(criterion.choose_from_pool(&pool, 41).is_err());
        // Free points do at least as well as those of the pool.
        let bounds = vec![(-1.0, 1.0); d];
        let free = criterion.choose_from_box(&bounds, 3, &Maximizer::default(), 1).unwrap();
        let from_pool: Vec<f64> = expected.iter().flat_map(|&i| pool[i * d..(i + 1) * d].to_vec()).collect();
        assert!(free.value >= criterion.reduction(&from_pool).unwrap());
        assert!((criterion.reduction(&free.x).unwrap() - free.value).abs() < 1e-12);
    }
}

fn branin(x: &[f64]) -> f64 {
    let (a, b) = (x[0], x[1]);
    (b - 5.1 / (4.0 * std::f64::consts::PI.powi(2)) * a * a + 5.0 / std::f64::consts::PI * a - 6.0).powi(2)
        + 10.0 * (1.0 - 1.0 / (8.0 * std::f64::consts::PI)) * a.cos()
        + 10.0
}

fn branin_space() -> Space {
    Space::new(vec![Dimension::linear("a", -5.0, 10.0), Dimension::linear("b", 0.0, 15.0)]).unwrap()
}

#[test]
fn every_strategy_finds_the_optimum_of_branin() {
    let optimum = 0.397_887;
    for strategy in [
        Strategy::Joint(Acquisition::LogExpectedImprovement),
        Strategy::Joint(Acquisition::UCB),
        Strategy::Joint(Acquisition::ExpectedImprovement),
        Strategy::Greedy(Acquisition::LogExpectedImprovement),
        Strategy::Greedy(Acquisition::ProbabilityOfImprovement),
        Strategy::Joint(Acquisition::MaxValueEntropy),
        Strategy::Thompson,
    ] {
        for q in [1, 3] {
            if q > 1 && strategy == Strategy::Joint(Acquisition::ExpectedImprovement) {
                continue;
            }
            // By an exact process all the way, by grids all the way, and from one to the other.
            for exact_until in [500, 0, 20] {
                let settings =
                    OptimizerSettings { strategy, exact_until, seed: 3, ..OptimizerSettings::default() };
                let mut optimizer = Optimizer::new(branin_space(), settings).unwrap();
                for _ in 0..60 / q {
                    for x in optimizer.ask(q).unwrap() {
                        optimizer.tell(&x, branin(&x)).unwrap();
                    }
                }
                assert_eq!(optimizer.surrogate().unwrap().is_exact(), exact_until == 500);
                // A search that closes in leaves results outside.
                assert!(exact_until == 20 || optimizer.surrogate().unwrap().count() == 60 / q * q);
                let best = optimizer.best().unwrap();
                let Outcome::Value(value) = best.outcome else { panic!("failed") };
                // Random search needs thousands of points for this.
                assert!(value < optimum + 0.25, "{strategy:?}, {q} at a time, {exact_until}: {value}");
                assert!(optimizer.pending().is_empty());
            }
        }
    }
}

#[test]
fn noise_is_averaged_out_in_the_recommendation() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(15);
    let settings = OptimizerSettings { goal: Goal::Maximize, seed: 1, ..OptimizerSettings::default() };
    let mut optimizer = Optimizer::new(Space::unit(1).unwrap(), settings).unwrap();
    let f = |x: f64| (-(x - 0.7f64).powi(2) * 20.0).exp();
    for _ in 0..60 {
        for x in optimizer.ask(1).unwrap() {
            let noise: f64 = rng.sample(StandardNormal);
            optimizer.tell(&x, f(x[0]) + 0.3 * noise).unwrap();
        }
    }
    let (x, value, std) = optimizer.recommend().unwrap().unwrap();
    assert!((x[0] - 0.7).abs() < 0.12, "{x:?}");
    assert!((value - f(x[0])).abs() < 4.0 * std + 0.05, "{value} ± {std} at {x:?}");
}

#[test]
fn the_same_seed_asks_the_same_also_after_a_restart() {
    // The exact process gives way to a grid after 20 results, in the tenth round.
    let new = |seed| {
        let settings = OptimizerSettings { seed, exact_until: 20, ..OptimizerSettings::default() };
        Optimizer::new(branin_space(), settings).unwrap()
    };
    let (mut one, mut two, mut other) = (new(5), new(5), new(6));
    for round in 0..16 {
        if [2, 6, 9, 12].contains(&round) {
            two = persist::from_bytes(&persist::to_bytes(&two).unwrap()).unwrap();
        }
        let (a, b, c) = (one.ask(2).unwrap(), two.ask(2).unwrap(), other.ask(2).unwrap());
        assert_eq!(a, b);
        assert_ne!(a, c);
        a.iter().for_each(|x| {
            one.tell(x, branin(x)).unwrap();
            two.tell(x, branin(x)).unwrap();
        });
        c.iter().for_each(|x| other.tell(x, branin(x)).unwrap());
    }
}

#[test]
fn pending_failed_and_foreign_points() {
    let mut optimizer = Optimizer::new(branin_space(), OptimizerSettings::default()).unwrap();
    for x in optimizer.ask(12).unwrap() {
        optimizer.tell(&x, branin(&x)).unwrap();
    }
    // Nothing is told in between: the points keep apart.
    let mut asked: Vec<Vec<f64>> = Vec::new();
    for _ in 0..5 {
        asked.extend(optimizer.ask(1).unwrap());
    }
    for (i, a) in asked.iter().enumerate() {
        for b in &asked[..i] {
            let distance = ((a[0] - b[0]) / 15.0).hypot((a[1] - b[1]) / 15.0);
            assert!(distance > 0.01, "{a:?} {b:?}");
        }
    }
    assert_eq!(optimizer.pending().len(), 5);
    let count = optimizer.surrogate().unwrap().count();
    optimizer.tell_failed(&asked[0]).unwrap();
    let error = optimizer.tell(&asked[1], f64::NAN).unwrap_err().to_string();
    assert!(error.contains("tell it as failed"), "{error}");
    assert_eq!((optimizer.pending().len(), optimizer.surrogate().unwrap().count()), (4, count));
    // Infinitely bad is very bad; infinitely good is not believed.
    optimizer.tell(&asked[2], f64::INFINITY).unwrap();
    assert_eq!((optimizer.pending().len(), optimizer.surrogate().unwrap().count()), (3, count + 1));
    optimizer.tell(&asked[3], f64::NEG_INFINITY).unwrap();
    assert_eq!((optimizer.pending().len(), optimizer.surrogate().unwrap().count()), (2, count + 1));
    // A point of the user's own.
    optimizer.tell(&[std::f64::consts::PI, 2.275], branin(&[std::f64::consts::PI, 2.275])).unwrap();
    assert_eq!(optimizer.best().unwrap().x[1], 2.275);
    let error = optimizer.tell(&[20.0, 2.0], 1.0).unwrap_err().to_string();
    assert!(error.contains("a: 20 lies outside of -5 to 10"), "{error}");
    assert!(optimizer.tell(&[1.0], 1.0).is_err());
    assert!(optimizer.ask(0).is_err());
    optimizer.forget_pending();
    assert!(optimizer.pending().is_empty());
    assert_eq!(optimizer.trials().iter().filter(|t| t.outcome == Outcome::Failed).count(), 2);
}

/// What a pending point promises is promised once: it counts as the best there is, if its mean says so.
#[test]
fn points_that_are_asked_for_one_by_one_keep_apart() {
    let f = |x: f64| (x - 0.37).powi(2);
    for strategy in [Strategy::default(), Strategy::Greedy(Acquisition::ExpectedImprovement)] {
        let settings = OptimizerSettings { strategy, ..OptimizerSettings::default() };
        let mut optimizer = Optimizer::new(Space::unit(1).unwrap(), settings).unwrap();
        for x in [0.0, 0.2, 0.5, 0.7, 0.85, 1.0] {
            optimizer.tell(&[x], f(x)).unwrap();
        }
        let mut asked: Vec<f64> = (0..4).map(|_| optimizer.ask(1).unwrap()[0][0]).collect();
        asked.sort_by(f64::total_cmp);
        assert!(asked.windows(2).all(|pair| pair[1] - pair[0] > 1e-3), "{strategy:?}: {asked:?}");
    }
}

#[test]
fn known_noise_integers_and_logarithms() {
    let space = Space::new(vec![
        Dimension { integer: true, ..Dimension::linear("layers", 1.0, 9.0) },
        Dimension::log("rate", 1e-5, 1.0),
    ])
    .unwrap();
    let settings = OptimizerSettings { known_noise: true, ..OptimizerSettings::default() };
    let mut optimizer = Optimizer::new(space, settings).unwrap();
    let loss = |x: &[f64]| (x[0] - 4.0).powi(2) / 10.0 + (x[1].log10() + 3.0).powi(2);
    assert!(optimizer.tell(&[3.0, 0.1], 1.0).unwrap_err().to_string().contains("must be told with it"));
    for i in 0..40 {
        for x in optimizer.ask(1).unwrap() {
            assert_eq!(x[0], x[0].round());
            optimizer.tell_noisy(&x, loss(&x), 1e-4 + 1e-5 * f64::from(i % 3)).unwrap();
        }
    }
    let best = optimizer.best().unwrap();
    assert!(best.x[0] == 4.0 && (best.x[1].log10() + 3.0).abs() < 0.3, "{best:?}");
    for bad in [
        vec![],
        vec![Dimension::linear("a", 1.0, 0.0)],
        vec![Dimension::log("a", 0.0, 1.0)],
        vec![Dimension::linear("a", 0.0, 1.0), Dimension::linear("a", 0.0, 1.0)],
        (0..51).map(|k| Dimension::linear(format!("x{k}"), 0.0, 1.0)).collect(),
    ] {
        assert!(Space::new(bad).is_err());
    }
}

/// Six dimensions have all pairs, eight only those that the results ask for.
#[test]
fn many_dimensions_are_searched_better_than_at_random() {
    let six = |x: &[f64]| TestFunction::Hartmann.value(x);
    // Two of eight dimensions interact, four do nothing.
    let eight = |x: &[f64]| {
        let product = (x[1] - 0.3) * (x[6] - 0.8);
        4.0 * product + (x[3] - 0.6).powi(2) + 0.5 * (x[0] - 0.2).powi(2)
    };
    let maximizer = Maximizer { raw_samples: 128, restarts: 3, iterations: 60 };
    for (dim, trials, f) in [(6, 60, &six as &dyn Fn(&[f64]) -> f64), (8, 40, &eight)] {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(19);
        let mut random = |_: i32| f(&(0..dim).map(|_| rng.random::<f64>()).collect::<Vec<f64>>());
        // Ten times as many random points.
        let best_of_random = (0..10 * trials).map(&mut random).fold(f64::INFINITY, f64::min);
        let search = |seed: u64| {
            let settings =
                OptimizerSettings { seed, exact_until: 0, maximizer, ..OptimizerSettings::default() };
            let mut optimizer = Optimizer::new(Space::unit(dim).unwrap(), settings).unwrap();
            for _ in 0..trials {
                let x = optimizer.ask(1).unwrap().remove(0);
                optimizer.tell(&x, f(&x)).unwrap();
                assert_eq!(optimizer.take_failure(), None);
            }
            let Outcome::Value(best) = optimizer.best().unwrap().outcome else { panic!("failed") };
            (best, optimizer)
        };
        // One search in five or so closes in on the wrong corner, and rounding decides which.
        let mut searches: Vec<(f64, Optimizer)> = [3, 4, 5].map(search).into();
        searches.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (best, mut optimizer) = searches.swap_remove(1);
        assert!(best < best_of_random, "{dim} dimensions: {best}, at random {best_of_random}");
        let surrogate = optimizer.surrogate().unwrap();
        if dim == 6 {
            assert_eq!(surrogate.blocks().iter().filter(|b| b.len() == 2).count(), 15);
        }
        // The model goes on to the last bit after a restart, pairs and all.
        let mut again: Optimizer = persist::from_bytes(&persist::to_bytes(&optimizer).unwrap()).unwrap();
        assert_eq!(optimizer.ask(2).unwrap(), again.ask(2).unwrap());
    }
}

/// Eight points an axis cannot follow waves that an exact process sees, unless noise hides them.
#[test]
fn a_grid_that_is_too_coarse_closes_in() {
    for (noise, closes_in) in [(0.0, true), (0.6, false)] {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(8);
        let maximizer = Maximizer { raw_samples: 64, restarts: 2, iterations: 40 };
        let settings =
            OptimizerSettings { exact_until: 35, grid: Some(8), maximizer, ..OptimizerSettings::default() };
        let mut optimizer = Optimizer::new(Space::unit(2).unwrap(), settings).unwrap();
        let (mut covered, mut exact) = (Vec::new(), 0);
        for _ in 0..90 {
            let x = optimizer.ask(1).unwrap().remove(0);
            let e: f64 = rng.sample(StandardNormal);
            let waves = (14.0 * x[0]).sin() + (12.0 * x[1]).cos();
            optimizer.tell(&x, waves + (x[0] - 0.4).powi(2) + noise * e).unwrap();
            exact += usize::from(optimizer.surrogate().is_some_and(SurrogateModel::is_exact));
            covered.extend(optimizer.surrogate().map(|l| l.covers()[0].1 - l.covers()[0].0));
        }
        // After the first design of seven, which makes the model: up to 35 or 70 results.
        assert_eq!(exact, if closes_in { 64 } else { 29 });
        assert_eq!(covered.iter().any(|width| *width < 2.0), closes_in, "noise {noise}: {covered:?}");
    }
}

/// Few noisy results look like short waves without noise; the model must find out when there are more.
#[test]
fn noise_is_found_even_if_it_looked_like_waves_at_first() {
    for seed in 0..3 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let settings = OptimizerSettings { seed, ..OptimizerSettings::default() };
        let mut optimizer = Optimizer::new(TestFunction::Rastrigin.space(2).unwrap(), settings).unwrap();
        for _ in 0..120 {
            let x = optimizer.ask(1).unwrap().remove(0);
            let e: f64 = rng.sample(StandardNormal);
            optimizer.tell(&x, TestFunction::Rastrigin.value(&x) + 10.0 * e).unwrap();
        }
        let surrogate = optimizer.surrogate().unwrap();
        let noise = surrogate.scale().scale * surrogate.hyperparameters().unwrap().noise.sqrt();
        assert!(surrogate.is_exact() && noise > 5.0, "seed {seed}: noise {noise}");
    }
}

/// The trials and the surrogate model have the same results, also where a fit after a result did not end.
#[test]
fn a_result_stays_learned_if_the_fit_after_it_does_not_end() {
    for exact_until in [0, 500] {
        let settings = OptimizerSettings { exact_until, ..OptimizerSettings::default() };
        let mut optimizer = Optimizer::new(branin_space(), settings).unwrap();
        let tell = |optimizer: &mut Optimizer| {
            let x = optimizer.ask(1).unwrap().remove(0);
            let stopped = Interrupt::new();
            stopped.set();
            stopped.watch(|| optimizer.tell(&x, branin(&x))).unwrap();
        };
        (0..7).for_each(|_| tell(&mut optimizer));
        assert!(optimizer.surrogate().is_none(), "the first fit was interrupted");
        let x = optimizer.ask(1).unwrap().remove(0);
        optimizer.tell(&x, branin(&x)).unwrap();
        for told in 9..14 {
            tell(&mut optimizer);
            assert_eq!((optimizer.trials().len(), optimizer.surrogate().unwrap().count()), (told, told));
        }
        assert_eq!(optimizer.take_failure(), None, "an interrupt is no failure");
        optimizer.refit().unwrap();
        assert_eq!(optimizer.surrogate().unwrap().count(), 13);
    }
}

#[test]
fn one_step_a_result_is_a_schedule_too() {
    for exact_until in [0, 500] {
        let schedule = Schedule::EveryStep { rate: 0.02 };
        let settings = OptimizerSettings { schedule, exact_until, ..OptimizerSettings::default() };
        steps_are_taken(settings);
    }
}

fn steps_are_taken(settings: OptimizerSettings) {
    let exact_until = settings.exact_until;
    let mut optimizer = Optimizer::new(branin_space(), settings).unwrap();
    let mut kernels = Vec::new();
    for _ in 0..25 {
        let x = optimizer.ask(1).unwrap().remove(0);
        optimizer.tell(&x, branin(&x)).unwrap();
        kernels.extend(optimizer.surrogate().map(|l| l.hyperparameters().unwrap()));
    }
    assert!(kernels.windows(2).all(|k| k[0] != k[1]));
    let before = optimizer.surrogate().unwrap().log_evidence().unwrap();
    optimizer.refit().unwrap();
    let after = optimizer.surrogate().unwrap().log_evidence().unwrap();
    assert!(after > before, "{before} {after}");
    // Without it nothing moves.
    let settings = OptimizerSettings { schedule: Schedule::Off, exact_until, ..OptimizerSettings::default() };
    let mut still = Optimizer::new(branin_space(), settings).unwrap();
    let mut kernels = Vec::new();
    for _ in 0..15 {
        let x = still.ask(1).unwrap().remove(0);
        still.tell(&x, branin(&x)).unwrap();
        kernels.extend(still.surrogate().map(|l| l.hyperparameters().unwrap()));
    }
    assert!(kernels.len() > 5 && kernels.windows(2).all(|k| k[0] == k[1]));
}
