//! Which directions of the prior are kept, given how much the data can say about them.
//!
//! With K = K₁ + K₂ and K₂ dropped, the evidence loses at most ½ tr(K₂A)/σ² of its log determinant, and
//!
//! ```text
//! tr(K₂A)/σ² ≤ n v₂/σ²,   v₂ = max_x w(x)ᵀK₂w(x) ≈ tr K₂/m
//! ```
//!
//! where n counts rows by their precision, Σ 1/d_i. So the data can tell the rest of the prior from nothing if n v₂ is
//! not far below σ². A share of the largest eigenvalue alone does not know that: with little noise and many rows it
//! drops what is learned from, and with few rows it keeps thousands of directions that nobody has looked at.
//!
//! The cut-off that a model asks for is therefore lowered until n v₂ ≤ 10⁻⁶ σ² (as far as rounding lets it). And only
//! where speed is wanted, since a row costs p² and a refit p³, it is raised, but no further than
//! n v₂ ≤ 10⁻² σ² and v₂ ≤ 10⁻⁴ of the prior variance. Variances then miss at most 10⁻² σ²/n near the data, a small
//! part of what n rows leave, and a ten thousandth where nothing was seen; the log evidence misses 0.005.

use super::{Component, Prior};

/// Cut-offs above this are a wish for speed, and stay as they are.
const EXACT: f64 = 1e-12;

/// n v₂/σ² of a cut-off that makes no difference.
const NOTHING: f64 = 1e-6;

/// The largest n v₂/σ² for the sake of speed.
const LITTLE: f64 = 1e-2;

/// The largest share of the prior variance that is given up for the sake of speed.
const UNSEEN: f64 = 1e-4;

/// No cut-off below it tells eigenvalues from rounding.
const ROUNDING: f64 = 1e-16;

impl Prior {
    /// The share of the largest eigenvalue below which directions are dropped.
    pub(crate) fn tolerance(&self) -> f64 {
        self.tolerance
    }

    /// This prior with the cut-off that fits data of the given precision Σ 1/(σ²d_i), raised for the sake of speed while the
    /// rank is above `enough`.
    pub(crate) fn adapted(self, precision: impl FnOnce() -> f64, enough: Option<usize>) -> Self {
        if self.tolerance > EXACT {
            return self;
        }
        let (mut prior, precision) = (self, precision());
        let variance: f64 = prior.components.iter().map(|c| c.scale).sum();
        while precision * prior.dropped_variance() > NOTHING && prior.tolerance > ROUNDING {
            prior = prior.recut(0.1 * prior.tolerance);
        }
        while enough.is_some_and(|enough| prior.rank > enough) {
            let fewer = prior.recut(8.0 * prior.tolerance);
            let dropped = fewer.dropped_variance();
            if precision * dropped > LITTLE || dropped > UNSEEN * variance {
                break;
            }
            prior = fewer;
        }
        prior
    }

    /// The same prior with another cut-off.
    fn recut(&self, tolerance: f64) -> Self {
        let mut rank = 0;
        let recut = |c: &Component| {
            let (first, root) = (rank, c.root.recut(c.scale, tolerance));
            rank += root.rank();
            Component { block: c.block, term: c.term, first, scale: c.scale, root }
        };
        let components = self.components.iter().map(recut).collect();
        let mut points = self.points.clone();
        if let Some(points) = &mut points {
            points.first = rank;
            rank += points.len;
        }
        Self { lattice: self.lattice.clone(), components, points, rank, tolerance }
    }
}

#[cfg(test)]
mod tests {
    use crate::grid::{Grid, Lattice};
    use crate::kernel::Kernel;
    use crate::prior::{Component, Prior};

    fn prior(shape: &[usize], lengthscale: f64, tolerance: f64) -> Prior {
        let d = shape.len();
        let lattice = Lattice::from(Grid::covering(&vec![(-1.0, 1.0); d], shape).unwrap());
        Prior::new(&lattice, &[Kernel::rbf(&vec![lengthscale; d]).unwrap().scaled(1.7)], tolerance).unwrap()
    }

    #[test]
    fn what_is_dropped_is_what_is_missing_from_the_trace() {
        for shape in [&[20][..], &[12, 9], &[7, 6, 8], &[6, 6, 6, 6]] {
            for tolerance in [1e-2, 1e-4, 1e-7] {
                let prior = prior(shape, 0.6, tolerance);
                let kept: f64 =
                    prior.components().iter().flat_map(Component::deviations).map(|k| k.1 * k.1).sum();
                let m = shape.iter().product::<usize>() as f64;
                let missing = 1.7 - kept / m;
                assert!((prior.dropped_variance() - missing).abs() < 1e-13, "{shape:?} {tolerance}");
            }
        }
    }

    #[test]
    fn a_cut_off_follows_the_data_within_its_bounds() {
        // Few rows: nothing is changed.
        assert_eq!(prior(&[16, 16], 1.0, 1e-12).adapted(|| 10.0, Some(1000)).tolerance(), 1e-12);
        // Many, and little noise: more directions, until they make no difference.
        let (plain, exact) =
            (prior(&[16, 16], 1.0, 1e-12), prior(&[16, 16], 1.0, 1e-12).adapted(|| 1e7, Some(1000)));
        assert!(exact.rank() > plain.rank() && 1e7 * exact.dropped_variance() <= 1e-6);
        assert!(1e7 * plain.dropped_variance() > 1e-6);
        // A rank whose cube would be felt: fewer, if the data have not looked there.
        let (plain, fewer) =
            (prior(&[7; 4], 1.0, 1e-12), prior(&[7; 4], 1.0, 1e-12).adapted(|| 1e3, Some(1000)));
        assert!(
            fewer.rank() < plain.rank() / 2 && 1e3 * fewer.dropped_variance() <= 1e-2,
            "{}",
            fewer.rank()
        );
        assert_eq!(fewer.components()[0].range(), 0..fewer.rank());
        let all = prior(&[7; 4], 1.0, 1e-12).adapted(|| 1e3, None);
        assert_eq!(all.rank(), plain.rank(), "unless speed is not wanted");
        // But not at the price of the prior variance where nothing was seen.
        let short = prior(&[7; 4], 0.5, 1e-12).adapted(|| 0.0, Some(1000));
        assert!(short.rank() > 1000 && short.dropped_variance() <= 1e-4 * 1.7, "{}", short.rank());
        // What was asked for stays.
        assert_eq!(prior(&[16, 16], 1.0, 1e-6).adapted(|| 1e9, Some(1000)).tolerance(), 1e-6);
    }

    #[test]
    fn a_rescaled_root_is_that_of_the_other_scale_to_the_last_bit() {
        let lattice = Lattice::from(Grid::covering(&[(-1.0, 1.0); 2], &[11, 8]).unwrap());
        let kernel = Kernel::rbf(&[0.5, 0.7]).unwrap() + Kernel::matern32(&[0.9, 0.4]).unwrap().scaled(0.3);
        let other = kernel.clone().scaled(0.37);
        let scaled = Prior::new(&lattice, &[kernel], 1e-9).unwrap().rescaled(std::slice::from_ref(&other));
        let fresh = Prior::new(&lattice, &[other], 1e-9).unwrap();
        for (a, b) in scaled.components().iter().zip(fresh.components()) {
            assert_eq!(a.scale, b.scale);
            assert!(a.root.axes.iter().zip(&b.root.axes).all(|(a, b)| a.rows == b.rows));
        }
    }
}
