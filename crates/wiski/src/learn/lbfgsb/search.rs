//! The step along a descent direction: Moré and Thuente's search (1994) for a step α with
//!
//! ```text
//!     f(α) ≤ f(0) + 10⁻³ α f′(0)      (the value went down enough)
//!     |f′(α)| ≤ 0.9 |f′(0)|           (the slope has flattened, so that sᵀy > 0)
//! ```
//!
//! It keeps the best step so far and, once it knows one, a second step such that a solution lies between; the
//! next trial comes from cubic or quadratic interpolation, guarded so that the interval shrinks. A trial that
//! could not be evaluated counts as too long.
//!
//! Near a minimum the decrease drowns in the rounding error of f long before the slope does: f is flat to ε where
//! x is still √ε away. There the slopes decide alone, as Hager and Zhang (2005) proposed: a difference of values
//! that is rounding is replaced by α(f′(0) + f′(α))/2, which is exact for a parabola.
//!
//! The search is a state machine that owns no vectors: the caller evaluates, [`Search`] decides.

/// The fraction of the predicted decrease that is asked for.
const DECREASE: f64 = 1e-3;
/// How much of the starting slope may be left.
const FLATNESS: f64 = 0.9;
/// The relative width at which a bracket is not worth refining.
const NARROW: f64 = 0.1;
/// The rounding error of a value, relative to it or to 1 if it is smaller (as for a logarithm that crosses 0): a
/// few dozen operations' worth.
const ROUNDING: f64 = 64.0 * f64::EPSILON;
/// How far a failed trial is carried back towards the start.
const RETREAT: f64 = 0.25;

/// A step with the value and slope there. Inside the search, values are differences to the start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) step: f64,
    pub(super) value: f64,
    pub(super) slope: f64,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Verdict {
    /// Evaluate at this step.
    Try(f64),
    /// The trial just reported is the answer.
    Accept,
    /// No trial can satisfy both conditions to working precision: take [`Search::best`].
    Settle,
}

/// The state of one search.
#[derive(Debug, Clone)]
pub(super) struct Search {
    start: Sample,
    best: Sample,
    other: Sample,
    bracketed: bool,
    /// Until a step with enough decrease and a non-negative slope is seen, the search looks at
    /// ψ(α) = f(α) − 10⁻³ α f′(0), whose minimizer has both.
    auxiliary: bool,
    longest: f64,
    /// The widths of the last two brackets.
    width: f64,
    older_width: f64,
    /// No value above this is accepted, whatever the rounding.
    ceiling: f64,
}

impl Search {
    /// A search from value `value` and slope `slope < 0` over steps in (0, `longest`] for a value not above
    /// `ceiling ≥ value`.
    pub(super) fn new(value: f64, slope: f64, longest: f64, ceiling: f64) -> Self {
        let origin = Sample { step: 0.0, value: 0.0, slope };
        Self {
            start: Sample { value, ..origin },
            best: origin,
            other: origin,
            bracketed: false,
            auxiliary: true,
            longest,
            width: longest,
            older_width: 2.0 * longest,
            ceiling,
        }
    }

    /// The best step seen, 0 if none was better than the start.
    pub(super) fn best(&self) -> f64 {
        if self.best.value < 0.0 { self.best.step } else { 0.0 }
    }

    /// The trial could not be evaluated.
    pub(super) fn failed(&mut self, step: f64) -> Verdict {
        if self.best.step > 0.0 {
            return Verdict::Settle;
        }
        *self = Self::new(self.start.value, self.start.slope, RETREAT * step, self.ceiling);
        Verdict::Try(self.longest)
    }

    /// Takes in a trial. [`Search::best`] may change to it.
    pub(super) fn observe(&mut self, trial: Sample) -> Verdict {
        let trial = self.relative(trial);
        let required = DECREASE * self.start.slope;
        let enough = trial.value <= trial.step * required;
        if enough && trial.slope.abs() <= -FLATNESS * self.start.slope {
            return Verdict::Accept;
        }
        // Still going down where no longer step is allowed.
        if enough && trial.step >= self.longest && trial.slope <= required {
            return Verdict::Accept;
        }
        if enough && trial.slope >= 0.0 {
            self.auxiliary = false;
        }
        let tilt = if self.auxiliary && !enough && trial.value <= self.best.value { required } else { 0.0 };
        let seen = |s: Sample| Sample { step: s.step, value: s.value - s.step * tilt, slope: s.slope - tilt };
        let (new, best, other) = (seen(trial), seen(self.best), seen(self.other));
        let next = self.interpolate(new, best, other);
        if new.value > best.value {
            self.other = trial;
        } else {
            if new.slope * best.slope < 0.0 {
                self.other = self.best;
            }
            self.best = trial;
        }
        self.guard(next)
    }

