//! Figure 5a and the appendix on Bayesian optimization: noisy functions of three variables, three points at a time; and
//! simple regret at equal evaluations, where the grid's approximation would show.

use crate::results::{Bundle, Folder, Markdown, comparison, median, plus_minus, processor_seconds, progress};
use crate::search::{Rules, Searcher};
use crate::{Options, watch};
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use wiski::decide::{Acquisition, Maximizer, Space, TestFunction};
use wiski_figures::Lines;

const DIM: usize = 3;
const INITIAL: usize = 5;
const BATCH: usize = 3;

/// The paper's functions with the standard deviations of their noise.
const NOISY: [(TestFunction, f64); 6] = [
    (TestFunction::Levy, 10.0),
    (TestFunction::Ackley, 4.0),
    (TestFunction::StyblinskiTang, 20.0),
    (TestFunction::Rastrigin, 10.0),
    (TestFunction::Griewank, 4.0),
    (TestFunction::Michalewicz, 5.0),
];

/// qUCB maximized as in the paper: 512 raw samples, 10 restarts, 200 iterations.
const PAPER: Rules = Rules {
    acquisition: Acquisition::UpperConfidence { beta: 4.0 },
    samples: 128,
    maximizer: Maximizer { raw_samples: 512, restarts: 10, iterations: 200 },
};

/// Expected improvement for functions without noise, maximized less hard: there are hundreds of runs.
const REGRET: Rules = Rules {
    acquisition: Acquisition::LogExpectedImprovement,
    samples: 128,
    maximizer: Maximizer { raw_samples: 256, restarts: 4, iterations: 100 },
};

fn name(function: TestFunction) -> &'static str {
    TestFunction::ALL.iter().find(|(_, f)| *f == function).map_or("", |(name, _)| name)
}

/// A function with noise as a search sees it: on [−1, 1]^d, with large values wanted.
struct Problem {
    function: TestFunction,
    space: Space,
    noise: f64,
    rng: Xoshiro256PlusPlus,
}

impl Problem {
    fn new(function: TestFunction, dim: usize, noise: f64, seed: u64) -> anyhow::Result<Self> {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_mul(7919).wrapping_add(13));
        Ok(Self { function, space: function.space(dim)?, noise, rng })
    }

    /// Uniform points to begin with: the same for every method with the same seed.
    fn first(&mut self) -> Vec<f64> {
        (0..INITIAL * self.space.dim()).map(|_| self.rng.random_range(-1.0..=1.0)).collect()
    }

    /// The function itself, to be small.
    fn latent(&self, x: &[f64]) -> f64 {
        let unit: Vec<f64> = x.iter().map(|x| (0.5 * (x + 1.0)).clamp(0.0, 1.0)).collect();
        self.function.value(&self.space.values(&unit))
    }

    fn observe(&mut self, x: &[f64]) -> Vec<f64> {
        let d = self.space.dim();
        let points: Vec<&[f64]> = x.chunks_exact(d).collect();
        points
            .into_iter()
            .map(|x| {
                let e: f64 = self.rng.sample(StandardNormal);
                -self.latent(x) + self.noise * e
            })
            .collect()
    }

    /// The smallest latent value at points, and at earlier ones.
    fn best(&self, x: &[f64], before: f64) -> f64 {
        x.chunks_exact(self.space.dim()).map(|x| self.latent(x)).fold(before, f64::min)
    }
}

/// One step of a search.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Step {
    /// Seconds on the processor to propose, learn and refit.
    seconds: f64,
    /// The smallest latent value among all points so far.
    best: f64,
    /// The latent value at the recommended point, every [`LOOK`] steps.
    recommended: Option<f64>,
}

const LOOK: usize = 25;

