//! An append-only log of numbered records, each with checksums: what journals are made of.
//!
//! A record that is being written when the process dies is incomplete at the end of the file. Reading stops before it:
//! it was never acknowledged. A damaged record that is followed by others is an error, since they would silently be
//! missing. A record is one write; a [`sync`](Log::sync) brings all records since the last one to the disk, so several
//! can share it (group commit).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::file::{failed, write_atomically};
use super::journal::Replay;
use super::snapshot::field;
use crate::error::{Error, Result};

const VERSION: u32 = 1;
pub(super) const HEADER_BYTES: usize = 32;
/// Length, a check of the length, and the checksum of what follows.
const RECORD_HEAD: usize = 16;
/// The number of the record, before its body.
const NUMBER: usize = 8;
/// No record is longer than this.
const MAX_PAYLOAD: usize = 1 << 26;
/// What follows a record that cannot be read is the rest of this last record, if it is no longer than this.
const LAST_RECORD: usize = 1 << 16;

/// A log that is open for appending.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    /// The number of the last record.
    last: u64,
    /// The number of the last record before the first of this file.
    start: u64,
    bytes: u64,
    record: Vec<u8>,
}

/// A place in a log to which it can be [rewound](Log::rewind).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    bytes: u64,
    last: u64,
}

/// A record as it stands in a log.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Its number.
    pub number: u64,
    /// What was appended.
    pub body: &'a [u8],
    /// Where it begins in the file.
    pub at: usize,
}

impl Log {
    /// Starts a new log after record `start`, in place of any that was there. The first eight bytes say what kind of log it
    /// is; the tag is for what its records have in common.
    pub fn create(path: &Path, magic: [u8; 8], tag: u32, start: u64) -> Result<Self> {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&magic);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[12..16].copy_from_slice(&tag.to_le_bytes());
        header[16..24].copy_from_slice(&start.to_le_bytes());
        let check = xxh3_64(&header[..24]);
        header[24..].copy_from_slice(&check.to_le_bytes());
        write_atomically(path, &header).map_err(|e| failed(path, e))?;
        Self::at_end(path, start, start)
    }

    fn at_end(path: &Path, start: u64, last: u64) -> Result<Self> {
        let open = || -> io::Result<(File, u64)> {
            let mut file = OpenOptions::new().read(true).write(true).open(path)?;
            let bytes = file.seek(SeekFrom::End(0))?;
            Ok((file, bytes))
        };
        let (file, bytes) = open().map_err(|e| failed(path, e))?;
        Ok(Self { path: path.to_owned(), file, last, start, bytes, record: Vec::new() })
    }

    /// Opens a log, lets `check` say what is wrong with its tag, if anything is, gives every record to `replay`, cuts off an
    /// incomplete last record, and goes on after the last whole one.
    pub fn open(
        path: &Path,
        magic: [u8; 8],
        check: impl FnOnce(u32) -> std::result::Result<(), String>,
        mut replay: impl FnMut(&Record) -> Result<()>,
    ) -> Result<(Self, Replay)> {
        let reject = |reason: String| Error::File { path: path.display().to_string(), reason };
        let mut bytes = Vec::new();
        File::open(path).and_then(|mut f| f.read_to_end(&mut bytes)).map_err(|e| failed(path, e))?;
        if bytes.len() < HEADER_BYTES || bytes[..8] != magic {
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
        check(u32::from_le_bytes(field(&bytes, 12))).map_err(reject)?;
        let start = u64::from_le_bytes(field(&bytes, 16));
        let (mut last, mut at) = (start, HEADER_BYTES);
        while at < bytes.len() {
            let number = last + 1;
            match next_payload(&bytes[at..], number) {
                Found::Whole(payload) => {
                    if payload.len() < NUMBER || u64::from_le_bytes(field(payload, 0)) != number {
                        return Err(reject(format!("damaged at byte {at}: row {number} makes no sense")));
                    }
                    replay(&Record { number, body: &payload[NUMBER..], at })?;
                    last = number;
                    at += RECORD_HEAD + payload.len();
                }
                Found::Incomplete => break,
                Found::Damaged => {
                    let what = "does not match its checksum and others follow it";
                    return Err(reject(format!("damaged at byte {at}: row {number} {what}")));
                }
            }
        }
        let dropped_bytes = (bytes.len() - at) as u64;
        if dropped_bytes > 0 {
            let cut = || OpenOptions::new().write(true).open(path)?.set_len(at as u64);
            cut().map_err(|e| failed(path, e))?;
        }
        Ok((Self::at_end(path, start, last)?, Replay { rows: last - start, dropped_bytes }))
    }

    /// The number of the last record.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The number of the last record before the first of this file.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The number of records in this file.
    pub fn records(&self) -> u64 {
        self.last - self.start
    }

    /// The size of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a record, whose body `write` adds to the bytes it is given, and returns its number. If that fails (a full
    /// disk), the log is as it was before.
    pub fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<u64> {
        let number = self.last + 1;
        let record = &mut self.record;
        record.clear();
        record.extend_from_slice(&[0; RECORD_HEAD]);
        record.extend_from_slice(&number.to_le_bytes());
        write(record);
        let payload = record.len() - RECORD_HEAD;
        if payload > MAX_PAYLOAD {
            let reason = format!("a row of {payload} bytes is too long for the journal");
            return Err(Error::File { path: self.path.display().to_string(), reason });
        }
        let check = xxh3_64_with_seed(&record[RECORD_HEAD..], number);
        record[..4].copy_from_slice(&(payload as u32).to_le_bytes());
        record[4..8].copy_from_slice(&length_check(payload as u32, number).to_le_bytes());
        record[8..RECORD_HEAD].copy_from_slice(&check.to_le_bytes());
        if let Err(error) = self.file.write_all(&self.record) {
            // A record in part would make everything after it unreadable.
            self.rewind(self.mark())?;
            return Err(failed(&self.path, error));
        }
        self.last = number;
        self.bytes += self.record.len() as u64;
        Ok(number)
    }

    /// Where the log ends now.
    pub fn mark(&self) -> Mark {
        Mark { bytes: self.bytes, last: self.last }
    }

    /// Takes back all records since the mark was made.
    pub fn rewind(&mut self, mark: Mark) -> Result<()> {
        let mut back = || -> io::Result<()> {
            self.file.set_len(mark.bytes)?;
            self.file.seek(SeekFrom::Start(mark.bytes))?;
            Ok(())
        };
        back().map_err(|e| failed(&self.path, e))?;
        (self.bytes, self.last) = (mark.bytes, mark.last);
        Ok(())
    }

    /// Brings everything appended to the disk.
    pub fn sync(&mut self) -> Result<()> {
        self.file.sync_data().map_err(|e| failed(&self.path, e))
    }
}

