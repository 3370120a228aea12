//! Snapshots: a header of 56 bytes, then the state.

use serde::Serialize;
use serde::de::DeserializeOwned;
use xxhash_rust::xxh3::xxh3_64;

use super::{Stored, StoredSeries};
use crate::decide::Optimizer;
use crate::error::{Error, Result};
use crate::model::{OnlineClassifier, OnlineRegressor, Wiski};
use crate::stats::Stats;
use crate::time::Forecaster;

/// The version of the format that is written. Older ones stay readable.
pub const FORMAT_VERSION: u32 = 2;

/// A first byte above 127 and both line ends show at once if a file went through a text-mode transfer.
pub(super) const MAGIC: [u8; 8] = *b"\x89WISKI\r\n";
const KIND_BYTES: usize = 16;
const HEADER_BYTES: usize = 56;

/// What can be written to a snapshot file.
pub trait Persistent: Serialize + DeserializeOwned {
    /// The kind that stands in the header: at most 16 ASCII letters.
    const KIND: &'static str;
}

impl Persistent for Stats {
    const KIND: &'static str = "stats";
}
impl Persistent for Wiski {
    const KIND: &'static str = "process";
}
impl Persistent for OnlineRegressor {
    const KIND: &'static str = "regressor";
}
impl Persistent for OnlineClassifier {
    const KIND: &'static str = "classifier";
}
impl Persistent for Optimizer {
    const KIND: &'static str = "optimizer";
}
impl Persistent for Forecaster {
    const KIND: &'static str = "forecaster";
}
impl Persistent for StoredSeries {
    const KIND: &'static str = "forecaster";
}
impl Persistent for Stored {
    const KIND: &'static str = "model";
}

/// The header of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The version of the format.
    pub version: u32,
    /// What the file holds, as `model`.
    pub kind: String,
    /// The number of bytes that follow the header.
    pub length: u64,
    checksum: u64,
}

impl Header {
    fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[16..16 + self.kind.len()].copy_from_slice(self.kind.as_bytes());
        bytes[32..40].copy_from_slice(&self.length.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.checksum.to_le_bytes());
        let own = xxh3_64(&bytes[..48]);
        bytes[48..].copy_from_slice(&own.to_le_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8]) -> std::result::Result<Self, String> {
        if bytes.is_empty() {
            return Err("empty".into());
        }
        if bytes.len() < 8 || bytes[..8] != MAGIC {
            return Err("not a wiski file".into());
        }
        if bytes.len() < HEADER_BYTES {
            return Err(format!("cut off: {} bytes of a header of {HEADER_BYTES}", bytes.len()));
        }
        let version = u32::from_le_bytes(field(bytes, 8));
        if version == 0 || version > FORMAT_VERSION {
            return Err(format!(
                "format version {version}, but this program reads versions 1 to {FORMAT_VERSION}"
            ));
        }
        if xxh3_64(&bytes[..48]) != u64::from_le_bytes(field(bytes, 48)) {
            return Err("damaged: the checksum of its header does not match".into());
        }
        let kind = bytes[16..16 + KIND_BYTES].split(|b| *b == 0).next().unwrap_or_default();
        let kind = String::from_utf8_lossy(kind).into_owned();
        let (length, checksum) = (u64::from_le_bytes(field(bytes, 32)), u64::from_le_bytes(field(bytes, 40)));
        Ok(Self { version, kind, length, checksum })
    }

    /// The bytes after the header, if they are all there and undamaged.
    pub(super) fn body<'a>(&self, bytes: &'a [u8]) -> std::result::Result<&'a [u8], String> {
        let body = &bytes[HEADER_BYTES..];
        if (body.len() as u64) < self.length {
            return Err(format!("cut off: {} of {} bytes are there", body.len(), self.length));
        }
        if body.len() as u64 > self.length {
            return Err(format!("{} bytes too many at its end", body.len() as u64 - self.length));
        }
        if xxh3_64(body) != self.checksum {
            return Err("damaged: its checksum does not match".into());
        }
        Ok(body)
    }
}

/// Eight or four bytes from a header that was checked to be long enough.
pub(super) fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// A value as the bytes of a snapshot file.
pub fn to_bytes<T: Persistent>(value: &T) -> Result<Vec<u8>> {
    let reject = |reason: String| Error::File { path: T::KIND.into(), reason };
    let body = rmp_serde::to_vec_named(value).map_err(|e| reject(e.to_string()))?;
    Ok(framed(T::KIND, &body))
}

/// The bytes of a file of a kind with the given body.
pub(crate) fn framed(kind: &str, body: &[u8]) -> Vec<u8> {
    let (length, checksum) = (body.len() as u64, xxh3_64(body));
    let header = Header { version: FORMAT_VERSION, kind: kind.into(), length, checksum };
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend_from_slice(&header.bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// The kind of what the bytes of a file hold.
pub(crate) fn kind(bytes: &[u8]) -> Result<String> {
    let header = Header::parse(bytes);
    header.map(|h| h.kind).map_err(|reason| Error::File { path: "the saved model".into(), reason })
}

/// The value in the bytes of a snapshot file, checked.
pub fn from_bytes<T: Persistent>(bytes: &[u8]) -> Result<T> {
    read(bytes).map_err(|reason| Error::File { path: "the saved model".into(), reason })
}

pub(super) fn read<T: Persistent>(bytes: &[u8]) -> std::result::Result<T, String> {
    let header = Header::parse(bytes)?;
    let body = header.body(bytes)?;
    if header.kind != T::KIND {
        return Err(format!("this file is of the kind {}, not {}", header.kind, T::KIND));
    }
    rmp_serde::from_slice(body).map_err(|e| format!("not a valid {}: {e}", T::KIND))
}
