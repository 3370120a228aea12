//! The search: a small start from several length-scales, k-means in the metric of the best, then steps on all rows.
//!
//! A small start (few centers, few rows) finds length-scales, scales and noise cheaply, but may settle on a poor choice
//! of columns; so there are several, and the mean log density of rows that none of them saw decides, among them and then
//! between the kernel and a smoother one. Centers by k-means
//! in its metric are already so good that some 80 steps suffice. With no more distinct rows than centers the rows are
//! the centers: the exact process and the grids, whose few hyperparameters are left to L-BFGS-B.

use faer::Mat;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::data::{PointsRows, Table, Units};
use super::fit::{Fit, Numerics, Parameters, check_priors, start_scales};
use super::posterior::PointsPosterior;
use super::radial::Radial;
use super::{
    LearnedPoints, PointsProgress, PointsRecord, PointsSearch, PointsStage, PointsStart, PointsTraining,
    Precision, start,
};
use crate::error::{Error, Result, length, positive};
use crate::interrupt;
use crate::kernel::Family;
use crate::learn::{Adam, Annealing, FnObjective, LbfgsB, Objective};

/// Of the targets' mean square, what the points' function explains at the start.
const SIGNAL: f64 = 0.8;
/// Gains are measured over this many steps.
const WINDOW: usize = 10;
/// Below this many rows nothing can be held out.
const FEWEST_ROWS: usize = 20;

/// The mean held-out log density of each start.
type Scores = Vec<(PointsStart, f64)>;

/// What a search has done so far.
struct Log<'a> {
    history: Vec<PointsRecord>,
    flops: f64,
    /// The flops of all stages if none ends early.
    expected: f64,
    report: &'a mut dyn FnMut(PointsProgress) -> bool,
    stopped: bool,
}

impl Log<'_> {
    /// Records an evaluation; false if the search is to stop.
    fn record(&mut self, (stage, step, steps): (PointsStage, usize, usize), bound: f64, flops: f64) -> bool {
        self.history.push(PointsRecord { stage, step, bound });
        let fraction = ((self.flops + flops) / self.expected).clamp(0.0, 1.0);
        self.stopped |= !(self.report)(PointsProgress { stage, step, steps, bound, fraction });
        !self.stopped
    }
}

impl PointsSearch {
    /// Learns points on the rows. `report` is told of every step and may end the search by `false`; what was learned
    /// until then is returned.
    pub fn run(
        &self,
        rows: &PointsRows,
        report: &mut dyn FnMut(PointsProgress) -> bool,
    ) -> Result<LearnedPoints> {
        self.validate()?;
        let (table, units) = Table::new(rows)?;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut log = self.log(&table, report);
        let (family, parameters, starts) = self.small_start(&table, &units, &mut rng, &mut log)?;
        let search = Self { family, ..self.clone() };
        search.finished(&table, &units, parameters, starts, &mut rng, log)
    }

    /// Goes on from points that were learned on part of the rows, or from fewer of them. As many as are wanted move on from
    /// where they are; otherwise centers are sought anew on all rows, in the metric that was found.
    pub fn continued(
        &self,
        rows: &PointsRows,
        from: &LearnedPoints,
        report: &mut dyn FnMut(PointsProgress) -> bool,
    ) -> Result<LearnedPoints> {
        let (table, units) = Table::new(rows)?;
        length("length-scales", table.dim(), from.lengthscales.len())?;
        let lengthscales: Vec<f64> = from.lengthscales.iter().zip(&units.unit).map(|(l, u)| l / u).collect();
        let mut scales = start_scales(&table, SIGNAL);
        length("outputs", scales.len(), from.scales.len())?;
        for (own, (&points, &noise)) in scales.iter_mut().zip(from.scales.iter().zip(&from.noises)) {
            (own.points, own.noise) = (points, noise);
        }
        for (own, groups) in scales.iter_mut().zip(&from.group_scales) {
            if own.groups.len() == groups.len() {
                own.groups.clone_from(groups);
            }
        }
        let (d, m) = (table.dim(), from.len());
        let coordinate = |k: usize, i: usize| (from.centers[i * d + k] - units.center[k]) / units.unit[k];
        let centers = Mat::from_fn(d, if m == self.points { m } else { 0 }, coordinate);
        let parameters = Parameters { centers, lengthscales, scales };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let log = self.log(&table, report);
        let search = Self { family: from.family, ..self.clone() };
        search.finished(&table, &units, parameters, from.starts.clone(), &mut rng, log)
    }

