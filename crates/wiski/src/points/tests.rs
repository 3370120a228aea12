use super::*;

const FAMILIES: [Family; 4] = [Family::Rbf, Family::Matern12, Family::Matern32, Family::Matern52];

fn wave(i: usize) -> f64 {
    (0.37 * (i * i + 5 * i + 1) as f64).fract() * 2.0 - 1.0
}

fn points(family: Family, m: usize, d: usize) -> Points {
    let centers: Vec<f64> = (0..m * d).map(wave).collect();
    let lengthscales: Vec<f64> = (0..d).map(|k| 0.6 + 0.3 * k as f64).collect();
    Points::new(family, &centers, &lengthscales).unwrap()
}

/// κ of the one-dimensional families at the radius, by the textbook formulas.
fn textbook(points: &Points, x: &[f64], z: &[f64]) -> f64 {
    let r2: f64 = (0..x.len()).map(|k| ((x[k] - z[k]) / points.lengthscales()[k]).powi(2)).sum();
    points.family().value(&[1.0], r2.sqrt())
}

#[test]
fn the_exponential_is_right_to_its_last_digits() {
    assert_eq!(exp(0.0), 1.0);
    for i in 0..40_000 {
        let x = -0.0177 * f64::from(i);
        assert!((exp(x) / x.exp() - 1.0).abs() < 5e-16, "{x}");
    }
    assert!(exp(-1e300) < 1e-300 && exp(f64::NEG_INFINITY) < 1e-300);
}

#[test]
fn weights_reproduce_the_correlations() {
    for family in FAMILIES {
        let points = points(family, 21, 3);
        let (m, x) = (points.len(), [0.3, -0.2, 0.7]);
        assert_eq!(m, 21);
        let centers: Vec<&[f64]> = points.centers().chunks_exact(3).collect();
        let (w, rho) = points.weights(&x).unwrap();
        // L w = κ_Z(x), and L holds the weights of the centers themselves.
        for i in 0..m {
            let (wi, own) = points.weights(centers[i]).unwrap();
            assert!((dot(&wi, &w) - textbook(&points, &x, centers[i])).abs() < 1e-13, "{family:?}");
            assert!(own < 1e-13);
            for j in 0..m {
                let (wj, _) = points.weights(centers[j]).unwrap();
                assert!((dot(&wi, &wj) - textbook(&points, centers[i], centers[j])).abs() < 1e-13);
            }
        }
        assert!((rho - (1.0 - dot(&w, &w))).abs() < 1e-15 && rho > 0.0 && rho < 1.0);
        assert!((points.correlation(&x, centers[4]) - textbook(&points, &x, centers[4])).abs() < 1e-15);
        // Many together: as one by one.
        for n in [1, 3, 4, 16] {
            let x: Vec<f64> = (0..3 * n).map(|i| wave(i + 7)).collect();
            let (mut all, mut residuals) = (vec![f64::NAN; n * m], vec![f64::NAN; n]);
            points.weigh_all(x.chunks_exact(3), &mut all, &mut residuals);
            for (i, x) in x.chunks_exact(3).enumerate() {
                let (w, rho) = points.weights(x).unwrap();
                assert!((residuals[i] - rho).abs() < 1e-13);
                (0..m).for_each(|j| assert!((all[i * m + j] - w[j]).abs() < 1e-12));
            }
        }
    }
}

