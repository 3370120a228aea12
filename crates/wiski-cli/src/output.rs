//! Writing CSV, to a pipe as it comes or to a file that appears only when it is complete.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, ErrorKind, Write},
    path::{Path, PathBuf},
    process,
};

use crate::input::Cells;

/// Why nothing more can be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Whoever read the output has had enough. This is no failure: end quietly.
    #[error("{file} was closed by its reader")]
    Closed { file: String },
    /// The disk is full, say.
    #[error("{file}: {why}")]
    Write { file: String, why: io::Error },
}

/// Prints a line on standard output; a closed pipe or a full disk is an error like any other.
pub(crate) fn say(text: impl std::fmt::Display) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|why| {
        let file = "standard output".to_owned();
        let closed = why.kind() == ErrorKind::BrokenPipe;
        if closed { Error::Closed { file }.into() } else { Error::Write { file, why }.into() }
    })
}

/// Whether an error came from a reader that had enough.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(cause.downcast_ref(), Some(Error::Closed { .. }))
            || cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
    })
}

/// An error with its causes in one line. A cause whose words its consequence ends with is not said twice.
pub(crate) fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string).filter(|cause| !cause.is_empty()) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// A specialized result.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Rows of CSV on their way out. Cells are added one by one; [`Output::end_row`] completes the row.
pub(crate) struct Output {
    name: String,
    /// The row so far, of so many cells.
    row: String,
    cells: usize,
    writer: BufWriter<Box<dyn Write + Send>>,
    draft: Option<Draft>,
}

impl Output {
    /// Writes to a file, or to standard output if `path` is `-`. A file is written beside its final place and gets
    /// there in [`Output::finish`]; until then, and for ever if anything fails, an older file stays as it is.
    pub(crate) fn open(path: &str) -> Result<Self> {
        if path == "-" {
            return Ok(Self::new("stdout", Box::new(io::stdout()), None));
        }
        let fail = |why| Error::Write { file: path.to_owned(), why };
        let old = fs::metadata(path).ok();
        if old.is_some() && wiski::persist::is_snapshot(Path::new(path)) {
            return Err(fail(io::Error::other("is a model, which would be lost")));
        }
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            // A device or a named pipe cannot be replaced.
            let file = OpenOptions::new().write(true).open(path).map_err(fail)?;
            return Ok(Self::new(path, Box::new(file), None));
        }
        let draft = Draft::create(Path::new(path), old.map(|old| old.permissions())).map_err(fail)?;
        let file = draft.file.try_clone().map_err(fail)?;
        Ok(Self::new(path, Box::new(file), Some(draft)))
    }

    fn new(name: &str, writer: Box<dyn Write + Send>, draft: Option<Draft>) -> Self {
        let writer = BufWriter::with_capacity(1 << 16, writer);
        Self { name: name.to_owned(), row: String::new(), cells: 0, writer, draft }
    }

    /// Adds a cell of text, in quotation marks if it needs them.
    pub(crate) fn text(&mut self, text: &str) {
        self.separate();
        // A cell of blanks might be taken for an empty line.
        let blank = !text.is_empty() && text.trim().is_empty();
        if blank || text.contains([',', '"', '\n', '\r']) {
            self.row.push('"');
            self.row += &text.replace('"', "\"\"");
            self.row.push('"');
        } else {
            self.row += text;
        }
    }

    /// Adds a number: the shortest text that reads back as the same number.
    pub(crate) fn number(&mut self, number: f64) {
        self.separate();
        push_number(&mut self.row, number);
    }

    /// Adds a number, or an empty cell if there is none.
    pub(crate) fn maybe(&mut self, number: Option<f64>) {
        match number {
            Some(number) => self.number(number),
            None => self.text(""),
        }
    }

    /// Adds all cells of a record that was read.
    pub(crate) fn cells(&mut self, cells: &Cells) {
        cells.iter().for_each(|cell| self.text(cell));
    }

    /// Completes the row. It stays in memory until there are many, or until [`Output::flush`].
    pub(crate) fn end_row(&mut self) -> Result<()> {
        if self.cells == 1 && self.row.is_empty() {
            self.row += "\"\"";
        }
        self.row.push('\n');
        let written = self.writer.write_all(self.row.as_bytes());
        self.row.clear();
        self.cells = 0;
        written.map_err(|why| self.error(why))
    }

    /// Adds a line of another format than CSV.
    pub(crate) fn line(&mut self, text: &str) -> Result<()> {
        let written = self.writer.write_all(text.as_bytes()).and_then(|()| self.writer.write_all(b"\n"));
        written.map_err(|why| self.error(why))
    }

    /// Passes on all complete rows.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.writer.flush().map_err(|why| self.error(why))
    }

    /// Passes on all complete rows and puts a file in its place.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.flush()?;
        self.draft.take().map_or(Ok(()), Draft::publish).map_err(|why| self.error(why))
    }

    fn separate(&mut self) {
        if self.cells > 0 {
            self.row.push(',');
        }
        self.cells += 1;
    }

    fn error(&self, why: io::Error) -> Error {
        let file = self.name.clone();
        if why.kind() == ErrorKind::BrokenPipe { Error::Closed { file } } else { Error::Write { file, why } }
    }
}

