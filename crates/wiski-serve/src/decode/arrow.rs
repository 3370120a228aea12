//! Record batches of Arrow IPC, in the stream format. Columns are known by their names, nulls are missing cells; columns that
//! the model does not know are left out.
//!
//! The bytes are a stranger's. Arrow's reader checks what it reads and returns errors, but where lengths disagree it may
//! panic; that is caught here, and is an error like the others. It allocates no more than there are bytes.

use std::panic;
use std::sync::Once;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_schema::{DataType, Schema as Fields};

use super::About;
use crate::batch::{Builder, Cell, Slot};
use crate::error::Failure;

pub(super) fn read(body: &[u8], builder: &mut Builder) -> Result<About, Failure> {
    let malformed = |what: &str| Failure::Malformed(format!("the body is no stream of Arrow IPC: {what}"));
    let batches = guarded(body.to_vec()).ok_or_else(|| malformed("its lengths disagree"))?;
    let (fields, batches) = batches.map_err(|error| malformed(&error))?;
    let slots = header(&fields, builder)?;
    for batch in &batches {
        let columns: Vec<(Slot, Column)> = slots
            .iter()
            .map(|&(slot, i)| {
                let is_text = builder.schema().wants_text(slot);
                Ok((slot, Column::new(fields.field(i).name(), batch.column(i).as_ref(), is_text)?))
            })
            .collect::<Result<_, Failure>>()?;
        for row in 0..batch.num_rows() {
            for (slot, column) in &columns {
                builder.set(*slot, column.cell(row))?;
            }
            builder.end_row()?;
        }
    }
    Ok(About::default())
}

/// What [`batches`] returns, or `None` if it panics: in silence, since nothing is wrong but the bytes, and a message with its
/// backtrace (whose first one reads some 200 MB of symbols) would let strangers fill memory and logs.
fn guarded(bytes: Vec<u8>) -> Option<Result<(Fields, Vec<RecordBatch>), String>> {
    thread_local!(static DECODING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
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
    let done = panic::catch_unwind(move || batches(bytes));
    DECODING.set(false);
    done.ok()
}

/// All batches of a stream, and their columns.
fn batches(bytes: Vec<u8>) -> Result<(Fields, Vec<RecordBatch>), String> {
    let (mut decoder, mut rest, mut out) = (StreamDecoder::new(), Buffer::from_vec(bytes), Vec::new());
    while !rest.is_empty() {
        out.extend(decoder.decode(&mut rest).map_err(|e| e.to_string())?);
    }
    decoder.finish().map_err(|e| e.to_string())?;
    let fields = decoder.schema().ok_or("there is no schema")?;
    Ok((fields.as_ref().clone(), out))
}

/// What the columns are for, with their places.
fn header(fields: &Fields, builder: &Builder) -> Result<Vec<(Slot, usize)>, Failure> {
    let mut slots: Vec<(Slot, usize)> = Vec::new();
    for (i, field) in fields.fields().iter().enumerate() {
        let Some(slot) = builder.schema().slot(field.name()) else { continue };
        if slots.iter().any(|(other, _)| *other == slot) {
            return Err(Failure::Malformed(format!("the column '{}' is there twice", field.name())));
        }
        slots.push((slot, i));
    }
    Ok(slots)
}

/// A column as cells.
enum Column<'a> {
    Numbers(Box<dyn Fn(usize) -> f64 + 'a>, &'a dyn Array),
    Texts(Box<dyn Fn(usize) -> &'a str + 'a>, &'a dyn Array),
    /// The keys, and whether each is there.
    Dictionary(Vec<usize>, &'a dyn Array, Box<Column<'a>>),
    Missing,
}

impl<'a> Column<'a> {
    /// Cells of a column of this name; whether booleans are the texts of levels and classes.
    fn new(name: &str, array: &'a dyn Array, is_text: bool) -> Result<Self, Failure> {
        macro_rules! numbers {
            ($kind:ty, $convert:expr) => {{
                let values = array.as_primitive::<$kind>().values();
                Self::Numbers(Box::new(move |i| $convert(values[i])), array)
            }};
        }
        Ok(match array.data_type() {
            DataType::Null => Self::Missing,
            DataType::Float16 => numbers!(Float16Type, f64::from),
            DataType::Float32 => numbers!(Float32Type, f64::from),
            DataType::Float64 => numbers!(Float64Type, |v| v),
            DataType::Int8 => numbers!(Int8Type, f64::from),
            DataType::Int16 => numbers!(Int16Type, f64::from),
            DataType::Int32 => numbers!(Int32Type, f64::from),
            DataType::Int64 => numbers!(Int64Type, |v| v as f64),
            DataType::UInt8 => numbers!(UInt8Type, f64::from),
            DataType::UInt16 => numbers!(UInt16Type, f64::from),
            DataType::UInt32 => numbers!(UInt32Type, f64::from),
            DataType::UInt64 => numbers!(UInt64Type, |v| v as f64),
            DataType::Boolean if is_text => {
                let values = array.as_boolean();
                Self::Texts(Box::new(|i| if values.value(i) { "true" } else { "false" }), array)
            }
            DataType::Boolean => {
                let values = array.as_boolean();
                Self::Numbers(Box::new(|i| f64::from(u8::from(values.value(i)))), array)
            }
            DataType::Utf8 => {
                let values = array.as_string::<i32>();
                Self::Texts(Box::new(|i| values.value(i)), array)
            }
            DataType::LargeUtf8 => {
                let values = array.as_string::<i64>();
                Self::Texts(Box::new(|i| values.value(i)), array)
            }
            DataType::Utf8View => {
                let values = array.as_string_view();
                Self::Texts(Box::new(|i| values.value(i)), array)
            }
            DataType::Dictionary(_, values) if !matches!(values.as_ref(), DataType::Dictionary(..)) => {
                let dictionary = array.as_any_dictionary();
                let values = Self::new(name, dictionary.values().as_ref(), is_text)?;
                // Without values every key is null, and there is nothing to normalize.
                let keys = if dictionary.values().is_empty() {
                    vec![0; array.len()]
                } else {
                    dictionary.normalized_keys()
                };
                Self::Dictionary(keys, array, Box::new(values))
            }
            other => {
                return Err(Failure::Unprocessable(format!(
                    "column '{name}': {other} is not read; numbers, booleans and texts are, also as a dictionary"
                )));
            }
        })
    }

    fn cell(&self, row: usize) -> Cell<'a> {
        match self {
            Self::Numbers(_, array) | Self::Texts(_, array) | Self::Dictionary(_, array, _)
                if array.is_null(row) =>
            {
                Cell::Missing
            }
            Self::Numbers(value, _) => Cell::Number(value(row)),
            Self::Texts(value, _) => Cell::Text(value(row)),
            Self::Dictionary(keys, _, values) => values.cell(keys[row]),
            Self::Missing => Cell::Missing,
        }
    }
}
