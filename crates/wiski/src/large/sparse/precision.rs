//! The prior precision Q = K⁻¹ of a product of exponentials on a grid, in closed form.
//!
//! On an axis with spacing h and rate λ the values are a Markov chain with correlation ρ = e^{−r}, r = λh, between
//! neighbours, and innovations of variance v = 1 − ρ²:
//!
//! ```text
//! T(i, j) = ρ^|i−j|     T⁻¹ = tridiagonal: 1/v at the ends, (1 + ρ²)/v between them, −ρ/v beside them
//! log det T = (g − 1) log v
//! K = s·(T₁ ⊗ … ⊗ T_d)     Q = (1/s) T₁⁻¹ ⊗ … ⊗ T_d⁻¹: 3^d entries a row
//! ```
//!
//! For fine grids r is small and 1 − ρ² would cancel: v = −expm1(−2r) keeps all digits.

use crate::error::{Error, Result};
use crate::grid::Grid;
use crate::kernel::{Kernel, MAX_DIM};
use crate::structure::Neighbourhood;

/// T⁻¹ on one axis, with its derivative in r.
#[derive(Debug, Clone)]
struct Chain {
    points: usize,
    step: f64,
    /// ρ and 1 − ρ.
    correlation: f64,
    decrement: f64,
    /// v = 1 − ρ².
    innovation: f64,
    end: Jet,
    inner: Jet,
    beside: Jet,
}

/// A number and its derivative in r.
#[derive(Debug, Clone, Copy)]
struct Jet {
    value: f64,
    slope: f64,
}

impl Chain {
    fn new(points: usize, step: f64, rate: f64) -> Option<Self> {
        let r = rate * step;
        let (correlation, decrement, innovation) = ((-r).exp(), -(-r).exp_m1(), -(-2.0 * r).exp_m1());
        let square = correlation * correlation;
        // dv/dr = 2ρ² and dρ/dr = −ρ.
        let by_end = -2.0 * square / (innovation * innovation);
        let by_beside = correlation * (1.0 + square) / (innovation * innovation);
        let end = Jet { value: innovation.recip(), slope: by_end };
        let inner = Jet { value: (1.0 + square) / innovation, slope: 2.0 * by_end };
        let beside = Jet { value: -correlation / innovation, slope: by_beside };
        let finite = inner.slope.is_finite() && beside.slope.is_finite();
        finite.then_some(Self { points, step, correlation, decrement, innovation, end, inner, beside })
    }

    /// T⁻¹(i, j) for |i − j| ≤ 1.
    #[inline]
    fn entry(&self, i: usize, j: usize) -> Jet {
        if i != j {
            self.beside
        } else if i == 0 || i + 1 == self.points {
            self.end
        } else {
            self.inner
        }
    }

    /// log det T and its derivative in r.
    fn log_det(&self) -> Jet {
        let times = (self.points - 1) as f64;
        let slope = 2.0 * self.correlation * self.correlation / self.innovation;
        Jet { value: times * self.innovation.ln(), slope: times * slope }
    }

    /// Multiplies an array of g rows, each `stride` long, by T⁻¹ = Eᵀ V⁻¹ E from the left: with the innovations
    /// e₀ = x₀, e_i = x_i − ρ x_{i−1} of variances 1, v, v, … Differences of neighbours are taken before anything
    /// is divided by v, so that smooth x lose no digits.
    fn apply(&self, rows: &mut [f64], stride: usize) {
        let (v, lost) = (self.innovation, self.decrement);
        for i in (1..self.points).rev() {
            let (before, own) = rows.split_at_mut(i * stride);
            for (x, &previous) in own[..stride].iter_mut().zip(&before[(i - 1) * stride..]) {
                *x = (*x - previous) + lost * previous;
            }
        }
        for i in 0..self.points {
            let (own, after) = rows[i * stride..].split_at_mut(stride);
            if i > 0 {
                own.iter_mut().for_each(|e| *e /= v);
            }
            if i + 1 < self.points {
                let factor = self.correlation / v;
                own.iter_mut().zip(&after[..stride]).for_each(|(y, &next)| *y -= factor * next);
            }
        }
    }
}

/// Q = K⁻¹ over the points of a grid.
#[derive(Debug, Clone)]
pub(super) struct PriorPrecision {
    scale: f64,
    chains: Vec<Chain>,
    strides: Vec<usize>,
    size: usize,
    near: Neighbourhood,
}

/// ⟨M, ∂Q/∂·⟩ for a symmetric matrix M.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Contraction {
    /// ⟨M, Q⟩.
    pub(super) value: f64,
    /// ⟨M, ∂Q/∂λ_k⟩ for each axis.
    pub(super) by_rate: Vec<f64>,
}

