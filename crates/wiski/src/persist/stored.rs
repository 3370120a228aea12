//! A model of named columns: what the command line and the bindings keep in a file, and the rows it learns.

use serde::{Deserialize, Serialize};

use crate::conformal::{Horizon, Interval};
use crate::error::{Error, Result, length};
use crate::model::{
    ClassPrediction, NoiseModel, OnlineClassifier, OnlineRegressor, Remark, Settings, Upkeep, UpkeepStage,
};
use crate::posterior::Prediction;
use crate::saved::{Restore, restored_after_reading};

/// The names of the columns of a model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Columns {
    /// The inputs, in order.
    pub inputs: Vec<String>,
    /// Where each input comes from; empty if each is the number in the column of its name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<InputSource>,
    /// What is predicted.
    pub target: String,
    /// The known noise variance of each row, if there is one.
    pub noise: Option<String>,
    /// The time of each row, if there is one.
    pub time: Option<String>,
    /// What the labels of classes are, where the target is a class.
    #[serde(default)]
    pub labels: LabelKind,
}

impl Columns {
    /// Those of a series whose file has no names: `time`, `y` and so many inputs `x1`, `x2`, …
    pub fn of_series(inputs: usize) -> Self {
        Self {
            inputs: (1..=inputs).map(|i| format!("x{i}")).collect(),
            target: "y".into(),
            time: Some("time".into()),
            ..Self::default()
        }
    }
}

/// What the labels of classes are to the user; a model knows them by their text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LabelKind {
    /// Text, as it stands in a file.
    #[default]
    Text,
    /// Whole numbers.
    Integer,
    /// Numbers.
    Number,
    /// True and false.
    Boolean,
}

impl Columns {
    /// The column of the data that each input is read from.
    pub fn source_columns(&self) -> Vec<&str> {
        if self.sources.is_empty() {
            return self.inputs.iter().map(String::as_str).collect();
        }
        self.sources.iter().map(|source| source.column.as_str()).collect()
    }

    /// How the input with this number is read.
    pub fn reading(&self, input: usize) -> &Reading {
        self.sources.get(input).map_or(&Reading::Number, |source| &source.reading)
    }

    fn check(&self) -> Result<()> {
        if !self.sources.is_empty() {
            length("sources of the inputs", self.inputs.len(), self.sources.len())?;
        }
        for (name, source) in self.inputs.iter().zip(&self.sources) {
            if let Reading::Levels(levels) = &source.reading
                && levels.len() < 2
            {
                let reason = format!("{} levels, where at least two are needed", levels.len());
                return Err(Error::Config { field: name.clone(), reason });
            }
        }
        Ok(())
    }
}

/// A column of the data and how an input is read from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputSource {
    /// The column.
    pub column: String,
    /// How its cells become numbers.
    pub reading: Reading,
}

/// How a cell becomes a number.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Reading {
    /// It is one.
    #[default]
    Number,
    /// By its place in this list of texts.
    Levels(Vec<String>),
    /// It is a time, of which this part counts.
    Calendar(CalendarPart),
}

/// A part of a date and time, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CalendarPart {
    /// Days since 1970, with their fraction.
    Days,
    /// Hours since midnight, 0 to 24.
    Hour,
    /// Days since Monday 0:00, 0 to 7.
    Weekday,
    /// Days since the beginning of the year, 0 to 365.25: a leap year's days are that much shorter.
    Yearday,
}

impl CalendarPart {
    /// All parts.
    pub const ALL: [Self; 4] = [Self::Days, Self::Hour, Self::Weekday, Self::Yearday];

    /// The name of the part.
    pub fn name(self) -> &'static str {
        match self {
            Self::Days => "days",
            Self::Hour => "hour",
            Self::Weekday => "weekday",
            Self::Yearday => "yearday",
        }
    }

    /// After how much it repeats, if it does.
    pub fn period(self) -> Option<f64> {
        match self {
            Self::Days => None,
            Self::Hour => Some(24.0),
            Self::Weekday => Some(7.0),
            Self::Yearday => Some(365.25),
        }
    }
}

