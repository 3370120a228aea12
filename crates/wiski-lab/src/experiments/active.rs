//! Figures 5b and 5c: where to measure malaria next.
//!
//! Every iteration chooses six pixels of a map to observe. WISKI and the exact process choose those that lower the
//! variance over the test pixels most; O-SVGP, which cannot say what an observation would change, the pixels next to
//! the six test pixels of the largest variance, as in the paper; and random choice is the scale of it all.

use crate::baselines::{
    Covariance, Encoder, ExactGp, Hyper, Likelihood, Priors, StreamingSvgp, SvgpOptions, Training,
};
use crate::data::Table;
use crate::results::{Bundle, Folder, Markdown, comparison, plus_minus, processor_seconds, progress};
use crate::{Options, watch};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use wiski::internals::decide::IntegratedVariance;
use wiski::internals::learn::Hyperprior;
use wiski::{Family, Grid, HyperSpace, Kernel, LbfgsB, OnlineGp, Result, Stats, Wiski};
use wiski_figures::{Field, Lines, Map};

const BATCH: usize = 6;
const INITIAL: usize = 10;
const GRID: usize = 30;

/// The standard deviation of the noise that is added to each observation and known to every method, in units of the
/// standardized target. The maps at hand come without the atlas's own deviations.
const NOISE: f64 = 0.2;

/// The paper's priors, in coordinates from −1 to 1; the noise is known.
const PRIORS: Priors = Priors {
    scale: Hyperprior::Gamma { shape: 2.0, rate: 0.15 },
    lengthscale: Hyperprior::Gamma { shape: 3.0, rate: 3.0 },
    noise: Hyperprior::Flat,
};

/// Hyperparameters are fitted when the observations have grown by this ratio.
const REFIT: f64 = 1.3;

/// Candidates that WISKI and the exact process look at in each iteration: a fresh random choice of the free pixels.
const CANDIDATES: usize = 1000;

/// Test pixels over which the exact process sums its variances. WISKI sums over all of them, which costs it nothing.
const EXACT_REFERENCE: usize = 1000;

/// RMSE is measured after so many iterations, and at the end.
const LOOK: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Rule {
    Wiski,
    Exact,
    Svgp { inducing: usize },
    Random,
}

impl Rule {
    fn name(self) -> &'static str {
        match self {
            Self::Wiski => "WISKI",
            Self::Exact => "Exact (Cholesky)",
            Self::Svgp { .. } => "O-SVGP",
            Self::Random => "Random (WISKI)",
        }
    }

    fn key(self) -> String {
        format!("{self:?}").to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect()
    }
}

fn fitting(most: usize) -> LbfgsB {
    LbfgsB { max_evaluations: most, relative_tolerance: 1e-5, ..LbfgsB::default() }
}

/// A map with pixels to test on and pixels to choose from.
struct Country {
    test: Table,
    pool: Table,
}

impl Country {
    /// At most 10,000 test pixels, and at most half of all.
    fn new(table: &Table, seed: u64) -> Self {
        let mut order: Vec<usize> = (0..table.len()).collect();
        order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
        let (test, pool) = order.split_at(10_000.min(table.len() / 2));
        Self { test: table.select(test), pool: table.select(pool) }
    }
}

/// A model that learns pixels and says which to observe next.
trait Explorer {
    fn learn(&mut self, x: &[f64], y: &[f64]) -> Result<()>;

    /// Which of the free pixels to observe. They are given row after row.
    fn choose(&mut self, free: &[f64], test: &Table) -> Result<Vec<usize>>;

    fn means(&mut self, x: &[f64]) -> Result<Vec<f64>>;
}

struct Gridded {
    process: Wiski,
    space: HyperSpace,
    reference: Stats,
    fitted_at: f64,
    random: bool,
}

