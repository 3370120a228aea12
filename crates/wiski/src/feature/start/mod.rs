//! Where a projection starts: P (k×D) from warm-up rows.
//!
//! Learning moves P by small steps, so its start decides most of the result: a random start makes the outcome
//! a matter of luck, one taken from the warm-up rows puts it near a good optimum at once. Candidates, to be
//! compared by held-out predictive density:
//!
//! | start | rows of P | cost |
//! | --- | --- | --- |
//! | [`random`] | independent entries, uniform on ±1/√D (the paper's) | O(kD) |
//! | [`axes`] | the D coordinate axes (additive models) | O(D²) |
//! | [`principal`] | leading eigenvectors of the covariance Σ/W | O(D³) |
//! | [`supervised`] | the ridge direction, then principal Hessian directions | O(nD² + D³) |
//!
//! **The supervised start.** Columns are standardized, and values beyond ±4 standard deviations are pulled in
//! to there. Columns that are constant, or constant but for fewer than five rows, get weight 0: their
//! coefficient would repeat what those few rows said. With R = ZᵀZ/n = U diag(l) Uᵀ and c = Zᵀy/n,
//!
//! ```text
//! row 1:  β(λ) = U (l + λ)⁻¹ Uᵀc        λ from a list, by the leave-one-out error Σ (e_i/(1 − H_ii))²
//! row j:  v maximizing ‖M v‖, v ⊥ all rows before     M = S E[r z zᵀ] S,  S = (R + τI)^{-1/2},  r = y − Zβ
//! ```
//!
//! For Gaussian z the matrix M is the mean Hessian of the residual in whitened coordinates: it is large along the
//! directions in which the response bends. ‖M v‖ on the complement of row 1 (not the largest
//! eigenvalue of M alone) also finds a direction that matters only through its product with row 1, and does
//! not spend row 2 on repeating row 1 where the response is a curve along it. λ is relative: the mean
//! diagonal of R is 1 but for the values pulled in. M holds D² numbers where β holds D, so τ is not λ: it is
//! chosen from the same list by five-fold cross-validation of the curvature found.
//!
//! Rows taken from data are scaled to one variance, see [`Projection::rescale`].
//!
//! ```
//! use wiski::internals::feature::{Moments, start};
//!
//! let x = [2.0, 2.1, -1.0, -0.9, 0.5, 0.4, -1.5, -1.6];
//! let p = start::principal(&Moments::from_rows(&x, 2)?, 1)?;
//! assert!((p.row(0)[0] / p.row(0)[1] - 1.0).abs() < 0.1); // the diagonal
//! # Ok::<(), wiski::Error>(())
//! ```

mod dense;
mod supervised;

pub use supervised::supervised;

use faer::Mat;
use rand::{Rng, RngExt};

use crate::error::{Error, Result};

use super::{Moments, Projection};
use dense::Eigen;

/// A list of relative ridge penalties that suits [`supervised`]: half decades from 10⁻⁴ to 10².
pub const PENALTIES: [f64; 13] = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0];

/// Independent entries, uniform on ±1/√D.
pub fn random<R: Rng + ?Sized>(outputs: usize, inputs: usize, rng: &mut R) -> Result<Projection> {
    let bound = (inputs.max(1) as f64).sqrt().recip();
    let values = (0..outputs * inputs).map(|_| rng.random_range(-bound..=bound)).collect();
    Projection::new(outputs, inputs, values)
}

/// The coordinate axes: the D×D identity.
pub fn axes(inputs: usize) -> Result<Projection> {
    let values = (0..inputs * inputs).map(|at| f64::from(u8::from(at % (inputs + 1) == 0))).collect();
    Projection::new(inputs, inputs, values)
}

/// The `outputs` leading principal components, of the covariance: columns count by their spread, so that
/// nearly constant ones hardly count. Fails if the rows vary in fewer directions.
pub fn principal(moments: &Moments, outputs: usize) -> Result<Projection> {
    let d = moments.dim();
    let covariance = Mat::from_fn(d, d, |i, j| moments.scatter()[i * d + j]);
    let eigen = Eigen::new(&covariance)?;
    enough_directions(outputs, eigen.rank())?;
    let mut values = Vec::with_capacity(outputs * d);
    for a in 0..outputs {
        values.extend(signed((0..d).map(|i| eigen.vectors[(i, a)]).collect()));
    }
    Projection::new(outputs, d, values)?.rescale(moments)
}

/// An eigenvector's sign is arbitrary: the entry of largest size becomes positive.
fn signed(mut row: Vec<f64>) -> Vec<f64> {
    let largest = row.iter().copied().fold(0.0, |a: f64, b| if b.abs() > a.abs() { b } else { a });
    if largest < 0.0 {
        for p in &mut row {
            *p = -*p;
        }
    }
    row
}

fn enough_directions(wanted: usize, found: usize) -> Result<()> {
    if wanted <= found {
        return Ok(());
    }
    let reason = format!("{wanted} directions are wanted but the rows vary in {found}");
    Err(Error::Config { field: "outputs".into(), reason })
}
