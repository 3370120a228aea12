//! Filter, smoother and likelihood of series against dense Gaussian processes with the same kernels, written out here.

use faer::Mat;
use faer::linalg::solvers::Solve;
use std::f64::consts::TAU;
use wiski::internals::time::likelihood::{gradient, log_likelihood, smooth};
use wiski::internals::time::{Belief, Series};
use wiski::time::{Component, Cycle, Effect, Shape, Smoothness, System};

/// Numbers that look random.
fn noise(i: usize, salt: f64) -> f64 {
    ((i as f64 * 12.9898 + salt * 78.233).sin() * 43_758.545_3).fract().abs() - 0.5
}

/// Times with gaps between 0.05 and some steps, two of them equal.
fn series(n: usize, lags: usize) -> Series {
    let mut time = 0.0;
    let mut out = Series { width: 2, lags, ..Series::default() };
    for i in 0..n {
        if i != 7 {
            time += 0.05 + 2.0 * (noise(i, 1.0) + 0.5).powi(3) + if i == n / 2 { 20.0 } else { 0.0 };
        }
        out.times.push(time);
        let y = 0.01 * time + (TAU * time / 12.0).sin() + 0.3 * noise(i, 2.0);
        out.targets.push(if i % 11 == 5 { f64::NAN } else { y });
        out.inputs.extend([3.0 * noise(i, 3.0), (i % 3) as f64]);
        out.lagged.extend((0..lags).map(|l| noise(i, 4.0 + l as f64)));
    }
    out
}

fn components() -> Vec<Component> {
    vec![
        Component::Level { rate: 0.02, start: 0.7 },
        Component::Trend { level_rate: 0.01, slope_rate: 0.003, start: [1.5, 0.02] },
        Component::DampedTrend { variance: 0.03, lifetime: 9.0, start: 0.4 },
        Component::Matern { smoothness: Smoothness::Half, variance: 0.5, lengthscale: 3.0 },
        Component::Matern { smoothness: Smoothness::ThreeHalves, variance: 0.8, lengthscale: 5.0 },
        Component::Matern { smoothness: Smoothness::FiveHalves, variance: 0.6, lengthscale: 8.0 },
        Component::Season {
            period: 12.0,
            harmonics: vec![1, 2, 3, 4],
            variance: 1.1,
            lifetime: 60.0,
            lengthscale: 0.8,
        },
        Component::Season {
            period: 84.0,
            harmonics: vec![1, 3, 5],
            variance: 0.4,
            lifetime: 400.0,
            lengthscale: 0.6,
        },
        Component::Effect {
            effect: Effect { column: 0, shape: Shape::Linear { center: 0.2, scale: 1.3 }, by: None },
            variance: 0.3,
        },
        Component::Effect {
            effect: Effect {
                column: 1,
                shape: Shape::Levels(3),
                by: Some(Cycle { period: 12.0, harmonics: 1 }),
            },
            variance: 0.2,
        },
        Component::Lags { lags: vec![1, 12], variance: 0.1 },
    ]
}

/// The weights of the periodic kernel by numerical integration: ∫ exp((cos θ − 1)/ℓ²) cos jθ dθ.
fn weights(harmonics: &[u32], lengthscale: f64) -> Vec<f64> {
    let m = 4096;
    let of = |j: u32| {
        let each = |k: usize| {
            let theta = TAU * k as f64 / m as f64;
            ((theta.cos() - 1.0) / lengthscale.powi(2)).exp() * (f64::from(j) * theta).cos()
        };
        (0..m).map(each).sum::<f64>() / m as f64
    };
    let all: Vec<f64> = harmonics.iter().map(|&j| of(j)).collect();
    let sum: f64 = all.iter().sum();
    all.iter().map(|w| w / sum).collect()
}

/// The covariance of a component's share at two rows.
fn kernel(c: &Component, waves: &[f64], s: &Series, i: usize, j: usize) -> f64 {
    let (a, b) = (s.times[i] - s.times[0], s.times[j] - s.times[0]);
    let (m, d) = (a.min(b), (a - b).abs());
    match c {
        Component::Level { rate, start } => start + rate * m,
        Component::Trend { level_rate, slope_rate, start } => {
            start[0] + start[1] * a * b + level_rate * m + slope_rate * (m.powi(3) / 3.0 + d * m * m / 2.0)
        }
        Component::DampedTrend { variance, lifetime: l, start } => {
            // ∫₀ᵃ∫₀ᵇ e^{−|u − w|/ℓ}.
            let e = |x: f64| (-x / l).exp();
            start + variance * (2.0 * l * m + l * l * (e(a) + e(b) - 1.0 - e(d)))
        }
        Component::Matern { smoothness, variance, lengthscale } => {
            let r = d / lengthscale;
            variance
                * match smoothness {
                    Smoothness::Half => (-r).exp(),
                    Smoothness::ThreeHalves => (1.0 + 3f64.sqrt() * r) * (-(3f64.sqrt()) * r).exp(),
                    Smoothness::FiveHalves => {
                        let s = 5f64.sqrt() * r;
                        (1.0 + s + s * s / 3.0) * (-s).exp()
                    }
                }
        }
        Component::Season { period, harmonics, variance, lifetime, .. } => {
            let waves = harmonics.iter().zip(waves);
            let sum: f64 = waves.map(|(&h, w)| w * (TAU * f64::from(h) * d / period).cos()).sum();
            variance * (-d / lifetime).exp() * sum
        }
        Component::Effect { effect, variance } if effect.by.is_none() => {
            let f = |k: usize| (s.row(k).x[0] - 0.2) / 1.3;
            variance * f(i) * f(j)
        }
        Component::Effect { variance, .. } => {
            let same = s.row(i).x[1] == s.row(j).x[1];
            // cos a cos b + sin a sin b.
            if same { variance * (TAU * (s.times[i] - s.times[j]) / 12.0).cos() } else { 0.0 }
        }
        Component::Lags { variance, .. } => {
            let (a, b) = (s.row(i).lagged, s.row(j).lagged);
            variance * a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>()
        }
    }
}

