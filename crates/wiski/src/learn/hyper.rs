//! Learning kernels and noise: maximizing the evidence of the statistics, with priors where wanted.
//!
//! The unknowns are every kernel parameter and, where it is learned, the noise variance, each through a
//! [`Transform`] to an unconstrained number. The objective is
//!
//! ```text
//! −( log p(y | θ, σ²) + Σ log prior )/n
//! ```
//!
//! whose cost does not depend on n. Divided by n it keeps one scale along a stream, so tolerances and
//! learning rates mean the same early and late.

use super::{Adam, Bounds, Hyperprior, LbfgsB, Minimum, Objective, Transform};
use crate::error::{Error, Result, length, positive};
use crate::evidence::Evidence;
use crate::kernel::Kernel;
use crate::pool::Pool;
use crate::posterior::Posterior;
use crate::saved::{Restore, restored_after_reading};
use crate::stats::Stats;
use serde::{Deserialize, Serialize};

/// Everything the evidence depends on besides the data: a kernel for each grid and the noise variance σ².
#[derive(Debug, Clone, PartialEq)]
pub struct Hyperparameters {
    /// One kernel for each block: the grids, and the scale of inducing points if there are any.
    pub kernels: Vec<Kernel>,
    /// The noise variance σ².
    pub noise: f64,
}

impl Hyperparameters {
    /// Names and values of all hyperparameters; with several blocks, the grid's number stands in front, or `points` for
    /// the scale of inducing points.
    pub fn named(&self) -> Vec<(String, f64)> {
        let several = self.kernels.len() > 1;
        let mut all = Vec::new();
        for (j, kernel) in self.kernels.iter().enumerate() {
            for (name, value) in kernel.parameter_names().into_iter().zip(kernel.parameters()) {
                let block = if kernel.dim() == 0 { "points".into() } else { format!("grid{j}") };
                all.push((if several { format!("{block}.{name}") } else { name }, value));
            }
        }
        all.push(("noise".into(), self.noise));
        all
    }

    /// The same model of targets that are divided by `factor`: scales and noise shrink by its square.
    pub(crate) fn rescale(&mut self, factor: f64) {
        for kernel in &mut self.kernels {
            *kernel = kernel.clone().scaled(factor.powi(-2));
        }
        self.noise /= factor * factor;
    }
}

/// A kernel whose variance is below this share of the noise explains nothing.
const DEAD: f64 = 1e-3;

/// Which hyperparameters are learned, and how: transform, prior and range of each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct HyperSpace {
    names: Vec<String>,
    transforms: Vec<Transform>,
    priors: Vec<Hyperprior>,
    ranges: Vec<(f64, f64)>,
    learn_noise: bool,
}

restored_after_reading!(HyperSpace);

impl Restore for HyperSpace {
    fn restore(&mut self) -> Result<()> {
        for other in [self.transforms.len(), self.priors.len(), self.ranges.len()] {
            length("hyperparameters", self.names.len(), other)?;
        }
        for (name, &(lo, hi)) in self.names.iter().zip(&self.ranges) {
            if !(lo > 0.0 && lo <= hi && hi.is_finite()) {
                let reason = format!("[{lo}, {hi}] is not a range of positive numbers");
                return Err(Error::Config { field: name.clone(), reason });
            }
        }
        self.priors.iter().try_for_each(Hyperprior::validate)
    }
}

impl HyperSpace {
    /// Rejects to learn hyperparameters that are not those of this space.
    pub(crate) fn check_fits(&self, hyper: &Hyperparameters) -> Result<()> {
        length("hyperparameters", self.names.len(), hyper.named().len())
    }

    /// All hyperparameters, by their logarithms, without priors, in ranges that suit inputs scaled to about
    /// [−1, 1] and targets of about unit variance.
    pub fn new(hyper: &Hyperparameters) -> Self {
        let names: Vec<String> = hyper.named().into_iter().map(|(name, _)| name).collect();
        let range = |name: &String| match name.as_str() {
            n if n.ends_with("noise") => (1e-6, 1e3),
            n if n.contains("lengthscale") => (1e-2, 1e2),
            n if n.contains("alpha") => (1e-2, 1e4),
            _ => (1e-6, 1e6),
        };
        let ranges = names.iter().map(range).collect();
        let transforms = vec![Transform::Log; names.len()];
        Self { priors: vec![Hyperprior::Flat; names.len()], names, transforms, ranges, learn_noise: true }
    }

