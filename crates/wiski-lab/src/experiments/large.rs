//! Grids from a few hundred to hundreds of thousands of points: what an evidence with its gradient costs against m for
//! each engine, and how well an elevation model is predicted as the grid grows.
//!
//! Not in the paper, whose largest grid has 1,600 points. Times are processor seconds of one thread.

use crate::Options;
use crate::data::{Split, Table};
use crate::results::{Folder, Markdown, comparison, processor_seconds, progress};
use anyhow::Result;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use wiski::internals::evidence::Evidence;
use wiski::internals::large::{Accuracy, KrylovPosterior, SparsePosterior};
use wiski::model::Prequential;
use wiski::{Grid, HyperSpace, Hyperparameters, Kernel, LbfgsB, Predictor, Stats};
use wiski_figures::{Line, Lines};

/// How a posterior is computed, and with which kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Engine {
    Dense,
    Krylov12,
    Krylov32,
    Sparse,
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Self::Dense => "dense, Matérn 3/2",
            Self::Krylov12 => "conjugate gradients, Matérn 1/2",
            Self::Krylov32 => "conjugate gradients, Matérn 3/2",
            Self::Sparse => "sparse, Matérn 1/2",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Self::Dense => "dense",
            Self::Krylov12 => "krylov12",
            Self::Krylov32 => "krylov32",
            Self::Sparse => "sparse",
        }
    }

    fn kernel(self, lengths: &[f64]) -> wiski::Result<Kernel> {
        match self {
            Self::Dense | Self::Krylov32 => Kernel::matern32(lengths),
            Self::Krylov12 | Self::Sparse => Kernel::matern12(lengths),
        }
    }
}

/// What came of one grid.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Run {
    points: usize,
    rank: usize,
    rows_per_second: f64,
    /// One evidence with its gradient, the mean over the refit.
    evidence: f64,
    evaluations: usize,
    iterations: usize,
    /// The standard error of log det S relative to the evidence.
    evidence_error: f64,
    predictor: f64,
    /// The typical relative error of a variance.
    variance_error: f64,
    rmse: f64,
    nll: f64,
    coverage: f64,
    megabytes: f64,
}

/// Runs the experiment.
pub fn run(options: &Options) -> Result<()> {
    let folder = Folder::open(options, "large")?;
    let mut text = String::from(
        "set,engine,points,rank,rows_per_second,evidence_seconds,evaluations,iterations,predictor_seconds,rmse,nll,coverage95,megabytes\n",
    );
    let mut lines = Vec::new();
    if options.wants("terrain") {
        let table = Table::regression(&options.data, "dem_jacksboro")?;
        let split = Split::paper(&table, options.seed, usize::MAX);
        let (mut train, test) = (split.warm_up, split.test);
        train.x.extend(split.stream.x);
        train.y.extend(split.stream.y);
        let grids = options.pick(&[50, 100, 200, 300][..], &[50, 100, 200, 300, 400][..]);
        let evaluations = options.pick(16, 40);
        let sets = [
            (Engine::Dense, &[20, 30, 40][..]),
            (Engine::Sparse, grids),
            (Engine::Krylov12, grids),
            (Engine::Krylov32, grids),
        ];
        let runs = collect(&folder, "terrain", &sets, 2, &train, &test, evaluations)?;
        report(&folder, "terrain", &runs, &mut text, &mut lines)?;
    }
    if options.wants("cube") {
        let (train, test) = (bumps(options.pick(100_000, 1_000_000), 1), bumps(5000, 2));
        let grids = options.pick(&[16, 32, 64][..], &[16, 32, 64, 100][..]);
        let sets = [(Engine::Krylov32, grids)];
        let runs = collect(&folder, "cube", &sets, 3, &train, &test, options.pick(4, 20))?;
        report(&folder, "cube", &runs, &mut text, &mut lines)?;
    }
    folder.write("large.csv", &text)?;
    let panel = Lines {
        title: "seconds an evidence with gradient".into(),
        x_label: "grid points".into(),
        log_x: true,
        log_y: true,
        lines,
        ..Lines::default()
    };
    folder.draw("large", &comparison("cost against the size of the grid", vec![panel]))
}

type Runs = Vec<(Engine, Vec<Run>)>;

fn collect(
    folder: &Folder,
    set: &str,
    sets: &[(Engine, &[usize])],
    axes: usize,
    train: &Table,
    test: &Table,
    evaluations: usize,
) -> Result<Runs> {
    let mut all = Vec::new();
    for &(engine, grids) in sets {
        let mut runs = Vec::new();
        for &g in grids {
            let key = format!("{set}-{}-{g}", engine.key());
            let setup = format!("{} rows, {evaluations} evaluations", train.len());
            runs.extend(folder.trial(&key, &setup, || measure(engine, g, axes, train, test, evaluations))?);
        }
        all.push((engine, runs));
    }
    Ok(all)
}

