//! The configuration of a [`Wiski`] model, checked once.

use crate::engine::Engine;
use crate::error::{Error, Result, length, positive};
use crate::grid::{Grid, Lattice};
use crate::kernel::{Family, Kernel};
use crate::model::Wiski;
use crate::points::Points;
use crate::stats::Stats;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What to do with a point that the grid does not cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum OffGrid {
    /// Reject it with an error that names the axis and its range.
    #[default]
    Error,
    /// Learning extends the grid, at the same spacing, until it covers the point. Exact, but the model grows.
    /// Predicting never does: the prior answers.
    Extend,
    /// Predict with the prior; learn nothing from it (and say so).
    Prior,
}

/// Collects the settings of a [`Wiski`] model; [`WiskiBuilder::build`] checks them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WiskiBuilder {
    #[serde(skip)]
    grids: Vec<Grid>,
    #[serde(skip)]
    points: Option<Arc<Points>>,
    #[serde(skip)]
    kernels: Vec<Kernel>,
    pub(super) noise: f64,
    pub(super) off_grid: OffGrid,
    pub(super) rank_tolerance: f64,
    pub(super) max_grid_points: usize,
    pub(super) drift_tolerance: f64,
    root_rank: Option<usize>,
    #[serde(default)]
    pub(super) engine: Engine,
    #[serde(default)]
    pub(super) is_frugal: bool,
}

impl Default for WiskiBuilder {
    fn default() -> Self {
        Self {
            grids: Vec::new(),
            points: None,
            kernels: Vec::new(),
            noise: 0.1,
            off_grid: OffGrid::Error,
            rank_tolerance: 1e-12,
            max_grid_points: 1 << 20,
            drift_tolerance: 1e-9,
            root_rank: None,
            engine: Engine::Auto,
            is_frugal: false,
        }
    }
}

impl WiskiBuilder {
    /// Adds a grid. Several grids make an additive model f(x) = Σ_j f_j, each reading its own columns of
    /// the input in turn.
    #[must_use]
    pub fn grid(mut self, grid: Grid) -> Self {
        self.grids.push(grid);
        self
    }

    /// Adds a block of inducing points behind the grids: a function of all columns that come after those of the grids.
    /// Its kernel is the last, and a scale alone ([`Kernel::output_scale`]).
    #[must_use]
    pub fn points(mut self, points: impl Into<Arc<Points>>) -> Self {
        self.points = Some(points.into());
        self
    }

    /// Adds a kernel, one for each grid in the same order. Without any, every grid gets an RBF kernel with
    /// default length-scales.
    #[must_use]
    pub fn kernel(mut self, kernel: Kernel) -> Self {
        self.kernels.push(kernel);
        self
    }

    /// The noise variance σ² (default 0.1).
    #[must_use]
    pub fn noise(mut self, variance: f64) -> Self {
        self.noise = variance;
        self
    }

    /// What to do with points off the grid (default: reject them).
    #[must_use]
    pub fn off_grid(mut self, policy: OffGrid) -> Self {
        self.off_grid = policy;
        self
    }

    /// Prior eigenvalues below this share of the largest are dropped (default 1e-12).
    ///
    /// Up to 1e-12 the data have a say. Directions that n rows of noise σ² can tell from nothing are kept as well: what
    /// is dropped has a prior variance of at most 10⁻⁶ σ²/n, as far as rounding allows. Above rank 1000, on grids of
    /// more than 2000 points and unless [`Engine::Dense`] was asked for, more is dropped, up to 10⁻² σ²/n and a ten
    /// thousandth of the prior variance. A larger tolerance is a wish for speed and stays as it is.
    #[must_use]
    pub fn rank_tolerance(mut self, tolerance: f64) -> Self {
        self.rank_tolerance = tolerance;
        self
    }

    /// Whether directions of the prior that the data can hardly tell from nothing are dropped whatever the size of the grid
    /// (default: only on large ones, above rank 1000): up to 10⁻² σ²/n and a ten thousandth of the prior variance, which
    /// takes a third of the rank or more off smooth kernels. The log evidence is off by at most .005.
    #[must_use]
    pub fn is_frugal(mut self, is_frugal: bool) -> Self {
        self.is_frugal = is_frugal;
        self
    }

    /// The largest number of points to which a grid may grow (default 1,048,576).
    #[must_use]
    pub fn max_grid_points(mut self, points: usize) -> Self {
        self.max_grid_points = points;
        self
    }

    /// The relative error of recursive conditioning at which the posterior is factorized anew (default 1e-9).
    #[must_use]
    pub fn drift_tolerance(mut self, tolerance: f64) -> Self {
        self.drift_tolerance = tolerance;
        self
    }

    /// How posteriors are computed (default: by the size of the grid and the kernel).
    #[must_use]
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// Keep WᵀD⁻¹W as the paper does, as a root of limited rank, instead of exactly.
    #[must_use]
    pub fn low_rank_root(mut self, rank: usize) -> Self {
        self.root_rank = Some(rank);
        self
    }

    /// Checks the settings and builds the model.
    pub fn build(mut self) -> Result<Wiski> {
        if self.kernels.is_empty() {
            self.kernels =
                self.grids.iter().map(|g| Kernel::new(Family::Rbf, g.dim())).collect::<Result<_>>()?;
            if self.points.is_some() {
                self.kernels.push(Kernel::output_scale(std::f64::consts::LN_2)?);
            }
        }
        length("kernels", self.grids.len() + usize::from(self.points.is_some()), self.kernels.len())?;
        positive("noise", self.noise, 0)?;
        positive("drift tolerance", self.drift_tolerance, 0)?;
        for grid in &self.grids {
            if grid.len() > self.max_grid_points {
                let reason =
                    format!("{} points are more than the limit of {}", grid.len(), self.max_grid_points);
                return Err(Error::Config { field: "grid".into(), reason });
            }
        }
        let grids = std::mem::take(&mut self.grids);
        let lattice = match self.points.take() {
            Some(points) => Lattice::with_points(grids, points),
            None => Lattice::new(grids)?,
        };
        let stats = match self.root_rank {
            None => Stats::new(lattice),
            Some(rank) => Stats::low_rank(lattice, rank)?,
        };
        let kernels = std::mem::take(&mut self.kernels);
        Wiski::assemble(self, kernels, stats)
    }
}
