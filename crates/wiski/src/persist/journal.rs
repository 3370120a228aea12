//! The journal: an append-only log of rows, each with a checksum.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::file::failed;
use super::log::{Log, Mark};
use super::{Row, Target};
use crate::error::{Error, Result, length};

const MAGIC: [u8; 8] = *b"\x89WISKJ\r\n";

const HAS_VALUE: u8 = 1;
const HAS_LABEL: u8 = 2;
const HAS_VARIANCE: u8 = 4;
const HAS_TIME: u8 = 8;

/// When appended rows are forced from the operating system to the disk. A killed process loses nothing in any
/// case; this is about power failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// After every row, before it is learned.
    EveryRow,
    /// When so much time has passed since the last time.
    Every(Duration),
    /// When the operating system likes.
    Never,
}

/// A journal that is open for appending.
#[derive(Debug)]
pub struct Journal {
    log: Log,
    input_dim: usize,
    /// Where the last row begins.
    before: Mark,
    sync: Sync,
    synced: Instant,
}

/// What reading a journal found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replay {
    /// The number of rows given to the caller.
    pub rows: u64,
    /// Bytes of an incomplete last record, which were dropped.
    pub dropped_bytes: u64,
}

/// A row as it stands in a journal.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its number in the stream, from 1.
    pub number: u64,
    x: Vec<f64>,
    value: Option<f64>,
    label: Option<String>,
    variance: Option<f64>,
    time: Option<f64>,
}

impl Entry {
    /// The row.
    pub fn row(&self) -> Row<'_> {
        let target = match (&self.value, &self.label) {
            (Some(y), _) => Target::Value(*y),
            (None, Some(label)) => Target::Label(label),
            (None, None) => Target::Missing,
        };
        Row { x: &self.x, target, variance: self.variance, time: self.time }
    }

    fn decode(number: u64, body: &[u8], input_dim: usize) -> Option<Self> {
        let mut rest = body;
        let [flags] = take(&mut rest)?;
        let mut double = || take(&mut rest).map(f64::from_le_bytes);
        let x = (0..input_dim).map(|_| double()).collect::<Option<_>>()?;
        let mut optional = |flag: u8| if flags & flag == 0 { Some(None) } else { double().map(Some) };
        let (value, variance, time) = (optional(HAS_VALUE)?, optional(HAS_VARIANCE)?, optional(HAS_TIME)?);
        let label = match flags & HAS_LABEL {
            0 if rest.is_empty() => None,
            0 => return None,
            _ => Some(String::from_utf8(rest.to_vec()).ok()?),
        };
        Some(Self { number, x, value, label, variance, time })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}

impl Journal {
    /// Starts a new journal after row `start`, in place of any that was there.
    pub fn create(path: &Path, input_dim: usize, start: u64, sync: Sync) -> Result<Self> {
        Ok(Self::of(Log::create(path, MAGIC, input_dim as u32, start)?, input_dim, sync))
    }

    fn of(log: Log, input_dim: usize, sync: Sync) -> Self {
        Self { before: log.mark(), log, input_dim, sync, synced: Instant::now() }
    }

    /// Opens a journal, gives every row in it to `replay`, cuts off an incomplete last record, and goes on
    /// after the last row.
    pub fn open(
        path: &Path,
        input_dim: usize,
        sync: Sync,
        mut replay: impl FnMut(&Entry) -> Result<()>,
    ) -> Result<(Self, Replay)> {
        let check = |width: u32| {
            if width as usize == input_dim {
                return Ok(());
            }
            Err(format!("this journal holds rows of {width} inputs, but the model has {input_dim}"))
        };
        let (log, found) = Log::open(path, MAGIC, check, |record| {
            let entry = Entry::decode(record.number, record.body, input_dim).ok_or_else(|| {
                let reason = format!("damaged at byte {}: row {} makes no sense", record.at, record.number);
                Error::File { path: path.display().to_string(), reason }
            })?;
            replay(&entry)
        })?;
        Ok((Self::of(log, input_dim, sync), found))
    }

    /// The number of the last row.
    pub fn last(&self) -> u64 {
        self.log.last()
    }

    /// The number of the last row before the first of this file.
    pub fn start(&self) -> u64 {
        self.log.start()
    }

    /// Takes back the row appended last: it was rejected, and is to be given again in another form.
    pub fn retract(&mut self) -> Result<()> {
        self.log.rewind(self.before)
    }

    /// The number of rows in this file.
    pub fn rows(&self) -> u64 {
        self.log.records()
    }

    /// The size of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// Appends a row and returns its number. If that fails (a full disk), the journal is as it was before.
    pub fn append(&mut self, row: &Row) -> Result<u64> {
        length("x", self.input_dim, row.x.len())?;
        let before = self.log.mark();
        let number = self.log.append(|record| encode(row, record))?;
        let due = match self.sync {
            Sync::EveryRow => true,
            Sync::Every(interval) => self.synced.elapsed() >= interval,
            Sync::Never => false,
        };
        if due && let Err(error) = self.sync() {
            self.log.rewind(before)?;
            return Err(error);
        }
        self.before = before;
        Ok(number)
    }

    /// Brings everything appended to the disk.
    pub fn sync(&mut self) -> Result<()> {
        self.log.sync()?;
        self.synced = Instant::now();
        Ok(())
    }

    /// Removes the file of a journal that is no longer needed.
    pub fn remove(self) -> Result<()> {
        fs::remove_file(self.log.path()).map_err(|e| failed(self.log.path(), e))
    }
}

/// The body of a row's record.
fn encode(row: &Row, record: &mut Vec<u8>) {
    let (value, label) = match row.target {
        Target::Value(y) => (Some(y), None),
        Target::Label(label) => (None, Some(label)),
        Target::Missing => (None, None),
    };
    let flag = |present: bool, flag: u8| if present { flag } else { 0 };
    record.push(
        flag(value.is_some(), HAS_VALUE)
            | flag(label.is_some(), HAS_LABEL)
            | flag(row.variance.is_some(), HAS_VARIANCE)
            | flag(row.time.is_some(), HAS_TIME),
    );
    let numbers = row.x.iter().copied().chain(value).chain(row.variance).chain(row.time);
    numbers.for_each(|v| record.extend_from_slice(&v.to_le_bytes()));
    record.extend_from_slice(label.unwrap_or_default().as_bytes());
}
