//! Every backward pass against finite differences.

use super::{assert_close, cases, features, normals, rng};
use crate::feature::{
    Activation, FeatureMap, Identity, Linear, Mlp, Moments, Normalizer, Projection, Tape, start,
};
use proptest::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;

/// L = Σ c_j h_j(x; φ).
fn loss(map: &FeatureMap, moments: &Moments, x: &[f64], c: &[f64]) -> f64 {
    features(map, moments, x).iter().zip(c).map(|(h, c)| h * c).sum()
}

/// The limit of central differences over falling steps (Ridders' extrapolation): of all entries of the
/// triangle the one that its neighbors confirm best. It adapts to the steepness of the function and knows
/// nothing of the gradient it is compared with.
fn derivative(f: impl Fn(f64) -> f64, first_step: f64) -> f64 {
    let ratio: f64 = 1.6;
    let mut step = first_step;
    let mut before: Vec<f64> = Vec::new();
    let mut best = (f64::INFINITY, 0.0);
    for _ in 0..12 {
        let mut row = vec![(f(step) - f(-step)) / (2.0 * step)];
        let mut factor = 1.0;
        for order in 0..before.len() {
            factor *= ratio * ratio;
            row.push((row[order] * factor - before[order]) / (factor - 1.0));
            let doubt = (row[order + 1] - row[order]).abs().max((row[order + 1] - before[order]).abs());
            if doubt < best.0 {
                best = (doubt, row[order + 1]);
            }
        }
        before = row;
        step /= ratio;
    }
    best.1
}

/// Compares ∂L/∂φ and ∂L/∂x, every entry, to 10⁻⁸ of the largest: extrapolated differences of values near 1
/// are good to about 10⁻¹¹ in absolute terms, and gradients here are above 10⁻³. For piecewise linear layers
/// the first step must stay on one side of the kinks.
fn check(map: &FeatureMap, moments: &Moments, x: &[f64], c: &[f64], step: f64) {
    let mut work = Normalizer::default();
    let mut tape = Tape::new();
    let mut h = vec![0.0; map.output_dim()];
    let view = map.prepare(moments, &mut work).unwrap();
    view.forward(x, &mut h, &mut tape).unwrap();
    let mut dphi = vec![0.0; map.parameters().len()];
    let mut dx = vec![f64::NAN; map.input_dim()];
    view.backward(&mut tape, c, &mut dphi, Some(&mut dx)).unwrap();

    let by_phi: Vec<f64> = (0..dphi.len())
        .map(|i| {
            let moved = |by: f64| {
                let mut map = map.clone();
                map.parameters_mut()[i] += by;
                loss(&map, moments, x, c)
            };
            derivative(moved, step)
        })
        .collect();
    let by_x: Vec<f64> = (0..x.len())
        .map(|i| {
            let moved = |by: f64| {
                let mut x = x.to_vec();
                x[i] += by;
                loss(map, moments, &x, c)
            };
            derivative(moved, step)
        })
        .collect();
    // One scale for both: batch-norm of a single column does not depend on its weight but through ε, so ∂L/∂φ
    // alone can be a difference of equal numbers.
    let scale = by_phi.iter().chain(&by_x).fold(0.0_f64, |a, b| a.max(b.abs()));
    assert!(scale > 1e-3, "a test of zeros would test nothing");
    assert_close(&dphi, &by_phi, 1e-8, scale);
    assert_close(&dx, &by_x, 1e-8, scale);

    // dphi is added to, dx is written; without dx the same dphi.
    let mut twice = dphi.clone();
    view.backward(&mut tape, c, &mut twice, None).unwrap();
    let doubled: Vec<f64> = dphi.iter().map(|g| 2.0 * g).collect();
    assert_close(&twice, &doubled, 1e-15, scale);
}

/// Correlated rows with an offset, so that mean and covariance both matter.
fn some_moments(rng: &mut Xoshiro256PlusPlus, d: usize) -> Moments {
    let mut x = normals(rng, 30 * d);
    for row in x.chunks_exact_mut(d) {
        for i in (0..d).rev() {
            row[i] = 0.7 + row[i] + 0.5 * row[0];
        }
    }
    Moments::from_rows(&x, d).unwrap()
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn linear_maps(seed in any::<u64>(), d in 1_usize..8, k in 1_usize..5) {
        let mut rng = rng(seed);
        let moments = some_moments(&mut rng, d);
        let projection = Projection::new(k, d, normals(&mut rng, k * d)).unwrap();
        let (x, c) = (normals(&mut rng, d), normals(&mut rng, k));
        let mut map = FeatureMap::from(Linear::new(projection.clone()));
        check(&map, &moments, &x, &c, 0.02);
        map.freeze(&moments).unwrap();
        check(&map, &moments, &x, &c, 0.02);
        // Off the point of freezing, where P·center and the frozen mean differ.
        map.parameters_mut().iter_mut().for_each(|p| *p += 0.3);
        check(&map, &moments, &x, &c, 0.02);
        check(&FeatureMap::from(Linear::plain(projection)), &moments, &x, &c, 0.02);
    }

    #[test]
    fn perceptrons(
        seed in any::<u64>(),
        d in 1_usize..5,
        k in 1_usize..4,
        hidden in proptest::collection::vec(1_usize..7, 0..4),
    ) {
        for (activation, step) in [(Activation::Tanh, 0.02), (Activation::Relu, 1e-3)] {
            let mut rng = rng(seed);
            let mlp = Mlp::new(d, &hidden, k, activation, &mut rng).unwrap();
            let mut map = FeatureMap::from(mlp);
            // All units alive at x: biases and weights of the hidden layers positive where it matters.
            let x: Vec<f64> = normals(&mut rng, d).iter().map(|value| 0.5 + value.abs()).collect();
            if activation == Activation::Relu {
                let head = map.parameters().len() - k * map.moments_dim();
                map.parameters_mut()[..head].iter_mut().for_each(|p| *p = p.abs() + 0.05);
            }
            let rows: Vec<f64> = normals(&mut rng, 40 * d);
            let moments = map.moments_of(&rows).unwrap();
            let c = normals(&mut rng, k);
            check(&map, &moments, &x, &c, step);
            map.freeze(&moments).unwrap();
            check(&map, &moments, &x, &c, step);
        }
    }
}