impl Gridded {
    fn new(test: &Table, random: bool) -> Result<Self> {
        let grid = Grid::covering(&[(-1.0, 1.0); 2], &[GRID; 2])?;
        let process = Wiski::builder()
            .grid(grid)
            .kernel(Kernel::new(Family::Matern12, 2)?)
            .noise(NOISE * NOISE)
            .build()?;
        let space = HyperSpace::new(&process.hyperparameters())
            .with_known_noise()
            .with_prior("lengthscale", PRIORS.lengthscale)?
            .with_prior("outputscale", PRIORS.scale)?;
        let mut reference = Stats::new(process.stats().lattice().clone());
        reference.observe_batch(&test.x, &vec![0.0; test.len()], None)?;
        Ok(Self { process, space, reference, fitted_at: 0.0, random })
    }
}

impl Explorer for Gridded {
    fn learn(&mut self, x: &[f64], y: &[f64]) -> Result<()> {
        self.process.observe_batch(x, y, None)?;
        if self.process.count() >= REFIT * self.fitted_at {
            self.process.refit(&self.space, &fitting(if self.fitted_at > 0.0 { 6 } else { 20 }))?;
            self.fitted_at = self.process.count();
        }
        Ok(())
    }

    fn choose(&mut self, free: &[f64], _: &Table) -> Result<Vec<usize>> {
        if self.random {
            return Ok((0..BATCH).collect()); // they come in random order
        }
        let posterior = self.process.posterior()?;
        IntegratedVariance::with_reference(posterior, &self.reference)?.choose_from_pool(free, BATCH)
    }

    fn means(&mut self, x: &[f64]) -> Result<Vec<f64>> {
        let predictor = self.process.predictor()?;
        x.chunks_exact(2).map(|x| predictor.predict_mean(x)).collect()
    }
}

struct Exact {
    model: ExactGp,
    fitted_at: f64,
}

impl Exact {
    fn new() -> Result<Self> {
        let hyper = Hyper::new(Covariance::new(Family::Matern12, 2)?).with_known_noise(NOISE * NOISE);
        Ok(Self { model: ExactGp::new(Encoder::identity(2), hyper, Training::none()), fitted_at: 0.0 })
    }
}

impl Explorer for Exact {
    fn learn(&mut self, x: &[f64], y: &[f64]) -> Result<()> {
        self.model.observe_batch(x, y, None)?;
        if self.model.count() >= REFIT * self.fitted_at {
            self.model.refit(&PRIORS, &fitting(if self.fitted_at > 0.0 { 6 } else { 20 }))?;
            self.fitted_at = self.model.count();
        }
        Ok(())
    }

    fn choose(&mut self, free: &[f64], test: &Table) -> Result<Vec<usize>> {
        let reference = &test.x[..2 * EXACT_REFERENCE.min(test.len())];
        Ok(self.model.surrogate()?.choose_from_pool(free, reference, BATCH))
    }

    fn means(&mut self, x: &[f64]) -> Result<Vec<f64>> {
        means_of(&mut self.model, x)
    }
}

struct Sparse {
    model: StreamingSvgp,
    started: bool,
}

impl Sparse {
    fn new(inducing: usize, seed: u64) -> Result<Self> {
        let hyper = Hyper::new(Covariance::new(Family::Matern12, 2)?).with_known_noise(NOISE * NOISE);
        let options = SvgpOptions { inducing, steps: 5, seed, ..SvgpOptions::default() };
        let encoder = Encoder::identity(2);
        let model = StreamingSvgp::new(encoder, hyper, Training::paper(0.05), Likelihood::Gaussian, options);
        Ok(Self { model, started: false })
    }
}

impl Explorer for Sparse {
    fn learn(&mut self, x: &[f64], y: &[f64]) -> Result<()> {
        if self.started {
            return self.model.observe_batch(x, y, None).map(|_| ());
        }
        self.started = true;
        self.model.warm_up(x, y)
    }

