//! Figure 2: seconds to learn a row against the number of rows, and RMSE, on powerplant.

use super::{Curves, Entry, csv};
use crate::Options;
use crate::data::{Split, Table};
use crate::method::{Method, RankCourse, Task, ranks};
use crate::results::{Folder, Markdown, comparison, plus_minus};
use wiski_figures::{Line, Lines};

/// Runs the experiment.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let folder = Folder::open(options, "timing")?;
    let task = Task::named("powerplant");
    let table = options.table(task.name)?;
    let whole = usize::MAX;
    // Exact steps at n = 8000 take tens of seconds, hence the caps; at full size the budget ends them.
    let mut methods = vec![
        Entry::whole(Method::Wiski { grid: 16 }),
        Entry::up_to(Method::svgp(256), options.pick(600, whole)),
        Entry::up_to(Method::ExactPcg, options.pick(600, whole)),
        Entry::up_to(Method::ExactCholesky, options.pick(600, whole)),
        Entry::up_to(Method::BatchSki, options.pick(200, whole)),
        Entry::whole(Method::WiskiDefault { grid: 16 }),
    ];
    methods.extend(options.pick(None, Some(Entry::whole(Method::Product))));
    let mut curves = Vec::new();
    for entry in methods.into_iter().filter(|e| options.wants(e.method.name())) {
        let collected = Curves::collect(&folder, options, &table, &task, entry)?;
        if !collected.trials.is_empty() {
            curves.push(collected);
        }
    }
    if options.wants("rank") {
        along(options, &folder, &task, &table)?;
    }
    folder.write("timing.csv", &csv(&curves))?;
    let mut text = Markdown::new(&[
        "method",
        "rows streamed",
        "ms a row, first 50",
        "ms a row, last stretch",
        "RMSE after 600 rows",
        "final RMSE",
        "final NLL",
        "the rest would take",
    ]);
    for c in &curves {
        let ms: Vec<f64> = c.last(|p| 1e3 * p.seconds);
        let early = c.at(50, |p| 1e3 * p.seconds).map_or("–".into(), |v| plus_minus(&v, 2));
        text.row(&[
            c.label.clone(),
            c.rows_text(),
            early,
            plus_minus(&ms, 2),
            c.at(600, |p| p.rmse).map_or("–".into(), |v| plus_minus(&v, 4)),
            plus_minus(&c.last(|p| p.rmse), 4),
            plus_minus(&c.last(|p| p.nll), 4),
            c.rest_text(),
        ]);
    }
    folder.table("timing", &text)?;
    let panel = |title: &str, log_y: bool, lines| Lines {
        title: title.into(),
        x_label: "rows streamed".into(),
        log_x: true,
        log_y,
        lines,
        ..Lines::default()
    };
    let own = |c: &Curves| c.bundle(|p| 1e3 * p.seconds, 50).line(&c.label);
    let time = curves.iter().map(own).chain(curves.iter().filter_map(Curves::rest_line)).collect();
    let rmse = curves.iter().map(|c| c.bundle(|p| p.rmse, 50).line(&c.label)).collect();
    let panels = vec![panel("milliseconds a row", true, time), panel("test RMSE", false, rmse)];
    folder.draw("timing", &comparison("powerplant", panels))
}

/// Why a row of WISKI takes longer late than early, if it does: the rank of the prior and what it comes from, along the
/// stream.
fn along(options: &Options, folder: &Folder, task: &Task, table: &Table) -> anyhow::Result<()> {
    let run = |seed: u64| ranks(task, 16, &Split::paper(table, seed, 1), seed);
    let setup = format!("{task:?} grid 16 of {}", table.len());
    let key = |seed: u64| format!("rank-{}-{seed}", options.size_name());
    let courses: Vec<RankCourse> = folder.trials(options.seeds(), &setup, key, run)?;
    let Some(first) = courses.first() else { return Ok(()) };
    let mut text = Markdown::new(&["rows", "ms a row", "rank", "noise", "shortest length-scale"]);
    let mut lines = vec![
        Line { name: "rank".into(), ..Line::default() },
        Line { name: "µs a row".into(), ..Line::default() },
    ];
    for (i, at) in first.iter().enumerate().filter(|(_, at)| at.rows > 0) {
        let all = |f: fn(&crate::method::RankPoint) -> f64| -> Vec<f64> {
            courses.iter().filter_map(|c| c.get(i)).map(f).collect()
        };
        text.row(&[
            at.rows.to_string(),
            plus_minus(&all(|p| 1e3 * p.seconds), 3),
            plus_minus(&all(|p| p.rank), 1),
            plus_minus(&all(|p| p.noise), 4),
            plus_minus(&all(|p| p.lengthscale), 3),
        ]);
        for (line, values) in lines.iter_mut().zip([all(|p| p.rank), all(|p| 1e6 * p.seconds)]) {
            line.x.push(at.rows as f64);
            line.y.push(values.iter().sum::<f64>() / values.len() as f64);
        }
    }
    folder.table("rank", &text)?;
    let panel = Lines { x_label: "rows streamed".into(), log_x: true, lines, ..Lines::default() };
    folder.draw("rank", &comparison("WISKI on powerplant, a step for every row", vec![panel]))
}
