//! The methods of a regression experiment, built alike, and one stream of rows through one of them.

use crate::baselines::kept;
use crate::baselines::{
    BatchSki, Covariance, Encoder, ExactGp, Hyper, Iterations, Likelihood, LocalGps, PcgGp, SkiIterations,
    StreamingSgpr, StreamingSvgp, SvgpOptions, Training,
};
use crate::data::{Split, Table};
use crate::results::{processor_seconds, progress};
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;
use std::time::Instant;
use wiski::grid::Grid;
use wiski::kernel::Family;
use wiski::learn::{Adam, Annealing, HyperSpace, Hyperparameters, WarmUpTraining};
use wiski::posterior::Workspace;
use wiski::{
    Features, OnlineGp, OnlineRegressor, Outcome, Pool, Posterior, Prediction, Result, Schedule, Settings,
    Stats, Wiski,
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
    },
    /// The collapsed streaming bound.
    Sgpr {
        /// The number of inducing points.
        inducing: usize,
    },
    /// Local processes of at most so many rows.
    Local {
        /// n_max.
        most: usize,
    },
    /// The paper's method, with its schedule and start.
    Wiski {
        /// Grid points per axis.
        grid: usize,
    },
    /// wiski's defaults: a start chosen on the warm-up rows, refits at geometric times.
    WiskiDefault {
        /// Grid points per axis.
        grid: usize,
    },
}

impl Method {
    /// O-SVGP with the paper's β and one step for each row.
    pub fn svgp(inducing: usize) -> Self {
        Self::Svgp { inducing, beta: 1e-3, steps: 1 }
    }

    /// The name in figures and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::ExactCholesky => "Exact (Cholesky)",
            Self::ExactPcg => "Exact (PCG)",
            Self::BatchSki => "SKI (batch)",
            Self::Svgp { .. } => "O-SVGP",
            Self::Sgpr { .. } => "O-SGPR",
            Self::Local { .. } => "Local GPs",
            Self::Wiski { .. } => "WISKI",
            Self::WiskiDefault { .. } => "WISKI, defaults",
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
    /// The data sets of the paper; `dem_jacksboro` stands for the large spatial one.
    pub const ALL: [Self; 6] = [
        Self { name: "skillcraft", rate: 5e-2, project: true },
        Self { name: "powerplant", rate: 5e-2, project: true },
        Self { name: "elevators", rate: 1e-2, project: true },
        Self { name: "protein", rate: 1e-2, project: true },
        Self { name: "3droad_first5000", rate: 1e-2, project: false },
        Self { name: "dem_jacksboro", rate: 1e-2, project: false },
    ];

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
            Method::Svgp { inducing, beta, steps } => {
                let options = SvgpOptions { inducing, beta, steps, seed, ..SvgpOptions::default() };
                let mut model = StreamingSvgp::new(encoder, hyper, training, Likelihood::Gaussian, options);
                model.warm_up(&rows.x, &rows.y)?;
                Box::new(model)
            }
            Method::Sgpr { inducing } => {
                let mut model = StreamingSgpr::new(encoder, hyper, training, inducing, 1e-5, seed);
                model.warm_up(&rows.x, &rows.y)?;
                Box::new(model)
            }
            Method::Local { most } => {
                let mut model = LocalGps::new(encoder, hyper, training, most, 0.5)?;
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
        })
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
            Ok(wiski::Evidence::new(&self.stats, &self.hyper.kernels, self.hyper.noise, TOLERANCE)?.1)
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
        let evaluated = wiski::Evidence::with_pool(
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

/// Rows after which a stream is measured, besides its end.
const CHECKPOINTS: [usize; 21] = [
    0, 50, 100, 200, 400, 600, 800, 1000, 1500, 2000, 3000, 4500, 6500, 8000, 10_000, 14_000, 20_000, 28_000,
    39_000, 60_000, 90_000,
];

/// Streams at most `most` rows through a method that has learned the warm-up rows.
pub fn stream(
    task: &Task,
    method: Method,
    split: &Split,
    most: usize,
    seed: u64,
) -> anyhow::Result<Vec<Checkpoint>> {
    let rows = split.stream.len().min(most);
    let label = format!("{:<17} {:<16} trial {seed}", task.name, method.name());
    let bar = progress(&label, rows);
    let (clock, begin) = (Instant::now(), processor_seconds());
    let mut model = task.start(method, &split.warm_up, seed)?;
    let mut checkpoints = vec![measure(model.as_mut(), &split.test, 0, processor_seconds() - begin)?];
    let (mut last, mut since) = (0, processor_seconds());
    for i in 0..rows {
        model.observe(split.stream.row(i), split.stream.y[i])?;
        bar.inc(1);
        let n = i + 1;
        if CHECKPOINTS.contains(&n) || n == rows {
            let seconds = (processor_seconds() - since) / (n - last) as f64;
            checkpoints.push(measure(model.as_mut(), &split.test, n, seconds)?);
            (last, since) = (n, processor_seconds());
        }
    }
    bar.finish_and_clear();
    let end = checkpoints[checkpoints.len() - 1];
    eprintln!(
        "{label}: {rows} rows in {:.0} s, RMSE {:.4}, NLL {:.4}",
        clock.elapsed().as_secs_f64(),
        end.rmse,
        end.nll
    );
    Ok(checkpoints)
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
