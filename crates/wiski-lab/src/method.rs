//! The methods of a regression experiment, built alike, and one stream of rows through one of them.

use crate::baselines::kept;
use crate::baselines::{
    BatchSki, Covariance, Encoder, ExactGp, Hyper, Iterations, Likelihood, LocalGps, Pace, PcgGp,
    SkiIterations, StreamingSgpr, StreamingSvgp, SvgpOptions, Training,
};
use crate::data::{Split, Table};
use crate::results::{processor_seconds, progress};
use crate::watch;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;
use wiski::internals::Pool;
use wiski::internals::learn::{Adam, Annealing, WarmUpTraining};
use wiski::internals::posterior::{Posterior, Workspace};
use wiski::{
    Family, Features, Grid, HyperSpace, Hyperparameters, OnlineGp, OnlineRegressor, Outcome, Prediction,
    Result, Schedule, Settings, Stats, Wiski,
};

/// A method of the paper, or wiski as it comes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Method {
    /// The exact process by Cholesky, a step for every row.
    ExactCholesky,
    /// The exact process by preconditioned conjugate gradients.
    ExactPcg,
    /// SKI from all rows.
    BatchSki,
    /// The uncollapsed streaming bound: m, β and the steps for each row.
    Svgp {
        /// The number of inducing points.
        inducing: usize,
        /// The weight of the KL terms.
        beta: f64,
        /// The number of steps for each row.
        steps: usize,
        /// Its rates.
        pace: Pace,
    },
    /// The collapsed streaming bound.
    Sgpr {
        /// The number of inducing points.
        inducing: usize,
        /// Its rates.
        pace: Pace,
        /// The jitter with which its memory is computed as its authors do; `None` for the form that inverts nothing.
        published: Option<f64>,
    },
    /// Local processes of at most so many rows.
    Local {
        /// n_max.
        most: usize,
        /// The weight that a row must have in a model to join it.
        threshold: f64,
        /// Its rates.
        pace: Pace,
    },
    /// The paper's method, with its schedule and start.
    Wiski {
        /// Grid points per axis.
        grid: usize,
    },
    /// wiski's defaults on the paper's features: a start chosen on the warm-up rows, refits at geometric times.
    WiskiDefault {
        /// Grid points per axis.
        grid: usize,
    },
    /// wiski as it comes, nothing said: a sum of grids and inducing points where there are many columns.
    Product,
}

impl Method {
    /// O-SVGP with the paper's β and one step for each row.
    pub fn svgp(inducing: usize) -> Self {
        Self::svgp_with(inducing, 1e-3, 1)
    }

    /// O-SVGP with another β or number of steps.
    pub fn svgp_with(inducing: usize, beta: f64, steps: usize) -> Self {
        Self::Svgp { inducing, beta, steps, pace: Pace::PAPER }
    }

    /// O-SGPR at the paper's rates.
    pub fn sgpr(inducing: usize) -> Self {
        Self::Sgpr { inducing, pace: Pace::PAPER, published: None }
    }

    /// Local processes at the paper's rates.
    pub fn local(most: usize) -> Self {
        Self::Local { most, threshold: 0.5, pace: Pace::PAPER }
    }

    /// The settings that are tried on validation rows; of one there is nothing to try.
    pub fn candidates(self) -> Vec<Self> {
        let paces = |variational: &[f64]| -> Vec<Pace> {
            let each = |rate: f64| variational.iter().map(move |&variational| Pace { rate, variational });
            [1.0, 3.0, 10.0].into_iter().flat_map(each).collect()
        };
        match self {
            // The paper's code has a tenth of the rate for everything variational.
            Self::Svgp { inducing, steps, .. } => {
                let each = |beta: f64| {
                    paces(&[1.0, 10.0]).into_iter().map(move |pace| Self::Svgp {
                        inducing,
                        beta,
                        steps,
                        pace,
                    })
                };
                [1e-3, 1e-2, 1e-1].into_iter().flat_map(each).collect()
            }
            Self::Sgpr { inducing, published, .. } => {
                let each = |pace| Self::Sgpr { inducing, pace, published };
                paces(&[1.0, 10.0]).into_iter().map(each).collect()
            }
            Self::Local { most, .. } => {
                let each = |threshold: f64| {
                    paces(&[1.0]).into_iter().map(move |pace| Self::Local { most, threshold, pace })
                };
                [0.2, 0.5, 0.8].into_iter().flat_map(each).collect()
            }
            other => vec![other],
        }
    }