    fn choose(&mut self, free: &[f64], test: &Table) -> Result<Vec<usize>> {
        let (mut mean, mut variance) = (vec![0.0; test.len()], vec![0.0; test.len()]);
        self.model.predict_batch(&test.x, &mut mean, &mut variance)?;
        let mut order: Vec<usize> = (0..test.len()).collect();
        order.sort_by(|&i, &j| variance[j].total_cmp(&variance[i]));
        let mut chosen: Vec<usize> = Vec::new();
        for &i in order.iter().take(BATCH) {
            let distance = |j: &usize| squared(&free[2 * j..2 * j + 2], test.row(i));
            let nearest = (0..free.len() / 2).filter(|j| !chosen.contains(j));
            chosen.extend(nearest.min_by(|a, b| distance(a).total_cmp(&distance(b))));
        }
        Ok(chosen)
    }

    fn means(&mut self, x: &[f64]) -> Result<Vec<f64>> {
        means_of(&mut self.model, x)
    }
}

fn means_of(model: &mut dyn OnlineGp, x: &[f64]) -> Result<Vec<f64>> {
    let mut mean = vec![0.0; x.len() / 2];
    // In pieces: an exact process solves with a column for each.
    for (x, mean) in x.chunks(2 * 1000).zip(mean.chunks_mut(1000)) {
        model.predict_batch(x, mean, &mut vec![0.0; mean.len()])?;
    }
    Ok(mean)
}

fn squared(a: &[f64], b: &[f64]) -> f64 {
    (a[0] - b[0]).powi(2) + (a[1] - b[1]).powi(2)
}

/// One exploration.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Course {
    /// After so many iterations: the RMSE over the test pixels and the mean seconds an iteration since the last look.
    looks: Vec<(usize, f64, f64)>,
    /// All pixels observed, x and y one after the other.
    queried: Vec<f64>,
    /// The mean distance of a test pixel to the nearest one observed, the map being two units wide.
    gap: f64,
    /// The final mean on [`raster`].
    map: Vec<f64>,
}

/// Centers of the cells of a picture.
fn raster() -> Vec<f64> {
    (0..64).map(|i| -1.0 + (f64::from(i) + 0.5) / 32.0).collect()
}

fn explore(
    rule: Rule,
    country: &Country,
    iterations: usize,
    seed: u64,
    label: &str,
) -> anyhow::Result<Course> {
    let mut explorer: Box<dyn Explorer> = match rule {
        Rule::Wiski => Box::new(Gridded::new(&country.test, false)?),
        Rule::Random => Box::new(Gridded::new(&country.test, true)?),
        Rule::Exact => Box::new(Exact::new()?),
        Rule::Svgp { inducing } => Box::new(Sparse::new(inducing, seed)?),
    };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(101));
    // The pool is in random order already: its first pixels start every method.
    let mut free: Vec<usize> = (INITIAL..country.pool.len()).collect();
    let mut course = Course::default();
    let mut observe = |explorer: &mut dyn Explorer, course: &mut Course, rows: &[usize]| -> Result<()> {
        let chosen = country.pool.select(rows);
        let noisy = |y: &f64| -> f64 {
            let e: f64 = rng.sample(StandardNormal);
            y + NOISE * e
        };
        course.queried.extend_from_slice(&chosen.x);
        explorer.learn(&chosen.x, &chosen.y.iter().map(noisy).collect::<Vec<f64>>())
    };
    observe(explorer.as_mut(), &mut course, &(0..INITIAL).collect::<Vec<_>>())?;
    let mut shuffler = Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(202));
    let (bar, mut seconds) = (progress(label, iterations), 0.0);
    course.looks.push((0, rmse(explorer.as_mut(), &country.test)?, 0.0));
    let growth = if rule == Rule::Exact { 2.0 } else { 0.0 };
    watch::expect(iterations, INITIAL / BATCH, growth);
    for iteration in 1..=iterations {
        // The exploration ends where its budget does.
        let is_last = !watch::row(iteration - 1, iterations)? || iteration == iterations;
        // O-SVGP looks for the nearest of all free pixels; the others at a random choice of them.
        let candidates =
            if matches!(rule, Rule::Svgp { .. }) { free.len() } else { CANDIDATES.min(free.len()) };
        let (some, _) = free.partial_shuffle(&mut shuffler, candidates);
        let some = some.to_vec();
        let places = country.pool.select(&some).x;
        let start = processor_seconds();
        let chosen: Vec<usize> = explorer.choose(&places, &country.test)?.iter().map(|&i| some[i]).collect();
        observe(explorer.as_mut(), &mut course, &chosen)?;
        seconds += processor_seconds() - start;
        free.retain(|i| !chosen.contains(i));
        if iteration % LOOK == 0 || is_last {
            let since = iteration - course.looks[course.looks.len() - 1].0;
            let error = rmse(explorer.as_mut(), &country.test)?;
            course.looks.push((iteration, error, seconds / since as f64));
            seconds = 0.0;
        }
        bar.inc(1);
        if is_last {
            break;
        }
    }
    bar.finish_and_clear();
    let queried: Vec<&[f64]> = course.queried.chunks_exact(2).collect();
    let nearest = |x: &[f64]| queried.iter().map(|q| squared(q, x)).fold(f64::INFINITY, f64::min).sqrt();
    course.gap = country.test.x.chunks_exact(2).map(nearest).sum::<f64>() / country.test.len() as f64;
    let places: Vec<f64> =
        raster().iter().flat_map(|&v| raster().into_iter().flat_map(move |u| [u, v])).collect();
    course.map = explorer.means(&places)?;
    Ok(course)
}