fn run_one(
    method: Searcher,
    rules: Rules,
    problem: &mut Problem,
    (q, steps): (usize, usize),
    seed: u64,
) -> anyhow::Result<Vec<Step>> {
    let x = problem.first();
    let y = problem.observe(&x);
    let mut best = problem.best(&x, f64::INFINITY);
    let mut search = method.start(problem.space.dim(), rules, &x, &y, seed)?;
    let mut all = Vec::with_capacity(steps);
    let bar = progress(&format!("{} {} {seed}", name(problem.function), method.name()), steps);
    watch::expect(steps, y.len() / q, method.growth());
    for step in 1..=steps {
        // The search ends where its budget does.
        let is_last = !watch::row(step - 1, steps)? || step == steps;
        let start = processor_seconds();
        let x = search.propose(q, seed.wrapping_mul(1_000_003).wrapping_add(step as u64))?;
        let proposed = processor_seconds() - start;
        let y = problem.observe(&x);
        best = problem.best(&x, best);
        let start = processor_seconds();
        search.learn(&x, &y)?;
        let seconds = proposed + processor_seconds() - start;
        let look = step % LOOK == 0 || is_last;
        let recommended = if look { search.recommend()?.map(|x| problem.latent(&x)) } else { None };
        all.push(Step { seconds, best, recommended });
        bar.inc(1);
        if is_last {
            break;
        }
    }
    bar.finish_and_clear();
    Ok(all)
}

/// All trials of a method on a function.
struct Course {
    function: TestFunction,
    method: Searcher,
    trials: Vec<Vec<Step>>,
}

impl Course {
    /// The steps of every trial.
    fn steps(&self) -> usize {
        self.trials.iter().map(Vec::len).min().unwrap_or(0)
    }

    /// Mean seconds of the steps in a range, for each trial.
    fn seconds(&self, from: usize, to: usize) -> Vec<f64> {
        let mean = |t: &Vec<Step>| {
            let part = &t[from.min(t.len())..to.min(t.len())];
            part.iter().map(|s| s.seconds).sum::<f64>() / part.len().max(1) as f64
        };
        self.trials.iter().map(mean).collect()
    }

    fn at(&self, step: usize, of: impl Fn(&Step) -> Option<f64>) -> Option<Vec<f64>> {
        self.trials.iter().map(|t| t.get(step.checked_sub(1)?).and_then(&of)).collect()
    }

    /// A curve at every tenth step: the value there, or the mean over the ten steps.
    fn bundle(&self, of: impl Fn(&[Step]) -> f64) -> Bundle {
        let curve = |t: &Vec<Step>| {
            t.chunks_exact(10).enumerate().map(|(i, ten)| (10.0 * (i + 1) as f64, of(ten))).collect()
        };
        Bundle { trials: self.trials.iter().map(curve).collect() }
    }
}

/// Runs the experiment.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let folder = Folder::open(options, "optimization")?;
    let wanted: Vec<(TestFunction, f64)> =
        NOISY.into_iter().filter(|(f, _)| options.wants(name(*f))).collect();
    let courses = courses(&folder, options, &wanted)?;
    if !courses.is_empty() {
        report(&folder, &courses)?;
    }
    if options.only.is_empty() || options.only.iter().any(|part| part.starts_with("regret")) {
        regret(&folder, options)?;
    }
    Ok(())
}

