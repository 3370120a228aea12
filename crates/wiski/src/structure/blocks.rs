//! Symmetric matrices over a lattice: for each block its own matrix, for each pair of blocks a dense one.
//!
//! Diagonal blocks are stencils, or dense where a row of a whole stencil would be longer (7^d ≥ m). Off-diagonal blocks have no
//! sparsity: any point of one grid can meet any point of another. Inducing points meet everything (module `points`).

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use super::{DenseMatrix, StencilMatrix, Symmetric};
use crate::error::{Result, length};
use crate::grid::{Grid, Lattice};
use crate::interp::{POINTS_TOGETHER, Placed, Weights};
use crate::pool::Pool;
use crate::saved::floats;
use crate::simd::{LANES, dot};

mod cross;
mod points;

pub(crate) use points::PointsBlock;

use cross::{AddCrosses, MultiplyCrosses, SumCrosses};
use pulp::Arch;

/// The matrix of one block.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum GridMatrix {
    Stencil(StencilMatrix),
    Dense(DenseMatrix),
}

impl GridMatrix {
    /// Whether matrices over a grid are stored whole.
    pub(crate) fn is_whole(grid: &Grid) -> bool {
        7usize.pow(grid.dim() as u32) >= grid.len()
    }

    fn zeros(grid: &Grid) -> Self {
        if Self::is_whole(grid) {
            Self::Dense(DenseMatrix::zeros(grid.len()))
        } else {
            Self::Stencil(StencilMatrix::zeros(grid))
        }
    }

    #[inline]
    fn add_outer(&mut self, grid: &Grid, w: &Weights, c: f64) {
        match self {
            Self::Stencil(a) => a.add_outer(grid, w, c),
            Self::Dense(a) => a.add_outer(grid, w, c),
        }
    }

    #[inline]
    fn quadratic(&self, grid: &Grid, w: &Weights) -> f64 {
        match self {
            Self::Stencil(a) => a.quadratic(grid, w),
            Self::Dense(a) => a.bilinear(grid, w, w),
        }
    }

    fn bilinear(&self, grid: &Grid, v: &Weights, w: &Weights) -> f64 {
        match self {
            Self::Stencil(a) => a.bilinear(grid, v, w),
            Self::Dense(a) => a.bilinear(grid, v, w),
        }
    }

    /// The place of the entry (i, j) in the data, where `stencil` is its place in a stencil.
    #[inline]
    pub(crate) fn place(&self, i: usize, j: usize, stencil: usize) -> usize {
        match self {
            Self::Stencil(_) => stencil,
            Self::Dense(a) => i * a.size() + j,
        }
    }

    /// ⟨A, B⟩ for a matrix of the same grid.
    fn inner(&self, other: &Self) -> f64 {
        match (self, other) {
            (Self::Stencil(a), Self::Stencil(b)) => a.inner(b),
            _ => dot(self.data(), other.data()),
        }
    }

    /// Sets every kept entry to f(i, j).
    pub(crate) fn fill(&mut self, f: impl Fn(usize, usize) -> f64) {
        match self {
            Self::Stencil(a) => a.fill(f),
            Self::Dense(a) => a.fill(f),
        }
    }

    pub(crate) fn data(&self) -> &[f64] {
        match self {
            Self::Stencil(a) => a.data(),
            Self::Dense(a) => a.data(),
        }
    }

    pub(crate) fn data_mut(&mut self) -> &mut [f64] {
        match self {
            Self::Stencil(a) => a.data_mut(),
            Self::Dense(a) => a.data_mut(),
        }
    }

    fn apply(&self, x: &[f64], y: &mut [f64]) {
        match self {
            Self::Stencil(a) => a.apply(x, y, &mut []),
            Self::Dense(a) => a.apply(x, y, &mut []),
        }
    }
}

/// A dense off-diagonal block between the grids `first` < `second`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cross {
    pub(crate) first: usize,
    pub(crate) second: usize,
    pub(crate) data: Vec<f64>,
}

/// A symmetric matrix over all grid points of a lattice; between points of one grid only entries within
/// three cells are kept, where that is the smaller form.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockMatrix {
    offsets: Vec<usize>,
    size: usize,
    diagonal: Vec<GridMatrix>,
    cross: Vec<Cross>,
    points: Option<PointsBlock>,
}

impl serde::Serialize for BlockMatrix {
    /// The entries of the diagonal blocks in order, then those of the blocks between them, then those of points.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_seq(self.parts().map(floats::Written))
    }
}

