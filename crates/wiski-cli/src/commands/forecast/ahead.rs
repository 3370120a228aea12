//! `wiski predict` for the file of a forecaster: rows at later times, with the inputs that are known then.

use std::path::Path;

use anyhow::{Result, ensure};
use wiski::persist::{self, StoredSeries};

use crate::files::Inputs;
use crate::input::{Cells, Row, Selection, Source};
use crate::output::Output;
use crate::reading::{self, BadRows, ReadingOptions};

/// Whether a file holds a forecaster.
pub(crate) fn is_series(path: &Path) -> Result<bool> {
    Ok(persist::header(path)?.kind == "forecaster")
}

/// Adds mean, standard deviation and interval to rows ahead.
pub(crate) fn predict(
    path: &Path,
    input: &str,
    output: &str,
    level: f64,
    options: &ReadingOptions,
) -> Result<()> {
    let mut stored: StoredSeries = persist::load(path)?;
    if !stored.model.is_ready() {
        stored.model.fit()?;
    }
    let columns = &stored.columns;
    let time = columns.time.clone().unwrap_or_else(|| "time".into());
    let mut source = Source::open(input, &options.format)?;
    source.find(&time)?;
    let dated = !source.is_numeric(&time)?;
    let kind = |dated: bool| if dated { "dates" } else { "numbers" };
    if let Some(own) = stored.dated {
        let (found, wanted) = (kind(dated), kind(own));
        ensure!(own == dated, "{input}: '{time}' holds {found}, where the model has learned {wanted}");
    }
    Inputs::default().and("the model", path).and("the input", input).keep("--output", output)?;
    let mut out = Output::open(output)?;
    source.columns().iter().for_each(|name| out.text(name));
    ["mean", "std", "lower", "upper"].iter().for_each(|name| out.text(name));
    out.end_row()?;
    let selection = Selection {
        inputs: columns.inputs.clone(),
        time: Some(time.clone()),
        cells: true,
        ..Selection::default()
    };
    let mut rows = source.select(&selection)?;
    rows.skip_to(options.from_row)?;
    let mut bad = BadRows::new(options.on_bad_row);
    // All rows together: with lags a step needs those before it.
    let (mut cells, mut times, mut inputs) = (Vec::<Cells>::new(), Vec::new(), Vec::new());
    let mut before = stored.model.last_time().unwrap_or(f64::NEG_INFINITY);
    let mut row = Row::default();
    while reading::next(&mut rows, &mut row, &mut bad)? {
        let at = row.time.unwrap_or(f64::NAN);
        if at <= before {
            let what =
                if times.is_empty() { "the last that the model has learned" } else { "the row before" };
            bad.reject(
                row.number,
                format!("{} row {}, column '{time}': it is not later than {what}", rows.name(), row.number),
            )?;
            continue;
        }
        before = at;
        cells.push(row.cells.clone());
        times.push(at);
        inputs.extend_from_slice(&row.inputs);
    }
    bad.report();
    let ahead = stored.model.forecast_at(&times, &inputs, level)?;
    for (k, cells) in cells.iter().enumerate() {
        out.cells(cells);
        [ahead.mean[k], ahead.std[k], ahead.lower[k], ahead.upper[k]].iter().for_each(|v| out.number(*v));
        out.end_row()?;
    }
    Ok(out.finish()?)
}
