//! Which seasons rows show, and which harmonics of a season they need.
//!
//! Everything is read off the spectrum of the rows without their quadratic trend, under a Hann window w:
//! S(f) = |Σ w y e^{−2πift}|²/Σ w², which for white noise of variance σ² has mean σ² at every frequency. A line stands out
//! where S is far above its neighbors. Its frequency may be a multiple of that of the season, so multiples of its period
//! are tried; the period counts whose harmonics together explain most, less what as many lines of noise would. The
//! harmonics of a season found are taken out by least squares, and the rest is searched again.
//!
//! Gaps are filled by straight lines. Where they are as long as a wave, the lines cut it into pieces, whose spectrum lies on both sides
//! of the line and hides it: S is no longer far above its neighbors. So a wave that may be there is fitted to the rows and goes on
//! through the gaps, and counts if it stands out then, by the share of the grid that has rows: the rest is what it says of itself.

use std::borrow::Cow;
use std::f64::consts::TAU;

use faer::Mat;
use realfft::RealFftPlanner;

use super::plan::PlannedSeason;
use super::window::{fill_gaps, median_gap};
use crate::dense;
use crate::error::Result;

/// A line counts if it is so many times as strong as what is around it: noise is, once in four hundred.
const STRONG: f64 = 6.0;
/// A season must explain at least this share of the variance around the trend.
const SHARE: f64 = 0.02;
/// The same for a multiple of a season already found.
const SHARE_MULTIPLE: f64 = 0.004;
/// How much more rows a multiple apart resemble each other than those one season more or less.
const CONTRAST: f64 = 0.05;
/// The correlation of rows one further season apart, at least.
const RESEMBLANCE: f64 = 0.3;
/// The longest multiple that is tried.
const LONGEST_MULTIPLE: u32 = 12;
/// The most seasons found.
const MOST: usize = 3;
/// The most harmonics of all seasons together.
const MOST_HARMONICS: usize = 72;
/// How far from a whole number of steps a period may have been found, in units of period²/span, which would be one turn
/// more or less; and how much more may then be left of the rows.
const TOLD: f64 = 0.3;
const WORSE: f64 = 1.06;
/// Rows so many times farther apart than usual leave a gap between them.
const GAP: f64 = 2.5;
/// The harmonics that go on through gaps, and the weight of zero for their amplitudes beside that of the rows: what happens at an hour
/// that never has a row is not known.
const THROUGH_GAPS: u32 = 6;
const SHRUNK: f64 = 0.01;
/// With gaps, so many lines are looked at more closely.
const CLOSER: usize = 8;
/// A season must be seen at least so many times to be found.
const TURNS: f64 = 3.0;
/// The same for a lag to be tried.
const TURNS_OF_LAG: f64 = 1.5;
/// The same for a season to be tried on few rows; how many of their strongest lines are tried, and the harmonics that such a season
/// has.
const SEEN: f64 = 2.0;
const STRONGEST: usize = 3;
const MOST_OF_FEW: u32 = 12;

/// Rows ready for spectra, interpolated to a regular grid: gaps would otherwise leave lines of their own.
#[derive(Clone)]
struct Spectrum {
    times: Vec<f64>,
    /// What is left of the targets.
    rest: Vec<f64>,
    /// Which points are not in gaps.
    known: Vec<bool>,
    window: Vec<f64>,
    norm: f64,
    span: f64,
}

impl Spectrum {
    fn new(times: &[f64], targets: &[f64]) -> Result<Self> {
        let (first, last) = (times[0], times[times.len() - 1]);
        let span = (last - first).max(1.0);
        let n = (span.round() as usize + 1).clamp(16, 1 << 15);
        let scale = span / (n - 1) as f64;
        let usual = median_gap(times).max(scale);
        let mut row = 0;
        let grid: Vec<f64> = (0..n).map(|i| first + i as f64 * scale).collect();
        let value = |t: &f64| {
            while row + 2 < times.len() && times[row + 1] < *t {
                row += 1;
            }
            let gap = times[row + 1] - times[row];
            let u = if gap > 0.0 { ((t - times[row]) / gap).clamp(0.0, 1.0) } else { 0.0 };
            let nearest = gap * u.min(1.0 - u);
            let known = gap <= GAP * usual || nearest <= 0.5 * scale;
            ((1.0 - u) * targets[row] + u * targets[row + 1], known)
        };
        let (rest, known) = grid.iter().map(value).unzip();
        let hann = |i: usize| 0.5 - 0.5 * (TAU * (i as f64 + 0.5) / n as f64).cos();
        let window: Vec<f64> = (0..n).map(hann).collect();
        let norm = window.iter().map(|w| w * w).sum();
        let mut spectrum = Self { times: grid, rest, known, window, norm, span };
        let trend: Vec<Vec<f64>> = (0..3)
            .map(|k| spectrum.times.iter().map(|t| (2.0 * (t - first) / span - 1.0).powi(k)).collect())
            .collect();
        spectrum.remove(&trend)?;
        Ok(spectrum)
    }

