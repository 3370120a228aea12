//! Names of models: they become folders, so they can name nothing else.

use std::fmt;

/// The longest name.
const LONGEST: usize = 64;

/// The name of a model: letters, digits, `-`, `_` and `.` in ASCII, at most 64 of them, the first a letter or a digit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelName(String);

impl ModelName {
    /// The name, if it is one.
    pub fn parse(text: &str) -> Option<Self> {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        let fits = text.len() <= LONGEST && text.bytes().all(is_plain);
        let begins = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        (fits && begins).then(|| Self(text.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_the_folder() {
        for good in ["a", "Pump-3", "x.y_z", "0", "a..b"] {
            assert_eq!(ModelName::parse(good).unwrap().as_str(), good);
        }
        let long = "a".repeat(65);
        for bad in
            ["", ".", "..", ".hidden", "../up", "a/b", "a\\b", "/etc", "a b", "ä", "a\0", "-rf", "~", &long]
        {
            assert_eq!(ModelName::parse(bad), None, "{bad:?}");
        }
    }
}
