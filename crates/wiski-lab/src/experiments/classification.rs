//! Figure 4: accuracy along the stream on banana and svmguide1, and banana in an order that is not random.
//!
//! Dirichlet classification (Milios et al. 2018) by exact processes and by WISKI, O-SVGP with a Bernoulli
//! likelihood. Lines of hindsight are models that were given all training rows in batch.

use crate::Options;
use crate::baselines::{
    Covariance, Encoder, ExactGp, Hyper, Likelihood, StreamingSvgp, SvgpOptions, Training,
};
use crate::data::Table;
use crate::method::WiskiSteps;
use crate::results::{Bundle, Folder, Markdown, comparison, plus_minus, processor_seconds, progress};
use crate::watch;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use wiski::internals::likelihood::{Dirichlet, Softmax};
use wiski::{Classes, Family, Grid, OnlineClassifier, OnlineGp, Result, Settings, Wiski};
use wiski_figures::{Field, Lines, Map};

/// The paper's rate on the warm-up rows; a tenth along the stream.
const RATE: f64 = 5e-2;

/// A classifier of rows with labels 0 and 1.
trait Binary {
    fn observe(&mut self, x: &[f64], label: f64) -> Result<()>;

    /// The probability of label 1 for rows one after the other.
    fn probabilities(&mut self, x: &[f64]) -> Result<Vec<f64>>;
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Wiski,
    Exact,
    Svgp,
    Product,
}

impl Kind {
    /// The paper's, and wiski's classifier as it comes.
    const ALL: [Self; 4] = [Self::Wiski, Self::Exact, Self::Svgp, Self::Product];

    fn name(self) -> &'static str {
        match self {
            Self::Wiski => "WISKI (Dirichlet)",
            Self::Exact => "Exact (Dirichlet)",
            Self::Svgp => "O-SVGP (Bernoulli)",
            Self::Product => "wiski as it comes",
        }
    }

    /// A classifier that has learned the warm-up rows. `spacing` is that of the exact process's steps.
    fn start(self, rows: &Table, spacing: f64, seed: u64) -> Result<Box<dyn Binary>> {
        Ok(match self {
            Self::Wiski => Box::new(wiski(rows)?),
            Self::Exact => Box::new(exact(rows, spacing)?),
            Self::Svgp => {
                let hyper = Hyper::new(Covariance::new(Family::Rbf, rows.dim)?).with_known_noise(1.0);
                let options = SvgpOptions { seed, ..SvgpOptions::default() };
                let encoder = Encoder::identity(rows.dim);
                let training = Training::paper(RATE);
                let mut model = StreamingSvgp::new(encoder, hyper, training, Likelihood::Bernoulli, options);
                model.warm_up(&rows.x, &rows.y)?;
                Box::new(model)
            }
            Self::Product => {
                let settings = Settings { seed, ..Settings::default() };
                let labels = Classes::declared(NAMES);
                let mut model = OnlineClassifier::new(rows.dim, labels, settings)?;
                (0..rows.len()).try_for_each(|i| Binary::observe(&mut model, rows.row(i), rows.y[i]))?;
                Box::new(model)
            }
        })
    }

    /// The power of the number of rows with which the time of a row grows, if there is a step for each.
    fn growth(self, spacing: f64) -> f64 {
        if self == Self::Exact && spacing == 0.0 { 3.0 } else { 0.0 }
    }
}

/// The labels of the two classes.
const NAMES: [&str; 2] = ["0", "1"];

impl Binary for OnlineClassifier {
    fn observe(&mut self, x: &[f64], label: f64) -> Result<()> {
        // As along a stream: probabilities are sharpened by what was said of each row before.
        self.step(x, NAMES[usize::from(label == 1.0)]).map(|_| ())
    }

    fn probabilities(&mut self, x: &[f64]) -> Result<Vec<f64>> {
        let mut both = vec![0.0; 2 * x.len() / self.input_dim()];
        self.predict_batch(x, &mut both)?;
        Ok(both.chunks_exact(2).map(|p| p[1]).collect())
    }
}

/// One process for each class, on the targets and the noise of the Dirichlet likelihood.
struct DirichletPair<P> {
    processes: [P; 2],
    likelihood: Dirichlet,
    softmax: Softmax,
}

