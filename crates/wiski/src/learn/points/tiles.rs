//! Rows in tiles: from centers and length-scales to sums, and from derivatives in the sums back.
//!
//! With the weights h_i and patterns ω of `patterns`, features φ_i = [grid features; L⁻¹κ_Z(x_i)], scales left out:
//!
//! ```text
//! forward    G_k = Σ_{i∈k} h_i φ_i φ_iᵀ     b_c = Σ_i h_i ω_ic y_ic φ_i
//! backward   κ̄_i = B_kᵀφ_i + Σ_c ω_ic y_ic v_c     E = κ̄ ∘ ∂κ/∂r²
//!            ∂F/∂z = 2 (e z' − E X')/ℓ       ∂F/∂log ℓ = −2 [ ē x'² − 2 z'∘(E X') + e z'² ]
//! ```
//!
//! (x' = x/ℓ; e and ē are the sums of E over rows and over centers; κ̄, B and v are weighted by √h as φ is.)
//! Features and slopes stay in their tile between the two passes, so that no kernel is computed twice.
//! n (M²/2 + p²/2 + M D) multiply-adds forward, n (p M + M D) backward.

use faer::prelude::{Reborrow, ReborrowMut};
use faer::{Mat, MatRef};
use pulp::{Arch, Simd, WithSimd};
use std::ops::Range;

use super::algebra::{Real, gram_of_columns, mirror, multiply, rounded, solve_lower, solve_upper};
use super::data::Table;
use super::patterns::{Patterns, Weighted};
use super::radial::{Radial, squared_distances, squared_norms};
use crate::simd::LANES;
use crate::{interrupt, threads};

/// Rows of a tile: enough for fast products, few enough for a tile of kernel values to stay in the caches.
const TILE: usize = 256;

/// Sums over the rows are made of this many partial ones, each of which a thread can make.
const PARTS: usize = 4;

/// Some rows of one pattern, each weighted by √h.
struct Tile<T: Real> {
    pattern: usize,
    root_weight: Vec<f64>,
    /// x, and x/ℓ of the last forward pass.
    x: Mat<f64>,
    scaled: Mat<f64>,
    norms: Vec<f64>,
    /// √h φ, the grid features first.
    features: Mat<T>,
    /// −√h ∂κ/∂r².
    slope: Mat<T>,
    /// √h ω_c y_c.
    targets: Mat<T>,
}

/// All rows, and the sums that do not depend on any parameter.
pub(super) struct Tiles<T: Real> {
    family: Radial,
    all: Vec<Tile<T>>,
    grids: usize,
    points: usize,
    outputs: usize,
    patterns: usize,
    rows: usize,
    threads: usize,
}

/// Centers as columns in units of the length-scales, and the factor of κ(Z, Z).
pub(super) struct Centers<'a> {
    pub(super) z: MatRef<'a, f64>,
    pub(super) inverse_lengthscales: &'a [f64],
    pub(super) l: MatRef<'a, f64>,
}

/// What the rows say, scales left out.
#[derive(Debug, Clone)]
pub(super) struct Sums {
    /// G_k, both triangles.
    pub(super) grams: Vec<Mat<f64>>,
    /// b_c as columns.
    pub(super) linear: Mat<f64>,
}

/// E X' (M×D), the sums of E over rows (M), and Σ_i ē_i x'² (D).
#[derive(Debug, Clone)]
pub(super) struct Pull {
    pub(super) moments: Mat<f64>,
    pub(super) by_center: Vec<f64>,
    pub(super) squares: Vec<f64>,
}

impl<T: Real> Tiles<T> {
    pub(super) fn new(
        family: Radial,
        table: &Table,
        patterns: &Patterns,
        points: usize,
        threads: usize,
    ) -> Self {
        let (p, outputs) = (table.grids.nrows(), table.targets.len());
        let tiles = chunks(patterns).into_iter().map(|own| Tile::new(table, patterns, own, points)).collect();
        let (patterns, rows) = (patterns.rows.len(), patterns.rows.iter().map(Vec::len).sum());
        Self { family, all: tiles, grids: p, points, outputs, patterns, rows, threads }
    }

