//! The feature map x ∈ R^D → h(x; φ) ∈ R^k that brings a row onto the grids.
//!
//! A grid lives in one to four dimensions and on a bounded box; rows have as many columns as they have. The
//! map stands between them: the identity, a learned [linear projection](linear), or a [perceptron](mlp), the
//! last two ending in batch-norm and tanh so that every row lands in (−1, 1)^k; and columns of
//! [several kinds](mixed) side by side, for sums of grids. Its batch statistics come from
//! running [moments], never from stored rows. Where a projection begins decides much of the result: see
//! [start].
//!
//! 1. **Observe**: [`FeatureMap::observe`] adds a row to the moments. O(D²).
//! 2. **Prepare**: [`FeatureMap::prepare`] computes what depends on φ and the moments alone. O(kD²). The
//!    [`Prepared`] view borrows the map, so φ cannot change under it, and carries its own copy of the
//!    statistics: a stale normalization cannot be expressed.
//! 3. **Forward and backward**: [`Prepared::forward`], then [`Prepared::backward`] for the gradients with
//!    respect to φ and x. O(kD) a row for a linear map, and no memory is taken after the first row: the caller
//!    owns the [`Tape`] and the [`Normalizer`].
//!
//! ```
//! use wiski::internals::feature::{Linear, Moments, Normalizer, Tape, start};
//! use wiski::model::FeatureMap;
//!
//! // Warm-up rows: y follows the first column, the second is noise.
//! let x = [0.9, 0.1, -0.8, 0.3, 0.1, -0.9, -0.3, 0.7, 0.5, -0.4, -0.6, -0.6];
//! let y = [1.8, -1.6, 0.2, -0.6, 1.0, -1.2];
//! let projection = start::supervised(&x, 2, &y, 1, &start::PENALTIES)?;
//! let map = FeatureMap::from(Linear::new(projection));
//!
//! let mut moments = Moments::from_rows(&x, 2)?;
//! let (mut work, mut tape) = (Normalizer::default(), Tape::new());
//! let (mut h, mut dphi) = ([0.0], [0.0; 2]);
//! for row in [[0.4, 0.2], [-0.7, 0.1]] {
//!     map.observe(&row, &mut moments, &mut tape)?;
//!     let view = map.prepare(&moments, &mut work)?;
//!     view.forward(&row, &mut h, &mut tape)?;
//!     assert_eq!(h[0].signum(), row[0].signum());
//!     view.backward(&mut tape, &[1.0], &mut dphi, None)?; // adds ∂h/∂P
//! }
//! # Ok::<(), wiski::Error>(())
//! ```

mod head;
pub mod linear;
pub mod mixed;
pub mod mlp;
pub mod moments;
mod projection;
pub mod start;
mod tape;
#[cfg(test)]
mod tests;

pub use head::{EPSILON, Frozen, Normalizer, Scaling};
pub use linear::Linear;
pub use mixed::{Column, Mixed, Source};
pub use mlp::{Activation, Mlp};
pub use moments::Moments;
pub use projection::Projection;
pub use tape::Tape;

use crate::error::{Error, Result, finite, length};
use serde::{Deserialize, Serialize};

/// h = x.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    dim: usize,
}

impl Identity {
    /// The identity on `dim` columns.
    pub fn new(dim: usize) -> Self {
        Self { dim }
    }
}

/// Some of the columns, in any order, each as often as it is wanted: h_k = x_{c_k}. The blocks of a sum of grids read
/// their coordinates by it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "SavedSelect")]
pub struct Select {
    dim: usize,
    reads: Vec<usize>,
}

#[derive(Deserialize)]
struct SavedSelect {
    dim: usize,
    reads: Vec<usize>,
}

impl TryFrom<SavedSelect> for Select {
    type Error = Error;

    fn try_from(saved: SavedSelect) -> Result<Self> {
        Self::new(saved.dim, saved.reads)
    }
}

impl Select {
    /// The given ones of `dim` columns.
    pub fn new(dim: usize, reads: Vec<usize>) -> Result<Self> {
        match reads.iter().find(|&&c| c >= dim) {
            None => Ok(Self { dim, reads }),
            Some(c) => {
                let reason = format!("there is no column {c} among {dim}");
                Err(Error::Config { field: "columns".into(), reason })
            }
        }
    }

    /// The column that each coordinate reads.
    pub fn reads(&self) -> &[usize] {
        &self.reads
    }
}

/// A map from rows to features. The [module](crate::internals::feature) tells how it is used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FeatureMap {
    /// h = x.
    Identity(Identity),
    /// Some of the columns.
    Select(Select),
    /// A learned linear projection.
    Linear(Linear),
    /// A multi-layer perceptron.
    Mlp(Mlp),
    /// Directions through numeric columns beside periodic and categorical columns.
    Mixed(Mixed),
}

impl From<Identity> for FeatureMap {
    fn from(map: Identity) -> Self {
        Self::Identity(map)
    }
}

impl From<Select> for FeatureMap {
    fn from(map: Select) -> Self {
        Self::Select(map)
    }
}