    /// The power of the number of rows known with which the time of a row grows.
    fn growth(self) -> f64 {
        match self {
            Self::ExactCholesky => 3.0,
            Self::ExactPcg => 2.0,
            Self::BatchSki => 1.0,
            _ => 0.0,
        }
    }

    /// The name in figures and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::ExactCholesky => "Exact (Cholesky)",
            Self::ExactPcg => "Exact (PCG)",
            Self::BatchSki => "SKI (batch)",
            Self::Svgp { .. } => "O-SVGP",
            Self::Sgpr { published: Some(_), .. } => "O-SGPR, as published",
            Self::Sgpr { .. } => "O-SGPR",
            Self::Local { .. } => "Local GPs",
            Self::Wiski { .. } => "WISKI",
            Self::WiskiDefault { .. } => "WISKI, defaults",
            Self::Product => "wiski as it comes",
        }
    }

    /// A name that can stand in a file name and tells settings apart.
    pub fn key(self) -> String {
        let text = format!("{self:?}").to_lowercase();
        text.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '.').collect()
    }
}

/// A data set with what the paper chose for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Task {
    /// The name of the file.
    pub name: &'static str,
    /// η on the warm-up rows; a tenth along the stream.
    pub rate: f64,
    /// Whether rows are projected to two features.
    pub project: bool,
}

impl Task {
    /// The data sets of the paper; `dem_jacksboro` and a sample stand for the large spatial one where it is not at hand.
    /// kin40k is none of the paper's.
    pub const ALL: [Self; 8] = [
        Self { name: "skillcraft", rate: 5e-2, project: true },
        Self { name: "powerplant", rate: 5e-2, project: true },
        Self { name: "elevators", rate: 1e-2, project: true },
        Self { name: "protein", rate: 1e-2, project: true },
        Self { name: "3droad_first5000", rate: 1e-2, project: false },
        Self { name: "dem_jacksboro", rate: 1e-2, project: false },
        Self { name: "3droad", rate: 1e-2, project: false },
        Self { name: "kin40k", rate: 1e-2, project: true },
    ];

    /// Those whose files are there. With all of 3droad its sample is of no use.
    pub fn available(data: &Path) -> Vec<Self> {
        let is_there = |name: &str| data.join(format!("{name}.csv.gz")).is_file();
        let is_wanted = |t: &Self| is_there(t.name) && (t.name != "3droad_first5000" || !is_there("3droad"));
        Self::ALL.into_iter().filter(is_wanted).collect()
    }

    /// The task of a file.
    ///
    /// # Panics
    /// If there is none of that name.
    pub fn named(name: &str) -> Self {
        *Self::ALL.iter().find(|t| t.name == name).expect("a task of the paper")
    }

    fn encoder(&self, inputs: usize, seed: u64) -> Result<Encoder> {
        if self.project { Encoder::projection(inputs, 2, seed) } else { Ok(Encoder::identity(inputs)) }
    }

