//! How values go to files and come back: arrays of numbers in one piece, and nothing unchecked.
//!
//! State is described by serde's derives. Two things are added. Arrays of numbers (`#[serde(with =
//! "crate::saved::floats")]`) are byte strings of little-endian doubles. And a type whose fields must fit
//! together is derived with `#[serde(remote = "Self")]` and named in [`restored_after_reading`]: its
//! [`Restore::restore`] then checks what was read and sizes the buffers that files do not hold.

use crate::error::Result;

/// Checks a value that came from a file, and makes it whole.
pub(crate) trait Restore {
    /// Rejects fields that do not fit together; fills in what is not stored.
    fn restore(&mut self) -> Result<()>;
}

/// Implements serde's traits for types derived with `#[serde(remote = "Self")]`, with a check after reading.
macro_rules! restored_after_reading {
    ($($type:ty),+ $(,)?) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                Self::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                let mut value = Self::deserialize(deserializer)?;
                match crate::saved::Restore::restore(&mut value) {
                    Ok(()) => Ok(value),
                    Err(error) => Err(serde::de::Error::custom(error)),
                }
            }
        }
    )+};
}
pub(crate) use restored_after_reading;

/// A `Vec<f64>` as a byte string of little-endian doubles (a list of bytes in formats without byte strings).
pub(crate) mod floats {
    use std::fmt;

    use serde::de::{Error, SeqAccess, Visitor};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        serializer.serialize_bytes(&bytes)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
        deserializer.deserialize_byte_buf(Doubles)
    }

    /// Borrowed numbers, to be written inside of something else.
    pub(crate) struct Written<'a>(pub(crate) &'a [f64]);

    impl Serialize for Written<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serialize(self.0, serializer)
        }
    }

    /// Numbers as they were read.
    #[derive(Deserialize)]
    pub(crate) struct Read(#[serde(with = "super::floats")] pub(crate) Vec<f64>);

    struct Doubles;

    impl<'de> Visitor<'de> for Doubles {
        type Value = Vec<f64>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("little-endian doubles")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<f64>, E> {
            let (doubles, []) = bytes.as_chunks() else {
                return Err(E::invalid_length(bytes.len(), &"a multiple of 8 bytes"));
            };
            let values: Vec<f64> = doubles.iter().map(|b| f64::from_le_bytes(*b)).collect();
            // No state of a model holds anything else, and one NaN would spread through all of it.
            match values.iter().find(|v| !v.is_finite()) {
                Some(v) => Err(E::custom(format!("{v} stands among numbers that must be finite"))),
                None => Ok(values),
            }
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<f64>, A::Error> {
            let mut bytes = Vec::new();
            while let Some(byte) = list.next_element::<u8>()? {
                bytes.push(byte);
            }
            self.visit_bytes(&bytes)
        }
    }
}
