//! Figure 2: seconds to learn a row against the number of rows, and RMSE, on powerplant.

use super::{Curves, csv};
use crate::Options;
use crate::data::Table;
use crate::method::{Method, Task};
use crate::results::{Folder, Markdown, comparison, plus_minus};
use wiski_figures::{Figure, Lines};

/// Runs the experiment.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let folder = Folder::open(&options.out, "timing")?;
    let task = Task::named("powerplant");
    let table = Table::regression(&options.data, task.name)?;
    let whole = usize::MAX;
    // Exact steps at n = 8000 take tens of seconds, hence the caps.
    let methods = [
        (Method::Wiski { grid: 16 }, whole),
        (Method::svgp(256), options.pick(600, whole)),
        (Method::ExactPcg, options.pick(600, whole)),
        (Method::ExactCholesky, options.pick(600, whole)),
        (Method::BatchSki, options.pick(200, whole)),
        (Method::WiskiDefault { grid: 16 }, whole),
    ];
    let mut curves = Vec::new();
    for (method, most) in methods.into_iter().filter(|(m, _)| options.wants(m.name())) {
        curves.push(Curves::collect(&folder, options, &table, &task, method, most)?);
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
    ]);
    for c in &curves {
        let ms: Vec<f64> = c.last(|p| 1e3 * p.seconds);
        let early = c.at(50, |p| 1e3 * p.seconds).map_or("–".into(), |v| plus_minus(&v, 2));
        text.row(&[
            c.label.clone(),
            c.rows().to_string(),
            early,
            plus_minus(&ms, 2),
            c.at(600, |p| p.rmse).map_or("–".into(), |v| plus_minus(&v, 4)),
            plus_minus(&c.last(|p| p.rmse), 4),
            plus_minus(&c.last(|p| p.nll), 4),
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
    let time = curves.iter().map(|c| c.bundle(|p| 1e3 * p.seconds, 50).line(&c.label)).collect();
    let rmse = curves.iter().map(|c| c.bundle(|p| p.rmse, 50).line(&c.label)).collect();
    let panels = vec![panel("milliseconds a row", true, time), panel("test RMSE", false, rmse)];
    folder.draw("timing", &comparison("powerplant", panels).draw())
}
