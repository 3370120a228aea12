//! Statistics as few bytes, to be sent between machines: exact, and without the zeros.
//!
//! Both sides know the lattice, so only numbers are written: c, ℓ, n, then b and the blocks of A, then what inducing
//! points need. An array is cut into groups of eight doubles. One bit for each group says whether any of its numbers has
//! a bit set; only those groups follow. A shard whose rows fill a tenth of the grids takes a tenth of the bytes, and one
//! without rows a five hundredth.
//!
//! There is no checksum here: whoever frames these bytes adds one (`shard`).

use super::{Gram, Stats};
use crate::error::{Error, Result};
use crate::grid::Lattice;

/// Doubles in a group.
const GROUP: usize = 8;

/// What is left of a message.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    /// The next bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.0.split_at_checked(count) else {
            return Err(damaged(format!("cut off: {count} bytes are needed, {} are left", self.0.len())));
        };
        self.0 = rest;
        Ok(taken)
    }

    /// The next N bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    /// A number that must be finite.
    pub(crate) fn float(&mut self) -> Result<f64> {
        let value = f64::from_le_bytes(self.array()?);
        if value.is_finite() { Ok(value) } else { Err(damaged(format!("{value} stands among sums"))) }
    }

    /// An array that [`write_floats`] wrote.
    fn floats(&mut self, out: &mut [f64]) -> Result<()> {
        let groups = out.len().div_ceil(GROUP);
        let bits = self.take(groups.div_ceil(8))?;
        for (g, group) in out.chunks_mut(GROUP).enumerate() {
            if bits[g / 8] >> (g % 8) & 1 == 0 {
                group.fill(0.0);
                continue;
            }
            let bytes = self.take(8 * group.len())?;
            for (value, bytes) in group.iter_mut().zip(bytes.as_chunks().0) {
                *value = f64::from_le_bytes(*bytes);
            }
            if group.iter().any(|v| !v.is_finite()) {
                return Err(damaged("a number that is not finite stands among sums".into()));
            }
        }
        Ok(())
    }
}

/// Statistics that cannot be read.
pub(crate) fn damaged(reason: String) -> Error {
    Error::File { path: "the statistics".into(), reason }
}

fn write_floats(values: &[f64], out: &mut Vec<u8>) {
    let groups = values.len().div_ceil(GROUP);
    let bits = out.len();
    out.resize(bits + groups.div_ceil(8), 0);
    for (g, group) in values.chunks(GROUP).enumerate() {
        // Minus zero is no zero here: bytes that come back are bytes that went.
        if group.iter().all(|v| v.to_bits() == 0) {
            continue;
        }
        out[bits + g / 8] |= 1 << (g % 8);
        group.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
    }
}

impl Stats {
    /// Appends all numbers. Rejected for a root of limited rank, which is no sum.
    pub(crate) fn write_compact(&self, out: &mut Vec<u8>) -> Result<()> {
        let Gram::Exact(a) = &self.gram else {
            let reason = "a root of limited rank is no exact sum";
            return Err(Error::Unsupported { operation: "sending statistics", reason });
        };
        for scalar in [self.c, self.log_noise, self.count] {
            out.extend_from_slice(&scalar.to_le_bytes());
        }
        write_floats(&self.b, out);
        a.parts().for_each(|part| write_floats(part, out));
        if let Some(sums) = &self.points {
            for scalar in [sums.residual, sums.targets, sums.total] {
                out.extend_from_slice(&scalar.to_le_bytes());
            }
            write_floats(&sums.weights, out);
        }
        Ok(())
    }

    /// The statistics on a lattice whose numbers [`Stats::write_compact`] wrote.
    pub(crate) fn read_compact(lattice: Lattice, bytes: &mut Reader<'_>) -> Result<Self> {
        let mut stats = Self::new(lattice);
        (stats.c, stats.log_noise, stats.count) = (bytes.float()?, bytes.float()?, bytes.float()?);
        if stats.count < 0.0 {
            return Err(damaged(format!("{} rows", stats.count)));
        }
        bytes.floats(&mut stats.b)?;
        if let Gram::Exact(a) = &mut stats.gram {
            a.parts_mut().try_for_each(|part| bytes.floats(part))?;
        }
        if let Some(sums) = &mut stats.points {
            (sums.residual, sums.targets, sums.total) = (bytes.float()?, bytes.float()?, bytes.float()?);
            bytes.floats(&mut sums.weights)?;
        }
        Ok(stats)
    }

    /// The bytes that the sums take in memory.
    pub(crate) fn bytes(&self) -> usize {
        let gram = match &self.gram {
            Gram::Exact(a) => a.bytes(),
            Gram::LowRank(root) => size_of::<f64>() * root.points() * root.rank(),
        };
        let weights = self.points.as_ref().map_or(0, |sums| sums.weights.len());
        gram + size_of::<f64>() * (self.b.len() + weights)
    }
}
