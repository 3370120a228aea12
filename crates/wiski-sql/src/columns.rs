//! Arguments of the functions: binary values by content or by file, and numbers as rows.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int32Type};
use datafusion::common::{DataFusionError, Result, exec_err, plan_err};

/// Rows that are handed over together: their coordinates stay in the cache.
const TOGETHER: usize = 1024;

/// An error of the library as one of a query.
pub(crate) fn failed(error: wiski::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The type that the argument of a binary value is read as.
pub(crate) fn binary_type(given: &DataType, function: &str) -> Result<DataType> {
    match given {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            Ok(DataType::LargeBinary)
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Ok(DataType::Utf8),
        DataType::Null => Ok(DataType::LargeBinary),
        DataType::Dictionary(_, values) => binary_type(values, function),
        other => plan_err!("{function}: a binary value or the path of a file is needed, not {other}"),
    }
}

/// As [`binary_type`], for a value that many rows share. Arguments come as columns, and in a dictionary a shape of some
/// kilobytes is there once, not in each of ten thousand rows.
pub(crate) fn shared_type(given: &DataType, function: &str) -> Result<DataType> {
    let values = binary_type(given, function)?;
    Ok(DataType::Dictionary(Box::new(DataType::Int32), Box::new(values)))
}

/// The type that a number is read as.
pub(crate) fn number_type(given: &DataType, function: &str) -> Result<DataType> {
    if given.is_numeric() || matches!(given, DataType::Null | DataType::Boolean) {
        return Ok(DataType::Float64);
    }
    plan_err!("{function}: numbers are needed, not {given}; CAST or date_part can make some")
}

/// A binary value, or the file that holds it.
#[derive(Clone, Copy)]
pub(crate) enum Bytes<'a> {
    Here(&'a [u8]),
    File(&'a str),
}

impl<'a> Bytes<'a> {
    /// The value in a row of a column; none for NULL.
    pub(crate) fn at(column: &'a ArrayRef, row: usize) -> Result<Option<Self>> {
        if column.is_null(row) {
            return Ok(None);
        }
        match column.data_type() {
            DataType::LargeBinary => Ok(Some(Self::Here(column.as_binary::<i64>().value(row)))),
            DataType::Utf8 => Ok(Some(Self::File(column.as_string::<i32>().value(row)))),
            DataType::Dictionary(_, _) => {
                let shared = column.as_dictionary::<Int32Type>();
                shared.key(row).map_or(Ok(None), |key| Self::at(shared.values(), key))
            }
            other => exec_err!("a binary value or the path of a file is needed, not {other}"),
        }
    }

    /// The value that stands in all rows of a column, of which there is at least one; none if a row has NULL.
    pub(crate) fn of_all(column: &'a ArrayRef, name: &str) -> Result<Option<Self>> {
        if column.is_nullable() {
            for row in 0..column.len() {
                if Self::at(column, row)?.is_none() {
                    return Ok(None);
                }
            }
        }
        let first = Self::at(column, 0)?;
        let is_one = matches!(column.data_type(), DataType::Dictionary(_, _))
            && column.as_dictionary::<Int32Type>().values().len() == 1;
        for row in 1..if is_one { 0 } else { column.len() } {
            let same = match (first, Self::at(column, row)?) {
                (Some(first), Some(other)) => first.is(other),
                _ => false,
            };
            if !same {
                return exec_err!("{name}: the shape must be the same for all rows of a group");
            }
        }
        Ok(first)
    }

    /// Whether two values are the same, without a look at the bytes where they lie in the same place.
    pub(crate) fn is(self, other: Self) -> bool {
        match (self, other) {
            (Self::Here(a), Self::Here(b)) => std::ptr::eq(a, b) || a == b,
            (Self::File(a), Self::File(b)) => a == b,
            _ => false,
        }
    }

    /// The bytes themselves.
    pub(crate) fn content(self) -> Result<Cow<'a, [u8]>> {
        match self {
            Self::Here(bytes) => Ok(bytes.into()),
            Self::File(path) => match std::fs::read(path) {
                Ok(content) => Ok(content.into()),
                Err(error) => exec_err!("{path}: {error}"),
            },
        }
    }

    /// An error in the bytes.
    pub(crate) fn failed(self, error: wiski::Error) -> DataFusionError {
        match self {
            Self::Here(_) => failed(error),
            Self::File(path) => failed(error).context(path),
        }
    }
}

/// The last few binary values, and what they were read as.
pub(crate) struct Cache<T>(Mutex<VecDeque<Arc<Known<T>>>>);

/// A binary value and what it was read as.
pub(crate) struct Known<T> {
    pub(crate) bytes: Vec<u8>,
    pub(crate) value: T,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }
}