/// Quick: three trials, 1500 steps for WISKI, 250 for the exact process, whose time grows, and 50 for O-SVGP with 128
/// inducing points. Full: four trials of 1500 steps with 1000 grid or inducing points.
fn courses(
    folder: &Folder,
    options: &Options,
    wanted: &[(TestFunction, f64)],
) -> anyhow::Result<Vec<Course>> {
    let mut all = Vec::new();
    for &(function, noise) in wanted {
        let svgp = Searcher::Svgp { inducing: options.pick(128, 1000), steps: 10 };
        let mut methods = vec![
            (Searcher::Wiski { grid: 10 }, 1500),
            (Searcher::Exact, options.pick(250, 1500)),
            (svgp, options.pick(50, 1500)),
        ];
        // wiski's optimizer as it comes: exact at the beginning, on grids from 500 results on.
        methods.extend(options.pick(None, Some((Searcher::Product, 1500))));
        for (method, steps) in methods {
            let steps = steps.min(options.most_rows.unwrap_or(steps));
            let setup = format!("{function:?} {noise} {} {PAPER:?} steps {steps}", method.setup());
            let key =
                |seed: u64| format!("{}-{}-{}-{seed}", name(function), method.key(), options.size_name());
            let run = |seed: u64| {
                let mut problem = Problem::new(function, DIM, noise, seed)?;
                run_one(method, PAPER, &mut problem, (BATCH, steps), seed)
            };
            let trials: Vec<Vec<Step>> = folder.trials(options.seeds_of(3, 4), &setup, key, run)?;
            if !trials.is_empty() {
                all.push(Course { function, method, trials });
            }
        }
    }
    Ok(all)
}

fn report(folder: &Folder, courses: &[Course]) -> anyhow::Result<()> {
    let mut csv = String::from("function,method,trial,step,seconds,best_latent,recommended_latent\n");
    let mut text = Markdown::new(&[
        "function",
        "method",
        "steps",
        "best after 50 steps",
        "best after 250 steps",
        "best at the end",
        "recommended at the end",
        "s a step, 40 to 60",
        "s a step, last 50",
        "s in all",
    ]);
    for c in courses {
        for (trial, steps) in c.trials.iter().enumerate() {
            for (i, s) in steps.iter().enumerate() {
                let recommended = s.recommended.map_or(String::new(), |v| format!("{v:.6}"));
                let (function, method) = (name(c.function), c.method.name());
                let (step, seconds, best) = (i + 1, s.seconds, s.best);
                let _ =
                    writeln!(csv, "{function},{method},{trial},{step},{seconds:.6},{best:.6},{recommended}");
            }
        }
        let last = c.steps();
        let total: Vec<f64> = c.trials.iter().map(|t| t.iter().map(|s| s.seconds).sum()).collect();
        let value = |v: Option<Vec<f64>>| v.map_or("–".into(), |v| plus_minus(&v, 3));
        text.row(&[
            name(c.function).into(),
            c.method.name().into(),
            last.to_string(),
            value(c.at(50, |s| Some(s.best))),
            value(c.at(250, |s| Some(s.best))),
            value(c.at(last, |s| Some(s.best))),
            value(c.trials.iter().map(|t| t.last().and_then(|s| s.recommended)).collect()),
            plus_minus(&c.seconds(40, 60), 3),
            plus_minus(&c.seconds(last.saturating_sub(50), last), 3),
            plus_minus(&total, 1),
        ]);
    }
    folder.write("optimization.csv", &csv)?;
    folder.table("optimization", &text)?;
    for (title, file, log_y, of) in [
        ("best latent value so far", "best", false, (|ten| ten[9].best) as fn(&[Step]) -> f64),
        ("seconds a step", "seconds", true, |ten| ten.iter().map(|s| s.seconds).sum::<f64>() / 10.0),
    ] {
        let mut functions: Vec<TestFunction> = courses.iter().map(|c| c.function).collect();
        functions.dedup();
        let panel = |f: &TestFunction| Lines {
            title: name(*f).into(),
            x_label: "step".into(),
            y_label: title.into(),
            log_x: true,
            log_y,
            lines: courses
                .iter()
                .filter(|c| c.function == *f)
                .map(|c| c.bundle(of).line(c.method.name()))
                .collect(),
            ..Lines::default()
        };
        let panels = functions.iter().map(panel).collect();
        folder.draw(&format!("optimization_{file}"), &comparison(title, panels))?;
    }
    Ok(())
}