/// Differences of five points err by h⁴ f⁽⁵⁾/30 + eps/h, some 10⁻¹⁰ here, also beside a cusp.
#[test]
fn derivatives_match_central_differences() {
    for family in FAMILIES {
        let points = points(family, 17, 3);
        let (m, x, other) = (points.len(), [0.31, -0.22, 0.73], [-0.1, 0.4, 0.2]);
        let by: Vec<f64> = (0..m).map(|i| wave(i + 3)).collect();
        let f = |x: &[f64]| {
            let (w, rho) = points.weights(x).unwrap();
            dot(&w, &by) + 0.7 * rho + 0.4 * points.correlation(x, &other)
        };
        let (w, _) = points.weights(&x).unwrap();
        let mut by_weights: Vec<f64> = by.iter().zip(&w).map(|(b, w)| b - 2.0 * 0.7 * w).collect();
        let (mut gradient, mut scratch) = (vec![0.0; 3], vec![f64::NAN; m]);
        points.vjp(&x, &mut by_weights, &mut gradient, &mut scratch);
        points.vjp_correlation(&x, &other, 0.4, &mut gradient);
        for k in 0..3 {
            let h = 2e-5;
            let at = |steps: f64| {
                let mut x = x;
                x[k] += steps * h;
                f(&x)
            };
            let numeric = (8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / (12.0 * h);
            assert!((gradient[k] - numeric).abs() < 1e-8, "{family:?} {k}: {} {numeric}", gradient[k]);
        }
    }
}

#[test]
fn dependent_centers_are_left_out() {
    let twice: Vec<f64> = (0..10).chain(0..10).map(wave).collect();
    let points = Points::new(Family::Matern52, &twice, &[0.5, 0.8]).unwrap();
    assert_eq!(points.centers(), &twice[..10]);
    // A smooth kernel with a long length-scale leaves few directions, and still no weight explodes.
    let line: Vec<f64> = (0..200).map(|i| f64::from(i) / 200.0).collect();
    let smooth = Points::new(Family::Rbf, &line, &[1.0]).unwrap();
    assert!(smooth.len() < 20, "{}", smooth.len());
    for i in 0..50 {
        let (w, rho) = smooth.weights(&[0.02 * f64::from(i) + 0.013]).unwrap();
        assert!(dot(&w, &w) <= 1.0 + 1e-9 && rho >= 0.0);
    }
}

#[test]
fn files_hold_centers_and_length_scales() {
    let points = points(Family::Matern32, 12, 2);
    let bytes = rmp_serde::to_vec_named(&points).unwrap();
    let read: Points = rmp_serde::from_slice(&bytes).unwrap();
    assert_eq!(read, points);
    assert_eq!(read.factor, points.factor);
    assert_eq!(read.scaled, points.scaled);
    // What does not fit together is rejected.
    for (centers, lengthscales) in [
        (vec![0.0; 3], vec![1.0; 2]),
        (vec![], vec![1.0; 2]),
        (vec![0.0; 2], vec![]),
        (vec![0.0; 2], vec![1.0, -1.0]),
        (vec![0.0, f64::NAN], vec![1.0; 2]),
        (vec![0.1; 4], vec![1.0; 2]),
    ] {
        let bad = Points { centers, lengthscales, ..points.clone() };
        let bytes = rmp_serde::to_vec_named(&bad).unwrap();
        assert!(rmp_serde::from_slice::<Points>(&bytes).is_err(), "{bad:?}");
    }
}

#[test]
fn bad_points_are_rejected_by_name() {
    for (family, centers, lengthscales, what) in [
        (Family::Periodic, vec![0.0], vec![1.0], "radial"),
        (Family::Rbf, vec![0.0; 3], vec![1.0; 2], "centers"),
        (Family::Rbf, vec![0.0, f64::INFINITY], vec![1.0; 2], "center[1]"),
        (Family::Rbf, vec![0.0; 2], vec![1.0, 0.0], "lengthscale[1]"),
        (Family::Rbf, vec![0.0; 2], vec![1.0, 1e-320], "lengthscale[1]"),
        (Family::Rbf, vec![0.0; MAX_CENTERS + 1], vec![1.0], "centers"),
    ] {
        let error = Points::new(family, &centers, &lengthscales).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    let points = points(Family::Rbf, 5, 2);
    assert!(matches!(points.weights(&[0.0]), Err(Error::WrongLength { .. })));
    assert!(matches!(points.weights(&[0.0, f64::NAN]), Err(Error::NotFinite { .. })));
}
