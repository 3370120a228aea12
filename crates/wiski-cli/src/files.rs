//! Files that a command writes: one process at a time, and never in place of something that it reads.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;
use wiski::persist::{self, FileLock};

/// How long to wait for another process.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct Waiting {
    /// Wait so many seconds while another process is changing the same file, then give up
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, allow_negative_numbers = true)]
    wait: f64,
}

impl Waiting {
    /// The right to change a file, until it is dropped. To be taken before the file is read.
    pub(crate) fn lock(self, path: &Path) -> Result<FileLock> {
        let patience = Duration::try_from_secs_f64(self.wait);
        let Ok(patience) = patience else { bail!("--wait: {} is not a number of seconds", self.wait) };
        Ok(FileLock::acquire(path, patience)?)
    }
}

/// What a command reads, under the names that messages use: no output may take the place of one of these.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inputs(Vec<(&'static str, PathBuf)>);

impl Inputs {
    /// Adds a file; `-` is no file.
    #[must_use]
    pub(crate) fn and(mut self, what: &'static str, path: impl AsRef<Path>) -> Self {
        if path.as_ref() != Path::new("-") {
            self.0.push((what, path.as_ref().to_owned()));
        }
        self
    }

    /// Adds the files of a journal, whether or not they are there yet.
    #[must_use]
    pub(crate) fn and_journal(self, folder: Option<&Path>) -> Self {
        let Some(folder) = folder else { return self };
        ["model.wiski", "journal.log", "lock"]
            .iter()
            .fold(self, |inputs, name| inputs.and("a file of the journal", folder.join(name)))
    }

    /// Rejects an output that is one of the inputs, by whatever path or link.
    pub(crate) fn keep(&self, option: &str, output: impl AsRef<Path>) -> Result<()> {
        let output = output.as_ref();
        if output == Path::new("-") {
            return Ok(());
        }
        for (what, input) in &self.0 {
            ensure!(!is_same(input, output), "{option}: {} is {what}, which would be lost", output.display());
        }
        Ok(())
    }

    /// As [`Inputs::keep`], for a model or state: it does not take the place of a file of another kind either.
    pub(crate) fn keep_from_model(&self, option: &str, output: &Path) -> Result<()> {
        self.keep(option, output)?;
        let folder = output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        ensure!(folder.is_dir(), "{}: there is no folder {}", output.display(), folder.display());
        ensure!(!output.is_dir(), "{} is a folder", output.display());
        let is_foreign = fs::metadata(output).is_ok_and(|meta| meta.is_file() && meta.len() > 0)
            && !persist::is_snapshot(output);
        ensure!(!is_foreign, "{option}: {}: not a wiski file, so no model takes its place", output.display());
        Ok(())
    }
}

/// Whether two paths lead to the same file: through links of both kinds, and for files that do not exist yet by name.
fn is_same(a: &Path, b: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        if let (Ok(a), Ok(b)) = (fs::metadata(a), fs::metadata(b)) {
            return (a.dev(), a.ino()) == (b.dev(), b.ino());
        }
    }
    match (resolved(a), resolved(b)) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

/// The absolute path of a file; of one that does not exist, in its folder.
fn resolved(path: &Path) -> Option<PathBuf> {
    if let Ok(path) = fs::canonicalize(path) {
        return Some(path);
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(fs::canonicalize(folder).ok()?.join(path.file_name()?))
}
