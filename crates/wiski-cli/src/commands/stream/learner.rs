//! A model that learns in memory, or with a journal.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use wiski::model::{ClassPrediction, Upkeep};
use wiski::persist::{Answer, Durable, DurableOptions, Model, Row, Stored, Sync};

use crate::input;

/// How rows are made safe.
#[derive(Args, Debug, Clone)]
pub(crate) struct JournalOptions {
    /// Log every row to a folder before it is learned, and recover from there after a crash
    #[arg(long, value_name = "DIR")]
    pub(crate) journal: Option<PathBuf>,

    /// With --journal: skip as many rows of the input as the journal already holds
    #[arg(long = "continue", requires = "journal")]
    go_on: bool,

    /// When the journal is forced to the disk: row, off, or a number of seconds
    #[arg(long, value_name = "WHEN", default_value = "1", requires = "journal")]
    sync: String,

    /// Write a snapshot and empty the journal after so many rows
    #[arg(long, value_name = "ROWS", default_value_t = 50_000, requires = "journal")]
    compact_after: u64,
}

impl JournalOptions {
    /// Whether rows that the journal holds are to be skipped.
    pub(crate) fn goes_on(&self) -> bool {
        self.go_on
    }

    pub(crate) fn durable(&self, keep_rejected: bool) -> Result<DurableOptions> {
        let sync = match self.sync.as_str() {
            "row" => Sync::EveryRow,
            "off" => Sync::Never,
            text => match text.parse::<f64>() {
                Ok(seconds) if seconds > 0.0 && seconds < 1e9 => {
                    Sync::Every(Duration::from_secs_f64(seconds))
                }
                _ => bail!("--sync: '{text}' is not row, off or a number of seconds"),
            },
        };
        Ok(DurableOptions { sync, compact_after: self.compact_after.max(1), keep_rejected })
    }
}

pub(crate) enum Learner {
    Memory(Box<Stored>),
    Journal { durable: Box<Durable>, skip: u64 },
}

impl Learner {
    /// A learner; with a journal, `keep_rejected` says whether rows that the model rejects count as seen.
    pub(crate) fn new(stored: Stored, options: &JournalOptions, keep_rejected: bool) -> Result<Self> {
        let Some(folder) = &options.journal else { return Ok(Self::Memory(Box::new(stored))) };
        let (columns, settings) = (stored.columns.clone(), settings(&stored.model).clone());
        let classes = matches!(stored.model, Model::Classifier(_));
        let (durable, recovered) = Durable::open(folder, options.durable(keep_rejected)?, || Ok(stored))?;
        let found = durable.stored();
        if found.columns != columns {
            bail!("{}: the journal has other columns than were asked for", folder.display());
        }
        if matches!(found.model, Model::Classifier(_)) != classes {
            let kind = if classes { "numbers, not classes" } else { "classes, not numbers" };
            bail!("{}: the journal's model predicts {kind}", folder.display());
        }
        let total = recovered.from_snapshot + recovered.replayed;
        if total > 0 {
            let torn = match recovered.dropped_bytes {
                0 => "",
                _ => "; an incomplete last row was dropped",
            };
            eprintln!(
                "wiski: {} rows recovered, {} of them from the journal{torn}",
                total, recovered.replayed
            );
            if !same_options(&settings, self::settings(&found.model)) {
                eprintln!(
                    "wiski: the journal's model goes on with its own settings, not with those given now"
                );
            }
        }
        let skip = if options.go_on { durable.rows() } else { 0 };
        Ok(Self::Journal { durable: Box::new(durable), skip })
    }

    pub(crate) fn stored(&self) -> &Stored {
        match self {
            Self::Memory(stored) => stored,
            Self::Journal { durable, .. } => durable.stored(),
        }
    }

    /// The number of rows of the input that are known already.
    pub(crate) fn rows_to_skip(&self) -> u64 {
        match self {
            Self::Memory(_) => 0,
            Self::Journal { skip, .. } => *skip,
        }
    }

    /// What the model says about a row before it is learned; `None` during the warm-up and where it cannot say.
    pub(crate) fn peek(&self, row: &input::Row) -> Option<Answer> {
        let stored = self.stored();
        if !stored.model.is_ready() {
            return None;
        }
        stored.model.predict_noisy(&row.inputs, row.noise).ok()
    }

    /// Whether rows are learned faster if they are known before.
    pub(crate) fn gains_by_preparing(&self) -> bool {
        self.stored().model.gains_by_preparing()
    }

    /// Takes note of the inputs of rows that come next; nothing is learned of them.
    pub(crate) fn prepare_rows(&mut self, inputs: &[f64]) {
        match self {
            Self::Memory(stored) => stored.model.prepare_rows(inputs),
            Self::Journal { durable, .. } => durable.prepare_rows(inputs),
        }
    }

    pub(crate) fn step(&mut self, row: &Row) -> wiski::Result<Option<Answer>> {
        match self {
            Self::Memory(stored) => stored.step(row),
            Self::Journal { durable, .. } => durable.step(row),
        }
    }

    /// Whether rows wait for searches and refits.
    pub(crate) fn set_upkeep(&mut self, upkeep: Upkeep) {
        match self {
            Self::Memory(stored) => stored.model.set_upkeep(upkeep),
            Self::Journal { durable, .. } => durable.set_upkeep(upkeep),
        }
    }

    /// Waits for what runs beside the stream.
    pub(crate) fn finish_upkeep(&mut self) {
        if let Self::Memory(stored) = self {
            stored.model.finish_upkeep();
        }
    }

    /// What went wrong beside the rows since the last call.
    pub(crate) fn take_failure(&mut self) -> Option<wiski::Error> {
        match self {
            Self::Memory(stored) => stored.model.take_failure(),
            Self::Journal { durable, .. } => durable.take_failure(),
        }
    }

    /// Brings everything to the disk; what the model has become.
    pub(crate) fn finish(self) -> Result<Stored> {
        Ok(match self {
            Self::Memory(stored) => *stored,
            Self::Journal { mut durable, .. } => {
                durable.compact()?;
                durable.stored().clone()
            }
        })
    }
}

fn settings(model: &Model) -> &wiski::Settings {
    match model {
        Model::Regressor(model) => model.settings(),
        Model::Classifier(model) => model.settings(),
    }
}

/// The drift detector's sums are state, not a setting.
fn same_options(a: &wiski::Settings, b: &wiski::Settings) -> bool {
    let plain = |s: &wiski::Settings| wiski::Settings { drift: None, upkeep: Upkeep::Wait, ..s.clone() };
    plain(a) == plain(b)
}

/// How often the hyperparameters were refitted.
pub(crate) fn refits(model: &Model) -> usize {
    match model {
        Model::Regressor(model) => model.refits(),
        Model::Classifier(model) => model.refits(),
    }
}

/// How often drift was signalled.
pub(crate) fn drifts(model: &Model) -> u64 {
    match model {
        Model::Regressor(model) => model.drifts(),
        Model::Classifier(_) => 0,
    }
}

/// The probability that was given to a label; `None` for one that was not known then.
pub(crate) fn probability(prediction: &ClassPrediction, label: &str, stored: &Stored) -> Option<f64> {
    let Model::Classifier(model) = &stored.model else { return None };
    let class = model.classes().iter().position(|c| c == label)?;
    prediction.probabilities.get(class).copied()
}