/// The dense process: the likelihood, and mean and variance of each component and of the sum at every row, given the
/// rows of `known`.
fn dense(system: &System, s: &Series, known: &[usize]) -> (f64, Vec<Vec<(f64, f64)>>) {
    let parts: Vec<Mat<f64>> = system
        .components()
        .iter()
        .map(|c| {
            let waves = match c {
                Component::Season { harmonics, lengthscale, .. } => weights(harmonics, *lengthscale),
                _ => Vec::new(),
            };
            Mat::from_fn(s.len(), s.len(), |i, j| kernel(c, &waves, s, i, j))
        })
        .collect();
    let sum = Mat::from_fn(s.len(), s.len(), |i, j| parts.iter().map(|k| k[(i, j)]).sum::<f64>());
    let n = known.len();
    let k = Mat::from_fn(n, n, |i, j| sum[(known[i], known[j])] + if i == j { system.noise() } else { 0.0 });
    let y = Mat::from_fn(n, 1, |i, _| s.targets[known[i]]);
    let factor = k.llt(faer::Side::Lower).unwrap();
    let solved = factor.solve(&y);
    let quadratic: f64 = (0..n).map(|i| y[(i, 0)] * solved[(i, 0)]).sum();
    let log_det: f64 = (0..n).map(|i| 2.0 * factor.L()[(i, i)].ln()).sum();
    let value = -0.5 * (quadratic + log_det + n as f64 * TAU.ln());
    let posterior = |part: &Mat<f64>| -> Vec<(f64, f64)> {
        let cross = Mat::from_fn(n, s.len(), |i, j| part[(known[i], j)]);
        let back = factor.solve(&cross);
        (0..s.len())
            .map(|j| {
                let mean = (0..n).map(|i| cross[(i, j)] * solved[(i, 0)]).sum();
                let less: f64 = (0..n).map(|i| cross[(i, j)] * back[(i, j)]).sum();
                (mean, part[(j, j)] - less)
            })
            .collect()
    };
    (value, parts.iter().chain([&sum]).map(posterior).collect())
}

fn known(s: &Series) -> Vec<usize> {
    (0..s.len()).filter(|&i| s.target(i).is_some()).collect()
}

#[test]
fn filter_and_smoother_equal_the_dense_process() {
    let s = series(300, 2);
    let system = System::new(components(), 0.05).unwrap();
    let start = Belief::prior(&system, s.times[0]);
    let (value, shares) = dense(&system, &s, &known(&s));
    let own = log_likelihood(&system, &s, &start);
    assert!((own - value).abs() < 1e-8 * value.abs(), "{own} {value}");
    let smoothed = smooth(&system, &s, &start);
    assert_eq!(smoothed.len(), shares.len());
    for (c, (a, b)) in smoothed.iter().zip(&shares).enumerate() {
        for (i, (a, b)) in a.iter().zip(b).enumerate() {
            assert!((a.mean - b.0).abs() < 1e-8, "mean of {c} at {i}: {} {}", a.mean, b.0);
            assert!((a.variance - b.1).abs() < 1e-8, "variance of {c} at {i}: {} {}", a.variance, b.1);
        }
    }
}

#[test]
fn each_component_alone_equals_its_kernel() {
    let s = series(120, 2);
    for component in components() {
        let system = System::new(vec![component.clone()], 0.1).unwrap();
        let start = Belief::prior(&system, s.times[0]);
        let (value, shares) = dense(&system, &s, &known(&s));
        let own = log_likelihood(&system, &s, &start);
        assert!((own - value).abs() < 1e-9 * value.abs(), "{component:?}: {own} {value}");
        for (a, b) in smooth(&system, &s, &start)[0].iter().zip(&shares[0]) {
            assert!((a.mean - b.0).abs() < 1e-9 && (a.variance - b.1).abs() < 1e-9, "{component:?}");
        }
    }
}

/// Central differences in every hyperparameter, for all components together and for each alone.
#[test]
fn gradients_equal_differences() {
    let s = series(90, 2);
    let alone = components().into_iter().map(|c| vec![c]);
    for components in alone.chain([components()]) {
        let at = |log: &[f64]| {
            let mut own = components.clone();
            let mut next = 0;
            for c in &mut own {
                let n = c.parameter_names().len();
                let values: Vec<f64> = log[next..next + n].iter().map(|v| v.exp()).collect();
                c.set_parameters(&values);
                next += n;
            }
            System::new(own, log[next].exp()).unwrap()
        };
        let system = System::new(components.clone(), 0.08).unwrap();
        let log: Vec<f64> = system.parameters().iter().map(|v| v.ln()).collect();
        let mut g = vec![0.0; log.len()];
        let value = gradient(&system, &s, None, &mut g);
        let plain = |system: &System| log_likelihood(system, &s, &Belief::prior(system, s.times[0]));
        assert!((value - plain(&system)).abs() < 1e-10 * value.abs());
        for k in 0..log.len() {
            let step = 1e-4;
            let (mut up, mut down) = (log.clone(), log.clone());
            up[k] += step;
            down[k] -= step;
            let difference = (plain(&at(&up)) - plain(&at(&down))) / (2.0 * step);
            let own = g[k] * log[k].exp();
            assert!(
                (own - difference).abs() < 2e-6 * (1.0 + difference.abs()),
                "parameter {k} of {components:?}: {own} {difference}"
            );
        }
    }
}
