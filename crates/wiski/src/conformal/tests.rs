//! The promise against adversaries, the controller against its formulas, the other controllers against theirs.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;

const LEVELS: [f64; 6] = [0.5, 0.8, 0.9, 0.95, 0.98, 0.99];

/// Says the next score when it knows the state.
type Adversary<'a> = Box<dyn FnMut(usize, &Conformal) -> f64 + 'a>;

fn rng(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

fn normal(rng: &mut Xoshiro256PlusPlus) -> f64 {
    rng.sample(rand_distr::StandardNormal)
}

fn control() -> Conformal {
    Conformal::new(&LEVELS, Score::Deviations).unwrap()
}

/// The misses of each level, and the mean quantile, over scores made of the quantiles said for them.
fn misses(control: &mut Conformal, rows: usize, mut score: impl FnMut(usize, &Conformal) -> f64) -> Vec<f64> {
    let mut misses = vec![0.0; LEVELS.len()];
    for row in 0..rows {
        let z = score(row, control);
        for (miss, level) in misses.iter_mut().zip(LEVELS) {
            *miss += f64::from(u8::from(z > control.quantile(level, Horizon::Next).unwrap()));
        }
        control.observe(z);
    }
    misses
}

#[test]
fn misses_are_as_many_as_promised_whatever_the_scores_are() {
    let rows = 200_000;
    let mut random = rng(1);
    let next = |c: &Conformal, level: f64| c.quantile(level, Horizon::Next).unwrap();
    let adversaries: Vec<(&str, Adversary)> = vec![
        // One that knows the interval and misses it by a hair as long as scores of its size are allowed.
        ("just outside", Box::new(|_, c| (next(c, 0.95) * 1.0001).min(1e4))),
        ("just inside", Box::new(|_, c| (next(c, 0.95) * 0.9999).max(0.05))),
        (
            "outside, then tiny",
            Box::new(|row, c| if row / 700 % 2 == 0 { next(c, 0.9) * 1.01 } else { 0.1 }.min(1e4)),
        ),
        ("jumps", Box::new(|row, _| 10f64.powf(4.0 * (row as f64 / 997.0).sin()).max(0.05))),
        ("between two levels", Box::new(|_, c| (0.50001 * (next(c, 0.8) + next(c, 0.99))).clamp(0.05, 1e4))),
        (
            "random size",
            Box::new(|row, _| {
                let size = if row % 1000 < 500 { 1.0 } else { 300.0 };
                (size * normal(&mut random).abs()).max(0.05)
            }),
        ),
    ];
    for (name, adversary) in adversaries {
        let found = misses(&mut control(), rows, adversary);
        for (miss, level) in found.iter().zip(LEVELS) {
            let rate = miss / rows as f64;
            // (U − L + η)/(ηT), once more where a lower level stands in for this one.
            let bound = 2.0 * (1e8_f64.ln() + 0.02) / (0.02 * rows as f64);
            assert!((rate - (1.0 - level)).abs() <= bound, "{name}: {rate} misses at the level {level}");
        }
    }
}

#[test]
fn one_level_keeps_the_bound_of_the_proof() {
    for level in [0.5, 0.9, 0.99] {
        for rows in [1000, 10_000, 100_000] {
            let mut control = Conformal::new(&[level], Score::Deviations).unwrap();
            let mut count = 0.0;
            for row in 0..rows {
                let q = control.quantile(level, Horizon::Next).unwrap();
                let z = if row < rows / 2 { (1.001 * q).min(1e5) } else { (0.999 * q).max(0.03) };
                count += f64::from(u8::from(z > q));
                control.observe(z);
            }
            let bound = (1e8_f64.ln() + 0.02) / (0.02 * f64::from(rows));
            assert!((count / f64::from(rows) - (1.0 - level)).abs() <= bound, "{level} {rows} {count}");
        }
    }
}

#[test]
fn gaussian_scores_leave_gaussian_intervals() {
    let (mut control, mut random, rows) = (control(), rng(2), 60_000);
    let mut widths = [0.0; LEVELS.len()];
    let mut worst = 0.0_f64;
    let found = misses(&mut control, rows, |row, c| {
        for (width, level) in widths.iter_mut().zip(LEVELS) {
            let plain = Score::Deviations.plain(level);
            let q = c.quantile(level, Horizon::Next).unwrap() / plain;
            *width += q / rows as f64;
            if row > 2000 {
                worst = worst.max((c.quantile(level, Horizon::Ahead).unwrap() / plain - 1.0).abs());
            }
        }
        normal(&mut random).abs()
    });
    for i in 0..LEVELS.len() {
        let alpha = 1.0 - LEVELS[i];
        let noise = 3.0 * (alpha * LEVELS[i] / rows as f64).sqrt();
        assert!((found[i] / rows as f64 - alpha).abs() < noise, "{}: {}", LEVELS[i], found[i]);
        assert!((widths[i] - 1.0).abs() < 0.016, "{}: {} times as wide", LEVELS[i], widths[i]);
    }
    // log q of the slow tracker has a deviation of √(η α(1 − α)/2f) < 0.04 at each of these levels.
    assert!(worst < 0.16, "the long-run quantile went {worst} off");
}

#[test]
fn windows_hold_while_the_size_of_errors_changes() {
    let (mut control, mut random) = (Conformal::new(&[0.9], Score::Deviations).unwrap(), rng(3));
    let (mut inside, mut plain) = (vec![0.0; 40], vec![0.0; 40]);
    for row in 0..40_000 {
        let size = (1.5 * (row as f64 / 3000.0).sin()).exp();
        let z = size * normal(&mut random).abs();
        inside[row / 1000] +=
            f64::from(u8::from(z <= control.quantile(0.9, Horizon::Next).unwrap())) / 1000.0;
        plain[row / 1000] += f64::from(u8::from(z <= Score::Deviations.plain(0.9))) / 1000.0;
        control.observe(z);
    }
    let range = |w: &[f64]| (w.iter().copied().fold(1.0, f64::min), w.iter().copied().fold(0.0, f64::max));
    let (low, high) = range(&inside);
    assert!(low > 0.87 && high < 0.93, "windows from {low} to {high}");
    assert!(range(&plain).0 < 0.5, "it would have been easy otherwise: {:?}", range(&plain));
}

#[test]
fn groups_of_large_errors_make_wide_intervals_there_and_narrow_ones_elsewhere() {
    let (mut control, mut slow) =
        (Conformal::new(&[0.9], Score::Deviations).unwrap(), QuantileTracker::new(0.9, 0.005));
    let (mut random, mut error) = (rng(4), 0.0_f64);
    let (mut widths, mut inside) = ([0.0; 2], [0.0; 2]);
    let rows = 30_000;
    for _ in 0..rows {
        // Errors that last: an autoregressive process of unit variance.
        error = 0.95 * error + (1.0_f64 - 0.95 * 0.95).sqrt() * normal(&mut random);
        let (z, q) = (error.abs(), [control.quantile(0.9, Horizon::Next).unwrap(), slow.quantile()]);
        for i in 0..2 {
            widths[i] += q[i] / f64::from(rows);
            inside[i] += f64::from(u8::from(z <= q[i])) / f64::from(rows);
        }
        control.observe(z);
        slow.observe(z);
    }
    assert!((inside[0] - 0.9).abs() < 0.003 && (inside[1] - 0.9).abs() < 0.01, "{inside:?}");
    assert!(widths[0] < 0.85 * widths[1], "{widths:?}");
}

#[test]
fn no_quantile_is_infinite_and_exact_predictions_do_not_wind_up() {
    let mut control = control();
    for (rows, z) in [(50_000, 0.0), (5000, f64::INFINITY), (5000, 1e300), (50_000, 0.0), (1, f64::NAN)] {
        for _ in 0..rows {
            control.observe(z);
            for level in [0.01, 0.5, 0.93, 0.99, 0.9999] {
                for horizon in [Horizon::Last, Horizon::Next, Horizon::Ahead] {
                    let q = control.quantile(level, horizon).unwrap();
                    assert!(q > 0.0 && q < 1e8, "{q} at {level}");
                }
            }
        }
    }
    // After 50,000 exact predictions Gaussian errors are covered again within some hundred rows, not some thousand.
    let mut random = rng(5);
    let found: Vec<f64> = misses(&mut control, 500, |_, _| normal(&mut random).abs());
    assert!(found[3] < 200.0, "{found:?}");
    let found: Vec<f64> = misses(&mut control, 1000, |_, _| normal(&mut random).abs());
    assert!((found[3] / 1000.0 - 0.05).abs() < 0.02, "{found:?}");
}

#[test]
fn quantiles_do_not_cross_and_levels_in_between_lie_in_between() {
    let (mut control, mut random) = (control(), rng(6));
    let all: Vec<f64> = (1..200).map(|i| f64::from(i) / 200.0).collect();
    for row in 0..5000 {
        let size = (2.0 * (f64::from(row) / 50.0).sin()).exp();
        control.observe(size * normal(&mut random).abs());
        for horizon in [Horizon::Last, Horizon::Next, Horizon::Ahead] {
            let at = |&level: &f64| control.quantile(level, horizon).unwrap();
            let quantiles: Vec<f64> = all.iter().map(at).collect();
            assert!(quantiles.windows(2).all(|w| w[0] <= w[1] * (1.0 + 1e-12)), "row {row}: {quantiles:?}");
            let copy = control.quantiles(horizon);
            assert!(all.iter().zip(&quantiles).all(|(l, q)| (copy.at(*l).unwrap() / q - 1.0).abs() < 1e-12));
        }
    }
    for wrong in [0.0, 1.0, -0.1, 95.0, f64::NAN] {
        assert!(control.quantile(wrong, Horizon::Next).is_err());
        assert!(Conformal::new(&[wrong], Score::Deviations).is_err());
    }
    assert!(Conformal::new(&[], Score::Deviations).is_err());
}

/// The controller for one level, from its formulas, without regard to cost.
struct Slow {
    alpha: f64,
    plain: f64,
    rows: f64,
    theta: Vec<f64>,
    weights: Vec<f64>,
    loss: f64,
    e0: f64,
    e: Vec<f64>,
    c: f64,
}

impl Slow {
    fn said(&self, k: usize) -> f64 {
        let (share, e) = [(0.0, 1.0), (0.0, 1.0), (0.5, self.e[0]), (0.6, self.e[1])][k];
        let scaled = self.theta[k] + (1.0 - share + share * e / self.e0).ln();
        scaled.clamp(self.plain - 100f64.ln(), self.plain + 1e6_f64.ln())
    }

    fn forecast(&self) -> f64 {
        (0..4).map(|k| self.weights[k] * self.said(k)).sum()
    }

    fn observe(&mut self, z: f64) {
        let (low, high) = (self.plain - 100f64.ln(), self.plain + 1e6_f64.ln());
        let indicator = |miss: bool| if miss { 1.0 } else { 0.0 };
        let raw = self.forecast() + self.c;
        let missed = indicator(z.ln() > raw.clamp(low, high));
        self.c += 0.02 * (missed - self.alpha);
        let x = z.ln().clamp(low, high);
        let said: Vec<f64> = (0..4).map(|k| self.said(k)).collect();
        let pinball: Vec<f64> = said
            .iter()
            .map(|f| if x > *f { (1.0 - self.alpha) * (x - f) } else { self.alpha * (f - x) })
            .collect();
        let mean: f64 = (0..4).map(|k| self.weights[k] * pinball[k]).sum();
        self.loss = 0.998 * self.loss + 0.002 * mean;
        for k in 0..4 {
            let gain = 0.1 * (mean - pinball[k]) / self.loss;
            self.weights[k] *= 1.0 + gain.clamp(-0.5, 0.5);
            let rate = [(4.0 / (self.rows + 200.0)).max(0.005), 0.05, 0.01, 0.01][k];
            self.theta[k] = (self.theta[k] + rate * (indicator(x > said[k]) - self.alpha)).clamp(low, high);
        }
        let sum: f64 = self.weights.iter().sum();
        let first = [0.7, 0.1, 0.1, 0.1];
        self.weights = (0..4).map(|k| 0.999 * self.weights[k] / sum + 0.001 * first[k]).collect();
        self.rows += 1.0;
        let z = z.max(0.01).min(10.0 * self.e0);
        let slow = (1.0 / (self.rows + 50.0)).max(0.002);
        self.e0 = (1.0 - slow) * self.e0 + slow * z;
        self.e = vec![0.9 * self.e[0] + 0.1 * z, 0.4 * self.e[1] + 0.6 * z];
    }
}

#[test]
fn the_controller_follows_its_formulas() {
    for level in [0.8, 0.95] {
        let mut fast = Conformal::new(&[level], Score::Deviations).unwrap();
        let plain = Score::Deviations.plain(level).ln();
        let (theta, weights) = (vec![plain; 4], vec![0.7, 0.1, 0.1, 0.1]);
        let (rows, loss, e0, e, c) = (0.0, 0.1, 0.8, vec![0.8; 2], 0.0);
        let mut slow = Slow { alpha: 1.0 - level, plain, rows, theta, weights, loss, e0, e, c };
        let (mut random, mut error) = (rng(7), 0.0);
        for row in 0..5000 {
            error = 0.8 * error + normal(&mut random);
            let z = if row == 2000 { 1e4 } else { f64::abs(error) };
            let (want, got) =
                ((slow.forecast() + slow.c).exp(), fast.quantile(level, Horizon::Next).unwrap());
            assert!((got / want - 1.0).abs() < 1e-9, "row {row}: {got} {want}");
            let ahead = fast.quantile(level, Horizon::Ahead).unwrap();
            assert!((ahead / slow.theta[0].exp() - 1.0).abs() < 1e-9);
            slow.observe(z);
            fast.observe(z);
            assert_eq!(fast.quantile(level, Horizon::Last).unwrap(), got);
        }
    }
}

#[test]
fn adaptive_conformal_inference_takes_quantiles_of_the_window() {
    let (mut aci, mut random) = (AdaptiveConformal::new(0.9, 0.03, 50), rng(8));
    let (mut all, mut adapted): (Vec<f64>, f64) = (Vec::new(), 0.1);
    let mut infinite = 0;
    for row in 0..3000 {
        let mut last = all[all.len().saturating_sub(50)..].to_vec();
        last.sort_by(f64::total_cmp);
        let want = if last.len() < 20 {
            Score::Deviations.plain(0.9)
        } else if adapted >= 1.0 {
            0.0
        } else {
            let rank = ((1.0 - adapted) * (last.len() + 1) as f64).ceil().max(1.0) as usize;
            if rank > last.len() { f64::INFINITY } else { last[rank - 1] }
        };
        assert_eq!(aci.quantile(), want, "row {row}");
        infinite += u32::from(want.is_infinite());
        let z = (f64::from(row) / 100.0).sin().exp() * normal(&mut random).abs();
        adapted += 0.03 * (0.1 - f64::from(u8::from(z > want)));
        all.push(z);
        aci.observe(z);
    }
    assert!(infinite > 0, "this is where it says nothing");
}

#[test]
fn trackers_move_by_what_they_miss() {
    let mut tracker = QuantileTracker::new(0.95, 0.1);
    assert!((tracker.quantile() - 1.959_963_984_540_054).abs() < 1e-12);
    tracker.observe(5.0);
    assert!((tracker.quantile() / 1.959_963_984_540_054 - 0.095_f64.exp()).abs() < 1e-12);
    tracker.observe(0.1);
    assert!((tracker.quantile() / 1.959_963_984_540_054 - 0.09_f64.exp()).abs() < 1e-12);

    let mut pid = ConformalPid::new(0.95, 0.1, 5.0, 2.0);
    pid.observe(5.0);
    // p moved by 0.1 · 5 · 0.95; the integral is 0.95, t = 1.
    let want = 1.959_963_984_540_054 + 0.475 + 2.0 * (0.95 * 2f64.ln() / 10.0).tan();
    assert!((pid.quantile() - want).abs() < 1e-12);
    pid.observe(1.0);
    let want = 1.959_963_984_540_054 + 0.475 - 0.025 + 2.0 * (0.9 * 3f64.ln() / 15.0).tan();
    assert!((pid.quantile() - want).abs() < 1e-12);
}

#[test]
fn a_file_goes_on_to_the_last_bit_and_hostile_ones_are_rejected() {
    let (mut control, mut random) = (control(), rng(9));
    let fresh: Conformal = rmp_serde::from_slice(&rmp_serde::to_vec_named(&control).unwrap()).unwrap();
    assert_eq!(fresh, control);
    for _ in 0..1000 {
        control.observe(2.0 * normal(&mut random).abs());
    }
    let bytes = rmp_serde::to_vec_named(&control).unwrap();
    let mut read: Conformal = rmp_serde::from_slice(&bytes).unwrap();
    for _ in 0..1000 {
        let z = normal(&mut random).abs();
        control.observe(z);
        read.observe(z);
        assert_eq!(control, read);
    }
    let mut wrong = 0;
    for at in 0..bytes.len() {
        for bit in [0x7f, 0xff, 0x80] {
            let mut changed = bytes.clone();
            changed[at] ^= bit;
            // Whatever is read must say something sound.
            match rmp_serde::from_slice::<Conformal>(&changed) {
                Ok(mut read) => {
                    read.observe(1.0);
                    let q = read.quantile(0.9, Horizon::Next).unwrap();
                    assert!(q > 0.0 && q.is_finite());
                }
                Err(_) => wrong += 1,
            }
        }
    }
    assert!(wrong > 100, "{wrong}");
}

#[test]
fn merging_takes_means_by_rows() {
    let (mut a, mut b, mut random) = (control(), control(), rng(10));
    for row in 0..6000 {
        a.observe(normal(&mut random).abs());
        if row % 2 == 0 {
            b.observe(3.0 * normal(&mut random).abs());
        }
    }
    let at = |c: &Conformal| c.quantile(0.9, Horizon::Ahead).unwrap().ln();
    let want = (at(&a) * 6000.0 + at(&b) * 3000.0) / 9000.0;
    let (before, mut merged) = (a.clone(), a.clone());
    merged.merge(&b);
    assert!((at(&merged) - want).abs() < 1e-12 && merged.rows() == 9000.0);
    let mut other_way = b.clone();
    other_way.merge(&a);
    assert!((at(&other_way) - want).abs() < 1e-12);
    // One that has seen nothing changes nothing, and takes on everything.
    merged = a.clone();
    merged.merge(&control());
    assert_eq!(merged, before);
    let mut empty = control();
    empty.merge(&a);
    assert!((at(&empty) - at(&a)).abs() < 1e-12);
}

#[test]
fn sets_without_the_empty_one_do_not_wind_up() {
    // The likeliest class is always right: no set need have two.
    let mut control = Conformal::new(&[0.9], Score::Surprise).unwrap();
    (0..20_000).for_each(|_| control.observe_set(0.01, true));
    let q = control.quantile(0.9, Horizon::Next).unwrap();
    assert!((q - std::f64::consts::LN_2).abs() < 1e-9, "{q}");
    // From then on the second class comes every fifth time, with a probability of a tenth.
    let mut inside = 0.0;
    for row in 0..2000 {
        let second = row % 5 == 0;
        let score: f64 = if second { -0.1_f64.ln() } else { -0.85_f64.ln() };
        inside += f64::from(u8::from(!second || score <= control.quantile(0.9, Horizon::Next).unwrap()));
        control.observe_set(score, !second);
    }
    assert!((inside / 2000.0 - 0.9).abs() < 0.03, "{inside}");
}

#[test]
fn an_interval_is_that_of_its_prediction() {
    let p = Prediction { mean: 2.0, variance: 3.0, noise: 1.0 };
    let interval = Interval::around(&p, 1.5);
    assert_eq!((interval.lower, interval.upper, interval.width()), (-1.0, 5.0, 6.0));
    assert!(interval.contains(-1.0) && interval.contains(5.0) && !interval.contains(5.1));
    let plain = Interval::gaussian(&p, 0.95).unwrap();
    assert!((plain.upper - 2.0 - 2.0 * 1.959_963_984_540_054).abs() < 1e-12);
    assert!(Interval::gaussian(&p, 1.0).is_err());
}

#[test]
fn rows_elsewhere_need_at_least_what_rows_left_out_need() {
    let ahead = |control: &Conformal, level| control.quantile(level, Horizon::Ahead).unwrap();
    let mut control = Conformal::new(&[0.5, 0.9], Score::Deviations).unwrap();
    (0..5000).for_each(|i| control.observe(0.5 * (f64::from(i) * 0.618_034).fract()));
    let (next, narrow) = (control.quantile(0.9, Horizon::Next).unwrap(), ahead(&control, 0.9));
    assert!(narrow < 0.5, "{narrow}");
    // Scores of .03, .06, … 3: the 91st of a hundred is exceeded by a further one with probability .1.
    control.observe_left_out((1..=100).rev().map(|i| 0.03 * f64::from(i)).collect());
    assert!((ahead(&control, 0.9) - 2.73).abs() < 1e-12 && (ahead(&control, 0.5) - 1.53).abs() < 1e-12);
    assert_eq!(control.quantile(0.9, Horizon::Next).unwrap(), next);
    // What the stream needs is not less for it, and few rows say nothing about high levels.
    control.observe_left_out((1..=100).map(|i| 0.003 * f64::from(i)).collect());
    assert_eq!(ahead(&control, 0.9), narrow);
    control.observe_left_out(vec![0.3; 8]);
    assert_eq!((ahead(&control, 0.9), ahead(&control, 0.5)), (narrow, 0.3));
}