impl BlockMatrix {
    /// The zero matrix over the points of `lattice`.
    pub fn zeros(lattice: &Lattice) -> Self {
        let grids = lattice.grids();
        let mut cross = Vec::new();
        for first in 0..grids.len() {
            for second in first + 1..grids.len() {
                cross.push(Cross {
                    first,
                    second,
                    data: vec![0.0; grids[first].len() * grids[second].len()],
                });
            }
        }
        let diagonal = grids.iter().map(GridMatrix::zeros).collect();
        let points = PointsBlock::zeros(lattice);
        Self { offsets: lattice.offsets().to_vec(), size: lattice.len(), diagonal, cross, points }
    }

    /// The matrix of a lattice of one grid.
    pub(crate) fn of_stencil(lattice: &Lattice, stencil: StencilMatrix) -> Self {
        let (diagonal, offsets) = (vec![GridMatrix::Stencil(stencil)], lattice.offsets().to_vec());
        Self { offsets, size: lattice.len(), diagonal, cross: Vec::new(), points: None }
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = &[f64]> {
        let points = self.points.iter().flat_map(PointsBlock::parts);
        let cross = self.cross.iter().map(|c| c.data.as_slice());
        self.diagonal.iter().map(GridMatrix::data).chain(cross).chain(points)
    }

    pub(crate) fn parts_mut(&mut self) -> impl Iterator<Item = &mut [f64]> {
        let points = self.points.iter_mut().flat_map(PointsBlock::parts_mut).map(Vec::as_mut_slice);
        let cross = self.cross.iter_mut().map(|c| c.data.as_mut_slice());
        self.diagonal.iter_mut().map(GridMatrix::data_mut).chain(cross).chain(points)
    }

    /// The matrix with the entries that [`Serialize`](serde::Serialize) wrote.
    pub(crate) fn from_parts(lattice: &Lattice, parts: &[floats::Read]) -> Result<Self> {
        let mut matrix = Self::zeros(lattice);
        length("blocks", matrix.parts().count(), parts.len())?;
        for (own, part) in matrix.parts().zip(parts) {
            length("block", own.len(), part.0.len())?;
        }
        matrix.parts_mut().zip(parts).for_each(|(own, part)| own.copy_from_slice(&part.0));
        Ok(matrix)
    }

    pub(crate) fn diagonal(&self) -> &[GridMatrix] {
        &self.diagonal
    }

    pub(crate) fn diagonal_mut(&mut self) -> &mut [GridMatrix] {
        &mut self.diagonal
    }

    pub(crate) fn cross(&self) -> &[Cross] {
        &self.cross
    }

    /// The part of the inducing points.
    pub(crate) fn points(&self) -> Option<&PointsBlock> {
        self.points.as_ref()
    }

    pub(crate) fn points_mut(&mut self) -> Option<&mut PointsBlock> {
        self.points.as_mut()
    }

    /// The bytes that the entries take.
    pub fn bytes(&self) -> usize {
        size_of::<f64>() * self.parts().map(<[f64]>::len).sum::<usize>()
    }

    /// A += Σ_i c_i w_i w_iᵀ over points placed by [`Lattice::locate_all`] (or one by [`Lattice::locate`]):
    /// (Σ_j 4^{d_j})² multiply-adds a point, about half of that by symmetry.
    #[inline]
    pub(crate) fn add_outer<'a>(&mut self, lattice: &Lattice, at: impl Into<Placed<'a>>, c: &[f64]) {
        let (grids, at) = (lattice.grids(), at.into());
        let weights = at.weights;
        if let Some(points) = &mut self.points {
            points.add_outer(lattice, at, c);
        }
        for (weights, &c) in weights.chunks_exact(grids.len().max(1)).zip(c) {
            for ((a, grid), w) in self.diagonal.iter_mut().zip(grids).zip(weights) {
                a.add_outer(grid, w, c);
            }
        }
        Arch::new().dispatch(AddCrosses::<false> { cross: &mut self.cross, grids, weights, c });
    }

