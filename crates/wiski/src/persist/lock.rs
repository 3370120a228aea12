//! One process at a time: a lock file beside the file that it guards.
//!
//! A command that reads a model, changes it and writes it back would undo what another one wrote in between. It
//! therefore holds the lock of the file from before it reads until after it has written. The lock is the operating
//! system's, on `.NAME.lock` beside the file: the file itself is replaced by every write, so a lock on it would be
//! lost with the old one. A process that dies releases its lock.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::file::failed;
use crate::error::{Error, Result};

/// The right to change a file, until it is dropped.
#[derive(Debug)]
pub struct FileLock {
    file: File,
    path: PathBuf,
}

impl FileLock {
    /// Locks a file, which need not exist yet, for this process alone. While another process holds the lock, waits up
    /// to the given time and is then rejected.
    pub fn acquire(path: &Path, patience: Duration) -> Result<Self> {
        let lock = beside(path).map_err(|e| failed(path, e))?;
        let start = Instant::now();
        loop {
            match try_lock(&lock) {
                Ok(Some(file)) => return Ok(Self { file, path: lock }),
                Ok(None) if start.elapsed() >= patience => {
                    let reason = format!(
                        "another process is changing this file, and was not done after {:.1} s; nothing was changed here",
                        start.elapsed().as_secs_f64()
                    );
                    return Err(Error::File { path: path.display().to_string(), reason });
                }
                Ok(None) => thread::sleep(Duration::from_millis(10)),
                Err(error) => return Err(failed(path, error)),
            }
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Removed while it is still held: whoever waits for it then finds that it is no longer in its place, and
        // begins anew. Where that cannot be found out, it stays.
        if cfg!(unix) {
            let _ = fs::remove_file(&self.path);
        }
        let _ = self.file.unlock();
    }
}

/// The lock file of a file; links lead to the same one.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = path.file_name().ok_or_else(|| io::Error::other("not the name of a file"))?;
    let mut lock = OsString::from(".");
    lock.push(name);
    lock.push(".lock");
    Ok(path.with_file_name(lock))
}

/// The locked file; `None` if another process has it.
fn try_lock(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    match file.try_lock() {
        Ok(()) if in_place(&file, path) => Ok(Some(file)),
        Ok(()) | Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Whether the open file is still the one of that name.
#[cfg(unix)]
fn in_place(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(own), Ok(there)) => identity(own) == identity(there),
        _ => false,
    }
}

/// Lock files are never removed here, so every open one is in its place.
#[cfg(not(unix))]
fn in_place(_: &File, _: &Path) -> bool {
    true
}