    /// The multiply-adds of both passes, twice.
    pub(super) fn flops(&self, backward: bool) -> f64 {
        let dim = self.all.first().map_or(0, |t| t.x.nrows()) as f64;
        let (n, m, p) = (self.rows as f64, self.points as f64, (self.grids + self.points) as f64);
        let forward = n * (0.5 * m * m + 0.5 * p * p + m * dim);
        2.0 * (forward + if backward { n * (p * m + m * dim) } else { 0.0 })
    }

    /// Fills the tiles' features and adds up what they say.
    pub(super) fn forward(&mut self, centers: &Centers) -> Sums {
        let (size, patterns) = ((self.grids, self.points, self.outputs), self.patterns);
        let pass = Forward::new(self.family, self.grids, centers);
        let parts = self.in_parts(|tiles| {
            let mut part = PartialSums::new(size, patterns);
            // Who asked for the sums looks at the interrupt, too.
            for tile in tiles.iter_mut().take_while(|_| !interrupt::is_set()) {
                part.add(tile, &pass);
            }
            part
        });
        total(parts, size, patterns)
    }

    /// From L, B_kᵀ (M×p each) and v_c (columns), both still without L⁻ᵀ, back to the kernel's arguments, after a forward
    /// pass. L⁻ᵀ multiplies them, or what becomes of the rows, whichever are fewer.
    pub(super) fn backward(
        &mut self,
        by_gram: Vec<Mat<f64>>,
        by_linear: Mat<f64>,
        l: MatRef<'_, f64>,
    ) -> Pull {
        let few_rows = self.rows < self.patterns * (self.grids + self.points);
        let solved = |mut b: Mat<f64>| -> Mat<T> {
            if !few_rows {
                solve_upper(l, b.as_mut());
            }
            rounded(b.as_ref())
        };
        let (by_gram, by_linear): (Vec<Mat<T>>, _) =
            (by_gram.into_iter().map(solved).collect(), solved(by_linear));
        let l: Option<Mat<T>> = few_rows.then(|| rounded(l));
        let m = self.points;
        let dim = self.all.first().map_or(0, |t| t.x.nrows());
        let empty = || Pull { moments: Mat::zeros(m, dim), by_center: vec![0.0; m], squares: vec![0.0; dim] };
        let parts = self.in_parts(|tiles| {
            let mut pull = empty();
            let (mut by_k, mut e) = (Mat::<T>::zeros(m, TILE), Mat::zeros(m, TILE));
            for tile in tiles.iter().take_while(|_| !interrupt::is_set()) {
                let b = by_gram[tile.pattern].as_ref();
                let l = l.as_ref().map(Mat::as_ref);
                tile.backward((b, by_linear.as_ref(), l), &mut by_k, &mut e, &mut pull);
            }
            pull
        });
        let mut total = empty();
        for part in parts {
            total.moments += part.moments;
            total.by_center.iter_mut().zip(part.by_center).for_each(|(t, v)| *t += v);
            total.squares.iter_mut().zip(part.squares).for_each(|(t, v)| *t += v);
        }
        total
    }

    /// Runs `work` on contiguous parts of the tiles; results in their order. There are as many parts whatever the number of
    /// threads, so that sums are the same.
    fn in_parts<R: Send>(&mut self, work: impl Fn(&mut [Tile<T>]) -> R + Sync) -> Vec<R> {
        let (count, mut rest) = (self.all.len(), self.all.as_mut_slice());
        let split = |range: Range<usize>| {
            let (mine, others) = std::mem::take(&mut rest).split_at_mut(range.len());
            rest = others;
            mine
        };
        let parts = parts(count, PARTS).into_iter().map(split).collect();
        threads::map(self.threads, parts, work)
    }
}

impl Sums {
    /// What rows say whose tiles are not kept, in double precision.
    pub(super) fn of(
        family: Radial,
        table: &Table,
        patterns: &Patterns,
        centers: &Centers,
        threads: usize,
    ) -> Self {
        let size = (table.grids.nrows(), centers.z.ncols(), table.targets.len());
        let pass = Forward::<f64>::new(family, size.0, centers);
        let chunks = chunks(patterns);
        let parts = threads::map(threads, parts(chunks.len(), PARTS), |range| {
            let mut part = PartialSums::new(size, patterns.rows.len());
            for &own in chunks[range].iter().take_while(|_| !interrupt::is_set()) {
                part.add(&mut Tile::new(table, patterns, own, size.1), &pass);
            }
            part
        });
        total(parts, size, patterns.rows.len())
    }
}

