//! What the maps compute: definitions, invariances, freezing, scratch, rejections.

use super::{assert_close, cases, features, normals, rng};
use crate::error::Error;
use crate::feature::{
    Activation, EPSILON, FeatureMap, Frozen, Identity, Linear, Mlp, Moments, Normalizer, Projection, Scaling,
    Tape, start,
};
use proptest::prelude::*;

fn linear(k: usize, d: usize, values: Vec<f64>) -> FeatureMap {
    Linear::new(Projection::new(k, d, values).unwrap()).into()
}

proptest! {
    #![proptest_config(cases(24))]

    /// Batch-norm from moments equals batch-norm over the projected rows themselves.
    #[test]
    fn statistics_are_those_of_the_projected_rows(seed in any::<u64>(), d in 1_usize..7, k in 1_usize..4) {
        let mut rng = rng(seed);
        let n = 25;
        let x = normals(&mut rng, n * d);
        let p = normals(&mut rng, k * d);
        let map = linear(k, d, p.clone());
        let moments = Moments::from_rows(&x, d).unwrap();
        for j in 0..k {
            let row = &p[j * d..(j + 1) * d];
            let projected: Vec<f64> =
                x.chunks_exact(d).map(|x| x.iter().zip(row).map(|(x, p)| x * p).sum()).collect();
            let mean = projected.iter().sum::<f64>() / n as f64;
            let variance = projected.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
            for (values, v) in x.chunks_exact(d).zip(&projected) {
                let expected = ((v - mean) / (variance + EPSILON).sqrt() / 2.0).tanh();
                assert_close(&features(&map, &moments, values)[j..=j], &[expected], 1e-13, 1.0);
            }
        }
    }

    /// x → s·x + t by columns with P → P/s leaves P(x − μ), and so h, unchanged. The shift may cost the digits
    /// that x itself loses: ε·|t|·s.
    #[test]
    fn affine_changes_of_the_inputs(seed in any::<u64>(), d in 1_usize..7, k in 1_usize..4) {
        let mut rng = rng(seed);
        let x = normals(&mut rng, 20 * d);
        let p = normals(&mut rng, k * d);
        let scale: Vec<f64> = normals(&mut rng, d).iter().map(|s| s.exp()).collect();
        let shift: Vec<f64> = normals(&mut rng, d).iter().map(|s| 100.0 * s).collect();
        let moved: Vec<f64> = x.iter().enumerate().map(|(at, x)| x * scale[at % d] + shift[at % d]).collect();
        let moved_p = p.iter().enumerate().map(|(at, p)| p / scale[at % d]).collect();
        let (map, moved_map) = (linear(k, d, p), linear(k, d, moved_p));
        let moments = Moments::from_rows(&x, d).unwrap();
        let moved_moments = Moments::from_rows(&moved, d).unwrap();
        for (a, b) in x.chunks_exact(d).zip(moved.chunks_exact(d)) {
            assert_close(&features(&map, &moments, a), &features(&moved_map, &moved_moments, b), 1e-11, 1.0);
        }
    }

    /// A perceptron without hidden layers is the linear map.
    #[test]
    fn no_hidden_layer_is_linear(seed in any::<u64>(), d in 1_usize..7, k in 1_usize..4) {
        let mut rng = rng(seed);
        let mlp = Mlp::new(d, &[], k, Activation::Tanh, &mut rng).unwrap();
        let map = linear(k, d, mlp.parameters().to_vec());
        let rows = normals(&mut rng, 10 * d);
        let moments = map.moments_of(&rows).unwrap();
        let mlp = FeatureMap::from(mlp);
        prop_assert_eq!(&mlp.moments_of(&rows).unwrap(), &moments);
        prop_assert_eq!(features(&mlp, &moments, &rows[..d]), features(&map, &moments, &rows[..d]));
    }
}

/// P → cP with c > 0 cannot change h but for ε.
#[test]
fn the_size_of_a_row_does_not_matter() {
    let mut rng = rng(8);
    let x = normals(&mut rng, 60);
    let p = normals(&mut rng, 6);
    let moments = Moments::from_rows(&x, 3).unwrap();
    let large = p.iter().map(|p| 1e3 * p).collect();
    let huge = p.iter().map(|p| 1e6 * p).collect();
    let at = &x[..3];
    // var = O(10⁶) against O(10¹²): ε counts for 10⁻¹¹.
    assert_close(
        &features(&linear(2, 3, large), &moments, at),
        &features(&linear(2, 3, huge), &moments, at),
        1e-10,
        1.0,
    );
}

