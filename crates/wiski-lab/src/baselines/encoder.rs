//! The map from rows to features that every method shares: the columns themselves, or the paper's learned
//! projection with batch-norm and tanh, whose statistics are those of all rows seen.

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::Result;
use wiski::internals::feature::{Identity, Linear, Moments, Normalizer, Tape, start};
use wiski::model::FeatureMap;

/// A feature map with the moments of the rows it has seen.
#[derive(Debug, Clone)]
pub struct Encoder {
    map: FeatureMap,
    moments: Moments,
    work: Normalizer,
    tape: Tape,
}

impl Encoder {
    /// The columns themselves.
    pub fn identity(dim: usize) -> Self {
        Self::of(FeatureMap::from(Identity::new(dim)))
    }

    /// A learned projection from the paper's random start; WISKI starts from the same one for the same seed.
    pub fn projection(inputs: usize, outputs: usize, seed: u64) -> Result<Self> {
        let start = start::random(outputs, inputs, &mut Xoshiro256PlusPlus::seed_from_u64(seed))?;
        Ok(Self::of(FeatureMap::from(Linear::new(start))))
    }

    fn of(map: FeatureMap) -> Self {
        let moments = map.new_moments();
        Self { map, moments, work: Normalizer::default(), tape: Tape::new() }
    }

    /// The number of columns.
    pub fn input_dim(&self) -> usize {
        self.map.input_dim()
    }

    /// The number of features.
    pub fn output_dim(&self) -> usize {
        self.map.output_dim()
    }

    /// φ.
    pub fn parameters(&self) -> &[f64] {
        self.map.parameters()
    }

    /// φ, to be changed.
    pub fn parameters_mut(&mut self) -> &mut [f64] {
        self.map.parameters_mut()
    }

    /// Adds rows to the moments.
    pub fn observe(&mut self, rows: &[f64]) -> Result<()> {
        let d = self.input_dim();
        rows.chunks_exact(d).try_for_each(|x| self.map.observe(x, &mut self.moments, &mut self.tape))
    }

    /// The features of the rows, row after row.
    pub fn features(&self, rows: &[f64]) -> Result<Vec<f64>> {
        let (d, k) = (self.map.input_dim(), self.map.output_dim());
        let (mut work, mut tape) = (Normalizer::default(), Tape::new());
        let view = self.map.prepare(&self.moments, &mut work)?;
        let mut h = vec![0.0; rows.len() / d * k];
        for (x, h) in rows.chunks_exact(d).zip(h.chunks_exact_mut(k)) {
            view.forward(x, h, &mut tape)?;
        }
        Ok(h)
    }

    /// Adds ∂F/∂φ, given ∂F/∂h of the rows.
    pub fn vjp(&mut self, rows: &[f64], by_h: &[f64], by_phi: &mut [f64]) -> Result<()> {
        if self.map.parameters().is_empty() {
            return Ok(());
        }
        let (d, k) = (self.map.input_dim(), self.map.output_dim());
        let view = self.map.prepare(&self.moments, &mut self.work)?;
        let mut h = vec![0.0; k];
        for (x, dh) in rows.chunks_exact(d).zip(by_h.chunks_exact(k)) {
            view.forward(x, &mut h, &mut self.tape)?;
            view.backward(&mut self.tape, dh, by_phi, None)?;
        }
        Ok(())
    }
}