    /// A method that has learned the warm-up rows.
    pub fn start(&self, method: Method, rows: &Table, seed: u64) -> Result<Box<dyn OnlineGp>> {
        let encoder = self.encoder(rows.dim, seed)?;
        let hyper = Hyper::new(Covariance::new(Family::Rbf, encoder.output_dim())?);
        let training = Training::paper(self.rate);
        Ok(match method {
            Method::ExactCholesky => {
                let mut model = ExactGp::new(encoder, hyper, training);
                model.warm_up(&rows.x, &rows.y, None)?;
                Box::new(model)
            }
            Method::ExactPcg => {
                let mut model = PcgGp::new(encoder, hyper, training, Iterations::default());
                model.warm_up(&rows.x, &rows.y)?;
                Box::new(model)
            }
            Method::BatchSki => {
                let bounds = vec![(-1.0, 1.0); encoder.output_dim()];
                let grid = Grid::covering(&bounds, &vec![16; encoder.output_dim()])?;
                let mut model = BatchSki::new(encoder, hyper, training, grid, SkiIterations::default());
                model.warm_up(&rows.x, &rows.y)?;
                Box::new(model)
            }
            Method::Svgp { inducing, beta, steps, pace } => {
                let options = SvgpOptions { inducing, beta, steps, seed, ..SvgpOptions::default() };
                let training = training.paced(pace);
                let mut model = StreamingSvgp::new(encoder, hyper, training, Likelihood::Gaussian, options);
                model.warm_up(&rows.x, &rows.y)?;
                Box::new(model)
            }
            Method::Sgpr { inducing, pace, published } => {
                let (training, jitter) = (training.paced(pace), published.unwrap_or(1e-5));
                let mut model = StreamingSgpr::new(encoder, hyper, training, inducing, jitter, seed);
                if published.is_some() {
                    model = model.as_published();
                }
                model.warm_up(&rows.x, &rows.y)?;
                Box::new(model)
            }
            Method::Local { most, threshold, pace } => {
                let mut model = LocalGps::new(encoder, hyper, training.paced(pace), most, threshold)?;
                model.warm_up(&rows.x, &rows.y)?;
                Box::new(model)
            }
            Method::Wiski { grid } => {
                let settings = Settings::paper(self.rate, rows.len());
                self.wiski(Settings { grid: vec![grid], seed, ..settings }, rows)?
            }
            Method::WiskiDefault { grid } => {
                let settings = Settings {
                    schedule: Schedule::Geometric { ratio: 1.1 },
                    softplus: false,
                    start: Settings::default().start,
                    training: WarmUpTraining { ..Settings::default().training },
                    feature_rate: Settings::default().feature_rate,
                    ..Settings::paper(self.rate, rows.len())
                };
                self.wiski(Settings { grid: vec![grid], seed, ..settings }, rows)?
            }
            Method::Product => Self::product(rows, seed)?,
        })
    }

    fn product(rows: &Table, seed: u64) -> Result<Box<dyn OnlineGp>> {
        let mut model = WiskiStream::new(rows.dim, Settings { seed, ..Settings::default() })?;
        model.observe_batch(&rows.x, &rows.y, None)?;
        Ok(Box::new(model))
    }

    fn wiski(&self, settings: Settings, rows: &Table) -> Result<Box<dyn OnlineGp>> {
        let features = if self.project { settings.features.clone() } else { Features::Identity };
        let mut model = WiskiStream::new(rows.dim, Settings { features, ..settings })?;
        model.observe_batch(&rows.x, &rows.y, None)?;
        Ok(Box::new(model))
    }
}

/// [`OnlineRegressor`] behind the interface of the baselines.
pub struct WiskiStream(OnlineRegressor);

impl WiskiStream {
    /// A model of rows with so many columns.
    pub fn new(input_dim: usize, settings: Settings) -> Result<Self> {
        Ok(Self(OnlineRegressor::new(input_dim, settings)?))
    }
}

impl OnlineGp for WiskiStream {
    fn input_dim(&self) -> usize {
        self.0.input_dim()
    }

    fn count(&self) -> f64 {
        self.0.count()
    }

    fn predict(&self, x: &[f64]) -> Result<Prediction> {
        self.0.predict(x)
    }

    fn observe_noisy(&mut self, x: &[f64], y: f64, noise: f64) -> Result<Outcome> {
        if noise == 1.0 { self.0.observe(x, y) } else { self.0.observe_noisy(x, y, noise) }
    }

    fn log_evidence(&mut self) -> Result<f64> {
        self.0.model().map_or(Ok(0.0), |model| model.evidence().map(|e| e.value))
    }
}