    /// The same at half the rate: what suffices where as many points were learned on most of the rows.
    #[must_use]
    pub fn slower(mut self) -> Self {
        self.training.rate *= 0.5;
        self
    }

    /// The same with no more than 256 points and half the steps: enough to tell whether points are worth it.
    #[must_use]
    pub fn small(mut self) -> Self {
        self.points = self.points.min(256);
        self.training.steps = self.training.steps.div_ceil(2);
        self
    }

    /// The scales of the features beside, for each output, without a single point: what points are compared with.
    pub fn without_points(&self, rows: &PointsRows) -> Result<LearnedPoints> {
        self.validate()?;
        let (table, units) = Table::new(rows)?;
        let mut report = |_| true;
        let mut log = self.log(&table, &mut report);
        let numerics = Numerics { precision: Precision::Double, ..self.numerics()? };
        let lengthscales = start::lengthscales(PointsStart::Even, &table);
        let mut scales = start_scales(&table, SIGNAL);
        // The function that points would carry is not there.
        scales.iter_mut().for_each(|own| own.points = f64::MIN_POSITIVE.sqrt());
        let parameters = Parameters { centers: Mat::zeros(table.dim(), 0), lengthscales, scales };
        let mut fit = Fit::new(&table, numerics, parameters, false);
        Self::polish(&mut fit, table.len(), self.training.steps, &mut log)?;
        let parameters = fit.parameters().clone();
        let posterior = PointsPosterior::of_table(
            numerics.family,
            units.clone(),
            self.jitter,
            &table,
            &parameters,
            self.threads,
        )?;
        Ok(self.learned(&parameters, &units, posterior.bound(), Vec::new(), log))
    }

    fn numerics(&self) -> Result<Numerics> {
        Ok(Numerics {
            family: Radial::new(self.family)?,
            jitter: self.jitter,
            precision: self.precision,
            threads: self.threads,
            priors: self.priors,
            tied: self.tied,
        })
    }