/// A model for numbers or for classes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Model {
    /// Predicts numbers.
    Regressor(Box<OnlineRegressor>),
    /// Predicts classes.
    Classifier(Box<OnlineClassifier>),
}

/// What a row says about its target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target<'a> {
    /// Nothing: the row is predicted, not learned.
    Missing,
    /// A number.
    Value(f64),
    /// A class.
    Label(&'a str),
}

/// One row of a stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row<'a> {
    /// The inputs.
    pub x: &'a [f64],
    /// The target.
    pub target: Target<'a>,
    /// The known noise variance.
    pub variance: Option<f64>,
    /// The time.
    pub time: Option<f64>,
}

/// What was predicted for a row before it was learned.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A number with its uncertainty.
    Value(Prediction),
    /// The probabilities of the classes.
    Class(ClassPrediction),
}

impl Model {
    /// The number of input columns.
    pub fn input_dim(&self) -> usize {
        match self {
            Self::Regressor(model) => model.input_dim(),
            Self::Classifier(model) => model.input_dim(),
        }
    }

    /// The weight of the rows learned.
    pub fn count(&self) -> f64 {
        match self {
            Self::Regressor(model) => model.count(),
            Self::Classifier(model) => model.count(),
        }
    }

    /// How many rows lay off the grid, so that nothing was learned of them.
    pub fn ignored(&self) -> u64 {
        match self {
            Self::Regressor(model) => model.ignored(),
            Self::Classifier(model) => model.ignored(),
        }
    }

    /// Whether the warm-up is over.
    pub fn is_ready(&self) -> bool {
        match self {
            Self::Regressor(model) => model.is_ready(),
            Self::Classifier(model) => model.is_ready(),
        }
    }

    /// Ends the warm-up with the rows seen so far.
    pub fn finish_warm_up(&mut self) -> Result<()> {
        match self {
            Self::Regressor(model) => model.finish_warm_up(),
            Self::Classifier(model) => model.finish_warm_up(),
        }
    }

    /// Ends a stream: learns features anew from the rows that are still in memory, if there are more of them than at the
    /// last search.
    pub fn finish_search(&mut self) -> Result<()> {
        match self {
            Self::Regressor(model) => model.finish_search(),
            Self::Classifier(model) => model.finish_search(),
        }
    }

    /// Takes note of rows that will be learned next, given one after the other: see [`OnlineRegressor::prepare_rows`].
    pub fn prepare_rows(&mut self, x: &[f64]) {
        match self {
            Self::Regressor(model) => model.prepare_rows(x),
            Self::Classifier(model) => model.prepare_rows(x),
        }
    }

    /// Whether rows are learned faster if they are prepared.
    pub fn gains_by_preparing(&self) -> bool {
        match self {
            Self::Regressor(model) => model.gains_by_preparing(),
            Self::Classifier(model) => model.gains_by_preparing(),
        }
    }

    /// Waits for the search or refit that runs beside the stream, if one does.
    pub fn finish_upkeep(&mut self) {
        match self {
            Self::Regressor(model) => model.finish_upkeep(),
            Self::Classifier(model) => model.finish_upkeep(),
        }
    }

    /// How far the search or refit is that runs beside the stream.
    pub fn upkeep_stage(&self) -> UpkeepStage {
        match self {
            Self::Regressor(model) => model.upkeep_stage(),
            Self::Classifier(model) => model.upkeep_stage(),
        }
    }

    /// Waits for the search or refit that runs beside the stream, and lets what it found catch up with so many rows; see
    /// [`OnlineRegressor::attend_upkeep`].
    pub fn attend_upkeep(&mut self, rows: usize) {
        match self {
            Self::Regressor(model) => model.attend_upkeep(rows),
            Self::Classifier(model) => model.attend_upkeep(rows),
        }
    }

    /// Says anew whether rows wait for searches and refits.
    pub fn set_upkeep(&mut self, upkeep: Upkeep) {
        match self {
            Self::Regressor(model) => model.set_upkeep(upkeep),
            Self::Classifier(model) => model.set_upkeep(upkeep),
        }
    }

