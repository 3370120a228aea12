//! Bad input is rejected by name and place, and the model stays as it was.

mod common;

use common::*;
use wiski::internals::posterior::{Posterior, Workspace};
use wiski::{Axis, Error, Grid, Kernel, OffGrid, OnlineGp, Outcome, Stats, Wiski};

fn model(off_grid: OffGrid) -> Wiski {
    let mut model = Wiski::builder()
        .grid(unit_grid(&[9, 10]))
        .kernel(Kernel::rbf(&[0.4, 0.5]).unwrap())
        .noise(0.05)
        .off_grid(off_grid)
        .build()
        .unwrap();
    let data = Data::random(30, 2, false, 1);
    model.observe_batch(&data.h, &data.y, None).unwrap();
    model
}

/// Everything observable about a model.
fn fingerprint(model: &mut Wiski) -> (f64, f64, Vec<f64>, Stats) {
    let p = Data::random(9, 2, false, 2);
    let (mean, covariance) = model.joint(&p.h).unwrap();
    (model.count(), model.log_evidence().unwrap(), [mean, covariance].concat(), model.stats().clone())
}

#[test]
fn a_rejected_observation_names_the_value_and_changes_nothing() {
    let mut model = model(OffGrid::Error);
    let before = fingerprint(&mut model);
    let bad: Vec<(Error, Error)> = vec![
        (
            model.observe(&[0.5, f64::INFINITY], 1.0).unwrap_err(),
            Error::NotFinite { field: "x[1]".into(), value: f64::INFINITY, row: 0 },
        ),
        (
            model.observe(&[0.5, 0.5], f64::NEG_INFINITY).unwrap_err(),
            Error::NotFinite { field: "y".into(), value: f64::NEG_INFINITY, row: 0 },
        ),
        (
            model.observe_noisy(&[0.5, 0.5], 1.0, 0.0).unwrap_err(),
            Error::NotPositive { field: "noise".into(), value: 0.0, row: 0 },
        ),
        (
            model.observe_noisy(&[0.5, 0.5], 1.0, -2.0).unwrap_err(),
            Error::NotPositive { field: "noise".into(), value: -2.0, row: 0 },
        ),
        (
            model.observe(&[0.5], 1.0).unwrap_err(),
            Error::WrongLength { field: "x".into(), expected: 2, found: 1 },
        ),
        (
            model.observe(&[0.5, 0.5, 0.5], 1.0).unwrap_err(),
            Error::WrongLength { field: "x".into(), expected: 2, found: 3 },
        ),
        (model.predict(&[]).unwrap_err(), Error::WrongLength { field: "x".into(), expected: 2, found: 0 }),
        (
            model.observe_batch(&[0.1, 0.2, 0.3], &[1.0, 2.0], None).unwrap_err(),
            Error::WrongLength { field: "x".into(), expected: 4, found: 3 },
        ),
        (
            model.observe_batch(&[0.1, 0.2], &[1.0], Some(&[1.0, 1.0])).unwrap_err(),
            Error::WrongLength { field: "noise".into(), expected: 1, found: 2 },
        ),
        (
            // The first row is fine and must not be learned either.
            model.observe_batch(&[0.1, 0.2, 0.3, 0.4], &[1.0, f64::INFINITY], None).unwrap_err(),
            Error::NotFinite { field: "y".into(), value: f64::INFINITY, row: 1 },
        ),
    ];
    for (got, want) in bad {
        assert_eq!(got, want);
        assert!(!got.to_string().is_empty());
    }
    // NaN is not equal to itself.
    for result in [
        model.observe(&[f64::NAN, 0.5], 1.0).unwrap_err(),
        model.observe(&[0.5, 0.5], f64::NAN).unwrap_err(),
        model.predict(&[0.5, f64::NAN]).unwrap_err(),
        model.forget(&[0.5, 0.5], f64::NAN, 1.0).unwrap_err(),
    ] {
        assert!(matches!(result, Error::NotFinite { value, .. } if value.is_nan()), "{result}");
    }
    assert!(matches!(model.observe_noisy(&[0.5, 0.5], 1.0, f64::NAN), Err(Error::NotPositive { .. })));
    assert_eq!(fingerprint(&mut model), before);
}