impl<T> std::fmt::Debug for Cache<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("Cache")
    }
}

impl<T> std::fmt::Debug for Known<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "Known({} bytes)", self.bytes.len())
    }
}

impl<T> Cache<T> {
    /// Values that are kept.
    const MOST: usize = 16;

    /// What the bytes are read as, by `read` if they are new.
    pub(crate) fn get(
        &self,
        bytes: &[u8],
        read: impl FnOnce(&[u8]) -> wiski::Result<T>,
    ) -> wiski::Result<Arc<Known<T>>> {
        let find = |known: &VecDeque<Arc<Known<T>>>| known.iter().find(|k| k.bytes == bytes).cloned();
        if let Some(found) = find(&self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(found);
        }
        // Reading takes a while; others go on meanwhile.
        let new = Arc::new(Known { bytes: bytes.to_vec(), value: read(bytes)? });
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == Self::MOST {
            all.pop_front();
        }
        all.push_back(new.clone());
        Ok(new)
    }
}

/// Numbers in columns as rows, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    x: Vec<f64>,
    y: Vec<f64>,
    noise: Vec<f64>,
}

impl Rows {
    /// Calls `f` with inputs (row after row), targets and noise of up to [`TOGETHER`] rows at a time. `columns` are the
    /// target, d inputs and, if there is one more, the noise. Rows with a NULL are left out.
    pub(crate) fn each(
        &mut self,
        columns: &[ArrayRef],
        d: usize,
        mut f: impl FnMut(&[f64], &[f64], Option<&[f64]>) -> wiski::Result<()>,
    ) -> Result<()> {
        let columns: Vec<&Float64Array> = columns.iter().map(AsArray::as_primitive::<Float64Type>).collect();
        let Some(target) = columns.first() else { return Ok(()) };
        let (n, has_nulls) = (target.len(), columns.iter().any(|c| c.null_count() > 0));
        let has_noise = columns.len() > d + 1;
        for from in (0..n).step_by(TOGETHER) {
            let to = n.min(from + TOGETHER);
            self.take(&columns, d, from, to);
            if has_nulls {
                self.drop_nulls(&columns, d, from);
            }
            if !self.y.is_empty() {
                f(&self.x, &self.y, has_noise.then_some(&self.noise)).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, columns: &[&Float64Array], d: usize, from: usize, to: usize) {
        let part = |k: usize| &columns[k].values()[from..to];
        self.y.clear();
        self.y.extend_from_slice(part(0));
        self.x.resize((to - from) * d, 0.0);
        for k in 0..d {
            self.x[k..].iter_mut().step_by(d).zip(part(k + 1)).for_each(|(x, &value)| *x = value);
        }
        self.noise.clear();
        if columns.len() > d + 1 {
            self.noise.extend_from_slice(part(d + 1));
        }
    }

    fn drop_nulls(&mut self, columns: &[&Float64Array], d: usize, from: usize) {
        let mut kept = 0;
        for row in 0..self.y.len() {
            if columns.iter().any(|c| c.is_null(from + row)) {
                continue;
            }
            self.y[kept] = self.y[row];
            self.x.copy_within(row * d..(row + 1) * d, kept * d);
            if !self.noise.is_empty() {
                self.noise[kept] = self.noise[row];
            }
            kept += 1;
        }
        self.y.truncate(kept);
        self.x.truncate(kept * d);
        if !self.noise.is_empty() {
            self.noise.truncate(kept);
        }
    }

    /// The bytes in memory.
    pub(crate) fn size(&self) -> usize {
        size_of::<f64>() * (self.x.capacity() + self.y.capacity() + self.noise.capacity())
    }
}