    /// Lets go of what the last rows said beyond the model: for predictions of rows that do not follow them; see
    /// [`OnlineRegressor::drop_corrections`].
    pub fn drop_corrections(&mut self) {
        match self {
            Self::Regressor(model) => model.drop_corrections(),
            Self::Classifier(model) => model.drop_corrections(),
        }
    }

    /// What went wrong beside the rows since the last call, if anything did: every row that was accepted is learned.
    pub fn take_failure(&mut self) -> Option<Error> {
        match self {
            Self::Regressor(model) => model.take_failure(),
            Self::Classifier(model) => model.take_failure(),
        }
    }

    /// What a user should know about the data and the fit.
    pub fn remarks(&self) -> Vec<Remark> {
        match self {
            Self::Regressor(model) => model.remarks(),
            Self::Classifier(model) => model.remarks(),
        }
    }

    /// Whether features may still be learned anew from rows in memory.
    pub fn is_searching(&self) -> bool {
        match self {
            Self::Regressor(model) => model.is_searching(),
            Self::Classifier(model) => model.is_searching(),
        }
    }

    /// Whether [`Model::finish_search`] would look for features again.
    pub fn is_unfinished(&self) -> bool {
        match self {
            Self::Regressor(model) => model.is_unfinished(),
            Self::Classifier(model) => model.is_unfinished(),
        }
    }

    /// Fits the hyperparameters to everything learned so far.
    pub fn refit(&mut self) -> Result<()> {
        match self {
            Self::Regressor(model) => model.refit(),
            Self::Classifier(model) => model.refit(),
        }
    }

    /// Predicts the row, then learns it if it has a target. `None` during the warm-up.
    pub fn step(&mut self, row: &Row) -> Result<Option<Answer>> {
        match (self, row.target) {
            (Self::Regressor(model), Target::Value(y)) => {
                Ok(model.step_with(row.x, y, row.variance, row.time)?.map(Answer::Value))
            }
            (Self::Classifier(model), Target::Label(label)) => {
                Ok(model.step_with(row.x, label, row.time)?.map(Answer::Class))
            }
            (model, Target::Missing) if model.is_ready() => {
                model.predict_noisy(row.x, row.variance).map(Some)
            }
            (_, Target::Missing) => Ok(None),
            (Self::Regressor(_), Target::Label(_)) => Err(mismatch("numbers, but the target is a label")),
            (Self::Classifier(_), Target::Value(_)) => Err(mismatch("classes, but the target is a number")),
        }
    }

    /// What the model says about a row now.
    pub fn predict(&self, x: &[f64]) -> Result<Answer> {
        match self {
            Self::Regressor(model) => model.predict(x).map(Answer::Value),
            Self::Classifier(model) => model.predict(x).map(Answer::Class),
        }
    }

    /// As [`Model::predict`], for an observation whose noise variance may be known (for [`NoiseModel::Known`]; a model
    /// that learns its noise goes by that).
    pub fn predict_noisy(&self, x: &[f64], variance: Option<f64>) -> Result<Answer> {
        match (self, variance) {
            (Self::Regressor(model), Some(variance)) if model.settings().noise == NoiseModel::Known => {
                model.predict_noisy(x, variance).map(Answer::Value)
            }
            (model, _) => model.predict(x),
        }
    }

    /// The interval at a level around the prediction of a number, `None` for classes; see [`OnlineRegressor::interval`].
    pub fn interval(&self, answer: &Answer, level: f64, horizon: Horizon) -> Result<Option<Interval>> {
        match (self, answer) {
            (Self::Regressor(model), Answer::Value(p)) => model.interval(p, level, horizon).map(Some),
            _ => Ok(None),
        }
    }

