//! A model as it is served: for rows (numbers or classes), for a series or for a search. What happens to it is an [`Op`].

use std::path::Path;

use wiski::decide::{Optimizer, Trial};
use wiski::model::{ROWS_TOGETHER, Upkeep, UpkeepStage};
use wiski::persist::{self, Answer, Columns, InputSource, Model, Reading, Stored, Target};
use wiski::{Error, Horizon, Result};

use crate::batch::{Batch, Schema, TargetKind};
use crate::op::{ClassesSaid, Numbers, Op, Rejected, Reply, Said};
use crate::series::Series;

/// A model that is served.
#[derive(Debug, Clone)]
pub enum Served {
    /// Predicts numbers or classes of rows.
    Rows(Box<Stored>),
    /// Learns a series and says what comes next.
    Series(Box<Series>),
    /// Searches for the best point.
    Search(Box<Optimizer>),
}

/// What happened to a row, for those who watch.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// Its number in the stream.
    pub row: u64,
    /// Its inputs.
    pub x: &'a [f64],
    /// Its time, if it has one.
    pub time: Option<f64>,
    /// Its target.
    pub target: Target<'a>,
    /// What was predicted, unless in the warm-up.
    pub answer: Option<&'a Answer>,
    /// The interval at the level of the model, for numbers.
    pub interval: Option<wiski::Interval>,
    /// Whether the target lay in the interval, or the class in the set.
    pub inside: Option<bool>,
    /// The width of the interval, or the number of classes in the set.
    pub size: Option<f64>,
}

