//! The rows of one or several series, and the rows ahead whose inputs are known.

use std::collections::HashMap;

use anyhow::{Result, bail, ensure};

use super::Forecast;
use super::clock::Clock;
use crate::input::{Row, Selection, Source, Target, TargetKind};
use crate::names;
use crate::reading::{self, BadRows};

/// One series.
#[derive(Debug, Clone, Default)]
pub(super) struct One {
    /// Its name; empty if the file holds a single one.
    pub(super) name: String,
    pub(super) times: Vec<f64>,
    /// The inputs known ahead, row by row.
    pub(super) inputs: Vec<f64>,
    /// Targets; NaN where one is missing.
    pub(super) targets: Vec<f64>,
    /// The times of the rows after the last target, and their inputs.
    pub(super) future: Vec<f64>,
    pub(super) future_inputs: Vec<f64>,
}

/// All that the file holds.
pub(super) struct Read {
    pub(super) clock: Clock,
    pub(super) inputs: Vec<String>,
    pub(super) series: Vec<One>,
}

/// Reads the file of a forecast.
pub(super) fn read(options: &Forecast) -> Result<Read> {
    let mut source = Source::open(&options.input, &options.reading.format)?;
    let inputs = options.inputs.as_deref().map_or_else(Vec::new, names::split);
    for name in &inputs {
        ensure!(*name != options.time, "--inputs: '{name}' is the column of times");
        ensure!(Some(name) != options.series.as_ref(), "--inputs: '{name}' names the series");
    }
    source.find(&options.time)?;
    source.find(&options.target)?;
    let clock = Clock::new(&options.time, source.is_numeric(&options.time)?, options.time_unit.as_deref())?;
    let key = options.series.as_deref().map(|name| source.find(name)).transpose()?;
    let selection = Selection {
        inputs: inputs.clone(),
        target: Some(Target { column: options.target.clone(), kind: TargetKind::Number, required: false }),
        time: Some(options.time.clone()),
        cells: key.is_some(),
        ..Selection::default()
    };
    let mut rows = source.select(&selection)?;
    rows.skip_to(options.reading.from_row)?;
    let mut bad = BadRows::new(options.reading.on_bad_row);
    let (mut series, mut places) = (Vec::<One>::new(), HashMap::new());
    let mut row = Row::default();
    while reading::next(&mut rows, &mut row, &mut bad)? {
        let name = key.and_then(|key| row.cells.iter().nth(key)).unwrap_or_default();
        let place = *places.entry(name.to_owned()).or_insert_with(|| {
            series.push(One { name: name.to_owned(), ..One::default() });
            series.len() - 1
        });
        let one = &mut series[place];
        let time = row.time.unwrap_or(0.0);
        if let Some(last) = one.times.last().filter(|last| time < **last) {
            let of = if one.name.is_empty() { String::new() } else { format!(" of series '{}'", one.name) };
            let what = format!(
                "{} row {}{of}: its time {time} is before {last}; rows must be in the order of time",
                rows.name(),
                row.number
            );
            bad.reject(row.number, what)?;
            continue;
        }
        one.times.push(time);
        one.inputs.extend_from_slice(&row.inputs);
        one.targets.push(row.target.unwrap_or(f64::NAN));
    }
    bad.report();
    if series.is_empty() {
        bail!("{}: there are no rows", rows.name());
    }
    for one in &mut series {
        one.split(inputs.len());
        let known = one.targets.iter().filter(|y| !y.is_nan()).count();
        let of = if one.name.is_empty() { String::new() } else { format!(", series '{}'", one.name) };
        ensure!(known >= 8, "{}{of}: {known} rows have a target, and at least 8 are needed", rows.name());
    }
    Ok(Read { clock, inputs, series })
}

impl One {
    /// Rows after the last target are rows ahead.
    fn split(&mut self, width: usize) {
        let end = self.targets.iter().rposition(|y| !y.is_nan()).map_or(0, |i| i + 1);
        self.future = self.times.split_off(end);
        self.future_inputs = self.inputs.split_off(end * width);
        self.targets.truncate(end);
    }

    /// The median of the gaps between times that differ.
    pub(super) fn step(&self) -> f64 {
        let mut gaps: Vec<f64> = self.times.windows(2).map(|w| w[1] - w[0]).filter(|g| *g > 0.0).collect();
        gaps.sort_by(f64::total_cmp);
        gaps.get(gaps.len() / 2).copied().unwrap_or(1.0)
    }
}
