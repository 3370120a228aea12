//! The controller that models use: the quantiles at several levels, by a forecast and a correction.
//!
//! For each level log q = D + c, where D is the forecast of `forecast` and c ← c + η (miss − α) keeps the promise. With
//! the logarithms of the scores, and so D, between L and U, c stays between L − U − η and U − L + η, and
//!
//! ```text
//! |misses/T − α| = |c_T − c_0|/(ηT) ≤ (U − L + η)/(ηT)        η = 0.02
//! ```
//!
//! for every sequence of scores. L and U are a hundredth and a million times the plain quantile; q never leaves them, so no
//! interval is infinite. A score below L cannot be missed: predictions that are exact for ever are covered by intervals
//! next to nothing wide, more often than promised. While that lasts c does not wind up.
//!
//! A higher level has at least the quantile of a lower one: the largest of those up to it. Levels between two that are
//! tracked are interpolated, linearly in the logarithms of their quantile and of the plain one.

use serde::{Deserialize, Serialize};

use super::check_level;
use super::forecast::{Forecast, Scales, mix};
use crate::error::{Error, Result};
use crate::normal;
use crate::saved::{Restore, restored_after_reading};

/// The step η of the correction.
const RATE: f64 = 0.02;

/// How far a quantile may be below and above the plain one: L and U.
const NARROWEST: f64 = 0.01;
const WIDEST: f64 = 1e6;

/// The most levels that are tracked.
const MOST_LEVELS: usize = 64;

/// What a score is, and where its quantiles are if the model is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Score {
    /// |y − μ|/σ, the absolute value of a standard normal number.
    Deviations,
    /// −log p of the class that came. A set takes in the classes at least as likely as e⁻ᑫ, and always the likeliest.
    Surprise,
    /// The same for sets that may be empty.
    SurpriseOrNone,
}

impl Score {
    /// The quantile before any row: that of a normal number; for classes, −log α, since those that are less likely than α
    /// are left out.
    pub fn plain(self, level: f64) -> f64 {
        match self {
            Self::Deviations => normal::quantile(0.5 + 0.5 * level),
            Self::Surprise | Self::SurpriseOrNone => -(-level).ln_1p(),
        }
    }

    /// The logarithms of the plain, the smallest and the largest quantile.
    fn range(self, level: f64) -> (f64, (f64, f64)) {
        let plain = self.plain(level).ln();
        let narrowest = match self {
            Self::Deviations | Self::SurpriseOrNone => plain + NARROWEST.ln(),
            // Only one class can be likelier than a half, and that one is there anyway.
            Self::Surprise => plain.min(std::f64::consts::LN_2.ln()),
        };
        (plain, (narrowest, plain + WIDEST.ln()))
    }

    /// How large scores are on average if the model is right, roughly.
    fn mean(self) -> f64 {
        match self {
            Self::Deviations => 0.8,
            Self::Surprise | Self::SurpriseOrNone => 0.3,
        }
    }
}

/// Which row a quantile is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Horizon {
    /// The row whose score was taken in last: what was said before it was seen.
    Last,
    /// The row that comes next in the stream.
    Next,
    /// Rows further ahead, or elsewhere: recent errors say nothing about them, the long run does.
    Ahead,
}

/// One level.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Level {
    at: f64,
    forecast: Forecast,
    correction: f64,
    /// log q of rows that were left out of what was learned.
    #[serde(default)]
    left_out: Option<f64>,
    #[serde(skip)]
    plain: f64,
    #[serde(skip)]
    range: (f64, f64),
    /// D, and log q for the row to come, not below that of lower levels.
    #[serde(skip)]
    forecasted: f64,
    #[serde(skip)]
    next: f64,
    #[serde(skip)]
    last: f64,
}

impl Level {
    fn new(level: f64, score: Score) -> Self {
        let (plain, range) = score.range(level);
        let forecast = Forecast::new(plain);
        let (forecasted, next, last) = (plain, plain, plain);
        Self { at: level, forecast, correction: 0.0, left_out: None, plain, range, forecasted, next, last }
    }

    /// log q for rows elsewhere. In a stream that is sorted each row is at the edge of what is known, where deviations are
    /// large and scores small; those of rows that were left out are not.
    fn ahead(&self) -> f64 {
        self.left_out.map_or(self.forecast.steady(), |log_q| log_q.max(self.forecast.steady()))
    }

