//! Figure 1: some forty days of an exchange rate with spectral mixture kernels, in time order and shuffled.
//!
//! The first ten observations are learned in batch, the others one by one. Trial k takes the k-th window of the
//! series: trial 0 is the paper's. Scores: *ahead* is the mean negative log density of each observation before it is
//! learned, *whole* that of all days after the last update, RMSE likewise.
//!
//! In time order the library's forecaster is scored ahead, too: trend and Matérn processes in time instead of the mixture,
//! with its own defaults and fits.

use crate::Options;
use crate::baselines::{
    Covariance, Encoder, Hyper, Likelihood, StreamingSgpr, StreamingSvgp, SvgpOptions, Training,
};
use crate::data::Table;
use crate::method::WiskiSteps;
use crate::results::{Folder, Markdown, median, plus_minus};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use wiski::model::Z95;
use wiski::time::{ForecastSettings, Forecaster};
use wiski::{Family, Grid, OnlineGp, Prediction, Result, Wiski};
use wiski_figures::{Snapshot, Snapshots};

/// Days in a window: the paper says forty, its notebook takes thirty-nine.
const WINDOW: usize = 39;
const BATCH: usize = 10;
const SHOWN: [usize; 3] = [10, 20, 30];

/// Grid points and inducing points.
const POINTS: usize = 12;

/// Three components, as in the reference.
const MIXTURE: Family = Family::SpectralMixture { components: 3 };

/// η on the first ten observations; a tenth of it along the stream.
const RATE: f64 = 1e-1;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Wiski,
    Svgp,
    Sgpr,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Wiski, Self::Svgp, Self::Sgpr];

    fn name(self) -> &'static str {
        match self {
            Self::Wiski => "WISKI",
            Self::Svgp => "O-SVGP",
            Self::Sgpr => "O-SGPR",
        }
    }

    fn start(self, x: &[f64], y: &[f64], seed: u64) -> Result<Box<dyn OnlineGp>> {
        // The start of the reference: every parameter softplus(0) = ln 2, so that the variance is 3 ln 2.
        let mut kernel = Covariance::new(MIXTURE, 1)?;
        let mut parameters = vec![std::f64::consts::LN_2; kernel.parameters().len()];
        parameters[0] *= 3.0;
        kernel.set_parameters(&parameters)?;
        let hyper = Hyper::new(kernel.clone());
        let training = Training::paper(RATE);
        Ok(match self {
            Self::Wiski => {
                let builder = Wiski::builder().grid(Grid::covering(&[(-1.0, 1.0)], &[POINTS])?);
                let start = builder.kernel(kernel.to_kernel()?).noise(hyper.noise).build()?;
                let mut model = WiskiSteps::new(&start, RATE / 10.0)?;
                model.warm_up((x, y, None), training.epochs, RATE)?;
                Box::new(model)
            }
            // As in the paper: β tuned to 10⁻³ and six steps for each observation.
            Self::Svgp => {
                let options = SvgpOptions { inducing: POINTS, steps: 6, seed, ..SvgpOptions::default() };
                let mut model =
                    StreamingSvgp::new(Encoder::identity(1), hyper, training, Likelihood::Gaussian, options);
                model.warm_up(x, y)?;
                Box::new(model)
            }
            Self::Sgpr => {
                let mut model = StreamingSgpr::new(Encoder::identity(1), hyper, training, POINTS, 1e-5, seed);
                model.warm_up(x, y)?;
                Box::new(model)
            }
        })
    }
}

/// Scores and fits of one run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Run {
    ahead_nll: f64,
    ahead_rmse: f64,
    whole_nll: f64,
    whole_rmse: f64,
    /// Mean and observation bands on [`places`] after 10, 20 and 30 observations.
    fits: Vec<[Vec<f64>; 3]>,
}

fn places() -> Vec<f64> {
    (0..161).map(|i| -1.0 + f64::from(i) / 80.0).collect()
}

fn fit(model: &mut dyn OnlineGp) -> Result<[Vec<f64>; 3]> {
    let mut out = [Vec::new(), Vec::new(), Vec::new()];
    for x in places() {
        let p = model.predict(&[x])?;
        out[0].push(p.mean);
        out[1].push(p.mean - Z95 * p.std());
        out[2].push(p.mean + Z95 * p.std());
    }
    Ok(out)
}

fn run_one(kind: Kind, days: &Table, seed: u64) -> anyhow::Result<Run> {
    let mut model = kind.start(&days.x[..BATCH], &days.y[..BATCH], seed)?;
    let mut run = Run::default();
    for i in BATCH..WINDOW {
        if SHOWN.contains(&i) {
            run.fits.push(fit(model.as_mut())?);
        }
        let p = model.predict(days.row(i))?;
        run.ahead_nll -= p.log_density(days.y[i]) / (WINDOW - BATCH) as f64;
        run.ahead_rmse += (p.mean - days.y[i]).powi(2) / (WINDOW - BATCH) as f64;
        model.observe(days.row(i), days.y[i])?;
    }
    for i in 0..WINDOW {
        let p = model.predict(days.row(i))?;
        run.whole_nll -= p.log_density(days.y[i]) / WINDOW as f64;
        run.whole_rmse += (p.mean - days.y[i]).powi(2) / WINDOW as f64;
    }
    (run.ahead_rmse, run.whole_rmse) = (run.ahead_rmse.sqrt(), run.whole_rmse.sqrt());
    Ok(run)
}

