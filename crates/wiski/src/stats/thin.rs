//! What many evaluations of the evidence read of A, prepared once: its sums by lag, and for few rows a thin root.
//!
//! n rows give A = WᵀD⁻¹W a rank r ≤ n, however large the grid is, while its stencil has 7^d numbers a grid point: 2401
//! on four axes. There
//!
//! ```text
//! A = L Lᵀ,   L m×r
//! ```
//!
//! is less to read: BᵀA B = (BᵀL)(BᵀL)ᵀ for m r Σg + r p² multiply-adds, and A V = L (LᵀV) for m r p, instead of 7^d m p
//! or 2 m² Σg. L comes from pivoted Cholesky, r columns of A and m r²/2 multiply-adds, which ends when no diagonal entry
//! of the rest is above rounding. The rest is positive semidefinite, so that its diagonal bounds every entry.

use std::sync::OnceLock;

use super::{Gram, Stats};
use crate::simd::dot;
use crate::structure::{GridMatrix, Neighborhood};

/// A root is thin if the stencil has so many times as many numbers a grid point.
const THIN: usize = 4;

/// Diagonal entries of the rest below this share of the largest of A are rounding: a few times that of A itself.
const ROUNDING: f64 = 4.0 * f64::EPSILON;

/// What evaluations of the evidence read of A besides its stencil.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    /// For few rows on a large grid.
    pub(crate) root: Option<ThinRoot>,
    lags: OnceLock<Vec<Vec<f64>>>,
}

/// L with A = L Lᵀ: m rows of r numbers.
#[derive(Debug, Clone)]
pub(crate) struct ThinRoot {
    pub(crate) rows: Vec<f64>,
    pub(crate) rank: usize,
}

impl Prepared {
    /// For each block, the sums of A by lag; none for a low-rank root.
    pub(crate) fn lags(&self, stats: &Stats) -> &[Vec<f64>] {
        self.lags.get_or_init(|| match stats.gram() {
            Gram::Exact(a) => a.lag_sums(stats.lattice()),
            Gram::LowRank(_) => Vec::new(),
        })
    }
}

impl Stats {
    /// What evaluations of the evidence read of A, until it changes.
    pub(crate) fn prepared(&self) -> Prepared {
        Prepared { root: self.thin_root(), lags: OnceLock::new() }
    }

    fn thin_root(&self) -> Option<ThinRoot> {
        let (Gram::Exact(all), [grid], None) = (&self.gram, self.lattice.grids(), self.lattice.points())
        else {
            return None;
        };
        let most = 7usize.pow(grid.dim() as u32).min(grid.len()) / THIN;
        // Rows that fade are more than their weight, and may have a rank above it.
        let rows = self.count.ceil() as usize;
        if rows == 0 || rows > most {
            return None;
        }
        ThinRoot::of(&all.diagonal()[0], &grid.shape(), most.min(rows + 8))
    }
}

impl ThinRoot {
    /// The root of a matrix over one grid, if it has a rank of at most `limit`.
    fn of(a: &GridMatrix, shape: &[usize], limit: usize) -> Option<Self> {
        let m: usize = shape.iter().product();
        let neighborhood = Neighborhood::new(shape, 3);
        // Of the rest A − L Lᵀ, point by point.
        let mut diagonal = match a {
            GridMatrix::Stencil(a) => a.diagonal(),
            GridMatrix::Dense(a) => a.data().iter().step_by(m + 1).copied().collect(),
        };
        let enough = ROUNDING * diagonal.iter().fold(0.0, |s: f64, &v| s.max(v));
        // Rows of `limit` numbers, so that a new column is a matter of inner products.
        let (mut rows, mut pivots) = (vec![0.0; m * limit], Vec::with_capacity(limit));
        for k in 0..=limit {
            let largest = diagonal.iter().copied().enumerate().max_by(|x, y| x.1.total_cmp(&y.1));
            let (pivot, value) = largest?;
            if value <= enough {
                let rows = rows.chunks_exact(limit).flat_map(|row| &row[..k]).copied().collect();
                return Some(Self { rows, rank: k });
            }
            if k == limit {
                break;
            }
            let root = value.sqrt();
            let own = rows[pivot * limit..][..k].to_vec();
            rows.chunks_exact_mut(limit).for_each(|row| row[k] = -dot(&row[..k], &own));
            match a {
                GridMatrix::Stencil(a) => {
                    neighborhood.for_each(pivot, |j, place, _| rows[j * limit + k] += a.data()[place]);
                }
                GridMatrix::Dense(a) => {
                    let column = &a.data()[pivot * m..(pivot + 1) * m];
                    rows.chunks_exact_mut(limit).zip(column).for_each(|(row, v)| row[k] += v);
                }
            }
            // Nothing is left of earlier pivots, whatever rounding says.
            pivots.iter().for_each(|&i| rows[i * limit + k] = 0.0);
            for (row, d) in rows.chunks_exact_mut(limit).zip(&mut diagonal) {
                row[k] /= root;
                *d -= row[k] * row[k];
            }
            rows[pivot * limit + k] = root;
            diagonal[pivot] = 0.0;
            pivots.push(pivot);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Grid;

    /// Rows of a low-discrepancy sequence, two of them twice.
    fn stats(shape: &[usize], rows: usize) -> Stats {
        let d = shape.len();
        let mut stats = Stats::new(Grid::covering(&vec![(0.0, 1.0); d], shape).unwrap());
        for i in (0..rows).chain([0, 1]) {
            let x: Vec<f64> = (0..d).map(|k| (0.618_f64.powi(k as i32 + 1) * i as f64).fract()).collect();
            stats.observe(&x, x.iter().sum::<f64>().sin(), 1.0 + 0.5 * (i % 3) as f64).unwrap();
        }
        stats
    }

    #[test]
    fn the_root_of_few_rows_is_exact() {
        // The last grid is so small that its matrix is dense.
        for (shape, n) in [(&[9, 10, 9][..], 50), (&[9, 8, 8, 7], 120), (&[6, 7, 6, 7], 120)] {
            let stats = stats(shape, n);
            let root = stats.prepared().root.expect("few rows on a large grid");
            // The repeated rows add nothing to the rank.
            assert!(root.rank <= n, "{} of {n}", root.rank);
            let m = stats.lattice().len();
            let (mut unit, mut column) = (vec![0.0; m], vec![0.0; m]);
            let (mut largest, mut worst) = (0.0_f64, 0.0_f64);
            for i in (0..m).step_by(37) {
                unit[i] = 1.0;
                stats.apply(&unit, &mut column);
                unit[i] = 0.0;
                largest = largest.max(column[i]);
                for j in 0..m {
                    let [x, y] = [i, j].map(|i| &root.rows[i * root.rank..(i + 1) * root.rank]);
                    worst = worst.max((dot(x, y) - column[j]).abs());
                }
            }
            // A rest of a few eps, which rounding of later pivots multiplies.
            assert!(worst < 1e-14 * largest, "{shape:?}: {worst} of {largest}");
        }
    }

    #[test]
    fn many_rows_have_none() {
        assert!(stats(&[9, 10, 9], 100).prepared().root.is_none());
        assert!(stats(&[40, 30], 50).prepared().root.is_none());
        assert!(stats(&[9, 10, 9], 0).prepared().root.is_some(), "two rows");
        // Weights that have faded: more rows than they count.
        let mut faded = stats(&[9, 10, 9], 300);
        faded.decay(0.1).unwrap();
        assert!(faded.prepared().root.is_none());
    }
}