    /// The correction after a row. At the ends of the range it is not moved further out of it, nor left there.
    fn correct(&mut self, miss: bool) {
        let (raw, alpha) = (self.forecasted + self.correction, 1.0 - self.at);
        // What is rare comes first: misses are hard to predict, for a processor too.
        if raw >= self.range.1 && miss {
            self.correction = self.correction.min(self.range.1 - self.forecasted);
        } else if raw <= self.range.0 && !miss {
            self.correction = self.correction.max(self.range.0 - self.forecasted);
        } else {
            self.correction += RATE * (f64::from(u8::from(miss)) - alpha);
        }
    }
}

/// Quantiles of scores at several levels, kept so that each is exceeded as often as promised.
///
/// ```
/// use wiski::Horizon;
/// use wiski::internals::conformal::{Conformal, Score};
///
/// // Errors three times as large as the model says.
/// let mut control = Conformal::new(&[0.9], Score::Deviations)?;
/// let mut covered = 0.0;
/// for i in 0..10_000 {
///     let score = 3.0 * (f64::from(i) * 0.618_034).fract();
///     covered += f64::from(u8::from(score <= control.quantile(0.9, Horizon::Next)?)) / 10_000.0;
///     control.observe(score);
/// }
/// assert!((covered - 0.9).abs() < 0.003);
/// assert!((control.quantile(0.9, Horizon::Ahead)? - 2.7).abs() < 0.1);
/// # Ok::<(), wiski::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Conformal {
    score: Score,
    scales: Scales,
    levels: Vec<Level>,
}

restored_after_reading!(Conformal);

impl Restore for Conformal {
    fn restore(&mut self) -> Result<()> {
        let reject =
            |reason: &str| Err(Error::Config { field: "conformal control".into(), reason: reason.into() });
        if !self.levels.windows(2).all(|w| w[0].at < w[1].at) || self.levels.len() > MOST_LEVELS {
            return reject("its levels are not in order");
        }
        for level in &mut self.levels {
            check_level(level.at)?;
            (level.plain, level.range) = self.score.range(level.at);
            let most = level.range.1 - level.range.0 + 1.0;
            if !level.forecast.is_sound(level.range)
                || level.correction.is_nan()
                || level.correction.abs() > most
                || level.left_out.is_some_and(|log_q| !(level.range.0..=level.range.1).contains(&log_q))
            {
                return reject("a quantile is out of its range");
            }
        }
        if !self.scales.is_sound() {
            return reject("a mean of scores is out of its range");
        }
        self.scales.refresh();
        self.refresh();
        self.levels.iter_mut().for_each(|level| level.last = level.next);
        Ok(())
    }
}

impl Conformal {
    /// A controller of these levels that has seen no row; its quantiles are the plain ones.
    pub fn new(levels: &[f64], score: Score) -> Result<Self> {
        levels.iter().try_for_each(|&level| check_level(level))?;
        let mut sorted = levels.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted.dedup();
        if sorted.is_empty() || sorted.len() > MOST_LEVELS {
            let reason = format!("{} levels, where 1 to {MOST_LEVELS} can be tracked", sorted.len());
            return Err(Error::Config { field: "levels".into(), reason });
        }
        Ok(Self::begun(sorted.into_iter(), score))
    }

    /// Before any row. All that follows from the state is computed as it is for a state that was read.
    fn begun(levels: impl Iterator<Item = f64>, score: Score) -> Self {
        let levels = levels.map(|level| Level::new(level, score)).collect();
        let mut new = Self { score, scales: Scales::new(score.mean()), levels };
        new.refresh();
        new.levels.iter_mut().for_each(|level| level.last = level.next);
        new
    }

    /// The same levels before any row.
    #[must_use]
    pub fn cleared(&self) -> Self {
        Self::begun(self.levels(), self.score)
    }

    /// The number of scores taken in.
    pub fn rows(&self) -> f64 {
        self.scales.rows
    }

    /// The levels that are tracked, from the lowest.
    pub fn levels(&self) -> impl Iterator<Item = f64> {
        self.levels.iter().map(|l| l.at)
    }

    /// Takes in a score, in O(levels). One that is NaN says nothing.
    pub fn observe(&mut self, score: f64) {
        self.observe_set(score, false);
    }

