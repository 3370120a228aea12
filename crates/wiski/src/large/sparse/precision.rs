//! The prior precision Q = K⁻¹ of a product of Matérn processes on a grid: with T_k the covariance of the
//! [chain](super::chain) on axis k,
//!
//! ```text
//! K = s·(T₁ ⊗ … ⊗ T_d)     Q = (1/s) T₁⁻¹ ⊗ … ⊗ T_d⁻¹     log det K = M log s + Σ_k (M/M_k) log det T_k
//! ```
//!
//! A point with q_k states on axis k has q_1·…·q_d unknowns. They are numbered as a grid whose axes have M_k = g_k q_k
//! places, M = Π M_k, so that a Kronecker product of chains is what it is for plain values. The value itself is the
//! first state on every axis.

use super::chain::{Chain, Jet};
use crate::error::{Error, Result, length};
use crate::grid::Grid;
use crate::kernel::{Kernel, MAX_DIM};

/// Q = K⁻¹ over the unknowns of a grid.
#[derive(Debug, Clone)]
pub(super) struct PriorPrecision {
    scale: f64,
    chains: Vec<Chain>,
    strides: Vec<usize>,
    size: usize,
    /// The unknown that is the value at each grid point.
    values: Vec<u32>,
}

/// ⟨M, Q⟩ for a symmetric matrix M, with ⟨M, ∂Q/∂λ_k⟩ for each axis.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Contraction {
    pub(super) value: f64,
    pub(super) by_rate: [f64; MAX_DIM],
}

impl PriorPrecision {
    /// Rejects a kernel that is not a product of Matérn processes over all axes of the grid.
    pub(super) fn new(grid: &Grid, kernel: &Kernel) -> Result<Self> {
        let reject = |reason: String| Error::Config { field: "kernel".into(), reason };
        length("axes of the kernel", grid.dim(), kernel.dim())?;
        kernel.validate()?;
        let Some(processes) = kernel.markov_processes() else {
            let reason =
                format!("the sparse engine needs one product of Matérn kernels over all axes, not {kernel}");
            return Err(reject(reason));
        };
        let mut chains = Vec::with_capacity(grid.dim());
        for (k, (axis, (states, rate))) in grid.axes().iter().zip(processes).enumerate() {
            let Some(chain) = Chain::new(axis.points(), axis.step(), states, rate) else {
                let reason =
                    format!("a spacing of {} does not suit the length-scale on axis {k}", axis.step());
                return Err(reject(reason));
            };
            chains.push(chain);
        }
        let (mut strides, mut size) = (vec![1; chains.len()], 1usize);
        for (stride, chain) in strides.iter_mut().zip(&chains).rev() {
            *stride = size;
            size = size.saturating_mul(chain.len());
        }
        if u32::try_from(size).is_err() {
            let reason = format!("{size} unknowns are more than the sparse engine can number");
            return Err(Error::Config { field: "grid".into(), reason });
        }
        let mut values = vec![0u32];
        for (axis, chain) in grid.axes().iter().zip(&chains) {
            let (q, places) = (chain.states() as u32, chain.len() as u32);
            let along = |v: u32| (0..axis.points() as u32).map(move |i| v * places + i * q);
            values = values.into_iter().flat_map(along).collect();
        }
        Ok(Self { scale: kernel.term_scale(0), chains, strides, size, values })
    }

    /// The output scale s.
    pub(super) fn scale(&self) -> f64 {
        self.scale
    }

    /// The number M of unknowns.
    pub(super) fn len(&self) -> usize {
        self.size
    }

    /// The places M_k of the unknowns on each axis.
    pub(super) fn shape(&self) -> Vec<usize> {
        self.chains.iter().map(Chain::len).collect()
    }

    /// How many places entries reach on each axis: three cells of the data's stencil. The prior's one cell, with all
    /// its states, lies within.
    pub(super) fn reach(&self) -> Vec<usize> {
        self.chains.iter().map(|chain| 3 * chain.states()).collect()
    }

    /// The unknown that is the value at each grid point.
    pub(super) fn values(&self) -> &[u32] {
        &self.values
    }

    /// The grid point whose value an unknown is, if it is one.
    #[inline]
    pub(super) fn point(&self, unknown: usize) -> Option<usize> {
        self.chains.iter().zip(&self.strides).try_fold(0, |point, (chain, stride)| {
            let place = unknown / stride % chain.len();
            let (i, state) = (place / chain.states(), place % chain.states());
            (state == 0).then_some(point * (chain.len() / chain.states()) + i)
        })
    }

    /// Calls `f(j, Q_ij)` for every j with an entry in row i: (3q)^d of them, fewer at the border.
    #[inline]
    pub(super) fn for_each_in_row(&self, i: usize, f: &mut dyn FnMut(usize, f64)) {
        let inverse_scale = self.scale.recip();
        self.visit_row(i, 0, 0, &mut [Jet::ONE; MAX_DIM], &mut |j, factors| {
            f(j, factors.iter().fold(inverse_scale, |product, factor| product * factor.value));
        });
    }