impl PriorPrecision {
    /// Refuses a kernel that is not a product of exponentials on all axes of the grid.
    pub(super) fn new(grid: &Grid, kernel: &Kernel) -> Result<Self> {
        let refuse = |reason: String| Error::Config { field: "kernel".into(), reason };
        crate::error::length("axes of the kernel", grid.dim(), kernel.dim())?;
        kernel.validate()?;
        let Some(rates) = kernel.exponential_rates() else {
            let reason =
                format!("the sparse engine needs one product of Matérn ½ over all axes, not {kernel}");
            return Err(refuse(reason));
        };
        let mut chains = Vec::with_capacity(grid.dim());
        for (k, (axis, rate)) in grid.axes().iter().zip(rates).enumerate() {
            let Some(chain) = Chain::new(axis.points(), axis.step(), rate) else {
                let reason =
                    format!("the length-scale on axis {k} is too long for a spacing of {}", axis.step());
                return Err(refuse(reason));
            };
            chains.push(chain);
        }
        let near = Neighbourhood::new(&grid.shape(), 1);
        let (strides, size) = (grid.strides().to_vec(), grid.len());
        Ok(Self { scale: kernel.term_scale(0), chains, strides, size, near })
    }

    /// The output scale s.
    pub(super) fn scale(&self) -> f64 {
        self.scale
    }

    /// Calls `f(j, Q_ij)` for every j with an entry in row i: 3^d of them, fewer at the border.
    #[inline]
    pub(super) fn for_each_in_row(&self, i: usize, mut f: impl FnMut(usize, f64)) {
        let inverse_scale = self.scale.recip();
        self.near.for_each(i, |j, _, _| {
            let product: f64 = (0..self.chains.len()).map(|k| self.factor(k, i, j).value).product();
            f(j, inverse_scale * product);
        });
    }

    #[inline]
    fn factor(&self, k: usize, i: usize, j: usize) -> Jet {
        let digit = |i: usize| i / self.strides[k] % self.chains[k].points;
        self.chains[k].entry(digit(i), digit(j))
    }

    /// x ← Q x, an axis at a time.
    pub(super) fn apply(&self, x: &mut [f64]) {
        x.iter_mut().for_each(|x| *x /= self.scale);
        for (chain, &stride) in self.chains.iter().zip(&self.strides) {
            x.chunks_exact_mut(chain.points * stride).for_each(|slab| chain.apply(slab, stride));
        }
    }

    /// log det K.
    pub(super) fn log_det_covariance(&self) -> f64 {
        let lines = |chain: &Chain| (self.size / chain.points) as f64;
        let chains: f64 = self.chains.iter().map(|chain| lines(chain) * chain.log_det().value).sum();
        self.size as f64 * self.scale.ln() + chains
    }

    /// ∂ log det K/∂λ_k for each axis.
    pub(super) fn log_det_slopes(&self) -> impl Iterator<Item = f64> + '_ {
        let lines = |chain: &Chain| (self.size / chain.points) as f64;
        self.chains.iter().map(move |chain| lines(chain) * chain.log_det().slope * chain.step)
    }

    /// ⟨M, Q⟩ and its derivatives in the rates. `entry(i, j, place)` is M_ij, where `place` is that of (i, j) in
    /// a stencil matrix; only the 3^d neighbours of a point are asked for.
    pub(super) fn contract(&self, entry: impl Fn(usize, usize, usize) -> f64) -> Contraction {
        let d = self.chains.len();
        let (mut value, mut slopes) = (0.0, [0.0; MAX_DIM]);
        for i in 0..self.size {
            self.near.for_each(i, |j, place, _| {
                let m = entry(i, j, place);
                let factors: [Jet; MAX_DIM] =
                    std::array::from_fn(|k| if k < d { self.factor(k, i, j) } else { Jet::ONE });
                value += factors.iter().fold(m, |product, f| product * f.value);
                for (k, slope) in slopes[..d].iter_mut().enumerate() {
                    let others = factors.iter().enumerate().filter(|(l, _)| *l != k);
                    *slope += others.fold(m * factors[k].slope, |product, (_, f)| product * f.value);
                }
            });
        }
        let by_rate = self.chains.iter().zip(slopes).map(|(c, slope)| slope * c.step / self.scale).collect();
        Contraction { value: value / self.scale, by_rate }
    }
}

impl Jet {
    const ONE: Self = Self { value: 1.0, slope: 0.0 };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case() -> (Grid, Kernel) {
        let grid = Grid::covering(&[(0.0, 1.0), (0.0, 3.0), (-1.0, 0.0)], &[5, 4, 6]).unwrap();
        (grid, Kernel::matern12(&[0.7, 5.0, 0.1]).unwrap().scaled(1.8))
    }

