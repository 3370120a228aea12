//! The learned linear projection of the paper: x ∈ R^D → h = tanh(z/2) ∈ (−1, 1)^k.
//!
//! ```text
//! z = (P x − Pμ) / sqrt(diag(PΣPᵀ)/W + ε)        ε = 10⁻⁵, φ = P row by row
//! ```
//!
//! μ, Σ and W are the running [`Moments`] of the inputs, so the batch statistics are those of *all* rows seen
//! under the *current* P, and no row is kept. The gradient with respect to P includes the dependence of mean
//! and standard deviation on P; the moments themselves are constants. k = 2 gives the paper's model, k = J
//! one coordinate for each of J one-dimensional grids.
//!
//! Preparing costs O(kD²), each row after that O(kD) forward and O(kD) backward.
//!
//! ```
//! use wiski::internals::feature::{Linear, Moments, Normalizer, Projection, Tape};
//! use wiski::model::FeatureMap;
//!
//! let moments = Moments::from_rows(&[-1.0, 0.5, 1.0, 0.5, 3.0, 2.0], 2)?;
//! let map = FeatureMap::from(Linear::new(Projection::new(1, 2, vec![0.7, -0.2])?));
//!
//! let (mut work, mut tape) = (Normalizer::default(), Tape::new());
//! let mut h = [0.0];
//! let view = map.prepare(&moments, &mut work)?;
//! view.forward(moments.mean(), &mut h, &mut tape)?;
//! assert_eq!(h, [0.0]); // the mean of the rows lands in the middle
//!
//! let mut gradient = [0.0; 2];
//! view.backward(&mut tape, &[1.0], &mut gradient, None)?;
//! assert_eq!(gradient, [0.0; 2]); // and stays there whatever P is
//! # Ok::<(), wiski::Error>(())
//! ```

use crate::error::Result;
use serde::{Deserialize, Serialize};

use crate::saved::{Restore, restored_after_reading};

use super::head::{Normalizer, Pass, Scaling};
use super::{Moments, Projection, Tape};

/// A linear projection, with batch-norm and tanh unless built by [`plain`](Self::plain).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Linear {
    inputs: usize,
    outputs: usize,
    #[serde(with = "crate::saved::floats")]
    weights: Vec<f64>,
    scaling: Scaling,
}

restored_after_reading!(Linear);

impl Restore for Linear {
    fn restore(&mut self) -> Result<()> {
        let projection = Projection::new(self.outputs, self.inputs, std::mem::take(&mut self.weights))?;
        *self = Self::with_scaling(projection, self.scaling.clone())?;
        Ok(())
    }
}

impl Linear {
    /// h = tanh(z/2) with batch statistics from the running moments.
    pub fn new(projection: Projection) -> Self {
        Self::build(projection, Scaling::Batch)
    }

    /// h = P x: coordinate axes, or random projections of a fixed scale.
    pub fn plain(projection: Projection) -> Self {
        Self::build(projection, Scaling::Plain)
    }

    /// Any scaling, as [`scaling`](Self::scaling) returned it: for restoring a stored map.
    pub fn with_scaling(projection: Projection, scaling: Scaling) -> Result<Self> {
        scaling.check(projection.inputs(), projection.outputs())?;
        Ok(Self::build(projection, scaling))
    }

    fn build(projection: Projection, scaling: Scaling) -> Self {
        let (inputs, outputs) = (projection.inputs(), projection.outputs());
        Self { inputs, outputs, weights: projection.into_values(), scaling }
    }

    /// D.
    pub fn input_dim(&self) -> usize {
        self.inputs
    }

    /// k.
    pub fn output_dim(&self) -> usize {
        self.outputs
    }

    /// φ: the entries of P, row by row.
    pub fn parameters(&self) -> &[f64] {
        &self.weights
    }

    /// φ, to be changed by an optimizer.
    pub fn parameters_mut(&mut self) -> &mut [f64] {
        &mut self.weights
    }

    /// What follows the product P x.
    pub fn scaling(&self) -> &Scaling {
        &self.scaling
    }

    /// Turns the batch statistics of the current P into constants: h no longer moves when rows are observed,
    /// and equals what it was. A plain or frozen map stays as it is.
    pub fn freeze(&mut self, moments: &Moments) -> Result<()> {
        crate::error::length("moments", self.inputs, moments.dim())?;
        if let Some(frozen) = self.scaling.freeze(&self.weights, moments)? {
            self.scaling = frozen;
        }
        Ok(())
    }

    /// Undoes [`freeze`](Self::freeze): the statistics follow the moments again.
    pub fn thaw(&mut self) {
        if matches!(self.scaling, Scaling::Frozen(_)) {
            self.scaling = Scaling::Batch;
        }
    }

    pub(super) fn prepare(&self, moments: &Moments, work: &mut Normalizer) -> Result<()> {
        work.prepare(&self.scaling, &self.weights, moments)
    }

    pub(super) fn tape_size(&self) -> usize {
        self.inputs + 2 * self.outputs
    }

    pub(super) fn forward(&self, work: &Normalizer, x: &[f64], h: &mut [f64], tape: &mut Tape) -> Result<()> {
        let (kept_x, rest) = tape.resize(self.tape_size()).split_at_mut(self.inputs);
        let (z, kept_h) = rest.split_at_mut(self.outputs);
        kept_x.copy_from_slice(x);
        work.forward(&self.weights, x, z, kept_h)?;
        h.copy_from_slice(kept_h);
        Ok(())
    }

    pub(super) fn backward(
        &self,
        work: &Normalizer,
        tape: &Tape,
        dh: &[f64],
        dphi: &mut [f64],
        dx: Option<&mut [f64]>,
    ) {
        let (v, rest) = tape.values.split_at(self.inputs);
        let (z, h) = rest.split_at(self.outputs);
        work.backward(&self.weights, &Pass { v, z, h }, dh, dphi, dx);
    }
}
