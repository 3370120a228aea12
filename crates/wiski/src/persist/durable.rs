//! A model that survives: every row is logged before it is learned.
//!
//! A folder holds `model.wiski`, a snapshot that knows how many rows it has seen, and `journal.log`, the rows
//! since. Compaction writes a new snapshot, then an empty journal; a crash between the two leaves a journal
//! whose first rows the snapshot already knows, and they are skipped. A lock keeps a second process out.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use super::file::{failed, load, save};
use super::journal::{Journal, Sync};
use super::{Answer, Persistent, Row, Stored, StoredSeries};
use crate::error::{Error, Result};
use crate::model::Upkeep;

/// A model that learns rows one by one, so that replaying them makes it what it was.
pub trait Journaled: Persistent {
    /// The number of inputs of a row.
    fn width(&self) -> usize;
    /// The number of rows seen, rejected ones included.
    fn seen(&self) -> u64;
    /// How many of them had been seen when the journal was begun.
    fn journal_from(&self) -> u64;
    /// Begins a journal with the next row.
    fn begin_journal(&mut self);
    /// Counts the row, predicts it and learns it.
    fn step(&mut self, row: &Row) -> Result<Option<Answer>>;
    /// Does not count the last row, which was rejected.
    fn retract(&mut self);
    /// What went wrong beside the rows since the last call, if anything did.
    fn take_failure(&mut self) -> Option<Error>;
}

impl Journaled for Stored {
    fn width(&self) -> usize {
        self.columns.inputs.len()
    }

    fn seen(&self) -> u64 {
        self.rows
    }

    fn journal_from(&self) -> u64 {
        self.journal_from
    }

    fn begin_journal(&mut self) {
        self.journal_from = self.rows;
    }

    fn step(&mut self, row: &Row) -> Result<Option<Answer>> {
        Self::step(self, row)
    }

    fn retract(&mut self) {
        self.rows -= 1;
    }

    fn take_failure(&mut self) -> Option<Error> {
        self.model.take_failure()
    }
}

impl Journaled for StoredSeries {
    fn width(&self) -> usize {
        self.columns.inputs.len()
    }

    fn seen(&self) -> u64 {
        self.seen
    }

    fn journal_from(&self) -> u64 {
        self.journal_from
    }

    fn begin_journal(&mut self) {
        self.journal_from = self.seen;
    }

    fn step(&mut self, row: &Row) -> Result<Option<Answer>> {
        Self::step(self, row)
    }

    fn retract(&mut self) {
        self.seen -= 1;
    }

    fn take_failure(&mut self) -> Option<Error> {
        Self::take_failure(self)
    }
}

/// How a [`Durable`] model keeps its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurableOptions {
    /// When rows are forced to the disk.
    pub sync: Sync,
    /// A journal with so many rows is compacted.
    pub compact_after: u64,
    /// Whether a row that the model rejects stays in the journal, so that it counts as seen. Otherwise it is
    /// taken back, and can be given again in another form.
    pub keep_rejected: bool,
}

impl Default for DurableOptions {
    /// The disk is up to date to the second; after a crash at most 50,000 rows are learned anew, which takes
    /// about a second.
    fn default() -> Self {
        Self {
            sync: Sync::Every(std::time::Duration::from_secs(1)),
            compact_after: 50_000,
            keep_rejected: true,
        }
    }
}

/// What was found on opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Rows that the snapshot had seen.
    pub from_snapshot: u64,
    /// Rows learned anew from the journal.
    pub replayed: u64,
    /// Rows of the journal that the model rejected, as it had done before.
    pub rejected: u64,
    /// Bytes of an incomplete last row, never acknowledged, that were dropped.
    pub dropped_bytes: u64,
}

/// A model in a folder, with its journal: of a table ([`Stored`]) or of a series ([`StoredSeries`]).
#[derive(Debug)]
pub struct Durable<M = Stored> {
    stored: M,
    journal: Journal,
    folder: PathBuf,
    options: DurableOptions,
    _lock: File,
}

impl Durable {
    /// Says anew whether rows wait for searches and refits.
    pub fn set_upkeep(&mut self, upkeep: Upkeep) {
        self.stored.model.set_upkeep(upkeep);
    }

    /// Takes note of rows that will be learned next: see [`Model::prepare_rows`](super::Model::prepare_rows).
    pub fn prepare_rows(&mut self, x: &[f64]) {
        self.stored.model.prepare_rows(x);
    }
}

