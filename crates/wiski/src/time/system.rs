//! A sum of components as one linear system: y = hᵀz + ε, zₖ₊₁ = F z + noise of covariance Q.
//!
//! F and Q are diagonal but for blocks of two or three rows (trends, smooth Matérn processes), so a prediction step of a
//! p×p covariance costs one multiplication an entry, O(k p) for the k coordinates that move.

use serde::{Deserialize, Serialize};

use super::component::{Component, Small};
use super::effect::circle;
use crate::error::{Error, Result, positive};

/// What a row says beside its target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Inputs<'a> {
    /// The time, in steps from the start.
    pub time: f64,
    /// The inputs known ahead.
    pub x: &'a [f64],
    /// The values of the series at the system's lags.
    pub lagged: &'a [f64],
}

/// A sum of components and noise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct System {
    components: Vec<Component>,
    noise: f64,
}

/// F and Q of a gap: `decay` and `noise` hold their diagonals (1 and 0 within blocks).
#[derive(Debug, Clone, Default)]
pub(super) struct Transition {
    pub(super) gap: f64,
    pub(super) decay: Vec<f64>,
    pub(super) noise: Vec<f64>,
    pub(super) blocks: Vec<Block>,
}

/// A block of F and Q at some coordinates.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub(super) at: usize,
    pub(super) size: usize,
    pub(super) f: Small,
    pub(super) q: Small,
}

/// Sums over prediction steps of the likelihood's derivatives, from which those of the hyperparameters follow.
pub(super) struct Slopes<'a> {
    /// In each diagonal entry of F.
    pub(super) decay: &'a [f64],
    /// In each diagonal entry of Q.
    pub(super) noise: &'a [f64],
    /// In F and Q of each block.
    pub(super) blocks: &'a [(Small, Small)],
}

impl System {
    /// A sum of components, with noise of this variance.
    pub fn new(components: Vec<Component>, noise: f64) -> Result<Self> {
        positive("noise", noise, 0)?;
        let lags = components.iter().filter(|c| matches!(c, Component::Lags { .. })).count();
        if lags > 1 {
            let reason = "one component holds all lags".to_string();
            return Err(Error::Config { field: "components".into(), reason });
        }
        for component in &components {
            for (name, value) in component.parameter_names().iter().zip(component.parameters()) {
                positive(*name, value, 0)?;
            }
            if let Component::Season { period, .. } = component {
                positive("period", *period, 0)?;
            }
        }
        Ok(Self { components, noise })
    }

    /// The components.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// The variance of the noise.
    pub fn noise(&self) -> f64 {
        self.noise
    }

    /// The number of coordinates.
    pub fn dim(&self) -> usize {
        self.components.iter().map(Component::dim).sum()
    }

    /// The lags, in steps.
    pub fn lags(&self) -> &[usize] {
        let lags = self.components.iter().find_map(|c| match c {
            Component::Lags { lags, .. } => Some(lags.as_slice()),
            _ => None,
        });
        lags.unwrap_or_default()
    }

    /// The longest of them; 0 if there are none.
    pub(super) fn longest_lag(&self) -> usize {
        self.lags().iter().max().copied().unwrap_or(0)
    }

    /// Each component with the place of its first coordinate.
    pub(super) fn placed(&self) -> impl Iterator<Item = (usize, &Component)> {
        self.components.iter().scan(0, |next, c| {
            let at = *next;
            *next += c.dim();
            Some((at, c))
        })
    }

    /// The hyperparameters of all components in turn, then the noise.
    pub fn parameters(&self) -> Vec<f64> {
        let of_components = self.components.iter().flat_map(Component::parameters);
        of_components.chain(std::iter::once(self.noise)).collect()
    }

    /// Replaces the hyperparameters.
    pub(super) fn set_parameters(&mut self, values: &[f64]) {
        let mut at = 0;
        for component in &mut self.components {
            let n = component.parameter_names().len();
            component.set_parameters(&values[at..at + n]);
            at += n;
        }
        self.noise = values[at];
    }

    /// Takes over the hyperparameters of a system of the same kinds of components; whether there was one.
    pub(super) fn follow(&mut self, other: &Self) -> bool {
        let kinds = |s: &Self| s.components.iter().map(std::mem::discriminant).collect::<Vec<_>>();
        let same = kinds(self) == kinds(other);
        if same {
            self.set_parameters(&other.parameters());
        }
        same
    }

    /// The observation h of a row.
    pub(super) fn observation(&self, row: &Inputs, h: &mut [f64]) {
        for (at, component) in self.placed() {
            let h = &mut h[at..at + component.dim()];
            match component {
                Component::Season { period, harmonics, .. } => {
                    let u = row.time / period;
                    if harmonics.last().copied() == Some(harmonics.len() as u32) {
                        circle(u, harmonics.len(), h);
                    } else {
                        chosen_harmonics(u, harmonics, h);
                    }
                }
                Component::Effect { effect, .. } => effect.write(row.time, row.x, h),
                Component::Lags { .. } => h.copy_from_slice(row.lagged),
                _ => {
                    h.fill(0.0);
                    h[0] = 1.0;
                }
            }
        }
    }