/// The forecaster on days in the order of time: what it says of each day before it learns it.
fn forecast_one(days: &Table) -> anyhow::Result<Run> {
    let mut model = Forecaster::new(ForecastSettings::default())?;
    model.extend(&days.x[..BATCH], &[], &days.y[..BATCH])?;
    let mut run = Run::default();
    for i in BATCH..WINDOW {
        let said = model.observe(days.x[i], &[], Some(days.y[i]))?;
        let said = said.ok_or_else(|| anyhow::anyhow!("the forecaster has no model after {i} days"))?;
        let p = Prediction { mean: said.mean, variance: said.std * said.std, noise: 0.0 };
        run.ahead_nll -= p.log_density(days.y[i]) / (WINDOW - BATCH) as f64;
        run.ahead_rmse += (p.mean - days.y[i]).powi(2) / (WINDOW - BATCH) as f64;
    }
    run.ahead_rmse = run.ahead_rmse.sqrt();
    Ok(run)
}

/// The k-th window, inputs from −1 to 1, targets standardized, in time order or shuffled.
fn window(all: &Table, k: usize, shuffled: Option<u64>) -> Table {
    let mut days = all.select(&(k * WINDOW..(k + 1) * WINDOW).collect::<Vec<_>>());
    Table::scale_inputs(&mut [&mut days]);
    days.standardize_targets();
    let mut order: Vec<usize> = (0..WINDOW).collect();
    if let Some(seed) = shuffled {
        order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    }
    days.select(&order)
}

/// Runs the experiment.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let folder = Folder::open(options, "fx")?;
    // The column that the reference plots, fourth in its file, is Canadian dollars.
    let series = Table::read(&options.data, "fx2007_cad")?;
    // All six windows unless told otherwise: they take seconds.
    let windows = series.len() / WINDOW;
    let trials = options.trials.unwrap_or(windows).min(windows).min(options.first.unwrap_or(windows));
    let mut text = Markdown::new(&[
        "order",
        "method",
        "NLL ahead",
        "median",
        "RMSE ahead",
        "NLL whole",
        "median",
        "RMSE whole",
    ]);
    let mut csv = String::from("order,method,window,nll_ahead,rmse_ahead,nll_whole,rmse_whole\n");
    for (order, shuffled) in [("time", false), ("random", true)] {
        let mut panels = Vec::new();
        for kind in Kind::ALL {
            let mut runs: Vec<Run> = Vec::new();
            for k in 0..trials {
                let seed = options.seed + k as u64;
                let days = window(&series, k, shuffled.then_some(seed));
                let setup = format!(
                    "{kind:?} {MIXTURE:?} {RATE} window {WINDOW} batch {BATCH} points {POINTS} start ln 2"
                );
                let key = format!("{order}-{kind:?}-{seed}");
                let run = folder.trial(&key, &setup, || run_one(kind, &days, seed))?;
                let Some(run): Option<Run> = run else { continue };
                let _ = writeln!(
                    csv,
                    "{order},{},{k},{:.4},{:.4},{:.4},{:.4}",
                    kind.name(),
                    run.ahead_nll,
                    run.ahead_rmse,
                    run.whole_nll,
                    run.whole_rmse
                );
                runs.push(run);
            }
            let Some(first) = runs.first() else { continue };
            let column = |f: fn(&Run) -> f64| plus_minus(&runs.iter().map(f).collect::<Vec<_>>(), 3);
            let middle = |f: fn(&Run) -> f64| format!("{:.3}", median(runs.iter().map(f).collect()));
            text.row(&[
                order.into(),
                kind.name().into(),
                column(|r| r.ahead_nll),
                middle(|r| r.ahead_nll),
                column(|r| r.ahead_rmse),
                column(|r| r.whole_nll),
                middle(|r| r.whole_nll),
                column(|r| r.whole_rmse),
            ]);
            let days = window(&series, 0, shuffled.then_some(options.seed));
            for (fit, n) in first.fits.iter().zip(SHOWN) {
                panels.push(Snapshot {
                    title: format!("{}, {n} observations", kind.name()),
                    x: places(),
                    mean: fit[0].clone(),
                    lower: fit[1].clone(),
                    upper: fit[2].clone(),
                    seen: (days.x[..n].to_vec(), days.y[..n].to_vec()),
                    unseen: (days.x[n..].to_vec(), days.y[n..].to_vec()),
                });
            }
        }
        // A filter knows one order of rows, and looks ahead: there is no shuffled run, and no score of the whole.
        let ahead = if shuffled { 0 } else { trials as u64 };
        let runs: Vec<Run> = folder.trials(
            0..ahead,
            "forecaster, defaults",
            |k| format!("{order}-forecaster-{k}"),
            |k| forecast_one(&window(&series, k as usize, None)),
        )?;
        if !runs.is_empty() {
            for (k, run) in runs.iter().enumerate() {
                let _ = writeln!(csv, "{order},forecaster,{k},{:.4},{:.4},,", run.ahead_nll, run.ahead_rmse);
            }
            let column = |f: fn(&Run) -> f64| plus_minus(&runs.iter().map(f).collect::<Vec<_>>(), 3);
            text.row(&[
                order.into(),
                "forecaster".into(),
                column(|r| r.ahead_nll),
                format!("{:.3}", median(runs.iter().map(|r| r.ahead_nll).collect())),
                column(|r| r.ahead_rmse),
                String::new(),
                String::new(),
                String::new(),
            ]);
        }
        let figure = Snapshots {
            title: format!("Canadian dollars per US dollar, observations in {order} order"),
            x_label: "day, scaled".into(),
            y_label: "rate, standardized".into(),
            columns: 3,
            panels,
        };
        folder.draw(&format!("fx_{order}"), &figure)?;
    }
    folder.write("fx.csv", &csv)?;
    folder.table("fx", &text)
}
