//! Parquet: typed columns in groups of rows. Only the columns asked for are read, a batch of rows at a time.

use std::{
    cell::Cell,
    fs::File,
    io::{self, Read},
    panic::{self, AssertUnwindSafe},
    sync::Once,
};

use bytes::Bytes;
use parquet::{
    basic::{ConvertedType, LogicalType, TimeUnit, Type},
    column::reader::{ColumnReader, ColumnReaderImpl},
    data_type::DataType,
    errors::ParquetError,
    file::reader::{FileReader, SerializedFileReader},
    schema::types::ColumnDescriptor,
};

use super::{Records, error::Fault, value::Value};

/// Rows decoded at once.
const BATCH: usize = 1024;

/// A reader of Parquet.
pub(super) struct Parquet {
    file: Box<dyn FileReader>,
    /// The names of the outermost columns.
    columns: Vec<String>,
    /// For each of them, where its values lie, unless it is nested.
    leaves: Vec<Option<Leaf>>,
    /// For each of them, the values of the batch at hand if the column is kept.
    batch: Vec<Option<Vec<Datum>>>,
    /// The number of the row at hand, within the batch.
    row: usize,
    rows: usize,
    /// For each kept leaf, its column's number and the rest of its values in this group.
    readers: Vec<(usize, ColumnReader)>,
    group: usize,
    left_in_group: usize,
    rows_read: u64,
    rows_in_file: u64,
}

#[derive(Clone, Copy)]
struct Leaf {
    number: usize,
    kind: Kind,
    nullable: bool,
}

/// How the stored values are to be understood.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    Unsigned,
    Decimal {
        scale: usize,
    },
    /// So many nanoseconds a unit.
    Time(i128),
    Half,
    Text,
    Binary,
}

enum Datum {
    Null,
    Int(i128),
    Float(f64),
    Bool(bool),
    Time(i128),
    Text(String),
    Decimal(String),
    Binary,
}

/// A Parquet file is read from its end, so one that comes through a pipe is kept whole, up to this size.
const LARGEST_PIPED: u64 = 1 << 30;

impl Parquet {
    /// Reads a file.
    pub(super) fn open(file: File) -> io::Result<Self> {
        guarded(|| Ok(Self::from_chunks(SerializedFileReader::new(file)?)))
    }

    /// Reads a pipe to its end.
    pub(super) fn from_pipe(stream: impl Read) -> io::Result<Self> {
        let mut whole = Vec::new();
        stream.take(LARGEST_PIPED + 1).read_to_end(&mut whole)?;
        if whole.len() as u64 > LARGEST_PIPED {
            let reason =
                format!("more than {} MiB of Parquet from a pipe; give it as a file", LARGEST_PIPED >> 20);
            return Err(io::Error::other(reason));
        }
        guarded(|| Ok(Self::from_chunks(SerializedFileReader::new(Bytes::from(whole))?)))
    }

    fn from_chunks(file: impl FileReader + 'static) -> Self {
        let file: Box<dyn FileReader> = Box::new(file);
        let meta = file.metadata().file_metadata();
        let schema = meta.schema_descr();
        let fields = schema.root_schema().get_fields();
        let columns: Vec<_> = fields.iter().map(|field| field.name().to_owned()).collect();
        let mut leaves = vec![None; columns.len()];
        for number in 0..schema.num_columns() {
            let column = schema.column(number);
            let root = schema.get_column_root_idx(number);
            if fields[root].is_primitive() && column.max_rep_level() == 0 {
                leaves[root] =
                    Some(Leaf { number, kind: kind(&column), nullable: column.max_def_level() > 0 });
            }
        }
        let rows_in_file = meta.num_rows().max(0) as u64;
        Self {
            file,
            batch: columns.iter().map(|_| None).collect(),
            columns,
            leaves,
            row: 0,
            rows: 0,
            readers: Vec::new(),
            group: 0,
            left_in_group: 0,
            rows_read: 0,
            rows_in_file,
        }
    }