fn rmse(explorer: &mut dyn Explorer, test: &Table) -> Result<f64> {
    let means = explorer.means(&test.x)?;
    let square: f64 = means.iter().zip(&test.y).map(|(m, y)| (m - y).powi(2)).sum();
    Ok((square / test.len() as f64).sqrt())
}

/// Runs the experiment.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let folder = Folder::open(options, "active")?;
    let mut csv = String::from("map,method,trial,iteration,rmse,seconds_per_iteration\n");
    let mut text = Markdown::new(&[
        "map",
        "method",
        "iterations",
        "RMSE at the start",
        "after 60",
        "after 120",
        "after 250",
        "at the end",
        "mean distance to a query",
        "s an iteration, first 10",
        "last 10",
    ]);
    let mut panels = Vec::new();
    for name in ["malaria_ago", "malaria_bfa2017"].into_iter().filter(|n| options.wants(n)) {
        let table = options.table(name)?;
        let mut lines = Vec::new();
        for (rule, iterations) in [
            (Rule::Wiski, 500),
            (Rule::Exact, options.pick(250, 500)),
            (Rule::Svgp { inducing: options.pick(256, 900) }, options.pick(250, 500)),
            (Rule::Random, 500),
        ] {
            let iterations = iterations.min(options.most_rows.map_or(iterations, |most| most / 50));
            let pixels = table.len();
            let setup = format!(
                "{rule:?} {iterations} noise {NOISE} grid {GRID} candidates {CANDIDATES} of {pixels}"
            );
            let key = |seed: u64| format!("{name}-{}-{}-{seed}", rule.key(), options.size_name());
            let run = |seed: u64| {
                let label = format!("{name} {} {seed}", rule.name());
                explore(rule, &Country::new(&table, seed), iterations, seed, &label)
            };
            let courses: Vec<Course> = folder.trials(options.seeds_of(1, 10), &setup, key, run)?;
            let Some(first) = courses.first() else { continue };
            for (trial, course) in courses.iter().enumerate() {
                for (iteration, rmse, seconds) in &course.looks {
                    let method = rule.name();
                    let _ = writeln!(csv, "{name},{method},{trial},{iteration},{rmse:.5},{seconds:.5}");
                }
            }
            text.row(&row(name, rule, &courses));
            let curve = |c: &Course| c.looks.iter().map(|l| (l.0 as f64, l.1)).collect();
            lines.push(Bundle { trials: courses.iter().map(curve).collect() }.line(rule.name()));
            let stem = format!("{name}_{}", rule.key().replace(char::is_numeric, ""));
            folder.draw(&stem, &map(rule, first, &table))?;
        }
        panels.push(Lines {
            title: name.into(),
            x_label: "iterations of six pixels".into(),
            y_label: "test RMSE".into(),
            lines,
            ..Lines::default()
        });
    }
    folder.write("active.csv", &csv)?;
    folder.table("active", &text)?;
    folder.draw("active_rmse", &comparison("", panels))
}

