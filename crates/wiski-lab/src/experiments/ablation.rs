//! The ablations of the appendix: inducing points, root rank, β, and update steps.

use super::{Curves, Entry, csv};
use crate::Options;
use crate::baselines::{
    Covariance, Encoder, ExactGp, Hyper, Likelihood, Rates, StreamingSvgp, SvgpOptions, Training,
};
use crate::data::Split;
use crate::method::{Method, Task, WiskiSteps, WiskiStream};
use crate::results::{Bundle, Folder, Markdown, comparison, median, plus_minus, progress};
use crate::watch;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use wiski::model::{InputScaling, TargetScaling};
use wiski::{Family, Grid, OnlineGp, Schedule, Settings, Wiski};
use wiski_figures::Lines;

/// Runs the ablations: `inducing`, `rank`, `beta`, `steps`, `sine`.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let folder = Folder::open(options, "ablation")?;
    if options.wants("inducing") {
        let points = options.pick(vec![64, 256], vec![64, 144, 256, 576, 1024]);
        let grids = options.pick(vec![8, 16, 32], vec![8, 12, 16, 24, 32]);
        let wiski = grids.iter().map(|&grid| (Method::Wiski { grid }, format!("WISKI, m = {}", grid * grid)));
        let svgp = points.iter().map(|&m| (Method::svgp(m), format!("O-SVGP, m = {m}")));
        sweep(
            options,
            &folder,
            "inducing",
            &options.pick(vec!["skillcraft"], vec!["skillcraft", "powerplant"]),
            &wiski.chain(svgp).collect::<Vec<_>>(),
        )?;
    }
    if options.wants("rank") {
        rank(options, &folder)?;
    }
    if options.wants("beta") {
        let svgp = |beta: f64| (Method::svgp_with(256, beta, 1), format!("β = {beta}"));
        let methods = [1.0, 0.1, 0.01, 1e-3].map(svgp);
        let sets = options.pick(vec!["skillcraft"], vec!["skillcraft", "powerplant", "elevators", "protein"]);
        sweep(options, &folder, "beta", &sets, &methods)?;
    }
    if options.wants("steps") {
        let svgp = |steps: usize| (Method::svgp_with(256, 1e-3, steps), format!("{steps} steps a row"));
        let methods = options.pick(vec![1, 4], vec![1, 2, 4, 8]).into_iter().map(svgp).collect::<Vec<_>>();
        sweep(
            options,
            &folder,
            "steps",
            &options.pick(vec!["skillcraft"], vec!["skillcraft", "powerplant", "elevators"]),
            &methods,
        )?;
    }
    if options.wants("sine") {
        sine(options, &folder)?;
    }
    Ok(())
}

/// Streams with several settings on several sets.
fn sweep(
    options: &Options,
    folder: &Folder,
    name: &str,
    sets: &[&str],
    methods: &[(Method, String)],
) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for set in sets {
        let task = Task::named(set);
        let table = options.table(set)?;
        for (method, label) in methods {
            // The same number of rows for all, so that the ends can be compared.
            let entry = Entry::up_to(*method, options.pick(400, usize::MAX));
            let mut curves = Curves::collect(folder, options, &table, &task, entry)?;
            curves.label.clone_from(label);
            if !curves.trials.is_empty() {
                all.push(curves);
            }
        }
    }
    folder.write(&format!("{name}.csv"), &csv(&all))?;
    let mut text = Markdown::new(&["set", "setting", "rows streamed", "RMSE", "NLL", "ms a row"]);
    for c in &all {
        text.row(&[
            c.task.into(),
            c.label.clone(),
            c.rows_text(),
            plus_minus(&c.last(|p| p.rmse), 4),
            plus_minus(&c.last(|p| p.nll), 4),
            plus_minus(&c.last(|p| 1e3 * p.seconds), 2),
        ]);
    }
    folder.table(name, &text)?;
    let panel = |set: &&str| Lines {
        title: (*set).into(),
        x_label: "rows streamed".into(),
        y_label: "test NLL".into(),
        log_x: true,
        lines: all
            .iter()
            .filter(|c| c.task == *set)
            .map(|c| c.bundle(|p| p.nll, 50).line(&c.label))
            .collect(),
        ..Lines::default()
    };
    folder.draw(name, &comparison(name, sets.iter().map(panel).collect()))
}

/// How a root of limited rank ended, or the stencil.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct RankEnd {
    nll: f64,
    rmse: f64,
}

