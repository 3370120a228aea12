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

use crate::data::{Split, Table};
use crate::method::{Checkpoint, Course, Method, Task, stream, stream_best};
use crate::results::{Bundle, Folder};
use crate::watch;
use crate::work::duration;
use crate::{Experiment, Options};
use std::fmt::Write as _;
use wiski_figures::Line;

/// What the paper does not have.
pub(crate) const BEYOND: &str = "not in the paper";

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
        figure: BEYOND,
        about: "cost against the number of grid points for the dense, the sparse and the iterative engine, and RMSE of an \
                elevation model as the grid grows (parts: terrain, cube)",
        needs_data: true,
        run: large::run,
    },
    Experiment {
        name: "intervals",
        figure: BEYOND,
        about: "coverage, in all and in windows of 1,000 rows, and width of intervals by quantile tracking, adaptive \
                conformal inference, conformal PID control and wiski's own controller, on streams in their own order \
                and on shuffled tables (parts: vic_elec, elec2, nyc_taxi, powerplant and others)",
        needs_data: true,
        run: intervals::run,
    },
];

/// The curves of a method on a data set, one for each trial that has one.
#[derive(Debug, Clone)]
pub(crate) struct Curves {
    pub(crate) task: &'static str,
    pub(crate) method: Method,
    pub(crate) label: String,
    pub(crate) trials: Vec<Course>,
}

/// A method, the most rows that it streams, and whether its settings are chosen on validation rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Entry {
    pub(crate) method: Method,
    pub(crate) most: usize,
    pub(crate) is_best: bool,
}

impl Entry {
    /// The method as it is, with all rows.
    pub(crate) fn whole(method: Method) -> Self {
        Self { method, most: usize::MAX, is_best: false }
    }

    /// The method as it is, with at most so many rows.
    pub(crate) fn up_to(method: Method, most: usize) -> Self {
        Self { method, most, is_best: false }
    }

    /// The method with the settings that are best on validation rows, and all rows.
    pub(crate) fn best(method: Method) -> Self {
        Self { is_best: true, ..Self::whole(method) }
    }
}

impl Curves {
    /// Runs (or reads) all trials.
    pub(crate) fn collect(
        folder: &Folder,
        options: &Options,
        table: &Table,
        task: &Task,
        Entry { method, most, is_best }: Entry,
    ) -> anyhow::Result<Self> {
        let most_test = options.pick(1000, usize::MAX);
        let (best, size) = (if is_best { "best-" } else { "" }, options.size_name());
        let setup = format!("{task:?} {best}{method:?} rows {most} test {most_test} of {}", table.len());
        let label = if is_best { format!("{}, best", method.name()) } else { method.name().into() };
        let key = |seed: u64| format!("{}-{best}{}-{size}-{seed}", task.name, method.key());
        let run = |seed: u64| {
            let split = Split::paper(table, seed, most_test);
            let stream = if is_best { stream_best } else { stream };
            stream(task, method, &split, most, seed)
        };
        let trials = folder.trials(options.seeds(), &setup, key, run)?;
        Ok(Self { task: task.name, method, label, trials })
    }

    /// One measure along the stream, from the first streamed row on.
    pub(crate) fn bundle(&self, measure: impl Fn(&Checkpoint) -> f64, from: usize) -> Bundle {
        let curve = |t: &Course| {
            t.checkpoints.iter().filter(|c| c.n >= from).map(|c| (c.n as f64, measure(c))).collect()
        };
        Bundle { trials: self.trials.iter().map(curve).collect() }
    }

    /// One measure of each trial at its end.
    pub(crate) fn last(&self, measure: impl Fn(&Checkpoint) -> f64) -> Vec<f64> {
        self.trials.iter().filter_map(|t| t.checkpoints.last()).map(measure).collect()
    }

    /// One measure of each trial after n rows, if all have come that far.
    pub(crate) fn at(&self, n: usize, measure: impl Fn(&Checkpoint) -> f64) -> Option<Vec<f64>> {
        let at = |t: &Course| t.checkpoints.iter().find(|c| c.n == n).map(&measure);
        self.trials.iter().map(at).collect::<Option<Vec<f64>>>().filter(|all| !all.is_empty())
    }

    /// The rows streamed in every trial.
    pub(crate) fn rows(&self) -> usize {
        self.trials.iter().filter_map(|t| t.checkpoints.last()).map(|c| c.n).min().unwrap_or(0)
    }

    /// The rows streamed, and of how many where the budget ended a trial.
    pub(crate) fn rows_text(&self) -> String {
        let planned = self.trials.iter().map(|t| t.planned).max().unwrap_or(0);
        if self.rows() < planned { format!("{} of {planned}", self.rows()) } else { self.rows().to_string() }
    }

    /// The seconds a row as a power of the rows known, fitted to the trials that their budgets ended.
    fn law(&self) -> Option<(f64, f64)> {
        let ended = self.trials.iter().filter(|t| t.checkpoints.last().is_some_and(|c| c.n < t.planned));
        // Of each stretch, the middle. The first stretches are mostly what does not grow.
        let points: Vec<(f64, f64)> = ended
            .flat_map(|t| {
                let late = t.checkpoints.len() / 3;
                t.checkpoints.windows(2).skip(late).map(|pair| {
                    let middle = 0.5 * (pair[0].n + pair[1].n) as f64;
                    (t.warm_up as f64 + middle, pair[1].seconds)
                })
            })
            .collect();
        watch::power_law(&points)
    }

    /// What the rows would cost that the budget has left out, in hours, by a fitted power law.
    pub(crate) fn rest_text(&self) -> String {
        let (Some((a, k)), Some(t)) = (self.law(), self.trials.first()) else { return String::new() };
        let (from, to) = ((t.warm_up + self.rows()) as f64, (t.warm_up + t.planned) as f64);
        format!("{} (n^{k:.1})", duration(watch::integral((a, k), from, to)))
    }

    /// The fitted seconds a row from where the budget ended the curve to where it was to end.
    pub(crate) fn rest_line(&self) -> Option<Line> {
        let ((a, k), t) = (self.law()?, self.trials.first()?);
        let (from, to) = (self.rows() as f64, t.planned as f64);
        let x: Vec<f64> = (0..20).map(|i| from * (to / from).powf(f64::from(i) / 19.0)).collect();
        let y = x.iter().map(|n| 1e3 * a * (t.warm_up as f64 + n).powf(k)).collect();
        Some(Line { name: format!("{}, fitted", self.label), x, y, ..Line::default() })
    }
}

/// All checkpoints as CSV.
pub(crate) fn csv(curves: &[Curves]) -> String {
    let mut text =
        String::from("set,method,settings,trial,rows,seconds_per_row,rmse,nll,coverage95,planned\n");
    for c in curves {
        for (trial, course) in c.trials.iter().enumerate() {
            let settings = course.chosen.clone().unwrap_or_else(|| c.method.key());
            for p in &course.checkpoints {
                let (set, label) = (c.task, &c.label);
                let _ = writeln!(
                    text,
                    "{set},\"{label}\",\"{settings}\",{trial},{},{:.6e},{:.6},{:.6},{:.4},{}",
                    p.n, p.seconds, p.rmse, p.nll, p.coverage, course.planned
                );
            }
        }
    }
    text
}
