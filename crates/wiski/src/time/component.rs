//! What a series is a sum of: small state-space models, each exact for its kernel, and regressors beside them.
//!
//! | component | coordinates | kernel of its share of f |
//! | --- | ---: | --- |
//! | `Level` | 1 | s₀ + r min(t, t′) |
//! | `Trend` | 2 | s₀ + s₁ t t′ + r₀ min + r₁ (m³/3 + \|t − t′\| m²/2), m = min(t, t′) |
//! | `DampedTrend` | 2 | s₀ + ∫₀ᵗ∫₀ᵗ′ v e^{−\|u − w\|/ℓ} |
//! | `Matern` | 1, 2, 3 | Matérn ½, 3/2, 5/2 |
//! | `Season` | 2 for each harmonic | v e^{−\|τ\|/ℓ} Σ_j w_j cos(2πjτ/T), τ = t − t′ |
//! | `Effect` | as many as features φ | v φ(x)ᵀφ(x′) |
//! | `Lags` | one for each lag | v Σ_l y(t − l) y(t′ − l) |
//!
//! Times count from the start of the series in steps. A season is a sum of damped resonators whose weights w_j are those
//! of the periodic kernel (Solin and Särkkä 2014). Its coordinates turn with the clock: seen in that frame a resonator
//! neither rotates nor mixes, it only fades, zₖ₊₁ = a zₖ + noise, and the hand of the clock stands in the observation
//! (cos jωt, sin jωt). So the prediction step of a season of any number of harmonics is one multiplication a coordinate.

use serde::{Deserialize, Serialize};

use super::bessel;
use super::effect::Effect;

/// The smoothness of a Matérn process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Smoothness {
    /// ν = ½: continuous, rough (an Ornstein-Uhlenbeck process, AR(1) in continuous time).
    Half,
    /// ν = 3/2: once differentiable.
    ThreeHalves,
    /// ν = 5/2: twice differentiable.
    FiveHalves,
}

/// One part of a series. Variances are in units of the standardized target, times in steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Component {
    /// A random walk.
    Level {
        /// The variance it gains a step.
        rate: f64,
        /// Its variance at the start (not learned).
        start: f64,
    },
    /// A random walk with a slope that is one, too.
    Trend {
        /// The variance that the level gains a step beside what the slope does.
        level_rate: f64,
        /// The variance that the slope gains a step.
        slope_rate: f64,
        /// The variances of level and slope at the start (not learned).
        start: [f64; 2],
    },
    /// A level whose slope returns to zero.
    DampedTrend {
        /// The variance of the slope.
        variance: f64,
        /// How long a slope lasts.
        lifetime: f64,
        /// The variance of the level at the start (not learned).
        start: f64,
    },
    /// A stationary process.
    Matern {
        /// How smooth it is.
        smoothness: Smoothness,
        /// Its variance.
        variance: f64,
        /// Its length-scale.
        lengthscale: f64,
    },
    /// A quasi-periodic process.
    Season {
        /// The period, in steps.
        period: f64,
        /// Which multiples of its frequency it has.
        harmonics: Vec<u32>,
        /// Its variance.
        variance: f64,
        /// How long its shape lasts.
        lifetime: f64,
        /// The length-scale of the periodic kernel: small for sharp features within a period.
        lengthscale: f64,
    },
    /// A function of inputs, which does not change with time.
    Effect {
        /// Its features.
        effect: Effect,
        /// The prior variance of their weights.
        variance: f64,
    },
    /// A linear function of earlier values of the series, so many steps ago each.
    Lags {
        /// How many steps ago.
        lags: Vec<usize>,
        /// The prior variance of the weights.
        variance: f64,
    },
}

/// A square matrix of up to three rows, with places for three in each.
pub(super) type Small = [f64; 9];

