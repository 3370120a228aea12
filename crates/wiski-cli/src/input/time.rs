//! Times as seconds since the beginning of 1970, from and to the notation of ISO 8601 and RFC 3339.

use std::fmt::Write;

const DAY: i64 = 86_400;

/// Seconds since 1970 of a time such as `2012-01-31`, `2012-01-31 23:59`, `2012-01-31T23:59:30.5Z` or
/// `2012-01-31T23:59:30+01:00`. A time that names no zone is taken as UTC.
pub(super) fn parse(text: &str) -> Option<f64> {
    let (date, clock) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], text[at + 1..].trim()),
        None => (text, "00:00"),
    };
    let mut parts = date.split('-');
    let year = digits(parts.next()?, 4)?;
    let month = digits(parts.next()?, 2)?;
    let day = digits(parts.next()?, 2)?;
    let days = days(year, month, day);
    // The 31st of April is the first of May: only real dates survive the way back.
    if parts.next().is_some() || date_of(days) != (year, month, day) {
        return None;
    }
    let (clock, offset) = match clock.find(['Z', 'z', '+', '-']) {
        Some(at) => (clock[..at].trim_end(), zone(&clock[at..])?),
        None => (clock, 0),
    };
    let (clock, fraction) = match clock.split_once('.') {
        Some((clock, fraction)) if clock.len() == 8 && fraction.bytes().all(|b| b.is_ascii_digit()) => {
            let kept = &fraction[..fraction.len().min(9)];
            (clock, kept.parse::<f64>().ok()? / 10f64.powi(kept.len() as i32))
        }
        Some(_) => return None,
        None => (clock, 0.0),
    };
    let mut parts = clock.split(':');
    let hour = digits(parts.next()?, 2).filter(|&hour| hour < 24)?;
    let minute = digits(parts.next()?, 2).filter(|&minute| minute < 60)?;
    // Second 60 is a leap second, which this scale counts as the first of the next minute.
    let second = parts.next().map_or(Some(0), |part| digits(part, 2).filter(|&second| second <= 60))?;
    if parts.next().is_some() {
        return None;
    }
    Some((days * DAY + hour * 3600 + minute * 60 + second - offset) as f64 + fraction)
}

/// Appends the time this many nanoseconds after the beginning of 1970, without a zone.
pub(super) fn write(nanoseconds: i128, out: &mut String) {
    const NANO: i128 = 1_000_000_000;
    let seconds = nanoseconds.div_euclid(NANO) as i64;
    let (year, month, day) = date_of(seconds.div_euclid(DAY));
    let clock = seconds.rem_euclid(DAY);
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
        .expect("a string takes all text");
    let fraction = nanoseconds.rem_euclid(NANO);
    if fraction != 0 {
        let digits = format!("{fraction:09}");
        write!(out, ".{}", digits.trim_end_matches('0')).expect("a string takes all text");
    }
}

/// The offset from UTC in seconds: `Z`, `+01:00`, `+0100` or `+01`.
fn zone(text: &str) -> Option<i64> {
    let sign = match text.as_bytes()[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return (text.len() == 1).then_some(0),
    };
    let (hours, minutes) = match text.len() {
        3 => (&text[1..3], "00"),
        5 => (text.get(1..3)?, text.get(3..5)?),
        _ => text[1..].split_once(':')?,
    };
    let minutes = digits(minutes, 2).filter(|&minutes| minutes < 60)?;
    Some(sign * (digits(hours, 2).filter(|&hours| hours < 24)? * 3600 + minutes * 60))
}

/// A number of exactly this many digits.
fn digits(text: &str, count: usize) -> Option<i64> {
    let sound = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    sound.then(|| text.parse().ok())?
}

/// Days since 1970-01-01. Years are counted from March, so that a leap day is the last of its year, and in eras of
/// 400 years, after which the calendar repeats.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year * 365 + year / 4 - year / 100 + day_of_year - 719_468
}

/// Year, month and day: the inverse of [`days`].
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let month = (from_march + 2) % 12 + 1;
    (era * 400 + year + i64::from(month <= 2), month, day_of_year - (153 * from_march + 2) / 5 + 1)
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
            ("2016-12-31T23:59:60Z", 1_483_228_800.0),
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