/// The paper's table of root ranks on skillcraft, next to the exact stencil.
///
/// Features and first hyperparameters come from an exact process on the warm-up rows and are the same for all ranks;
/// after that every row is learned and kernel and noise take one Adam step on the evidence of the statistics.
fn rank(options: &Options, folder: &Folder) -> anyhow::Result<()> {
    let task = Task::named("skillcraft");
    let table = options.table(task.name)?;
    let ranks: [(usize, Option<usize>); 9] = [
        (16, Some(128)),
        (16, Some(192)),
        (16, Some(256)),
        (16, None),
        (32, Some(256)),
        (32, Some(512)),
        (32, Some(768)),
        (32, Some(1024)),
        (32, None),
    ];
    let mut text = Markdown::new(&["m", "r", "NLL", "median NLL", "median RMSE"]);
    for (grid, rank) in ranks {
        // A root that is too small drives length-scales down and the rank of the prior up, to a second a row.
        let rows = options.pick(if grid == 16 { 1000 } else { 400 }, usize::MAX);
        let key =
            |seed: u64| format!("rank-{grid}-{}-{seed}", rank.map_or("stencil".into(), |r| r.to_string()));
        let run =
            |seed: u64| rank_trial(&task, &Split::paper(&table, seed, usize::MAX), grid, rank, (rows, seed));
        let setup = format!("rows {rows} of {}", table.len());
        let ends: Vec<RankEnd> = folder.trials(options.seeds(), &setup, key, run)?;
        if ends.is_empty() {
            continue;
        }
        let middle = |f: fn(&RankEnd) -> f64| {
            let value = median(ends.iter().map(f).collect());
            if value < 1e4 { format!("{value:.4}") } else { format!("{value:.1e}") }
        };
        text.row(&[
            (grid * grid).to_string(),
            rank.map_or("stencil (exact)".into(), |r| r.to_string()),
            plus_minus(&ends.iter().map(|e| e.nll).collect::<Vec<_>>(), 4),
            middle(|e| e.nll),
            middle(|e| e.rmse),
        ]);
    }
    folder.table("rank", &text)
}

fn rank_trial(
    task: &Task,
    split: &Split,
    grid: usize,
    rank: Option<usize>,
    (most, seed): (usize, u64),
) -> anyhow::Result<RankEnd> {
    let rows = split.stream.len().min(most);
    let encoder = Encoder::projection(split.stream.dim, 2, seed)?;
    let hyper = Hyper::new(Covariance::new(Family::Rbf, 2)?);
    let mut warm =
        ExactGp::new(encoder, hyper, Training { spacing: f64::INFINITY, ..Training::paper(task.rate) });
    warm.warm_up(&split.warm_up.x, &split.warm_up.y, None)?;
    let mut encoder = warm.encoder().clone();
    let grid_on_features = Grid::covering(&[(-1.0, 1.0); 2], &[grid; 2])?;
    let mut builder = Wiski::builder()
        .grid(grid_on_features)
        .kernel(warm.hyper().kernel.to_kernel()?)
        .noise(warm.hyper().noise);
    if let Some(rank) = rank {
        builder = builder.low_rank_root(rank);
    }
    let mut model = WiskiSteps::new(&builder.build()?, task.rate / 10.0)?;
    let h = encoder.features(&split.warm_up.x)?;
    model.warm_up((&h, &split.warm_up.y, None), 0, task.rate)?;
    let bar = progress(&format!("rank {rank:?} of {} points, trial {seed}", grid * grid), rows);
    watch::expect(rows, split.warm_up.len(), 0.0);
    for i in 0..rows {
        // A rank without all rows is no result: the budget is none of its ends.
        watch::row(i, rows)?;
        let x = split.stream.row(i);
        model.observe(&encoder.features(x)?, split.stream.y[i])?;
        encoder.observe(x)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let h = encoder.features(&split.test.x)?;
    let (mut square, mut loss) = (0.0, 0.0);
    for (h, y) in h.chunks_exact(2).zip(&split.test.y) {
        let p = model.predict(h)?;
        square += (p.mean - y).powi(2);
        loss -= p.log_density(*y);
    }
    let n = split.test.len() as f64;
    let end = RankEnd { nll: loss / n, rmse: (square / n).sqrt() };
    eprintln!("rank {rank:?} of {} points, trial {seed}: NLL {:.4}", grid * grid, end.nll);
    Ok(end)
}

/// Mean squared error and NLL after each batch of the sine stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct SineRun {
    rows: Vec<f64>,
    mse: Vec<f64>,
    nll: Vec<f64>,
}

