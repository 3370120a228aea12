//! A multi-layer perceptron with the head of the linear map: deep kernel learning.
//!
//! ```text
//! a_0 = x      a_l = act(W_l a_{l−1} + b_l),  l = 1 … L      h = tanh(z/2),  z = (P a_L − Pμ)/std
//! φ = [ W_1 | b_1 | … | W_L | b_L | P ]          matrices row by row
//! ```
//!
//! Weights and biases start uniform on ±1/√fan-in. A row costs O(|φ|) forward and O(|φ|) backward;
//! preparing costs O(k w²) for a last hidden layer of width w.
//!
//! **Batch statistics.** The moments of hidden activations are no function of the input moments. So the
//! [`Moments`] that belong to this map are those of a_L as it was when each row passed by:
//! [`FeatureMap::observe`](super::FeatureMap::observe) multiplies the weight of all earlier rows by the
//! *retention* (0.999 by default: about 1,000 rows are remembered; 1 remembers all equally) and adds the new
//! activations. As in every streaming batch-norm they are **stale**: older rows were seen through older
//! weights W, b. For the last layer P there is no staleness, since mean and variance of P a_L under given
//! moments are closed forms. The gradient follows the same line: exact in P, x and in the path of the row
//! through W, b, with μ and Σ held constant.
//! [`FeatureMap::moments_of`](super::FeatureMap::moments_of) recomputes fresh moments from rows at hand.
//!
//! ```
//! use rand::SeedableRng;
//! use rand_xoshiro::Xoshiro256PlusPlus;
//! use wiski::internals::feature::{Activation, Mlp, Normalizer, Tape};
//! use wiski::model::FeatureMap;
//!
//! let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
//! let map = FeatureMap::from(Mlp::new(3, &[16, 8], 2, Activation::Relu, &mut rng)?);
//! assert_eq!(map.parameters().len(), (3 * 16 + 16) + (16 * 8 + 8) + 8 * 2);
//!
//! let rows = [0.1, -0.4, 0.9, 0.8, 0.2, -0.7, -0.5, 0.6, 0.3];
//! let moments = map.moments_of(&rows)?; // of the 8 activations, not of the 3 inputs
//! assert_eq!(moments.dim(), 8);
//!
//! let (mut work, mut tape, mut h) = (Normalizer::default(), Tape::new(), [0.0; 2]);
//! map.prepare(&moments, &mut work)?.forward(&rows[..3], &mut h, &mut tape)?;
//! assert!(h.iter().all(|h| h.abs() < 1.0));
//! # Ok::<(), wiski::Error>(())
//! ```

use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, finite, length, positive};

use super::head::{Normalizer, Pass, Scaling};
use super::{Moments, Tape, check_finite};
use crate::saved::{Restore, restored_after_reading};
use crate::simd::dot;

/// How much of the weight of earlier rows survives each new one unless told otherwise.
pub const RETENTION: f64 = 0.999;

/// The nonlinearity of the hidden layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activation {
    /// max(0, t), with derivative 0 at 0.
    Relu,
    /// tanh t.
    Tanh,
}

impl Activation {
    fn value(self, t: f64) -> f64 {
        match self {
            Self::Relu => t.max(0.0),
            Self::Tanh => t.tanh(),
        }
    }

    /// The derivative, written in terms of the value.
    fn slope(self, value: f64) -> f64 {
        match self {
            Self::Relu => f64::from(u8::from(value > 0.0)),
            Self::Tanh => (1.0 - value) * (1.0 + value),
        }
    }
}

/// Hidden layers of any number and width, then batch-norm and tanh. See the [module](self).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Mlp {
    /// [D, w_1, …, w_L]
    widths: Vec<usize>,
    outputs: usize,
    activation: Activation,
    retention: f64,
    #[serde(with = "crate::saved::floats")]
    parameters: Vec<f64>,
    scaling: Scaling,
}

restored_after_reading!(Mlp);

impl Restore for Mlp {
    fn restore(&mut self) -> Result<()> {
        let parameters = std::mem::take(&mut self.parameters);
        let (&inputs, hidden) = self.widths.split_first().ok_or_else(|| Error::Config {
            field: "layer width".into(),
            reason: "at least one is needed".into(),
        })?;
        let new = Self::from_parameters(inputs, hidden, self.outputs, self.activation, parameters)?;
        self.scaling.check(new.last_width(), self.outputs)?;
        *self = Self { scaling: self.scaling.clone(), ..new.with_retention(self.retention)? };
        Ok(())
    }
}