fn row(name: &str, rule: Rule, courses: &[Course]) -> Vec<String> {
    let at = |iteration: Option<usize>, of: fn(&(usize, f64, f64)) -> f64| {
        let one = |c: &Course| match iteration {
            Some(n) => c.looks.iter().find(|l| l.0 == n).map(of),
            None => c.looks.last().map(of),
        };
        courses.iter().map(one).collect::<Option<Vec<f64>>>().map_or("–".into(), |v| plus_minus(&v, 3))
    };
    let gaps: Vec<f64> = courses.iter().map(|c| c.gap).collect();
    let ends = courses.iter().filter_map(|c| c.looks.last());
    let iterations = ends.map(|l| l.0).min().unwrap_or(0);
    vec![
        name.into(),
        rule.name().into(),
        iterations.to_string(),
        at(Some(0), |l| l.1),
        at(Some(60), |l| l.1),
        at(Some(120), |l| l.1),
        at(Some(250), |l| l.1),
        at(None, |l| l.1),
        plus_minus(&gaps, 4),
        at(Some(LOOK), |l| l.2),
        at(None, |l| l.2),
    ]
}

/// The final mean where there are pixels, with the places observed.
fn map(rule: Rule, course: &Course, table: &Table) -> Map {
    let (cells, width) = (raster(), 1.0 / 32.0);
    let side = cells.len();
    let mut inside = vec![false; side * side];
    for x in table.x.chunks_exact(2) {
        let cell = |v: f64| (((v + 1.0) / width) as usize).min(side - 1);
        inside[cell(x[1]) * side + cell(x[0])] = true;
    }
    let shown = |(value, inside): (&f64, &bool)| if *inside { *value } else { f64::NAN };
    Map {
        title: format!("{}: prevalence and the pixels observed", rule.name()),
        x_label: "easting, scaled".into(),
        y_label: "northing, scaled".into(),
        x: cells.clone(),
        y: cells,
        fields: vec![Field {
            title: String::new(),
            quantity: "mean, standardized".into(),
            values: course.map.iter().zip(&inside).map(shown).collect(),
        }],
        data_x: course.queried.iter().step_by(2).copied().collect(),
        data_y: course.queried.iter().skip(1).step_by(2).copied().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small smooth map: what is chosen lowers the error more than chance does, no pixel twice.
    #[test]
    fn explorers_choose_free_pixels_and_learn_the_map() {
        let x: Vec<f64> = (0..1600)
            .flat_map(|i| [f64::from(i % 40) / 19.5 - 1.0, f64::from(i / 40) / 19.5 - 1.0])
            .collect();
        let y = x.chunks_exact(2).map(|x| (3.0 * x[0]).sin() + x[1]).collect();
        let mut table = Table { dim: 2, x, y };
        table.standardize_targets();
        let country = Country::new(&table, 1);
        for rule in [Rule::Wiski, Rule::Exact, Rule::Svgp { inducing: 20 }, Rule::Random] {
            let course = explore(rule, &country, 6, 1, "test").unwrap();
            assert_eq!(course.queried.len(), 2 * (INITIAL + 6 * BATCH));
            let mut places: Vec<String> = course.queried.chunks_exact(2).map(|x| format!("{x:?}")).collect();
            places.sort();
            places.dedup();
            assert_eq!(places.len(), INITIAL + 6 * BATCH, "{rule:?}");
            assert!(
                course.looks[course.looks.len() - 1].1 < course.looks[0].1,
                "{rule:?} {:?}",
                course.looks
            );
            assert!(course.gap > 0.0 && course.map.len() == 64 * 64);
        }
    }
}