    /// Decodes the next batch; `false` if there is none.
    fn next_batch(&mut self) -> io::Result<bool> {
        while self.left_in_group == 0 {
            if self.group == self.file.num_row_groups() {
                return Ok(false);
            }
            let group = self.file.get_row_group(self.group)?;
            self.group += 1;
            self.left_in_group = group.metadata().num_rows().max(0) as usize;
            self.readers.clear();
            for (column, leaf) in self.leaves.iter().enumerate() {
                if let (Some(leaf), Some(_)) = (leaf, &self.batch[column]) {
                    self.readers.push((column, group.get_column_reader(leaf.number)?));
                }
            }
        }
        self.row = 0;
        self.rows = self.left_in_group.min(BATCH);
        self.left_in_group -= self.rows;
        for (column, reader) in &mut self.readers {
            if let (Some(leaf), Some(batch)) = (self.leaves[*column], &mut self.batch[*column]) {
                batch.clear();
                decode(reader, leaf, self.rows, batch)?;
            }
        }
        Ok(true)
    }
}

impl Records for Parquet {
    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn keep(&mut self, column: usize) {
        self.batch[column] = self.leaves[column].map(|_| Vec::with_capacity(BATCH));
    }

    fn numeric(&mut self) -> Result<Vec<bool>, Fault> {
        let numeric = |leaf: &Leaf| !matches!(leaf.kind, Kind::Time(_) | Kind::Text | Kind::Binary);
        Ok(self.leaves.iter().map(|leaf| leaf.as_ref().is_some_and(numeric)).collect())
    }

    fn advance(&mut self) -> Result<bool, Fault> {
        self.row += 1;
        if self.row >= self.rows && !guarded(|| self.next_batch())? {
            return Ok(false);
        }
        self.rows_read += 1;
        Ok(true)
    }

    fn value(&self, column: usize) -> Value<'_> {
        let Some(batch) = &self.batch[column] else {
            return Value::Other { kind: "a nested column", text: "" };
        };
        match &batch[self.row] {
            Datum::Null => Value::Null,
            Datum::Int(number) => Value::Int(*number),
            Datum::Float(number) => Value::Float(*number),
            Datum::Bool(truth) => Value::Bool(*truth),
            Datum::Time(nanoseconds) => Value::Time(*nanoseconds),
            Datum::Text(text) => Value::Text(text),
            Datum::Decimal(text) => Value::Literal(text),
            Datum::Binary => Value::Other { kind: "binary data", text: "" },
        }
    }

    fn line(&self) -> Option<u64> {
        None
    }

    fn progress(&self) -> Option<(u64, u64)> {
        Some((self.rows_read, self.rows_in_file))
    }
}

/// Runs the decoder, which panics on some damaged pages (a dictionary that a page asks for and the file does not have)
/// where it should report them: here they are an error like any other.
fn guarded<T>(decode: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    thread_local!(static DECODING: Cell<bool> = const { Cell::new(false) });
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !DECODING.get() {
                usual(info);
            }
        }));
    });
    DECODING.set(true);
    let done = panic::catch_unwind(AssertUnwindSafe(decode));
    DECODING.set(false);
    done.unwrap_or_else(|cause| {
        let text = cause.downcast_ref::<String>().map(String::as_str);
        let reason = text.or(cause.downcast_ref::<&str>().copied()).unwrap_or("it cannot be decoded");
        Err(io::Error::new(io::ErrorKind::InvalidData, format!("damaged Parquet: {reason}")))
    })
}

/// Older files have only the converted type, newer ones the logical type.
fn kind(column: &ColumnDescriptor) -> Kind {
    const DAY: i128 = 86_400_000_000_000;
    let unit = |unit: &TimeUnit| match unit {
        TimeUnit::MILLIS => 1_000_000,
        TimeUnit::MICROS => 1_000,
        TimeUnit::NANOS => 1,
    };
    let scale = column.type_scale().max(0) as usize;
    match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::Integer(int)), _) if !int.is_signed => Kind::Unsigned,
        (Some(LogicalType::Decimal(_)), _) | (None, ConvertedType::DECIMAL) => Kind::Decimal { scale },
        (Some(LogicalType::Date), _) | (None, ConvertedType::DATE) => Kind::Time(DAY),
        (Some(LogicalType::Timestamp(stamp)), _) => Kind::Time(unit(&stamp.unit)),
        (Some(LogicalType::Float16), _) => Kind::Half,
        (None, ConvertedType::TIMESTAMP_MILLIS) => Kind::Time(1_000_000),
        (None, ConvertedType::TIMESTAMP_MICROS) => Kind::Time(1_000),
        (
            None,
            ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64,
        ) => Kind::Unsigned,
        _ => match column.physical_type() {
            Type::INT96 => Kind::Time(1),
            Type::BYTE_ARRAY => Kind::Text,
            Type::FIXED_LEN_BYTE_ARRAY => Kind::Binary,
            _ => Kind::Plain,
        },
    }
}

