//! One value of a record, whatever the format, and what it can be used as.

use std::fmt::Write;

use super::{
    error::{What, short},
    time,
};

/// A value as a format delivers it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    /// A CSV cell, which may stand for anything.
    Cell(&'a str),
    /// Text and nothing else.
    Text(&'a str),
    /// A number in decimal notation.
    Literal(&'a str),
    Int(i128),
    Float(f64),
    Bool(bool),
    /// Nanoseconds since 1970.
    Time(i128),
    Null,
    /// The record has no such value.
    Missing,
    /// A list, say, which no column of rows can use.
    Other {
        kind: &'static str,
        text: &'a str,
    },
}

impl Value<'_> {
    /// Whether the value is not there, which a caller may allow.
    pub(super) fn is_absent(self) -> bool {
        match self {
            Self::Cell(text) => text.trim().is_empty(),
            Self::Null | Self::Missing => true,
            _ => false,
        }
    }

    /// Whether the value is not there or is written as one that is not.
    pub(super) fn is_unknown(self) -> bool {
        const UNKNOWN: [&str; 5] = ["nan", "na", "n/a", "null", "none"];
        match self {
            Self::Cell(text) | Self::Text(text) => {
                text.trim().is_empty() || UNKNOWN.iter().any(|word| text.trim().eq_ignore_ascii_case(word))
            }
            Self::Float(number) => number.is_nan(),
            _ => self.is_absent(),
        }
    }

    /// A finite number.
    pub(super) fn number(self) -> Result<f64, What> {
        match self {
            Self::Cell(text) | Self::Literal(text) => {
                let text = text.trim();
                match text.parse::<f64>() {
                    Ok(number) if number.is_finite() => Ok(number),
                    Ok(_) => Err(What::NotFinite(short(text))),
                    Err(_) if text.is_empty() => Err(What::EmptyCell),
                    // As in formats that know truth values.
                    Err(_) => match truth(text) {
                        Some(truth) => Ok(f64::from(u8::from(truth))),
                        None => Err(What::NotANumber(short(text))),
                    },
                }
            }
            Self::Int(number) => Ok(number as f64),
            Self::Float(number) if number.is_finite() => Ok(number),
            Self::Float(number) => Err(What::NotFinite(number.to_string())),
            Self::Bool(truth) => Ok(f64::from(u8::from(truth))),
            _ => Err(self.not("a number")),
        }
    }

    /// Seconds since 1970, or a plain number.
    pub(super) fn time(self) -> Result<f64, What> {
        match self {
            // Times first: to find that a text is no number costs a message.
            Self::Cell(text) | Self::Text(text) => match time::parse(text.trim()) {
                Some(seconds) => Ok(seconds),
                None => Value::Cell(text).number().map_err(|what| match what {
                    What::NotANumber(text) => What::NotATime(text),
                    _ => what,
                }),
            },
            Self::Time(nanoseconds) => Ok(nanoseconds as f64 / 1e9),
            Self::Bool(_) => Err(self.not("a time")),
            _ => self.number(),
        }
    }

    /// Seconds since 1970 of a date or time; a plain number is none.
    pub(super) fn date(self) -> Result<f64, What> {
        match self {
            Self::Cell(text) | Self::Text(text) => match time::parse(text.trim()) {
                Some(seconds) => Ok(seconds),
                None if text.trim().is_empty() => Err(What::EmptyCell),
                None => Err(What::NotADate(short(text.trim()))),
            },
            Self::Time(nanoseconds) => Ok(nanoseconds as f64 / 1e9),
            _ => Err(self.not("a date")),
        }
    }

    /// The place of a text among the levels of a column.
    pub(super) fn level(self, levels: &[String]) -> Result<f64, What> {
        let place = match self {
            Self::Cell(text) => levels.iter().position(|level| level == text.trim()),
            Self::Text(text) | Self::Literal(text) => levels.iter().position(|level| level == text),
            Self::Null | Self::Missing | Self::Other { .. } => return Err(self.not("a level")),
            _ => {
                let mut text = String::new();
                self.write(&mut text);
                levels.iter().position(|level| *level == text)
            }
        };
        place.map(|place| place as f64).ok_or_else(|| {
            let mut text = String::new();
            self.write(&mut text);
            if text.trim().is_empty() {
                return What::EmptyCell;
            }
            What::UnknownLevel { text: short(text.trim()), levels: short(&levels.join(", ")) }
        })
    }

    /// Replaces `label` by the name of a class. A CSV cell loses the blanks around it.
    pub(super) fn label(self, label: &mut String) -> Result<(), What> {
        label.clear();
        match self {
            Self::Cell(text) => *label += text.trim(),
            Self::Null | Self::Missing | Self::Other { .. } => return Err(self.not("a label")),
            _ => self.write(label),
        }
        if label.is_empty() { Err(What::EmptyCell) } else { Ok(()) }
    }

    /// Appends the value as it would stand in a CSV cell.
    pub(super) fn write(self, out: &mut String) {
        match self {
            Self::Cell(text) | Self::Text(text) | Self::Literal(text) | Self::Other { text, .. } => {
                *out += text;
            }
            Self::Int(number) => write!(out, "{number}").expect("a string takes all text"),
            Self::Float(number) => crate::output::push_number(out, number),
            Self::Bool(truth) => *out += if truth { "true" } else { "false" },
            Self::Time(nanoseconds) => time::write(nanoseconds, out),
            Self::Null | Self::Missing => {}
        }
    }

    fn not(self, wanted: &'static str) -> What {
        let found = match self {
            Self::Null => return What::Null,
            Self::Missing => return What::Missing,
            Self::Text(text) => format!("the text '{}'", short(text)),
            Self::Other { kind, .. } => kind.into(),
            Self::Bool(_) => "true or false".into(),
            Self::Time(_) => "a point in time".into(),
            Self::Cell(_) | Self::Literal(_) | Self::Int(_) | Self::Float(_) => "a number".into(),
        };
        What::WrongType { found, wanted }
    }
}

/// A truth value as people and programs write it.
pub(super) fn truth(text: &str) -> Option<bool> {
    if text.eq_ignore_ascii_case("true") {
        return Some(true);
    }
    text.eq_ignore_ascii_case("false").then_some(false)
}