impl Component {
    /// The number of coordinates.
    pub fn dim(&self) -> usize {
        match self {
            Self::Level { .. } => 1,
            Self::Trend { .. } | Self::DampedTrend { .. } => 2,
            Self::Matern { smoothness, .. } => match smoothness {
                Smoothness::Half => 1,
                Smoothness::ThreeHalves => 2,
                Smoothness::FiveHalves => 3,
            },
            Self::Season { harmonics, .. } => 2 * harmonics.len(),
            Self::Effect { effect, .. } => effect.dim(),
            Self::Lags { lags, .. } => lags.len(),
        }
    }

    /// The names of the hyperparameters.
    pub fn parameter_names(&self) -> &'static [&'static str] {
        match self {
            Self::Level { .. } => &["rate"],
            Self::Trend { .. } => &["level_rate", "slope_rate"],
            Self::DampedTrend { .. } => &["variance", "lifetime"],
            Self::Matern { .. } => &["variance", "lengthscale"],
            Self::Season { .. } => &["variance", "lifetime", "lengthscale"],
            Self::Effect { .. } | Self::Lags { .. } => &["variance"],
        }
    }

    /// The hyperparameters, all positive, in the order of their names.
    pub fn parameters(&self) -> Vec<f64> {
        match *self {
            Self::Level { rate, .. } => vec![rate],
            Self::Trend { level_rate, slope_rate, .. } => vec![level_rate, slope_rate],
            Self::DampedTrend { variance, lifetime, .. } => vec![variance, lifetime],
            Self::Matern { variance, lengthscale, .. } => vec![variance, lengthscale],
            Self::Season { variance, lifetime, lengthscale, .. } => vec![variance, lifetime, lengthscale],
            Self::Effect { variance, .. } | Self::Lags { variance, .. } => vec![variance],
        }
    }

    /// Replaces the hyperparameters.
    ///
    /// # Panics
    /// If there are not as many as names.
    pub fn set_parameters(&mut self, values: &[f64]) {
        assert_eq!(values.len(), self.parameter_names().len(), "one value for each hyperparameter");
        match self {
            Self::Level { rate, .. } => *rate = values[0],
            Self::Trend { level_rate, slope_rate, .. } => (*level_rate, *slope_rate) = (values[0], values[1]),
            Self::DampedTrend { variance, lifetime, .. } => (*variance, *lifetime) = (values[0], values[1]),
            Self::Matern { variance, lengthscale, .. } => {
                (*variance, *lengthscale) = (values[0], values[1]);
            }
            Self::Season { variance, lifetime, lengthscale, .. } => {
                (*variance, *lifetime, *lengthscale) = (values[0], values[1], values[2]);
            }
            Self::Effect { variance, .. } | Self::Lags { variance, .. } => *variance = values[0],
        }
    }

    /// Whether the coordinates mix with one another in a prediction step.
    pub(super) fn is_block(&self) -> bool {
        match self {
            Self::Trend { .. } | Self::DampedTrend { .. } => true,
            Self::Matern { smoothness, .. } => *smoothness != Smoothness::Half,
            _ => false,
        }
    }

    /// The prior variances of coordinates that do not mix, and their derivatives in each hyperparameter.
    pub(super) fn variances(&self) -> (Vec<f64>, Vec<Vec<f64>>) {
        match self {
            Self::Level { start, .. } => (vec![*start], vec![vec![0.0]]),
            Self::Matern { variance, .. } => (vec![*variance], vec![vec![1.0], vec![0.0]]),
            Self::Season { harmonics, variance, lengthscale, .. } => {
                let (w, dw) = bessel::weights(harmonics, *lengthscale);
                let twice = |v: &[f64], c: f64| v.iter().flat_map(|w| [c * w; 2]).collect::<Vec<_>>();
                (twice(&w, *variance), vec![twice(&w, 1.0), vec![0.0; 2 * w.len()], twice(&dw, *variance)])
            }
            _ => (vec![self.parameters()[0]; self.dim()], vec![vec![1.0; self.dim()]]),
        }
    }

    /// How coordinates that do not mix go on over a gap: the factor a that all share, and the rate of variance a step
    /// that a random walk gains.
    pub(super) fn decay(&self, gap: f64) -> (f64, f64) {
        match self {
            Self::Level { rate, .. } => (1.0, rate * gap),
            Self::Matern { lengthscale: time, .. } | Self::Season { lifetime: time, .. } => {
                ((-gap / time).exp(), 0.0)
            }
            _ => (1.0, 0.0),
        }
    }

    /// The transition F and the noise Q of coordinates that mix, over a gap.
    pub(super) fn block(&self, gap: f64) -> (Small, Small) {
        match *self {
            Self::Trend { level_rate, slope_rate, .. } => {
                let (g2, g3) = (gap * gap / 2.0, gap.powi(3) / 3.0);
                (
                    small(&[1.0, gap, 0.0, 1.0]),
                    small(&[
                        slope_rate * g3 + level_rate * gap,
                        slope_rate * g2,
                        slope_rate * g2,
                        slope_rate * gap,
                    ]),
                )
            }
            Self::DampedTrend { variance: v, lifetime, .. } => {
                let x = gap / lifetime;
                let (fade, rest) = ((-x).exp(), -(-x).exp_m1());
                (
                    small(&[1.0, lifetime * rest, 0.0, fade]),
                    small(&[
                        2.0 * v * lifetime * lifetime * drift(x),
                        v * lifetime * rest * rest,
                        v * lifetime * rest * rest,
                        -v * (-2.0 * x).exp_m1(),
                    ]),
                )
            }
            Self::Matern { smoothness, variance, lengthscale } => {
                let matern = Stationary::new(smoothness);
                let f = matern.transition(gap * matern.rate / lengthscale);
                (f, matern.noise(&f, variance))
            }
            _ => unreachable!("coordinates that do not mix have no block"),
        }
    }

    /// ∂F and ∂Q in a hyperparameter.
    pub(super) fn block_slope(&self, gap: f64, parameter: usize) -> (Small, Small) {
        let zero = [0.0; 9];
        match (self, parameter) {
            (Self::Trend { .. }, 0) => (zero, small(&[gap, 0.0, 0.0, 0.0])),
            (Self::Trend { .. }, _) => {
                (zero, small(&[gap.powi(3) / 3.0, gap * gap / 2.0, gap * gap / 2.0, gap]))
            }
            (&Self::DampedTrend { lifetime, start, .. }, 0) => {
                (zero, Self::DampedTrend { variance: 1.0, lifetime, start }.block(gap).1)
            }
            (&Self::DampedTrend { variance: v, lifetime: l, .. }, _) => {
                let x = gap / l;
                let (fade, rest) = ((-x).exp(), -(-x).exp_m1());
                // dx/dℓ = −x/ℓ; drift′ = rest², rest′ = fade.
                let cross = v * (rest * rest - 2.0 * rest * fade * x);
                (
                    small(&[0.0, rest - x * fade, 0.0, fade * x / l]),
                    small(&[
                        2.0 * v * l * (2.0 * drift(x) - x * rest * rest),
                        cross,
                        cross,
                        -2.0 * v * x / l * fade * fade,
                    ]),
                )
            }
            (&Self::Matern { smoothness, lengthscale, .. }, 0) => {
                let matern = Stationary::new(smoothness);
                (zero, matern.noise(&matern.transition(gap * matern.rate / lengthscale), 1.0))
            }
            (&Self::Matern { smoothness, lengthscale, variance }, _) => {
                let matern = Stationary::new(smoothness);
                let x = gap * matern.rate / lengthscale;
                let f = matern.transition(x);
                // dF/dx = A F.
                let d = product(&matern.generator, &f).map(|v| -v * x / lengthscale);
                let half = product(&product(&d, &matern.covariance), &transpose(&f));
                let back = transpose(&half);
                (d, std::array::from_fn(|i| -variance * (half[i] + back[i])))
            }
            _ => unreachable!("coordinates that do not mix have no block"),
        }
    }

    /// The prior covariance of coordinates that mix, and its derivative in each hyperparameter.
    pub(super) fn block_prior(&self) -> (Small, Vec<Small>) {
        let zero = [0.0; 9];
        match *self {
            Self::Trend { start, .. } => (small(&[start[0], 0.0, 0.0, start[1]]), vec![zero; 2]),
            Self::DampedTrend { variance, start, .. } => {
                (small(&[start, 0.0, 0.0, variance]), vec![small(&[0.0, 0.0, 0.0, 1.0]), zero])
            }
            Self::Matern { smoothness, variance, .. } => {
                let unit = Stationary::new(smoothness).covariance;
                (unit.map(|c| variance * c), vec![unit, zero])
            }
            _ => unreachable!("coordinates that do not mix have no block"),
        }
    }
}

