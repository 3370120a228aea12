//! Models on disk: snapshots that are whole or not there, and a journal that loses no row.
//!
//! A **snapshot** ([`save`], [`load`]) is one file: a header with magic number, format version, kind, length
//! and checksums, then the state as MessagePack. It is written beside its place and renamed, so a reader finds
//! the old file or the new one, never half of one. Restored models go on exactly as if they had never been
//! interrupted: the state holds the recursions of the posterior to the last bit.
//!
//! A **journal** ([`Journal`]) is an append-only log of rows, each with a checksum. [`Durable`] puts both
//! together: a row is logged before it is learned; after a crash the last snapshot is loaded and the log is
//! replayed, which repeats the same arithmetic and so ends in the same posterior.
//!
//! The bytes are described in `docs/format.md`. Without the feature `files` there are only [`to_bytes`] and
//! [`from_bytes`].
//!
//! ```
//! use wiski::{OnlineRegressor, Settings, persist};
//!
//! let mut model = OnlineRegressor::new(1, Settings::default())?;
//! for i in 0..100 {
//!     let x = f64::from(i) / 100.0;
//!     model.observe(&[x], (5.0 * x).sin())?;
//! }
//! let bytes = persist::to_bytes(&model)?;
//! let mut copy: OnlineRegressor = persist::from_bytes(&bytes)?;
//! assert_eq!(copy.predict(&[0.3])?, model.predict(&[0.3])?);
//! # Ok::<(), wiski::Error>(())
//! ```

#[cfg(feature = "files")]
mod durable;
#[cfg(feature = "files")]
mod file;
#[cfg(feature = "files")]
mod journal;
#[cfg(feature = "files")]
mod lock;
#[cfg(feature = "files")]
mod log;
mod series;
mod snapshot;
mod stored;

#[cfg(feature = "files")]
pub use durable::{Durable, DurableOptions, Journaled, Recovered};
#[cfg(feature = "files")]
pub use file::{header, is_snapshot, load, save, write_atomically};
#[cfg(feature = "files")]
pub use journal::{Entry, Journal, Replay, Sync};
#[cfg(feature = "files")]
pub use lock::FileLock;
#[cfg(feature = "files")]
pub use log::{Log, Mark, Record};
pub use series::StoredSeries;
pub use snapshot::{FORMAT_VERSION, Header, Persistent, from_bytes, to_bytes};
pub(crate) use snapshot::{framed, kind};
pub use stored::{
    Answer, CalendarPart, Columns, InputSource, LabelKind, Model, Reading, Row, Stored, Target,
};