    /// As [`BlockMatrix::add_outer`], of products that are rounded first ([`crate::simd::rounded`]): a sum of them does not
    /// depend on their order. Inducing points take one data point at a time.
    pub(crate) fn add_rounded<'a>(&mut self, lattice: &Lattice, at: impl Into<Placed<'a>>, c: &[f64]) {
        let (grids, at) = (lattice.grids(), at.into());
        if let Some(points) = &mut self.points {
            points.add_rounded(lattice, at, c);
        }
        for (weights, &c) in at.weights.chunks_exact(grids.len().max(1)).zip(c) {
            for ((a, grid), w) in self.diagonal.iter_mut().zip(grids).zip(weights) {
                match a {
                    GridMatrix::Stencil(a) => a.add_products::<true>(grid, w, c),
                    GridMatrix::Dense(a) => a.add_rounded(grid, w, c),
                }
            }
        }
        let weights = at.weights;
        Arch::new().dispatch(AddCrosses::<true> { cross: &mut self.cross, grids, weights, c });
    }

    /// wᵀ A w.
    #[inline]
    pub(crate) fn quadratic<'a>(&self, lattice: &Lattice, at: impl Into<Placed<'a>>) -> f64 {
        let mut form = [0.0];
        self.quadratics(lattice, at, &mut form);
        form[0]
    }

    /// wᵀ A w for each of at most [`POINTS_TOGETHER`] points that [`Lattice::locate_all`] placed.
    #[inline]
    pub(crate) fn quadratics<'a>(&self, lattice: &Lattice, at: impl Into<Placed<'a>>, forms: &mut [f64]) {
        let (grids, at) = (lattice.grids(), at.into());
        let weights = at.weights;
        let parts = &mut [[0.0; 4]; POINTS_TOGETHER][..forms.len()];
        Arch::new().dispatch(SumCrosses { cross: &self.cross, grids, weights, parts });
        forms.iter_mut().zip(&*parts).for_each(|(form, p)| *form = 2.0 * p.iter().sum::<f64>());
        for (weights, form) in weights.chunks_exact(grids.len().max(1)).zip(forms.iter_mut()) {
            let own = self.diagonal.iter().zip(grids).zip(weights);
            *form += own.map(|((a, grid), w)| a.quadratic(grid, w)).sum::<f64>();
        }
        if let Some(points) = &self.points {
            points.add_quadratics(lattice, at, forms);
        }
    }

    /// For every block j the part Σ_{i≠j} A_ji w_i of A w that comes from the other blocks, at the 4^{d_j} grid
    /// points where w_j lives, block after block: (Σ 4^d)² multiply-adds for all blocks together. One row for each
    /// of the points that [`Lattice::locate_all`] placed.
    pub(crate) fn product_across<'a>(
        &self,
        lattice: &Lattice,
        at: impl Into<Placed<'a>>,
        out: &mut Vec<f64>,
    ) {
        let (grids, at) = (lattice.grids(), at.into());
        let weights = at.weights;
        out.clear();
        out.resize(weights.len() / grids.len().max(1) * lattice.footprint(), 0.0);
        let begin = |at: &mut usize, grid: &Grid| Some(std::mem::replace(at, *at + (1 << (2 * grid.dim()))));
        let begins: Vec<usize> = grids.iter().scan(0, begin).collect();
        let width = lattice.footprint();
        let work = MultiplyCrosses { cross: &self.cross, grids, weights, out, begins: &begins, width };
        Arch::new().dispatch(work);
        if let Some(points) = &self.points {
            points.add_across(lattice, at, out);
        }
    }

    /// The rows of A w that belong to the inducing points, for one data point.
    pub(crate) fn product_at_points(&self, lattice: &Lattice, at: Placed<'_>, out: &mut [f64]) {
        if let Some(points) = &self.points {
            points.product_at(lattice, at, out);
        }
    }

    /// vᵀ A_jj w for weights of one point on block j (its weights and their derivatives).
    pub(crate) fn bilinear(&self, lattice: &Lattice, block: usize, v: &Weights, w: &Weights) -> f64 {
        self.diagonal[block].bilinear(&lattice.grids()[block], v, w)
    }

    /// For each block, the sums of its entries by their distance on each axis.
    pub(crate) fn lag_sums(&self, lattice: &Lattice) -> Vec<Vec<f64>> {
        let sums = |(block, grid): (&GridMatrix, &Grid)| match block {
            GridMatrix::Stencil(a) => a.lag_sums(),
            GridMatrix::Dense(a) => a.lag_sums(grid),
        };
        self.diagonal.iter().zip(lattice.grids()).map(sums).collect()
    }

    /// ⟨A, B⟩ = Σ_ij A_ij B_ij over the kept entries, for a matrix over the same lattice.
    pub(crate) fn inner(&self, other: &Self) -> f64 {
        let own: f64 = self.diagonal.iter().zip(&other.diagonal).map(|(a, b)| a.inner(b)).sum();
        let crosses = self.cross.iter().zip(&other.cross);
        let points = self.points.iter().zip(&other.points).map(|(a, b)| a.inner(b)).sum::<f64>();
        own + 2.0 * crosses.map(|(a, b)| dot(&a.data, &b.data)).sum::<f64>() + points
    }

    /// Y = A X for m padded rows of `stride` numbers.
    pub(crate) fn multiply(&self, x: &[f64], stride: usize, y: &mut [f64]) {
        self.multiply_to_grids(x, stride, y);
        if let Some(points) = &self.points {
            points.multiply(x, stride, y);
        }
    }

    /// The rows of Y = A X that belong to grid points, which stand before those of inducing points.
    pub(crate) fn multiply_to_grids(&self, x: &[f64], stride: usize, y: &mut [f64]) {
        let rows = |j: usize| self.offsets[j] * stride..(self.offsets[j] + self.block_len(j)) * stride;
        for (j, block) in self.diagonal.iter().enumerate() {
            match block {
                GridMatrix::Stencil(a) => a.multiply(&x[rows(j)], stride, &mut y[rows(j)]),
                GridMatrix::Dense(a) => {
                    let m = a.size();
                    let left = MatRef::from_row_major_slice(a.data(), m, m);
                    product(&mut y[rows(j)], Accum::Replace, left, &x[rows(j)], stride);
                }
            }
        }
        for Cross { first, second, data } in &self.cross {
            let left = MatRef::from_row_major_slice(data, self.block_len(*first), self.block_len(*second));
            product(&mut y[rows(*first)], Accum::Add, left, &x[rows(*second)], stride);
            product(&mut y[rows(*second)], Accum::Add, left.transpose(), &x[rows(*first)], stride);
        }
        if let Some(points) = &self.points {
            points.add_to_grids(x, stride, y);
        }
    }

    /// As [`BlockMatrix::multiply`], for a few columns again and again: nothing is sorted on the way.
    pub(crate) fn multiply_few(&self, x: &[f64], columns: usize, y: &mut [f64]) {
        match self.diagonal.as_slice() {
            [GridMatrix::Stencil(a)] if columns == 1 && self.points.is_none() => a.apply(x, y, &mut []),
            [GridMatrix::Stencil(a)] if columns.is_multiple_of(LANES) && self.points.is_none() => {
                a.multiply_few(x, columns, y);
            }
            _ => self.multiply(x, columns, y),
        }
    }

    /// A += c B for a matrix over the same lattice.
    pub(crate) fn add_scaled(&mut self, c: f64, other: &Self) {
        for (a, b) in self.parts_mut().zip(other.parts()) {
            a.iter_mut().zip(b).for_each(|(a, &b)| *a += c * b);
        }
    }

    /// A ← c A.
    pub(crate) fn scale(&mut self, c: f64) {
        self.parts_mut().for_each(|part| part.iter_mut().for_each(|a| *a *= c));
    }

    /// A ← 0, in the same memory.
    pub(crate) fn clear(&mut self) {
        self.parts_mut().for_each(|part| part.fill(0.0));
    }

    /// The same matrix over a grown lattice, given the new place of every old grid point.
    pub(crate) fn embedded(&self, lattice: &Lattice, places: &[usize]) -> Self {
        let mut new = Self::zeros(lattice);
        for (j, (old, target)) in self.diagonal.iter().zip(&mut new.diagonal).enumerate() {
            // Offsets between grid points do not change, so the place of an entry follows from its row.
            let place = |i: usize| places[self.offsets[j] + i] - lattice.offsets()[j];
            match (old, target) {
                (GridMatrix::Stencil(old), GridMatrix::Stencil(new)) => {
                    let width = old.width();
                    for (i, entries) in old.data().chunks_exact(width).enumerate() {
                        new.data_mut()[place(i) * width..][..width].copy_from_slice(entries);
                    }
                }
                (GridMatrix::Dense(old), GridMatrix::Dense(new)) => {
                    let m = new.size();
                    for i in 0..old.size() {
                        for (k, &entry) in old.row(i).iter().enumerate() {
                            new.data_mut()[place(i) * m + place(k)] = entry;
                        }
                    }
                }
                (old, GridMatrix::Stencil(new)) => {
                    let mut inverse = vec![None; new.size()];
                    let mut m = 0;
                    if let GridMatrix::Dense(old) = old {
                        m = old.size();
                        (0..m).for_each(|i| inverse[place(i)] = Some(i));
                    }
                    let mut found = Vec::new();
                    new.for_each_entry(|i, k, at| {
                        if let (Some(i), Some(k)) = (inverse[i], inverse[k]) {
                            found.push((at, old.data()[i * m + k]));
                        }
                    });
                    found.into_iter().for_each(|(at, entry)| new.data_mut()[at] = entry);
                }
                (GridMatrix::Stencil(_), GridMatrix::Dense(_)) => {
                    debug_assert!(false, "a grown grid is larger, so a stencil stays a stencil");
                }
            }
        }
        for (old, target) in self.cross.iter().zip(&mut new.cross) {
            let columns = lattice.grids()[old.second].len();
            let old_columns = self.block_len(old.second);
            for (i, row) in old.data.chunks_exact(old_columns).enumerate() {
                let at = places[self.offsets[old.first] + i] - lattice.offsets()[old.first];
                for (k, &entry) in row.iter().enumerate() {
                    let to = places[self.offsets[old.second] + k] - lattice.offsets()[old.second];
                    target.data[at * columns + to] = entry;
                }
            }
        }
        if let (Some(new), Some(old)) = (&mut new.points, &self.points) {
            new.embed(old, places);
        }
        new
    }

    fn block_len(&self, j: usize) -> usize {
        let end = self.points.as_ref().map_or(self.size, |points| self.size - points.own().nrows());
        self.offsets.get(j + 1).unwrap_or(&end) - self.offsets[j]
    }

    /// Sets every kept entry, given a function that writes the whole block between two grids i ≤ j, row after row.
    /// Inducing points count as the last grid.
    pub(crate) fn fill_with_blocks(
        &mut self,
        lattice: &Lattice,
        pool: &mut Pool,
        mut block: impl FnMut(usize, usize, &mut [f64], &mut Pool),
    ) {
        for (j, (diagonal, grid)) in self.diagonal.iter_mut().zip(lattice.grids()).enumerate() {
            let m = grid.len();
            let mut whole = pool.take(m * m);
            block(j, j, &mut whole, pool);
            diagonal.fill(|i, k| whole[i * m + k]);
            pool.give(whole);
        }
        for Cross { first, second, data } in &mut self.cross {
            block(*first, *second, data, pool);
        }
        let Some(points) = &mut self.points else { return };
        let (j, m) = (lattice.grids().len(), points.own().nrows());
        let mut whole = pool.take(m * m);
        block(j, j, &mut whole, pool);
        points.fill_own(&whole);
        pool.give(whole);
        for i in 0..j {
            let rows = lattice.block(i);
            block(i, j, &mut points.cross[rows.start * m..rows.end * m], pool);
        }
    }
}