    /// As [`Conformal::observe`], for a target that was covered whatever its score, if `always` says so: the likeliest
    /// class, where sets are never empty.
    pub fn observe_set(&mut self, score: f64, always: bool) {
        if score.is_nan() {
            return;
        }
        let log_score = score.ln();
        for level in &mut self.levels {
            let miss = !always && log_score > level.next;
            level.correct(miss);
            level.forecast.observe(log_score, 1.0 - level.at, &self.scales, level.range);
            level.last = level.next;
        }
        self.scales.observe(score);
        self.refresh();
    }

    /// Takes note of scores of rows that were left out of what was learned: quantiles of rows elsewhere
    /// ([`Horizon::Ahead`]) are no smaller than theirs. Too few of them say nothing about a level.
    pub fn observe_left_out(&mut self, mut scores: Vec<f64>) {
        scores.retain(|score| !score.is_nan());
        scores.sort_by(f64::total_cmp);
        for level in &mut self.levels {
            // The k-th of n is exceeded by a further one with probability 1 − k/(n + 1).
            let k = (level.at * (scores.len() + 1) as f64).ceil() as usize;
            let score = (1..=scores.len()).contains(&k).then(|| scores[k - 1]);
            level.left_out = score.map(|score| score.ln().clamp(level.range.0, level.range.1));
        }
    }

    /// Computes the quantiles for the row to come.
    fn refresh(&mut self) {
        let mut below = f64::NEG_INFINITY;
        for level in &mut self.levels {
            level.forecasted = level.forecast.value(&self.scales, level.range);
            let own = (level.forecasted + level.correction).clamp(level.range.0, level.range.1);
            level.next = own.max(below);
            below = level.next;
        }
    }

    /// The quantile at a level, tracked or not.
    pub fn quantile(&self, level: f64, horizon: Horizon) -> Result<f64> {
        check_level(level)?;
        let mut below = f64::NEG_INFINITY;
        let said = |l: &Level| match horizon {
            Horizon::Last => l.last,
            Horizon::Next => l.next,
            Horizon::Ahead => l.ahead(),
        };
        let points = self.levels.iter().map(|l| {
            below = below.max(said(l));
            (l.at, l.plain, below)
        });
        Ok(interpolated(points, level, self.score))
    }

    /// The quantiles as they are, for readers.
    pub fn quantiles(&self, horizon: Horizon) -> Quantiles {
        let said = |l: &Level| match self.quantile(l.at, horizon) {
            Ok(q) => (l.at, l.plain, q.ln()),
            Err(_) => (l.at, l.plain, l.plain),
        };
        Quantiles { points: self.levels.iter().map(said).collect(), score: self.score }
    }

    /// Takes in the state of a controller of another part of the stream: means of both, by the number of rows that each
    /// has seen. Levels that only one of them tracks stay as they are here.
    pub fn merge(&mut self, other: &Self) {
        let total = self.rows() + other.rows();
        if other.rows() == 0.0 || self.score != other.score {
            return;
        }
        let share = other.rows() / total;
        for level in &mut self.levels {
            if let Some(theirs) = other.levels.iter().find(|l| l.at == level.at) {
                level.forecast.merge(&theirs.forecast, share);
                mix(&mut level.correction, theirs.correction, share);
                level.left_out = level.left_out.into_iter().chain(theirs.left_out).reduce(f64::max);
            }
        }
        self.scales.merge(&other.scales, share);
        self.refresh();
    }
}

/// Quantiles at several levels, and so at any.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantiles {
    points: Vec<(f64, f64, f64)>,
    score: Score,
}

impl Quantiles {
    /// The plain quantiles: those of a model that is right.
    pub fn plain(score: Score) -> Self {
        Self { points: Vec::new(), score }
    }

    /// The quantile at a level.
    pub fn at(&self, level: f64) -> Result<f64> {
        check_level(level)?;
        Ok(interpolated(self.points.iter().copied(), level, self.score))
    }
}

/// The quantile at a level from those at others: pairs (level, log plain, log q), from the lowest.
fn interpolated(points: impl Iterator<Item = (f64, f64, f64)>, level: f64, score: Score) -> f64 {
    let mut before: Option<(f64, f64)> = None;
    for (at, plain_at, log_at) in points {
        if at == level {
            return log_at.exp();
        }
        if at > level {
            let plain = score.plain(level).ln();
            return match before {
                Some((p, q)) => (q + (log_at - q) * (plain - p) / (plain_at - p)).exp(),
                None => (log_at + plain - plain_at).exp(),
            };
        }
        before = Some((plain_at, log_at));
    }
    let plain = score.plain(level).ln();
    before.map_or(plain, |(p, q)| q + plain - p).exp()
}
