//! The paper's representation of A = WᵀD⁻¹W: a root of limited rank, A ≈ L Lᵀ.
//!
//! The paper updates L together with a pseudo-inverse J: A + w wᵀ restricted to the range of L is
//! L (I + p pᵀ) Lᵀ with p = Jᵀw. That recursion loses digits: J grows like the inverse of the smallest
//! singular value of L, nothing ever corrects it, and after a thousand rows J may no longer be the inverse of
//! anything. Here the same matrix is kept as
//!
//! ```text
//! L = Q T      Q m×r with orthonormal columns, T r×r lower triangular
//! ```
//!
//! so that w enters through c = Qᵀw, which needs no inverse: T Tᵀ + c cᵀ is a rank-one update by r plane
//! rotations, O(m r + r²) in all. Only the part of w inside the range of Q is kept. While the rank is below r,
//! a point that reaches outside first gives Q one more column, orthogonalized twice. So the root is exact
//! until its rank is used up; what is cut off after that is added up in [`LowRankRoot::lost`].
//!
//! The stencil is cheaper and always exact. This form is here for the paper's rank ablation and as a
//! cross-check.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, length};

/// Relative size of the part outside the range of Q from which on it counts as a new direction. Orthogonalized
/// twice, a vector inside the range leaves a few eps of itself.
const NEW_DIRECTION: f64 = 1e-12;
/// A direction in which less than this share would be left cannot be told from none: √eps.
const NOTHING_LEFT: f64 = 1.5e-8;

/// A ≈ L Lᵀ with at most r columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "SavedRoot")]
pub struct LowRankRoot {
    points: usize,
    limit: usize,
    /// Column k of Q at `[k * points..]`.
    #[serde(with = "crate::saved::floats")]
    basis: Vec<f64>,
    /// Column k of T at `[k * rank..]`, with zeros above the diagonal.
    #[serde(with = "crate::saved::floats")]
    factor: Vec<f64>,
    lost: f64,
    total: f64,
}

/// A root as it stands in a file. Early ones hold `l`, the columns of L, instead of the two factors.
#[derive(Deserialize)]
struct SavedRoot {
    points: usize,
    limit: usize,
    #[serde(default, with = "crate::saved::floats")]
    basis: Vec<f64>,
    #[serde(default, with = "crate::saved::floats")]
    factor: Vec<f64>,
    #[serde(default, with = "crate::saved::floats")]
    l: Vec<f64>,
    lost: f64,
    total: f64,
}

impl TryFrom<SavedRoot> for LowRankRoot {
    type Error = Error;

    fn try_from(saved: SavedRoot) -> Result<Self> {
        let SavedRoot { points, limit, basis, factor, l, lost, total } = saved;
        let columns = if l.is_empty() { &basis } else { &l };
        let whole = points > 0 && columns.len().is_multiple_of(points);
        if !whole || limit == 0 || columns.len() / points > limit {
            let reason = "the root of the statistics has the wrong size".into();
            return Err(Error::Config { field: "root".into(), reason });
        }
        let mut root = Self { points, limit, basis, factor, lost, total };
        if l.is_empty() {
            length("factor of the root", root.rank() * root.rank(), root.factor.len())?;
        } else {
            root = Self::new(points, limit);
            root.add(&l);
            (root.lost, root.total) = (lost, total);
        }
        Ok(root)
    }
}

impl LowRankRoot {
    /// The root of the zero matrix over `points` grid points, of rank at most `limit`.
    pub fn new(points: usize, limit: usize) -> Self {
        Self { points, limit, basis: Vec::new(), factor: Vec::new(), lost: 0.0, total: 0.0 }
    }

    /// The number of grid points.
    pub(super) fn points(&self) -> usize {
        self.points
    }

    /// The rank reached so far.
    pub fn rank(&self) -> usize {
        self.basis.len() / self.points
    }

    /// The largest rank allowed.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The share of Σ ‖w‖²/d, the trace of A, that lies outside the range of L and was cut off.
    pub fn lost(&self) -> f64 {
        if self.total > 0.0 { self.lost / self.total } else { 0.0 }
    }

