//! A file or pipe whose columns are known and of which no row has been read.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read},
};

use wiski::persist::Reading;

use super::{
    Format, Options, Records, Result, Rows, Selection, bytes,
    csv::{Csv, Head},
    error::{BadRow, Error, Fault, short},
    lines::Lines,
    ndjson::Ndjson,
    parquet::Parquet,
};

/// A file or pipe with named columns.
pub(crate) struct Source {
    name: String,
    records: Box<dyn Records>,
}

/// The inputs that a source suggests.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Inferred {
    /// The columns of numbers.
    pub(crate) inputs: Vec<String>,
    /// The columns that were left out, since they hold no numbers, or have no name, as a row index often has none.
    pub(crate) left_out: Vec<String>,
}

impl Source {
    /// Opens a file, or standard input if `path` is `-`. If the format is neither given nor told by the extension, it
    /// is Parquet or NDJSON if the first bytes say so, else CSV.
    pub(crate) fn open(path: &str, options: &Options) -> Result<Self> {
        if path == "-" {
            return Self::from_stream("stdin", io::stdin(), None, options);
        }
        let fail = |why| Error::Open { file: path.to_owned(), why };
        let options = options.or_by_extension(path);
        let file = File::open(path).map_err(fail)?;
        let meta = file.metadata().map_err(fail)?;
        if meta.is_dir() {
            return Err(fail(io::ErrorKind::IsADirectory.into()));
        }
        if meta.is_file() && options.format.map_or_else(|| begins_as_parquet(path), |f| f == Format::Parquet)
        {
            let records = Box::new(Parquet::open(file).map_err(fail)?);
            return Ok(Self { name: path.to_owned(), records });
        }
        Self::from_stream(path, file, meta.is_file().then_some(meta.len()), &options)
    }

    /// Takes a stream of bytes, the number of which may be known.
    pub(crate) fn from_stream(
        name: &str,
        stream: impl Read + Send + 'static,
        total: Option<u64>,
        options: &Options,
    ) -> Result<Self> {
        let name = name.to_owned();
        let fail = |why| Error::Open { file: name.clone(), why };
        let header = |fault| match fault {
            Fault::Read(why) => fail(why),
            Fault::Record(_, what) => Error::Header { file: name.clone(), what },
        };
        let empty = |needed| Error::Empty { file: name.clone(), needed };
        let (mut stream, progress) = bytes::open(stream, total).map_err(fail)?;
        let mut magic = Vec::with_capacity(PARQUET.len());
        if options.format.is_none_or(|format| format == Format::Parquet) {
            // Byte by byte, so that a line shorter than this is not waited for.
            while magic.len() < PARQUET.len()
                && PARQUET.starts_with(&magic)
                && stream.by_ref().take(1).read_to_end(&mut magic).map_err(fail)? > 0
            {}
        }
        let is_parquet = options.format == Some(Format::Parquet) || magic == PARQUET;
        let stream: bytes::Stream = Box::new(io::Cursor::new(magic).chain(stream));
        if is_parquet {
            let records = Box::new(Parquet::from_pipe(stream).map_err(fail)?);
            return Ok(Self { name, records });
        }
        let mut lines = Lines::new(stream).map_err(fail)?;
        let first = lines.peek().map_err(fail)?;
        let records: Box<dyn Records> = match (options.format, first) {
            (Some(Format::Ndjson), Some(b'[')) => {
                return Err(fail(io::Error::other(
                    "a JSON array; one object a line is needed, as jq -c '.[]' writes",
                )));
            }
            (Some(Format::Ndjson), _) | (None, Some(b'{')) => {
                let json = Ndjson::open(lines, progress).map_err(header)?;
                Box::new(json.ok_or_else(|| empty("a JSON object a line"))?)
            }
            (Some(Format::Csv | Format::Parquet) | None, _) => {
                let delimiter = options.delimiter.unwrap_or(b',');
                match Csv::open(lines, progress, delimiter, !options.no_header).map_err(header)? {
                    Head::Names(csv) => Box::new(csv),
                    Head::Empty if options.no_header => return Err(empty("at least one row")),
                    Head::Empty => return Err(empty("a header line with column names")),
                    Head::Numbers => return Err(Error::NoHeader { file: name }),
                }
            }
        };
        Ok(Self { name, records })
    }

    /// The names of the columns. NDJSON has the keys of its first record, Parquet its outermost columns.
    pub(crate) fn columns(&self) -> &[String] {
        self.records.columns()
    }

    /// The file's name, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Which columns hold numbers, judged by the first row or by Parquet's schema. A first row that is itself bad is an
    /// error. From a pipe, this waits for the first row.
    fn numeric(&mut self) -> Result<Vec<bool>> {
        self.records.numeric().map_err(|fault| match fault {
            Fault::Read(why) => Error::Read { file: self.name.clone(), row: 0, why },
            Fault::Record(column, what) => {
                let column = column.map(|column| self.columns()[column].clone());
                let (file, line) = (self.name.clone(), self.records.line());
                Error::BadRow(Box::new(BadRow { file, row: 1, line, column, what }))
            }
        })
    }