enum Found<'a> {
    Whole(&'a [u8]),
    Incomplete,
    Damaged,
}

/// What the record at the beginning of `bytes` holds, which should have this number.
fn next_payload(bytes: &[u8], number: u64) -> Found<'_> {
    // A file may end in zeros where the system had made room before the power failed.
    if bytes.len() < RECORD_HEAD || bytes.iter().all(|&b| b == 0) {
        return Found::Incomplete;
    }
    let payload = u32::from_le_bytes(field(bytes, 0));
    if length_check(payload, number) != u32::from_le_bytes(field(bytes, 4)) {
        // A wrong length must not make the records after it disappear.
        return if bytes.len() <= LAST_RECORD && !resumes(bytes, number) {
            Found::Incomplete
        } else {
            Found::Damaged
        };
    }
    let Some(record) = bytes.get(RECORD_HEAD..RECORD_HEAD.saturating_add(payload as usize)) else {
        return Found::Incomplete;
    };
    if xxh3_64_with_seed(record, number) == u64::from_le_bytes(field(bytes, 8)) {
        Found::Whole(record)
    } else if bytes.len() == RECORD_HEAD + payload as usize {
        Found::Incomplete
    } else {
        Found::Damaged
    }
}

fn length_check(payload: u32, number: u64) -> u32 {
    xxh3_64_with_seed(&payload.to_le_bytes(), number) as u32
}

/// Whether the head of the next record stands somewhere in these bytes.
fn resumes(bytes: &[u8], number: u64) -> bool {
    let head = |window: &[u8]| {
        length_check(u32::from_le_bytes(field(window, 0)), number + 1) == u32::from_le_bytes(field(window, 4))
    };
    bytes.windows(8).skip(1).any(head)
}
