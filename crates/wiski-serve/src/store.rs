//! A model in its folder: a snapshot and the journal since.
//!
//! ```text
//! NAME/model-G.wiski     the snapshot of generation G
//! NAME/journal-G.log     the changes since: one record a request, the first with the keys known by then
//! ```
//!
//! A generation counts once both files are there; the one before is removed after that. So a crash at any moment leaves
//! one that is whole. A request is one record: its rows and its idempotency key are there together or not at all.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wiski::model::Upkeep;
use wiski::persist::{FileLock, Log, Mark};
use wiski::{Error, Result};

use crate::op::{Entry, Kept, Keys};
use crate::served::Served;

const MAGIC: [u8; 8] = *b"\x89WISKS\r\n";
/// The version of the records.
const RECORDS: u32 = 1;
/// How long to wait for another process that is just letting go of the folder.
const PATIENCE: Duration = Duration::from_secs(5);

/// A record of the journal.
#[derive(Debug, Serialize, Deserialize)]
enum Record {
    /// The keys that were known when the journal was begun.
    Keys(Vec<Kept>),
    /// A change.
    Entry(Entry),
}

/// The folder of a model, locked, with its journal open.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    generation: u64,
    log: Log,
    /// Rows in the journal.
    rows: u64,
    /// The size of the snapshot.
    snapshot_bytes: u64,
    record: Vec<u8>,
    lock: Option<FileLock>,
}

/// What was in a folder.
#[derive(Debug)]
pub struct Opened {
    /// The folder.
    pub store: Store,
    /// The model, with the whole journal replayed.
    pub served: Served,
    /// The keys.
    pub keys: Keys,
    /// Changes that were replayed.
    pub replayed: u64,
}

impl Store {
    /// Makes the folder of a new model, which must not exist.
    pub fn create(folder: &Path, served: &Served) -> Result<()> {
        // Made under another name: a folder of the model's name is always whole.
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let new = folder.with_file_name(format!(".new-{name}"));
        let failed = |e: std::io::Error| io_error(folder, e);
        if new.exists() {
            fs::remove_dir_all(&new).map_err(failed)?;
        }
        fs::create_dir_all(&new).map_err(failed)?;
        served.save(&snapshot_path(&new, 1))?;
        begin_journal(&new, 1, 0, &Keys::default())?;
        fs::rename(&new, folder).map_err(failed)?;
        sync_folder(folder.parent().unwrap_or(folder));
        Ok(())
    }

    /// Opens a folder, reads its newest whole generation and replays the journal.
    pub fn open(folder: &Path, keys: usize, upkeep: Upkeep) -> Result<Opened> {
        let lock = FileLock::acquire(&folder.join("model"), PATIENCE)?;
        let generation = newest(folder)?.ok_or_else(|| Error::File {
            path: folder.display().to_string(),
            reason: "there is no snapshot with its journal".into(),
        })?;
        sweep(folder, generation);
        let snapshot = snapshot_path(folder, generation);
        let snapshot_bytes = fs::metadata(&snapshot).map_or(0, |m| m.len());
        let mut served = Served::load(&snapshot)?;
        served.set_upkeep(upkeep);
        let path = journal_path(folder, generation);
        let (mut keys, mut rows, mut replayed) = (Keys::new(keys), 0, 0);
        let check = |version: u32| match version {
            RECORDS => Ok(()),
            other => Err(format!("records of version {other}, but this program reads version {RECORDS}")),
        };
        let (log, _) = Log::open(&path, MAGIC, check, |record| {
            let reject = |e: rmp_serde::decode::Error| Error::File {
                path: path.display().to_string(),
                reason: format!("damaged at byte {}: {e}", record.at),
            };
            match rmp_serde::from_slice(record.body).map_err(reject)? {
                Record::Keys(list) => list.into_iter().for_each(|k| keys.insert(k.key, k.digest, k.reply)),
                Record::Entry(Entry { key, op }) => {
                    rows += op.rows() as u64;
                    replayed += 1;
                    let reply = served.apply(&op, &mut |_| {});
                    if let Some(key) = key {
                        keys.insert(key, op.digest(), reply);
                    }
                }
            }
            Ok(())
        })?;
        let folder = folder.to_owned();
        let store =
            Self { folder, generation, log, rows, snapshot_bytes, record: Vec::new(), lock: Some(lock) };
        Ok(Opened { store, served, keys, replayed })
    }