    /// Softplus instead of the logarithm, with a floor of 1e-4 on the noise: the reference implementation's
    /// parametrization, in which its learning rates are given.
    #[must_use]
    pub fn softplus(mut self) -> Self {
        for (transform, name) in self.transforms.iter_mut().zip(&self.names) {
            let floor = if name.ends_with("noise") { 1e-4 } else { 0.0 };
            *transform = Transform::Softplus { floor };
        }
        self
    }

    /// Keeps the noise variance as it is: it is known.
    #[must_use]
    pub fn with_known_noise(mut self) -> Self {
        self.learn_noise = false;
        self
    }

    /// Whether the noise variance is learned.
    pub(crate) fn learns_noise(&self) -> bool {
        self.learn_noise
    }

    /// Puts a prior on every hyperparameter whose name contains `name`.
    pub fn with_prior(mut self, name: &str, prior: Hyperprior) -> Result<Self> {
        prior.validate()?;
        let mut found = false;
        for (slot, own) in self.priors.iter_mut().zip(&self.names) {
            if own.contains(name) {
                *slot = prior;
                found = true;
            }
        }
        if found { Ok(self) } else { Err(self.unknown(name)) }
    }

    /// Restricts every hyperparameter whose name contains `name` to a range.
    pub fn with_range(mut self, name: &str, lo: f64, hi: f64) -> Result<Self> {
        if !(lo > 0.0 && hi > lo && hi.is_finite()) {
            let reason = format!("[{lo}, {hi}] is not a range of positive numbers");
            return Err(Error::Config { field: name.into(), reason });
        }
        let mut found = false;
        for (slot, own) in self.ranges.iter_mut().zip(&self.names) {
            if own.contains(name) {
                *slot = (lo, hi);
                found = true;
            }
        }
        if found { Ok(self) } else { Err(self.unknown(name)) }
    }

    /// Sets the smallest value of every hyperparameter whose name contains `name` and which is not kept at one.
    #[must_use]
    pub(crate) fn with_floor(mut self, name: &str, floor: f64) -> Self {
        for ((lo, hi), own) in self.ranges.iter_mut().zip(&self.names) {
            if own.contains(name) && lo < hi {
                *lo = floor.min(*hi);
            }
        }
        self
    }

    /// Keeps the hyperparameter with the given number, in the order of [`Hyperparameters::named`], at a value.
    pub(crate) fn with_fixed(mut self, index: usize, value: f64) -> Result<Self> {
        positive("fixed hyperparameter", value, 0)?;
        self.ranges[index] = (value, value);
        Ok(self)
    }

    /// For targets that are divided by `factor`: variances that are kept at a value are so in the new units.
    pub(crate) fn rescale_fixed(&mut self, hyper: &Hyperparameters, factor: f64) {
        let mut first = 0;
        let mut variances = Vec::new();
        for kernel in &hyper.kernels {
            variances.extend(kernel.leading_scales().into_iter().map(|i| first + i));
            first += kernel.parameter_count();
        }
        for i in variances.into_iter().chain([first]) {
            if let Some((lo, hi)) = self.ranges.get_mut(i).filter(|(lo, hi)| lo == hi) {
                *lo /= factor * factor;
                *hi = *lo;
            }
        }
    }

    fn unknown(&self, name: &str) -> Error {
        let reason = format!("no hyperparameter has this name; there are {}", self.names.join(", "));
        Error::Config { field: name.into(), reason }
    }

    /// The number of unknowns.
    pub fn dim(&self) -> usize {
        self.names.len() - usize::from(!self.learn_noise)
    }

    /// The unknowns of the given hyperparameters; values outside their range are moved to its end.
    pub fn to_raw(&self, hyper: &Hyperparameters) -> Result<Vec<f64>> {
        let named = hyper.named();
        length("hyperparameters", self.names.len(), named.len())?;
        let raw = |i: usize| self.transforms[i].inverse(named[i].1.clamp(self.ranges[i].0, self.ranges[i].1));
        (0..self.dim()).map(raw).collect()
    }

