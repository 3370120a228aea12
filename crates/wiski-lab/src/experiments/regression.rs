//! Figure 3: test NLL and RMSE along the stream on the regression sets.

use super::{Curves, csv};
use crate::Options;
use crate::data::Table;
use crate::method::{Method, Task};
use crate::results::{Folder, Markdown, comparison, plus_minus};
use wiski_figures::{Figure, Lines};

/// The methods of a data set, each with the most rows it streams at the quick size.
///
/// The paper itself runs only WISKI and O-SVGP on its two largest sets. On the spatial sets it uses 1600 inducing
/// points, with which one step of O-SVGP or one of WISKI's every-row schedule takes (by the flops) seconds on a processor: there
/// O-SVGP has 256 points and WISKI 900 at the quick size, and WISKI refits at geometric times.
fn methods(task: &Task, options: &Options) -> Vec<(Method, usize)> {
    let whole = usize::MAX;
    let wiski = (Method::Wiski { grid: 16 }, whole);
    let defaults = |grid: usize| (Method::WiskiDefault { grid }, whole);
    let grid = options.pick(30, 40);
    let svgp = |full: usize| (Method::svgp(options.pick(256, full)), 600);
    match task.name {
        "protein" => vec![(wiski.0, 10_000), svgp(256), (defaults(16).0, 10_000)],
        "3droad_first5000" => {
            vec![(Method::WiskiDefault { grid }, whole), svgp(1600), (Method::ExactCholesky, 400)]
        }
        "dem_jacksboro" => vec![(Method::WiskiDefault { grid }, 4500), svgp(1600)],
        _ => vec![
            wiski,
            svgp(256),
            (Method::Sgpr { inducing: 256 }, 400),
            (Method::ExactCholesky, 400),
            (Method::Local { most: 256 }, 600),
            defaults(16),
        ],
    }
}

/// Runs the experiment.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let folder = Folder::open(&options.out, "regression")?;
    let mut all = Vec::new();
    for task in Task::ALL.iter().filter(|t| options.wants(t.name)) {
        let table = Table::regression(&options.data, task.name)?;
        for (method, most) in methods(task, options) {
            let most = options.pick(most, usize::MAX);
            all.push(Curves::collect(&folder, options, &table, task, method, most)?);
        }
    }
    folder.write("regression.csv", &csv(&all))?;
    let tasks: Vec<&str> = Task::ALL.iter().map(|t| t.name).filter(|name| options.wants(name)).collect();
    let mut text = Markdown::new(&[
        "set",
        "method",
        "rows streamed",
        "RMSE",
        "NLL",
        "coverage of 95 %",
        "RMSE of WISKI after as many rows",
    ]);
    for task in &tasks {
        let own: Vec<&Curves> = all.iter().filter(|c| c.task == *task).collect();
        for c in &own {
            let rival = own[0].at(c.rows(), |p| p.rmse).map_or("–".into(), |v| plus_minus(&v, 4));
            text.row(&[
                (*task).into(),
                c.label.clone(),
                c.rows().to_string(),
                plus_minus(&c.last(|p| p.rmse), 4),
                plus_minus(&c.last(|p| p.nll), 4),
                plus_minus(&c.last(|p| p.coverage), 3),
                rival,
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
        folder.draw(&format!("regression_{name}"), &comparison("", panels).draw())?;
    }
    Ok(())
}
