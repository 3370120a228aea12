//! The part of a block matrix that belongs to inducing points: no weight there is zero, so nothing is sparse.
//!
//! Of the M×M block between the points only the lower triangle is kept. Between all grid points and the points
//! stands one m×M matrix, row after row: a data point meets 4^d of its rows for each grid, and each of them whole.

use faer::linalg::matmul::matmul;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::{Accum, MatMut, MatRef, Par};

use super::product;
use crate::grid::Lattice;
use crate::interp::Placed;
use crate::simd::{add_outer_lower, add_scaled, dot, quadratic_lower, rounded};

/// Rows of a data point and of the points: the entries A_pp between inducing points and A_gp between grids and them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PointsBlock {
    /// M.
    size: usize,
    /// M rows of M numbers; those above the diagonal are zero.
    pub(crate) own: Vec<f64>,
    /// m rows of M numbers.
    pub(crate) cross: Vec<f64>,
}

impl PointsBlock {
    pub(super) fn zeros(lattice: &Lattice) -> Option<Self> {
        let size = lattice.points()?.len();
        Some(Self { size, own: vec![0.0; size * size], cross: vec![0.0; lattice.grid_len() * size] })
    }

    /// The entries between a grid point and all inducing points.
    fn row(&self, i: usize) -> &[f64] {
        &self.cross[i * self.size..(i + 1) * self.size]
    }

    /// Calls `f(point, i, w_i, w_g)` for every data point and every grid point that it meets.
    #[inline]
    fn for_each_meeting(
        &self,
        lattice: &Lattice,
        at: Placed<'_>,
        mut f: impl FnMut(usize, usize, f64, &[f64]),
    ) {
        let grids = lattice.grids();
        for (point, dense) in at.dense.chunks_exact(self.size).enumerate() {
            let weights = &at.weights[point * grids.len()..(point + 1) * grids.len()];
            for ((grid, &offset), w) in grids.iter().zip(lattice.offsets()).zip(weights) {
                w.for_each(grid, |i, w| f(point, offset + i, w, dense));
            }
        }
    }

