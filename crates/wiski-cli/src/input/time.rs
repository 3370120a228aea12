//! Times as seconds since the beginning of 1970, from and to the notation of ISO 8601 and RFC 3339, and the parts of
//! the calendar that can be inputs.

use std::fmt::Write;

use jiff::Timestamp;
use jiff::fmt::temporal::Pieces;
use jiff::tz::{Offset, TimeZone};
use wiski::persist::CalendarPart;

const DAY: f64 = 86_400.0;

/// Seconds since 1970 of a time such as `2012-01-31`, `2012-01-31 23:59`, `2012-01-31T23:59:30.5Z` or
/// `2012-01-31T23:59:30+01:00`. A time that names no zone is taken as UTC.
pub(super) fn parse(text: &str) -> Option<f64> {
    // Without the dashes a date would be a number. Said in advance, since most cells of most files are no times.
    if !matches!(text.as_bytes(), [b'0'..=b'9', _, _, _, b'-', _, _, b'-', _, _, ..]) {
        return None;
    }
    let joined;
    let text = match text.rsplit_once(' ') {
        // As some programs write: a blank before the offset.
        Some((time, offset)) if time.len() > 10 => {
            joined = [time.trim_end(), offset].concat();
            &joined
        }
        _ => text,
    };
    let pieces = Pieces::parse(text).ok()?;
    if pieces.offset().is_none() && pieces.time_zone_annotation().is_some() {
        // A zone by name needs a database.
        return None;
    }
    let offset = pieces.to_numeric_offset().unwrap_or(Offset::UTC);
    let time = pieces.date().to_datetime(pieces.time().unwrap_or_default());
    let instant = offset.to_timestamp(time).ok()?;
    // In two parts, which keeps the digits of a fraction.
    Some(instant.as_second() as f64 + f64::from(instant.subsec_nanosecond()) / 1e9)
}

/// Appends the time this many nanoseconds after the beginning of 1970, without a zone.
pub(crate) fn write(nanoseconds: i128, out: &mut String) {
    let written = match Timestamp::from_nanosecond(nanoseconds) {
        Ok(time) => write!(out, "{}", TimeZone::UTC.to_datetime(time)),
        // Beyond the year 9999.
        Err(_) => write!(out, "{nanoseconds}"),
    };
    written.expect("a string takes all text");
}

/// A part of the time this many seconds after the beginning of 1970, in UTC.
pub(super) fn part(part: CalendarPart, seconds: f64) -> f64 {
    let days = seconds / DAY;
    match part {
        CalendarPart::Days => days,
        CalendarPart::Hour => seconds.rem_euclid(DAY) / 3600.0,
        // 1970 began on a Thursday.
        CalendarPart::Weekday => (days + 3.0).rem_euclid(7.0),
        CalendarPart::Yearday => {
            let year = 365.25;
            let Ok(time) = Timestamp::from_second(seconds as i64) else { return days.rem_euclid(year) };
            let date = TimeZone::UTC.to_datetime(time).date();
            let passed = f64::from(date.day_of_year() - 1) + seconds.rem_euclid(DAY) / DAY;
            year * passed / f64::from(date.days_in_year())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_times() {
        for (text, seconds) in [
            ("1970-01-01", 0.0),
            ("1969-12-31T23:59:59Z", -1.0),
            ("2012-01-01 00:30:00", 1_325_377_800.0),
            ("2012-01-01T00:30", 1_325_377_800.0),
            ("2012-01-01T01:30:00+01:00", 1_325_377_800.0),
            ("2011-12-31 19:00:00 -0530", 1_325_377_800.0),
            ("2012-01-01t00:30:00.250z", 1_325_377_800.25),
            ("2000-02-29T12:00:00Z", 951_825_600.0),
            ("2016-12-31T23:59:60Z", 1_483_228_799.0),
            ("0001-01-01", -62_135_596_800.0),
        ] {
            assert_eq!(parse(text), Some(seconds), "{text}");
        }
    }

    #[test]
    fn not_times() {
        for text in [
            "",
            "noon",
            "2012",
            "2012-01",
            "2012-1-1",
            "2012-13-01",
            "2012-00-10",
            "2011-02-29",
            "2012-04-31",
            "1900-02-29",
            "2012-01-01T",
            "2012-01-01T24:00:00",
            "2012-01-01T00:60",
            "2012-01-01T00:00:61",
            "2012-01-01T00:00:00+1",
            "2012-01-01T00:00:00Zulu",
            "2012-01-01T00:00:00.x",
            "2012-01-01T00:00:00.",
            "2012-01-01T00:00.5",
            "2012-01-01-01",
            "2012-01-01T00:00:00é",
            "2012-01-01T00:00:00+é1é",
            "2012-01-01T1:2:3",
            "２０１２-01-01",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_are_no_times() {
        for text in ["20120131", "1325377800", "20120131T000000", "-0001-01-01", "+12345-01-01", "1e9"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn parts_of_the_calendar() {
        let at = |text: &str, part| super::part(part, parse(text).unwrap());
        assert_eq!(at("1970-01-02T12:00", CalendarPart::Days), 1.5);
        assert_eq!(at("2024-02-29T06:45", CalendarPart::Hour), 6.75);
        assert_eq!(at("1960-05-01T23:30", CalendarPart::Hour), 23.5);
        // A Monday, noon of a Sunday, and a Wednesday before 1970.
        assert_eq!(at("2026-11-16", CalendarPart::Weekday), 0.0);
        assert_eq!(at("2026-11-15T12:00", CalendarPart::Weekday), 6.5);
        assert_eq!(at("1969-12-31", CalendarPart::Weekday), 2.0);
        assert_eq!(at("2023-01-01", CalendarPart::Yearday), 0.0);
        // The middle of a year is the middle of a leap year, too.
        assert!((at("2023-07-02T12:00", CalendarPart::Yearday) - 182.625).abs() < 1e-9);
        assert!((at("2024-07-02T00:00", CalendarPart::Yearday) - 182.625).abs() < 1e-9);
        assert!(at("2024-12-31T23:59:59", CalendarPart::Yearday) < 365.25);
        // Farther than any calendar.
        assert!(super::part(CalendarPart::Yearday, 1e300).is_finite());
    }

    proptest! {
        #[test]
        fn written_times_are_read_back(microseconds in -62_135_596_800_000_000i64..253_402_300_800_000_000) {
            let mut text = String::new();
            write(i128::from(microseconds) * 1000, &mut text);
            let seconds = parse(&text).unwrap();
            prop_assert!((seconds - microseconds as f64 / 1e6).abs() <= 4e-5, "{text}");
        }

        #[test]
        fn any_text_is_survived(text in "[0-9TZ:+. é-]{0,30}") {
            parse(&text);
        }
    }
}