/// Appends the shortest text that reads back as the same number.
pub(crate) fn push_number(out: &mut String, number: f64) {
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format(number);
    *out += text.strip_suffix(".0").unwrap_or(text);
}

/// A file that is not yet in its place. It is removed unless it is published.
struct Draft {
    file: File,
    path: PathBuf,
    target: PathBuf,
    published: bool,
}

impl Draft {
    fn create(target: &Path, permissions: Option<fs::Permissions>) -> io::Result<Self> {
        // The file that a link points to is replaced, not the link.
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        let name = target.file_name().ok_or_else(|| io::Error::from(ErrorKind::IsADirectory))?;
        let path = target.with_file_name(format!(".{}.{}.part", name.display(), process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        let draft = Self { file, path, target, published: false };
        if let Some(permissions) = permissions {
            draft.file.set_permissions(permissions)?;
        }
        Ok(draft)
    }

    fn publish(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, &self.target)?;
        self.published = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.published {
            // Nothing more can be done about a file that will not go.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Bytes that a test can look at.
    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn to_memory() -> (Output, Memory) {
        let memory = Memory::default();
        (Output::new("memory", Box::new(memory.clone()), None), memory)
    }

    /// What `write` writes.
    pub(crate) fn written(write: impl FnOnce(&mut Output)) -> String {
        let (mut out, memory) = to_memory();
        write(&mut out);
        out.finish().unwrap();
        String::from_utf8(memory.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn cells_are_quoted_where_needed() {
        let row = |texts: &[&str]| {
            written(|out| {
                texts.iter().for_each(|text| out.text(text));
                out.end_row().unwrap();
            })
        };
        assert_eq!(row(&["a", "b c", "", "é;'"]), "a,b c,,é;'\n");
        assert_eq!(
            row(&["a,b", "say \"hi\"", "x\ny", "x\r"]),
            "\"a,b\",\"say \"\"hi\"\"\",\"x\ny\",\"x\r\"\n"
        );
        assert_eq!(row(&[""]), "\"\"\n");
        assert_eq!(row(&["  "]), "\"  \"\n");
        assert_eq!(row(&["", ""]), ",\n");
        assert_eq!(row(&[]), "\n");
    }

    #[test]
    fn numbers_are_short() {
        for (number, text) in [
            (1.0, "1"),
            (-0.5, "-0.5"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e300, "1e+300"),
            (-0.0, "-0"),
            (1e-7, "1e-7"),
        ] {
            let mut out = String::new();
            push_number(&mut out, number);
            assert_eq!(out, text);
        }
        let row = written(|out| {
            out.number(2.5);
            out.maybe(None);
            out.maybe(Some(100.0));
            out.end_row().unwrap();
        });
        assert_eq!(row, "2.5,,100\n");
    }

    #[test]
    fn rows_leave_when_flushed() {
        let (mut out, memory) = to_memory();
        out.number(1.0);
        out.end_row().unwrap();
        assert!(memory.0.lock().unwrap().is_empty());
        out.flush().unwrap();
        assert_eq!(*memory.0.lock().unwrap(), b"1\n");
    }

    #[test]
    fn a_closed_pipe_is_told_from_failures() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut out = Output::new("stdout", Box::new(writer), None);
        out.number(1.0);
        out.end_row().unwrap();
        assert!(matches!(out.finish(), Err(Error::Closed { .. })));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_named() {
        let mut out = Output::open("/dev/full").unwrap();
        out.number(1.0);
        out.end_row().unwrap();
        let message = out.finish().unwrap_err().to_string();
        assert!(message.starts_with("/dev/full: No space left"), "{message}");
    }

    #[test]
    fn a_file_appears_only_when_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.csv");
        let names = || fs::read_dir(dir.path()).unwrap().count();
        fs::write(&path, "old").unwrap();
        let begin = || {
            let mut out = Output::open(path.to_str().unwrap()).unwrap();
            out.text("new");
            out.end_row().unwrap();
            out.flush().unwrap();
            assert_eq!((fs::read_to_string(&path).unwrap(), names()), ("old".into(), 2));
            out
        };
        drop(begin());
        assert_eq!((fs::read_to_string(&path).unwrap(), names()), ("old".into(), 1));
        begin().finish().unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap(), names()), ("new\n".into(), 1));

        let nowhere = dir.path().join("none").join("out.csv");
        let message = Output::open(nowhere.to_str().unwrap()).err().unwrap().to_string();
        assert!(message.contains("out.csv: No such file"), "{message}");
        assert!(Output::open(dir.path().to_str().unwrap()).is_err());
    }

    #[test]
    #[cfg(unix)]
    fn links_and_permissions_stay() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("out.csv"), dir.path().join("link.csv"));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&path, &link).unwrap();
        let mut out = Output::open(link.to_str().unwrap()).unwrap();
        out.text("new");
        out.end_row().unwrap();
        out.finish().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "new\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }
}
