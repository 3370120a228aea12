//! Functions on which optimizers are compared, with known optima. All are to be minimized.

use std::f64::consts::{E, PI, TAU};

use super::{Dimension, Space};
use crate::error::{Error, Result};

/// A test function in any number of dimensions (Branin in two, Hartmann in three or six).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestFunction {
    /// Many basins in a row; 0 at (1, …, 1).
    Levy,
    /// A needle in a corrugated plain; 0 at the origin.
    Ackley,
    /// Separable, with 2^d basins; −39.166 d at (−2.9035, …).
    StyblinskiTang,
    /// A paraboloid with a regular pattern of holes; 0 at the origin.
    Rastrigin,
    /// A wide paraboloid with fine waves; 0 at the origin.
    Griewank,
    /// Steep valleys in flat land; −1.8013 in two, −2.7604 in three dimensions.
    Michalewicz,
    /// Three equal optima in two dimensions; 0.39789.
    Branin,
    /// Four bumps in the unit cube of three or six dimensions; −3.86278 and −3.32237.
    Hartmann,
}

impl TestFunction {
    /// All functions, by name.
    pub const ALL: [(&'static str, Self); 8] = [
        ("levy", Self::Levy),
        ("ackley", Self::Ackley),
        ("styblinski-tang", Self::StyblinskiTang),
        ("rastrigin", Self::Rastrigin),
        ("griewank", Self::Griewank),
        ("michalewicz", Self::Michalewicz),
        ("branin", Self::Branin),
        ("hartmann", Self::Hartmann),
    ];

    /// The function with the given name.
    pub fn by_name(name: &str) -> Result<Self> {
        let found = Self::ALL.iter().find(|(n, _)| *n == name);
        found.map(|(_, f)| *f).ok_or_else(|| {
            let all: Vec<&str> = Self::ALL.iter().map(|(n, _)| *n).collect();
            Error::Config {
                field: "function".into(),
                reason: format!("'{name}' is not one of {}", all.join(", ")),
            }
        })
    }

    /// The box in which it is usually searched.
    pub fn space(self, dim: usize) -> Result<Space> {
        if self == Self::Branin {
            if dim != 2 {
                return Err(Error::Config { field: "branin".into(), reason: "has two dimensions".into() });
            }
            return Space::new(vec![Dimension::linear("x0", -5.0, 10.0), Dimension::linear("x1", 0.0, 15.0)]);
        }
        if self == Self::Hartmann {
            if dim != 3 && dim != 6 {
                let reason = "has three or six dimensions".into();
                return Err(Error::Config { field: "hartmann".into(), reason });
            }
            return Space::unit(dim);
        }
        let (lo, hi) = match self {
            Self::Levy => (-10.0, 10.0),
            Self::Ackley => (-32.768, 32.768),
            Self::StyblinskiTang => (-5.0, 5.0),
            Self::Rastrigin => (-5.12, 5.12),
            Self::Griewank => (-600.0, 600.0),
            Self::Michalewicz | Self::Branin | Self::Hartmann => (0.0, PI),
        };
        Space::new((0..dim).map(|k| Dimension::linear(format!("x{k}"), lo, hi)).collect())
    }

    /// The smallest value in the box, where it is known.
    pub fn optimum(self, dim: usize) -> Option<f64> {
        match (self, dim) {
            (Self::Levy | Self::Ackley | Self::Rastrigin | Self::Griewank, _) => Some(0.0),
            (Self::StyblinskiTang, _) => Some(-39.166_165_703_771_42 * dim as f64),
            (Self::Michalewicz, 2) => Some(-1.801_303_410),
            (Self::Michalewicz, 3) => Some(-2.760_394_678),
            (Self::Branin, _) => Some(0.397_887_357_729_738),
            (Self::Hartmann, 3) => Some(-3.862_779_787),
            (Self::Hartmann, 6) => Some(-3.322_368_011),
            _ => None,
        }
    }

    /// The value at a point.
    pub fn value(self, x: &[f64]) -> f64 {
        let d = x.len() as f64;
        match self {
            Self::Levy => {
                let w: Vec<f64> = x.iter().map(|x| 1.0 + (x - 1.0) / 4.0).collect();
                let last = w[w.len() - 1];
                let middle: f64 = w[..w.len() - 1]
                    .iter()
                    .map(|w| (w - 1.0).powi(2) * (1.0 + 10.0 * (PI * w + 1.0).sin().powi(2)))
                    .sum();
                (PI * w[0]).sin().powi(2) + middle + (last - 1.0).powi(2) * (1.0 + (TAU * last).sin().powi(2))
            }
            Self::Ackley => {
                let squares = x.iter().map(|x| x * x).sum::<f64>() / d;
                let cosines = x.iter().map(|x| (TAU * x).cos()).sum::<f64>() / d;
                20.0 + E - 20.0 * (-0.2 * squares.sqrt()).exp() - cosines.exp()
            }
            Self::StyblinskiTang => 0.5 * x.iter().map(|x| x.powi(4) - 16.0 * x * x + 5.0 * x).sum::<f64>(),
            Self::Rastrigin => 10.0 * d + x.iter().map(|x| x * x - 10.0 * (TAU * x).cos()).sum::<f64>(),
            Self::Griewank => {
                let squares: f64 = x.iter().map(|x| x * x).sum::<f64>() / 4000.0;
                let product: f64 = x.iter().zip(1..).map(|(x, i)| (x / f64::from(i).sqrt()).cos()).product();
                1.0 + squares - product
            }
            Self::Michalewicz => {
                let term = |(x, i): (&f64, i32)| x.sin() * (f64::from(i) * x * x / PI).sin().powi(20);
                -x.iter().zip(1..).map(term).sum::<f64>()
            }
            Self::Branin => {
                let (a, b) = (x[0], x[1]);
                (b - 5.1 / (4.0 * PI * PI) * a * a + 5.0 / PI * a - 6.0).powi(2)
                    + 10.0 * (1.0 - 1.0 / (8.0 * PI)) * a.cos()
                    + 10.0
            }
            Self::Hartmann if x.len() == 3 => hartmann(x, &HARTMANN_3),
            Self::Hartmann => hartmann(x, &HARTMANN_6),
        }
    }
}

/// The widths A and centers P of four bumps.
type Bumps<const D: usize> = [([f64; D], [f64; D]); 4];

const HARTMANN_3: Bumps<3> = [
    ([3.0, 10.0, 30.0], [0.3689, 0.1170, 0.2673]),
    ([0.1, 10.0, 35.0], [0.4699, 0.4387, 0.7470]),
    ([3.0, 10.0, 30.0], [0.1091, 0.8732, 0.5547]),
    ([0.1, 10.0, 35.0], [0.0381, 0.5743, 0.8828]),
];

const HARTMANN_6: Bumps<6> = [
    ([10.0, 3.0, 17.0, 3.5, 1.7, 8.0], [0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886]),
    ([0.05, 10.0, 17.0, 0.1, 8.0, 14.0], [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991]),
    ([3.0, 3.5, 1.7, 10.0, 17.0, 8.0], [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650]),
    ([17.0, 8.0, 0.05, 10.0, 0.1, 14.0], [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381]),
];

/// −Σ_i α_i exp(−Σ_k A_ik (x_k − P_ik)²).
fn hartmann<const D: usize>(x: &[f64], bumps: &Bumps<D>) -> f64 {
    let bump = |(alpha, (a, p)): (f64, &([f64; D], [f64; D]))| {
        let exponent: f64 = (0..D).map(|k| a[k] * (x[k] - p[k]).powi(2)).sum();
        -alpha * (-exponent).exp()
    };
    [1.0, 1.2, 3.0, 3.2].into_iter().zip(bumps).map(bump).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optima_are_where_they_are_said_to_be() {
        for (f, x, value) in [
            (TestFunction::Levy, vec![1.0; 3], 0.0),
            (TestFunction::Ackley, vec![0.0; 3], 0.0),
            (TestFunction::StyblinskiTang, vec![-2.903_534; 3], -39.166_165_7 * 3.0),
            (TestFunction::Rastrigin, vec![0.0; 3], 0.0),
            (TestFunction::Griewank, vec![0.0; 3], 0.0),
            (TestFunction::Michalewicz, vec![2.202_906, PI / 2.0, 1.284_992], -2.760_395),
            (TestFunction::Branin, vec![PI, 2.275], 0.397_887),
            (TestFunction::Hartmann, vec![0.114_614, 0.555_649, 0.852_547], -3.862_780),
            (
                TestFunction::Hartmann,
                vec![0.201_690, 0.150_011, 0.476_874, 0.275_332, 0.311_652, 0.657_301],
                -3.322_368,
            ),
        ] {
            assert!((f.value(&x) - value).abs() < 1e-5, "{f:?}: {}", f.value(&x));
            let optimum = f.optimum(x.len()).unwrap();
            assert!((f.value(&x) - optimum).abs() < 1e-5 && f.value(&x) > optimum - 1e-8, "{f:?}");
            // Nothing around is better.
            for k in 0..x.len() {
                for step in [-0.01, 0.01] {
                    let mut y = x.clone();
                    y[k] += step;
                    assert!(f.value(&y) > value, "{f:?}");
                }
            }
            assert!(f.space(x.len()).unwrap().to_unit(&x).is_ok());
        }
        assert!(TestFunction::by_name("levi").unwrap_err().to_string().contains("levy, ackley"));
    }
}