    /// Q.
    fn basis(&self) -> MatRef<'_, f64> {
        MatRef::from_column_major_slice(&self.basis, self.points, self.rank())
    }

    /// T.
    fn factor(&self) -> MatRef<'_, f64> {
        MatRef::from_column_major_slice(&self.factor, self.rank(), self.rank())
    }

    /// L as m rows.
    pub(crate) fn rows(&self) -> Vec<f64> {
        let mut rows = vec![0.0; self.basis.len()];
        let l = MatMut::from_row_major_slice_mut(&mut rows, self.points, self.rank());
        matmul(l, Accum::Replace, self.basis(), self.factor(), 1.0, Par::Seq);
        rows
    }

    /// Y = L Lᵀ X for m rows of `columns` numbers.
    pub(crate) fn multiply(&self, x: &[f64], columns: usize, y: &mut [f64]) {
        let x = MatRef::from_row_major_slice(&x[..self.points * columns], self.points, columns);
        let y = MatMut::from_row_major_slice_mut(&mut y[..self.points * columns], self.points, columns);
        let inner = self.factor() * (self.factor().transpose() * (self.basis().transpose() * x));
        matmul(y, Accum::Replace, self.basis(), inner.as_ref(), 1.0, Par::Seq);
    }

    /// A += w wᵀ for each of the given columns of m numbers (already divided by √d).
    pub(crate) fn add(&mut self, columns: &[f64]) {
        for w in columns.chunks_exact(self.points) {
            let norm2 = squares(w);
            self.total += norm2;
            let (mut c, outside) = self.split(w);
            let rho2 = squares(&outside);
            if rho2 > NEW_DIRECTION.powi(2) * norm2 {
                if self.rank() < self.limit.min(self.points) {
                    c.push(self.open_direction(&outside));
                } else {
                    self.lost += rho2;
                }
            }
            self.update(c);
        }
    }

    /// A −= w wᵀ for a column that was added before. Rejected where that would not leave A positive.
    pub(crate) fn remove(&mut self, w: &[f64]) -> Result<()> {
        let (c, outside) = self.split(w);
        let left = self.downdate(c);
        if left < NOTHING_LEFT {
            let reason = "the point is the only one in its direction, and a low-rank root cannot shrink";
            return Err(Error::Unsupported { operation: "forget", reason });
        }
        self.total -= squares(w);
        self.lost = (self.lost - squares(&outside)).max(0.0);
        Ok(())
    }

    /// c = Qᵀw and the rest w − Q c, orthogonalized twice.
    fn split(&self, w: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (mut c, mut rest) = (vec![0.0; self.rank()], w.to_vec());
        for _ in 0..2 {
            let step = self.basis().transpose() * MatRef::from_column_major_slice(&rest, self.points, 1);
            let inside = self.basis() * &step;
            c.iter_mut().zip(step.col(0).iter()).for_each(|(c, s)| *c += s);
            rest.iter_mut().zip(inside.col(0).iter()).for_each(|(r, i)| *r -= i);
        }
        (c, rest)
    }

    /// Gives Q a column for what lies outside its range, and T an empty row and column; returns the length of
    /// the given vector along it.
    fn open_direction(&mut self, outside: &[f64]) -> f64 {
        let length = squares(outside).sqrt();
        let unit: Vec<f64> = outside.iter().map(|o| o / length).collect();
        // A short rest is mostly rounding, and no longer orthogonal once it is stretched to length 1.
        let (_, mut unit) = self.split(&unit);
        let stretch = squares(&unit).sqrt();
        unit.iter_mut().for_each(|u| *u /= stretch);
        let along = outside.iter().zip(&unit).map(|(o, u)| o * u).sum();
        let r = self.rank();
        let mut factor = vec![0.0; (r + 1) * (r + 1)];
        for (old, new) in self.factor.chunks_exact(r.max(1)).zip(factor.chunks_exact_mut(r + 1)) {
            new[..r].copy_from_slice(old);
        }
        self.factor = factor;
        self.basis.extend(unit);
        along
    }

    /// T Tᵀ ← T Tᵀ + c cᵀ: rotations of c into one column of T after the other.
    fn update(&mut self, mut c: Vec<f64>) {
        let r = c.len();
        for k in 0..r {
            let column = &mut self.factor[k * r + k..(k + 1) * r];
            let diagonal = column[0].hypot(c[k]);
            if diagonal > 0.0 {
                let (cos, sin) = (column[0] / diagonal, c[k] / diagonal);
                for (t, c) in column.iter_mut().zip(&mut c[k..]) {
                    (*t, *c) = (cos * *t + sin * *c, cos * *c - sin * *t);
                }
            }
        }
    }

    /// T Tᵀ ← T Tᵀ − c cᵀ, unless less than [`NOTHING_LEFT`] would remain in the direction of c; returns the share
    /// that does, 1 − cᵀ(T Tᵀ)⁻¹c.
    fn downdate(&mut self, c: Vec<f64>) -> f64 {
        let r = c.len();
        let mut x = c;
        for k in 0..r {
            let column = &self.factor[k * r + k..(k + 1) * r];
            x[k] /= column[0];
            let xk = x[k];
            x[k + 1..].iter_mut().zip(&column[1..]).for_each(|(x, t)| *x -= xk * t);
        }
        let left = 1.0 - squares(&x);
        if left.is_nan() || left < NOTHING_LEFT {
            return 0.0;
        }
        // The rotations that turn (√left, x) into (1, 0) turn (0, T) into (c, T'): the reverse of an update.
        let (mut corner, mut taken) = (left.sqrt(), vec![0.0; r]);
        for k in (0..r).rev() {
            let length = corner.hypot(x[k]);
            let (cos, sin) = (corner / length, x[k] / length);
            corner = length;
            for (t, o) in self.factor[k * r + k..(k + 1) * r].iter_mut().zip(&mut taken[k..]) {
                (*t, *o) = (cos * *t - sin * *o, cos * *o + sin * *t);
            }
        }
        left
    }

    /// A ← λ A.
    pub(crate) fn scale(&mut self, factor: f64) {
        let root = factor.sqrt();
        self.factor.iter_mut().for_each(|v| *v *= root);
        self.lost *= factor;
        self.total *= factor;
    }

    /// A += the other root's matrix.
    pub(crate) fn merge(&mut self, other: &Self) {
        let l = other.basis() * other.factor();
        l.col_iter().for_each(|column| self.add(&column.iter().copied().collect::<Vec<f64>>()));
        self.lost += other.lost;
        self.total += other.lost;
    }

    /// The same matrix over a grown lattice, given the new place of every old grid point.
    pub(crate) fn embedded(&self, points: usize, places: &[usize]) -> Self {
        let mut basis = vec![0.0; points * self.rank()];
        for (from, to) in self.basis.chunks_exact(self.points).zip(basis.chunks_exact_mut(points)) {
            from.iter().zip(places).for_each(|(&v, &place)| to[place] = v);
        }
        Self { points, basis, factor: self.factor.clone(), ..*self }
    }
}

