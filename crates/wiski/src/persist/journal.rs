//! The journal: an append-only log of rows, each with a checksum.
//!
//! A row that is being written when the process dies leaves an incomplete record at the end. Reading stops
//! before it: such a row was never acknowledged. A damaged record that is followed by others is an error,
//! since rows would silently be missing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::file::{failed, write_atomically};
use super::snapshot::field;
use super::{Row, Target};
use crate::error::{Error, Result, length};

const MAGIC: [u8; 8] = *b"\x89WISKJ\r\n";
const VERSION: u32 = 1;
pub(super) const HEADER_BYTES: usize = 32;
/// Length, a check of the length, and the checksum of what follows.
const RECORD_HEAD: usize = 16;
/// No row is longer than this.
const MAX_PAYLOAD: usize = 1 << 26;
/// What follows a record that cannot be read is the rest of this last record, if it is no longer than this.
const LAST_RECORD: usize = 1 << 16;

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
    path: PathBuf,
    file: File,
    input_dim: usize,
    /// The number of the last row.
    last: u64,
    /// The number of the last row before the first of this file.
    start: u64,
    bytes: u64,
    /// The size of the file before the last row.
    before: u64,
    sync: Sync,
    synced: Instant,
    record: Vec<u8>,
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

    fn decode(payload: &[u8], input_dim: usize) -> Option<Self> {
        let mut rest = payload;
        let number = u64::from_le_bytes(take(&mut rest)?);
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
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[12..16].copy_from_slice(&(input_dim as u32).to_le_bytes());
        header[16..24].copy_from_slice(&start.to_le_bytes());
        let check = xxh3_64(&header[..24]);
        header[24..].copy_from_slice(&check.to_le_bytes());
        write_atomically(path, &header).map_err(|e| failed(path, e))?;
        Self::at_end(path, input_dim, start, start, sync)
    }

    fn at_end(path: &Path, input_dim: usize, start: u64, last: u64, sync: Sync) -> Result<Self> {
        let open = || -> io::Result<(File, u64)> {
            let mut file = OpenOptions::new().read(true).write(true).open(path)?;
            let bytes = file.seek(SeekFrom::End(0))?;
            Ok((file, bytes))
        };
        let (file, bytes) = open().map_err(|e| failed(path, e))?;
        let (path, synced) = (path.to_owned(), Instant::now());
        Ok(Self {
            path,
            file,
            input_dim,
            last,
            start,
            bytes,
            before: bytes,
            sync,
            synced,
            record: Vec::new(),
        })
    }

    /// Opens a journal, gives every row in it to `replay`, cuts off an incomplete last record, and goes on
    /// after the last row.
    pub fn open(
        path: &Path,
        input_dim: usize,
        sync: Sync,
        mut replay: impl FnMut(&Entry) -> Result<()>,
    ) -> Result<(Self, Replay)> {
        let reject = |reason: String| Error::File { path: path.display().to_string(), reason };
        let mut bytes = Vec::new();
        File::open(path).and_then(|mut f| f.read_to_end(&mut bytes)).map_err(|e| failed(path, e))?;
        if bytes.len() < HEADER_BYTES || bytes[..8] != MAGIC {
            return Err(reject("not a wiski journal".into()));
        }
        let version = u32::from_le_bytes(field(&bytes, 8));
        if version == 0 || version > VERSION {
            let own = format!("this program reads versions 1 to {VERSION}");
            return Err(reject(format!("journal version {version}, but {own}")));
        }
        if xxh3_64(&bytes[..24]) != u64::from_le_bytes(field(&bytes, 24)) {
            return Err(reject("damaged: the checksum of its header does not match".into()));
        }
        let width = u32::from_le_bytes(field(&bytes, 12)) as usize;
        if width != input_dim {
            return Err(reject(format!(
                "this journal holds rows of {width} inputs, but the model has {input_dim}"
            )));
        }
        let start = u64::from_le_bytes(field(&bytes, 16));
        let (mut last, mut at) = (start, HEADER_BYTES);
        while at < bytes.len() {
            match next_record(&bytes[at..], last + 1) {
                Record::Whole(payload) => {
                    let entry = Entry::decode(payload, input_dim).filter(|e| e.number == last + 1);
                    let entry = entry.ok_or_else(|| {
                        reject(format!("damaged at byte {at}: row {} makes no sense", last + 1))
                    })?;
                    replay(&entry)?;
                    last += 1;
                    at += RECORD_HEAD + payload.len();
                }
                Record::Incomplete => break,
                Record::Damaged => {
                    let reason = format!(
                        "damaged at byte {at}: row {} does not match its checksum and others follow it",
                        last + 1
                    );
                    return Err(reject(reason));
                }
            }
        }
        let dropped_bytes = (bytes.len() - at) as u64;
        if dropped_bytes > 0 {
            let cut = || OpenOptions::new().write(true).open(path)?.set_len(at as u64);
            cut().map_err(|e| failed(path, e))?;
        }
        let journal = Self::at_end(path, input_dim, start, last, sync)?;
        Ok((journal, Replay { rows: last - start, dropped_bytes }))
    }

    /// The number of the last row.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The number of the last row before the first of this file.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Takes back the row appended last: it was rejected, and is to be given again in another form.
    pub fn retract(&mut self) -> Result<()> {
        let mut back = || -> io::Result<()> {
            self.file.set_len(self.before)?;
            self.file.seek(SeekFrom::Start(self.before))?;
            Ok(())
        };
        back().map_err(|e| failed(&self.path, e))?;
        self.last -= u64::from(self.before < self.bytes);
        self.bytes = self.before;
        Ok(())
    }

    /// The number of rows in this file.
    pub fn rows(&self) -> u64 {
        self.last - self.start
    }

    /// The size of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a row and returns its number. If that fails (a full disk), the journal is as it was before.
    pub fn append(&mut self, row: &Row) -> Result<u64> {
        length("x", self.input_dim, row.x.len())?;
        let number = self.last + 1;
        let record = &mut self.record;
        record.clear();
        record.extend_from_slice(&[0; RECORD_HEAD]);
        record.extend_from_slice(&number.to_le_bytes());
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
        let payload = record.len() - RECORD_HEAD;
        if payload > MAX_PAYLOAD {
            let reason = format!("a row of {payload} bytes is too long for the journal");
            return Err(Error::File { path: self.path.display().to_string(), reason });
        }
        let check = xxh3_64_with_seed(&record[RECORD_HEAD..], number);
        record[..4].copy_from_slice(&(payload as u32).to_le_bytes());
        record[4..8].copy_from_slice(&length_check(payload as u32, number).to_le_bytes());
        record[8..RECORD_HEAD].copy_from_slice(&check.to_le_bytes());
        self.write().map_err(|e| failed(&self.path, e))?;
        self.last = number;
        Ok(number)
    }

    fn write(&mut self) -> io::Result<()> {
        let due = match self.sync {
            Sync::EveryRow => true,
            Sync::Every(interval) => self.synced.elapsed() >= interval,
            Sync::Never => false,
        };
        let written =
            self.file.write_all(&self.record).and_then(|()| if due { self.file.sync_data() } else { Ok(()) });
        if written.is_err() {
            // A row in part would make everything after it unreadable.
            self.file.set_len(self.bytes)?;
            self.file.seek(SeekFrom::Start(self.bytes))?;
            return written;
        }
        if due {
            self.synced = Instant::now();
        }
        self.before = self.bytes;
        self.bytes += self.record.len() as u64;
        Ok(())
    }

    /// Brings everything appended to the disk.
    pub fn sync(&mut self) -> Result<()> {
        self.file.sync_data().map_err(|e| failed(&self.path, e))?;
        self.synced = Instant::now();
        Ok(())
    }

    /// Removes the file of a journal that is no longer needed.
    pub fn remove(self) -> Result<()> {
        fs::remove_file(&self.path).map_err(|e| failed(&self.path, e))
    }
}