impl Served {
    /// The word for its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Rows(stored) => match stored.model {
                Model::Regressor(_) => "regressor",
                Model::Classifier(_) => "classifier",
            },
            Self::Series(_) => "forecaster",
            Self::Search(_) => "optimizer",
        }
    }

    /// Its columns.
    pub fn schema(&self) -> Schema {
        match self {
            Self::Rows(stored) => {
                let target = match stored.model {
                    Model::Regressor(_) => TargetKind::Value,
                    Model::Classifier(_) => TargetKind::Label,
                };
                Schema { columns: stored.columns.clone(), target, beside: Vec::new() }
            }
            Self::Series(series) => {
                Schema { columns: series.columns.clone(), target: TargetKind::Series, beside: Vec::new() }
            }
            Self::Search(optimizer) => {
                let dimensions = optimizer.space().dimensions();
                let source = |d: &wiski::decide::Dimension| InputSource {
                    column: d.name.clone(),
                    reading: if d.choices.is_empty() {
                        Reading::Number
                    } else {
                        Reading::Levels(d.choices.clone())
                    },
                };
                let columns = Columns {
                    inputs: dimensions.iter().map(|d| d.name.clone()).collect(),
                    sources: dimensions.iter().map(source).collect(),
                    target: "value".into(),
                    noise: optimizer.settings().known_noise.then(|| "variance".into()),
                    ..Columns::default()
                };
                let settings = optimizer.settings();
                let further = (0..settings.further.len()).map(|k| format!("value{}", k + 2));
                let beside = further.chain(settings.constraints.iter().cloned()).collect();
                Schema { columns, target: TargetKind::Trial, beside }
            }
        }
    }

    /// The rows or results it has seen.
    pub fn seen(&self) -> u64 {
        match self {
            Self::Rows(stored) => stored.rows,
            Self::Series(series) => series.model.rows(),
            Self::Search(optimizer) => optimizer.trials().len() as u64,
        }
    }

    /// The bytes of a snapshot.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        match self {
            Self::Rows(stored) => persist::to_bytes(stored.as_ref()),
            Self::Series(series) => persist::to_bytes(series.as_ref()),
            Self::Search(optimizer) => persist::to_bytes(optimizer.as_ref()),
        }
    }

    /// The model in the bytes of a snapshot.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        // The kind stands in the header; each reader rejects the others.
        match persist::from_bytes::<Stored>(bytes) {
            Ok(stored) => Ok(Self::Rows(Box::new(stored.resumed()))),
            Err(error) => match persist::from_bytes::<Optimizer>(bytes) {
                Ok(optimizer) => Ok(Self::Search(Box::new(optimizer))),
                Err(_) => match persist::from_bytes::<Series>(bytes) {
                    Ok(series) => Ok(Self::Series(Box::new(series.checked()?))),
                    Err(_) => Err(error),
                },
            },
        }
    }

    /// Reads a snapshot file.
    pub fn load(path: &Path) -> Result<Self> {
        Ok(match persist::header(path)?.kind.as_str() {
            "optimizer" => Self::Search(Box::new(persist::load(path)?)),
            "forecaster" => Self::Series(Box::new(persist::load::<Series>(path)?.checked()?)),
            _ => Self::Rows(Box::new(persist::load::<Stored>(path)?.resumed())),
        })
    }

    /// Writes a snapshot file.
    pub fn save(&self, path: &Path) -> Result<()> {
        match self {
            Self::Rows(stored) => persist::save(path, stored.as_ref()),
            Self::Series(series) => persist::save(path, series.as_ref()),
            Self::Search(optimizer) => persist::save(path, optimizer.as_ref()),
        }
    }

    /// Carries out a change. What it finds wrong is part of the reply: the same change gives the same reply again when
    /// a journal is replayed.
    pub fn apply(&mut self, op: &Op, watch: &mut dyn FnMut(&Step)) -> Reply {
        let applied = match (self, op) {
            (Self::Rows(stored), Op::Learn(batch, level)) => Ok(learn(stored, batch, *level, watch)),
            (Self::Rows(stored), Op::Forget(batch)) => Ok(forget(stored, batch)),
            (Self::Rows(stored), Op::Refit) => stored.model.refit().map(|()| Reply::Done),
            (Self::Rows(stored), Op::Freeze) => freeze(&mut stored.model).map(|()| Reply::Done),
            (Self::Rows(stored), Op::Attend(rows)) => {
                stored.model.attend_upkeep(*rows);
                Ok(Reply::Done)
            }
            (Self::Search(_) | Self::Series(_), Op::Attend(_)) => Ok(Reply::Done),
            (Self::Series(series), Op::Learn(batch, level)) => Ok(series.learn(batch, *level, watch)),
            (Self::Series(series), Op::Refit) => series.model.fit().map(|()| Reply::Done),
            (Self::Search(optimizer), Op::Ask(count)) => optimizer.ask(*count).map(Reply::Points),
            (Self::Search(optimizer), Op::Tell(batch)) => Ok(tell(optimizer, batch)),
            (Self::Search(optimizer), Op::Refit) => optimizer.refit().map(|()| Reply::Done),
            (Self::Rows(_), Op::Ask(_) | Op::Tell(_)) => {
                Err(unsupported("asking and telling", "the model is for rows, not for a search"))
            }
            (Self::Series(_), Op::Ask(_) | Op::Tell(_) | Op::Forget(_) | Op::Freeze) => {
                Err(unsupported("this", "a forecaster learns rows in the order of time, and forecasts"))
            }
            (Self::Search(_), Op::Learn(..) | Op::Forget(_) | Op::Freeze) => {
                Err(unsupported("learning rows", "the model is for a search: ask and tell"))
            }
        };
        applied.unwrap_or_else(Reply::from)
    }

    /// Learns everything another model has learned.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        match (self, other) {
            (Self::Rows(own), Self::Rows(other)) => {
                own.model.merge(&other.model)?;
                own.rows += other.rows;
                Ok(())
            }
            _ => Err(unsupported("merge", "searches and forecasters cannot be merged")),
        }
    }

    /// The same with nothing learned.
    pub fn shard(&self) -> Result<Self> {
        match self {
            Self::Rows(stored) => {
                let shard = Stored::new(stored.columns.clone(), stored.model.shard()?)?;
                Ok(Self::Rows(Box::new(shard)))
            }
            _ => Err(unsupported("shard", "searches and forecasters have no shards")),
        }
    }

    /// Says who waits for searches and refits.
    pub fn set_upkeep(&mut self, upkeep: Upkeep) {
        if let Self::Rows(stored) = self {
            stored.model.set_upkeep(upkeep);
        }
    }

    /// How far the search or refit is that runs beside the stream.
    pub fn upkeep_stage(&self) -> UpkeepStage {
        match self {
            Self::Rows(stored) => stored.model.upkeep_stage(),
            Self::Series(_) | Self::Search(_) => UpkeepStage::Idle,
        }
    }

    /// What went wrong beside the rows since the last call.
    pub fn take_failure(&mut self) -> Option<Error> {
        match self {
            Self::Rows(stored) => stored.model.take_failure(),
            Self::Series(series) => series.failure.take(),
            Self::Search(optimizer) => optimizer.take_failure(),
        }
    }
}