    fn has_gaps(&self) -> bool {
        self.known.iter().any(|known| !known)
    }

    /// The share of the grid that has rows.
    fn share(&self) -> f64 {
        self.known.iter().filter(|known| **known).count() as f64 / self.known.len() as f64
    }

    /// The least-squares fit of some columns to the points that are not in gaps, everywhere.
    fn fit(&self, columns: &[Vec<f64>], ridge: f64) -> Result<Vec<f64>> {
        let n = columns.len();
        let inner = |a: &[f64], b: &[f64]| {
            a.iter()
                .zip(b)
                .zip(&self.known)
                .filter(|(_, known)| **known)
                .map(|((a, b), _)| a * b)
                .sum::<f64>()
        };
        let ridge = ridge * self.times.len() as f64;
        let gram =
            Mat::from_fn(n, n, |i, j| inner(&columns[i], &columns[j]) + if i == j { ridge } else { 0.0 });
        let l = dense::cholesky(gram)?;
        let right: Vec<f64> = columns.iter().map(|c| inner(c, &self.rest)).collect();
        let mut weights = dense::solve_vector(l.as_ref(), &right);
        dense::solve_lower_transposed(l.as_ref(), faer::ColMut::from_slice_mut(&mut weights).as_mat_mut());
        let mut fit = vec![0.0; self.times.len()];
        for (column, weight) in columns.iter().zip(&weights) {
            fit.iter_mut().zip(column).for_each(|(y, c)| *y += weight * c);
        }
        Ok(fit)
    }

    /// Takes out the least-squares fit of some columns; lines go over the gaps in what is left.
    fn remove(&mut self, columns: &[Vec<f64>]) -> Result<()> {
        let fit = self.fit(columns, 1e-9)?;
        self.subtract(&fit);
        Ok(())
    }

    fn subtract(&mut self, fit: &[f64]) {
        self.rest.iter_mut().zip(fit).for_each(|(y, fit)| *y -= fit);
        if self.has_gaps() {
            let gaps = self.rest.iter_mut().zip(&self.known).filter(|(_, known)| !**known);
            gaps.for_each(|(y, _)| *y = f64::NAN);
            fill_gaps(&mut self.rest);
        }
    }

    fn waves(&self, period: f64, harmonics: impl Iterator<Item = u32>) -> Vec<Vec<f64>> {
        let wave = |j: u32| {
            let angle = |t: &f64| TAU * f64::from(j) * t / period;
            let cos = self.times.iter().map(|t| angle(t).cos()).collect();
            [cos, self.times.iter().map(|t| angle(t).sin()).collect()]
        };
        harmonics.flat_map(wave).collect()
    }

    fn remove_season(&mut self, season: &PlannedSeason) -> Result<()> {
        self.remove(&self.waves(season.period, season.harmonics.iter().copied()))
    }