#[test]
fn off_grid_points_follow_the_policy() {
    let mut strict = model(OffGrid::Error);
    let before = fingerprint(&mut strict);
    let error = strict.observe(&[0.5, 1.7], 1.0).unwrap_err();
    assert!(
        matches!(error, Error::OutsideGrid { axis: 1, value: 1.7, row: 0, .. }),
        "{error}: the axis and the value are named"
    );
    let batch = [0.1, 0.2, 0.3, 0.4, -0.5, 0.5];
    let error = strict.observe_batch(&batch, &[1.0, 2.0, 3.0], None).unwrap_err();
    assert!(matches!(error, Error::OutsideGrid { axis: 0, value: -0.5, row: 2, .. }), "{error}");
    assert!(matches!(
        strict.predict_batch(&batch, &mut [0.0; 3], &mut [0.0; 3]),
        Err(Error::OutsideGrid { row: 2, .. })
    ));
    assert_eq!(fingerprint(&mut strict), before);

    let mut prior = model(OffGrid::Prior);
    let before = fingerprint(&mut prior);
    let p = prior.predict(&[0.5, 1.7]).unwrap();
    assert_eq!((p.mean, p.variance, p.noise), (0.0, 1.0, 0.05));
    assert_eq!(prior.observe(&[0.5, 1.7], 1.0).unwrap(), Outcome::OffGrid);
    assert_eq!(fingerprint(&mut prior), before);
    assert_eq!(prior.observe_batch(&batch, &[1.0, 2.0, 3.0], None).unwrap(), 2);
    assert_eq!(prior.count(), 32.0);

    let mut growing = model(OffGrid::Extend);
    assert_eq!(growing.observe(&[0.5, 1.7], 1.0).unwrap(), Outcome::Learned);
    assert!(growing.predict(&[0.5, 1.7]).unwrap().variance < 0.06);
    assert_eq!(growing.observe_batch(&batch, &[1.0, 2.0, 3.0], None).unwrap(), 3);
    // An absurd outlier is rejected instead of filling the memory; asked about one, the prior answers.
    let before = fingerprint(&mut growing);
    assert!(matches!(growing.observe(&[1e9, 0.5], 1.0), Err(Error::GridTooLarge { axis: 0, .. })));
    let p = growing.predict(&[-1e300, 0.5]).unwrap();
    assert_eq!((p.mean, p.variance, p.noise), (0.0, 1.0, 0.05));
    assert_eq!(fingerprint(&mut growing), before);
}

#[test]
fn what_was_never_learned_cannot_be_forgotten() {
    let mut model = model(OffGrid::Error);
    let before = fingerprint(&mut model);
    // Far from all data the latent variance exceeds the noise: the posterior cannot contain the point.
    let mut empty = Wiski::builder().grid(unit_grid(&[9, 10])).noise(0.05).build().unwrap();
    assert!(matches!(empty.forget(&[0.5, 0.5], 1.0, 1.0), Err(Error::NotLearned { .. })));
    assert!(matches!(model.forget(&[1.5, 0.5], 1.0, 1.0), Err(Error::OutsideGrid { .. })));
    assert_eq!(fingerprint(&mut model), before);
    let mut stats = Stats::new(unit_grid(&[9, 10]));
    assert!(matches!(
        stats.forget(&[0.5, 0.5], 1.0, 1.0),
        Err(Error::Unsupported { operation: "forget", .. })
    ));
}

#[test]
fn grids_that_do_not_match_are_not_merged() {
    let with_axis = |axis: Axis| {
        Wiski::builder()
            .grid(Grid::new(vec![axis]).unwrap())
            .kernel(Kernel::rbf(&[0.4]).unwrap())
            .build()
            .unwrap()
    };
    let mut a = with_axis(Axis::new(0.0, 0.1, 12).unwrap());
    a.observe(&[0.5], 1.0).unwrap();
    for (axis, what) in [(Axis::new(0.0, 0.11, 12), "step"), (Axis::new(0.03, 0.1, 12), "alignment")] {
        let error = a.merge(&with_axis(axis.unwrap())).unwrap_err();
        assert!(matches!(error, Error::GridMismatch { what: w, .. } if w == what), "{error}");
    }
    assert!(matches!(a.merge(&model(OffGrid::Error)), Err(Error::GridMismatch { what: "dimension", .. })));
    let mut root = Stats::low_rank(unit_grid(&[9]), 5).unwrap();
    assert!(matches!(
        root.merge(&Stats::new(unit_grid(&[9]))),
        Err(Error::Unsupported { operation: "merge", .. })
    ));
    assert_eq!(a.count(), 1.0);
}

