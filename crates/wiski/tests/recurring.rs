//! Columns whose values recur: each value may have an effect of its own beside a smooth one.

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::model::Reads;
use wiski::{Features, OnlineRegressor, Settings, persist};

const NOISE: f64 = 0.1;
const ROWS: usize = 800;
const VALUES: usize = 32;

struct Data {
    /// Values of the second column, and the effect of each.
    values: Vec<(f64, f64)>,
    rng: Xoshiro256PlusPlus,
}

impl Data {
    /// A smooth function of three columns; values of the second have effects of their own, of the given deviation.
    fn new(deviation: f64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut effect = || deviation * normal(&mut rng);
        let effects: Vec<f64> = (0..VALUES).map(|_| effect()).collect();
        let values = effects.into_iter().map(|effect| (rng.random_range(-1.0..1.0), effect)).collect();
        Self { values, rng }
    }

    fn row(&mut self) -> ([f64; 3], f64) {
        let (value, effect) = self.values[self.rng.random_range(0..VALUES)];
        let x = [self.rng.random_range(-1.0..1.0), value, self.rng.random_range(-1.0..1.0)];
        (x, (2.0 * x[0]).sin() * x[2] + 0.5 * x[1] + effect)
    }

    fn learned(&mut self) -> OnlineRegressor {
        let settings = Settings { features: Features::Points { count: Some(48) }, ..Settings::default() };
        let mut model = OnlineRegressor::new(3, settings).unwrap();
        for _ in 0..ROWS {
            let (x, f) = self.row();
            model.observe(&x, f + NOISE * normal(&mut self.rng)).unwrap();
        }
        model.finish_search().unwrap();
        model
    }
}

fn normal(rng: &mut Xoshiro256PlusPlus) -> f64 {
    StandardNormal.sample(rng)
}

#[test]
fn values_that_recur_have_effects_of_their_own() {
    let mut data = Data::new(0.5);
    let model = data.learned();
    let blocks = model.blocks();
    assert!(blocks.iter().any(|b| b.reads == [Reads::Values(1)]), "{blocks:?}");
    // 25 rows a value leave NOISE/√25 = .02 of an effect unknown, and the smooth function is known to about as much; a
    // smooth function of 32 values that say nothing of their neighbors would be off by .4.
    let rows: Vec<([f64; 3], f64)> = (0..500).map(|_| data.row()).collect();
    let (mut squares, mut inside) = (0.0, 0);
    for (x, f) in &rows {
        let p = model.predict(x).unwrap();
        squares += (p.mean - f).powi(2) / 500.0;
        inside += usize::from((p.mean - f).abs() <= 1.96 * p.variance.sqrt());
    }
    assert!(squares.sqrt() < 0.6 * NOISE, "{}", squares.sqrt());
    assert!((430..=497).contains(&inside), "{inside}");

    // Of a value that was never seen only the smooth part is known: its effect has deviation .5, and up to √2 of it is said, since
    // no row had a rare value.
    let near = data.values[0].0 + 1e-7;
    let (seen, new) =
        (model.predict(&[0.1, data.values[0].0, 0.2]).unwrap(), model.predict(&[0.1, near, 0.2]).unwrap());
    assert!(seen.variance.sqrt() < 0.1, "{seen:?}");
    assert!((0.4..1.0).contains(&new.variance.sqrt()), "{new:?}");

    // Files, snapshots and un-learning know of it.
    let bytes = persist::to_bytes(&model).unwrap();
    let mut copy: OnlineRegressor = persist::from_bytes(&bytes).unwrap();
    let snapshot = model.snapshot().unwrap();
    for (x, _) in &rows[..20] {
        let p = model.predict(x).unwrap();
        assert_eq!(p, copy.predict(x).unwrap());
        let q = snapshot.predict(x).unwrap();
        assert!(
            (p.mean - q.mean).abs() < 1e-8 && (p.variance / q.variance - 1.0).abs() < 1e-6,
            "{p:?} {q:?}"
        );
    }
    let (x, f) = rows[0];
    copy.freeze_features().unwrap();
    copy.observe(&x, f).unwrap();
    copy.forget(&x, f).unwrap();
    let (p, q) = (model.predict(&x).unwrap(), copy.predict(&x).unwrap());
    assert!((p.mean - q.mean).abs() < 1e-9 && (p.variance - q.variance).abs() < 1e-9, "{p:?} {q:?}");
}

#[test]
fn smooth_functions_of_recurring_values_need_no_levels() {
    let model = Data::new(0.0).learned();
    let blocks = model.blocks();
    assert!(!blocks.iter().any(|b| matches!(b.reads[0], Reads::Values(_))), "{blocks:?}");
}