    /// The same rows, where waves of a period go on through the gaps.
    fn through_gaps(&self, period: f64) -> Result<Cow<'_, Self>> {
        if !self.has_gaps() {
            return Ok(Cow::Borrowed(self));
        }
        let top = ((period / 2.0 - 0.01).floor() as u32).clamp(1, THROUGH_GAPS);
        let fit = self.fit(&self.waves(period, 1..=top), SHRUNK)?;
        let mut out = self.clone();
        out.subtract(&fit);
        out.rest.iter_mut().zip(&fit).for_each(|(y, fit)| *y += fit);
        Ok(Cow::Owned(out))
    }

    /// S(f).
    fn power(&self, f: f64) -> f64 {
        let (mut c, mut s) = (0.0, 0.0);
        for ((t, y), w) in self.times.iter().zip(&self.rest).zip(&self.window) {
            let (sin, cos) = (TAU * f * t).sin_cos();
            c += w * y * cos;
            s += w * y * sin;
        }
        (c * c + s * s) / self.norm
    }

    /// The correlation of what is left with itself after a lag, in steps.
    fn correlation(&self, lag: f64) -> f64 {
        let n = self.rest.len();
        let lag = (lag * (n - 1) as f64 / self.span).round() as usize;
        if 4 * lag > 3 * n {
            return 0.0;
        }
        let inner: f64 = self.rest[lag..].iter().zip(&self.rest).map(|(a, b)| a * b).sum();
        let total: f64 = self.rest.iter().map(|y| y * y).sum();
        inner / total.max(1e-300) * n as f64 / (n - lag) as f64
    }

    /// S at all frequencies up to a half a step, and their distance.
    fn periodogram(&self) -> (Vec<f64>, f64) {
        let n = self.rest.len();
        let size = (2 * n).next_power_of_two();
        let mut values: Vec<f64> = self.rest.iter().zip(&self.window).map(|(y, w)| y * w).collect();
        values.resize(size, 0.0);
        let fft = RealFftPlanner::<f64>::new().plan_fft_forward(size);
        let mut lines = fft.make_output_vec();
        // Lengths are those that the plan asks for.
        if fft.process(&mut values, &mut lines).is_err() {
            return (Vec::new(), 1.0);
        }
        let scale = self.span / (n - 1) as f64;
        (lines.iter().map(|z| z.norm_sqr() / self.norm).collect(), 1.0 / (size as f64 * scale))
    }
}

/// The harmonics that a season needs, with the sum by which they stand out; `taken` are other seasons'.
fn harmonics(
    spectrum: &Spectrum,
    period: f64,
    taken: &[PlannedSeason],
    most: usize,
) -> Result<(Vec<u32>, f64)> {
    let top = ((period / 2.0 - 0.01).floor().max(1.0) as u32).min(400);
    let resolved = 0.5 / spectrum.span;
    let free = |j: u32| {
        let f = f64::from(j) / period;
        let same =
            |s: &PlannedSeason| s.harmonics.iter().any(|i| (f64::from(*i) / s.period - f).abs() < resolved);
        !taken.iter().any(same)
    };
    let candidates: Vec<u32> = (1..=top).filter(|j| free(*j)).collect();
    if spectrum.span < 1.5 * period {
        // Hardly seen once: only its slow waves, and the prior decides.
        return Ok((candidates.into_iter().take(2).collect(), 0.0));
    }
    let spectrum = spectrum.through_gaps(period)?;
    let share = spectrum.share();
    let lines: Vec<(u32, f64)> =
        candidates.iter().map(|&j| (j, spectrum.power(f64::from(j) / period))).collect();
    // What is around a line: halfway to the next ones, where the window can tell them apart.
    let apart = spectrum.span > 4.0 * period;
    let between: Vec<f64> = if apart {
        (0..=top).map(|j| spectrum.power((f64::from(j) + 0.5) / period)).collect()
    } else {
        let mut powers: Vec<f64> = lines.iter().map(|l| l.1).collect();
        powers.sort_by(f64::total_cmp);
        vec![powers.get(powers.len() / 2).copied().unwrap_or(0.0); top as usize + 1]
    };
    let background = |j: u32| {
        let around = &between[(j as usize).saturating_sub(9)..(j as usize + 9).min(between.len())];
        let mut sorted = around.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2] / std::f64::consts::LN_2
    };
    let mut strong: Vec<(u32, f64, f64)> = lines
        .iter()
        .map(|&(j, power)| (j, share * power, background(j)))
        .filter(|&(_, power, around)| power > STRONG * around)
        .collect();
    strong.sort_by(|a, b| b.1.total_cmp(&a.1));
    strong.truncate(most);
    let gain = strong.iter().map(|&(_, power, around)| power - STRONG * around).sum();
    let mut chosen: Vec<u32> = strong.iter().map(|s| s.0).collect();
    if chosen.is_empty() {
        chosen.extend(candidates.first());
    }
    chosen.sort_unstable();
    Ok((chosen, gain))
}

