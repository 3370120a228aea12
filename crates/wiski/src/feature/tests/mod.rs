//! Tests of the feature maps, by subject. Random cases come from fixed seeds: a failure can be repeated.

mod gradients;
mod maps;
mod moments;
mod start;

use proptest::prelude::ProptestConfig;
use proptest::test_runner::RngSeed;
use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{FeatureMap, Moments, Normalizer, Tape};

fn rng(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

fn normals(rng: &mut Xoshiro256PlusPlus, count: usize) -> Vec<f64> {
    StandardNormal.sample_iter(rng).take(count).collect()
}

/// A few random shapes, the same in every run.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(20_200_815),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// h(x) with fresh scratch.
fn features(map: &FeatureMap, moments: &Moments, x: &[f64]) -> Vec<f64> {
    let mut work = Normalizer::default();
    let mut h = vec![f64::NAN; map.output_dim()];
    map.prepare(moments, &mut work).unwrap().forward(x, &mut h, &mut Tape::new()).unwrap();
    h
}

/// Fails unless |a − b| ≤ tolerance · scale for every pair.
fn assert_close(a: &[f64], b: &[f64], tolerance: f64, scale: f64) {
    assert_eq!(a.len(), b.len());
    for (i, (&left, &right)) in a.iter().zip(b).enumerate() {
        let error = (left - right).abs();
        assert!(error <= tolerance * scale, "entry {i}: {left} and {right} differ by {error:.3e}");
    }
}