    /// The labels of the set at a level around the prediction of a class, from the likeliest, `None` for numbers; see
    /// [`OnlineClassifier::set`].
    pub fn set(&self, answer: &Answer, level: f64, horizon: Horizon) -> Result<Option<Vec<&str>>> {
        let (Self::Classifier(model), Answer::Class(p)) = (self, answer) else { return Ok(None) };
        let set = model.set(p, level, horizon)?;
        Ok(Some(set.into_iter().map(|class| model.classes()[class].as_str()).collect()))
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        match self {
            Self::Regressor(model) => model.settings(),
            Self::Classifier(model) => model.settings(),
        }
    }

    /// Un-learns a row.
    pub fn forget(&mut self, row: &Row) -> Result<()> {
        match (self, row.target) {
            (Self::Regressor(model), Target::Value(y)) => match row.variance {
                Some(variance) => model.forget_noisy(row.x, y, variance),
                None => model.forget(row.x, y),
            },
            (Self::Classifier(model), Target::Label(label)) => model.forget(row.x, label),
            _ => Err(mismatch("something else than this row has")),
        }
    }

    /// Learns everything another model of the same kind has learned.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        match (self, other) {
            (Self::Regressor(model), Self::Regressor(other)) => model.merge(other),
            (Self::Classifier(model), Self::Classifier(other)) => model.merge(other),
            _ => Err(Error::Unsupported {
                operation: "merge",
                reason: "one model predicts numbers, the other classes",
            }),
        }
    }

    /// A model with the same scales, features and hyperparameters that has learned nothing. Needs features that no
    /// longer change.
    pub fn shard(&self) -> Result<Self> {
        Ok(match self {
            Self::Regressor(model) => Self::Regressor(Box::new(model.shard()?)),
            Self::Classifier(model) => Self::Classifier(Box::new(model.shard()?)),
        })
    }

    /// Stops learning the feature map, so that rows can be forgotten and models merged.
    pub fn freeze_features(&mut self) -> Result<()> {
        match self {
            Self::Regressor(model) => model.freeze_features(),
            Self::Classifier(model) => model.freeze_features(),
        }
    }
}

fn mismatch(reason: &str) -> Error {
    Error::Config { field: "target".into(), reason: format!("the model predicts {reason}") }
}

/// A model, the names of its columns, and how much of its stream it has seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Stored {
    /// The names of the columns.
    pub columns: Columns,
    /// The number of rows of the stream that went through the model, rejected ones included.
    pub rows: u64,
    /// How many of them had been seen when the journal was begun, for a model that has one.
    #[serde(default)]
    pub journal_from: u64,
    /// The model.
    pub model: Model,
    /// The model before it was finished, where that was done at the end of a stream that may go on
    /// ([`Stored::finish_search`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<Box<Model>>,
}

restored_after_reading!(Stored);

impl Restore for Stored {
    fn restore(&mut self) -> Result<()> {
        self.columns.check()?;
        let models = [Some(&self.model), self.unfinished.as_deref()];
        let inputs = self.columns.inputs.len();
        models.into_iter().flatten().try_for_each(|model| length("input columns", model.input_dim(), inputs))
    }
}

impl Stored {
    /// A model that has seen no rows, with the names of its columns.
    pub fn new(columns: Columns, model: Model) -> Result<Self> {
        let mut new = Self { columns, rows: 0, journal_from: 0, model, unfinished: None };
        new.restore()?;
        Ok(new)
    }

    /// Learns features anew from the rows that are still in memory, since no more are at hand. Should more come after all,
    /// the stream goes on from the model before ([`Stored::resumed`]), as if it had never been interrupted.
    pub fn finish_search(&mut self) -> Result<()> {
        if self.model.is_unfinished() {
            let before = self.model.clone();
            self.model.finish_search()?;
            self.unfinished = Some(Box::new(before));
        }
        Ok(())
    }

    /// The same, ready for further rows of its stream.
    #[must_use]
    pub fn resumed(mut self) -> Self {
        if let Some(before) = self.unfinished.take() {
            self.model = *before;
        }
        self
    }

    /// Counts the row, predicts it and learns it.
    pub fn step(&mut self, row: &Row) -> Result<Option<Answer>> {
        self.rows += 1;
        self.model.step(row)
    }
}
