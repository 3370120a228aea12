//! Statistics as they stand in a file, and what is checked when they come back.

use super::{Gram, LowRankRoot, PointSums, Scratch, Stats, reject_points};
use crate::error::{Error, Result, finite, length, positive};
use crate::grid::Lattice;
use crate::saved::floats;
use crate::structure::BlockMatrix;
use serde::Deserialize;

/// Statistics as they stand in a file.
#[derive(Deserialize)]
pub(super) struct SavedStats {
    lattice: Lattice,
    gram: SavedGram,
    #[serde(with = "crate::saved::floats")]
    b: Vec<f64>,
    c: f64,
    log_noise: f64,
    count: f64,
    #[serde(default)]
    points: Option<PointSums>,
}

#[derive(Deserialize)]
enum SavedGram {
    Exact(Vec<floats::Read>),
    LowRank(LowRankRoot),
}

impl TryFrom<SavedStats> for Stats {
    type Error = Error;

    fn try_from(saved: SavedStats) -> Result<Self> {
        let SavedStats { lattice, gram, b, c, log_noise, count, points } = saved;
        length("b", lattice.len(), b.len())?;
        let weights = points.as_ref().map_or(0, |sums| sums.weights.len());
        length("sums of weights", if lattice.points().is_some() { lattice.len() } else { 0 }, weights)?;
        for (field, value) in [("c", c), ("log_noise", log_noise), ("count", count)] {
            finite(field, value, 0)?;
        }
        if count < 0.0 {
            positive("count", count, 0)?;
        }
        let gram = match gram {
            SavedGram::Exact(parts) => Gram::Exact(BlockMatrix::from_parts(&lattice, &parts)?),
            SavedGram::LowRank(root) => {
                reject_points(&lattice)?;
                length("root", lattice.len(), root.points())?;
                Gram::LowRank(root)
            }
        };
        if let Gram::Exact(a) = &gram {
            // |b_k| ≤ √(c A_kk) by Cauchy and Schwarz, and the largest entry of A is on its diagonal. What rounding leaves of
            // sums whose rows are gone may be above that, but not by much.
            let largest = a.parts().flatten().fold(0.0_f64, |largest, v| largest.max(v.abs()));
            let bound = SLACK * (1.0 + (c.max(0.0) * largest).sqrt());
            if let Some(value) = b.iter().find(|b| b.abs() > bound) {
                let reason = format!("{value:e} is larger than the sums of squares allow");
                return Err(Error::Config { field: "b".into(), reason });
            }
        }
        Ok(Self { lattice, gram, b, c, log_noise, count, points, weights: Scratch::default() })
    }
}

/// How far sums that were read may be beyond what they can be.
const SLACK: f64 = 1e6;
