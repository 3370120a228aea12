//! What the user may say about a file.

use std::path::Path;

/// How to read a file. All of it can usually be told from the file itself.
#[derive(Debug, Clone, Default, PartialEq, clap::Args)]
pub(crate) struct Options {
    /// Format of the data [default: by the file's extension, else by its first bytes]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// Character between CSV fields [default: a comma, for .tsv a tab]
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    pub(crate) delimiter: Option<u8>,
    /// The first line of a CSV file is data; the columns are called c1, c2, …
    #[arg(long)]
    pub(crate) no_header: bool,
}

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, clap::ValueEnum)]
pub(crate) enum Format {
    /// A header, then a record a line; may be compressed with gzip
    Csv,
    /// A JSON object a line; may be compressed with gzip
    Ndjson,
    /// Apache Parquet
    Parquet,
}

impl Options {
    /// Adds what the file's extension says and the user did not.
    pub(super) fn or_by_extension(&self, path: &str) -> Self {
        let lower = path.to_lowercase();
        let path = Path::new(lower.strip_suffix(".gz").unwrap_or(&lower));
        let (format, delimiter) = match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => (Some(Format::Csv), None),
            Some("tsv" | "tab") => (Some(Format::Csv), Some(b'\t')),
            Some("ndjson" | "jsonl" | "json") => (Some(Format::Ndjson), None),
            Some("parquet") => (Some(Format::Parquet), None),
            _ => (None, None),
        };
        let (format, delimiter) = (self.format.or(format), self.delimiter.or(delimiter));
        Self { format, delimiter, no_header: self.no_header }
    }
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        _ if text == "tab" || text == "\\t" => Ok(b'\t'),
        [b'"' | b'\n' | b'\r'] => Err("this character has another meaning in CSV".into()),
        [byte] if byte.is_ascii() => Ok(*byte),
        _ => Err("one ASCII character is needed, or 'tab'".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delimiters() {
        assert_eq!(delimiter(";"), Ok(b';'));
        assert_eq!(delimiter("tab"), Ok(b'\t'));
        assert_eq!(delimiter("\\t"), Ok(b'\t'));
        assert_eq!(delimiter("\t"), Ok(b'\t'));
        for bad in ["", ";;", "é", "\"", "\n"] {
            assert!(delimiter(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn extensions() {
        let of = |path| Options::default().or_by_extension(path);
        assert_eq!(of("a.csv").format, Some(Format::Csv));
        assert_eq!(of("dir.json/a.CSV.gz").format, Some(Format::Csv));
        assert_eq!((of("a.tsv.gz").format, of("a.tsv").delimiter), (Some(Format::Csv), Some(b'\t')));
        for path in ["a.ndjson", "a.jsonl.gz", "a.json"] {
            assert_eq!(of(path).format, Some(Format::Ndjson), "{path}");
        }
        assert_eq!(of("a.parquet").format, Some(Format::Parquet));
        for path in ["-", "a", "a.txt", "a.gz", "a.csv/b"] {
            assert_eq!(of(path).format, None, "{path}");
        }
        let said = Options { format: Some(Format::Ndjson), delimiter: Some(b';'), no_header: true };
        assert_eq!(said.or_by_extension("a.tsv"), said);
    }
}
