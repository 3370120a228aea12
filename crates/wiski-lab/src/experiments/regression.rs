//! Figure 3: test NLL and RMSE along the stream on the regression sets.

use super::{Curves, Entry, csv};
use crate::Options;
use crate::baselines::Pace;
use crate::method::{Method, Task};
use crate::results::{Folder, Markdown, comparison, plus_minus};
use wiski_figures::Lines;

/// The methods of a data set, each with the most rows it streams at the quick size.
///
/// The paper itself runs only WISKI and O-SVGP on its two largest sets. On the spatial sets it uses 1600 inducing
/// points, with which one step of O-SVGP or one of WISKI's every-row schedule takes (by the flops) seconds on a processor: there
/// O-SVGP has 256 points and WISKI 900 at the quick size, and WISKI refits at geometric times.
fn quick(task: &Task) -> Vec<Entry> {
    let wiski = Method::Wiski { grid: 16 };
    let defaults = Method::WiskiDefault { grid: 16 };
    let svgp = Entry::up_to(Method::svgp(256), 600);
    let spatial = Method::WiskiDefault { grid: 30 };
    match task.name {
        "protein" | "kin40k" => vec![Entry::up_to(wiski, 10_000), svgp, Entry::up_to(defaults, 10_000)],
        "3droad_first5000" => {
            vec![Entry::whole(spatial), svgp, Entry::up_to(Method::ExactCholesky, 400)]
        }
        "dem_jacksboro" | "3droad" => vec![Entry::up_to(spatial, 4500), svgp],
        _ => vec![
            Entry::whole(wiski),
            svgp,
            Entry::up_to(Method::sgpr(256), 400),
            Entry::up_to(Method::ExactCholesky, 400),
            Entry::up_to(Method::local(256), 600),
            Entry::whole(defaults),
        ],
    }
}

/// The methods at full size: every one sees all rows that its budget lets it. Baselines with settings come twice, as the
/// paper has them and with those that are best on validation rows; wiski comes three times, with the paper's learning, with
/// its own on the paper's features, and as it comes. The jitter of O-SGPR as published is the paper's.
fn full(task: &Task) -> Vec<Entry> {
    let (wiski, defaults) = (Method::Wiski { grid: 16 }, Method::WiskiDefault { grid: 16 });
    let all: Vec<(Method, bool)> = match task.name {
        "protein" | "kin40k" => vec![
            (wiski, false),
            (Method::svgp(256), false),
            (Method::svgp(256), true),
            (defaults, false),
            (Method::Product, false),
        ],
        "3droad_first5000" | "dem_jacksboro" | "3droad" => vec![
            (Method::WiskiDefault { grid: 40 }, false),
            (Method::Wiski { grid: 40 }, false),
            (Method::svgp(1600), false),
            (Method::svgp(256), true),
            (Method::ExactCholesky, false),
            (Method::Product, false),
        ],
        _ => vec![
            (wiski, false),
            (Method::svgp(256), false),
            (Method::svgp(256), true),
            (Method::sgpr(256), false),
            (Method::sgpr(256), true),
            (Method::Sgpr { inducing: 256, pace: Pace::PAPER, published: Some(0.01) }, false),
            (Method::ExactCholesky, false),
            (Method::local(256), false),
            (Method::local(256), true),
            (defaults, false),
            (Method::Product, false),
        ],
    };
    all.into_iter()
        .map(|(method, best)| if best { Entry::best(method) } else { Entry::whole(method) })
        .collect()
}

/// Runs the experiment.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let folder = Folder::open(options, "regression")?;
    let mut all = Vec::new();
    let available = Task::available(&options.data);
    for task in available.iter().filter(|t| options.wants(t.name)) {
        let table = options.table(task.name)?;
        for entry in options.pick(quick as fn(&Task) -> Vec<Entry>, full)(task) {
            let curves = Curves::collect(&folder, options, &table, task, entry)?;
            if !curves.trials.is_empty() {
                all.push(curves);
            }
        }
    }
    folder.write("regression.csv", &csv(&all))?;
    let mut tasks: Vec<&str> = all.iter().map(|c| c.task).collect();
    tasks.dedup();
    let mut text = Markdown::new(&[
        "set",
        "method",
        "rows streamed",
        "RMSE",
        "NLL",
        "coverage of 95 %",
        "RMSE of WISKI after as many rows",
        "trials",
        "ms a row",
        "the rest would take",
    ]);
    for task in &tasks {
        let own: Vec<&Curves> = all.iter().filter(|c| c.task == *task).collect();
        for c in &own {
            let rival = own[0].at(c.rows(), |p| p.rmse).map_or("–".into(), |v| plus_minus(&v, 4));
            text.row(&[
                (*task).into(),
                c.label.clone(),
                c.rows_text(),
                plus_minus(&c.last(|p| p.rmse), 4),
                plus_minus(&c.last(|p| p.nll), 4),
                plus_minus(&c.last(|p| p.coverage), 3),
                rival,
                c.trials.len().to_string(),
                plus_minus(&c.last(|p| 1e3 * p.seconds), 2),
                c.rest_text(),
            ]);
        }
    }
    folder.table("regression", &text)?;
    for (measure, name) in [("RMSE", "rmse"), ("NLL", "nll")] {
        let panel = |task: &&str| Lines {
            title: (*task).into(),
            x_label: "rows streamed".into(),
            y_label: format!("test {measure}"),
            log_x: true,
            lines: all
                .iter()
                .filter(|c| c.task == *task)
                .map(|c| c.bundle(|p| if name == "nll" { p.nll } else { p.rmse }, 50).line(&c.label))
                .collect(),
            ..Lines::default()
        };
        let panels = tasks.iter().map(panel).collect();
        folder.draw(&format!("regression_{name}"), &comparison("", panels))?;
    }
    Ok(())
}
