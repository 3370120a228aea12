//! Shards as bytes, to be sent between machines; described in `docs/format.md`.
//!
//! A message stands for itself: it holds its shape. Grids are told by how far they have grown beyond the shape's, sums
//! without their zeros (`stats/compact.rs`). A checksum is over all of it.

use xxhash_rust::xxh3::xxh3_64;

use super::{Shape, Shard};
use crate::error::Result;
use crate::grid::Growth;
use crate::stats::{ExactStats, ExactSum, Reader, Stats, damaged};

/// Beside the magic number of files: these are no files.
const MAGIC: [u8; 8] = *b"\x89WISKS\r\n";

/// The version that is written.
const VERSION: u32 = 1;

/// Magic number, version, four bytes of zeros, length and checksum of what follows.
const HEADER: usize = 32;

impl Shard {
    /// The shard as bytes: the shape, and the sums without their zeros. Exact.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(HEADER + self.shape.to_bytes().len() + self.sums.bytes() + 256);
        out.resize(HEADER, 0);
        out.extend_from_slice(&(self.shape.to_bytes().len() as u64).to_le_bytes());
        out.extend_from_slice(self.shape.to_bytes());
        out.extend_from_slice(&(self.growth.sides().len() as u32).to_le_bytes());
        for &(below, above) in self.growth.sides() {
            out.extend_from_slice(&(below as u32).to_le_bytes());
            out.extend_from_slice(&(above as u32).to_le_bytes());
        }
        out.extend_from_slice(&self.ignored.to_le_bytes());
        for part in self.targets.iter().flat_map(ExactSum::parts) {
            out.extend_from_slice(&part.to_le_bytes());
        }
        // Most sums are one double, and what a double leaves of them is zero.
        let (value, rest) = self.sums.split();
        value.write_compact(&mut out)?;
        rest.write_compact(&mut out)?;
        let (length, checksum) = ((out.len() - HEADER) as u64, xxh3_64(&out[HEADER..]));
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[16..24].copy_from_slice(&length.to_le_bytes());
        out[24..32].copy_from_slice(&checksum.to_le_bytes());
        Ok(out)
    }

    /// The shard in the given bytes, checked.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::read(bytes, None)
    }

    /// As [`Shard::from_bytes`], faster where the shape is known: it is not parsed again if it is this one.
    pub fn from_bytes_of(bytes: &[u8], shape: &Shape) -> Result<Self> {
        Self::read(bytes, Some(shape))
    }

    fn read(bytes: &[u8], known: Option<&Shape>) -> Result<Self> {
        let mut body = Reader(body(bytes)?);
        let length = u64::from_le_bytes(body.array()?);
        let shape = body.take(usize::try_from(length).unwrap_or(usize::MAX))?;
        let shape = match known.filter(|known| known.to_bytes() == shape) {
            Some(known) => known.clone(),
            None => Shape::from_bytes(shape)?,
        };
        let mut shard = Self::new(&shape);
        let axes = u32::from_le_bytes(body.array()?) as usize;
        if axes != shard.growth.sides().len() {
            return Err(damaged(format!("{axes} axes, where the shape has {}", shard.growth.sides().len())));
        }
        let mut sides = Vec::with_capacity(axes);
        for _ in 0..axes {
            let (below, above) = (u32::from_le_bytes(body.array()?), u32::from_le_bytes(body.array()?));
            sides.push((below as usize, above as usize));
        }
        let growth = Growth::of_sides(sides, shape.room());
        shard.growth = growth.ok_or_else(|| damaged("grids have grown further than they may".into()))?;
        shard.ignored = u64::from_le_bytes(body.array()?);
        for sum in &mut shard.targets {
            *sum = ExactSum::of_parts([body.float()?, body.float()?]);
        }
        let (lattice, _) = shape.model().lattice.grown(&shard.growth)?;
        let value = Stats::read_compact(lattice.clone(), &mut body)?;
        shard.sums = ExactStats::join(value, Stats::read_compact(lattice, &mut body)?);
        if !body.0.is_empty() {
            return Err(damaged(format!("{} bytes too many at the end", body.0.len())));
        }
        Ok(shard)
    }
}

/// What follows the header, if it is all there and undamaged.
fn body(bytes: &[u8]) -> Result<&[u8]> {
    if bytes.len() < 8 || bytes[..8] != MAGIC {
        return Err(damaged("not statistics of wiski".into()));
    }
    let mut header = Reader(&bytes[8..]);
    let version = u32::from_le_bytes(header.array()?);
    if version != VERSION {
        return Err(damaged(format!("version {version}, but this program reads version {VERSION}")));
    }
    header.take(4)?;
    let (length, checksum) = (u64::from_le_bytes(header.array()?), u64::from_le_bytes(header.array()?));
    let body = header.0;
    if body.len() as u64 != length {
        return Err(damaged(format!("cut off: {} of {length} bytes are there", body.len())));
    }
    if xxh3_64(body) != checksum {
        return Err(damaged("damaged: their checksum does not match".into()));
    }
    Ok(body)
}