/// WISKI on given coordinates with the paper's learning and nothing else: rows into statistics, then one Adam step of
/// kernel and noise on the evidence.
pub struct WiskiSteps {
    stats: Stats,
    hyper: Hyperparameters,
    space: HyperSpace,
    adam: Adam,
    pool: Pool,
    /// The posterior of the statistics under the present hyperparameters, once a prediction has asked for it.
    posterior: OnceLock<Posterior>,
}

impl WiskiSteps {
    /// Begins with the statistics, kernels and noise of a model, and the learning rate along the stream.
    pub fn new(start: &Wiski, rate: f64) -> Result<Self> {
        let space = HyperSpace::new(&start.hyperparameters()).softplus();
        Self::in_space(start, space, rate)
    }

    /// The same with a noise variance that is known and stays.
    pub fn with_known_noise(start: &Wiski, rate: f64) -> Result<Self> {
        let space = HyperSpace::new(&start.hyperparameters()).softplus().with_known_noise();
        Self::in_space(start, space, rate)
    }

    fn in_space(start: &Wiski, space: HyperSpace, rate: f64) -> Result<Self> {
        let hyper = start.hyperparameters();
        let adam = Adam::new(space.dim(), rate)?;
        let (stats, posterior) = (start.stats().clone(), start.posterior()?.clone().into());
        Ok(Self { stats, hyper, space, adam, pool: Pool::default(), posterior })
    }

    /// Learns rows in batch, then fits kernel and noise to them by annealed Adam.
    pub fn warm_up(
        &mut self,
        (x, y, noise): (&[f64], &[f64], Option<&[f64]>),
        epochs: usize,
        rate: f64,
    ) -> Result<()> {
        self.stats.observe_batch(x, y, noise)?;
        let annealing = Annealing { end: 1e-4, steps: epochs.max(1) };
        let mut adam = Adam::new(self.space.dim(), rate)?.with_annealing(annealing)?;
        self.posterior.take();
        (0..epochs).try_for_each(|_| self.descend(&mut adam))
    }

    fn descend(&mut self, adam: &mut Adam) -> Result<()> {
        let mut gradient = vec![0.0; self.space.dim()];
        let evaluated =
            self.space.evaluate(&self.stats, &self.hyper, TOLERANCE, &mut self.pool, &mut gradient);
        // A root that has lost data can leave no proper posterior: then nothing is learned from this row.
        if evaluated.is_ok() && gradient.iter().all(|g| g.is_finite()) {
            self.space.adam_step(adam, &mut self.hyper, &gradient)?;
        }
        Ok(())
    }
}

/// The share of the largest prior eigenvalue below which directions are dropped.
const TOLERANCE: f64 = 1e-12;

impl OnlineGp for WiskiSteps {
    fn input_dim(&self) -> usize {
        self.stats.lattice().dim()
    }

    fn count(&self) -> f64 {
        self.stats.count()
    }

    fn predict(&self, x: &[f64]) -> Result<Prediction> {
        let posterior = kept(&self.posterior, || {
            Ok(wiski::internals::evidence::Evidence::new(
                &self.stats,
                &self.hyper.kernels,
                self.hyper.noise,
                TOLERANCE,
            )?
            .1)
        })?;
        posterior.predict(x, &mut Workspace::default())
    }

    fn observe_noisy(&mut self, x: &[f64], y: f64, noise: f64) -> Result<Outcome> {
        self.stats.observe(x, y, noise)?;
        let mut adam = self.adam.clone();
        self.descend(&mut adam)?;
        self.adam = adam;
        self.posterior.take();
        Ok(Outcome::Learned)
    }

    fn log_evidence(&mut self) -> Result<f64> {
        let evaluated = wiski::internals::evidence::Evidence::with_pool(
            &self.stats,
            &self.hyper.kernels,
            self.hyper.noise,
            TOLERANCE,
            &mut self.pool,
        )?;
        Ok(evaluated.0.value)
    }
}

