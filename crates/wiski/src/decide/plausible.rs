//! Results that no model should take at their word: a program that diverged and printed 1e200 says that the place is
//! bad, not how bad.
//!
//! The results of the initial design set the scale: they are spread over the whole space, where later ones crowd around
//! the best. With large values wanted, m the median of the sane ones among them and s twice the distance from it to the
//! better quartile (the distance between quartiles, were bad results not farther off than good ones):
//!
//! | result | what the model sees |
//! | --- | --- |
//! | below m − 20 s | m − 20 s: bad, but such that the others can still be told apart |
//! | above m + 10⁹ (s + \|m\|) | nothing: no function has such a peak, a failed trial has |
//! | any other | itself |
//!
//! Sane are those on the better side of a gap, if there is one: of a factor of 10⁹ in the distance to the best, beyond
//! which results are also 10⁹ times as large as the best. Most trials of a search may diverge, and still the others are
//! what the function is about. Fewer than four results are no scale: then all pass, cut to ±10¹⁰⁰, whose squares are still
//! numbers.

/// Spreads below the median from which on a result is cut.
const DEPTH: f64 = 20.0;
/// Spreads above the median from which on a result is not believed, and the factor that parts sane from absurd.
const HEIGHT: f64 = 1e9;
/// The largest size of a result.
const LARGEST: f64 = 1e100;
/// Results that a judgment needs.
const ENOUGH: usize = 4;

/// The results that set the scale, sorted, large ones being wanted.
#[derive(Debug, Clone, Default)]
pub(super) struct Plausible(Vec<f64>);

impl Plausible {
    /// Those of the given results.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        Self(sorted)
    }

    /// What a model should see of a result; `None` if it is not to be believed.
    pub(super) fn seen(&self, value: f64) -> Option<f64> {
        if self.0.len() < ENOUGH {
            return Some(value.clamp(-LARGEST, LARGEST));
        }
        let (median, spread) = scale(self.sane());
        if value > median + HEIGHT * (spread + median.abs()) {
            return None;
        }
        Some(value.max(median - DEPTH * spread).clamp(-LARGEST, LARGEST))
    }

    /// The results between what is absurdly good and what is absurdly bad.
    fn sane(&self) -> &[f64] {
        let (median, spread) = scale(&self.0);
        let ceiling = median + HEIGHT * (spread + median.abs());
        let good = &self.0[..self.0.partition_point(|v| *v <= ceiling)];
        let Some(&best) = good.last() else { return &self.0 };
        let mut nearest = 0.0;
        for (i, value) in good.iter().enumerate().rev() {
            let off = best - value;
            if off > HEIGHT * best.abs().max(1.0) && off > HEIGHT * nearest {
                return &good[i + 1..];
            }
            nearest = off;
        }
        good
    }
}

/// Median and spread of sorted results.
fn scale(sorted: &[f64]) -> (f64, f64) {
    let quantile = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
    let median = quantile(0.5);
    // Results that are mostly equal have their spread farther out, or are measured against their size.
    let spreads = [2.0 * (quantile(0.75) - median), quantile(0.9) - quantile(0.1), median.abs()];
    (median, spreads.into_iter().find(|s| *s > 0.0).unwrap_or(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_absurd_is_changed() {
        let usual = Plausible::of((0..20).map(f64::from));
        // Median 10 and better quartile 14 (places are rounded), so a spread of 8.
        for (value, seen) in [
            (-3.0, Some(-3.0)),
            (-100.0, Some(-100.0)),
            (-1e30, Some(10.0 - 20.0 * 8.0)),
            (f64::MIN, Some(10.0 - 20.0 * 8.0)),
            (1e3, Some(1e3)),
            (1e30, None),
        ] {
            assert_eq!(usual.seen(value), seen, "{value}");
        }
        assert_eq!(Plausible::default().seen(1e200), Some(1e100));
        // Most have diverged, one is absurdly good: the three others set the scale.
        let wild = Plausible::of([-1e200, -1e200, -1e30, -1e12, -3.0, -2.0, -1.0, 1e25].into_iter());
        assert_eq!(wild.seen(-1e30), Some(-2.0 - 20.0 * 2.0));
        assert_eq!((wild.seen(1e25), wild.seen(5.0)), (None, Some(5.0)));
        // Closing in on the optimum opens no gap.
        let close = Plausible::of([-4.0, -3.0, -1e-3, -1e-9, -1e-13, 0.0].into_iter());
        assert_eq!(close.sane().len(), 6);
        // A plateau with one needle in it.
        let flat = Plausible::of(std::iter::repeat_n(0.0, 9));
        assert_eq!(flat.seen(50.0), Some(50.0));
        assert_eq!(flat.seen(-50.0), Some(-20.0));
    }
}