/// What seasons and a quadratic trend leave of rows, on a regular grid of about a step; NaN in gaps.
pub(super) fn rest(times: &[f64], targets: &[f64], seasons: &[PlannedSeason]) -> Result<Vec<f64>> {
    let mut spectrum = Spectrum::new(times, targets)?;
    seasons.iter().try_for_each(|season| spectrum.remove_season(season))?;
    let known = |(y, known): (f64, bool)| if known { y } else { f64::NAN };
    Ok(spectrum.rest.into_iter().zip(spectrum.known).map(known).collect())
}

/// A multiple of the shortest season after which rows without their seasons resemble each other, in steps, that was not seen
/// often enough to be a season itself: of two weeks one can tell that days a week apart are alike, but not yet how.
pub(super) fn resembling(times: &[f64], targets: &[f64], seasons: &[PlannedSeason]) -> Result<Option<usize>> {
    let Some(short) = seasons.iter().map(|s| s.period).min_by(f64::total_cmp) else { return Ok(None) };
    let mut spectrum = Spectrum::new(times, targets)?;
    seasons.iter().try_for_each(|season| spectrum.remove_season(season))?;
    let longest = seasons.iter().map(|s| s.period).fold(short, f64::max);
    let mut best: Option<(f64, usize)> = None;
    for m in 2..=LONGEST_MULTIPLE {
        let lag = f64::from(m) * short;
        if lag < 1.5 * longest || TURNS_OF_LAG * lag > spectrum.span {
            continue;
        }
        // Against one season less: after one more there may be no rows yet.
        let peak = spectrum.correlation(lag) - spectrum.correlation(lag - short).max(0.0);
        if peak > RESEMBLANCE && best.is_none_or(|(most, _)| peak > 1.2 * most) {
            best = Some((peak, lag.round() as usize));
        }
    }
    Ok(best.map(|(_, lag)| lag))
}

/// Declared seasons with their harmonics, the shortest first.
pub(super) fn declared(times: &[f64], targets: &[f64], periods: &[f64]) -> Result<Vec<PlannedSeason>> {
    let mut periods: Vec<f64> = periods.iter().copied().filter(|p| *p > 2.0).collect();
    periods.sort_by(f64::total_cmp);
    periods.dedup();
    let mut spectrum = Spectrum::new(times, targets)?;
    let mut seasons: Vec<PlannedSeason> = Vec::new();
    for period in periods {
        let used: usize = seasons.iter().map(|s| s.harmonics.len()).sum();
        let (harmonics, _) =
            harmonics(&spectrum, period, &seasons, MOST_HARMONICS.saturating_sub(used).max(2))?;
        if harmonics.is_empty() {
            continue;
        }
        let season = PlannedSeason { period, harmonics };
        spectrum.remove_season(&season)?;
        seasons.push(season);
    }
    Ok(seasons)
}

/// The seasons that rows show, the shortest first.
pub(super) fn found(times: &[f64], targets: &[f64]) -> Result<Vec<PlannedSeason>> {
    let mut spectrum = Spectrum::new(times, targets)?;
    let total: f64 = spectrum.rest.iter().map(|y| y * y).sum();
    let mut seasons: Vec<PlannedSeason> = Vec::new();
    while seasons.len() < MOST {
        let Some((period, share)) = strongest(&spectrum, &seasons)? else { break };
        let period = whole(&spectrum, period)?;
        let used: usize = seasons.iter().map(|s| s.harmonics.len()).sum();
        let most = MOST_HARMONICS.saturating_sub(used).max(2);
        let (harmonics, _) = harmonics(&spectrum, period, &seasons, most)?;
        let season = PlannedSeason { period, harmonics };
        let before: f64 = spectrum.rest.iter().map(|y| y * y).sum();
        spectrum.remove_season(&season)?;
        let after: f64 = spectrum.rest.iter().map(|y| y * y).sum();
        if before - after < share * total {
            break;
        }
        seasons.push(season);
    }
    let mut periods: Vec<f64> = seasons.iter().map(|s| s.period).collect();
    periods.sort_by(f64::total_cmp);
    for i in 1..periods.len() {
        // A week is seven days, where it might be.
        let short = periods[i - 1];
        let multiple = (periods[i] / short).round() * short;
        if (periods[i] - multiple).abs() < 0.1 * periods[i] * periods[i] / spectrum.span {
            periods[i] = multiple;
        }
    }
    declared(times, targets, &periods)
}