/// x − 2(1 − e^{−x}) + (1 − e^{−2x})/2: the variance of an integrated Ornstein-Uhlenbeck process that starts at rest.
fn drift(x: f64) -> f64 {
    if x > 0.5 {
        return x + 2.0 * (-x).exp_m1() - 0.5 * (-2.0 * x).exp_m1();
    }
    // Σ_{n ≥ 3} (2 − 2^{n−1})(−x)ⁿ/n!, where the closed form cancels.
    let (mut term, mut sum, mut power) = (x * x / 2.0, 0.0, 2.0);
    for n in 3..22 {
        term *= -x / f64::from(n);
        power *= 2.0;
        sum += (2.0 - power) * term;
    }
    sum
}

/// A matrix of two rows.
fn small(m: &[f64; 4]) -> Small {
    [m[0], m[1], 0.0, m[2], m[3], 0.0, 0.0, 0.0, 0.0]
}

/// A Matérn process in the time x = λΔ, with derivatives scaled by λ: F = e^{Ax} = e^{−x}(I + Nx + N²x²/2), since
/// N = A + I is nilpotent. All matrices have three rows; of Matérn 3/2 the leading two count.
struct Stationary {
    /// λ times the length-scale: √(2ν).
    rate: f64,
    size: usize,
    generator: Small,
    /// The stationary covariance at variance 1.
    covariance: Small,
}