    /// Whether a column holds plain numbers.
    pub(crate) fn is_numeric(&mut self, name: &str) -> Result<bool> {
        let place = self.find(name)?;
        Ok(self.numeric()?[place])
    }

    /// The different texts of a column, sorted; `None` if there are more than `limit`. Bad rows count for nothing.
    pub(crate) fn levels(mut self, name: &str, limit: usize) -> Result<Option<Vec<String>>> {
        let place = self.find(name)?;
        self.records.keep(place);
        let (mut found, mut row, mut text) = (BTreeSet::new(), 0, String::new());
        loop {
            match self.records.advance() {
                Ok(false) => return Ok(Some(found.into_iter().collect())),
                Ok(true) => row += 1,
                Err(Fault::Record(..)) => {
                    row += 1;
                    continue;
                }
                Err(Fault::Read(why)) => return Err(Error::Read { file: self.name, row, why }),
            }
            if self.records.value(place).label(&mut text).is_ok() && !found.contains(&text) {
                if found.len() == limit {
                    return Ok(None);
                }
                found.insert(text.clone());
            }
        }
    }

    /// All columns of numbers but those excepted, and others that are wanted all the same, in the order of the file.
    pub(crate) fn infer_inputs(&mut self, except: &[&str], wanted: &[&str]) -> Result<Inferred> {
        let numeric = self.numeric()?;
        let mut inferred = Inferred { inputs: Vec::new(), left_out: Vec::new() };
        for (name, numeric) in self.columns().iter().zip(numeric) {
            let wanted = wanted.contains(&name.as_str());
            if except.contains(&name.as_str()) && !wanted {
                continue;
            }
            let usable = wanted || numeric && !name.is_empty();
            if usable { &mut inferred.inputs } else { &mut inferred.left_out }.push(name.clone());
        }
        Ok(inferred)
    }

    /// Picks columns by name.
    pub(crate) fn select(mut self, selection: &Selection) -> Result<Rows> {
        let all = |names: &[String]| names.iter().map(|name| self.find(name)).collect::<Result<Vec<_>>>();
        let one = |name: &Option<String>| name.as_ref().map(|name| self.find(name)).transpose();
        let inputs = all(&selection.inputs)?;
        let readings = selection.readings.iter().cloned().chain(std::iter::repeat(Reading::Number));
        let (noise, time) = (one(&selection.noise)?, one(&selection.time)?);
        let target = match &selection.target {
            Some(target) => Some((self.find(&target.column)?, target.clone())),
            None => None,
        };
        if let Some((column, target)) = &target
            && inputs.contains(column)
        {
            return Err(Error::TargetIsInput { file: self.name, name: target.column.clone() });
        }
        let others = target.iter().map(|(column, _)| *column).chain(noise).chain(time);
        let all = if selection.cells { 0..self.columns().len() } else { 0..0 };
        inputs.iter().copied().chain(others).chain(all).for_each(|column| self.records.keep(column));
        let inputs = inputs.into_iter().zip(readings).collect();
        let (name, records, cells) = (self.name, self.records, selection.cells);
        Ok(Rows { name, records, inputs, target, noise, time, cells, may_lack: false, number: 0 })
    }

    /// The place of a column; an error that helps if there is none, or several.
    pub(crate) fn find(&self, name: &str) -> Result<usize> {
        let columns = self.columns();
        let mut found = columns.iter().enumerate().filter(|(_, column)| *column == name);
        let file = self.name.clone();
        match (found.next(), found.count()) {
            (Some((column, _)), 0) => Ok(column),
            (Some(_), more) => Err(Error::DuplicateColumn { file, name: name.to_owned(), count: more + 1 }),
            (None, _) => {
                let hint = hint(name, columns);
                Err(Error::UnknownColumn { file, name: name.to_owned(), hint, columns: list(columns) })
            }
        }
    }
}

/// How a Parquet file begins.
const PARQUET: &[u8] = b"PAR1";

fn begins_as_parquet(path: &str) -> bool {
    let mut magic = [0; PARQUET.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == PARQUET
}

/// What may have been meant by a column that does not exist.
fn hint(name: &str, columns: &[String]) -> String {
    if let [only] = columns
        && let Some(delimiter) = [';', '\t', '|', ' '].into_iter().find(|&delimiter| only.contains(delimiter))
    {
        return format!("is the delimiter '{}'? ", short(&delimiter.to_string()));
    }
    let distance =
        |column: &String| strsim::damerau_levenshtein(&column.to_lowercase(), &name.to_lowercase());
    match columns.iter().min_by_key(|column| distance(column)) {
        Some(closest) if distance(closest) <= 1 + name.chars().count() / 4 => {
            format!("did you mean '{}'? ", short(closest))
        }
        _ => String::new(),
    }
}

/// The names of the columns, of which the first few will do.
fn list(columns: &[String]) -> String {
    const SHOWN: usize = 20;
    let shown: Vec<_> = columns.iter().take(SHOWN).map(|column| short(column)).collect();
    let more = columns.len().saturating_sub(SHOWN);
    shown.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}