/// Sets of seasons that few rows may have instead of those found in them: none; one that is natural or among the strongest lines,
/// seen twice at least, with all its harmonics.
pub(super) fn candidates(
    times: &[f64],
    targets: &[f64],
    natural: &[f64],
    found: &[PlannedSeason],
) -> Result<Vec<Vec<PlannedSeason>>> {
    let spectrum = Spectrum::new(times, targets)?;
    let (lines, step) = spectrum.periodogram();
    let peak = |k: &usize| lines[*k] >= lines[k - 1] && lines[*k] >= lines[k + 1];
    let mut peaks: Vec<usize> = (1..lines.len().saturating_sub(1)).filter(peak).collect();
    peaks.sort_by(|a, b| lines[*b].total_cmp(&lines[*a]));
    let strong = peaks.iter().take(STRONGEST).map(|k| refine(&spectrum, 1.0 / (*k as f64 * step), 1));
    let mut periods: Vec<f64> = Vec::new();
    for period in natural.iter().copied().chain(found.iter().map(|s| s.period)).chain(strong) {
        let seen = period > 2.5 && SEEN * period <= spectrum.span + 1.0;
        if seen && !periods.iter().any(|p| (p - period).abs() < 0.02 * period) {
            periods.push(period);
        }
    }
    let whole = |period: f64| {
        let top = ((0.5 * period + 0.01) as u32).clamp(1, MOST_OF_FEW);
        vec![PlannedSeason { period, harmonics: (1..=top).collect() }]
    };
    let none = (!found.is_empty()).then(Vec::new);
    Ok(none.into_iter().chain(periods.into_iter().map(whole)).collect())
}

/// The period of the strongest season in what is left, and the share of the variance that it must explain.
fn strongest(spectrum: &Spectrum, taken: &[PlannedSeason]) -> Result<Option<(f64, f64)>> {
    // A week is seven days: its lines are many and weak, and none of them may stand out. But days a week apart resemble
    // each other more than days six or eight apart do, and those two weeks apart again.
    let contrast = |period: f64, short: f64| {
        let peak = |lag: f64| {
            let around = spectrum.correlation(lag - short) + spectrum.correlation(lag + short);
            spectrum.correlation(lag) - 0.5 * around
        };
        peak(period).min(peak(2.0 * period))
    };
    let mut best: Option<(f64, f64)> = None;
    // Multiples of the shortest season only, and one of them: four weeks are no season of their own.
    let short = taken.iter().map(|s| s.period).min_by(f64::total_cmp).filter(|_| taken.len() == 1);
    if let Some(short) = short {
        for m in 2..=LONGEST_MULTIPLE {
            let period = f64::from(m) * short;
            if period > spectrum.span / TURNS || taken.iter().any(|s| (s.period - period).abs() < 0.5 * short)
            {
                continue;
            }
            let found = contrast(period, short);
            // Two weeks are as good as one: the first of several counts.
            if found > CONTRAST && best.is_none_or(|(_, most)| found > 1.4 * most) {
                best = Some((period, found));
            }
        }
    }
    if let Some((period, _)) = best {
        return Ok(Some((period, SHARE_MULTIPLE)));
    }
    let Some((period, _)) = strongest_line(spectrum, taken)? else { return Ok(None) };
    let period = shortest(spectrum, period, taken)?;
    Ok((taken.is_empty() || spectrum.correlation(period) > RESEMBLANCE).then_some((period, SHARE)))
}