fn squares(v: &[f64]) -> f64 {
    v.iter().map(|v| v * v).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::{Grid, Lattice};
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Interpolation weights of points that crowd in the middle of a 16×16 grid and thin out to its border, so that
    /// some grid points meet only tiny weights.
    fn columns(n: usize, seed: u64) -> Vec<f64> {
        let lattice = Lattice::from(Grid::covering(&[(-1.0, 1.0); 2], &[16, 16]).unwrap());
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut columns, mut weights) = (vec![0.0; n * lattice.len()], Vec::new());
        for column in columns.chunks_exact_mut(lattice.len()) {
            let [a, b] = [0; 2].map(|_| 2.0 * rng.random::<f64>() - 1.0);
            lattice.locate(&[a.powi(3), 0.9 * a.powi(3) + 0.1 * b.powi(5)], 0, &mut weights).unwrap();
            lattice.scatter(&weights, 1.0, column);
        }
        columns
    }

    /// What the root should be, slowly: P A P with P the projector on the first r independent columns.
    fn projected_gram(columns: &[f64], m: usize, limit: usize) -> (Vec<f64>, f64) {
        let mut basis: Vec<Vec<f64>> = Vec::new();
        let without = |basis: &[Vec<f64>], w: &[f64]| {
            let mut rest = w.to_vec();
            for q in basis.iter().chain(basis) {
                let c: f64 = q.iter().zip(&rest).map(|(q, r)| q * r).sum();
                rest.iter_mut().zip(q).for_each(|(r, q)| *r -= c * q);
            }
            rest
        };
        let (mut gram, mut lost) = (vec![0.0; m * m], 0.0);
        for w in columns.chunks_exact(m) {
            let mut rest = without(&basis, w);
            if basis.len() < limit && squares(&rest) > NEW_DIRECTION.powi(2) * squares(w) {
                let size = squares(&rest).sqrt();
                let unit: Vec<f64> = rest.iter().map(|r| r / size).collect();
                let unit = without(&basis, &unit);
                let size = squares(&unit).sqrt();
                basis.push(unit.iter().map(|u| u / size).collect());
                rest.fill(0.0);
            }
            lost += squares(&rest);
            let kept: Vec<f64> = w.iter().zip(&rest).map(|(w, r)| w - r).collect();
            for (row, &a) in gram.chunks_exact_mut(m).zip(&kept) {
                row.iter_mut().zip(&kept).for_each(|(g, b)| *g += a * b);
            }
        }
        (gram, lost)
    }

    fn gram(root: &LowRankRoot) -> Vec<f64> {
        let m = root.points();
        let identity: Vec<f64> = (0..m * m).map(|i| f64::from(u8::from(i / m == i % m))).collect();
        let mut gram = vec![0.0; m * m];
        root.multiply(&identity, m, &mut gram);
        gram
    }

    fn assert_close(got: &[f64], wanted: &[f64], tolerance: f64) {
        let size = wanted.iter().fold(0.0, |s: f64, v| s.max(v.abs()));
        let worst = got.iter().zip(wanted).map(|(g, w)| (g - w).abs()).fold(0.0, f64::max);
        assert!(worst <= tolerance * size, "off by {worst:e}, entries up to {size:e}");
    }

    #[test]
    fn thousands_of_rows_lose_no_digits_at_any_rank() {
        let (m, n) = (256, 4000);
        let columns = columns(n, 5);
        for limit in [12, 64, 256] {
            let mut root = LowRankRoot::new(m, limit);
            root.add(&columns);
            let (wanted, lost) = projected_gram(&columns, m, limit);
            assert_close(&gram(&root), &wanted, 1e-12);
            let total: f64 = squares(&columns);
            assert!((root.lost() - lost / total).abs() < 1e-12, "lost {} of {}", root.lost(), lost / total);
            let q = root.basis().transpose() * root.basis();
            let off = |i: usize, j: usize| (q[(i, j)] - f64::from(u8::from(i == j))).abs();
            let worst = (0..root.rank() * root.rank()).map(|k| off(k / root.rank(), k % root.rank()));
            assert!(worst.fold(0.0, f64::max) < 1e-13, "the basis stays orthonormal");
        }
    }

    #[test]
    fn what_is_added_can_be_removed_merged_and_scaled() {
        let (m, n) = (256, 900);
        let columns = columns(n, 6);
        let (first, second) = columns.split_at(n / 2 * m);
        let (mut root, mut shard) = (LowRankRoot::new(m, m), LowRankRoot::new(m, m));
        root.add(first);
        shard.add(second);
        root.merge(&shard);
        let (all, _) = projected_gram(&columns, m, m);
        assert_close(&gram(&root), &all, 1e-12);
        let mut taken = vec![false; n];
        for i in (0..n).step_by(7) {
            // A point alone in its direction is rejected, and nothing changes.
            let before = root.clone();
            match root.remove(&columns[i * m..(i + 1) * m]) {
                Ok(()) => taken[i] = true,
                Err(_) => assert_eq!(root, before),
            }
        }
        assert!(taken.iter().filter(|t| **t).count() > 50);
        let left: Vec<f64> =
            columns.chunks_exact(m).zip(&taken).filter(|(_, t)| !**t).flat_map(|(w, _)| w.to_vec()).collect();
        root.scale(0.25);
        let wanted: Vec<f64> = projected_gram(&left, m, m).0.iter().map(|a| 0.25 * a).collect();
        assert_close(&gram(&root), &wanted, 1e-12);
        assert!((root.total - 0.25 * squares(&left)).abs() < 1e-9 * root.total);
    }

    #[test]
    fn roots_of_early_files_are_read_and_damaged_ones_are_not() {
        let (m, columns) = (256, columns(40, 7));
        let mut root = LowRankRoot::new(m, 64);
        root.add(&columns);
        let early = |l: Vec<f64>| SavedRoot {
            points: m,
            limit: 64,
            basis: Vec::new(),
            factor: Vec::new(),
            l,
            lost: root.lost,
            total: root.total,
        };
        let mut by_column = vec![0.0; m * root.rank()];
        for (i, value) in root.rows().into_iter().enumerate() {
            by_column[i % root.rank() * m + i / root.rank()] = value;
        }
        let read = LowRankRoot::try_from(early(by_column)).unwrap();
        assert_close(&gram(&read), &gram(&root), 1e-14);
        assert_eq!((read.lost(), read.limit()), (root.lost(), 64));
        assert!(LowRankRoot::try_from(early(vec![0.0; 5])).is_err());
        let torn = SavedRoot { basis: root.basis.clone(), ..early(Vec::new()) };
        assert!(LowRankRoot::try_from(torn).is_err());
    }
}
