//! Active learning: where to look so that a whole region becomes known.
//!
//! The criterion is the sum over a reference set of the variance that observing q points would take away, which
//! depends on where they are and not on what is found there. With white vectors f (see
//! [`Surface`]), G the q×p matrix of those of the points and
//! M = Σ_r f_r f_rᵀ over the reference set,
//!
//! ```text
//! reduction = tr[(G Gᵀ + σ² I)⁻¹ G M Gᵀ]
//! ```
//!
//! exactly. M is p×p whatever the size of the reference set: it is Fᵀ (BᵀA_R B) F, where A_R are the statistics
//! of the reference points. So a million reference points cost as much as ten.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use super::maximize::{Maximizer, Maximum};
use crate::error::{Error, Result, length};
use crate::grid::Lattice;
use crate::learn::Bounds;
use crate::model::OnlineRegressor;
use crate::pool::Pool;
use crate::posterior::{Joint, Posterior, Surface, Surrogate};
use crate::simd::{dot, dot_rows};
use crate::stats::Stats;

/// The integrated posterior variance over a reference set, and how much observations would lower it.
#[derive(Debug, Clone)]
pub struct IntegratedVariance {
    surface: Surface,
    /// M, stride×stride row-major.
    reference: Vec<f64>,
    count: f64,
}

/// The statistics of reference points, given row after row.
fn reference_stats(lattice: &Lattice, points: &[f64]) -> Result<Stats> {
    let mut stats = Stats::new(lattice.clone());
    let zeros = vec![0.0; points.len() / lattice.dim()];
    stats.observe_batch(points, &zeros, None)?;
    Ok(stats)
}

impl IntegratedVariance {
    /// The criterion for a posterior and reference points given row after row, in the coordinates of its grid.
    /// O(n_r 16^d + 2p³).
    pub fn new(posterior: &Posterior, points: &[f64]) -> Result<Self> {
        Self::with_reference(posterior, &reference_stats(posterior.lattice(), points)?)
    }

    /// As [`IntegratedVariance::new`], with the statistics of the reference points: for a set that stays the
    /// same while the posterior changes.
    pub fn with_reference(posterior: &Posterior, reference: &Stats) -> Result<Self> {
        if reference.lattice() != posterior.lattice() {
            let reason = "the reference points live on another grid";
            return Err(Error::Unsupported { operation: "integrated variance", reason });
        }
        let posterior = &*posterior.settled();
        let surface = posterior.surface();
        let pool = &mut Pool::default();
        let whitened = reference.whiten(posterior.prior(), pool);
        let (p, stride) = (posterior.rank(), surface.stride());
        let factor = posterior.factor();
        // Fᵀ W F, with F stored row after row: a row-major p×stride matrix.
        let f = MatRef::from_row_major_slice(factor.rows(), p, stride);
        let w = MatRef::from_column_major_slice(&whitened.gram, p, p);
        let mut half = vec![0.0; p * stride];
        matmul(MatMut::from_row_major_slice_mut(&mut half, p, stride), Accum::Replace, w, f, 1.0, Par::Seq);
        let mut m = vec![0.0; stride * stride];
        matmul(
            MatMut::from_row_major_slice_mut(&mut m, stride, stride),
            Accum::Replace,
            f.transpose(),
            MatRef::from_row_major_slice(&half, p, stride),
            1.0,
            Par::Seq,
        );
        Ok(Self { surface, reference: m, count: reference.count() })
    }

    /// The mean variance over the reference set now: tr M / n_r.
    pub fn mean_variance(&self) -> f64 {
        let n = self.surface.stride();
        (0..n).map(|i| self.reference[i * (n + 1)]).sum::<f64>() / self.count
    }

    /// By how much observing q points together would lower the sum of the variances.
    pub fn reduction(&self, h: &[f64]) -> Result<f64> {
        self.evaluate(h, None, &mut Joint::default())
    }

    /// The reduction with its gradient in all coordinates of all points.
    pub fn reduction_and_gradient(&self, h: &[f64], gradient: &mut [f64]) -> Result<f64> {
        length("gradient", h.len(), gradient.len())?;
        self.evaluate(h, Some(gradient), &mut Joint::default())
    }