/// The period of the line that stands out most, or a multiple of it, and the gain of its harmonics.
fn strongest_line(spectrum: &Spectrum, taken: &[PlannedSeason]) -> Result<Option<(f64, f64)>> {
    let (lines, step) = spectrum.periodogram();
    let (lowest, highest) = ((TURNS / spectrum.span / step) as usize + 1, lines.len() * 4 / 5);
    if lowest + 8 >= highest {
        return Ok(None);
    }
    let background = |lines: &[f64], k: usize| {
        // A third of an octave and at least some resolved lines to each side, without the line itself.
        let reach = (k / 4).max(16);
        let around = lines[k.saturating_sub(reach).max(1)..(k + reach).min(lines.len())].iter();
        let mut sorted: Vec<f64> = around.copied().collect();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2] / std::f64::consts::LN_2
    };
    let peak = |k: &usize| lines[*k] >= lines[k - 1] && lines[*k] >= lines[k + 1];
    let mut peaks: Vec<usize> = (lowest..highest).filter(peak).collect();
    peaks.sort_by(|a, b| lines[*b].total_cmp(&lines[*a]));
    if spectrum.has_gaps() {
        // Of the strongest ones those that stand out once they go on through the gaps.
        let mut seen = Vec::new();
        for &k in peaks.iter().take(CLOSER) {
            let period = refine(spectrum, 1.0 / (k as f64 * step), 1);
            let (lines, _) = spectrum.through_gaps(period)?.periodogram();
            if spectrum.share() * lines[k] > 3.0 * STRONG * background(&lines, k) {
                seen.push(k);
            }
        }
        peaks = seen;
    } else {
        peaks.retain(|&k| lines[k] > 3.0 * STRONG * background(&lines, k));
    }
    let mut best: Option<(f64, f64)> = None;
    for &k in peaks.iter().take(3) {
        let base = refine(spectrum, 1.0 / (k as f64 * step), 1);
        for multiple in 1..=8u32 {
            let rough = f64::from(multiple) * base;
            if rough > spectrum.span / TURNS {
                break;
            }
            let period = refine(spectrum, rough, multiple);
            let (_, gain) = harmonics(spectrum, period, taken, MOST_HARMONICS)?;
            // A longer period has room for more lines: it must be clearly better.
            if best.is_none_or(|(_, most)| gain > 1.03 * most) && gain > 0.0 {
                best = Some((period, gain));
            }
        }
    }
    Ok(best)
}

/// A part of the period, if most of the season repeats after it: a day within a week comes first, and what is left of the
/// week is found then.
fn shortest(spectrum: &Spectrum, period: f64, taken: &[PlannedSeason]) -> Result<f64> {
    let (lines, _) = harmonics(spectrum, period, taken, MOST_HARMONICS)?;
    let power = |j: &u32| spectrum.power(f64::from(*j) / period);
    let all: f64 = lines.iter().map(power).sum();
    let parts = (2..=8u32).rev().filter(|m| lines.contains(m));
    let mut repeats =
        parts.filter(|m| lines.iter().filter(|j| **j % m == 0).map(power).sum::<f64>() > 0.5 * all);
    Ok(repeats.next().map_or(period, |m| period / f64::from(m)))
}

/// The period nearby at which its line and the multiples of it are strongest; whole numbers of steps where they are as
/// good as can be told.
fn refine(spectrum: &Spectrum, period: f64, multiple: u32) -> f64 {
    let lines = [multiple, 2 * multiple, 3 * multiple];
    let strength = |p: f64| {
        lines
            .iter()
            .filter(|j| f64::from(**j) < p / 2.0)
            .map(|&j| spectrum.power(f64::from(j) / p))
            .sum::<f64>()
    };
    let width = period * period / spectrum.span / f64::from(multiple);
    let (mut best, mut at) = (strength(period), period);
    for scale in [0.25, 0.06, 0.015] {
        let center = at;
        for k in -4i32..=4 {
            let p = center + f64::from(k) * scale * width;
            let value = strength(p);
            if value > best {
                (best, at) = (value, p);
            }
        }
    }
    at
}

