//! Settings as text, as people write them: `project:2`, `mlp:64,64:2`, `geometric:1.1`.
//!
//! What [`Display`](fmt::Display) writes, [`FromStr`] reads back as the same value.

use std::fmt;
use std::str::FromStr;

use super::OffGrid;
use super::settings::{Features, IntervalKind, Schedule};
use crate::error::{Error, Result};

fn reject<T>(field: &str, reason: String) -> Result<T> {
    Err(Error::Config { field: field.into(), reason })
}

impl FromStr for Features {
    type Err = Error;

    /// `auto`, `identity`, `points:512` (a sum of grids with so many inducing points), `additive`, `additive:12` (directions), `project:2` (features), `mlp:64,64:2` (widths of
    /// the hidden layers, features).
    fn from_str(text: &str) -> Result<Self> {
        let number = |part: &str| match part.trim().parse::<usize>() {
            Ok(n) if n > 0 => Ok(n),
            _ => reject("features", format!("'{part}' in '{text}' is not a number of features or a width")),
        };
        let numbers = |part: &str| part.split(',').map(number).collect::<Result<Vec<_>>>();
        let parts: Vec<&str> = text.split(':').collect();
        Ok(match parts[..] {
            ["auto"] => Self::Auto,
            ["identity"] => Self::Identity,
            ["points"] => Self::Points { count: None },
            ["points", count] => Self::Points { count: Some(number(count)?) },
            ["additive"] => Self::Additive { directions: None },
            ["additive", directions] => Self::Additive { directions: Some(number(directions)?) },
            ["project"] => Self::Project { outputs: 2 },
            ["project", outputs] => Self::Project { outputs: number(outputs)? },
            ["mlp"] => Self::Mlp { hidden: vec![64, 64], outputs: 2 },
            ["mlp", hidden] => Self::Mlp { hidden: numbers(hidden)?, outputs: 2 },
            ["mlp", hidden, outputs] => Self::Mlp { hidden: numbers(hidden)?, outputs: number(outputs)? },
            _ => {
                let known = "auto, identity, points:512, additive, additive:12, project:2 or mlp:64,64:2";
                return reject("features", format!("'{text}' is not {known}"));
            }
        })
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Identity => f.write_str("identity"),
            Self::Points { count: None } => write!(f, "points"),
            Self::Points { count: Some(count) } => write!(f, "points:{count}"),
            Self::Additive { directions: None } => f.write_str("additive"),
            Self::Additive { directions: Some(k) } => write!(f, "additive:{k}"),
            Self::Project { outputs } => write!(f, "project:{outputs}"),
            Self::Mlp { hidden, outputs } => {
                let widths: Vec<String> = hidden.iter().map(ToString::to_string).collect();
                write!(f, "mlp:{}:{outputs}", widths.join(","))
            }
        }
    }
}

impl FromStr for Schedule {
    type Err = Error;

    /// `geometric` or `geometric:1.1` (growth between refits), `every-step` or `every-step:0.005` (learning rate),
    /// `off`.
    fn from_str(text: &str) -> Result<Self> {
        let (name, value) = text.split_once(':').map_or((text, None), |(n, v)| (n, Some(v)));
        let number = |default: f64| match value.map(|v| v.trim().parse::<f64>()) {
            None => Ok(default),
            Some(Ok(v)) if v.is_finite() => Ok(v),
            Some(_) => reject("schedule", format!("'{text}' ends in something that is not a number")),
        };
        match (name, value) {
            ("geometric", _) => Ok(Self::Geometric { ratio: number(1.1)? }),
            ("every-step", _) => Ok(Self::EveryStep { rate: number(0.005)? }),
            ("off", None) => Ok(Self::Off),
            _ => reject("schedule", format!("'{text}' is not geometric:1.1, every-step or off")),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Geometric { ratio } => write!(f, "geometric:{ratio}"),
            Self::EveryStep { rate } => write!(f, "every-step:{rate}"),
            Self::Off => f.write_str("off"),
        }
    }
}

impl FromStr for OffGrid {
    type Err = Error;

    /// `error`, `extend` or `prior`.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "error" => Ok(Self::Error),
            "extend" => Ok(Self::Extend),
            "prior" => Ok(Self::Prior),
            _ => reject("off_grid", format!("'{text}' is not error, extend or prior")),
        }
    }
}

impl fmt::Display for OffGrid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Extend => "extend",
            Self::Prior => "prior",
        })
    }
}

impl FromStr for IntervalKind {
    type Err = Error;

    /// `gaussian` or `conformal`.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "gaussian" => Ok(Self::Gaussian),
            "conformal" => Ok(Self::Conformal),
            _ => reject("intervals", format!("'{text}' is not gaussian or conformal")),
        }
    }
}

impl fmt::Display for IntervalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gaussian => "gaussian",
            Self::Conformal => "conformal",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for text in ["auto", "identity", "points:256", "additive", "additive:12", "project:3", "mlp:64,32:2"]
        {
            assert_eq!(text.parse::<Features>().unwrap().to_string(), text);
        }
        for text in ["gaussian", "conformal"] {
            assert_eq!(text.parse::<IntervalKind>().unwrap().to_string(), text);
        }
        assert!("normal".parse::<IntervalKind>().is_err());
        for text in ["geometric:1.25", "every-step:0.005", "off"] {
            assert_eq!(text.parse::<Schedule>().unwrap().to_string(), text);
        }
        assert_eq!("mlp".parse::<Features>().unwrap().to_string(), "mlp:64,64:2");
        assert_eq!("geometric".parse::<Schedule>().unwrap(), Schedule::Geometric { ratio: 1.1 });
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for text in ["", "projekt", "project:0", "project:x", "mlp:64,-1:2", "identity:2", "additive:1:2"] {
            let error = text.parse::<Features>().unwrap_err().to_string();
            assert!(error.starts_with("features: ") && error.contains(text), "{error}");
        }
        for text in ["never", "off:1", "geometric:x", "every-step:inf"] {
            let error = text.parse::<Schedule>().unwrap_err().to_string();
            assert!(error.starts_with("schedule: ") && error.contains(text), "{error}");
        }
    }
}