    /// The hyperparameters of the given unknowns; `like` gives kernels and what is not learned.
    pub fn to_hyperparameters(&self, raw: &[f64], like: &Hyperparameters) -> Result<Hyperparameters> {
        length("hyperparameters", self.dim(), raw.len())?;
        let mut hyper = like.clone();
        let mut values = raw.iter().enumerate().map(|(i, &r)| self.transforms[i].forward(r));
        for kernel in &mut hyper.kernels {
            let own: Vec<f64> = values.by_ref().take(kernel.parameter_count()).collect();
            kernel.set_parameters(&own)?;
        }
        if let Some(noise) = values.next() {
            hyper.noise = noise;
        }
        Ok(hyper)
    }

    /// The bounds of the unknowns.
    pub(super) fn bounds(&self) -> Result<Bounds> {
        let end = |i: usize, value: f64| self.transforms[i].inverse(value);
        let lo =
            (0..self.dim()).map(|i| end(i, self.ranges[i].0.max(self.smallest(i)))).collect::<Result<_>>()?;
        let hi = (0..self.dim()).map(|i| end(i, self.ranges[i].1)).collect::<Result<_>>()?;
        Bounds::new(lo, hi)
    }

    /// A value above the floor of the transform.
    fn smallest(&self, i: usize) -> f64 {
        match self.transforms[i] {
            Transform::Softplus { floor } => floor * 1.01,
            _ => 0.0,
        }
    }

    /// The objective, its gradient in the unknowns, and the posterior that comes with it.
    pub fn evaluate(
        &self,
        stats: &Stats,
        hyper: &Hyperparameters,
        tolerance: f64,
        pool: &mut Pool,
        gradient: &mut [f64],
    ) -> Result<(f64, Posterior)> {
        let (evidence, posterior) = Evidence::with_pool(stats, &hyper.kernels, hyper.noise, tolerance, pool)?;
        Ok((self.objective(stats.count(), hyper, &evidence, gradient)?, posterior))
    }

    /// The objective and its gradient in the unknowns, from the evidence of the hyperparameters.
    pub(crate) fn objective(
        &self,
        count: f64,
        hyper: &Hyperparameters,
        evidence: &Evidence,
        gradient: &mut [f64],
    ) -> Result<f64> {
        let n = count.max(1.0);
        let named = hyper.named();
        let natural = evidence.by_kernel.iter().flatten().copied().chain([evidence.by_noise]);
        let mut value = -evidence.value;
        for (i, (slope, slot)) in natural.zip(gradient.iter_mut()).enumerate() {
            let raw = self.transforms[i].inverse(named[i].1)?;
            value -= self.priors[i].log_density(named[i].1);
            *slot = -(slope + self.priors[i].derivative(named[i].1)) * self.transforms[i].derivative(raw) / n;
        }
        Ok(value / n)
    }

    /// Maximizes evidence and priors from the given hyperparameters on. The result is never worse than the
    /// start.
    pub fn refit(
        &self,
        stats: &Stats,
        start: &Hyperparameters,
        tolerance: f64,
        optimizer: &LbfgsB,
        pool: &mut Pool,
    ) -> Result<(Hyperparameters, Minimum)> {
        let refitted =
            self.refit_with(stats.count(), start, optimizer, |hyper, _, spare: Option<Posterior>| {
                spare.into_iter().for_each(|posterior| posterior.recycle(pool));
                Evidence::with_pool(stats, &hyper.kernels, hyper.noise, tolerance, pool)
            })?;
        refitted.posterior.recycle(pool);
        Ok((refitted.hyper, refitted.minimum))
    }

    /// As [`HyperSpace::refit`], with the evidence of `count` rows from any engine, and the posterior that comes with
    /// it. That of the best evaluation is kept for the end. `evidence` is called with hyperparameters, the
    /// posterior of the best evaluation so far, from which an iteration can begin, and one that is no longer needed,
    /// whose memory can be used again.
    pub fn refit_with<P>(
        &self,
        count: f64,
        start: &Hyperparameters,
        optimizer: &LbfgsB,
        evidence: impl FnMut(&Hyperparameters, Option<&P>, Option<P>) -> Result<(Evidence, P)>,
    ) -> Result<Refitted<P>> {
        let (raw, bounds) = (self.to_raw(start)?, self.bounds()?);
        let mut objective = Refit { space: self, count, like: start, evidence, best: None, spare: None };
        let mut minimum = optimizer.minimize(&mut objective, &raw, &bounds)?;
        let found = self.to_hyperparameters(&minimum.x, start)?;
        if let Some(revived) = self.revived(&found)? {
            let second = optimizer.minimize(&mut objective, &revived, &bounds)?;
            if second.value < minimum.value {
                minimum = second;
            }
        }
        // A search may end a rounding error above the best value that it has met.
        let Some(Best { x, value, gradient, posterior }) = objective.best else {
            let reason = "no evaluation succeeded";
            return Err(Error::Unsupported { operation: "refit", reason });
        };
        let hyper = self.to_hyperparameters(&x, start)?;
        Ok(Refitted { hyper, minimum: Minimum { x, value, gradient, ..minimum }, posterior })
    }