    /// F and Q of a gap.
    pub(super) fn transition(&self, gap: f64, out: &mut Transition) {
        out.gap = gap;
        out.decay.clear();
        out.noise.clear();
        out.blocks.clear();
        for (at, component) in self.placed() {
            let n = component.dim();
            if component.is_block() {
                let (f, q) = component.block(gap);
                out.blocks.push(Block { at, size: n, f, q });
                out.decay.resize(at + n, 1.0);
                out.noise.resize(at + n, 0.0);
                continue;
            }
            let (a, gained) = component.decay(gap);
            out.decay.resize(at + n, a);
            if a < 1.0 {
                let kept = 1.0 - a * a;
                match component {
                    Component::Season { .. } => {
                        out.noise.extend(component.variances().0.iter().map(|v| v * kept));
                    }
                    _ => out.noise.push(component.parameters()[0] * kept),
                }
            } else {
                out.noise.resize(at + n, gained);
            }
        }
    }

    /// The prior covariance: its diagonal, and blocks (in `q`) where coordinates are correlated.
    pub(super) fn prior(&self) -> (Vec<f64>, Vec<Block>) {
        let (mut diagonal, mut blocks) = (Vec::with_capacity(self.dim()), Vec::new());
        for (at, component) in self.placed() {
            if component.is_block() {
                let (q, size) = (component.block_prior().0, component.dim());
                diagonal.extend((0..size).map(|i| q[4 * i]));
                blocks.push(Block { at, size, f: [0.0; 9], q });
            } else {
                diagonal.extend(component.variances().0);
            }
        }
        (diagonal, blocks)
    }

    /// Adds to `gradient` (in the order of [`System::parameters`]) what slopes in F and Q over a gap mean.
    pub(super) fn pull_transition(&self, gap: f64, slopes: &Slopes, gradient: &mut [f64]) {
        let (mut parameter, mut block) = (0, 0);
        for (at, component) in self.placed() {
            let (n, count) = (component.dim(), component.parameter_names().len());
            let gradient = &mut gradient[parameter..parameter + count];
            parameter += count;
            if component.is_block() {
                let (by_f, by_q) = &slopes.blocks[block];
                block += 1;
                for (k, g) in gradient.iter_mut().enumerate() {
                    let (df, dq) = component.block_slope(gap, k);
                    *g += (0..9).map(|i| by_f[i] * df[i] + by_q[i] * dq[i]).sum::<f64>();
                }
                continue;
            }
            let (by_a, by_q) = (&slopes.decay[at..at + n], &slopes.noise[at..at + n]);
            match component {
                Component::Level { .. } => gradient[0] += gap * by_q[0],
                Component::Matern { lengthscale: time, .. } | Component::Season { lifetime: time, .. } => {
                    let a = (-gap / time).exp();
                    let da = a * gap / (time * time);
                    let (v, dv) = component.variances();
                    for i in 0..n {
                        // Q = v(1 − a²).
                        gradient[1] += by_a[i] * da - by_q[i] * 2.0 * v[i] * a * da;
                    }
                    for (g, dv) in gradient.iter_mut().zip(&dv) {
                        *g += (1.0 - a * a) * dv.iter().zip(by_q).map(|(d, q)| d * q).sum::<f64>();
                    }
                }
                _ => {}
            }
        }
    }

    /// Adds to `gradient` what slopes in the prior covariance mean: `entry(i, j)` is that in its entry.
    pub(super) fn pull_prior(&self, entry: impl Fn(usize, usize) -> f64, gradient: &mut [f64]) {
        let mut parameter = 0;
        for (at, component) in self.placed() {
            let n = component.dim();
            if component.is_block() {
                for (k, d) in component.block_prior().1.iter().enumerate() {
                    for i in 0..n {
                        gradient[parameter + k] +=
                            (0..n).map(|j| entry(at + i, at + j) * d[3 * i + j]).sum::<f64>();
                    }
                }
            } else {
                for (k, d) in component.variances().1.iter().enumerate() {
                    gradient[parameter + k] += (0..n).map(|i| entry(at + i, at + i) * d[i]).sum::<f64>();
                }
            }
            parameter += component.parameter_names().len();
        }
    }
}

/// Cosines and sines of some multiples of 2πu, in rising order.
fn chosen_harmonics(u: f64, harmonics: &[u32], out: &mut [f64]) {
    let (sin, cos) = (std::f64::consts::TAU * (u - u.floor())).sin_cos();
    let (mut c, mut s, mut j) = (1.0, 0.0, 0);
    for (&wanted, pair) in harmonics.iter().zip(out.chunks_exact_mut(2)) {
        while j < wanted {
            (c, s) = (c * cos - s * sin, s * cos + c * sin);
            j += 1;
        }
        pair[0] = c;
        pair[1] = s;
    }
}