enum Record<'a> {
    Whole(&'a [u8]),
    Incomplete,
    Damaged,
}

/// The record at the beginning of `bytes`, which should be that of row `number`.
fn next_record(bytes: &[u8], number: u64) -> Record<'_> {
    // A file may end in zeros where the system had made room before the power failed.
    if bytes.len() < RECORD_HEAD || bytes.iter().all(|&b| b == 0) {
        return Record::Incomplete;
    }
    let payload = u32::from_le_bytes(field(bytes, 0));
    if length_check(payload, number) != u32::from_le_bytes(field(bytes, 4)) {
        // A wrong length must not make the rows after it disappear.
        return if bytes.len() <= LAST_RECORD && !resumes(bytes, number) {
            Record::Incomplete
        } else {
            Record::Damaged
        };
    }
    let Some(record) = bytes.get(RECORD_HEAD..RECORD_HEAD.saturating_add(payload as usize)) else {
        return Record::Incomplete;
    };
    if xxh3_64_with_seed(record, number) == u64::from_le_bytes(field(bytes, 8)) {
        Record::Whole(record)
    } else if bytes.len() == RECORD_HEAD + payload as usize {
        Record::Incomplete
    } else {
        Record::Damaged
    }
}

fn length_check(payload: u32, number: u64) -> u32 {
    xxh3_64_with_seed(&payload.to_le_bytes(), number) as u32
}

/// Whether the head of the next row's record stands somewhere in these bytes.
fn resumes(bytes: &[u8], number: u64) -> bool {
    let head = |window: &[u8]| {
        length_check(u32::from_le_bytes(field(window, 0)), number + 1) == u32::from_le_bytes(field(window, 4))
    };
    bytes.windows(8).skip(1).any(head)
}