    fn log<'a>(&self, table: &Table, report: &'a mut dyn FnMut(PointsProgress) -> bool) -> Log<'a> {
        let expected = self.expected_flops(table);
        Log { history: Vec::new(), flops: 0.0, expected, report, stopped: false }
    }

    /// Centers on all rows in the metric of a start, and steps from there.
    fn finished(
        &self,
        table: &Table,
        units: &Units,
        mut parameters: Parameters,
        starts: Scores,
        rng: &mut Xoshiro256PlusPlus,
        mut log: Log,
    ) -> Result<LearnedPoints> {
        let numerics = self.numerics()?;
        if !log.stopped {
            let distinct = start::distinct_rows(table);
            let moving = distinct.len() > self.points;
            if !moving {
                parameters.centers =
                    Mat::from_fn(table.dim(), distinct.len(), |k, i| table.x[(k, distinct[i])]);
            } else if parameters.centers.ncols() != self.points {
                parameters.centers = start::centers(table, &parameters.lengthscales, self.points, rng);
            }
            parameters = if moving {
                self.climbed(table, numerics, parameters, PointsStage::Training, self.training, &mut log)?
            } else {
                // A quasi-Newton step is worth two of Adam's.
                let mut fit = Fit::of_rows(table, numerics, parameters);
                Self::polish(&mut fit, table.len(), self.training.steps.div_ceil(2), &mut log)?;
                fit.parameters().clone()
            };
        }
        let family = numerics.family;
        let posterior =
            PointsPosterior::of_table(family, units.clone(), self.jitter, table, &parameters, self.threads)?;
        Ok(self.learned(&parameters, units, posterior.bound(), starts, log))
    }

    /// Rejects settings that make no sense.
    pub fn validate(&self) -> Result<()> {
        let reject =
            |field: &str, reason: &str| Err(Error::Config { field: field.into(), reason: reason.into() });
        if self.points == 0 || self.start_points == 0 || self.start_rows == 0 {
            return reject("points", "at least one center and one row are needed");
        }
        if self.starts.is_empty() {
            return reject("starts", "there must be at least one");
        }
        Radial::new(self.family)?;
        self.smoother.map(Radial::new).transpose()?;
        positive("jitter", self.jitter, 0)?;
        for training in [&self.training, &self.start_training] {
            positive("rate", training.rate, 0)?;
            positive("end_rate", training.end_rate, 0)?;
        }
        check_priors(&self.priors)
    }

    /// The best of the small starts by held-out density, and the kernel: the smoother one from the same start, if that is
    /// better by more than twice the standard error of the difference.
    fn small_start(
        &self,
        table: &Table,
        units: &Units,
        rng: &mut Xoshiro256PlusPlus,
        log: &mut Log,
    ) -> Result<(Family, Parameters, Scores)> {
        let n = table.len();
        let mut order: Vec<usize> = (0..n).collect();
        order.shuffle(rng);
        let held = if n < FEWEST_ROWS { 0 } else { self.held_out_rows.min(n / 4) };
        let (held, rest) = order.split_at(held);
        let held = table.select(held);
        let small = table.select(&rest[..rest.len().min(self.start_rows)]);
        let numerics = self.numerics()?;
        let mut started = |start: PointsStart, family: Family, rng: &mut Xoshiro256PlusPlus| {
            let numerics = Numerics { family: Radial::new(family)?, ..numerics };
            let lengthscales = start::lengthscales(start, &small);
            let centers = start::centers(&small, &lengthscales, self.start_points.min(self.points), rng);
            let parameters = Parameters { centers, lengthscales, scales: start_scales(&small, SIGNAL) };
            let stage = PointsStage::Start(start);
            let parameters = self.climbed(&small, numerics, parameters, stage, self.start_training, log)?;
            let (family, jitter) = (numerics.family, self.jitter);
            let densities = if held.len() > 0 {
                PointsPosterior::of_table(family, units.clone(), jitter, &small, &parameters, self.threads)?
                    .densities_of(&held)
            } else {
                Vec::new()
            };
            Ok::<_, Error>((parameters, densities, log.stopped))
        };
        let mut best: Option<(PointsStart, Parameters, Vec<f64>)> = None;
        let mut scores = Scores::new();
        // Without rows to compare on, the first start is taken.
        let count = if held.len() > 0 { self.starts.len() } else { 1 };
        let mut is_stopped = false;
        for &start in &self.starts[..count] {
            let (parameters, densities, stopped) = started(start, self.family, rng)?;
            let score = densities.iter().sum::<f64>() / densities.len().max(1) as f64;
            if scores.iter().all(|(_, top)| score > *top) {
                best = Some((start, parameters, densities));
            }
            scores.push((start, score));
            is_stopped = stopped;
            if is_stopped {
                break;
            }
        }
        let Some((start, parameters, densities)) = best else {
            return Err(Error::WarmUp { reason: "no start of inducing points could be tried".into() });
        };
        if let Some(smoother) = self.smoother.filter(|_| held.len() > 1 && !is_stopped) {
            let (smooth, other, _) = started(start, smoother, rng)?;
            if is_clearly_better(&other, &densities) {
                return Ok((smoother, smooth, scores));
            }
        }
        Ok((self.family, parameters, scores))
    }

    /// Where Adam leads. With next to no noise the rounding of single precision may be larger than what it leaves, and
    /// nothing can be factorized: then all is done in double precision.
    fn climbed(
        &self,
        table: &Table,
        numerics: Numerics,
        start: Parameters,
        stage: PointsStage,
        training: PointsTraining,
        log: &mut Log,
    ) -> Result<Parameters> {
        let mut fit = Fit::new(table, numerics, start.clone(), true);
        let mut climbed = self.climb(&mut fit, table.len(), stage, training, log);
        if climbed.is_err() && climbed != Err(Error::Interrupted) && numerics.precision == Precision::Single {
            let numerics = Numerics { precision: Precision::Double, ..numerics };
            fit = Fit::new(table, numerics, start, true);
            climbed = self.climb(&mut fit, table.len(), stage, training, log);
        }
        climbed.map(|()| fit.parameters().clone())
    }

    /// Adam on all rows; ends at the best point seen.
    fn climb(
        &self,
        fit: &mut Fit,
        rows: usize,
        stage: PointsStage,
        training: PointsTraining,
        log: &mut Log,
    ) -> Result<()> {
        let PointsTraining { steps, rate, end_rate } = training;
        let bounds = fit.bounds()?;
        let mut x = fit.unknowns();
        let mut gradient = vec![0.0; x.len()];
        let mut adam = Adam::new(x.len(), rate)?
            .with_annealing(Annealing { end: end_rate.min(rate), steps: steps.max(1) })?;
        let mut best: Option<(f64, Vec<f64>)> = None;
        let mut tops = Vec::new();
        for step in 0..=steps {
            let value = match fit.evaluate(&x, &mut gradient) {
                Ok(value) if value.is_finite() && gradient.iter().all(|g| g.is_finite()) => value,
                // A step too far: the best point before it is the end.
                Ok(_) | Err(_) if best.is_some() => break,
                Ok(value) => return Err(Error::NotFinite { field: "bound".into(), value, row: 0 }),
                Err(error) => return Err(error),
            };
            if best.as_ref().is_none_or(|(top, _)| value < *top) {
                best = Some((value, x.clone()));
            }
            if !log.record((stage, step, steps), fit.bound / rows as f64, fit.flops) || step == steps {
                break;
            }
            // Large first steps may lose for a while, so only the second half is judged.
            tops.push(best.as_ref().map_or(value, |(top, _)| *top));
            let gain = |w: usize| tops[tops.len() - 1 - w] - tops[tops.len() - 1];
            if step > steps / 2 + WINDOW && gain(WINDOW) < self.least_gain * (WINDOW * rows) as f64 {
                break;
            }
            adam.step(&mut x, &gradient)?;
            bounds.project(&mut x);
        }
        interrupt::check()?;
        log.flops += fit.flops;
        match best {
            Some((_, x)) => fit.set_unknowns(&x),
            None => Ok(()),
        }
    }

    /// L-BFGS-B on length-scales, scales and noise.
    fn polish(fit: &mut Fit, rows: usize, steps: usize, log: &mut Log) -> Result<()> {
        let (start, bounds) = (fit.unknowns(), fit.bounds()?);
        let (mut step, mut best) = (0, (f64::INFINITY, start.clone()));
        let solver =
            LbfgsB { max_evaluations: steps.max(1), max_iterations: steps.max(1), ..LbfgsB::default() };
        let mut objective = FnObjective::new(start.len(), |x: &[f64], g: &mut [f64]| {
            if log.stopped {
                return Err(Error::Unsupported { operation: "search", reason: "it was told to stop" });
            }
            let value = fit.evaluate(x, g)?;
            if value < best.0 {
                best = (value, x.to_vec());
            }
            log.record((PointsStage::Training, step, steps), fit.bound / rows as f64, fit.flops);
            step += 1;
            Ok(value)
        });
        solver.minimize(&mut objective, &start, &bounds)?;
        log.flops += fit.flops;
        fit.set_unknowns(&best.1)
    }

    /// Roughly what all stages would take if none ended early.
    fn expected_flops(&self, table: &Table) -> f64 {
        let one = |rows: usize, points: usize| {
            let (n, m) = (rows as f64, points.min(rows) as f64);
            let p = m + table.grids.nrows() as f64;
            n * (m * m + p * p + 2.0 * p * m) + 5.0 * p.powi(3)
        };
        let n = table.len();
        let small = one(self.start_rows.min(n), self.start_points.min(self.points));
        let starts = self.starts.len() + usize::from(self.smoother.is_some());
        let starts = (starts * (self.start_training.steps + 1)) as f64;
        starts * small + (self.training.steps + 1) as f64 * one(n, self.points)
    }

    fn learned(
        &self,
        parameters: &Parameters,
        units: &Units,
        bound: f64,
        starts: Scores,
        log: Log,
    ) -> LearnedPoints {
        let Parameters { centers, lengthscales, scales } = parameters;
        let d = lengthscales.len();
        let coordinate = |i: usize, k: usize| centers[(k, i)] * units.unit[k] + units.center[k];
        LearnedPoints {
            family: self.family,
            centers: (0..centers.ncols() * d).map(|at| coordinate(at / d, at % d)).collect(),
            lengthscales: lengthscales.iter().zip(&units.unit).map(|(l, u)| l * u).collect(),
            scales: scales.iter().map(|s| s.points).collect(),
            noises: scales.iter().map(|s| s.noise).collect(),
            group_scales: scales.iter().map(|s| s.groups.clone()).collect(),
            jitter: self.jitter,
            bound,
            starts,
            history: log.history,
            flops: log.flops,
            finished: !log.stopped,
        }
    }
}

/// Whether log densities of the same rows are larger by more than twice the standard error of the mean difference.
fn is_clearly_better(these: &[f64], those: &[f64]) -> bool {
    let n = these.len() as f64;
    let differences = || these.iter().zip(those).map(|(a, b)| a - b);
    let mean = differences().sum::<f64>() / n;
    let variance = differences().map(|d| (d - mean).powi(2)).sum::<f64>() / (n - 1.0);
    mean > 2.0 * (variance / n).sqrt()
}