    fn covariance(grid: &Grid, kernel: &Kernel) -> Vec<f64> {
        let m = grid.len();
        let at = |i: usize, k: usize| grid.axes()[k].point(i / grid.strides()[k] % grid.axes()[k].points());
        let entry = |i: usize, j: usize| {
            let difference: Vec<f64> = (0..grid.dim()).map(|k| at(i, k) - at(j, k)).collect();
            kernel.covariance(&difference)
        };
        (0..m * m).map(|e| entry(e / m, e % m)).collect()
    }

    #[test]
    fn inverts_the_covariance() {
        let (grid, kernel) = case();
        let (q, k, m) =
            (PriorPrecision::new(&grid, &kernel).unwrap(), covariance(&grid, &kernel), grid.len());
        for i in 0..m {
            // Column i of K, through Q by entries and by axes.
            let column = &k[i * m..(i + 1) * m];
            let mut applied = column.to_vec();
            q.apply(&mut applied);
            for row in 0..m {
                let mut sum = 0.0;
                q.for_each_in_row(row, |j, entry| sum += entry * column[j]);
                let unit = f64::from(u8::from(row == i));
                assert!((sum - unit).abs() < 1e-12 && (applied[row] - unit).abs() < 1e-12, "{row}, {i}");
            }
        }
        let dense = faer::Mat::from_fn(m, m, |i, j| k[i * m + j]);
        let factor = dense.llt(faer::Side::Lower).unwrap();
        let log_det = 2.0 * (0..m).map(|i| factor.L()[(i, i)].ln()).sum::<f64>();
        assert!((q.log_det_covariance() - log_det).abs() < 1e-11 * log_det.abs());
    }

    #[test]
    fn slopes_equal_difference_quotients() {
        let (grid, kernel) = case();
        let m = |i: usize, j: usize, _| ((i + 1) * (j + 1)) as f64 / 100.0 + if i == j { 3.0 } else { 0.0 };
        let at = |lengths: &[f64]| {
            let mut moved = kernel.clone();
            moved.set_parameters(&[1.8, lengths[0], lengths[1], lengths[2]]).unwrap();
            PriorPrecision::new(&grid, &moved).unwrap()
        };
        let lengths = &kernel.parameters()[1..];
        let (q, contraction) = (at(lengths), at(lengths).contract(m));
        for (k, log_det_slope) in q.log_det_slopes().enumerate() {
            let moved = |by: f64| {
                let mut moved = lengths.to_vec();
                moved[k] = (lengths[k].recip() + by).recip();
                at(&moved)
            };
            let step = 1e-4 / lengths[k];
            let (hi, lo) = (moved(step), moved(-step));
            let numeric = (hi.contract(m).value - lo.contract(m).value) / (2.0 * step);
            assert!((contraction.by_rate[k] - numeric).abs() < 1e-6 * numeric.abs(), "axis {k}");
            let numeric = (hi.log_det_covariance() - lo.log_det_covariance()) / (2.0 * step);
            assert!((log_det_slope - numeric).abs() < 1e-6 * numeric.abs(), "axis {k}");
        }
    }

    /// A spacing of 10⁻¹⁰ length-scales: with 1 − ρ² formed as written, six digits would be left.
    #[test]
    fn keeps_digits_on_fine_grids() {
        let chain = Chain::new(5, 1e-10, 1.0).unwrap();
        let exact = 5e9; // 1/(2r), up to a relative 10⁻¹⁰
        assert!((chain.end.value / exact - 1.0 - 1e-10).abs() < 1e-15);
    }

    #[test]
    fn refuses_other_kernels() {
        let (grid, _) = case();
        let one = Kernel::matern12(&[1.0; 3]).unwrap();
        let partly = Kernel::on_axes(crate::kernel::Family::Matern12, 3, &[0, 2]).unwrap();
        for kernel in [Kernel::matern32(&[1.0; 3]).unwrap(), one.clone() + one.clone(), partly] {
            assert!(matches!(PriorPrecision::new(&grid, &kernel), Err(Error::Config { .. })), "{kernel}");
        }
        assert!(matches!(
            PriorPrecision::new(&grid, &Kernel::matern12(&[1e300; 3]).unwrap()),
            Err(Error::Config { .. })
        ));
        assert!(matches!(
            PriorPrecision::new(&grid, &Kernel::matern12(&[1.0]).unwrap()),
            Err(Error::WrongLength { .. })
        ));
        // Products on one axis are again exponential.
        assert!(PriorPrecision::new(&grid, &(one.clone() * one)).is_ok());
    }
}