/// Dead and living ReLU units side by side, at a kink-free point.
#[test]
fn relu_with_dead_units() {
    let mut rng = rng(11);
    let map = FeatureMap::from(Mlp::new(3, &[9, 7], 2, Activation::Relu, &mut rng).unwrap());
    let moments = map.moments_of(&normals(&mut rng, 90)).unwrap();
    let x = [0.8, -1.1, 0.4];
    let mut dead = 0;
    for unit in map.parameters()[..27].chunks_exact(3).zip(&map.parameters()[27..36]) {
        let sum: f64 = unit.0.iter().zip(&x).map(|(w, x)| w * x).sum::<f64>() + unit.1;
        assert!(sum.abs() > 1e-2, "the point lies on a kink");
        dead += usize::from(sum < 0.0);
    }
    assert!(dead > 0 && dead < 9);
    check(&map, &moments, &x, &[1.0, -0.6], 1e-3);
}

#[test]
fn identity() {
    let map = FeatureMap::from(Identity::new(3));
    check(&map, &Moments::new(3), &[0.5, -2.0, 7.0], &[1.0, -3.0, 0.25], 0.02);
}

/// The paper's shape on many columns, and an additive model's.
#[test]
fn eighteen_columns() {
    let mut rng = rng(5);
    let moments = some_moments(&mut rng, 18);
    let x = normals(&mut rng, 18);
    for projection in [start::random(2, 18, &mut rng).unwrap(), start::axes(18).unwrap()] {
        let c = normals(&mut rng, projection.outputs());
        check(&FeatureMap::from(Linear::new(projection)), &moments, &x, &c, 0.02);
    }
}

/// Directions between columns of other kinds; a level has no derivative.
#[test]
fn mixed_columns() {
    use crate::feature::{Column, Mixed, Source};
    let columns = vec![
        Column::Periodic { period: 5.0 },
        Column::Numeric,
        Column::Categorical { levels: 4, ordered: true },
        Column::Numeric,
    ];
    let sources = vec![
        Source::Column(2),
        Source::Direction,
        Source::Column(0),
        Source::Direction,
        Source::Direction,
        Source::Column(0),
    ];
    let projection = Projection::new(3, 2, vec![0.7, -0.3, 0.2, 0.9, -0.5, 0.4]).unwrap();
    let map = FeatureMap::from(Mixed::new(columns, sources, Some(Linear::new(projection))).unwrap());
    let rows = [1.0, 0.3, 2.0, -0.4, 7.5, -0.9, 0.0, 0.8, -2.0, 0.1, 3.0, 0.2];
    let moments = map.moments_of(&rows).unwrap();
    assert_eq!(moments.dim(), 2);
    let x = [13.2, 0.4, 3.0, -0.7];
    let h = features(&map, &moments, &x);
    // 13.2 is 3.2 on a circle of 5.
    assert_eq!(h[0], 3.0);
    assert!((h[2] - (2.0 * 3.2 / 5.0 - 1.0)).abs() < 1e-12 && h[2] == h[5]);
    // Around the level nothing is defined, so it stays out of the loss.
    let c = [0.0, 0.3, -1.1, 0.8, 0.5, 0.9];
    let (mut work, mut tape) = (Normalizer::default(), Tape::new());
    let view = map.prepare(&moments, &mut work).unwrap();
    let mut out = vec![0.0; 6];
    view.forward(&x, &mut out, &mut tape).unwrap();
    let (mut dphi, mut dx) = (vec![0.0; 6], vec![f64::NAN; 4]);
    view.backward(&mut tape, &c, &mut dphi, Some(&mut dx)).unwrap();
    for i in 0..6 {
        let moved = |by: f64| {
            let mut map = map.clone();
            map.parameters_mut()[i] += by;
            loss(&map, &moments, &x, &c)
        };
        assert!((dphi[i] - derivative(moved, 0.05)).abs() < 1e-8, "{i}");
    }
    for i in [0, 1, 3] {
        let moved = |by: f64| {
            let mut x = x;
            x[i] += by;
            loss(&map, &moments, &x, &c)
        };
        assert!((dx[i] - derivative(moved, 0.05)).abs() < 1e-8, "{i}");
    }
    assert_eq!(dx[2], 0.0);
    let mut normalizer = Normalizer::default();
    let view = map.prepare(&moments, &mut normalizer).unwrap();
    assert!(view.forward(&[0.0, 0.0, 4.0, 0.0], &mut out, &mut tape).is_err());
    assert!(view.forward(&[0.0, 0.0, -1.0, 0.0], &mut out, &mut tape).is_err());
}
