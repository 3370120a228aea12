//! How long rows take: quantiles of many times in constant memory.

/// Times per doubling that are told apart: a quantile is exact to 3 %.
const STEPS: f64 = 16.0;
/// The shortest time that is told apart from nothing.
const SHORTEST: f64 = 1e-9;
/// Up to some 70 seconds; longer ones are counted with these.
const BUCKETS: usize = 36 * 16;

/// Times by the logarithm of their length.
#[derive(Debug, Clone)]
pub(crate) struct Latencies {
    counts: Vec<u64>,
    total: u64,
    longest: f64,
    /// What no time is to exceed, and how many did.
    bound: Option<f64>,
    above: u64,
}

impl Latencies {
    /// None so far; none is to exceed `bound`.
    pub(crate) fn new(bound: Option<f64>) -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, longest: 0.0, bound, above: 0 }
    }

    /// The bound, and how many times were longer.
    pub(crate) fn above_bound(&self) -> Option<(f64, u64)> {
        Some((self.bound?, self.above))
    }

    /// Takes in a time in seconds.
    pub(crate) fn record(&mut self, seconds: f64) {
        let place = (STEPS * (seconds / SHORTEST).max(1.0).log2()) as usize;
        self.counts[place.min(BUCKETS - 1)] += 1;
        self.total += 1;
        self.longest = self.longest.max(seconds);
        self.above += u64::from(self.bound.is_some_and(|bound| seconds > bound));
    }

    /// The time that a share of all do not exceed; `None` without any.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = (share * self.total as f64).ceil().max(1.0) as u64;
        let mut sum = 0;
        let place = self.counts.iter().position(|count| {
            sum += count;
            sum >= wanted
        })?;
        Some((SHORTEST * ((place as f64 + 0.5) / STEPS).exp2()).min(self.longest))
    }

    pub(crate) fn longest(&self) -> f64 {
        self.longest
    }
}

/// A time with three digits and its unit.
pub(crate) fn text(seconds: f64) -> String {
    let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (0.0, "ns")];
    let (_, unit) = units.into_iter().find(|(least, _)| seconds >= *least).unwrap_or((0.0, "ns"));
    let scale = match unit {
        "s" => 1.0,
        "ms" => 1e3,
        "µs" => 1e6,
        _ => 1e9,
    };
    let value = seconds * scale;
    let digits = if value >= 100.0 { 0 } else { usize::from(value < 100.0) + usize::from(value < 10.0) };
    format!("{value:.digits$} {unit}")
}

/// A time such as 5ms in seconds.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let units = [("ms", 1e-3), ("us", 1e-6), ("µs", 1e-6), ("s", 1.0)];
    let found = units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?.trim(), scale)));
    let time = found.and_then(|(number, scale)| Some(number.parse::<f64>().ok()? * scale));
    time.filter(|time| *time > 0.0 && time.is_finite())
        .ok_or("a time such as 5ms, 500us or 1s is needed".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_all_times() {
        let mut latencies = Latencies::new(Some(900.5e-6));
        assert_eq!(latencies.quantile(0.5), None);
        (1..=1000).for_each(|i| latencies.record(1e-6 * f64::from(i)));
        for (share, wanted) in [(0.5, 500e-6), (0.99, 990e-6), (1.0, 1e-3)] {
            let found = latencies.quantile(share).unwrap();
            assert!((found / wanted - 1.0).abs() < 0.035, "{share}: {found}");
        }
        assert_eq!(latencies.above_bound(), Some((900.5e-6, 100)));
        latencies.record(100.0);
        assert_eq!((latencies.longest(), text(latencies.longest())), (100.0, "100 s".into()));
        assert_eq!([2.5e-3, 0.000_012_34, 4e-9].map(text), ["2.50 ms", "12.3 µs", "4.00 ns"]);
        assert_eq!(["5ms", "500us", "1.5 s"].map(|text| seconds(text).unwrap()), [5e-3, 500e-6, 1.5]);
        assert!(["5", "ms", "-1ms", "0s", "infs"].iter().all(|text| seconds(text).is_err()));
    }
}