    /// The trial with its value relative to the start, from the slopes if it is lost in rounding.
    fn relative(&self, trial: Sample) -> Sample {
        let rounding = ROUNDING * self.start.value.abs().max(1.0);
        let difference = trial.value - self.start.value;
        let integral = 0.5 * trial.step * (self.start.slope + trial.slope);
        let lost = difference.abs() <= rounding && integral.abs() <= rounding && trial.value <= self.ceiling;
        Sample { value: if lost { integral } else { difference }, ..trial }
    }

    /// The next trial from three samples (the four cases of section 4 of the paper). Sets `bracketed` when the
    /// samples show that a minimizer lies between.
    fn interpolate(&mut self, trial: Sample, best: Sample, other: Sample) -> f64 {
        let nearer = |to: Sample, a: f64, b: f64| {
            if (a - to.step).abs() < (b - to.step).abs() { a } else { b }
        };
        let farther = |to: Sample, a: f64, b: f64| {
            if (a - to.step).abs() > (b - to.step).abs() { a } else { b }
        };
        if trial.value > best.value {
            // Higher: a minimizer was passed. Prefer to stay near the best step.
            self.bracketed = true;
            let cubic = cubic_minimum(best, trial);
            let quadratic = parabola_minimum(best, trial);
            nearer(best, cubic, 0.5 * (cubic + quadratic))
        } else if trial.slope * best.slope < 0.0 {
            // Lower, and the slope turned round.
            self.bracketed = true;
            farther(trial, cubic_minimum(best, trial), secant_zero(best, trial))
        } else if trial.slope.abs() < best.slope.abs() {
            // Lower and flatter: the minimizer lies ahead, where the cubic may have none.
            let (cubic, secant) = (cubic_minimum(best, trial), secant_zero(best, trial));
            let ahead = (cubic - trial.step) * (trial.step - best.step) > 0.0;
            if self.bracketed {
                let next = if ahead { nearer(trial, cubic, secant) } else { secant };
                let limit = trial.step + 0.66 * (other.step - trial.step);
                if trial.step > best.step { next.min(limit) } else { next.max(limit) }
            } else {
                let (least, most) = reach(best, trial);
                farther(trial, if ahead { cubic } else { most }, secant).max(least).min(most)
            }
        } else if self.bracketed {
            cubic_minimum(trial, other)
        } else {
            reach(best, trial).1
        }
    }

    /// Keeps the next trial inside what is allowed and lets no bracket keep its width for long.
    fn guard(&mut self, next: f64) -> Verdict {
        if !self.bracketed {
            let next = next.min(self.longest);
            return if next > self.best.step { Verdict::Try(next) } else { Verdict::Settle };
        }
        let (from, to) = (self.best.step, self.other.step);
        let width = (to - from).abs();
        let halve = width >= 0.66 * self.older_width || !next.is_finite();
        let next = if halve { from + 0.5 * (to - from) } else { next };
        self.older_width = self.width;
        self.width = width;
        let (least, most) = (from.min(to), from.max(to));
        if next <= least || next >= most || width <= NARROW * most {
            return Verdict::Settle;
        }
        Verdict::Try(next)
    }
}

/// How far an extrapolation beyond `trial` may go. The first trial may be followed by one just beyond it; later
/// ones at least double the distance, so that a far minimizer is reached in few trials.
fn reach(best: Sample, trial: Sample) -> (f64, f64) {
    let stride = trial.step - best.step;
    let least = if best.step > 0.0 { trial.step + 1.1 * stride } else { 0.0 };
    (least, trial.step + 4.0 * stride)
}

/// The minimizer of the cubic through two values and slopes; not finite if there is none.
fn cubic_minimum(a: Sample, b: Sample) -> f64 {
    let run = b.step - a.step;
    let z = 3.0 * (a.value - b.value) / run + a.slope + b.slope;
    let scale = z.abs().max(a.slope.abs()).max(b.slope.abs());
    let discriminant = (z / scale).powi(2) - (a.slope / scale) * (b.slope / scale);
    let root = (scale * discriminant.max(0.0).sqrt()).copysign(run);
    b.step - run * ((b.slope + root - z) / (b.slope - a.slope + 2.0 * root))
}

/// The minimizer of the parabola through both values and the slope at `a`.
fn parabola_minimum(a: Sample, b: Sample) -> f64 {
    let run = b.step - a.step;
    a.step + 0.5 * run * a.slope / ((a.value - b.value) / run + a.slope)
}