    /// A += Σ c w wᵀ: M²/2 multiply-adds a point for the points, 4^d M for each grid. Several data points go by one
    /// matrix product.
    pub(super) fn add_outer(&mut self, lattice: &Lattice, at: Placed<'_>, c: &[f64]) {
        let m = self.size;
        let mut cross = std::mem::take(&mut self.cross);
        self.for_each_meeting(lattice, at, |point, i, w, dense| {
            add_scaled(&mut cross[i * m..(i + 1) * m], c[point] * w, dense);
        });
        self.cross = cross;
        if let [c] = c {
            return add_outer_lower(&mut self.own, *c, at.dense);
        }
        let right = MatRef::from_row_major_slice(at.dense, c.len(), m);
        let (whole, lower) = (BlockStructure::Rectangular, BlockStructure::TriangularLower);
        let mut add = |left: MatRef<'_, f64>, c: f64| {
            let own = MatMut::from_row_major_slice_mut(&mut self.own, m, m);
            triangular::matmul(own, lower, Accum::Add, left, whole, right, whole, c, Par::Seq);
        };
        if c.windows(2).all(|pair| pair[0] == pair[1]) {
            return c.first().map_or((), |&c| add(right.transpose(), c));
        }
        let mut scaled = at.dense.to_vec();
        let rows = scaled.chunks_exact_mut(m).zip(c);
        rows.for_each(|(row, c)| row.iter_mut().for_each(|w| *w *= c));
        add(MatRef::from_row_major_slice(&scaled, c.len(), m).transpose(), 1.0);
    }

    /// As [`PointsBlock::add_outer`], of products that are rounded first ([`crate::simd::rounded`]).
    pub(super) fn add_rounded(&mut self, lattice: &Lattice, at: Placed<'_>, c: &[f64]) {
        let m = self.size;
        let add = |sums: &mut [f64], c: f64, w: &[f64]| {
            sums.iter_mut().zip(w).for_each(|(sum, w)| *sum += rounded::<true>(c * w));
        };
        let mut cross = std::mem::take(&mut self.cross);
        self.for_each_meeting(lattice, at, |point, i, w, dense| {
            add(&mut cross[i * m..(i + 1) * m], c[point] * w, dense);
        });
        self.cross = cross;
        for (w, c) in at.dense.chunks_exact(m).zip(c) {
            for (i, row) in self.own.chunks_exact_mut(m).enumerate() {
                add(&mut row[..=i], c * w[i], w);
            }
        }
    }

    /// Adds what points contribute to wᵀ A w of each data point.
    pub(super) fn add_quadratics(&self, lattice: &Lattice, at: Placed<'_>, forms: &mut [f64]) {
        self.for_each_meeting(lattice, at, |point, i, w, dense| {
            forms[point] += 2.0 * w * dot(self.row(i), dense);
        });
        if let [form] = forms {
            *form += quadratic_lower(&self.own, at.dense);
            return;
        }
        // With A = N + Nᵀ − D, N the lower triangle and D the diagonal: wᵀAw = 2 wᵀN w − wᵀD w.
        let (m, n) = (self.size, forms.len());
        let mut half = vec![0.0; n * m];
        let left = MatRef::from_row_major_slice(at.dense, n, m);
        let (whole, lower) = (BlockStructure::Rectangular, BlockStructure::TriangularLower);
        let out = MatMut::from_row_major_slice_mut(&mut half, n, m);
        triangular::matmul(out, whole, Accum::Replace, left, whole, self.own(), lower, 1.0, Par::Seq);
        for ((form, w), half) in forms.iter_mut().zip(at.dense.chunks_exact(m)).zip(half.chunks_exact(m)) {
            *form += 2.0 * dot(w, half);
            *form -= w.iter().enumerate().map(|(i, w)| w * w * self.own[i * (m + 1)]).sum::<f64>();
        }
    }

    /// Adds A_gp w_p to the rows of A w at the grid points that each data point meets, in the order of the grids.
    pub(super) fn add_across(&self, lattice: &Lattice, at: Placed<'_>, out: &mut [f64]) {
        let mut rows = out.iter_mut();
        self.for_each_meeting(lattice, at, |_, i, _, dense| {
            if let Some(out) = rows.next() {
                *out += dot(self.row(i), dense);
            }
        });
    }

    /// The rows of A w that belong to the points, for one data point.
    pub(super) fn product_at(&self, lattice: &Lattice, at: Placed<'_>, out: &mut [f64]) {
        self.apply_own(at.dense, out);
        self.for_each_meeting(lattice, at, |_, i, w, _| add_scaled(out, w, self.row(i)));
    }

    /// y = A_pp x.
    fn apply_own(&self, x: &[f64], y: &mut [f64]) {
        for (i, row) in self.own.chunks_exact(self.size).enumerate() {
            y[i] = dot(&row[..=i], x);
            add_scaled(&mut y[..i], x[i], &row[..i]);
        }
    }

    /// The part of y = A x that points have to do with: y_g += A_gp x_p, y_p = A_pg x_g + A_pp x_p.
    pub(super) fn apply(&self, x: &[f64], y: &mut [f64]) {
        let split = x.len() - self.size;
        let ((x_g, x_p), (y_g, y_p)) = (x.split_at(split), y.split_at_mut(split));
        self.apply_own(x_p, y_p);
        for ((row, x), y) in self.cross.chunks_exact(self.size).zip(x_g).zip(y_g) {
            *y += dot(row, x_p);
            add_scaled(y_p, *x, row);
        }
    }

    /// Y_g += A_gp X_p for padded rows of `stride` numbers.
    pub(super) fn add_to_grids(&self, x: &[f64], stride: usize, y: &mut [f64]) {
        let rows = self.cross.len() / self.size;
        if rows > 0 {
            let cross = MatRef::from_row_major_slice(&self.cross, rows, self.size);
            product(&mut y[..rows * stride], Accum::Add, cross, &x[rows * stride..], stride);
        }
    }

    /// Y_p = A_pg X_g + A_pp X_p for padded rows of `stride` numbers.
    pub(super) fn multiply(&self, x: &[f64], stride: usize, y: &mut [f64]) {
        let (m, rows) = (self.size, self.cross.len() / self.size);
        let (x_g, x_p) = x.split_at(rows * stride);
        let y = &mut y[rows * stride..];
        let right = MatRef::from_row_major_slice(x_p, m, stride);
        let whole = BlockStructure::Rectangular;
        for (left, shape, add) in [
            (self.own(), BlockStructure::TriangularLower, Accum::Replace),
            (self.own().transpose(), BlockStructure::StrictTriangularUpper, Accum::Add),
        ] {
            let out = MatMut::from_row_major_slice_mut(&mut *y, m, stride);
            triangular::matmul(out, whole, add, left, shape, right, whole, 1.0, Par::Seq);
        }
        if rows > 0 {
            let cross = MatRef::from_row_major_slice(&self.cross, rows, m);
            product(y, Accum::Add, cross.transpose(), x_g, stride);
        }
    }

    /// A_pp, of which the lower triangle is meant.
    pub(crate) fn own(&self) -> MatRef<'_, f64> {
        MatRef::from_row_major_slice(&self.own, self.size, self.size)
    }

    /// ⟨A, B⟩ over the entries of points.
    pub(super) fn inner(&self, other: &Self) -> f64 {
        let diagonal: f64 =
            (0..self.size).map(|i| i * (self.size + 1)).map(|at| self.own[at] * other.own[at]).sum();
        2.0 * (dot(&self.own, &other.own) + dot(&self.cross, &other.cross)) - diagonal
    }

    pub(super) fn parts(&self) -> [&[f64]; 2] {
        [&self.own, &self.cross]
    }

    pub(super) fn parts_mut(&mut self) -> [&mut Vec<f64>; 2] {
        [&mut self.own, &mut self.cross]
    }

    /// Sets the rows of the grid points that were there before, given their new places.
    pub(super) fn embed(&mut self, old: &Self, places: &[usize]) {
        let m = self.size;
        self.own.copy_from_slice(&old.own);
        for (row, &place) in old.cross.chunks_exact(m).zip(places) {
            self.cross[place * m..(place + 1) * m].copy_from_slice(row);
        }
    }

    /// Takes the lower triangle of a whole M×M block.
    pub(super) fn fill_own(&mut self, whole: &[f64]) {
        for (i, (row, from)) in
            self.own.chunks_exact_mut(self.size).zip(whole.chunks_exact(self.size)).enumerate()
        {
            row[..=i].copy_from_slice(&from[..=i]);
        }
    }

    /// From the coordinates of weights w = L⁻¹κ to those of κ: A_pp ← L⁻ᵀ(A_pp − s I)L⁻¹, A_gp ← A_gp L⁻¹. A quadratic
    /// form in κ then contains the residual, up to s: s (1 − ‖w‖²) = s − s κᵀL⁻ᵀL⁻¹κ.
    pub(crate) fn in_correlations(&mut self, inverse: MatRef<'_, f64>, scale: f64) {
        let m = self.size;
        let mut whole = vec![0.0; m * m];
        for i in 0..m {
            for j in 0..=i {
                whole[i * m + j] = self.own[i * m + j];
                whole[j * m + i] = self.own[i * m + j];
            }
            whole[i * (m + 1)] -= scale;
        }
        let (rectangular, lower) = (BlockStructure::Rectangular, BlockStructure::TriangularLower);
        let mut half = vec![0.0; m * m];
        let center = MatRef::from_row_major_slice(&whole, m, m);
        let out = MatMut::from_row_major_slice_mut(&mut half, m, m);
        triangular::matmul(
            out,
            rectangular,
            Accum::Replace,
            center,
            rectangular,
            inverse,
            lower,
            1.0,
            Par::Seq,
        );
        let right = MatRef::from_row_major_slice(&half, m, m);
        let out = MatMut::from_row_major_slice_mut(&mut self.own, m, m);
        let (left, upper) = (inverse.transpose(), BlockStructure::TriangularUpper);
        triangular::matmul(out, lower, Accum::Replace, left, upper, right, rectangular, 1.0, Par::Seq);
        let rows = self.cross.len() / m;
        if rows > 0 {
            let before = self.cross.clone();
            let left = MatRef::from_row_major_slice(&before, rows, m);
            matmul(
                MatMut::from_row_major_slice_mut(&mut self.cross, rows, m),
                Accum::Replace,
                left,
                inverse,
                1.0,
                Par::Seq,
            );
        }
    }
}