    /// With N = G Gᵀ + σ²I and T = G M: value = tr(N⁻¹ T Gᵀ), and the derivative in G is
    /// 2 (N⁻¹ T − N⁻¹ (T Gᵀ) N⁻¹ G).
    fn evaluate(&self, h: &[f64], gradient: Option<&mut [f64]>, joint: &mut Joint) -> Result<f64> {
        self.surface.predict(h, joint)?;
        let (q, n) = (joint.points(), self.surface.stride());
        let mut t = vec![0.0; q * n];
        for i in 0..q {
            dot_rows(&self.reference, n, joint.white(i), &mut t[i * n..(i + 1) * n]);
        }
        let mut inverse = joint.covariance.clone();
        (0..q).for_each(|i| inverse[i * (q + 1)] += self.surface.noise());
        invert_symmetric(&mut inverse, q)?;
        // T Gᵀ, symmetric.
        let tg: Vec<f64> =
            (0..q * q).map(|e| dot(&t[e / q * n..(e / q + 1) * n], joint.white(e % q))).collect();
        let value = (0..q * q).map(|e| inverse[e] * tg[e]).sum();
        let Some(gradient) = gradient else { return Ok(value) };
        // K = N⁻¹ (T Gᵀ) N⁻¹
        let product = |a: &[f64], b: &[f64]| -> Vec<f64> {
            (0..q * q).map(|e| (0..q).map(|k| a[e / q * q + k] * b[k * q + e % q]).sum()).collect()
        };
        let k = product(&product(&inverse, &tg), &inverse);
        gradient.fill(0.0);
        let mut direction = vec![0.0; n];
        for i in 0..q {
            direction.fill(0.0);
            for j in 0..q {
                let (a, b) = (2.0 * inverse[i * q + j], -2.0 * k[i * q + j]);
                let rows = t[j * n..(j + 1) * n].iter().zip(joint.white(j));
                direction.iter_mut().zip(rows).for_each(|(d, (t, f))| *d += a * t + b * f);
            }
            self.surface.vjp_point(h, i, 0.0, &direction, gradient)?;
        }
        Ok(value)
    }

    /// Takes the observation of a point (relative noise 1) as made: M, the surface and V M afterwards, exactly.
    /// With f its white vector and γ as in conditioning, F ← F Q, Q = I − γ f fᵀ, so M ← Q M Q and V ← V Q; and
    /// V M ← V Q² M Q with Q² = I − δ f fᵀ, δ = 2γ − γ²fᵀf: two updates of rank one.
    fn observe(&mut self, h: &[f64], products: &mut [f64]) -> Result<()> {
        let mut joint = Joint::default();
        self.surface.predict(h, &mut joint)?;
        let (n, f) = (self.surface.stride(), joint.white(0).to_vec());
        let (v, r) = (joint.variance(0), self.surface.noise());
        let gamma = 1.0 / ((r + v) + (r * (r + v)).sqrt());
        let mut mf = vec![0.0; n];
        dot_rows(&self.reference, n, &f, &mut mf);
        let inner = dot(&f, &mf);
        let delta = 2.0 * gamma - gamma * gamma * dot(&f, &f);
        for (own, v) in products.chunks_exact_mut(n).zip(self.surface.root().chunks_exact(n)) {
            let along = delta * dot(v, &f);
            let across = gamma * (dot(own, &f) - along * inner);
            for ((own, &fj), &mj) in own.iter_mut().zip(&f).zip(&mf) {
                *own -= along * mj + across * fj;
            }
        }
        for i in 0..n {
            let row = &mut self.reference[i * n..(i + 1) * n];
            let (a, b) = (gamma * f[i], gamma * mf[i]);
            for ((m, &fj), &mj) in row.iter_mut().zip(&f).zip(&mf) {
                *m += -a * mj - b * fj + gamma * a * inner * fj;
            }
        }
        self.surface.condition(h, joint.mean[0], 1.0)
    }

    /// V M, a padded row for each grid point: m p² multiply-adds.
    fn grid_products(&self) -> Vec<f64> {
        let (n, root) = (self.surface.stride(), self.surface.root());
        let m = root.len() / n;
        let mut products = vec![0.0; root.len()];
        matmul(
            MatMut::from_row_major_slice_mut(&mut products, m, n),
            Accum::Replace,
            MatRef::from_row_major_slice(root, m, n),
            MatRef::from_row_major_slice(&self.reference, n, n),
            1.0,
            Par::Seq,
        );
        products
    }

