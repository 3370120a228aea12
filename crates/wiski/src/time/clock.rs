//! The clock of a series: what a step is.
//!
//! Most clocks tick evenly. Months do not: a series by the month, the quarter or the year has rows 28 to 366 days apart, and yet each
//! is one step after the one before. Where times are dates and rows come so, the clock counts months: row i stands at
//!
//! ```text
//! 12 · year + month + (days since the anchor)/31
//! ```
//!
//! with the anchor a day of the month or its end, whichever rows keep to. Rows on it are whole numbers, and steps ahead are dates that
//! continue them.

use serde::{Deserialize, Serialize};

use super::window::median_gap;

const DAY: f64 = 86_400.0;
/// The mean length of a month.
const MONTH: f64 = 365.25 * DAY / 12.0;
/// The fewest days between rows that come by the month.
const FEWEST_DAYS: f64 = 27.0;
/// How far from its anchor the day of a row may lie: months of business end on a Friday.
const MOST_OFF: i64 = 4;
/// Days that a month has at most.
const LONGEST: f64 = 31.0;

/// What times are measured by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) enum Clock {
    /// Times as they are.
    #[default]
    Even,
    /// Months, of dates as seconds since 1970.
    Months(Anchor),
}

/// The day of the month that rows keep to, and the time of that day.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Anchor {
    /// The day, from one on; or the days before the last one.
    day: i64,
    from_end: bool,
    /// Seconds since midnight.
    second: f64,
}

/// Year, month from zero on, and day from one on.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Date {
    month: i64,
    day: i64,
}

impl Date {
    /// The date of a day since 1970 (Hinnant's algorithm: years begin in March, so that leap days are last).
    fn of(day: i64) -> Self {
        let day = day + 719_468;
        let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        // Months since year zero: March is the third.
        Self { month: 12 * (year + 400 * era) + from_march + 2, day }
    }

    /// The day since 1970 on which a month begins.
    fn begin(month: i64) -> i64 {
        let from_march = month - 2;
        let (year, month) = (from_march.div_euclid(12), from_march.rem_euclid(12));
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        era * 146_097 + 365 * of_era + of_era / 4 - of_era / 100 + (153 * month + 2) / 5 - 719_468
    }

    fn days_of(month: i64) -> i64 {
        Self::begin(month + 1) - Self::begin(month)
    }
}

impl Anchor {
    /// The day of a month on which it lies.
    fn day_of(self, month: i64) -> i64 {
        let days = Date::days_of(month);
        if self.from_end { days - self.day } else { self.day.min(days) }
    }

    /// What rows keep to, if they come by the month.
    fn of(times: &[f64]) -> Option<Self> {
        let dates: Vec<Date> = times.iter().map(|t| Date::of((t / DAY).floor() as i64)).collect();
        if times.len() < 3
            || median_gap(times) < FEWEST_DAYS * DAY
            || dates.windows(2).any(|w| w[0].month == w[1].month)
        {
            return None;
        }
        let median = |mut values: Vec<i64>| {
            values.sort_unstable();
            values[values.len() / 2]
        };
        let second = times[times.len() - 1].rem_euclid(DAY);
        let day = median(dates.iter().map(|d| d.day).collect());
        let before = median(dates.iter().map(|d| Date::days_of(d.month) - d.day).collect());
        let off = |anchor: &Self| {
            let each = dates.iter().map(|d| (d.day - anchor.day_of(d.month)).abs());
            (each.clone().max().unwrap_or(0), each.sum::<i64>())
        };
        let anchors = [Self { day, from_end: false, second }, Self { day: before, from_end: true, second }];
        let best = anchors.into_iter().min_by_key(|anchor| off(anchor).1)?;
        (off(&best).0 <= MOST_OFF).then_some(best)
    }
}

impl Clock {
    /// The clock of rows at these times, which are dates or are not.
    pub(super) fn of(times: &[f64], dates: bool) -> Self {
        Anchor::of(times).filter(|_| dates).map_or(Self::Even, Self::Months)
    }

    /// A time by this clock.
    pub(super) fn at(self, time: f64) -> f64 {
        match self {
            Self::Even => time,
            Self::Months(anchor) => {
                let day = (time / DAY).floor();
                let date = Date::of(day as i64);
                let since =
                    (date.day - anchor.day_of(date.month)) as f64 + (time - day * DAY - anchor.second) / DAY;
                date.month as f64 + since / LONGEST
            }
        }
    }