impl<M: Journaled> Durable<M> {
    /// Opens the model in `folder`, replaying its journal; where there is none yet, `fresh` makes it.
    pub fn open(
        folder: &Path,
        options: DurableOptions,
        fresh: impl FnOnce() -> Result<M>,
    ) -> Result<(Self, Recovered)> {
        fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
        let lock = lock(&folder.join("lock"))?;
        let (snapshot, log) = (folder.join("model.wiski"), folder.join("journal.log"));
        let mut recovered = Recovered::default();
        sweep(folder);
        let mut stored: M = if snapshot.exists() {
            let stored: M = load(&snapshot)?;
            if stored.seen() == 0 && is_empty_journal(&log) {
                // A first start that never got a row settles nothing.
                let mut stored = fresh()?;
                stored.begin_journal();
                if log.exists() {
                    fs::remove_file(&log).map_err(|e| failed(&log, e))?;
                }
                save(&snapshot, &stored)?;
                stored
            } else {
                stored
            }
        } else if log.exists() {
            let reason = "a journal without the snapshot that it continues".into();
            return Err(Error::File { path: folder.display().to_string(), reason });
        } else {
            let mut stored = fresh()?;
            stored.begin_journal();
            save(&snapshot, &stored)?;
            stored
        };
        recovered.from_snapshot = stored.seen();
        let width = stored.width();
        let journal = if log.exists() {
            let (journal, replay) = Journal::open(&log, width, options.sync, |entry| {
                if entry.number <= stored.seen() {
                    return Ok(());
                }
                if entry.number > stored.seen() + 1 {
                    let reason = format!("rows {} to {} are missing", stored.seen() + 1, entry.number - 1);
                    return Err(Error::File { path: log.display().to_string(), reason });
                }
                recovered.replayed += 1;
                // What the model rejected then it rejects now: the row was not learned.
                recovered.rejected += u64::from(stored.step(&entry.row()).is_err());
                Ok(())
            })?;
            recovered.dropped_bytes = replay.dropped_bytes;
            if journal.start() > stored.seen() {
                let reason = format!("rows {} to {} are missing", stored.seen() + 1, journal.start());
                return Err(Error::File { path: log.display().to_string(), reason });
            }
            // A crash right after compaction may leave an older journal behind.
            if journal.last() < stored.seen() {
                Journal::create(&log, width, stored.seen(), options.sync)?
            } else {
                journal
            }
        } else {
            Journal::create(&log, width, stored.seen(), options.sync)?
        };
        Ok((Self { stored, journal, folder: folder.to_owned(), options, _lock: lock }, recovered))
    }

    /// The model with its columns.
    pub fn stored(&self) -> &M {
        &self.stored
    }

    /// What went wrong beside the rows since the last call, if anything did.
    pub fn take_failure(&mut self) -> Option<Error> {
        self.stored.take_failure()
    }

    /// Logs the row, then predicts and learns it. When this returns, the row is safe.
    pub fn step(&mut self, row: &Row) -> Result<Option<Answer>> {
        if self.journal.rows() >= self.options.compact_after {
            self.compact()?;
        }
        self.journal.append(row)?;
        let answer = self.stored.step(row);
        if answer.is_err() && !self.options.keep_rejected {
            self.journal.retract()?;
            self.stored.retract();
        }
        answer
    }

    /// The number of rows that this journal has seen since it was begun.
    pub fn rows(&self) -> u64 {
        self.stored.seen() - self.stored.journal_from()
    }

    /// Writes a snapshot and empties the journal.
    pub fn compact(&mut self) -> Result<()> {
        self.journal.sync()?;
        save(&self.folder.join("model.wiski"), &self.stored)?;
        let (log, width) = (self.folder.join("journal.log"), self.stored.width());
        self.journal = Journal::create(&log, width, self.stored.seen(), self.options.sync)?;
        Ok(())
    }
}

/// Whether a journal holds no row yet, or is not there.
fn is_empty_journal(log: &Path) -> bool {
    fs::metadata(log).map_or(true, |meta| meta.len() <= super::log::HEADER_BYTES as u64)
}

/// Removes what a crash in the middle of writing left behind. The lock is held, so nobody is writing.
fn sweep(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let ours = name.starts_with(".model.wiski.") || name.starts_with(".journal.log.");
        if ours && std::path::Path::new(&name).extension().is_some_and(|e| e == "tmp") {
            // One that will not go does no harm.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn lock(path: &Path) -> Result<File> {
    let open = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let file = open.map_err(|e| failed(path, e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let reason = "another process is using this journal".into();
            Err(Error::File { path: path.display().to_string(), reason })
        }
        Err(TryLockError::Error(error)) => Err(failed(path, error)),
    }
}