impl Stationary {
    fn new(smoothness: Smoothness) -> Self {
        if smoothness == Smoothness::ThreeHalves {
            let generator = [0.0, 1.0, 0.0, -1.0, -2.0, 0.0, 0.0, 0.0, 0.0];
            let covariance = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0];
            return Self { rate: 3f64.sqrt(), size: 2, generator, covariance };
        }
        let third = 1.0 / 3.0;
        Self {
            rate: 5f64.sqrt(),
            size: 3,
            generator: [0.0, 1.0, 0.0, 0.0, 0.0, 1.0, -1.0, -3.0, -3.0],
            covariance: [1.0, 0.0, -third, 0.0, third, 0.0, -third, 0.0, 1.0],
        }
    }

    fn transition(&self, x: f64) -> Small {
        let mut n = self.generator;
        (0..self.size).for_each(|i| n[4 * i] += 1.0);
        let square = product(&n, &n);
        let fade = (-x).exp();
        let unit = |i: usize| f64::from(u8::from(i.is_multiple_of(4) && i / 4 < self.size));
        std::array::from_fn(|i| fade * (unit(i) + x * n[i] + 0.5 * x * x * square[i]))
    }

    fn noise(&self, f: &Small, variance: f64) -> Small {
        let kept = product(&product(f, &self.covariance), &transpose(f));
        std::array::from_fn(|i| variance * (self.covariance[i] - kept[i]))
    }
}

fn product(a: &Small, b: &Small) -> Small {
    std::array::from_fn(|i| (0..3).map(|k| a[3 * (i / 3) + k] * b[3 * k + i % 3]).sum())
}

fn transpose(a: &Small) -> Small {
    std::array::from_fn(|i| a[3 * (i % 3) + i / 3])
}
