//! NDJSON: a JSON object a line. The keys of the first name the columns; later ones may come in any order.

use std::{fmt, str::from_utf8};

use serde::de::{DeserializeSeed, Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{
    Records,
    bytes::Progress,
    cells::Cells,
    error::{Fault, What, short},
    lines::Lines,
    value::Value,
};

/// A reader of NDJSON.
pub(super) struct Ndjson {
    lines: Lines,
    progress: Progress,
    columns: Vec<String>,
    /// What stands in each column: unescaped text if it is text, else as the file has it.
    cells: Cells,
    kinds: Vec<Kind>,
    /// The key at hand, in memory that is used again.
    key: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Missing,
    Null,
    Text,
    Number,
    True,
    False,
    Array,
    Object,
}

impl Ndjson {
    /// Reads the names of the columns; `None` if there is no record.
    pub(super) fn open(lines: Lines, progress: Progress) -> Result<Option<Self>, Fault> {
        let (columns, cells, kinds, key) = Default::default();
        let mut json = Self { lines, progress, columns, cells, kinds, key };
        if !json.lines.advance(None)? {
            return Ok(None);
        }
        let text = from_utf8(json.lines.record()).map_err(|_| What::NotUtf8)?;
        members(text, &mut json.key, |key, _| json.columns.push(key.to_owned()))?;
        json.lines.again();
        Ok(Some(json))
    }
}

impl Records for Ndjson {
    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn numeric(&mut self) -> Result<Vec<bool>, Fault> {
        self.advance()?;
        self.lines.again();
        Ok(self.kinds.iter().map(|kind| matches!(kind, Kind::Number | Kind::True | Kind::False)).collect())
    }

    fn advance(&mut self) -> Result<bool, Fault> {
        if !self.lines.advance(None)? {
            return Ok(false);
        }
        let text = from_utf8(self.lines.record()).map_err(|_| What::NotUtf8)?;
        let columns = &self.columns;
        self.cells.blank(columns.len());
        self.kinds.clear();
        self.kinds.resize(columns.len(), Kind::Missing);
        let mut next = 0;
        let mut bad = Ok(());
        members(text, &mut self.key, |key, raw| {
            // Records are mostly alike, so the column wanted next is the first guess.
            let guess = columns.get(next).is_some_and(|column| column == key).then_some(next);
            let Some(column) = guess.or_else(|| columns.iter().position(|column| column == key)) else {
                return;
            };
            next = column + 1;
            self.kinds[column] = kind(raw);
            match unescaped(raw) {
                Ok(Some(text)) => self.cells.set(column, &text),
                Ok(None) => {
                    self.cells.set(column, raw.strip_prefix('"').map_or(raw, |raw| &raw[..raw.len() - 1]));
                }
                Err(what) => bad = Err(Fault::Record(Some(column), what)),
            }
        })?;
        bad.map(|()| true)
    }

    fn value(&self, column: usize) -> Value<'_> {
        let text = self.cells.get(column);
        match self.kinds[column] {
            Kind::Missing => Value::Missing,
            Kind::Null => Value::Null,
            Kind::Text => Value::Text(text),
            Kind::Number => Value::Literal(text),
            Kind::True => Value::Bool(true),
            Kind::False => Value::Bool(false),
            Kind::Array => Value::Other { kind: "an array", text },
            Kind::Object => Value::Other { kind: "an object", text },
        }
    }

    fn line(&self) -> Option<u64> {
        Some(self.lines.line())
    }

    fn progress(&self) -> Option<(u64, u64)> {
        self.progress.get()
    }
}

/// The kind of a JSON value, which its first character tells.
fn kind(raw: &str) -> Kind {
    match raw.as_bytes()[0] {
        b'n' => Kind::Null,
        b'"' => Kind::Text,
        b't' => Kind::True,
        b'f' => Kind::False,
        b'[' => Kind::Array,
        b'{' => Kind::Object,
        _ => Kind::Number,
    }
}

/// The text of a JSON string that needs unescaping.
fn unescaped(raw: &str) -> Result<Option<String>, What> {
    if raw.starts_with('"') && raw.contains('\\') {
        return serde_json::from_str(raw).map(Some).map_err(|why| not_json(&why, raw));
    }
    Ok(None)
}

/// Calls `each` with the key and the unparsed value of every member of the object in `text`.
fn members(text: &str, key: &mut String, each: impl FnMut(&str, &str)) -> Result<(), What> {
    let mut json = serde_json::Deserializer::from_str(text);
    let object = json.deserialize_map(Members { key, each });
    object.and_then(|()| json.end()).map_err(|why| not_json(&why, text))
}

fn not_json(why: &serde_json::Error, text: &str) -> What {
    if why.is_eof() {
        return What::NotJson("it ends too early".into());
    }
    let message = why.to_string();
    let message = message.split(" at line ").next().unwrap_or(&message);
    let from = why.column().checked_sub(1).and_then(|at| text.get(at..)).unwrap_or(text);
    What::NotJson(format!("{message} at '{}'", short(from)))
}

struct Members<'a, F> {
    key: &'a mut String,
    each: F,
}

impl<'de, F: FnMut(&str, &str)> Visitor<'de> for Members<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while map.next_key_seed(Key(self.key))?.is_some() {
            let raw: &RawValue = map.next_value()?;
            (self.each)(self.key, raw.get());
        }
        Ok(())
    }
}

/// Takes a key without a new allocation.
struct Key<'a>(&'a mut String);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<(), E> {
        self.0.clear();
        *self.0 += key;
        Ok(())
    }
}