fn report(folder: &Folder, set: &str, all: &Runs, text: &mut String, lines: &mut Vec<Line>) -> Result<()> {
    let mut table = Markdown::new(&[
        "engine",
        "points",
        "rank",
        "rows/s",
        "evidence + gradient",
        "iterations",
        "error of the evidence",
        "predictor",
        "error of variances",
        "RMSE",
        "NLL",
        "coverage",
        "memory",
    ]);
    for (engine, runs) in all {
        for r in runs {
            table.row(&[
                engine.name().into(),
                r.points.to_string(),
                r.rank.to_string(),
                format!("{:.0}", r.rows_per_second),
                format!("{:.3} s", r.evidence),
                r.iterations.to_string(),
                format!("{:.1e}", r.evidence_error),
                format!("{:.2} s", r.predictor),
                format!("{:.2} %", 100.0 * r.variance_error),
                format!("{:.4}", r.rmse),
                format!("{:.3}", r.nll),
                format!("{:.3}", r.coverage),
                format!("{:.0} MB", r.megabytes),
            ]);
            let _ = writeln!(
                text,
                "{set},{},{},{},{:.0},{:.5},{},{},{:.4},{:.6},{:.6},{:.4},{:.1}",
                engine.key(),
                r.points,
                r.rank,
                r.rows_per_second,
                r.evidence,
                r.evaluations,
                r.iterations,
                r.predictor,
                r.rmse,
                r.nll,
                r.coverage,
                r.megabytes
            );
        }
        let suffix = if set == "cube" { " 3-D" } else { "" };
        lines.push(Line {
            name: format!("{}{suffix}", engine.key()),
            x: runs.iter().map(|r| r.points as f64).collect(),
            y: runs.iter().map(|r| r.evidence).collect(),
            ..Line::default()
        });
    }
    folder.table(set, &table)
}

/// Streams the rows into a grid, learns hyperparameters, and predicts the test rows.
fn measure(
    engine: Engine,
    g: usize,
    axes: usize,
    train: &Table,
    test: &Table,
    evaluations: usize,
) -> Result<Run> {
    let bar = progress(&format!("{} {g}", engine.name()), evaluations);
    let mut stats = Stats::new(Grid::covering(&vec![(-1.0, 1.0); axes], &vec![g; axes])?);
    let start = processor_seconds();
    for i in 0..train.len() {
        stats.observe(train.row(i), train.y[i], 1.0)?;
    }
    let rows_per_second = train.len() as f64 / (processor_seconds() - start);

    let accuracy = Accuracy { two_threads: false, ..Accuracy::default() };
    let first = Hyperparameters { kernels: vec![engine.kernel(&vec![0.2; axes])?], noise: 0.05 };
    let space = HyperSpace::new(&first);
    let optimizer = LbfgsB {
        max_evaluations: evaluations,
        relative_tolerance: 1e-5,
        first_step: 0.5,
        ..LbfgsB::default()
    };
    let (mut last, mut count, mut iterations, mut evidence_error): (Option<KrylovPosterior>, _, _, _) =
        (None, 0, 0, 0.0_f64);
    let start = processor_seconds();
    let refitted = space.refit_with(stats.count(), &first, &optimizer, |hyper, _, _: Option<()>| {
        bar.inc(1);
        count += 1;
        let (kernel, noise) = (&hyper.kernels[0], hyper.noise);
        let evidence = match engine {
            Engine::Dense => Evidence::new(&stats, &hyper.kernels, noise, 1e-12)?.0,
            Engine::Sparse => SparsePosterior::new(&stats, kernel, noise)?.evidence(&stats)?,
            Engine::Krylov12 | Engine::Krylov32 => {
                let posterior = match &last {
                    Some(last) => last.warm(&stats, kernel, noise)?,
                    None => KrylovPosterior::new(&stats, kernel, noise, &accuracy)?,
                };
                let (evidence, convergence) = posterior.evidence(&stats, kernel)?;
                iterations = iterations.max(convergence.iterations);
                evidence_error = 0.5 * convergence.log_det_error / evidence.value.abs();
                last = Some(posterior);
                evidence
            }
        };
        Ok((evidence, ()))
    })?;
    let hyper = refitted.hyper;
    let evidence = (processor_seconds() - start) / count as f64;
    bar.finish_and_clear();

    let start = processor_seconds();
    let (kernel, noise) = (&hyper.kernels[0], hyper.noise);
    let (predictor, rank, variance_error) = match engine {
        Engine::Dense => {
            let (_, posterior) = Evidence::new(&stats, &hyper.kernels, noise, 1e-12)?;
            (posterior.predictor(), posterior.rank(), 0.0)
        }
        Engine::Sparse => {
            let posterior = SparsePosterior::new(&stats, kernel, noise)?;
            (posterior.predictor(), posterior.unknowns(), 0.0)
        }
        Engine::Krylov12 | Engine::Krylov32 => {
            let posterior = KrylovPosterior::new(&stats, kernel, noise, &accuracy)?;
            let (predictor, error) = posterior.predictor(&stats)?;
            (predictor, posterior.rank(), error.typical)
        }
    };
    let built = processor_seconds() - start;
    let figures = score(&predictor, test)?;
    Ok(Run {
        points: stats.lattice().len(),
        rank,
        rows_per_second,
        evidence,
        evaluations: count,
        iterations,
        evidence_error,
        predictor: built,
        variance_error,
        rmse: figures.rmse(),
        nll: figures.nll(),
        coverage: figures.coverage95(),
        megabytes: resident_megabytes(),
    })
}

fn score(predictor: &Predictor, test: &Table) -> Result<Prequential> {
    let mut figures = Prequential::default();
    for i in 0..test.len() {
        figures.record(&predictor.predict(test.row(i))?, test.y[i]);
    }
    Ok(figures)
}

/// A bumpy function of three inputs with noise of standard deviation 0.1.
fn bumps(n: usize, seed: u64) -> Table {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut table = Table { dim: 3, ..Table::default() };
    for _ in 0..n {
        let x: [f64; 3] = std::array::from_fn(|_| rng.random_range(-1.0..1.0));
        let noise: f64 = rng.sample(rand_distr::StandardNormal);
        table.y.push((9.0 * x[0]).sin() * (7.0 * x[1]).cos() + (11.0 * x[2] * x[0]).sin() + 0.1 * noise);
        table.x.extend(x);
    }
    table
}

/// The memory of this process now, where the system tells.
fn resident_megabytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
}
