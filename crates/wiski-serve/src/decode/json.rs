//! Rows in JSON. A body is a list of rows, or an object with `rows` (or one `row`), or with the `inputs` of the Open
//! Inference Protocol. A row is an object by column names, or a list in the order of the columns.

use std::fmt;

use serde::Deserializer as _;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::tensors::{self, Tensor};
use super::{About, text};
use crate::batch::{Builder, Cell, Slot};
use crate::error::Failure;

/// Reads a body; `binary` is what follows the JSON.
pub(super) fn read(json: &[u8], binary: &[u8], builder: &mut Builder) -> Result<About, Failure> {
    let mut deserializer = serde_json::Deserializer::from_str(text(json)?);
    let mut document = Document { builder, about: About::default(), inputs: None };
    let read = deserializer.deserialize_any(&mut document).and_then(|()| deserializer.end());
    let Document { mut about, inputs, .. } = document;
    read.map_err(|error| because(builder, &error))?;
    if let Some(inputs) = inputs {
        about.is_tensors = true;
        tensors::assign(&inputs, binary, builder)?;
    } else if !binary.is_empty() {
        return Err(Failure::Malformed("binary data without tensors".into()));
    }
    Ok(about)
}

/// Reads a body of one row a line.
pub(super) fn read_lines(body: &[u8], builder: &mut Builder) -> Result<About, Failure> {
    for (i, line) in text(body)?.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let mut deserializer = serde_json::Deserializer::from_str(line);
        let read = deserializer.deserialize_any(Row(builder)).and_then(|()| deserializer.end());
        read.map_err(|error| match because(builder, &error) {
            Failure::Malformed(what) => Failure::Malformed(format!("line {}: {what}", i + 1)),
            other => other,
        })?;
    }
    Ok(About::default())
}

/// What the builder found wrong, or else what the parser did.
fn because(builder: &mut Builder, error: &serde_json::Error) -> Failure {
    builder.failure.take().unwrap_or_else(|| Failure::Malformed(error.to_string()))
}

/// A whole body.
struct Document<'b, 'a> {
    builder: &'b mut Builder<'a>,
    about: About,
    inputs: Option<Vec<Tensor>>,
}

impl<'de> Visitor<'de> for &mut Document<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of rows, or an object with 'rows' or 'inputs'")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        Rows(self.builder).visit_seq(seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut has_rows = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "rows" if !has_rows && self.inputs.is_none() => {
                    has_rows = true;
                    map.next_value_seed(Rows(self.builder))?;
                }
                "row" if !has_rows && self.inputs.is_none() => {
                    has_rows = true;
                    map.next_value_seed(Row(self.builder))?;
                }
                "inputs" if !has_rows && self.inputs.is_none() => self.inputs = Some(map.next_value()?),
                "rows" | "row" | "inputs" => return Err(A::Error::custom("rows are given twice")),
                "level" => self.about.level = map.next_value()?,
                "id" => self.about.id = map.next_value()?,
                "outputs" => {
                    let wanted: Vec<tensors::Wanted> = map.next_value()?;
                    self.about.outputs = wanted.into_iter().map(|w| w.name).collect();
                }
                "parameters" => {
                    let parameters: tensors::Parameters = map.next_value()?;
                    self.about.level = parameters.level.or(self.about.level);
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if has_rows || self.inputs.is_some() {
            Ok(())
        } else {
            Err(A::Error::custom("there is neither 'rows' nor 'row' nor 'inputs'"))
        }
    }
}

/// A list of rows.
struct Rows<'b, 'a>(&'b mut Builder<'a>);

impl<'de> DeserializeSeed<'de> for Rows<'_, '_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Rows<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of rows")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Row(self.0))?.is_some() {}
        Ok(())
    }
}

/// One row.
struct Row<'b, 'a>(&'b mut Builder<'a>);

impl<'de> DeserializeSeed<'de> for Row<'_, '_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Row<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a row: an object by column names, or a list of cells")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let slots = self.0.schema().positions(self.0.learns());
        for &slot in &slots {
            if seq.next_element_seed(Value(self.0, Some(slot)))?.is_none() {
                let wanted = slots.len();
                return Err(A::Error::custom(format!("a row has fewer than {wanted} cells")));
            }
        }
        if seq.next_element::<IgnoredAny>()?.is_some() {
            return Err(A::Error::custom(format!("a row has more than {} cells", slots.len())));
        }
        self.0.end_row().map_err(A::Error::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(slot) = map.next_key_seed(Name(self.0))? {
            map.next_value_seed(Value(self.0, slot))?;
        }
        self.0.end_row().map_err(A::Error::custom)
    }
}

/// The name of a column.
struct Name<'b, 'a>(&'b Builder<'a>);

impl<'de> DeserializeSeed<'de> for Name<'_, '_> {
    type Value = Option<Slot>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_, '_> {
    type Value = Option<Slot>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("the name of a column")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.schema().slot(name))
    }
}

/// A cell; without a slot it is left out.
struct Value<'b, 'a>(&'b mut Builder<'a>, Option<Slot>);

impl Value<'_, '_> {
    fn take<E: Error>(self, cell: Cell) -> Result<(), E> {
        let Some(slot) = self.1 else { return Ok(()) };
        self.0.set(slot, cell).map_err(E::custom)
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_, '_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.1 {
            Some(_) => deserializer.deserialize_any(self),
            None => deserializer.deserialize_ignored_any(IgnoredAny).map(|_| ()),
        }
    }
}

impl Visitor<'_> for Value<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a number or a text")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.take(Cell::Text(if value { "true" } else { "false" }))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.take(Cell::Number(value as f64))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.take(Cell::Number(value as f64))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.take(Cell::Number(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.take(Cell::Text(value))
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.take(Cell::Missing)
    }
}
