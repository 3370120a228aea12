//! Tensors of the Open Inference Protocol, in JSON or as binary data behind it.
//!
//! Either one tensor of shape [n, D] holds all inputs in their order (its name does not matter, unless it is that of
//! a column), or each column is a tensor of its name with shape [n] or [n, 1]. Targets, noise and time are always by name.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use crate::batch::{Builder, Cell, Slot};
use crate::error::Failure;

/// A tensor of a request.
#[derive(Debug, Deserialize)]
pub(super) struct Tensor {
    name: String,
    shape: Vec<u64>,
    datatype: String,
    #[serde(default)]
    data: Flat,
    #[serde(default)]
    parameters: Parameters,
}

/// What may be said about a tensor or a request.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Parameters {
    #[serde(default)]
    binary_data_size: Option<u64>,
    #[serde(default)]
    pub(super) level: Option<f64>,
}

/// A tensor that the answer is to have.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    pub(super) name: String,
}

/// The elements of a tensor, whatever lists they were nested in.
#[derive(Debug, Default)]
struct Flat {
    numbers: Vec<f64>,
    texts: Vec<String>,
}

impl<'de> Deserialize<'de> for Flat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut flat = Self::default();
        deserializer.deserialize_seq(Elements(&mut flat))?;
        Ok(flat)
    }
}

struct Elements<'f>(&'f mut Flat);

impl<'de> serde::de::DeserializeSeed<'de> for Elements<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("numbers or texts, in lists")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Elements(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.0.numbers.push(f64::from(u8::from(value)));
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.0.numbers.push(value as f64);
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.0.numbers.push(value as f64);
        Ok(())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.0.numbers.push(value);
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.0.texts.push(value.to_owned());
        Ok(())
    }
}

/// A tensor whose elements fit its shape.
struct Checked<'t> {
    name: &'t str,
    rows: usize,
    columns: usize,
    data: std::borrow::Cow<'t, Flat>,
}

impl Clone for Flat {
    fn clone(&self) -> Self {
        Self { numbers: self.numbers.clone(), texts: self.texts.clone() }
    }
}

impl Checked<'_> {
    fn cell(&self, i: usize) -> Cell<'_> {
        match (self.data.numbers.get(i), self.data.texts.get(i)) {
            (Some(&number), _) => Cell::Number(number),
            (None, Some(text)) => Cell::Text(text),
            (None, None) => Cell::Missing,
        }
    }
}

/// Makes rows of the tensors; `binary` holds the data of those that have none in JSON.
pub(super) fn assign(inputs: &[Tensor], binary: &[u8], builder: &mut Builder) -> Result<(), Failure> {
    let mut rest = binary;
    let mut tensors = Vec::with_capacity(inputs.len());
    for tensor in inputs {
        tensors.push(check(tensor, &mut rest)?);
    }
    if !rest.is_empty() {
        return Err(Failure::Malformed(format!("{} bytes of binary data belong to no tensor", rest.len())));
    }
    let Some(rows) = tensors.first().map(|tensor| tensor.rows) else {
        return Err(Failure::Malformed("there are no tensors".into()));
    };
    if let Some(other) = tensors.iter().find(|tensor| tensor.rows != rows) {
        let (name, found) = (other.name, other.rows);
        return Err(Failure::Malformed(format!("tensor '{name}' has {found} rows where others have {rows}")));
    }
    let schema = builder.schema();
    let width = schema.columns.inputs.len();
    let mut columns: Vec<(Slot, &Checked, usize)> = Vec::new();
    for tensor in &tensors {
        match schema.slot(tensor.name) {
            Some(slot) if tensor.columns == 1 => columns.push((slot, tensor, 0)),
            _ if tensor.columns == width => {
                columns.extend((0..width).map(|k| (Slot::Input(k), tensor, k)));
            }
            _ => {
                let (name, found) = (tensor.name, tensor.columns);
                let what = format!(
                    "tensor '{name}' is no column of the model, and has {found} columns, not {width}"
                );
                return Err(Failure::Unprocessable(what));
            }
        }
    }
    for (i, (slot, tensor, _)) in columns.iter().enumerate() {
        if columns[..i].iter().any(|(other, ..)| other == slot) {
            return Err(Failure::Malformed(format!("tensor '{}' gives a column a second time", tensor.name)));
        }
    }
    for row in 0..rows {
        for &(slot, tensor, k) in &columns {
            builder.set(slot, tensor.cell(row * tensor.columns + k))?;
        }
        builder.end_row()?;
    }
    Ok(())
}