/// Functions without noise, their dimensions, the grid points on an axis and the evaluations after the first five.
const CLEAN: [(TestFunction, usize, usize, usize); 9] = [
    (TestFunction::Branin, 2, 20, 35),
    (TestFunction::Hartmann, 3, 10, 45),
    (TestFunction::Levy, 3, 10, 45),
    (TestFunction::Ackley, 3, 10, 45),
    (TestFunction::StyblinskiTang, 3, 10, 45),
    (TestFunction::Rastrigin, 3, 10, 45),
    (TestFunction::Griewank, 3, 10, 45),
    (TestFunction::Michalewicz, 3, 10, 45),
    (TestFunction::Hartmann, 6, 8, 75),
];

/// The median distance to the optimum after so many evaluations, one at a time. In six dimensions WISKI is always
/// local.
fn regret(folder: &Folder, options: &Options) -> anyhow::Result<()> {
    let mut csv = String::from("function,dimensions,method,trial,evaluations,regret\n");
    let mut text = Markdown::new(&[
        "function",
        "dimensions",
        "evaluations",
        "WISKI",
        "WISKI, local",
        "Exact (Cholesky)",
        "wiski as it comes",
        "Random",
    ]);
    for (function, dim, grid, steps) in CLEAN {
        let part = format!("regret-{}{dim}", name(function));
        if !options.wants("regret") && !options.wants(&part) {
            continue;
        }
        let optimum = function.optimum(dim).unwrap_or(f64::NAN);
        let mut cells = vec![name(function).to_string(), dim.to_string(), (steps + INITIAL).to_string()];
        let steps = steps.min(options.most_rows.unwrap_or(steps));
        for method in [
            Searcher::Wiski { grid },
            Searcher::Local { grid },
            Searcher::Exact,
            Searcher::Product,
            Searcher::Random,
        ] {
            let setup = format!("{function:?} {dim} {} {REGRET:?} steps {steps}", method.setup());
            let key = |seed: u64| format!("regret-{}{dim}-{}-{seed}", name(function), method.key());
            let run = |seed: u64| {
                let mut problem = Problem::new(function, dim, 0.0, seed)?;
                run_one(method, REGRET, &mut problem, (1, steps), seed)
            };
            let seeds = options.seeds_of(11, 20);
            let courses: Vec<Vec<Step>> = folder.trials(seeds.clone(), &setup, key, run)?;
            let mut regrets = Vec::new();
            for (seed, course) in seeds.zip(&courses) {
                for (i, s) in course.iter().enumerate() {
                    let (method, n) = (method.name(), INITIAL + i + 1);
                    let _ = writeln!(
                        csv,
                        "{},{dim},{method},{seed},{n},{:.6e}",
                        name(function),
                        s.best - optimum
                    );
                }
                regrets.extend(course.last().map(|s| s.best - optimum));
            }
            cells.push(if regrets.is_empty() { "–".into() } else { format!("{:.3e}", median(regrets)) });
        }
        text.row(&cells);
    }
    folder.write("regret.csv", &csv)?;
    folder.table("regret", &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A whole run at a tiny size: files are there, and a second run only reads.
    #[test]
    fn a_course_is_recorded_step_by_step() {
        let rules = Rules { maximizer: Maximizer { raw_samples: 16, restarts: 1, iterations: 5 }, ..PAPER };
        let run = || {
            let mut problem = Problem::new(TestFunction::Branin, 2, 0.5, 3).unwrap();
            run_one(Searcher::Exact, rules, &mut problem, (2, 26), 3).unwrap()
        };
        let (one, two) = (run(), run());
        assert_eq!(one.len(), 26);
        assert!(one.windows(2).all(|w| w[1].best <= w[0].best) && one[25].best >= 0.397_887);
        assert!(
            one[24].recommended.is_some() && one[25].recommended.is_some() && one[0].recommended.is_none()
        );
        let best = |run: &[Step]| run.iter().map(|s| s.best).collect::<Vec<_>>();
        assert_eq!(best(&one), best(&two), "the same seed gives the same course");
    }
}
