//! The joint prediction of a Gaussian process given by a kernel, with its way back: what criteria of the next points
//! need ([`wiski::decide::Surrogate`]).
//!
//! An exact process and a sparse variational one have the same form. With k(x) the covariances of a point with the
//! rows (or the inducing points),
//!
//! ```text
//! mean k(x)ᵀa     covariance k(x, x') + k(x)ᵀE k(x')
//!
//! exact:   a = (K + σ²D)⁻¹y     E = −(K + σ²D)⁻¹
//! sparse:  a = L⁻ᵀμ             E = L⁻ᵀ(R Rᵀ − I)L⁻¹
//! ```
//!
//! so that one computation serves both. A point costs n² multiply-adds and its gradient little more, since E k(x) is
//! kept: ∂/∂k(x_i) = ḡ_i a + Σ_j (C̄_ij + C̄_ji) E k(x_j).

use faer::Mat;
use wiski::Result;
use wiski::decide::Surrogate;
use wiski::posterior::Joint;

use super::covariance::{Covariance, Slots};
use super::dense::{apply, dot};

/// A Gaussian process as seen from a few points.
#[derive(Debug, Clone)]
pub struct KernelSurrogate {
    pub(super) kernel: Covariance,
    pub(super) noise: f64,
    /// Rows or inducing points, one after the other.
    pub(super) places: Vec<f64>,
    /// a.
    pub(super) weights: Vec<f64>,
    /// E.
    pub(super) change: Mat<f64>,
}

impl KernelSurrogate {
    fn gram_of(&self, x: &[f64], joint: &mut Joint) {
        let (d, q) = (self.kernel.dim(), joint.points());
        for i in 0..q {
            for j in 0..=i {
                let value = self.kernel.value(&x[i * d..(i + 1) * d], &x[j * d..(j + 1) * d]);
                joint.covariance[i * q + j] = value;
                joint.covariance[j * q + i] = value;
            }
        }
    }
}

impl KernelSurrogate {
    /// The posterior covariances of points with others: K_ab + K_a E K_b.
    fn covariances(&self, a: &[f64], b: &[f64]) -> Mat<f64> {
        let right = &self.change * self.kernel.matrix(&self.places, b);
        self.kernel.matrix(a, b) + self.kernel.matrix(&self.places, a).transpose() * right
    }

    /// The q points of a pool whose observation lowers the sum of the variances at reference points most, one after
    /// the other with exact updates in between: with c the covariances of a candidate with the reference points and v
    /// its variance, the sum falls by cᵀc/(v + σ²). O(n² |pool| + n |pool| |reference|).
    pub fn choose_from_pool(&self, pool: &[f64], reference: &[f64], q: usize) -> Vec<usize> {
        let (d, count) = (self.kernel.dim(), pool.len() / self.kernel.dim());
        let mut to_reference = self.covariances(reference, pool);
        let mut variances: Vec<f64> = {
            let k = self.kernel.matrix(&self.places, pool);
            let changed = &self.change * &k;
            let change = |j: usize| dot(k.col_as_slice(j), changed.col_as_slice(j));
            (0..count).map(|j| (self.kernel.variance() + change(j)).max(0.0)).collect()
        };
        // Covariances of the pool with each chosen point, over the deviation of its observation.
        let mut steps: Vec<Vec<f64>> = Vec::new();
        let mut chosen: Vec<usize> = Vec::new();
        while chosen.len() < q.min(count) {
            let score = |j: usize| {
                let c = to_reference.col_as_slice(j);
                dot(c, c) / (variances[j] + self.noise)
            };
            let free = (0..count).filter(|j| !chosen.contains(j));
            let Some(best) = free.max_by(|&i, &j| score(i).total_cmp(&score(j))) else { break };
            chosen.push(best);
            let own = self.covariances(pool, &pool[best * d..(best + 1) * d]);
            let deviation = (variances[best] + self.noise).sqrt();
            let column: Vec<f64> = (0..count)
                .map(|j| (own[(j, 0)] - steps.iter().map(|s| s[j] * s[best]).sum::<f64>()) / deviation)
                .collect();
            let reach: Vec<f64> = to_reference.col_as_slice(best).iter().map(|c| c / deviation).collect();
            for (j, &c) in column.iter().enumerate() {
                variances[j] = (variances[j] - c * c).max(0.0);
                to_reference.col_as_slice_mut(j).iter_mut().zip(&reach).for_each(|(t, r)| *t -= c * r);
            }
            steps.push(column);
        }
        chosen
    }
}