    /// The time that this clock shows as `value`.
    pub(super) fn time(self, value: f64) -> f64 {
        match self {
            Self::Even => value,
            Self::Months(anchor) => {
                let month = value.round();
                let day = Date::begin(month as i64) + anchor.day_of(month as i64) - 1;
                day as f64 * DAY + anchor.second + (value - month) * LONGEST * DAY
            }
        }
    }

    /// How many units of time one unit of the clock is, on average.
    pub(super) fn unit(self) -> f64 {
        match self {
            Self::Even => 1.0,
            Self::Months(_) => MONTH,
        }
    }

    /// The usual step between times, by this clock: a whole number of months.
    pub(super) fn step(self, times: &[f64]) -> f64 {
        let shown: Vec<f64> = times.iter().map(|t| self.at(*t)).collect();
        let gap = median_gap(&shown);
        if self == Self::Even { gap } else { gap.round().max(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every day of four centuries, counted one after the other.
    #[test]
    fn days_and_dates_are_those_of_the_calendar() {
        let (mut year, mut month, mut day) = (1800, 0, 1);
        let mut number = Date::begin(12 * 1800);
        assert_eq!(Date::begin(12 * 1970), 0);
        assert_eq!(Date::begin(12 * 2000 + 2), 11_017);
        while year < 2200 {
            assert_eq!(Date::of(number), Date { month: 12 * year + month, day });
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let days = [31, 28 + i64::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month as usize];
            assert_eq!(Date::days_of(12 * year + month), days);
            (number, day) = (number + 1, day + 1);
            if day > days {
                (month, day) = (month + 1, 1);
            }
            if month == 12 {
                (year, month) = (year + 1, 0);
            }
        }
    }

    fn dates(first: i64, every: usize, count: usize, day: impl Fn(i64) -> i64) -> Vec<f64> {
        let of = |month: i64| (Date::begin(month) + day(month) - 1) as f64 * DAY + 3600.0;
        (first..).step_by(every).take(count).map(of).collect()
    }

    #[test]
    fn rows_by_the_month_are_whole_numbers_and_go_on_as_they_came() {
        let start = 12 * 1999 + 10;
        for every in [1, 3, 12] {
            let firsts = dates(start, every, 30, |_| 1);
            let middles = dates(start, every, 30, |_| 15);
            let ends = dates(start, every, 30, Date::days_of);
            let late = dates(start, every, 30, |month| Date::days_of(month).min(30));
            for times in [firsts, middles, ends, late] {
                let (known, ahead) = times.split_at(20);
                let clock = Clock::of(known, true);
                assert!(matches!(clock, Clock::Months(_)));
                assert_eq!(clock.step(known), every as f64);
                for (k, time) in ahead.iter().enumerate() {
                    let value = clock.at(known[19]) + ((k + 1) * every) as f64;
                    assert_eq!(clock.time(value), *time, "{every} {k}");
                    assert_eq!(clock.at(*time), value);
                }
            }
        }
    }

    #[test]
    fn times_between_rows_are_in_order() {
        let times = dates(12 * 2023, 1, 24, Date::days_of);
        let clock = Clock::of(&times, true);
        let shown: Vec<f64> = (0..8000).map(|k| clock.at(times[0] + f64::from(k) * 7000.0)).collect();
        assert!(shown.windows(2).all(|w| w[0] < w[1]));
    }

    #[test]
    fn business_months_and_other_clocks() {
        // The last day that is no weekend: 1970 began on a Thursday.
        let business = dates(12 * 2010, 1, 40, |month| {
            let last = Date::begin(month + 1) - 1;
            let weekday = (last + 3).rem_euclid(7);
            Date::days_of(month) - (weekday - 4).max(0)
        });
        assert!(matches!(Clock::of(&business, true), Clock::Months(anchor) if anchor.from_end));
        let days: Vec<f64> = (0..100).map(|d| f64::from(d) * DAY).collect();
        let four_weeks: Vec<f64> = days.iter().map(|t| 28.0 * t).collect();
        assert_eq!(Clock::of(&days, true), Clock::Even);
        assert_eq!(Clock::of(&four_weeks, true), Clock::Even);
        assert_eq!(Clock::of(&business, false), Clock::Even);
    }
}