#[test]
fn configurations_are_checked_once() {
    let grid = || unit_grid(&[9, 10]);
    let builder = || Wiski::builder().grid(grid());
    assert!(matches!(Wiski::builder().build(), Err(Error::Config { .. })));
    assert!(matches!(builder().noise(0.0).build(), Err(Error::NotPositive { .. })));
    assert!(matches!(builder().noise(f64::NAN).build(), Err(Error::NotPositive { .. })));
    assert!(matches!(builder().kernel(Kernel::rbf(&[0.5]).unwrap()).build(), Err(Error::WrongLength { .. })));
    assert!(matches!(
        builder().kernel(Kernel::rbf(&[0.5, 0.5]).unwrap().scaled(-1.0)).build(),
        Err(Error::NotPositive { .. })
    ));
    assert!(matches!(builder().rank_tolerance(2.0).build(), Err(Error::Config { .. })));
    assert!(matches!(builder().max_grid_points(50).build(), Err(Error::Config { .. })));
    assert!(matches!(builder().low_rank_root(0).build(), Err(Error::Config { .. })));
    let two_kernels =
        builder().kernel(Kernel::rbf(&[0.5; 2]).unwrap()).kernel(Kernel::rbf(&[0.5; 2]).unwrap());
    assert!(matches!(two_kernels.build(), Err(Error::WrongLength { .. })));
    // A model without data is the prior.
    let p = builder().build().unwrap().predict(&[0.5, 0.5]).unwrap();
    assert!(p.mean == 0.0 && (p.variance - std::f64::consts::LN_2).abs() < 0.01);
}

#[test]
fn extreme_hyperparameters_are_rejected_or_finite() {
    let mut stats = Stats::new(unit_grid(&[9]));
    let data = Data::random(20, 1, false, 1);
    stats.observe_batch(&data.h, &data.y, None).unwrap();
    for exponent in [-320, -160, -110, -70, -10, 10, 104, 160, 300] {
        let v = 10f64.powi(exponent);
        let families = [
            Kernel::rbf(&[v]),
            Kernel::matern12(&[v]),
            Kernel::matern32(&[v]),
            Kernel::matern52(&[v]),
            Kernel::rational_quadratic(&[v], &[1.0]),
            Kernel::rational_quadratic(&[0.5], &[v]),
            Kernel::periodic(&[v], &[1.0]),
            Kernel::periodic(&[1.0], &[v]),
            Kernel::cosine(&[v]),
            Kernel::spectral_mixture(&[vec![(v, 1.0, 1.0), (1.0, v, 0.5)]]),
            Kernel::rbf(&[0.5]).map(|k| k.scaled(v)),
        ];
        for kernel in families.into_iter().flatten() {
            let what = format!("{kernel} with {:?}", kernel.parameters());
            match wiski::internals::evidence::Evidence::new(&stats, &[kernel], 0.1, 1e-12) {
                Err(Error::Config { .. } | Error::NotPositive { .. }) => {}
                Err(other) => panic!("{what}: {other}"),
                Ok((evidence, _)) => {
                    assert!(evidence.value.is_finite(), "{what}: {}", evidence.value);
                    // A derivative in a period of 1e-160 is beyond what numbers can hold.
                    let sane = exponent.abs() > 70 || evidence.by_kernel[0].iter().all(|g| !g.is_nan());
                    assert!(sane, "{what}: {:?}", evidence.by_kernel);
                }
            }
        }
    }
}

#[test]
fn sums_that_would_overflow_are_rejected() {
    let mut stats = Stats::new(unit_grid(&[9]));
    assert!(matches!(stats.observe(&[0.5], 1e200, 1.0), Err(Error::NotFinite { .. })));
    assert!(matches!(stats.observe(&[0.5], 1.0, 1e-310), Err(Error::NotPositive { .. })));
    assert_eq!(stats, Stats::new(unit_grid(&[9])));
    let mut far = model(OffGrid::Prior);
    assert!(matches!(far.predict(&[1.7, f64::NAN]), Err(Error::NotFinite { .. })));
    assert!(matches!(far.observe(&[1.7, f64::NAN], 1.0), Err(Error::NotFinite { .. })));
    let small = || Wiski::builder().kernel(Kernel::rbf(&[0.4]).unwrap()).max_grid_points(50);
    let mut a = small().grid(Grid::new(vec![Axis::new(0.0, 0.1, 12).unwrap()]).unwrap()).build().unwrap();
    let b = small().grid(Grid::new(vec![Axis::new(100.0, 0.1, 12).unwrap()]).unwrap()).build().unwrap();
    assert!(matches!(a.merge(&b), Err(Error::GridTooLarge { limit: 50, .. })));
}

#[test]
fn a_posterior_needs_its_own_grid() {
    let stats = Stats::new(unit_grid(&[9, 10]));
    let other = Stats::new(unit_grid(&[9, 11]));
    let prior =
        wiski::internals::prior::Prior::new(other.lattice(), &[Kernel::rbf(&[0.4, 0.4]).unwrap()], 1e-12)
            .unwrap();
    let prior = std::sync::Arc::new(prior);
    assert!(matches!(Posterior::new(prior.clone(), &stats, 0.1), Err(Error::Unsupported { .. })));
    let posterior = Posterior::new(prior, &other, 0.1).unwrap();
    assert!(matches!(posterior.sample(&[0.0; 3]), Err(Error::WrongLength { .. })));
    assert!(matches!(
        posterior.joint(&[0.1, 0.2, 0.3], &mut Workspace::default()),
        Err(Error::WrongLength { .. })
    ));
}