fn unsupported(operation: &'static str, reason: &'static str) -> Error {
    Error::Unsupported { operation, reason }
}

fn learn(stored: &mut Stored, batch: &Batch, level: Option<f64>, watch: &mut dyn FnMut(&Step)) -> Reply {
    let mut rejected = Vec::new();
    let own_level = stored.model.settings().intervals.level;
    let mut said = level.map(|_| Recorder::new(&stored.model));
    let mut coming = Vec::new();
    for i in 0..batch.len() {
        let row = batch.row(i);
        if i.is_multiple_of(ROWS_TOGETHER) && stored.model.gains_by_preparing() {
            coming.clear();
            (i..batch.len()).take(ROWS_TOGETHER).for_each(|i| coming.extend_from_slice(batch.row(i).x));
            stored.model.prepare_rows(&coming);
        }
        let stepped = stored.step(&row);
        if !stored.model.is_ready() && stored.model.upkeep_stage() != UpkeepStage::Idle {
            // Until the warm-up is over there is no prediction, so its end is waited for.
            stored.model.finish_upkeep();
        }
        let answer = match &stepped {
            Ok(answer) => answer.as_ref(),
            Err(error) => {
                rejected.push(Rejected { row: i, error: error.to_string() });
                None
            }
        };
        if let (Some(said), Some(level)) = (&mut said, level) {
            said.push(&stored.model, answer, level);
        }
        if stepped.is_ok() {
            let promise = |answer| promised(&stored.model, answer, own_level, row.target);
            let (interval, inside, size) = answer.map_or((None, None, None), promise);
            let (row, x, time, target) = (stored.rows, row.x, row.time, row.target);
            watch(&Step { row, x, time, target, answer, interval, inside, size });
        }
    }
    let taken = batch.len() - rejected.len();
    Reply::Rows { taken, rejected, seen: stored.rows, said: said.map(|s| s.finish(&stored.model)) }
}

/// The interval that was promised for the last row, whether the target was in it, or in the set of classes, and its size.
fn promised(
    model: &Model,
    answer: &Answer,
    level: f64,
    target: Target,
) -> (Option<wiski::Interval>, Option<bool>, Option<f64>) {
    let interval = model.interval(answer, level, Horizon::Last).ok().flatten();
    match (target, interval) {
        (Target::Value(y), Some(i)) => (interval, Some(i.contains(y)), Some(i.upper - i.lower)),
        (Target::Label(label), _) => {
            let set = model.set(answer, level, Horizon::Last).ok().flatten();
            let inside = set.as_ref().map(|set| set.contains(&label));
            (interval, inside, set.map(|set| set.len() as f64))
        }
        _ => (interval, None, None),
    }
}

fn forget(stored: &mut Stored, batch: &Batch) -> Reply {
    let mut rejected = Vec::new();
    for i in 0..batch.len() {
        if let Err(error) = stored.model.forget(&batch.row(i)) {
            if matches!(error, Error::NotReady { .. }) {
                return Reply::NotReady;
            }
            rejected.push(Rejected { row: i, error: error.to_string() });
        }
    }
    Reply::Rows { taken: batch.len() - rejected.len(), rejected, seen: stored.rows, said: None }
}