impl<P: OnlineGp> DirichletPair<P> {
    /// Each process starts from the targets and noise variances that its class has on the warm-up rows, and from a
    /// kernel with the variance of the targets.
    fn new(rows: &Table, start: impl Fn(Covariance, &[f64], &[f64]) -> Result<P>) -> Result<Self> {
        let likelihood = Dirichlet::new(2);
        let mut kernel = Covariance::new(Family::Rbf, rows.dim)?;
        let mut parameters = kernel.parameters().to_vec();
        parameters[0] = likelihood.target_variance();
        kernel.set_parameters(&parameters)?;
        let process = |class: f64| {
            let targets = rows.y.iter().map(|&label| likelihood.target(label == class));
            let (y, noise): (Vec<f64>, Vec<f64>) = targets.map(|t| (t.value, t.noise)).unzip();
            start(kernel.clone(), &y, &noise)
        };
        Ok(Self { processes: [process(0.0)?, process(1.0)?], likelihood, softmax: Softmax::new(2) })
    }
}

impl<P: OnlineGp> Binary for DirichletPair<P> {
    fn observe(&mut self, x: &[f64], label: f64) -> Result<()> {
        for (class, process) in self.processes.iter_mut().enumerate() {
            let target = self.likelihood.target(label == class as f64);
            process.observe_noisy(x, target.value, target.noise)?;
        }
        Ok(())
    }

    fn probabilities(&mut self, x: &[f64]) -> Result<Vec<f64>> {
        let n = x.len() / self.processes[0].input_dim();
        let (mut means, mut variances) = (vec![vec![0.0; n]; 2], vec![vec![0.0; n]; 2]);
        for (c, process) in self.processes.iter_mut().enumerate() {
            process.predict_batch(x, &mut means[c], &mut variances[c])?;
        }
        let (mut work, mut out) = (Vec::new(), [0.0; 2]);
        let mut one = |i: usize| {
            let (m, v) = ([means[0][i], means[1][i]], [variances[0][i], variances[1][i]]);
            self.softmax.probabilities(&m, &v, &mut work, &mut out);
            out[1]
        };
        Ok((0..n).map(&mut one).collect())
    }
}

/// Exact processes whose hyperparameters take a step for every `spacing` more rows.
fn exact(rows: &Table, spacing: f64) -> Result<DirichletPair<ExactGp>> {
    DirichletPair::new(rows, |kernel, y, noise| {
        let training = Training { spacing, ..Training::paper(RATE) };
        let hyper = Hyper::new(kernel).with_known_noise(1.0);
        let mut process = ExactGp::new(Encoder::identity(rows.dim), hyper, training);
        process.warm_up(&rows.x, y, Some(noise))?;
        Ok(process)
    })
}

/// WISKI on 256 grid points with the paper's learning.
fn wiski(rows: &Table) -> Result<DirichletPair<WiskiSteps>> {
    let points = if rows.dim == 2 { 16 } else { 4 };
    let grid = Grid::covering(&vec![(-1.0, 1.0); rows.dim], &vec![points; rows.dim])?;
    DirichletPair::new(rows, |kernel, y, noise| {
        let start = Wiski::builder().grid(grid.clone()).kernel(kernel.to_kernel()?).noise(1.0).build()?;
        let mut process = WiskiSteps::with_known_noise(&start, RATE / 10.0)?;
        process.warm_up((&rows.x, y, Some(noise)), Training::paper(RATE).epochs, RATE)?;
        Ok(process)
    })
}

impl Binary for StreamingSvgp {
    fn observe(&mut self, x: &[f64], label: f64) -> Result<()> {
        OnlineGp::observe(self, x, label).map(|_| ())
    }

    fn probabilities(&mut self, x: &[f64]) -> Result<Vec<f64>> {
        StreamingSvgp::probabilities(self, x)
    }
}

/// Accuracy and log-loss after so many streamed rows, and seconds a row since the last measurement.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Point {
    n: usize,
    accuracy: f64,
    log_loss: f64,
    seconds: f64,
}

fn measure(model: &mut dyn Binary, test: &Table, n: usize, seconds: f64) -> Result<Point> {
    let p = model.probabilities(&test.x)?;
    let hit = |(p, y): (&f64, &f64)| usize::from((*p > 0.5) == (*y == 1.0));
    let loss = |(p, y): (&f64, &f64)| -(if *y == 1.0 { *p } else { 1.0 - p }).max(1e-300).ln();
    let count = test.len() as f64;
    Ok(Point {
        n,
        accuracy: p.iter().zip(&test.y).map(hit).sum::<usize>() as f64 / count,
        log_loss: p.iter().zip(&test.y).map(loss).sum::<f64>() / count,
        seconds,
    })
}