#[test]
fn a_frozen_map_stays_and_a_thawed_one_follows() {
    let mut rng = rng(2);
    let mut tape = Tape::new();
    let maps: [FeatureMap; 2] = [
        linear(2, 3, normals(&mut rng, 6)),
        Mlp::new(3, &[5], 2, Activation::Relu, &mut rng).unwrap().into(),
    ];
    for mut map in maps {
        // Inputs far from zero: the frozen form must keep the digits of the deviation.
        let x: Vec<f64> = normals(&mut rng, 90).iter().map(|x| 1000.0 + x).collect();
        let mut moments = map.moments_of(&x).unwrap();
        let before = features(&map, &moments, &x[..3]);
        map.freeze(&moments).unwrap();
        assert_close(&features(&map, &moments, &x[..3]), &before, 1e-14, 1.0);
        let frozen = features(&map, &moments, &x[..3]);

        map.observe(&[1003.0, 990.0, 1010.0], &mut moments, &mut tape).unwrap();
        assert_eq!(features(&map, &moments, &x[..3]), frozen);
        assert_eq!(features(&map, &map.new_moments(), &x[..3]), frozen);
        map.thaw();
        let after = features(&map, &moments, &x[..3]);
        assert!(after.iter().zip(&before).any(|(a, b)| (a - b).abs() > 1e-6));
    }
}

/// A frozen map can be taken apart and put together again.
#[test]
fn parts_restore_a_map() {
    let mut rng = rng(4);
    let moments = Moments::from_rows(&normals(&mut rng, 30), 3).unwrap();
    let mut map = Linear::new(start::random(2, 3, &mut rng).unwrap());
    map.freeze(&moments).unwrap();
    let Scaling::Frozen(frozen) = map.scaling() else { unreachable!("it was frozen") };
    let parts = (frozen.center().to_vec(), frozen.mean().to_vec(), frozen.std().to_vec());
    let frozen = Frozen::new(parts.0, parts.1, parts.2).unwrap();
    let projection = Projection::new(2, 3, map.parameters().to_vec()).unwrap();
    assert_eq!(Linear::with_scaling(projection, Scaling::Frozen(frozen.clone())).unwrap(), map);
    assert!(Linear::with_scaling(start::axes(3).unwrap(), Scaling::Frozen(frozen)).is_err());

    let mlp = Mlp::new(3, &[4, 2], 1, Activation::Relu, &mut rng).unwrap();
    let again = Mlp::from_parameters(3, mlp.hidden(), 1, mlp.activation(), mlp.parameters().to_vec());
    assert_eq!(again.unwrap().with_retention(mlp.retention()).unwrap(), mlp);
}

/// The perceptron's moments fade: after many rows only about 1/(1 − retention) of them weigh.
#[test]
fn hidden_moments_fade() {
    let mut rng = rng(6);
    let mlp = Mlp::new(2, &[4], 1, Activation::Tanh, &mut rng).unwrap().with_retention(0.9).unwrap();
    let map = FeatureMap::from(mlp);
    let (mut moments, mut tape) = (map.new_moments(), Tape::new());
    let mut exact = Moments::new(4);
    for row in normals(&mut rng, 400).chunks_exact(2) {
        map.observe(row, &mut moments, &mut tape).unwrap();
        let one = map.moments_of(row).unwrap();
        exact.decay(0.9).unwrap();
        exact.observe(one.mean()).unwrap();
    }
    assert!((moments.weight() - 10.0).abs() < 1e-7); // 10(1 − 0.9²⁰⁰), 0.9²⁰⁰ = 7·10⁻¹⁰
    assert_close(moments.mean(), exact.mean(), 1e-14, 1.0);
    assert_close(moments.scatter(), exact.scatter(), 1e-14, 10.0);
    assert!(matches!(map.forget(&[0.0, 0.0], &mut moments), Err(Error::Unsupported { .. })));
}

/// A tape and a normalizer full of another map's numbers change no bit of the results.
#[test]
fn dirty_scratch() {
    let mut rng = rng(9);
    let rows = normals(&mut rng, 60);
    let maps: Vec<FeatureMap> = vec![
        Mlp::new(3, &[8, 6], 2, Activation::Tanh, &mut rng).unwrap().into(),
        Identity::new(3).into(),
        linear(4, 3, normals(&mut rng, 12)),
        Linear::plain(start::random(2, 3, &mut rng).unwrap()).into(),
        Mlp::new(3, &[2], 1, Activation::Relu, &mut rng).unwrap().into(),
    ];
    let run = |map: &FeatureMap, work: &mut Normalizer, tape: &mut Tape| {
        let moments = map.moments_of(&rows).unwrap();
        let mut h = vec![0.0; map.output_dim()];
        let (mut dphi, mut dx) = (vec![0.0; map.parameters().len()], vec![0.0; 3]);
        let view = map.prepare(&moments, work).unwrap();
        view.forward(&rows[..3], &mut h, tape).unwrap();
        view.backward(tape, &vec![1.0; h.len()], &mut dphi, Some(&mut dx)).unwrap();
        (h, dphi, dx)
    };
    let (mut work, mut tape) = (Normalizer::default(), Tape::new());
    for _ in 0..2 {
        for map in &maps {
            let clean = run(map, &mut Normalizer::default(), &mut Tape::new());
            assert_eq!(run(map, &mut work, &mut tape), clean);
            tape.values.fill(f64::NAN);
            tape.deltas.fill(f64::NAN);
        }
    }
}