fn freeze(model: &mut Model) -> Result<()> {
    if !model.is_ready() {
        model.finish_warm_up()?;
    }
    model.freeze_features()
}

fn tell(optimizer: &mut Optimizer, batch: &Batch) -> Reply {
    let mut rejected = Vec::new();
    for i in 0..batch.len() {
        let row = batch.row(i);
        let beside = batch.beside(i);
        let (further, constraints) = beside.split_at(optimizer.settings().further.len().min(beside.len()));
        let told = match row.target {
            Target::Value(y) if y.is_nan() => optimizer.tell_failed(row.x),
            Target::Value(y) => {
                let trial = Trial::new(row.x, y).with_further(further).with_constraints(constraints);
                optimizer.tell_trial(&Trial { variance: row.variance, ..trial })
            }
            _ => Err(unsupported("telling", "the result of a trial is a number")),
        };
        if let Err(error) = told {
            rejected.push(Rejected { row: i, error: error.to_string() });
        }
    }
    let seen = optimizer.trials().len() as u64;
    Reply::Rows { taken: batch.len() - rejected.len(), rejected, seen, said: None }
}

/// The likeliest class of a row, the probabilities of as many classes as there were then, and the set.
type ClassRow = (usize, Vec<f64>, Vec<usize>);

/// Gathers what was said before each row of a batch was learned.
enum Recorder {
    Numbers(Numbers),
    Classes(Vec<Option<ClassRow>>),
}

impl Recorder {
    fn new(model: &Model) -> Self {
        match model {
            Model::Regressor(_) => Self::Numbers(Numbers::default()),
            Model::Classifier(_) => Self::Classes(Vec::new()),
        }
    }

    fn push(&mut self, model: &Model, answer: Option<&Answer>, level: f64) {
        match (self, answer) {
            (Self::Numbers(numbers), Some(Answer::Value(p))) => {
                let interval = answer.and_then(|a| model.interval(a, level, Horizon::Last).ok().flatten());
                let (lower, upper) = interval.map_or((f64::NAN, f64::NAN), |i| (i.lower, i.upper));
                numbers.push(p.mean, p.std(), lower, upper);
            }
            (Self::Numbers(numbers), _) => numbers.push(f64::NAN, f64::NAN, f64::NAN, f64::NAN),
            (Self::Classes(rows), Some(Answer::Class(p))) => {
                let set = match model {
                    Model::Classifier(model) => model.set(p, level, Horizon::Last).unwrap_or_default(),
                    Model::Regressor(_) => Vec::new(),
                };
                rows.push(Some((p.best, p.probabilities.clone(), set)));
            }
            (Self::Classes(rows), _) => rows.push(None),
        }
    }

    /// Classes that came up later had probability 0 before.
    fn finish(self, model: &Model) -> Said {
        match (self, model) {
            (Self::Numbers(numbers), _) => Said::Numbers(numbers),
            (Self::Classes(rows), model) => {
                let labels = match model {
                    Model::Classifier(model) => model.classes().to_vec(),
                    Model::Regressor(_) => Vec::new(),
                };
                let mut said = ClassesSaid { labels, ..ClassesSaid::default() };
                for row in rows {
                    let start = said.probabilities.len();
                    let fill = if row.is_some() { 0.0 } else { f64::NAN };
                    let (best, probabilities, set) =
                        row.map_or((None, Vec::new(), Vec::new()), |(b, p, s)| (Some(b), p, s));
                    said.best.push(best);
                    said.probabilities.extend(probabilities.into_iter().take(said.labels.len()));
                    said.probabilities.resize(start + said.labels.len(), fill);
                    said.sets.push(set);
                }
                Said::Classes(said)
            }
        }
    }
}
