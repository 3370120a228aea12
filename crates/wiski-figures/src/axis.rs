//! Axes: the range shown, where the ticks stand and what they say.
//!
//! The plotting library sees numbers of ordinary size only. A linear axis takes a power of ten out of values that
//! are very large or small and says so in its label; a logarithmic axis hands over logarithms.

/// Below this share of its magnitude, a range is rounding error and the values count as constant.
const CONSTANT: f64 = 1e-7;

/// Decades below which a logarithmic axis would hold one labeled tick or none.
const FEW_DECADES: f64 = 1.3;

#[derive(Debug, Clone)]
pub(super) struct Axis {
    label: String,
    log: bool,
    /// Power of ten taken out of the values (linear axes).
    exponent: i32,
    lo: f64,
    hi: f64,
    step: f64,
}

impl Axis {
    /// A linear axis over the values, with some air at both ends.
    pub(super) fn padded(label: &str, values: impl IntoIterator<Item = f64>) -> Self {
        let (lo, hi) = extent(values);
        Self::linear(label, lo, hi, 0.04)
    }

    /// A linear axis that ends exactly with the values.
    pub(super) fn exact(label: &str, values: impl IntoIterator<Item = f64>) -> Self {
        let (lo, hi) = extent(values);
        Self::linear(label, lo, hi, 0.0)
    }

    /// A linear axis from zero to just above the largest value.
    pub(super) fn from_zero(label: &str, values: impl IntoIterator<Item = f64>) -> Self {
        let (_, hi) = extent(values);
        Self::linear(label, 0.0, if hi > 0.0 { (1.05 * hi).min(f64::MAX) } else { 1.0 }, 0.0)
    }

    /// A linear axis over the bulk of the values: when a few lie far out, they do not squeeze the others.
    pub(super) fn robust(label: &str, values: impl IntoIterator<Item = f64>) -> Self {
        let mut v: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        v.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (v.first(), v.last()) else { return Self::padded(label, []) };
        let at = |q: f64| v[((v.len() - 1) as f64 * q).round() as usize];
        let (low, high) = (at(0.05), at(0.95));
        let reach = high / 2.0 - low / 2.0;
        Self::linear(label, min.max(low - 2.0 * reach), max.min(high + 2.0 * reach), 0.04)
    }

    /// A logarithmic axis over the positive values, or a linear one where they span hardly a decade.
    pub(super) fn log(label: &str, values: impl IntoIterator<Item = f64>) -> Self {
        let positive: Vec<f64> = values.into_iter().filter(|&v| v.is_finite() && v > 0.0).collect();
        let (lo, hi) = extent(positive.iter().map(|v| v.log10()));
        if positive.is_empty() || hi - lo < FEW_DECADES {
            return Self::padded(label, positive);
        }
        let pad = 0.04 * (hi - lo);
        let step = ((hi - lo) / 5.0).ceil();
        Self { label: label.into(), log: true, exponent: 0, lo: lo - pad, hi: hi + pad, step }
    }

    fn linear(label: &str, lo: f64, hi: f64, pad: f64) -> Self {
        let magnitude = lo.abs().max(hi.abs());
        let exponent = if magnitude == 0.0 || (1e-3..1e6).contains(&magnitude) {
            0
        } else {
            // Steps of three, as engineers count; the smallest double that is not subnormal is near 1e-308.
            ((magnitude.log10().floor() as i32).div_euclid(3) * 3).max(-306)
        };
        let unit = power_of_ten(exponent);
        let (mut lo, mut hi) = (lo / unit, hi / unit);
        let magnitude = lo.abs().max(hi.abs());
        if hi - lo <= CONSTANT * magnitude {
            let half = if magnitude > 0.0 { 0.1 * magnitude } else { 1.0 };
            (lo, hi) = (lo - half, hi + half);
        }
        let pad = pad * (hi - lo);
        (lo, hi) = (lo - pad, hi + pad);
        Self { label: label.into(), log: false, exponent, lo, hi, step: nice_step((hi - lo) / 5.0) }
    }

    /// Fewer or more ticks than the usual five.
    pub(super) fn ticks(mut self, count: f64) -> Self {
        let step = (self.hi - self.lo) / count;
        self.step = if self.log { step.ceil() } else { nice_step(step) };
        self
    }

    /// Where the value stands, in the library's numbers; far outside values come near, so that no renderer walks
    /// along a line of a million miles.
    pub(super) fn place(&self, value: f64) -> f64 {
        let v = if self.log { value.log10() } else { value / power_of_ten(self.exponent) };
        let span = self.hi - self.lo;
        if v.is_nan() { v } else { v.clamp(self.lo - span, self.hi + span) }
    }

    pub(super) fn range(&self) -> (f64, f64) {
        (self.lo, self.hi)
    }

    pub(super) fn step(&self) -> f64 {
        self.step
    }