    /// Another start for hyperparameters that explain everything by noise. There the evidence is flat: its slopes are
    /// proportional to the output scale, and a stream that has been noise for a while would stay noise for ever.
    fn revived(&self, hyper: &Hyperparameters) -> Result<Option<Vec<f64>>> {
        let variance: f64 = hyper.kernels.iter().map(Kernel::variance).sum();
        if variance > DEAD * hyper.noise {
            return Ok(None);
        }
        let mut revived = hyper.clone();
        for kernel in &mut revived.kernels {
            *kernel = kernel.clone().scaled(0.5 * hyper.noise / variance);
            let names = kernel.parameter_names();
            let sensible = |(name, value): (&String, f64)| {
                if name.contains("lengthscale") { value.clamp(0.1, 1.0) } else { value }
            };
            let values: Vec<f64> = names.iter().zip(kernel.parameters()).map(sensible).collect();
            kernel.set_parameters(&values)?;
        }
        if self.learn_noise {
            revived.noise *= 0.5;
        }
        self.to_raw(&revived).map(Some)
    }

    /// One step of Adam down the gradient.
    pub fn adam_step(&self, adam: &mut Adam, hyper: &mut Hyperparameters, gradient: &[f64]) -> Result<()> {
        let mut raw = self.to_raw(hyper)?;
        adam.step(&mut raw, gradient)?;
        let bounds = self.bounds()?;
        bounds.project(&mut raw);
        *hyper = self.to_hyperparameters(&raw, hyper)?;
        Ok(())
    }
}

/// What a refit ends with.
#[derive(Debug, Clone)]
pub struct Refitted<P> {
    /// The best hyperparameters.
    pub hyper: Hyperparameters,
    /// How the search went.
    pub minimum: Minimum,
    /// The posterior at these hyperparameters.
    pub posterior: P,
}

struct Refit<'a, E, P> {
    space: &'a HyperSpace,
    count: f64,
    like: &'a Hyperparameters,
    evidence: E,
    best: Option<Best<P>>,
    /// A posterior that is no longer needed.
    spare: Option<P>,
}

/// The best evaluation so far.
struct Best<P> {
    x: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
    posterior: P,
}