    /// The q points of a pool (rows one after the other) that lower the variance most, chosen one after the
    /// other with exact updates in between. Returns their numbers; no point is chosen twice.
    pub fn choose_from_pool(&self, pool: &[f64], q: usize) -> Result<Vec<usize>> {
        let d = self.surface.lattice().dim();
        let rows = pool.len() / d;
        length("pool", rows * d, pool.len())?;
        if q > rows {
            let reason = format!("{q} points cannot be chosen from {rows}");
            return Err(Error::Config { field: "pool".into(), reason });
        }
        let mut state = self.clone();
        let mut chosen: Vec<usize> = Vec::with_capacity(q);
        let n = self.surface.stride();
        let (mut f, mut mf) = (vec![0.0; n], vec![0.0; n]);
        // For one point the reduction is fᵀMf/(fᵀf + σ²) with f = Vᵀw. With V M at hand, M f = (V M)ᵀw is as
        // cheap as f: 4^d p multiply-adds instead of p².
        let mut products = state.grid_products();
        for _ in 0..q {
            let mut best = (f64::NEG_INFINITY, 0);
            for i in (0..rows).filter(|i| !chosen.contains(i)) {
                let point = &pool[i * d..(i + 1) * d];
                state.surface.combine(state.surface.root(), point, &mut f).map_err(|e| e.in_row(i))?;
                state.surface.combine(&products, point, &mut mf)?;
                let value = dot(&f, &mf) / (dot(&f, &f) + state.surface.noise());
                if value > best.0 {
                    best = (value, i);
                }
            }
            chosen.push(best.1);
            if chosen.len() < q {
                state.observe(&pool[best.1 * d..(best.1 + 1) * d], &mut products)?;
            }
        }
        Ok(chosen)
    }

    /// The q points of a box that together lower the variance most, found by climbing the joint criterion.
    pub fn choose_from_box(
        &self,
        bounds: &[(f64, f64)],
        q: usize,
        maximizer: &Maximizer,
        seed: u64,
    ) -> Result<Maximum> {
        length("bounds", self.surface.lattice().dim(), bounds.len())?;
        let corner = |side: fn(&(f64, f64)) -> f64| -> Vec<f64> {
            (0..q).flat_map(|_| bounds.iter().map(side)).collect()
        };
        let region = Bounds::new(corner(|b| b.0), corner(|b| b.1))?;
        let mut joint = Joint::default();
        let mut criterion = |h: &[f64], gradient: Option<&mut [f64]>| self.evaluate(h, gradient, &mut joint);
        maximizer.maximize(&mut criterion, &region, &[], seed)
    }
}

/// The q rows of a pool whose observation would lower the variance of a regressor's predictions over reference
/// rows most, as their numbers in the pool. Rows are in the user's units, one after the other; without
/// reference rows the pool itself is the reference.
pub fn choose_rows(
    model: &OnlineRegressor,
    pool: &[f64],
    reference: Option<&[f64]>,
    q: usize,
) -> Result<Vec<usize>> {
    let Some(process) = model.model() else {
        return Err(Error::NotReady { operation: "choosing rows" });
    };
    let places = model.coordinates(pool)?;
    let criterion = match reference {
        Some(rows) => IntegratedVariance::new(process.posterior()?, &model.coordinates(rows)?)?,
        None => IntegratedVariance::new(process.posterior()?, &places)?,
    };
    criterion.choose_from_pool(&places, q)
}

/// The inverse of a small symmetric positive definite matrix, by Gauss–Jordan elimination.
fn invert_symmetric(a: &mut [f64], q: usize) -> Result<()> {
    for k in 0..q {
        let pivot = a[k * q + k];
        if !(pivot > 0.0 && pivot.is_finite()) {
            let reason = "the covariance of the points is not positive definite";
            return Err(Error::Unsupported { operation: "variance reduction", reason });
        }
        a[k * q + k] = 1.0;
        (0..q).for_each(|j| a[k * q + j] /= pivot);
        for i in (0..q).filter(|&i| i != k) {
            let factor = a[i * q + k];
            a[i * q + k] = 0.0;
            (0..q).for_each(|j| a[i * q + j] -= factor * a[k * q + j]);
        }
    }
    Ok(())
}
