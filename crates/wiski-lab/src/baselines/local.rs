//! Local Gaussian processes (Nguyen-Tuong, Seeger and Peters 2008).
//!
//! Rows are dealt to local models by their distance to the models' centers, measured by the kernel:
//! w_k(x) = exp(−½ Σ_j (x_j − c_kj)²/ℓ_j²). A row joins the model with the largest weight if that exceeds a
//! threshold, and opens a new model at itself otherwise. A center is the mean of its rows. A model that has
//! n_max rows gives up its oldest for a new one. Predictions are mixtures over all models with weights w_k,
//!
//! ```text
//! mean Σ ŵ_k μ_k     variance Σ ŵ_k (v_k + μ_k²) − mean²,     ŵ = w/Σ w
//! ```
//!
//! Kernel, noise and features are shared. They are trained on the warm-up rows as an exact Gaussian process; along
//! the stream, kernel and noise take a step on the evidence of the model that a row has joined. The features stay:
//! another projection would deal every row anew.

use faer::Mat;
use std::sync::OnceLock;
use wiski::internals::learn::Adam;
use wiski::{Error, Family, OnlineGp, Outcome, Prediction, Result};

use super::descent::Training;
use super::encoder::Encoder;
use super::exact::{ExactGp, Slopes};
use super::hyper::Hyper;
use super::kept;
use wiski::internals::dense::{Growing, dot, log_det, solve_cholesky, solve_vector};

/// A mixture of small exact Gaussian processes.
#[derive(Debug, Clone)]
pub struct LocalGps {
    encoder: Encoder,
    hyper: Hyper,
    training: Training,
    /// n_max.
    most: usize,
    /// The weight that a row must have in a model to join it.
    threshold: f64,
    adam: Option<Adam>,
    models: Vec<Local>,
    count: usize,
}

#[derive(Debug, Clone, Default)]
struct Local {
    center: Vec<f64>,
    h: Vec<f64>,
    y: Vec<f64>,
    noise: Vec<f64>,
    /// The Cholesky factor and α, void after a change of rows or hyperparameters.
    solved: OnceLock<(Growing, Vec<f64>)>,
}

impl Local {
    fn solve(&self, hyper: &Hyper) -> Result<&(Growing, Vec<f64>)> {
        kept(&self.solved, || {
            let mut k: Mat<f64> = hyper.kernel.gram(&self.h);
            for (i, d) in self.noise.iter().enumerate() {
                k[(i, i)] += hyper.noise * d;
            }
            let factor = Growing::new(k)?;
            let alpha = solve_cholesky(factor.factor(), &self.y);
            Ok((factor, alpha))
        })
    }

    fn insert(&mut self, h: &[f64], y: f64, noise: f64, most: usize) {
        if self.y.len() == most {
            self.h.drain(..h.len());
            self.y.remove(0);
            self.noise.remove(0);
        }
        self.h.extend_from_slice(h);
        self.y.push(y);
        self.noise.push(noise);
        let n = self.y.len() as f64;
        self.center = (0..h.len()).map(|k| self.h.iter().skip(k).step_by(h.len()).sum::<f64>() / n).collect();
        self.solved.take();
    }

    fn predict(&self, hyper: &Hyper, h: &[f64]) -> Result<(f64, f64)> {
        let k = hyper.kernel.matrix(&self.h, h);
        let (factor, alpha) = self.solve(hyper)?;
        let white = solve_vector(factor.factor(), k.col_as_slice(0));
        let variance = (hyper.kernel.variance() - dot(&white, &white)).max(0.0);
        Ok((dot(k.col_as_slice(0), alpha), variance))
    }
}

impl LocalGps {
    /// No models yet; each will hold at most `most` rows. `threshold` lies between 0 (one model) and 1 (a model
    /// for every row).
    pub fn new(
        encoder: Encoder,
        hyper: Hyper,
        training: Training,
        most: usize,
        threshold: f64,
    ) -> Result<Self> {
        if hyper.kernel.family() != Family::Rbf {
            let reason = "the distance of local models is that of an RBF kernel".into();
            return Err(Error::Config { field: "kernel".into(), reason });
        }
        Ok(Self { encoder, hyper, training, most, threshold, adam: None, models: Vec::new(), count: 0 })
    }

    /// Trains kernel, noise and features on the warm-up rows, then deals them to local models.
    pub fn warm_up(&mut self, rows: &[f64], y: &[f64]) -> Result<()> {
        let training = Training { spacing: f64::INFINITY, ..self.training };
        let mut whole = ExactGp::new(self.encoder.clone(), self.hyper.clone(), training);
        whole.warm_up(rows, y, None)?;
        (self.encoder, self.hyper) = (whole.encoder().clone(), whole.hyper().clone());
        let h = self.encoder.features(rows)?;
        for (h, &y) in h.chunks_exact(self.encoder.output_dim()).zip(y) {
            self.deal(h, y, 1.0);
        }
        Ok(())
    }

    /// The number of local models.
    pub fn models(&self) -> usize {
        self.models.len()
    }

    /// log w_k(h) of every model.
    fn log_weights(&self, h: &[f64]) -> Vec<f64> {
        let lengthscales = &self.hyper.kernel.parameters()[1..];
        let distance = |center: &[f64]| -> f64 {
            h.iter().zip(center).zip(lengthscales).map(|((h, c), l)| ((h - c) / l).powi(2)).sum()
        };
        self.models.iter().map(|m| -0.5 * distance(&m.center)).collect()
    }