/// Streams rows in the given order; `snapshot` is called after every measurement.
fn stream(
    label: &str,
    mut model: Box<dyn Binary>,
    rows: &Table,
    test: &Table,
    every: usize,
    mut snapshot: impl FnMut(usize, &mut dyn Binary) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Point>> {
    let bar = progress(label, rows.len());
    let mut points = vec![measure(model.as_mut(), test, 0, 0.0)?];
    let (mut spent, mut since) = (0.0, 0);
    for i in 0..rows.len() {
        // The curve ends where the budget does.
        let is_last = !watch::row(i, rows.len())? || i + 1 == rows.len();
        let begin = processor_seconds();
        model.observe(rows.row(i), rows.y[i])?;
        spent += processor_seconds() - begin;
        since += 1;
        bar.inc(1);
        if (i + 1) % every == 0 || is_last {
            points.push(measure(model.as_mut(), test, i + 1, spent / f64::from(since))?);
            snapshot(i + 1, model.as_mut())?;
            (spent, since) = (0.0, 0);
        }
        if is_last {
            break;
        }
    }
    bar.finish_and_clear();
    eprintln!("{label}: accuracy {:.4}", points[points.len() - 1].accuracy);
    Ok(points)
}

/// Evenly spaced rows, at most so many: test rows may stand in the order of their labels.
fn thinned(test: &Table, most: usize) -> Table {
    test.select(&(0..test.len()).step_by(test.len().div_ceil(most)).collect::<Vec<_>>())
}

/// Runs the experiment.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let folder = Folder::open(options, "classification")?;
    let mut text =
        Markdown::new(&["set", "method", "accuracy %", "log-loss", "in hindsight: accuracy %", "log-loss"]);
    let (mut panels, mut csv) =
        (Vec::new(), String::from("set,method,trial,rows,accuracy,log_loss,seconds\n"));
    for set in ["banana", "svmguide1"].into_iter().filter(|s| options.wants(s)) {
        let (train, test) = Table::classification(&options.data, set)?;
        let train = thinned(&train, options.most_rows.unwrap_or(usize::MAX));
        let test = thinned(&test, options.most_rows.unwrap_or(options.pick(2000, usize::MAX)));
        // With O(n³) a step, 3000 rows of steps take hours; at the quick size one comes for 3 % more rows.
        let spacing = if set == "banana" { 0.0 } else { options.pick(0.03, 0.0) };
        let mut lines = Vec::new();
        let mut hindsight_line = None;
        for kind in Kind::ALL {
            let most = options.pick(1000, usize::MAX);
            let setup = format!("{kind:?} spacing {spacing} rows {most} thinned to {}", test.len());
            let run = |seed: u64| {
                let mut order: Vec<usize> = (0..train.len()).collect();
                order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
                let (warm, rest) = order.split_at(train.len() / 20);
                let rest = &rest[..rest.len().min(most)];
                let label = format!("{set:<10} {:<19} trial {seed}", kind.name());
                watch::expect(rest.len(), warm.len(), kind.growth(spacing));
                let model = kind.start(&train.select(warm), spacing, seed)?;
                let every = (rest.len() / 12).max(1);
                stream(&label, model, &train.select(rest), &test, every, |_, _| Ok(()))
            };
            let key = |seed: u64| format!("{set}-{kind:?}-{seed}");
            let trials: Vec<Vec<Point>> = folder.trials(options.seeds(), &setup, key, run)?;
            // The exact process on all rows of svmguide1 needs 400 factorizations of size 3089.
            let affordable = set == "banana" || kind == Kind::Wiski || options.pick(false, true);
            let hindsight: Option<Point> = if affordable {
                folder.trial(&format!("{set}-{kind:?}-hindsight"), &setup, || {
                    Ok(measure(kind.start(&train, f64::INFINITY, 0)?.as_mut(), &test, train.len(), 0.0)?)
                })?
            } else {
                None
            };
            if trials.is_empty() {
                continue;
            }
            let end =
                |f: fn(&Point) -> f64| trials.iter().filter_map(|t| t.last()).map(f).collect::<Vec<f64>>();
            let behind = |f: fn(&Point) -> f64, digits: usize| {
                hindsight.as_ref().map_or("–".into(), |p| format!("{:.digits$}", f(p)))
            };
            text.row(&[
                set.into(),
                kind.name().into(),
                plus_minus(&end(|p| 100.0 * p.accuracy), 2),
                plus_minus(&end(|p| p.log_loss), 4),
                behind(|p| 100.0 * p.accuracy, 2),
                behind(|p| p.log_loss, 4),
            ]);
            for (trial, points) in trials.iter().enumerate() {
                for p in points {
                    let _ = writeln!(
                        csv,
                        "{set},{},{trial},{},{:.5},{:.5},{:.3e}",
                        kind.name(),
                        p.n,
                        p.accuracy,
                        p.log_loss,
                        p.seconds
                    );
                }
            }
            let curve = |t: &Vec<Point>| t.iter().map(|p| (p.n as f64, 100.0 * p.accuracy)).collect();
            lines.push(Bundle { trials: trials.iter().map(curve).collect() }.line(kind.name()));
            hindsight_line = hindsight_line.or(hindsight.map(|p| 100.0 * p.accuracy));
        }
        panels.push(Lines {
            title: set.into(),
            x_label: "rows streamed".into(),
            y_label: "test accuracy, %".into(),
            lines,
            levels: hindsight_line.map(|level| ("WISKI in hindsight".into(), level)).into_iter().collect(),
            ..Lines::default()
        });
    }
    if !panels.is_empty() {
        folder.write("classification.csv", &csv)?;
        folder.table("classification", &text)?;
        folder.draw("classification", &comparison("", panels))?;
    }
    if options.wants("ordered") { ordered(options, &folder) } else { Ok(()) }
}