/// Where the line through both slopes vanishes.
fn secant_zero(a: Sample, b: Sample) -> f64 {
    b.step + (a.step - b.step) * (b.slope / (b.slope - a.slope))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a search on f and returns the accepted step with the number of trials.
    fn run(f: impl Fn(f64) -> (f64, f64), first: f64, longest: f64) -> (f64, usize) {
        let (value, slope) = f(0.0);
        let mut search = Search::new(value, slope, longest, value);
        let mut step = first;
        for trials in 1..=20 {
            let (value, slope) = f(step);
            let verdict = if value.is_finite() {
                search.observe(Sample { step, value, slope })
            } else {
                search.failed(step)
            };
            match verdict {
                Verdict::Accept => return (step, trials),
                Verdict::Settle => return (search.best(), trials),
                Verdict::Try(next) => step = next,
            }
        }
        (search.best(), 20)
    }

    /// The cubic with given values and slopes is met exactly: t³ − 3t has its minimum at 1.
    #[test]
    fn interpolants_are_exact_on_their_own_kind() {
        let at = |t: f64| Sample { step: t, value: t.powi(3) - 3.0 * t, slope: 3.0 * t * t - 3.0 };
        for (a, b) in [(0.0, 2.0), (2.0, 0.0), (0.25, 0.5), (3.0, 1.5)] {
            assert!((cubic_minimum(at(a), at(b)) - 1.0).abs() < 1e-14, "{a} {b}");
        }
        let at = |t: f64| Sample { step: t, value: (t - 0.7).powi(2), slope: 2.0 * (t - 0.7) };
        assert!((parabola_minimum(at(0.0), at(3.0)) - 0.7).abs() < 1e-15);
        assert!((secant_zero(at(0.0), at(3.0)) - 0.7).abs() < 1e-15);
    }

    /// Moré and Thuente's first test function, −t/(t² + β) with β = 2, whose minimizer is √2: both conditions
    /// hold at the answer from first trials over six orders of magnitude.
    #[test]
    fn the_conditions_hold_from_short_and_long_first_trials() {
        let beta = 2.0;
        let f = |t: f64| {
            let q = t * t + beta;
            (-t / q, (t * t - beta) / (q * q))
        };
        for first in [1e-3, 1e-1, 1.0, 10.0, 1e3] {
            let (step, trials) = run(f, first, 1e10);
            let ((f0, g0), (f1, g1)) = (f(0.0), f(step));
            assert!(f1 <= f0 + DECREASE * step * g0, "{first}: {step}");
            assert!(g1.abs() <= FLATNESS * g0.abs(), "{first}: {step}");
            assert!(trials <= 8, "{first}: {trials} trials");
        }
    }

    #[test]
    fn a_wall_of_infinities_is_backed_away_from() {
        let f = |t: f64| if t > 1e-4 { (f64::NAN, f64::NAN) } else { (-t, -1.0) };
        let (step, trials) = run(f, 1.0, 1e10);
        // 4⁻⁷ is the first power of a quarter below 10⁻⁴.
        assert_eq!((step, trials), (0.25_f64.powi(7), 8));
    }

    /// A parabola of depth 10⁻¹⁸ on a plateau of height 1: all values are equal or off by one rounding, and only
    /// the slopes show where its minimum 1.2 is. A step too long is corrected at once, a step too short grows at
    /// most fivefold a time. One rounding above the ceiling is still rejected.
    #[test]
    fn slopes_decide_where_values_are_rounded_off() {
        let slope = |t: f64| 1e-18 * (t - 1.2);
        let value = 1.0 + f64::EPSILON;
        let trial = |step: f64| Sample { step, value, slope: slope(step) };
        let mut search = Search::new(1.0, slope(0.0), 1e10, 2.0);
        assert_eq!(search.observe(trial(1.0)), Verdict::Accept);
        for (first, trials) in [(9.0, 2), (0.1, 2), (0.01, 3)] {
            let mut search = Search::new(1.0, slope(0.0), 1e10, 2.0);
            let mut step = first;
            for _ in 1..trials {
                let Verdict::Try(next) = search.observe(trial(step)) else { panic!("no step after {step}") };
                step = next;
            }
            assert_eq!(search.observe(trial(step)), Verdict::Accept, "{first} {step}");
        }
        let mut search = Search::new(1.0, slope(0.0), 1e10, 1.0);
        assert_ne!(search.observe(trial(1.0)), Verdict::Accept);
    }

    #[test]
    fn the_longest_step_is_taken_when_the_slope_never_turns() {
        assert_eq!(run(|t| (-t, -1.0), 1.0, 3.0).0, 3.0);
    }
}