impl From<Linear> for FeatureMap {
    fn from(map: Linear) -> Self {
        Self::Linear(map)
    }
}

impl From<Mlp> for FeatureMap {
    fn from(map: Mlp) -> Self {
        Self::Mlp(map)
    }
}

impl From<Mixed> for FeatureMap {
    fn from(map: Mixed) -> Self {
        Self::Mixed(map)
    }
}

impl FeatureMap {
    /// The number of columns D of a row.
    pub fn input_dim(&self) -> usize {
        match self {
            Self::Identity(map) => map.dim,
            Self::Select(map) => map.dim,
            Self::Linear(map) => map.input_dim(),
            Self::Mlp(map) => map.input_dim(),
            Self::Mixed(map) => map.input_dim(),
        }
    }

    /// The number of features k.
    pub fn output_dim(&self) -> usize {
        match self {
            Self::Identity(map) => map.dim,
            Self::Select(map) => map.reads.len(),
            Self::Linear(map) => map.output_dim(),
            Self::Mlp(map) => map.output_dim(),
            Self::Mixed(map) => map.output_dim(),
        }
    }

    /// The number of columns of the moments this map needs: D, or the width of a perceptron's last hidden
    /// layer.
    pub fn moments_dim(&self) -> usize {
        match self {
            Self::Identity(_) | Self::Select(_) | Self::Linear(_) => self.input_dim(),
            Self::Mlp(map) => map.last_width(),
            Self::Mixed(map) => map.moments_dim(),
        }
    }

    /// The flat parameters φ (empty for the identity).
    pub fn parameters(&self) -> &[f64] {
        match self {
            Self::Identity(_) | Self::Select(_) => &[],
            Self::Linear(map) => map.parameters(),
            Self::Mlp(map) => map.parameters(),
            Self::Mixed(map) => map.linear().map_or(&[], Linear::parameters),
        }
    }

    /// The flat parameters φ, to be changed by an optimizer.
    pub fn parameters_mut(&mut self) -> &mut [f64] {
        match self {
            Self::Identity(_) | Self::Select(_) => &mut [],
            Self::Linear(map) => map.parameters_mut(),
            Self::Mlp(map) => map.parameters_mut(),
            Self::Mixed(map) => map.linear_mut().map_or(&mut [], Linear::parameters_mut),
        }
    }

    /// Empty moments of the right size for this map.
    pub fn new_moments(&self) -> Moments {
        Moments::new(self.moments_dim())
    }

    /// Adds a row to the moments: x itself, or a perceptron's last hidden activations for x under its present
    /// weights, after the earlier ones have faded by its [retention](mlp).
    pub fn observe(&self, x: &[f64], moments: &mut Moments, tape: &mut Tape) -> Result<()> {
        self.check_row(x)?;
        match self {
            Self::Identity(_) | Self::Select(_) | Self::Linear(_) => moments.observe(x),
            Self::Mixed(map) => {
                let seen = map.observe(x, moments, tape);
                tape.values.clear(); // there is no z and no h on it
                seen
            }
            Self::Mlp(map) => {
                let seen = map
                    .hidden_forward(x, tape)
                    .and_then(|last| moments.observe_fading(last, 1.0, map.retention()));
                tape.values.clear(); // there is no z and no h on it
                seen
            }
        }
    }

    /// Takes a row out of the moments. A perceptron cannot: the activations that went in belonged to weights
    /// that are gone.
    pub fn forget(&self, x: &[f64], moments: &mut Moments) -> Result<()> {
        self.check_row(x)?;
        match self {
            Self::Identity(_) | Self::Select(_) | Self::Linear(_) => moments.forget(x),
            Self::Mixed(map) => map.forget(x, moments),
            Self::Mlp(_) => Err(Error::Unsupported {
                operation: "forget",
                reason: "the activations of an earlier perceptron are not known any more",
            }),
        }
    }

    /// The moments of the given rows under the present parameters, all rows counting equally.
    pub fn moments_of(&self, x: &[f64]) -> Result<Moments> {
        let mut moments = self.new_moments();
        let mut tape = Tape::new();
        for (row, values) in moments::rows_of("x", x, self.input_dim())?.enumerate() {
            let seen = match self {
                Self::Identity(_) | Self::Select(_) | Self::Linear(_) => moments.observe(values),
                Self::Mixed(map) => map.observe(values, &mut moments, &mut tape),
                Self::Mlp(map) => check_finite("x", values)
                    .and_then(|()| map.hidden_forward(values, &mut tape))
                    .and_then(|last| moments.observe(last)),
            };
            seen.map_err(|error| moments::at_row(error, row))?;
        }
        Ok(moments)
    }

    /// Turns batch statistics into constants, so that h no longer moves with the moments. The identity and
    /// plain projections have none and stay as they are.
    pub fn freeze(&mut self, moments: &Moments) -> Result<()> {
        match self {
            Self::Identity(_) | Self::Select(_) => Ok(()),
            Self::Linear(map) => map.freeze(moments),
            Self::Mlp(map) => map.freeze(moments),
            Self::Mixed(map) => map.linear_mut().map_or(Ok(()), |linear| linear.freeze(moments)),
        }
    }