/// After the first row no buffer grows: the same memory, at the same place.
#[test]
fn later_rows_take_no_memory() {
    let mut rng = rng(10);
    let rows = normals(&mut rng, 60);
    let maps: [FeatureMap; 2] = [
        linear(2, 3, normals(&mut rng, 6)),
        Mlp::new(3, &[8, 6], 2, Activation::Tanh, &mut rng).unwrap().into(),
    ];
    for map in maps {
        let moments = map.moments_of(&rows).unwrap();
        let (mut work, mut tape) = (Normalizer::default(), Tape::new());
        let (mut h, mut dphi) = ([0.0; 2], vec![0.0; map.parameters().len()]);
        let mut places = Vec::new();
        for row in rows.chunks_exact(3) {
            let view = map.prepare(&moments, &mut work).unwrap();
            view.forward(row, &mut h, &mut tape).unwrap();
            view.backward(&mut tape, &[1.0, 1.0], &mut dphi, None).unwrap();
            places.push((
                tape.values.as_ptr(),
                tape.values.capacity(),
                tape.deltas.as_ptr(),
                tape.deltas.capacity(),
                work.buffers(),
            ));
        }
        assert!(places.windows(2).all(|pair| pair[0] == pair[1]));
    }
}

#[test]
fn rejections() {
    let map = linear(2, 3, vec![1.0, 0.0, 0.0, 0.0, 1e300, 0.0]);
    let (mut work, mut tape, mut h) = (Normalizer::default(), Tape::new(), [0.0; 2]);
    let moments = Moments::from_rows(&[1.0, 0.0, 2.0, 0.5, 0.0, 1.0], 3).unwrap();
    let one_row = Moments::from_rows(&[1.0, 0.0, 2.0], 3).unwrap();
    assert!(
        matches!(map.prepare(&one_row, &mut work), Err(Error::Config { field, .. }) if field == "moments")
    );
    assert!(matches!(map.prepare(&Moments::new(2), &mut work), Err(Error::WrongLength { .. })));

    let view = map.prepare(&moments, &mut work).unwrap();
    assert!(matches!(view.forward(&[0.0; 2], &mut h, &mut tape), Err(Error::WrongLength { .. })));
    assert!(matches!(view.forward(&[0.0; 3], &mut h[..1], &mut tape), Err(Error::WrongLength { .. })));
    let nan = view.forward(&[0.0, f64::NAN, 0.0], &mut h, &mut tape);
    assert!(matches!(nan, Err(Error::NotFinite { field, .. }) if field == "x[1]"));
    view.forward(&[0.0; 3], &mut h, &mut tape).unwrap();
    assert!(view.backward(&mut tape, &[1.0; 2], &mut [0.0; 6], None).is_ok());
    assert!(matches!(
        view.backward(&mut tape, &[1.0; 3], &mut [0.0; 6], None),
        Err(Error::WrongLength { .. })
    ));
    assert!(matches!(
        view.backward(&mut tape, &[1.0; 2], &mut [0.0; 5], None),
        Err(Error::WrongLength { .. })
    ));
    let mut short = [0.0; 2];
    let rejected = view.backward(&mut tape, &[1.0; 2], &mut [0.0; 6], Some(&mut short));
    assert!(matches!(rejected, Err(Error::WrongLength { .. })));
    // A pass that failed half-way leaves nothing to go back through.
    let overflow = view.forward(&[0.0, 1e300, 0.0], &mut h, &mut tape);
    assert!(matches!(overflow, Err(Error::NotFinite { field, .. }) if field == "z[1]"));
    assert!(matches!(
        view.backward(&mut tape, &[1.0; 2], &mut [0.0; 6], None),
        Err(Error::WrongLength { .. })
    ));

    let mut broken = map.clone();
    broken.parameters_mut()[4] = f64::NAN;
    assert!(matches!(broken.prepare(&moments, &mut work), Err(Error::NotFinite { .. })));
    assert!(Mlp::new(3, &[4, 0], 2, Activation::Relu, &mut rng(0)).is_err());
    assert!(Mlp::from_parameters(1, &[1], 1, Activation::Relu, vec![0.0; 4]).is_err());
    assert!(Projection::new(0, 3, vec![]).is_err());
    assert!(Projection::new(1, 2, vec![f64::NAN, 0.0]).is_err());
}