impl Surrogate for KernelSurrogate {
    fn dim(&self) -> usize {
        self.kernel.dim()
    }

    fn noise(&self) -> f64 {
        self.noise
    }

    fn mean(&self, x: &[f64]) -> Result<f64> {
        let k = self.kernel.matrix(&self.places, x);
        Ok(dot(k.col_as_slice(0), &self.weights))
    }

    fn predict(&self, x: &[f64], out: &mut Joint) -> Result<()> {
        let q = x.len() / self.dim();
        let k = self.kernel.matrix(&self.places, x);
        out.reset(q, self.weights.len());
        self.gram_of(x, out);
        for i in 0..q {
            let own = k.col_as_slice(i);
            out.mean[i] = dot(own, &self.weights);
            out.white_mut(i).copy_from_slice(&apply(self.change.as_ref(), own));
        }
        for i in 0..q {
            for j in 0..q {
                let change = dot(k.col_as_slice(i), out.white(j));
                // Rounding must not make a variance negative.
                let entry = &mut out.covariance[i * q + j];
                *entry = if i == j { (*entry + change).max(0.0) } else { *entry + change };
            }
        }
        Ok(())
    }

    fn pull_back(
        &self,
        x: &[f64],
        joint: &Joint,
        by_mean: &[f64],
        by_covariance: &[f64],
        gradient: &mut [f64],
    ) -> Result<()> {
        let (q, n) = (joint.points(), self.weights.len());
        let by_k = Mat::from_fn(n, q, |row, i| {
            let through_covariance: f64 = (0..q)
                .map(|j| (by_covariance[i * q + j] + by_covariance[j * q + i]) * joint.white(j)[row])
                .sum();
            by_mean[i] * self.weights[row] + through_covariance
        });
        let k = self.kernel.matrix(&self.places, x);
        let mut parameters = vec![0.0; self.kernel.parameters().len()];
        let mut slots = Slots { parameters: &mut parameters, a: None, b: Some(gradient) };
        self.kernel.pull_back((&self.places, x), k.as_ref(), by_k.as_ref(), &mut slots);
        // The points among themselves: each is a row and a column.
        let between = self.kernel.matrix(x, x);
        let by_between = Mat::from_fn(q, q, |i, j| by_covariance[i * q + j]);
        let (mut rows, mut columns) = (vec![0.0; x.len()], vec![0.0; x.len()]);
        let mut slots = Slots { parameters: &mut parameters, a: Some(&mut rows), b: Some(&mut columns) };
        self.kernel.pull_back((x, x), between.as_ref(), by_between.as_ref(), &mut slots);
        gradient.iter_mut().zip(rows.iter().zip(&columns)).for_each(|(g, (a, b))| *g += a + b);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baselines::testing::{assert_gradient, hyper, rows};
    use crate::baselines::{
        Encoder, ExactGp, Hyper, Likelihood, StreamingSvgp, SvgpOptions, Training, covariance::Covariance,
    };
    use wiski::OnlineGp;
    use wiski::decide::{Acquisition, BaseSamples, Standing};
    use wiski::kernel::Family;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9 * (1.0 + a.abs())
    }

    fn models() -> [(KernelSurrogate, Box<dyn OnlineGp>); 3] {
        let (x, y) = rows(30, 2);
        let mut exact = ExactGp::new(Encoder::identity(2), hyper(), Training::none());
        exact.warm_up(&x, &y, None).unwrap();
        let matern = Hyper { kernel: Covariance::new(Family::Matern52, 2).unwrap(), ..hyper() };
        let mut rough = ExactGp::new(Encoder::identity(2), matern, Training::none());
        rough.warm_up(&x, &y, None).unwrap();
        let options = SvgpOptions { inducing: 12, jitter: 1e-6, ..SvgpOptions::default() };
        let mut sparse = StreamingSvgp::new(
            Encoder::identity(2),
            hyper(),
            Training::paper(0.05),
            Likelihood::Gaussian,
            options,
        );
        sparse.warm_up(&x, &y).unwrap();
        [
            (exact.surrogate().unwrap(), Box::new(exact)),
            (rough.surrogate().unwrap(), Box::new(rough)),
            (sparse.surrogate().unwrap(), Box::new(sparse)),
        ]
    }