/// What a forward pass needs to know of the centers.
struct Forward<'a, T: Real> {
    family: Radial,
    grids: usize,
    centers: &'a Centers<'a>,
    z_norms: Vec<f64>,
    l: Mat<T>,
}

impl<'a, T: Real> Forward<'a, T> {
    fn new(family: Radial, grids: usize, centers: &'a Centers) -> Self {
        Self { family, grids, centers, z_norms: squared_norms(centers.z), l: rounded(centers.l) }
    }
}

/// What some of the tiles say, with memory for the next of them.
struct PartialSums<T: Real> {
    grams: Vec<Option<Mat<f64>>>,
    linear: Mat<f64>,
    gram: Mat<T>,
    r2: Mat<f64>,
}

impl<T: Real> PartialSums<T> {
    /// Of no tile; with so many grid features, centers and outputs.
    fn new((grids, points, outputs): (usize, usize, usize), patterns: usize) -> Self {
        let p = grids + points;
        Self {
            grams: vec![None; patterns],
            linear: Mat::zeros(p, outputs),
            gram: Mat::zeros(p, p),
            r2: Mat::zeros(points, TILE),
        }
    }

    /// Fills the features of a tile and adds what it says.
    fn add(&mut self, tile: &mut Tile<T>, pass: &Forward<T>) {
        let (p, outputs) = (self.linear.nrows(), self.linear.ncols());
        tile.forward(pass, &mut self.r2);
        gram_of_columns(self.gram.as_mut(), tile.features.as_ref());
        let gram = self.grams[tile.pattern].get_or_insert_with(|| Mat::zeros(p, p));
        add_lower(gram, &self.gram);
        let mut b = Mat::<T>::zeros(p, outputs);
        multiply(b.as_mut(), false, tile.features.as_ref(), tile.targets.transpose(), 1.0);
        for c in 0..outputs {
            let sums = self.linear.col_as_slice_mut(c).iter_mut();
            sums.zip(b.col_as_slice(c)).for_each(|(s, v)| *s += v.wide());
        }
    }
}

/// What all tiles say, from what parts of them say.
fn total<T: Real>(
    parts: Vec<PartialSums<T>>,
    (grids, points, outputs): (usize, usize, usize),
    patterns: usize,
) -> Sums {
    let p = grids + points;
    let mut linear = Mat::zeros(p, outputs);
    let mut totals: Vec<Option<Mat<f64>>> = vec![None; patterns];
    for part in parts {
        linear += part.linear;
        for (total, gram) in totals.iter_mut().zip(part.grams) {
            match (total.as_mut(), gram) {
                (Some(total), Some(gram)) => *total += gram,
                (None, gram) => *total = gram,
                (Some(_), None) => {}
            }
        }
    }
    let mut grams: Vec<Mat<f64>> =
        totals.into_iter().map(|g| g.unwrap_or_else(|| Mat::zeros(p, p))).collect();
    grams.iter_mut().for_each(mirror);
    Sums { grams, linear }
}

/// The rows of each tile, with their pattern.
fn chunks(patterns: &Patterns) -> Vec<(usize, &[Weighted])> {
    let of_pattern = |(k, rows)| <[Weighted]>::chunks(rows, TILE).map(move |rows| (k, rows));
    patterns.rows.iter().map(Vec::as_slice).enumerate().flat_map(of_pattern).collect()
}

impl<T: Real> Tile<T> {
    fn new(table: &Table, patterns: &Patterns, (pattern, rows): (usize, &[Weighted]), points: usize) -> Self {
        let (p, outputs, t) = (table.grids.nrows(), table.targets.len(), rows.len());
        let root: Vec<f64> = rows.iter().map(|r| r.weight.sqrt()).collect();
        let index = |j: usize| rows[j].row;
        let features = Mat::from_fn(p + points, t, |a, j| {
            T::of(if a < p { root[j] * table.grids[(a, index(j))] } else { 0.0 })
        });
        let targets = Mat::from_fn(outputs, t, |c, j| {
            T::of(root[j] * patterns.weights[pattern][c] * table.targets[c].y[index(j)])
        });
        Self {
            pattern,
            x: Mat::from_fn(table.dim(), t, |d, j| table.x[(d, index(j))]),
            scaled: Mat::zeros(table.dim(), t),
            norms: Vec::new(),
            features,
            slope: Mat::zeros(points, t),
            targets,
            root_weight: root,
        }
    }