/// What was measured after so many streamed rows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Streamed rows so far.
    pub n: usize,
    /// Mean seconds on the processor to learn a row since the last checkpoint; at the first, those of the warm-up.
    pub seconds: f64,
    /// Root mean squared error on the test rows.
    pub rmse: f64,
    /// Mean negative log density of the test rows.
    pub nll: f64,
    /// The share of test targets within the central 95 %.
    pub coverage: f64,
}

/// A stream through a method: what was measured, how many rows it was to see, and with which settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Course {
    /// What was measured on the way.
    pub checkpoints: Vec<Checkpoint>,
    /// Rows to be streamed; the budget may have ended it before.
    pub planned: usize,
    /// Rows of the warm-up.
    pub warm_up: usize,
    /// The settings, where they were chosen on validation rows.
    pub chosen: Option<String>,
}

/// Rows that are streamed to choose settings, and rows on which they are judged: at most so many, from the training rows.
const TRIED: usize = 1000;
const VALIDATION: usize = 500;

/// Of the candidates, the one that is likeliest on validation rows after a part of the stream. Test rows are not touched;
/// candidates that fail are out.
fn chosen(task: &Task, candidates: &[Method], split: &Split, seed: u64) -> anyhow::Result<Method> {
    let n = split.stream.len();
    let (tried, judged) = (TRIED.min(n / 2), VALIDATION.min(n / 4).max(1));
    let validation = Split {
        warm_up: split.warm_up.clone(),
        stream: split.stream.select(&(0..tried).collect::<Vec<_>>()),
        test: split.stream.select(&(tried..(tried + judged).min(n)).collect::<Vec<_>>()),
    };
    let mut best: Option<(f64, Method)> = None;
    for &method in candidates {
        let Ok(course) = stream(task, method, &validation, usize::MAX, seed) else { continue };
        let nll = course.checkpoints[course.checkpoints.len() - 1].nll;
        if nll.is_finite() && best.is_none_or(|(least, _)| nll < least) {
            best = Some((nll, method));
        }
    }
    best.map(|(_, method)| method).ok_or_else(|| anyhow::anyhow!("no setting worked on the validation rows"))
}

/// As [`stream`], with the settings of the method that are best on validation rows.
pub fn stream_best(
    task: &Task,
    method: Method,
    split: &Split,
    most: usize,
    seed: u64,
) -> anyhow::Result<Course> {
    let candidates = method.candidates();
    if watch::is_slice() {
        // What trying takes is known from what a row takes.
        let rows = split.stream.len().min(most);
        let tried = candidates.len() * TRIED.min(split.stream.len() / 2);
        return run_stream(task, method, split, (most, rows + tried), seed);
    }
    // What trying takes is no part of the budget of the stream.
    let (best, _) = watch::within(f64::INFINITY, || chosen(task, &candidates, split, seed));
    let best = best?;
    watch::restart();
    Ok(Course { chosen: Some(format!("{best:?}")), ..stream(task, best, split, most, seed)? })
}

/// Rows after which a stream is measured, besides its end.
const CHECKPOINTS: [usize; 21] = [
    0, 50, 100, 200, 400, 600, 800, 1000, 1500, 2000, 3000, 4500, 6500, 8000, 10_000, 14_000, 20_000, 28_000,
    39_000, 60_000, 90_000,
];

/// Streams at most `most` rows through a method that has learned the warm-up rows.
pub fn stream(task: &Task, method: Method, split: &Split, most: usize, seed: u64) -> anyhow::Result<Course> {
    run_stream(task, method, split, (most, split.stream.len().min(most)), seed)
}