    /// The label, with the power of ten that was taken out.
    pub(super) fn label(&self) -> String {
        match self.exponent {
            0 => self.label.clone(),
            e => format!("{} (× 10{})", self.label, superscript(e)),
        }
    }

    /// The text of a tick.
    pub(super) fn tick(&self, v: f64) -> String {
        if self.log {
            let e = v.round() as i32;
            return if (-4..=5).contains(&e) {
                plain(10f64.powi(e), (-e).max(0))
            } else {
                format!("10{}", superscript(e))
            };
        }
        plain(v, self.decimals())
    }

    /// The text of a tick that the library has chosen, with as many decimals as it needs.
    pub(super) fn short(&self, v: f64) -> String {
        let long = plain(v, self.decimals() + 2);
        if long.contains('.') { long.trim_end_matches('0').trim_end_matches('.').into() } else { long }
    }

    fn decimals(&self) -> i32 {
        -(self.step * 1.000_001).log10().floor() as i32
    }
}

/// The smallest and largest finite value, or 0 and 1 where there is none.
fn extent(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let finite = values.into_iter().filter(|v| v.is_finite());
    let (lo, hi) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), v| (lo.min(v), hi.max(v)));
    if lo <= hi { (lo, hi) } else { (0.0, 1.0) }
}

/// The double nearest to 10ᵉ; repeated multiplication drifts.
fn power_of_ten(e: i32) -> f64 {
    format!("1e{e}").parse().unwrap_or(1.0)
}

/// The next of 1, 2, 5 times a power of ten.
fn nice_step(raw: f64) -> f64 {
    let power = 10f64.powi(raw.log10().floor() as i32);
    let step = [1.0, 2.0, 5.0].into_iter().find(|&s| raw <= s * power * 1.000_001).unwrap_or(10.0);
    step * power
}

/// A number with the given decimals, thousands set apart by thin spaces.
fn plain(v: f64, decimals: i32) -> String {
    let text = format!("{:.*}", decimals.max(0) as usize, v.abs());
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut out = String::new();
    if v < 0.0 && text.contains(|c: char| ('1'..='9').contains(&c)) {
        out.push('−');
    }
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 && whole.len() > 4 {
            out.push('\u{2009}');
        }
        out.push(digit);
    }
    out + fraction
}

fn superscript(n: i32) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    n.to_string().chars().map(|c| c.to_digit(10).map_or('⁻', |d| DIGITS[d as usize])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        let (lo, hi) = axis.range();
        let (first, last) = ((lo / axis.step).ceil() as i64, (hi / axis.step).floor() as i64);
        (first..=last).map(|i| axis.tick(i as f64 * axis.step)).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(labels(&Axis::exact("x", [0.0, 1.0])), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(&Axis::exact("x", [-7.0, 23.0])), ["0", "10", "20"]);
        assert_eq!(labels(&Axis::exact("x", [-7.0, 18.0])), ["−5", "0", "5", "10", "15"]);
        assert_eq!(labels(&Axis::exact("x", [0.0, 50_000.0]))[1], "10\u{2009}000");
    }

    #[test]
    fn powers_of_ten_go_to_the_label() {
        let axis = Axis::exact("P [W]", [0.0, 4e300]);
        assert_eq!(axis.label(), "P [W] (× 10³⁰⁰)");
        assert_eq!(labels(&axis), ["0", "1", "2", "3", "4"]);
        assert_eq!(Axis::padded("d", [2e-5, 3e-5]).label(), "d (× 10⁻⁶)");
    }

    #[test]
    fn logarithms_show_decades() {
        let axis = Axis::log("n", [1.0, 1e4]);
        assert_eq!(labels(&axis), ["1", "10", "100", "1000", "10\u{2009}000"]);
        assert_eq!(labels(&Axis::log("n", [1e-300, 1e300])), ["10⁻²⁴⁰", "10⁻¹²⁰", "1", "10¹²⁰", "10²⁴⁰"]);
        assert!(!Axis::log("n", [0.4, 0.6]).log, "within a decade a linear axis says more");
        assert!(!Axis::log("n", [-1.0, 0.0]).log);
    }

    #[test]
    fn constant_values_get_room() {
        for c in [0.0, 5.0, -3e200, 1e-300, f64::MAX, f64::MIN_POSITIVE, 5e-324] {
            for axis in [Axis::padded("c", [c]), Axis::exact("c", [c, c]), Axis::robust("c", [c, c])] {
                let (lo, hi) = axis.range();
                let at = axis.place(c);
                assert!(lo < at && at < hi && axis.step > 0.0 && axis.step.is_finite(), "{c}: {axis:?}");
            }
        }
    }

    #[test]
    fn outliers_do_not_squeeze_the_rest() {
        let values = (0..200).map(|i| f64::from(i % 10)).chain([1e9]);
        assert!(Axis::robust("v", values).range().1 < 30.0);
    }
}