    /// Appends a change; it is safe after the next [`Store::sync`].
    pub fn append(&mut self, entry: Entry) -> Result<Entry> {
        let rows = entry.op.rows() as u64;
        let record = Record::Entry(entry);
        self.record.clear();
        rmp_serde::encode::write(&mut self.record, &record).map_err(|e| Error::File {
            path: self.log.path().display().to_string(),
            reason: e.to_string(),
        })?;
        let bytes = &self.record;
        self.log.append(|out| out.extend_from_slice(bytes))?;
        self.rows += rows;
        match record {
            Record::Entry(entry) => Ok(entry),
            Record::Keys(_) => Err(Error::Unsupported { operation: "append", reason: "not a change" }),
        }
    }

    /// Brings all appended changes to the disk.
    pub fn sync(&mut self) -> Result<()> {
        self.log.sync()
    }

    /// Where the journal ends.
    pub fn mark(&self) -> Mark {
        self.log.mark()
    }

    /// Takes back the changes since the mark.
    pub fn rewind(&mut self, mark: Mark) -> Result<()> {
        self.log.rewind(mark)?;
        self.log.sync()
    }

    /// Lets go of the folder, so that it can be opened again.
    pub fn release(&mut self) {
        self.lock = None;
    }

    /// Rows in the journal.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Changes in the journal.
    pub fn records(&self) -> u64 {
        self.log.records()
    }

    /// The size of the snapshot.
    pub fn snapshot_bytes(&self) -> u64 {
        self.snapshot_bytes
    }

    /// Writes a new snapshot and begins a new journal.
    pub fn compact(&mut self, served: &Served, keys: &Keys) -> Result<()> {
        let next = self.generation + 1;
        let snapshot = snapshot_path(&self.folder, next);
        served.save(&snapshot)?;
        let log = begin_journal(&self.folder, next, self.log.last(), keys)?;
        (self.log, self.generation, self.rows) = (log, next, 0);
        self.snapshot_bytes = fs::metadata(&snapshot).map_or(0, |m| m.len());
        sweep(&self.folder, next);
        Ok(())
    }
}

/// Begins the journal of a generation: under another name until its keys are safe.
fn begin_journal(folder: &Path, generation: u64, start: u64, keys: &Keys) -> Result<Log> {
    let new = folder.join("new.log");
    let mut log = Log::create(&new, MAGIC, RECORDS, start)?;
    let path = journal_path(folder, generation);
    let body = rmp_serde::to_vec(&Record::Keys(keys.list()))
        .map_err(|e| Error::File { path: path.display().to_string(), reason: e.to_string() })?;
    log.append(|out| out.extend_from_slice(&body))?;
    log.sync()?;
    drop(log);
    fs::rename(&new, &path).map_err(|e| io_error(&path, e))?;
    sync_folder(folder);
    let (log, _) = Log::open(&path, MAGIC, |_| Ok(()), |_| Ok(()))?;
    Ok(log)
}

fn snapshot_path(folder: &Path, generation: u64) -> PathBuf {
    folder.join(format!("model-{generation}.wiski"))
}

fn journal_path(folder: &Path, generation: u64) -> PathBuf {
    folder.join(format!("journal-{generation}.log"))
}

/// Whether a folder holds a model.
pub fn holds_model(folder: &Path) -> bool {
    newest(folder).is_ok_and(|found| found.is_some())
}

/// The newest generation of which both files are there.
fn newest(folder: &Path) -> Result<Option<u64>> {
    let entries = fs::read_dir(folder).map_err(|e| io_error(folder, e))?;
    let generation = |name: &str| name.strip_prefix("journal-")?.strip_suffix(".log")?.parse().ok();
    let all = entries.flatten().filter_map(|entry| generation(&entry.file_name().to_string_lossy()));
    Ok(all.filter(|&g| snapshot_path(folder, g).is_file()).max())
}

/// Removes everything that is not of this generation; what will not go does no harm.
fn sweep(folder: &Path, generation: u64) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let keep = [snapshot_path(folder, generation), journal_path(folder, generation)];
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let ours = name.starts_with("model-")
            || name.starts_with("journal-")
            || name == "new.log"
            || name.starts_with(".model-")
            || name.starts_with(".new.log.");
        if ours && !keep.contains(&path) {
            let _ = fs::remove_file(path);
        }
    }
}

/// A new name must reach the disk, too; where folders cannot be opened, renaming is all there is.
fn sync_folder(folder: &Path) {
    let _ = File::open(folder).and_then(|f| f.sync_all());
}

/// An error of the operating system about a path.
pub fn io_error(path: &Path, error: std::io::Error) -> Error {
    Error::Io { path: path.display().to_string(), source: error.into() }
}