/// out (+)= left · right, where `right` and `out` are stored row after row with `columns` numbers each.
fn product(out: &mut [f64], add: Accum, left: MatRef<'_, f64>, right: &[f64], columns: usize) {
    let right = MatRef::from_row_major_slice(right, left.ncols(), columns);
    let out = MatMut::from_row_major_slice_mut(out, left.nrows(), columns);
    matmul(out, add, left, right, 1.0, Par::Seq);
}

impl Symmetric for BlockMatrix {
    fn size(&self) -> usize {
        self.size
    }

    fn apply(&self, x: &[f64], y: &mut [f64], _: &mut [f64]) {
        for (j, block) in self.diagonal.iter().enumerate() {
            let range = self.offsets[j]..self.offsets[j] + self.block_len(j);
            block.apply(&x[range.clone()], &mut y[range]);
        }
        for Cross { first, second, data } in &self.cross {
            let columns = self.block_len(*second);
            let (a, b) = (self.offsets[*first], self.offsets[*second]);
            for (i, row) in data.chunks_exact(columns).enumerate() {
                y[a + i] += dot(row, &x[b..b + columns]);
                let xi = x[a + i];
                y[b..b + columns].iter_mut().zip(row).for_each(|(y, &entry)| *y += entry * xi);
            }
        }
        if let Some(points) = &self.points {
            points.apply(&x[..self.size], &mut y[..self.size]);
        }
    }
}

#[cfg(test)]
mod tests;