/// Decodes the next `rows` values of a column.
fn decode(reader: &mut ColumnReader, leaf: Leaf, rows: usize, out: &mut Vec<Datum>) -> io::Result<()> {
    let kind = leaf.kind;
    let int = |number: i128, unsigned: i128| match kind {
        Kind::Unsigned => Datum::Int(unsigned),
        Kind::Decimal { scale } => Datum::Decimal(decimal(number, scale)),
        Kind::Time(unit) => Datum::Time(number * unit),
        _ => Datum::Int(number),
    };
    match reader {
        ColumnReader::BoolColumnReader(r) => read(r, leaf, rows, out, |&truth| Datum::Bool(truth)),
        ColumnReader::Int32ColumnReader(r) => {
            read(r, leaf, rows, out, |&number| int(number.into(), number.cast_unsigned().into()))
        }
        ColumnReader::Int64ColumnReader(r) => {
            read(r, leaf, rows, out, |&number| int(number.into(), number.cast_unsigned().into()))
        }
        ColumnReader::Int96ColumnReader(r) => {
            read(r, leaf, rows, out, |time| Datum::Time(time.to_nanos().into()))
        }
        ColumnReader::FloatColumnReader(r) => read(r, leaf, rows, out, |&number| Datum::Float(number.into())),
        ColumnReader::DoubleColumnReader(r) => read(r, leaf, rows, out, |&number| Datum::Float(number)),
        ColumnReader::ByteArrayColumnReader(r) => read(r, leaf, rows, out, |b| bytes(b.data(), kind)),
        ColumnReader::FixedLenByteArrayColumnReader(r) => read(r, leaf, rows, out, |b| bytes(b.data(), kind)),
    }
}

fn read<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    leaf: Leaf,
    rows: usize,
    out: &mut Vec<Datum>,
    datum: impl Fn(&T::T) -> Datum,
) -> io::Result<()> {
    let mut values = Vec::with_capacity(rows);
    let mut levels = Vec::with_capacity(rows);
    let (found, ..) = reader.read_records(rows, Some(&mut levels), None, &mut values)?;
    if found < rows {
        return Err(ParquetError::EOF("a column ends too early".into()).into());
    }
    let mut values = values.iter().map(datum);
    if leaf.nullable {
        // Level 0 says that the value is null; nulls are not stored.
        out.extend(
            levels.iter().map(|&level| if level == 0 { None } else { values.next() }.unwrap_or(Datum::Null)),
        );
    } else {
        out.extend(values);
    }
    Ok(())
}

fn bytes(bytes: &[u8], kind: Kind) -> Datum {
    match (kind, bytes) {
        (Kind::Decimal { scale }, &[first, ..]) if bytes.len() <= 16 => {
            // Two's complement, most significant byte first.
            let sign = if first & 0x80 == 0 { 0 } else { -1 };
            Datum::Decimal(decimal(bytes.iter().fold(sign, |number, &b| number << 8 | i128::from(b)), scale))
        }
        (Kind::Half, &[low, high]) => Datum::Float(half(u16::from_le_bytes([low, high]))),
        (Kind::Text, _) => str::from_utf8(bytes).map_or(Datum::Binary, |text| Datum::Text(text.to_owned())),
        _ => Datum::Binary,
    }
}

/// `number` / 10^`scale`, written out.
fn decimal(number: i128, scale: usize) -> String {
    let sign = if number < 0 { "-" } else { "" };
    let digits = format!("{:0width$}", number.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let point = if scale > 0 { "." } else { "" };
    format!("{sign}{whole}{point}{fraction}")
}

/// A number in half precision: a sign, five bits of exponent and ten of mantissa.
fn half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    sign * match exponent {
        0 => mantissa * 2f64.powi(-24),
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + mantissa) * 2f64.powi(exponent - 25),
    }
}