/// A stream in order: what was measured, and maps of probabilities after so many rows.
type Ordered = (Vec<Point>, Vec<(usize, Vec<f64>)>);

/// Banana from left to right: the classifier must not forget what it saw, nor be sure of what it has not seen.
fn ordered(options: &Options, folder: &Folder) -> anyhow::Result<()> {
    let (train, test) = Table::classification(&options.data, "banana")?;
    let mut order: Vec<usize> = (0..train.len()).collect();
    order.sort_by(|&a, &b| train.row(a)[0].total_cmp(&train.row(b)[0]));
    let (warm, rest) = order.split_at(train.len() / 20);
    let (warm, rest) = (train.select(warm), train.select(rest));
    let mut text =
        Markdown::new(&["method", "100 rows", "200 rows", "300 rows", "400 rows", "log-loss after 400"]);
    let side = 60;
    let axis: Vec<f64> = (0..side).map(|i| -1.0 + 2.0 * (f64::from(i) + 0.5) / f64::from(side)).collect();
    let cells: Vec<f64> = axis.iter().flat_map(|&y| axis.iter().flat_map(move |&x| [x, y])).collect();
    for kind in Kind::ALL {
        let label = format!("banana in order, {}", kind.name());
        let run = || {
            let mut maps: Vec<(usize, Vec<f64>)> = Vec::new();
            // Measured in steps of 20 after the 20 warm-up rows, shown at every hundred.
            let points = stream(&label, kind.start(&warm, 0.0, 0)?, &rest, &test, 20, |n, model| {
                if (n + warm.len()) % 100 == 0 {
                    maps.push((n, model.probabilities(&cells)?));
                }
                Ok(())
            })?;
            Ok((points, maps))
        };
        let setup = format!("{kind:?} {} rows, {} cells", train.len(), cells.len());
        let found: Option<Ordered> = folder.trial(&format!("ordered-{kind:?}-0"), &setup, run)?;
        let Some((points, maps)) = found else { continue };
        let shown: Vec<&Point> = points.iter().filter(|p| p.n > 0 && (p.n + warm.len()) % 100 == 0).collect();
        let mut row = vec![kind.name().to_owned()];
        row.extend(shown.iter().map(|p| format!("{:.1} %", 100.0 * p.accuracy)));
        row.push(shown.last().map_or(String::new(), |p| format!("{:.3}", p.log_loss)));
        text.row(&row);
        for (n, values) in maps {
            let field = Field { title: format!("{} rows", n + warm.len()), quantity: "p(1)".into(), values };
            let seen = [&warm.x[..], &rest.x[..2 * n]].concat();
            let map = Map {
                title: format!("{}, banana from left to right", kind.name()),
                x_label: "x₁".into(),
                y_label: "x₂".into(),
                x: axis.clone(),
                y: axis.clone(),
                fields: vec![field],
                data_x: seen.iter().step_by(2).copied().collect(),
                data_y: seen.iter().skip(1).step_by(2).copied().collect(),
            };
            folder.draw(&format!("ordered_{kind:?}_{}", n + warm.len()).to_lowercase(), &map)?;
        }
    }
    folder.table("ordered", &text)
}
