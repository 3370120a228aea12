//! Snapshots in files: whole, or not there.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::snapshot::{Header, MAGIC, Persistent, read, to_bytes};
use crate::error::{Error, Result};

/// Writes a value to a file: whole, or not at all. The file that was there stays until the new one is safe.
pub fn save<T: Persistent>(path: &Path, value: &T) -> Result<()> {
    let bytes = to_bytes(value)?;
    write_atomically(path, &bytes).map_err(|e| failed(path, e))
}

/// Reads a value from a file.
pub fn load<T: Persistent>(path: &Path) -> Result<T> {
    let bytes = fs::read(path).map_err(|e| failed(path, e))?;
    read(&bytes).map_err(|reason| Error::File { path: path.display().to_string(), reason })
}

/// Reads and checks the header of a file.
pub fn header(path: &Path) -> Result<Header> {
    let bytes = fs::read(path).map_err(|e| failed(path, e))?;
    let header = Header::parse(&bytes).and_then(|h| h.body(&bytes).map(|_| h));
    header.map_err(|reason| Error::File { path: path.display().to_string(), reason })
}

/// Whether a file begins as a snapshot does; what follows may still be damaged.
pub fn is_snapshot(path: &Path) -> bool {
    let mut magic = [0; MAGIC.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == MAGIC
}

/// An error of the operating system about a file.
pub(super) fn failed(path: &Path, error: io::Error) -> Error {
    Error::Io { path: path.display().to_string(), source: error.into() }
}

/// Writes a file beside its place, brings it to the disk and renames it: after a crash at any moment the old
/// content or the new one is there.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // The file that a link points to is replaced, not the link; a device is not replaced at all.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let old = fs::metadata(path).ok();
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return Err(io::Error::other("is not a regular file, and is not replaced"));
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let name = path.file_name().ok_or_else(|| io::Error::other("not the name of a file"))?;
    let unique = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.{unique}.tmp", std::process::id()));
    let temporary: PathBuf = folder.join(temporary);
    let written = (|| {
        let mut file = File::create(&temporary)?;
        if let Some(old) = &old {
            file.set_permissions(old.permissions())?;
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        // Best effort: what matters is that the old file is untouched.
        let _ = fs::remove_file(&temporary);
        return written;
    }
    // The new name itself must reach the disk; where folders cannot be opened, renaming is all there is.
    File::open(folder).and_then(|f| f.sync_all()).or(Ok(()))
}