    /// Undoes [`freeze`](Self::freeze).
    pub fn thaw(&mut self) {
        match self {
            Self::Identity(_) | Self::Select(_) => {}
            Self::Linear(map) => map.thaw(),
            Self::Mlp(map) => map.thaw(),
            Self::Mixed(map) => map.linear_mut().map_or((), Linear::thaw),
        }
    }

    /// Computes what depends on φ and the moments alone, into the caller's `work`. O(k w²) with batch
    /// statistics, w = [`moments_dim`](Self::moments_dim); they need moments of at least two rows.
    pub fn prepare<'a>(&'a self, moments: &Moments, work: &'a mut Normalizer) -> Result<Prepared<'a>> {
        length("moments", self.moments_dim(), moments.dim())?;
        match self {
            Self::Identity(_) | Self::Select(_) => {}
            Self::Linear(map) => map.prepare(moments, work)?,
            Self::Mlp(map) => map.prepare(moments, work)?,
            Self::Mixed(map) => map.prepare(moments, work)?,
        }
        Ok(Prepared { map: self, work })
    }

    fn check_row(&self, x: &[f64]) -> Result<()> {
        length("x", self.input_dim(), x.len())?;
        check_finite("x", x)
    }

    fn tape_size(&self) -> usize {
        match self {
            Self::Identity(map) => map.dim,
            Self::Select(map) => map.dim,
            Self::Linear(map) => map.tape_size(),
            Self::Mlp(map) => map.tape_size(),
            Self::Mixed(map) => map.tape_size(),
        }
    }
}

/// A map at fixed parameters and batch statistics, ready for any number of rows.
#[derive(Debug, Clone, Copy)]
pub struct Prepared<'a> {
    map: &'a FeatureMap,
    work: &'a Normalizer,
}

impl Prepared<'_> {
    /// Writes h(x; φ) and records the row on the tape.
    pub fn forward(&self, x: &[f64], h: &mut [f64], tape: &mut Tape) -> Result<()> {
        self.map.check_row(x)?;
        length("h", self.map.output_dim(), h.len())?;
        let done = match self.map {
            FeatureMap::Identity(_) => {
                tape.resize(x.len()).copy_from_slice(x);
                h.copy_from_slice(x);
                Ok(())
            }
            FeatureMap::Select(map) => {
                tape.resize(x.len()).copy_from_slice(x);
                h.iter_mut().zip(&map.reads).for_each(|(h, &c)| *h = x[c]);
                Ok(())
            }
            FeatureMap::Linear(map) => map.forward(self.work, x, h, tape),
            FeatureMap::Mlp(map) => map.forward(self.work, x, h, tape),
            FeatureMap::Mixed(map) => map.forward(self.work, x, h, tape),
        };
        if done.is_err() {
            tape.values.clear(); // half a pass must not be taken for a whole one
        }
        done
    }

    /// Given ∂L/∂h at the row last sent [forward](Self::forward) with this tape: **adds** ∂L/∂φ to `dphi`, and
    /// **writes** ∂L/∂x to `dx` if wanted.
    pub fn backward(
        &self,
        tape: &mut Tape,
        dh: &[f64],
        dphi: &mut [f64],
        dx: Option<&mut [f64]>,
    ) -> Result<()> {
        tape.check(self.map.tape_size())?;
        length("dh", self.map.output_dim(), dh.len())?;
        length("dphi", self.map.parameters().len(), dphi.len())?;
        if let Some(dx) = dx.as_deref() {
            length("dx", self.map.input_dim(), dx.len())?;
        }
        check_finite("dh", dh)?;
        match self.map {
            FeatureMap::Identity(_) => {
                if let Some(dx) = dx {
                    dx.copy_from_slice(dh);
                }
            }
            FeatureMap::Select(map) => {
                if let Some(dx) = dx {
                    dx.fill(0.0);
                    map.reads.iter().zip(dh).for_each(|(&c, &g)| dx[c] += g);
                }
            }
            FeatureMap::Linear(map) => map.backward(self.work, tape, dh, dphi, dx),
            FeatureMap::Mlp(map) => map.backward(self.work, tape, dh, dphi, dx),
            FeatureMap::Mixed(map) => map.backward(self.work, tape, dh, dphi, dx),
        }
        Ok(())
    }
}

/// Rejects NaN and infinities; the error names the entry.
fn check_finite(field: &str, values: &[f64]) -> Result<()> {
    values.iter().enumerate().try_for_each(|(i, &value)| check_entry(field, i, value))
}

/// Rejects a NaN or an infinity in entry `i`. The name is put together only for an error, so that the check
/// takes no memory on a row's way.
fn check_entry(field: &str, i: usize, value: f64) -> Result<()> {
    if value.is_finite() { Ok(()) } else { finite(format!("{field}[{i}]"), value, 0) }
}