    #[test]
    fn single_points_are_predicted_as_by_the_model_itself() {
        for (surrogate, mut model) in models() {
            let points = [0.1, -0.3, 0.7, 0.9, -0.8, 0.2];
            let mut joint = Joint::default();
            surrogate.predict(&points, &mut joint).unwrap();
            for i in 0..3 {
                let p = model.predict(&points[2 * i..2 * i + 2]).unwrap();
                assert!(close(joint.mean[i], p.mean) && close(joint.variance(i), p.variance), "{p:?}");
                assert!(close(surrogate.mean(&points[2 * i..2 * i + 2]).unwrap(), p.mean));
                assert_eq!(surrogate.noise(), p.noise);
            }
        }
    }

    /// A covariance is what an observation of one point changes at the other, an identity of exact processes.
    #[test]
    fn covariances_are_what_observing_changes() {
        let (x, y) = rows(30, 2);
        let mut model = ExactGp::new(Encoder::identity(2), hyper(), Training::none());
        model.warm_up(&x, &y, None).unwrap();
        let (a, b) = ([0.1, -0.3], [0.4, 0.1]);
        let surrogate = model.surrogate().unwrap();
        let mut joint = Joint::default();
        surrogate.predict(&[a, b].concat(), &mut joint).unwrap();
        let before = model.predict(&b).unwrap();
        model.observe(&a, joint.mean[0] + 1.0).unwrap();
        let after = model.predict(&b).unwrap();
        let total = joint.variance(0) + surrogate.noise();
        assert!(close(after.mean - before.mean, joint.covariance[1] / total));
        assert!(close(before.variance - after.variance, joint.covariance[1].powi(2) / total));
    }

    /// Trying every candidate on a copy of the model.
    #[test]
    fn the_choice_from_a_pool_is_that_of_observing_each() {
        let (x, y) = rows(15, 2);
        let mut model = ExactGp::new(Encoder::identity(2), hyper(), Training::none());
        model.warm_up(&x, &y, None).unwrap();
        let (pool, reference) = (rows(55, 2).0[30..].to_vec(), rows(90, 2).0[110..].to_vec());
        let pool = &pool[..pool.len() / 2 * 2];
        let chosen = model.surrogate().unwrap().choose_from_pool(pool, &reference, 3);
        let mut expected: Vec<usize> = Vec::new();
        for _ in 0..3 {
            let left = |i: usize| {
                let mut then = model.clone();
                then.observe(&pool[2 * i..2 * i + 2], 0.0).unwrap();
                reference.chunks_exact(2).map(|r| then.predict(r).unwrap().variance).sum::<f64>()
            };
            let free = (0..pool.len() / 2).filter(|i| !expected.contains(i));
            let best = free.min_by(|&i, &j| left(i).total_cmp(&left(j))).unwrap();
            model.observe(&pool[2 * best..2 * best + 2], 0.0).unwrap();
            expected.push(best);
        }
        assert_eq!(chosen, expected);
    }

    #[test]
    fn gradients_of_criteria_match_central_differences() {
        for (surrogate, _) in models() {
            for (q, criterion) in [
                (1, Acquisition::LogExpectedImprovement),
                (3, Acquisition::UCB),
                (2, Acquisition::LogExpectedImprovement),
            ] {
                let x: Vec<f64> = (0..2 * q).map(|i| 0.8 * (2.3 * i as f64 + 0.4).cos()).collect();
                let (samples, standing) = (BaseSamples::new(q, 64, 3), Standing::with_best(0.3));
                let mut gradient = vec![0.0; 2 * q];
                let question = (&x[..], &standing, &samples);
                criterion
                    .value_and_gradient(&surrogate, question, &mut Joint::default(), &mut gradient)
                    .unwrap();
                let value = |x: &[f64]| {
                    criterion.value(&surrogate, (x, &standing, &samples), &mut Joint::default()).unwrap()
                };
                assert_gradient(&x, &gradient, value, 1e-6);
            }
        }
    }
}
