//! The clock of a series: what its times are, and how long `7d` is.

use anyhow::{Context, Result, bail, ensure};

/// What the numbers in the column of times count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Clock {
    /// Dates and times, as seconds since 1970.
    Dates,
    /// Numbers, of a unit of so many seconds.
    Unit(f64),
    /// Numbers of an unknown unit.
    Numbers,
}

const DAY: f64 = 86_400.0;
const YEAR: f64 = 365.25 * DAY;

/// Names of units and how many seconds they are.
const UNITS: [(&[&str], f64); 7] = [
    (&["s", "sec", "second", "seconds", "unix", "timestamp", "epoch"], 1.0),
    (&["min", "minute", "minutes"], 60.0),
    (&["h", "hour", "hours", "hr", "hrs"], 3600.0),
    (&["d", "day", "days"], DAY),
    (&["w", "week", "weeks"], 7.0 * DAY),
    (&["mo", "month", "months"], YEAR / 12.0),
    (&["y", "a", "year", "years", "yr"], YEAR),
];

fn unit(name: &str) -> Option<f64> {
    let name = name.trim().to_lowercase();
    UNITS.iter().find(|(names, _)| names.contains(&name.as_str())).map(|u| u.1)
}

impl Clock {
    /// What a column counts: dates, the unit that was said, or the one that its name is.
    pub(super) fn new(column: &str, numeric: bool, said: Option<&str>) -> Result<Self> {
        if !numeric {
            ensure!(said.is_none(), "--time-unit: '{column}' holds dates, which need no unit");
            return Ok(Self::Dates);
        }
        match said {
            Some(name) => {
                let known = "s, min, h, d, w, mo, y";
                let seconds =
                    unit(name).with_context(|| format!("--time-unit: '{name}' is none of {known}"))?;
                Ok(Self::Unit(seconds))
            }
            None => Ok(unit(column).map_or(Self::Numbers, Self::Unit)),
        }
    }

    /// How long a text such as `7d`, `24h`, `1.5y` or `48` is, in the unit of the column; numbers alone count steps.
    pub(super) fn length(self, option: &str, text: &str, step: f64) -> Result<f64> {
        let text = text.trim();
        let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (number, name) = text.split_at(split);
        let number: f64 = match number.trim().parse() {
            Ok(number) if f64::is_finite(number) && number > 0.0 => number,
            _ => bail!(
                "{option}: '{text}' is no length of time such as 7d, 24h, 30min, 1y, or a number of steps"
            ),
        };
        if name.is_empty() {
            return Ok(number * step);
        }
        let Some(seconds) = unit(name) else {
            bail!("{option}: '{name}' in '{text}' is none of the units s, min, h, d, w, mo, y");
        };
        match self {
            Self::Dates => Ok(number * seconds),
            Self::Unit(own) => Ok(number * seconds / own),
            Self::Numbers => bail!(
                "{option}: the times are plain numbers, so '{text}' says nothing about them; --time-unit h says that they \
                 count hours, and a number alone counts steps"
            ),
        }
    }

    /// A time as the file writes it.
    pub(super) fn write(self, time: f64) -> Option<String> {
        (self == Self::Dates).then(|| {
            let mut text = String::new();
            // Whole milliseconds: sums of steps leave crumbs.
            crate::input::write_time((time * 1e3).round() as i128 * 1_000_000, &mut text);
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        let of = |clock: Clock, text| clock.length("--season", text, 0.5).unwrap();
        assert_eq!(of(Clock::Dates, "7d"), 7.0 * DAY);
        assert_eq!(of(Clock::Unit(3600.0), "1w"), 168.0);
        assert_eq!(of(Clock::Unit(YEAR), "1y"), 1.0);
        assert_eq!(of(Clock::Numbers, "48"), 24.0);
        assert_eq!(of(Clock::Unit(3600.0), " 1.5 h "), 1.5);
        for (clock, text) in [
            (Clock::Numbers, "7d"),
            (Clock::Dates, "d"),
            (Clock::Dates, "7x"),
            (Clock::Dates, "-1d"),
            (Clock::Dates, ""),
        ] {
            assert!(clock.length("--season", text, 1.0).is_err(), "{text}");
        }
    }

    #[test]
    fn columns_name_their_unit() {
        assert_eq!(Clock::new("hours", true, None).unwrap(), Clock::Unit(3600.0));
        assert_eq!(Clock::new("year", true, None).unwrap(), Clock::Unit(YEAR));
        assert_eq!(Clock::new("t", true, None).unwrap(), Clock::Numbers);
        assert_eq!(Clock::new("t", true, Some("min")).unwrap(), Clock::Unit(60.0));
        assert_eq!(Clock::new("when", false, None).unwrap(), Clock::Dates);
        assert!(Clock::new("when", false, Some("h")).is_err());
        assert!(Clock::new("t", true, Some("fortnight")).is_err());
    }
}