/// A noisy sine in batches of 300 rows: O-SVGP (β = 1, as its authors have it) with several numbers of steps for
/// each batch, and WISKI with one step for each row.
fn sine(options: &Options, folder: &Folder) -> anyhow::Result<()> {
    // The paper's text says batches of 300, its figure 10,000 rows.
    let batches = options.pick(20, 33).min(options.most_rows.map_or(usize::MAX, |most| (most / 300).max(5)));
    let kinds: Vec<Option<usize>> = [None].into_iter().chain([1, 2, 5, 10, 20, 50].map(Some)).collect();
    let name = |kind: Option<usize>| kind.map_or("WISKI".into(), |s| format!("O-SVGP, {s} steps"));
    let mut text = Markdown::new(&["method", "MSE after 5 batches", "final MSE", "final NLL"]);
    let (mut mse, mut nll) = (Vec::new(), Vec::new());
    for kind in kinds {
        let key = |seed: u64| format!("sine-{}-{seed}", kind.unwrap_or(0));
        let run = |seed: u64| sine_trial(kind, batches, seed);
        let runs: Vec<SineRun> = folder.trials(options.seeds(), &format!("batches {batches}"), key, run)?;
        if runs.is_empty() {
            continue;
        }
        let column = |f: &dyn Fn(&SineRun) -> f64| plus_minus(&runs.iter().map(f).collect::<Vec<_>>(), 4);
        text.row(&[
            name(kind),
            column(&|r| r.mse[4]),
            column(&|r| r.mse[r.mse.len() - 1]),
            column(&|r| r.nll[r.nll.len() - 1]),
        ]);
        let curve = |r: &SineRun, v: &[f64]| r.rows.iter().copied().zip(v.iter().copied()).collect();
        mse.push(Bundle { trials: runs.iter().map(|r| curve(r, &r.mse)).collect() }.line(&name(kind)));
        nll.push(Bundle { trials: runs.iter().map(|r| curve(r, &r.nll)).collect() }.line(&name(kind)));
    }
    folder.table("sine", &text)?;
    let panel = |title: &str, log_y: bool, lines| Lines {
        title: title.into(),
        x_label: "rows".into(),
        log_y,
        lines,
        ..Lines::default()
    };
    let panels = vec![panel("MSE against the sine", true, mse), panel("test NLL", false, nll)];
    folder.draw("sine", &comparison("A noisy sine in batches of 300", panels))
}

/// y = sin(2πx) + N(0, 0.2²), x uniform on [−1, 1].
fn noisy_sine(n: usize, rng: &mut Xoshiro256PlusPlus) -> (Vec<f64>, Vec<f64>) {
    let x: Vec<f64> = (0..n).map(|_| rng.random_range(-1.0..1.0)).collect();
    let noise = |rng: &mut Xoshiro256PlusPlus| -> f64 { StandardNormal.sample(rng) };
    let y = x.iter().map(|x| (std::f64::consts::TAU * x).sin() + 0.2 * noise(rng)).collect();
    (x, y)
}

fn sine_trial(kind: Option<usize>, batches: usize, seed: u64) -> anyhow::Result<SineRun> {
    const BATCH: usize = 300;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (test_x, test_y) = noisy_sine(500, &mut rng);
    let mut model: Box<dyn OnlineGp> = if let Some(steps) = kind {
        let options = SvgpOptions { inducing: 32, beta: 1.0, steps, seed, ..SvgpOptions::default() };
        // No warm-up: the first batch has as many steps as any other.
        let online = Rates { theta: 1e-2, variational: 1e-2, features: 0.0 };
        let training = Training { online, ..Training::paper(0.1) };
        let hyper = Hyper::new(Covariance::new(Family::Rbf, 1)?);
        let mut model =
            StreamingSvgp::new(Encoder::identity(1), hyper, training, Likelihood::Gaussian, options);
        model.place(&noisy_sine(32, &mut rng).0)?;
        Box::new(model)
    } else {
        let settings = Settings {
            grid: vec![32],
            schedule: Schedule::EveryStep { rate: 1e-2 },
            softplus: true,
            fit_warm_up: false,
            warm_up: Some(2),
            inputs: InputScaling::Bounds(vec![(-1.0, 1.0)]),
            targets: TargetScaling::None,
            ..Settings::default()
        };
        Box::new(WiskiStream::new(1, settings)?)
    };
    let mut run = SineRun { rows: Vec::new(), mse: Vec::new(), nll: Vec::new() };
    for batch in 1..=batches {
        watch::row(batch - 1, batches)?;
        let (x, y) = noisy_sine(BATCH, &mut rng);
        model.observe_batch(&x, &y, None)?;
        let (mut square, mut loss) = (0.0, 0.0);
        for (x, y) in test_x.iter().zip(&test_y) {
            let p = model.predict(&[*x])?;
            square += (p.mean - (std::f64::consts::TAU * x).sin()).powi(2);
            loss -= p.log_density(*y);
        }
        run.rows.push((batch * BATCH) as f64);
        run.mse.push(square / test_x.len() as f64);
        run.nll.push(loss / test_x.len() as f64);
    }
    Ok(run)
}