impl<P, E> Objective for Refit<'_, E, P>
where
    E: FnMut(&Hyperparameters, Option<&P>, Option<P>) -> Result<(Evidence, P)>,
{
    fn dim(&self) -> usize {
        self.space.dim()
    }

    fn evaluate(&mut self, x: &[f64], gradient: &mut [f64]) -> Result<f64> {
        let hyper = self.space.to_hyperparameters(x, self.like)?;
        let before = self.best.as_ref().map(|best| &best.posterior);
        let (evidence, posterior) = (self.evidence)(&hyper, before, self.spare.take())?;
        let value = self.space.objective(self.count, &hyper, &evidence, gradient)?;
        let is_usable = gradient.iter().all(|g| g.is_finite());
        if is_usable && self.best.as_ref().is_none_or(|best| value <= best.value) {
            let (x, gradient) = (x.to_vec(), gradient.to_vec());
            let best = self.best.replace(Best { x, value, gradient, posterior });
            self.spare = best.map(|best| best.posterior);
        } else {
            self.spare = Some(posterior);
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Grid;

    /// Rows that are noise alone drive the scale to nothing, from where no gradient leads back.
    #[test]
    fn a_signal_is_found_again_after_noise() {
        let mut stats = Stats::new(Grid::covering(&[(-1.0, 1.0)], &[24]).unwrap());
        let rows = |stats: &mut Stats, amplitude: f64| {
            for i in 0..600 {
                let x = (0.618 * f64::from(i)).fract() * 2.0 - 1.0;
                // Differences of a low-discrepancy sequence far apart in its order look random along x.
                let noise = ((97.3 * f64::from(i * i)).sin() * 43_758.545).fract();
                stats.observe(&[x], amplitude * (4.0 * x).sin() + noise, 1.0).unwrap();
            }
        };
        rows(&mut stats, 0.0);
        let mut hyper = Hyperparameters { kernels: vec![Kernel::matern52(&[0.5]).unwrap()], noise: 0.5 };
        let space = HyperSpace::new(&hyper);
        let brief = LbfgsB { max_evaluations: 12, ..LbfgsB::default() };
        let refit = |stats: &Stats, hyper: &Hyperparameters| {
            space.refit(stats, hyper, 1e-12, &brief, &mut Pool::default()).unwrap().0
        };
        for _ in 0..6 {
            hyper = refit(&stats, &hyper);
        }
        // Here plain noise has let the scale die, or it is put to death.
        let dead = 1e-6 / hyper.kernels[0].variance();
        hyper.kernels[0] = hyper.kernels[0].clone().scaled(dead.min(1.0));
        stats.decay(1e-3).unwrap();
        rows(&mut stats, 2.0);
        let found = refit(&stats, &hyper);
        assert!(found.kernels[0].variance() > 0.3 && found.noise < 0.5, "{found:?}");
    }

    fn setting() -> (Stats, Hyperparameters) {
        let mut stats = Stats::new(Grid::covering(&[(-1.0, 1.0)], &[24]).unwrap());
        for i in 0..300 {
            let x = (0.618 * f64::from(i)).fract() * 2.0 - 1.0;
            let noise = 0.2 * ((1.7 * f64::from(i * i)).sin());
            stats.observe(&[x], (4.0 * x).sin() + noise, 1.0).unwrap();
        }
        let kernel = Kernel::rbf(&[0.5]).unwrap() + Kernel::matern32(&[0.8]).unwrap().scaled(0.2);
        (stats, Hyperparameters { kernels: vec![kernel], noise: 0.5 })
    }

    #[test]
    fn the_objective_has_the_gradient_it_says() {
        let (stats, hyper) = setting();
        let plain = HyperSpace::new(&hyper);
        let spaces = [
            plain.clone(),
            plain.clone().softplus(),
            plain
                .with_prior("lengthscale", Hyperprior::Gamma { shape: 3.0, rate: 6.0 })
                .unwrap()
                .with_known_noise(),
        ];
        for space in spaces {
            let raw = space.to_raw(&hyper).unwrap();
            let (mut gradient, mut unused) = (vec![0.0; space.dim()], vec![0.0; space.dim()]);
            let value = |raw: &[f64], gradient: &mut [f64]| {
                let hyper = space.to_hyperparameters(raw, &hyper).unwrap();
                space.evaluate(&stats, &hyper, 1e-14, &mut Pool::default(), gradient).unwrap().0
            };
            value(&raw, &mut gradient);
            for i in 0..space.dim() {
                let (mut hi, mut lo) = (raw.clone(), raw.clone());
                hi[i] += 1e-5;
                lo[i] -= 1e-5;
                let numeric = (value(&hi, &mut unused) - value(&lo, &mut unused)) / 2e-5;
                assert!(
                    (gradient[i] - numeric).abs() < 1e-7 * (1.0 + numeric.abs()),
                    "{i}: {} {numeric}",
                    gradient[i]
                );
            }
        }
    }

    #[test]
    fn refitting_finds_the_noise_and_beats_the_start() {
        let (stats, hyper) = setting();
        let space = HyperSpace::new(&hyper);
        let mut pool = Pool::default();
        let (fitted, minimum) = space.refit(&stats, &hyper, 1e-12, &LbfgsB::default(), &mut pool).unwrap();
        let mut gradient = vec![0.0; space.dim()];
        let before = space.evaluate(&stats, &hyper, 1e-12, &mut pool, &mut gradient).unwrap().0;
        assert!(minimum.value < before - 0.1);
        // The noise is a sine of random phase and size 0.2: variance 0.02.
        assert!((fitted.noise - 0.02).abs() < 0.004, "{}", fitted.noise);
    }

    #[test]
    fn names_are_checked() {
        let (_, hyper) = setting();
        let space = HyperSpace::new(&hyper);
        assert!(matches!(space.clone().with_prior("period", Hyperprior::Flat), Err(Error::Config { .. })));
        assert!(matches!(space.clone().with_range("noise", -1.0, 1.0), Err(Error::Config { .. })));
        assert!(space.with_range("noise", 1e-3, 1.0).is_ok());
    }
}