impl Mlp {
    /// A perceptron with hidden layers of the given widths and random weights, uniform on ±1/√fan-in.
    ///
    /// No hidden layer at all gives a linear map.
    pub fn new<R: Rng + ?Sized>(
        inputs: usize,
        hidden: &[usize],
        outputs: usize,
        activation: Activation,
        rng: &mut R,
    ) -> Result<Self> {
        let mut mlp = Self::shape(inputs, hidden, outputs, activation)?;
        let mut parameters = Vec::new();
        for layer in mlp.widths.windows(2) {
            let bound = (layer[0] as f64).sqrt().recip();
            let count = (layer[0] + 1) * layer[1];
            parameters.extend((0..count).map(|_| rng.random_range(-bound..=bound)));
        }
        let last = mlp.last_width();
        let bound = (last as f64).sqrt().recip();
        parameters.extend((0..last * outputs).map(|_| rng.random_range(-bound..=bound)));
        mlp.parameters = parameters;
        Ok(mlp)
    }

    /// A perceptron with given parameters φ (laid out as in the [module](self) docs).
    pub fn from_parameters(
        inputs: usize,
        hidden: &[usize],
        outputs: usize,
        activation: Activation,
        parameters: Vec<f64>,
    ) -> Result<Self> {
        let mut mlp = Self::shape(inputs, hidden, outputs, activation)?;
        length("parameters", mlp.head_start() + mlp.last_width() * outputs, parameters.len())?;
        check_finite("parameter", &parameters)?;
        mlp.parameters = parameters;
        Ok(mlp)
    }

    fn shape(inputs: usize, hidden: &[usize], outputs: usize, activation: Activation) -> Result<Self> {
        let widths = [&[inputs], hidden].concat();
        if outputs == 0 || widths.contains(&0) {
            return Err(Error::Config {
                field: "layer width".into(),
                reason: "at least one is needed".into(),
            });
        }
        let (parameters, scaling) = (Vec::new(), Scaling::Batch);
        Ok(Self { widths, outputs, activation, retention: RETENTION, parameters, scaling })
    }

    /// The same map with another retention, in (0, 1].
    pub fn with_retention(mut self, retention: f64) -> Result<Self> {
        positive("retention", retention, 0)?;
        if retention > 1.0 {
            return Err(Error::Config {
                field: "retention".into(),
                reason: format!("{retention} is above 1"),
            });
        }
        self.retention = retention;
        Ok(self)
    }

    /// The same map with another scaling, as [`scaling`](Self::scaling) returned it.
    pub fn with_scaling(mut self, scaling: Scaling) -> Result<Self> {
        scaling.check(self.last_width(), self.outputs)?;
        self.scaling = scaling;
        Ok(self)
    }

    /// D.
    pub fn input_dim(&self) -> usize {
        self.widths[0]
    }

    /// k.
    pub fn output_dim(&self) -> usize {
        self.outputs
    }

    /// The widths w_1 … w_L of the hidden layers.
    pub fn hidden(&self) -> &[usize] {
        &self.widths[1..]
    }

    /// The nonlinearity of the hidden layers.
    pub fn activation(&self) -> Activation {
        self.activation
    }

    /// The share of its weight that an earlier row keeps when a new one is observed.
    pub fn retention(&self) -> f64 {
        self.retention
    }

    /// φ.
    pub fn parameters(&self) -> &[f64] {
        &self.parameters
    }

    /// φ, to be changed by an optimizer.
    pub fn parameters_mut(&mut self) -> &mut [f64] {
        &mut self.parameters
    }

    /// What follows the last linear layer.
    pub fn scaling(&self) -> &Scaling {
        &self.scaling
    }

    /// Turns the batch statistics into constants, as [`Linear::freeze`](super::Linear::freeze) does.
    pub fn freeze(&mut self, moments: &Moments) -> Result<()> {
        length("moments", self.last_width(), moments.dim())?;
        if let Some(frozen) = self.scaling.freeze(self.head_weights(), moments)? {
            self.scaling = frozen;
        }
        Ok(())
    }

    /// Undoes [`freeze`](Self::freeze).
    pub fn thaw(&mut self) {
        if matches!(self.scaling, Scaling::Frozen(_)) {
            self.scaling = Scaling::Batch;
        }
    }

    /// The width of the layer whose moments the head needs.
    pub(super) fn last_width(&self) -> usize {
        self.widths[self.widths.len() - 1]
    }