/// `expected` is what a slice takes for the number of rows.
fn run_stream(
    task: &Task,
    method: Method,
    split: &Split,
    (most, expected): (usize, usize),
    seed: u64,
) -> anyhow::Result<Course> {
    let rows = split.stream.len().min(most);
    let label = format!("{:<17} {:<16} trial {seed}", task.name, method.name());
    let bar = progress(&label, rows);
    let (clock, begin) = (Instant::now(), processor_seconds());
    watch::expect(expected, split.warm_up.len(), method.growth());
    let mut model = task.start(method, &split.warm_up, seed)?;
    let mut checkpoints = vec![measure(model.as_mut(), &split.test, 0, processor_seconds() - begin)?];
    let (mut last, mut since) = (0, processor_seconds());
    for i in 0..rows {
        // The curve ends where the budget does.
        let is_last = !watch::row(i, expected)? || i + 1 == rows;
        model.observe(split.stream.row(i), split.stream.y[i])?;
        bar.inc(1);
        let n = i + 1;
        if CHECKPOINTS.contains(&n) || is_last {
            let seconds = (processor_seconds() - since) / (n - last) as f64;
            checkpoints.push(measure(model.as_mut(), &split.test, n, seconds)?);
            (last, since) = (n, processor_seconds());
        }
        if is_last {
            break;
        }
    }
    bar.finish_and_clear();
    let end = checkpoints[checkpoints.len() - 1];
    eprintln!(
        "{label}: {} rows in {:.0} s, RMSE {:.4}, NLL {:.4}",
        end.n,
        clock.elapsed().as_secs_f64(),
        end.rmse,
        end.nll
    );
    Ok(Course { checkpoints, planned: rows, warm_up: split.warm_up.len(), chosen: None })
}

/// What WISKI's rows cost and why, after so many of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RankPoint {
    /// Streamed rows so far.
    pub rows: usize,
    /// Mean processor seconds a row since the last point.
    pub seconds: f64,
    /// The rank of the prior.
    pub rank: f64,
    /// σ².
    pub noise: f64,
    /// The smallest length-scale.
    pub lengthscale: f64,
}

/// The points of a stream.
pub type RankCourse = Vec<RankPoint>;

/// A stream of WISKI with the paper's schedule, and the rank of its prior along it.
pub fn ranks(task: &Task, grid: usize, split: &Split, seed: u64) -> anyhow::Result<RankCourse> {
    let settings = Settings { grid: vec![grid], seed, ..Settings::paper(task.rate, split.warm_up.len()) };
    let mut model = OnlineRegressor::new(split.stream.dim, settings)?;
    model.observe_batch(&split.warm_up.x, &split.warm_up.y)?;
    let (rows, mut points) = (split.stream.len(), Vec::new());
    watch::expect(rows, split.warm_up.len(), 0.0);
    let (mut last, mut since) = (0, processor_seconds());
    for i in 0..rows {
        if !watch::row(i, rows)? {
            break;
        }
        model.observe(split.stream.row(i), split.stream.y[i])?;
        let n = i + 1;
        if CHECKPOINTS.contains(&n) || n == rows {
            let seconds = (processor_seconds() - since) / (n - last) as f64;
            let Some(process) = model.model() else { continue };
            let named = process.hyperparameters().named();
            let lengthscales = named.iter().filter(|(name, _)| name.contains("lengthscale")).map(|(_, v)| *v);
            points.push(RankPoint {
                rows: n,
                seconds,
                rank: process.rank() as f64,
                noise: process.noise(),
                lengthscale: lengthscales.fold(f64::INFINITY, f64::min),
            });
            (last, since) = (n, processor_seconds());
        }
    }
    Ok(points)
}

/// Predicts the test rows.
fn measure(model: &mut dyn OnlineGp, test: &Table, n: usize, seconds: f64) -> anyhow::Result<Checkpoint> {
    let (mut mean, mut variance) = (vec![0.0; test.len()], vec![0.0; test.len()]);
    model.predict_batch(&test.x, &mut mean, &mut variance)?;
    let noise = model.predict(test.row(0))?.noise;
    let (mut square, mut loss, mut inside) = (0.0, 0.0, 0usize);
    for i in 0..test.len() {
        let p = Prediction { mean: mean[i], variance: variance[i], noise };
        square += (test.y[i] - p.mean).powi(2);
        loss -= p.log_density(test.y[i]);
        inside += usize::from((test.y[i] - p.mean).abs() <= wiski::model::Z95 * p.std());
    }
    let count = test.len() as f64;
    let (rmse, nll) = ((square / count).sqrt(), loss / count);
    Ok(Checkpoint { n, seconds, rmse, nll, coverage: inside as f64 / count })
}
