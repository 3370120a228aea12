//! The experiments of the paper, one file each.

pub mod ablation;
pub mod active;
pub mod classification;
pub mod fx;
pub mod intervals;
pub mod large;
pub mod optimization;
pub mod regression;
pub mod timing;

use crate::Experiment;
use crate::data::{Split, Table};
use crate::method::{Checkpoint, Method, Task, stream};
use crate::results::{Bundle, Folder};
use crate::{Options, Size};
use std::fmt::Write as _;

/// All experiments.
pub(crate) const ALL: [Experiment; 9] = [
    Experiment {
        name: "fx",
        figure: "Figure 1",
        about: "forty days of an exchange rate with spectral mixture kernels, in time order and shuffled: WISKI, O-SVGP, \
                O-SGPR after 10, 20 and 30 observations",
        needs_data: true,
        run: fx::run,
    },
    Experiment {
        name: "timing",
        figure: "Figure 2",
        about: "seconds a row against n, and RMSE, on powerplant: exact by Cholesky and by conjugate gradients, batch \
                SKI, O-SVGP, WISKI",
        needs_data: true,
        run: timing::run,
    },
    Experiment {
        name: "regression",
        figure: "Figure 3",
        about: "test NLL and RMSE along the stream on skillcraft, powerplant, elevators, protein, a sample of 3droad \
                and an elevation model, for every method that can run",
        needs_data: true,
        run: regression::run,
    },
    Experiment {
        name: "classification",
        figure: "Figures 4 and A.6",
        about: "accuracy along the stream on banana and svmguide1: Dirichlet classification, exact and by WISKI, O-SVGP \
                with a Bernoulli likelihood; banana from left to right with decision surfaces (parts: banana, \
                svmguide1, ordered)",
        needs_data: true,
        run: classification::run,
    },
    Experiment {
        name: "optimization",
        figure: "Figures 5a, A.7 to A.9",
        about: "best value and seconds an iteration on six noisy functions of three variables, three points at a time: \
                WISKI, exact, O-SVGP; simple regret of WISKI and exact at equal evaluations (parts: the functions, \
                regret, regret-branin2 and so on)",
        needs_data: false,
        run: optimization::run,
    },
    Experiment {
        name: "active",
        figure: "Figures 5b and 5c",
        about: "where to measure malaria next: test RMSE and a map of the chosen places for WISKI, exact, O-SVGP and \
                random choice (parts: malaria_ago, malaria_bfa2017)",
        needs_data: true,
        run: active::run,
    },
    Experiment {
        name: "ablation",
        figure: "appendix",
        about: "inducing points of WISKI and O-SVGP, root rank against the exact stencil, β and update steps of O-SVGP \
                (parts: inducing, rank, beta, steps, sine)",
        needs_data: true,
        run: ablation::run,
    },
    Experiment {
        name: "large",
        figure: "not in the paper",
        about: "cost against the number of grid points for the dense, the sparse and the iterative engine, and RMSE of an \
                elevation model as the grid grows (parts: terrain, cube)",
        needs_data: true,
        run: large::run,
    },
    Experiment {
        name: "intervals",
        figure: "not in the paper",
        about: "coverage, in all and in windows of 1,000 rows, and width of intervals by quantile tracking, adaptive \
                conformal inference, conformal PID control and wiski's own controller, on streams in their own order \
                and on shuffled tables (parts: vic_elec, elec2, nyc_taxi, powerplant and others)",
        needs_data: true,
        run: intervals::run,
    },
];

/// The curves of a method on a data set, one for each trial.
#[derive(Debug, Clone)]
pub(crate) struct Curves {
    pub(crate) task: &'static str,
    pub(crate) method: Method,
    pub(crate) label: String,
    pub(crate) trials: Vec<Vec<Checkpoint>>,
}

impl Curves {
    /// Runs (or reads) all trials. `most` caps the streamed rows.
    pub(crate) fn collect(
        folder: &Folder,
        options: &Options,
        table: &Table,
        task: &Task,
        method: Method,
        most: usize,
    ) -> anyhow::Result<Self> {
        let most_test = options.pick(1000, usize::MAX);
        let mut trials = Vec::new();
        for seed in options.seeds() {
            let setup = format!("{task:?} {method:?} rows {most} test {most_test}");
            let size = if options.size == Size::Quick { "quick" } else { "full" };
            let key = format!("{}-{}-{size}-{seed}", task.name, method.key());
            let run = || stream(task, method, &Split::paper(table, seed, most_test), most, seed);
            trials.push(folder.trial(&key, &setup, run)?);
        }
        Ok(Self { task: task.name, method, label: method.name().into(), trials })
    }

    /// One measure along the stream, from the first streamed row on.
    pub(crate) fn bundle(&self, measure: impl Fn(&Checkpoint) -> f64, from: usize) -> Bundle {
        let curve = |t: &Vec<Checkpoint>| {
            t.iter().filter(|c| c.n >= from).map(|c| (c.n as f64, measure(c))).collect()
        };
        Bundle { trials: self.trials.iter().map(curve).collect() }
    }

    /// One measure of each trial at its end.
    pub(crate) fn last(&self, measure: impl Fn(&Checkpoint) -> f64) -> Vec<f64> {
        self.trials.iter().filter_map(|t| t.last()).map(measure).collect()
    }

    /// One measure of each trial after n rows, if all have come that far.
    pub(crate) fn at(&self, n: usize, measure: impl Fn(&Checkpoint) -> f64) -> Option<Vec<f64>> {
        self.trials.iter().map(|t| t.iter().find(|c| c.n == n).map(&measure)).collect()
    }

    /// The rows streamed in every trial.
    pub(crate) fn rows(&self) -> usize {
        self.trials.iter().filter_map(|t| t.last()).map(|c| c.n).min().unwrap_or(0)
    }
}

/// All checkpoints as CSV.
pub(crate) fn csv(curves: &[Curves]) -> String {
    let mut text = String::from("set,method,settings,trial,rows,seconds_per_row,rmse,nll,coverage95\n");
    for c in curves {
        for (trial, points) in c.trials.iter().enumerate() {
            for p in points {
                let (set, label, key) = (c.task, &c.label, c.method.key());
                let _ = writeln!(
                    text,
                    "{set},\"{label}\",{key},{trial},{},{:.6e},{:.6},{:.6},{:.4}",
                    p.n, p.seconds, p.rmse, p.nll, p.coverage
                );
            }
        }
    }
    text
}