    /// Where P begins in φ.
    fn head_start(&self) -> usize {
        self.widths.windows(2).map(|layer| (layer[0] + 1) * layer[1]).sum()
    }

    fn head_weights(&self) -> &[f64] {
        &self.parameters[self.head_start()..]
    }

    pub(super) fn prepare(&self, moments: &Moments, work: &mut Normalizer) -> Result<()> {
        check_finite("parameter", &self.parameters)?;
        work.prepare(&self.scaling, self.head_weights(), moments)
    }

    pub(super) fn tape_size(&self) -> usize {
        self.widths.iter().sum::<usize>() + 2 * self.outputs
    }

    /// Writes x and all activations to the tape; returns the last ones.
    pub(super) fn hidden_forward<'t>(&self, x: &[f64], tape: &'t mut Tape) -> Result<&'t [f64]> {
        let values = tape.resize(self.tape_size());
        values[..x.len()].copy_from_slice(x);
        let (mut from, mut at) = (0, 0);
        for layer in self.widths.windows(2) {
            let (inputs, outputs) = (layer[0], layer[1]);
            let (weights, rest) = self.parameters[at..].split_at(inputs * outputs);
            let (before, after) = values[from..].split_at_mut(inputs);
            for ((a, row), bias) in after.iter_mut().zip(weights.chunks_exact(inputs)).zip(&rest[..outputs]) {
                let sum = dot(row, before) + bias;
                finite("hidden activation", sum, 0)?;
                *a = self.activation.value(sum);
            }
            from += inputs;
            at += (inputs + 1) * outputs;
        }
        Ok(&tape.values[from..from + self.last_width()])
    }

    pub(super) fn forward(&self, work: &Normalizer, x: &[f64], h: &mut [f64], tape: &mut Tape) -> Result<()> {
        self.hidden_forward(x, tape)?;
        let (layers, rest) = tape.values.split_at_mut(self.widths.iter().sum());
        let (z, kept_h) = rest.split_at_mut(self.outputs);
        let last = &layers[layers.len() - self.last_width()..];
        work.forward(self.head_weights(), last, z, kept_h)?;
        h.copy_from_slice(kept_h);
        Ok(())
    }

    pub(super) fn backward(
        &self,
        work: &Normalizer,
        tape: &mut Tape,
        dh: &[f64],
        dphi: &mut [f64],
        dx: Option<&mut [f64]>,
    ) {
        let Tape { values, deltas, .. } = tape;
        let (layers, rest) = values.split_at(self.widths.iter().sum());
        let (z, h) = rest.split_at(self.outputs);
        let (mut end, mut at) = (layers.len(), self.head_start());
        let (hidden_dphi, head_dphi) = dphi.split_at_mut(at);

        let widest = self.widths.iter().copied().max().unwrap_or(0);
        deltas.resize(2 * widest, 0.0);
        let (mut delta, mut next) = deltas.split_at_mut(widest);
        let pass = Pass { v: &layers[end - self.last_width()..], z, h };
        let mut wanted = self.widths.len() > 1 || dx.is_some();
        work.backward(
            self.head_weights(),
            &pass,
            dh,
            head_dphi,
            wanted.then_some(&mut delta[..self.last_width()]),
        );

        for (index, layer) in self.widths.windows(2).enumerate().rev() {
            let (inputs, outputs) = (layer[0], layer[1]);
            at -= (inputs + 1) * outputs;
            let (before, after) = layers[..end].split_at(end - outputs);
            let before = &before[before.len() - inputs..];
            let weights = &self.parameters[at..at + inputs * outputs];
            let (d_weights, d_biases) = hidden_dphi[at..].split_at_mut(inputs * outputs);
            wanted = index > 0 || dx.is_some();
            next[..inputs].fill(0.0);
            for o in 0..outputs {
                let d = delta[o] * self.activation.slope(after[o]);
                d_biases[o] += d;
                let row = o * inputs..(o + 1) * inputs;
                d_weights[row.clone()].iter_mut().zip(before).for_each(|(g, a)| *g += d * a);
                if wanted {
                    next.iter_mut().zip(&weights[row]).for_each(|(g, w)| *g += d * w);
                }
            }
            std::mem::swap(&mut delta, &mut next);
            end -= outputs;
        }
        if let Some(dx) = dx {
            dx.copy_from_slice(&delta[..self.input_dim()]);
        }
    }
}