fn check<'t>(tensor: &'t Tensor, binary: &mut &[u8]) -> Result<Checked<'t>, Failure> {
    let Tensor { name, shape, datatype, .. } = tensor;
    let malformed = |what: String| Failure::Malformed(format!("tensor '{name}': {what}"));
    let size = |n: &u64| usize::try_from(*n).ok();
    let (rows, columns) = match &shape[..] {
        [n] => (size(n), Some(1)),
        [n, k] => (size(n), size(k)),
        _ => {
            return Err(malformed(format!("a shape of {} dimensions, where 1 or 2 make sense", shape.len())));
        }
    };
    let shapes = rows.zip(columns).and_then(|(n, k)| Some((n, k, n.checked_mul(k)?)));
    let Some((rows, columns, count)) = shapes else {
        return Err(malformed("its shape is too large".into()));
    };
    let data = match tensor.parameters.binary_data_size {
        Some(bytes) => {
            let own = size(&bytes).and_then(|bytes| binary.split_at_checked(bytes));
            let Some((own, rest)) = own else {
                return Err(malformed("its binary data are not there".into()));
            };
            *binary = rest;
            let flat = decode(datatype, own, count).ok_or_else(|| {
                malformed(format!("{} bytes are not {count} elements of {datatype}", own.len()))
            })?;
            std::borrow::Cow::Owned(flat)
        }
        None => std::borrow::Cow::Borrowed(&tensor.data),
    };
    let is_text = datatype == "BYTES";
    let known =
        ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP32", "FP64"];
    if !is_text && !known.contains(&datatype.as_str()) {
        return Err(malformed("its datatype is not read; FP64, FP32, integers, BOOL and BYTES are".into()));
    }
    let (own, other) =
        if is_text { (data.texts.len(), data.numbers.len()) } else { (data.numbers.len(), data.texts.len()) };
    if own != count || other != 0 {
        return Err(malformed(format!("{own} elements of {datatype} where its shape has {count}")));
    }
    Ok(Checked { name, rows, columns, data })
}

/// The elements of binary data; nothing if they are not as many.
#[allow(clippy::cast_lossless)] // 64-bit integers have no other way
fn decode(datatype: &str, bytes: &[u8], count: usize) -> Option<Flat> {
    macro_rules! numbers {
        ($type:ty) => {{
            const SIZE: usize = size_of::<$type>();
            if bytes.len() != count.checked_mul(SIZE)? {
                return None;
            }
            let one =
                |b: &[u8]| <[u8; SIZE]>::try_from(b).map_or(f64::NAN, |b| <$type>::from_le_bytes(b) as f64);
            bytes.chunks_exact(SIZE).map(one).collect()
        }};
    }
    let mut texts = Vec::new();
    let numbers = match datatype {
        "FP64" => numbers!(f64),
        "FP32" => numbers!(f32),
        "INT8" => numbers!(i8),
        "INT16" => numbers!(i16),
        "INT32" => numbers!(i32),
        "INT64" => numbers!(i64),
        "UINT8" | "BOOL" => numbers!(u8),
        "UINT16" => numbers!(u16),
        "UINT32" => numbers!(u32),
        "UINT64" => numbers!(u64),
        "BYTES" => {
            let mut rest = bytes;
            while let Some((length, more)) = rest.split_first_chunk() {
                let (text, after) = more.split_at_checked(u32::from_le_bytes(*length) as usize)?;
                texts.push(std::str::from_utf8(text).ok()?.to_owned());
                rest = after;
            }
            if !rest.is_empty() || texts.len() != count {
                return None;
            }
            Vec::new()
        }
        _ => return None,
    };
    Some(Flat { numbers, texts })
}