    /// Adds row i of the inner product with Q: M_ij is `entry(j)`.
    #[inline]
    pub(super) fn contract_row(&self, i: usize, mut entry: impl FnMut(usize) -> f64, sums: &mut Contraction) {
        self.visit_row(i, 0, 0, &mut [Jet::ONE; MAX_DIM], &mut |j, factors| {
            let m = entry(j) / self.scale;
            sums.value += factors.iter().fold(m, |product, f| product * f.value);
            for (k, chain) in self.chains.iter().enumerate() {
                let others = factors.iter().enumerate().filter(|(l, _)| *l != k);
                let slope = m * chain.step() * factors[k].slope;
                sums.by_rate[k] += others.fold(slope, |product, (_, f)| product * f.value);
            }
        });
    }

    /// Goes through the axes from `axis` on: `f(j, factors)` for each j, with T_k⁻¹(i_k, j_k) on each axis.
    fn visit_row(
        &self,
        i: usize,
        axis: usize,
        j: usize,
        factors: &mut [Jet; MAX_DIM],
        f: &mut impl FnMut(usize, &[Jet; MAX_DIM]),
    ) {
        let Some(chain) = self.chains.get(axis) else { return f(j, factors) };
        let own = i / self.strides[axis] % chain.len();
        for other in chain.neighbors(own) {
            factors[axis] = chain.entry(own, other);
            self.visit_row(i, axis + 1, j + other * self.strides[axis], factors, f);
        }
    }

    /// x ← Q x, an axis at a time.
    pub(super) fn apply(&self, x: &mut [f64]) {
        x.iter_mut().for_each(|x| *x /= self.scale);
        for (chain, &stride) in self.chains.iter().zip(&self.strides) {
            x.chunks_exact_mut(chain.len() * stride).for_each(|slab| chain.apply(slab, stride));
        }
    }

    /// log det K.
    pub(super) fn log_det_covariance(&self) -> f64 {
        let chains: f64 = self.chains.iter().map(|chain| self.lines(chain) * chain.log_det().value).sum();
        self.size as f64 * self.scale.ln() + chains
    }

    /// ∂ log det K/∂λ_k for each axis.
    pub(super) fn log_det_slopes(&self) -> impl Iterator<Item = f64> + '_ {
        self.chains.iter().map(|chain| self.lines(chain) * chain.log_det().slope * chain.step())
    }

    fn lines(&self, chain: &Chain) -> f64 {
        (self.size / chain.len()) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Family;

    #[test]
    fn inverts_the_covariance_of_values() {
        let grid = Grid::covering(&[(0.0, 1.0), (0.0, 3.0)], &[5, 4]).unwrap();
        let matern = |family, axis| Kernel::on_axes(family, 2, &[axis]).unwrap();
        // Smoothness may differ between the axes.
        let kernel = matern(Family::Matern12, 0) * matern(Family::Matern52, 1).scaled(1.8);
        let q = PriorPrecision::new(&grid, &kernel).unwrap();
        assert_eq!((q.len(), q.shape(), q.reach()), (60, vec![5, 12], vec![3, 9]));
        let mut dense = faer::Mat::<f64>::zeros(60, 60);
        for i in 0..60 {
            q.for_each_in_row(i, &mut |j, value| dense[(i, j)] = value);
            let mut unit = vec![0.0; 60];
            unit[i] = 1.0;
            q.apply(&mut unit);
            for j in 0..60 {
                assert!((unit[j] - dense[(i, j)]).abs() < 1e-12 * dense[(i, i)].max(dense[(j, j)]));
            }
        }
        let factor = dense.llt(faer::Side::Lower).unwrap();
        let covariance = faer::linalg::solvers::DenseSolveCore::inverse(&factor);
        let at = |i: usize, k: usize| grid.axes()[k].point(i / grid.strides()[k] % grid.axes()[k].points());
        for (i, &a) in q.values().iter().enumerate() {
            assert_eq!(q.point(a as usize), Some(i));
            for (j, &b) in q.values().iter().enumerate() {
                let want = kernel.covariance(&[at(i, 0) - at(j, 0), at(i, 1) - at(j, 1)]);
                assert!((covariance[(a as usize, b as usize)] - want).abs() < 1e-11, "{i}, {j}");
            }
        }
        assert_eq!((0..60).filter(|&i| q.point(i).is_some()).count(), 20);
        let log_det = -2.0 * (0..60).map(|i| factor.L()[(i, i)].ln()).sum::<f64>();
        assert!((q.log_det_covariance() - log_det).abs() < 1e-10 * log_det.abs());
    }

    #[test]
    fn rejects_other_kernels() {
        let grid = Grid::covering(&[(0.0, 1.0); 3], &[5, 4, 6]).unwrap();
        let one = Kernel::matern12(&[1.0; 3]).unwrap();
        let smooth = Kernel::matern32(&[1.0; 3]).unwrap();
        let partly = Kernel::on_axes(Family::Matern12, 3, &[0, 2]).unwrap();
        let both = one.clone() * smooth.clone();
        for kernel in [Kernel::rbf(&[1.0; 3]).unwrap(), one.clone() + one.clone(), partly, both] {
            assert!(matches!(PriorPrecision::new(&grid, &kernel), Err(Error::Config { .. })), "{kernel}");
        }
        let endless = Kernel::matern12(&[1e300; 3]).unwrap();
        assert!(matches!(PriorPrecision::new(&grid, &endless), Err(Error::Config { .. })));
        let line = Kernel::matern12(&[1.0]).unwrap();
        assert!(matches!(PriorPrecision::new(&grid, &line), Err(Error::WrongLength { .. })));
        // Products of exponentials on one axis are again exponential.
        assert!(PriorPrecision::new(&grid, &(one.clone() * one)).is_ok());
    }
}