/// A whole number of steps, if rows repeat after it as well as after the period found: clocks count in whole steps, and the
/// strongest line of a series that changes lies a little beside them.
fn whole(spectrum: &Spectrum, period: f64) -> Result<f64> {
    let whole = period.round();
    if whole < 3.0 || (period - whole).abs() > TOLD * period * period / spectrum.span {
        return Ok(period);
    }
    let left = |period: f64| -> Result<f64> {
        let top = ((period / 2.0 - 0.01).floor() as u32).clamp(1, 4);
        let mut rest = spectrum.clone();
        rest.remove_season(&PlannedSeason { period, harmonics: (1..=top).collect() })?;
        Ok(rest.rest.iter().map(|y| y * y).sum())
    };
    Ok(if left(whole)? < WORSE * left(period)? { whole } else { period })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;
    use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

    fn wave(n: usize, f: impl Fn(f64) -> f64) -> (Vec<f64>, Vec<f64>) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let times: Vec<f64> = (0..n).filter(|_| random.random::<f64>() > 0.1).map(|i| i as f64).collect();
        let targets = times.iter().map(|&t| f(t) + 0.6 * (random.random::<f64>() - 0.5)).collect();
        (times, targets)
    }

    #[test]
    fn day_and_week_are_found_with_the_harmonics_they_need() {
        let (times, targets) = wave(2016, |t| {
            let day = TAU * t / 24.0;
            let week = TAU * t / 168.0;
            1e-3 * t + day.sin() + 0.5 * (2.0 * day).cos() + 0.4 * week.cos() + 0.3 * (3.0 * week).sin()
        });
        let found = found(&times, &targets).unwrap();
        let periods: Vec<f64> = found.iter().map(|s| s.period).collect();
        assert_eq!(periods.len(), 2, "{found:?}");
        assert!((periods[0] - 24.0).abs() < 0.02 && (periods[1] - 168.0).abs() < 1.0, "{periods:?}");
        assert!(found[0].harmonics.contains(&1) && found[0].harmonics.contains(&2), "{found:?}");
        assert!(found[1].harmonics.contains(&1) && found[1].harmonics.contains(&3), "{found:?}");
        assert!(found.iter().all(|s| s.harmonics.len() <= 5), "{found:?}");
    }

    #[test]
    fn a_period_between_steps_is_found() {
        let (times, targets) =
            wave(1700, |t| 1e-5 * t * t + (TAU * t / 52.18).sin() + 0.3 * (2.0 * TAU * t / 52.18).cos());
        let found = found(&times, &targets).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!((found[0].period - 52.18).abs() < 0.1, "{found:?}");
    }

    #[test]
    fn noise_and_a_walk_have_no_season() {
        let (times, targets) = wave(1500, |_| 0.0);
        assert_eq!(found(&times, &targets).unwrap(), []);
        let mut level = 0.0;
        let walk: Vec<f64> = targets
            .iter()
            .map(|y| {
                level += y;
                level
            })
            .collect();
        assert_eq!(found(&times, &walk).unwrap(), []);
    }

    /// Rows of a day of 144 steps on a level that wanders, off for a third of a day to more than a day now and then: lines over
    /// the gaps cut the wave into pieces.
    fn gappy(seed: u64, days: usize, amplitude: f64, wander: f64) -> (Vec<f64>, Vec<f64>) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut level, mut off) = (0.0, 0);
        let (mut times, mut targets) = (Vec::new(), Vec::new());
        for i in 0..144 * days {
            level += wander * (random.random::<f64>() - 0.5);
            off = if off == 0 && random.random::<f64>() < 0.004 { random.random_range(50..200) } else { off };
            let y = level + amplitude * (TAU * i as f64 / 144.0).sin() + random.random::<f64>() - 0.5;
            if off == 0 {
                times.push(i as f64);
                targets.push(y);
            }
            off = (off - 1).max(0);
        }
        (times, targets)
    }

    #[test]
    fn gaps_as_long_as_a_season_do_not_hide_it() {
        for seed in 0..10 {
            let (times, targets) = gappy(seed, 10, 3.0, 0.15);
            let found = found(&times, &targets).unwrap();
            assert!(found.iter().any(|s| (s.period - 144.0).abs() < 3.0), "{seed}: {found:?}");
        }
    }

    #[test]
    fn gaps_make_no_seasons() {
        for (wander, allowed) in [(0.0, 1), (0.3, 2)] {
            let seasons = (100..140).filter(|seed| {
                let (times, targets) = gappy(*seed, 10, 0.0, wander);
                !found(&times, &targets).unwrap().is_empty()
            });
            let count = seasons.count();
            assert!(count <= allowed, "{count} of 40 at {wander}");
        }
    }

    /// Next to nothing is left of rows that are a wave (a trend was taken for a little of it), in gaps, too, where a line would stand
    /// against the wave.
    #[test]
    fn nothing_is_left_of_a_wave_with_gaps() {
        let (times, targets): (Vec<f64>, Vec<f64>) = (0..1000)
            .filter(|i| i / 60 % 3 != 1)
            .map(|i| (f64::from(i), (TAU * f64::from(i) / 48.0).sin()))
            .unzip();
        let mut spectrum = Spectrum::new(&times, &targets).unwrap();
        spectrum.remove_season(&PlannedSeason { period: 48.0, harmonics: vec![1] }).unwrap();
        let worst = spectrum.rest.iter().fold(0.0, |worst: f64, y| worst.max(y.abs()));
        assert!(worst < 0.15, "{worst}");
    }
}