    /// Gives a row to its model; returns which.
    fn deal(&mut self, h: &[f64], y: f64, noise: f64) -> usize {
        self.count += 1;
        let weights = self.log_weights(h);
        let nearest = weights.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        let at = match nearest {
            Some((k, &w)) if w > self.threshold.ln() => k,
            _ => {
                self.models.push(Local::default());
                self.models.len() - 1
            }
        };
        self.models[at].insert(h, y, noise, self.most);
        at
    }
}

impl OnlineGp for LocalGps {
    fn input_dim(&self) -> usize {
        self.encoder.input_dim()
    }

    fn count(&self) -> f64 {
        self.count as f64
    }

    fn predict(&self, x: &[f64]) -> Result<Prediction> {
        let h = self.encoder.features(x)?;
        let logs = self.log_weights(&h);
        let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut sums = [0.0; 3];
        for (model, log) in self.models.iter().zip(logs) {
            let w = (log - largest).exp();
            // A model of weight 10⁻⁶ does not show in the result.
            if w > 1e-6 {
                let (mean, variance) = model.predict(&self.hyper, &h)?;
                sums[0] += w;
                sums[1] += w * mean;
                sums[2] += w * (variance + mean * mean);
            }
        }
        let noise = self.hyper.noise;
        if sums[0] == 0.0 {
            return Ok(Prediction { mean: 0.0, variance: self.hyper.kernel.variance(), noise });
        }
        let mean = sums[1] / sums[0];
        Ok(Prediction { mean, variance: (sums[2] / sums[0] - mean * mean).max(0.0), noise })
    }

    fn observe_noisy(&mut self, x: &[f64], y: f64, noise: f64) -> Result<Outcome> {
        let h = self.encoder.features(x)?;
        let at = self.deal(&h, y, noise);
        if self.training.spacing.is_finite() {
            let model = &self.models[at];
            let (factor, alpha) = model.solve(&self.hyper)?;
            let slopes = Slopes::new(&self.hyper, &model.h, &model.noise, factor.factor(), alpha);
            let mut gradient = vec![0.0; self.hyper.dim()];
            self.hyper.chain(&slopes.kernel, slopes.noise, &mut gradient)?;
            let mut raw = self.hyper.raw()?;
            let mut adam = match self.adam.take() {
                Some(adam) => adam,
                None => Adam::new(raw.len(), self.training.online.theta)?,
            };
            adam.step(&mut raw, &gradient)?;
            self.adam = Some(adam);
            self.hyper.set_raw(&raw)?;
            self.models.iter_mut().for_each(|m| m.solved = OnceLock::new());
        }
        Ok(Outcome::Learned)
    }

    /// The sum over the local models, as if they were independent.
    fn log_evidence(&mut self) -> Result<f64> {
        let mut sum = 0.0;
        for model in &self.models {
            let (factor, alpha) = model.solve(&self.hyper)?;
            let n = model.y.len() as f64;
            sum -= 0.5 * (dot(&model.y, alpha) + log_det(factor.factor()) + n * std::f64::consts::TAU.ln());
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baselines::testing::{hyper, rows};

    fn local(most: usize, threshold: f64, n: usize) -> (LocalGps, ExactGp) {
        let (x, y) = rows(n, 2);
        let encoder = Encoder::identity(2);
        let mut model = LocalGps::new(encoder.clone(), hyper(), Training::none(), most, threshold).unwrap();
        model.warm_up(&x, &y).unwrap();
        let mut exact = ExactGp::new(encoder, hyper(), Training::none());
        exact.warm_up(&x[2 * n.saturating_sub(most)..], &y[n.saturating_sub(most)..], None).unwrap();
        (model, exact)
    }

    #[test]
    fn a_single_model_is_the_exact_process_of_its_latest_rows() {
        for most in [100, 30] {
            let (mut one, mut exact) = local(most, 1e-300, 60);
            assert_eq!(one.models(), 1);
            for x in [[0.1, 0.2], [-0.9, 0.5]] {
                let (a, b) = (one.predict(&x).unwrap(), exact.predict(&x).unwrap());
                assert!((a.mean - b.mean).abs() < 1e-12 && (a.variance - b.variance).abs() < 1e-12);
            }
            assert!((one.log_evidence().unwrap() - exact.log_evidence().unwrap()).abs() < 1e-9);
        }
    }

    #[test]
    fn many_models_cover_the_rows_and_predict_nearly_as_well() {
        let (many, exact) = local(100, 0.8, 400);
        assert!(many.models() > 4 && many.count() == 400.0);
        let (mut error, mut reference) = (0.0, 0.0);
        for i in 0..100 {
            let x = [(0.37 * f64::from(i)).sin() * 0.8, (0.61 * f64::from(i)).sin() * 0.8];
            let truth = (2.0 * x[0]).sin() + 0.5 * x[1];
            let p = many.predict(&x).unwrap();
            assert!(p.variance >= 0.0);
            error += (p.mean - truth).powi(2);
            reference += (exact.predict(&x).unwrap().mean - truth).powi(2);
        }
        assert!(error.sqrt() < 3.0 * reference.sqrt(), "{} {}", error.sqrt(), reference.sqrt());
    }

    #[test]
    fn a_stream_learns_the_noise() {
        let (x, y) = rows(300, 2);
        let start = Hyper { noise: 1.0, ..hyper() };
        let mut model = LocalGps::new(Encoder::identity(2), start, Training::paper(0.05), 50, 0.5).unwrap();
        model.warm_up(&x[..40], &y[..20]).unwrap();
        for i in 20..300 {
            model.observe(&x[2 * i..2 * i + 2], y[i]).unwrap();
        }
        // The noise is a sine of size 0.2: variance 0.02.
        assert!(model.hyper.noise < 0.1, "{}", model.hyper.noise);
    }
}