    fn forward(&mut self, pass: &Forward<T>, r2: &mut Mat<f64>) {
        let (t, m) = (self.x.ncols(), pass.z_norms.len());
        for j in 0..t {
            let columns = self.scaled.col_as_slice_mut(j).iter_mut().zip(self.x.col_as_slice(j));
            columns.zip(pass.centers.inverse_lengthscales).for_each(|((s, x), inverse)| *s = x * inverse);
        }
        self.norms = squared_norms(self.scaled.as_ref());
        let mut r2 = r2.as_mut().subcols_mut(0, t);
        squared_distances((pass.centers.z, &pass.z_norms), (self.scaled.as_ref(), &self.norms), r2.rb_mut());
        let mut k = self.features.as_mut().subrows_mut(pass.grids, m);
        pass.family.values(r2.rb(), &self.root_weight, k.rb_mut(), self.slope.as_mut());
        solve_lower(pass.l.as_ref(), k);
    }

    fn backward(
        &self,
        (by_gram, by_linear, l): (MatRef<'_, T>, MatRef<'_, T>, Option<MatRef<'_, T>>),
        by_k: &mut Mat<T>,
        e: &mut Mat<f64>,
        pull: &mut Pull,
    ) {
        let t = self.x.ncols();
        let mut by_k = by_k.as_mut().subcols_mut(0, t);
        multiply(by_k.rb_mut(), false, by_gram, self.features.as_ref(), 1.0);
        multiply(by_k.rb_mut(), true, by_linear, self.targets.as_ref(), 1.0);
        l.into_iter().for_each(|l| solve_upper(l, by_k.rb_mut()));
        for j in 0..t {
            let Some(by_k) = by_k.rb().col(j).try_as_col_major().map(faer::ColRef::as_slice) else {
                continue;
            };
            let (slope, e) = (self.slope.col_as_slice(j), e.col_as_slice_mut(j));
            let over_centers =
                Arch::new().dispatch(Slopes { by_k, slope, e, by_center: &mut pull.by_center });
            for (sum, x) in pull.squares.iter_mut().zip(self.scaled.col_as_slice(j)) {
                *sum += over_centers * x * x;
            }
        }
        multiply(pull.moments.as_mut(), true, e.as_ref().subcols(0, t), self.scaled.transpose(), 1.0);
    }
}

/// E = κ̄ ∘ ∂κ/∂r² of one row, added up over rows; its sum over the centers.
struct Slopes<'a, T> {
    by_k: &'a [T],
    slope: &'a [T],
    e: &'a mut [f64],
    by_center: &'a mut [f64],
}

impl<T: Real> WithSimd for Slopes<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        let mut sums = [0.0; LANES];
        let (by_k, rest_by_k) = self.by_k.as_chunks::<LANES>();
        let (slope, rest_slope) = self.slope.as_chunks::<LANES>();
        let (e, rest_e) = self.e.as_chunks_mut::<LANES>();
        let (by_center, rest_by_center) = self.by_center.as_chunks_mut::<LANES>();
        for (((by_k, slope), e), by_center) in by_k.iter().zip(slope).zip(e).zip(by_center) {
            for i in 0..LANES {
                let value = -by_k[i].wide() * slope[i].wide();
                e[i] = value;
                by_center[i] += value;
                sums[i] += value;
            }
        }
        let rest = rest_by_k.iter().zip(rest_slope).zip(rest_e).zip(rest_by_center);
        for (i, (((by_k, slope), e), by_center)) in rest.enumerate() {
            let value = -by_k.wide() * slope.wide();
            *e = value;
            *by_center += value;
            sums[i] += value;
        }
        sums.iter().sum()
    }
}

fn add_lower<T: Real>(total: &mut Mat<f64>, part: &Mat<T>) {
    for j in 0..total.ncols() {
        let from = &part.col_as_slice(j)[j..];
        total.col_as_slice_mut(j)[j..].iter_mut().zip(from).for_each(|(t, v)| *t += v.wide());
    }
}

/// Contiguous parts of nearly equal length, none empty.
fn parts(count: usize, parts: usize) -> Vec<Range<usize>> {
    let parts = parts.min(count).max(1);
    (0..parts).map(|i| i * count / parts..(i + 1) * count / parts).collect()
}
