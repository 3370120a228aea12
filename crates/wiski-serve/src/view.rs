//! What readers see of a model: an immutable image, published by its writer. A prediction reads it and waits for nothing.

use std::sync::Arc;

use wiski::decide::Optimizer;
use wiski::model::{ClassSnapshot, Snapshot};
use wiski::persist::Model;
use wiski::{Forecaster, Horizon, Interval};

use crate::batch::{Batch, Schema};
use crate::error::Failure;
use crate::op::{ClassesSaid, Numbers, Said};
use crate::served::Served;

/// A model at a moment.
#[derive(Debug, Clone)]
pub struct View {
    /// The columns; the same for every view of a model.
    pub schema: Arc<Schema>,
    /// The word for its kind.
    pub kind: &'static str,
    /// The image that predicts.
    image: Image,
    /// The figures.
    pub figures: Figures,
    /// Where each input has been seen; nothing in the warm-up, and for models that are not for rows.
    pub ranges: Vec<(f64, f64)>,
}

#[derive(Debug, Clone)]
enum Image {
    /// There is none during the warm-up.
    None,
    Numbers(Arc<Snapshot>),
    Classes(Arc<ClassSnapshot>),
    Series(Arc<Forecaster>),
    Search(Arc<Optimizer>),
}

/// Figures of a model; NaN where there are none yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Rows or results seen.
    pub seen: u64,
    /// The weight of the rows learned.
    pub count: f64,
    /// Whether the warm-up is over.
    pub ready: bool,
    /// Whether features may still be learned anew.
    pub searching: bool,
    /// Refits since the warm-up.
    pub refits: u64,
    /// Signals of drift.
    pub drifts: u64,
    /// Rows that lay off the grid.
    pub ignored: u64,
    /// The level of the model's own intervals.
    pub level: f64,
    /// The share of targets in them.
    pub coverage: f64,
    /// The error along the stream: the root mean square for numbers, the share of wrong classes.
    pub error: f64,
    /// The mean negative log density, or log-loss.
    pub surprise: f64,
}

impl Figures {
    /// The figures of a model.
    pub fn of(served: &Served) -> Self {
        let mut figures = Self {
            seen: served.seen(),
            count: 0.0,
            ready: false,
            searching: false,
            refits: 0,
            drifts: 0,
            ignored: 0,
            level: f64::NAN,
            coverage: f64::NAN,
            error: f64::NAN,
            surprise: f64::NAN,
        };
        match served {
            Served::Rows(stored) => {
                let model = &stored.model;
                figures.count = model.count();
                figures.ready = model.is_ready();
                figures.searching = model.is_searching();
                figures.ignored = model.ignored();
                figures.level = model.settings().intervals.level;
                match model {
                    Model::Regressor(model) => {
                        let metrics = model.metrics();
                        (figures.refits, figures.drifts) = (model.refits() as u64, model.drifts());
                        (figures.error, figures.surprise) = (metrics.rmse(), metrics.nll());
                        figures.coverage = metrics.intervals().share();
                    }
                    Model::Classifier(model) => {
                        let metrics = model.metrics();
                        figures.refits = model.refits() as u64;
                        (figures.error, figures.surprise) = (1.0 - metrics.accuracy(), metrics.log_loss());
                        figures.coverage = metrics.sets().share();
                    }
                }
            }
            Served::Series(series) => {
                let score = series.score;
                figures.count = figures.seen as f64;
                figures.ready = series.model.is_ready();
                figures.level = crate::series::LEVEL;
                let mean = |sum: f64| sum / score.rows as f64;
                figures.error = mean(score.squares).sqrt();
                (figures.surprise, figures.coverage) = (mean(score.surprise), mean(score.inside as f64));
            }
            Served::Search(optimizer) => {
                figures.count = figures.seen as f64;
                figures.ready = optimizer.surrogate().is_some();
                figures.level = 0.95;
            }
        }
        figures
    }
}

impl View {
    /// The model as it is now.
    pub fn of(served: &Served, schema: Arc<Schema>) -> Self {
        let image = match served {
            Served::Rows(stored) => match &stored.model {
                Model::Regressor(model) => model.snapshot().map_or(Image::None, Image::Numbers),
                Model::Classifier(model) => model.snapshot().map_or(Image::None, Image::Classes),
            },
            Served::Series(series) => Image::Series(Arc::new(series.model.clone())),
            Served::Search(optimizer) => Image::Search(Arc::new(optimizer.as_ref().clone())),
        };
        let ranges = match served {
            Served::Rows(stored) => crate::figures::ranges(&stored.model),
            Served::Series(_) | Served::Search(_) => Vec::new(),
        };
        Self { schema, kind: served.kind(), image, figures: Figures::of(served), ranges }
    }

    /// Whether it can predict.
    pub fn is_ready(&self) -> bool {
        match &self.image {
            Image::None => false,
            Image::Numbers(_) | Image::Classes(_) => true,
            Image::Series(forecaster) => forecaster.is_ready(),
            Image::Search(optimizer) => optimizer.surrogate().is_some(),
        }
    }

    /// The forecaster, if it is one.
    pub fn series(&self) -> Option<&Forecaster> {
        match &self.image {
            Image::Series(forecaster) => Some(forecaster),
            _ => None,
        }
    }

    /// The next steps of a series without inputs, with intervals at a level (95 %, if none is given).
    pub fn forecast(&self, steps: usize, level: Option<f64>) -> Result<Said, Failure> {
        let missing = || Failure::Unprocessable("only a forecaster has a horizon".into());
        let forecaster = self.series().ok_or_else(missing)?;
        if !self.schema.columns.inputs.is_empty() && forecaster.is_ready() {
            let what = "rows ahead with their inputs are needed, not only a horizon";
            return Err(Failure::Unprocessable(what.into()));
        }
        self.ahead(forecaster, &forecaster.next_times(steps)?, &[], level)
    }

    /// A forecast of rows ahead.
    fn ahead(
        &self,
        forecaster: &Forecaster,
        times: &[f64],
        x: &[f64],
        level: Option<f64>,
    ) -> Result<Said, Failure> {
        let said = forecaster.forecast_at(times, x, level.unwrap_or(self.figures.level))?;
        let wiski::time::Forecast { times, mean, std, lower, upper } = said;
        Ok(Said::Numbers(Numbers { mean, std, lower, upper, time: times }))
    }

    /// The labels of a classifier, once they are known.
    pub fn labels(&self) -> &[String] {
        match &self.image {
            Image::Classes(snapshot) => snapshot.classes(),
            _ => &[],
        }
    }

    /// The search, if it is one.
    pub fn search(&self) -> Option<&Optimizer> {
        match &self.image {
            Image::Search(optimizer) => Some(optimizer),
            _ => None,
        }
    }

    /// What figures show of a row: mean, deviation of the function, deviation of an observation. Of classes: the
    /// probability of the last one, and how undecided the model is.
    pub fn shown(&self, x: &[f64]) -> Result<[f64; 3], Failure> {
        Ok(match &self.image {
            Image::Numbers(snapshot) => {
                let p = snapshot.predict_ahead(x)?;
                [p.mean, p.variance.sqrt(), p.std()]
            }
            Image::Classes(snapshot) => {
                let last = snapshot.predict(x)?.probabilities.last().copied().unwrap_or(0.0);
                [last, (last * (1.0 - last)).sqrt(), f64::NAN]
            }
            Image::None | Image::Series(_) | Image::Search(_) => return Err(Failure::NotReady),
        })
    }

    /// Predicts rows, with intervals or sets at a level (that of the model, if none is given).
    pub fn predict(&self, batch: &Batch, level: Option<f64>) -> Result<Said, Failure> {
        if let Some(forecaster) = self.series() {
            let next = || forecaster.next_times(batch.len());
            let times = if batch.time.is_empty() { next()? } else { batch.time.clone() };
            return self.ahead(forecaster, &times, &batch.x, level);
        }
        let level = level.unwrap_or(self.figures.level);
        let in_row = |row: usize| {
            move |error: wiski::Error| match error {
                wiski::Error::NotReady { .. } => Failure::NotReady,
                other => Failure::Unprocessable(format!("row {row}: {other}")),
            }
        };
        match &self.image {
            Image::None | Image::Series(_) => Err(Failure::NotReady),
            Image::Numbers(snapshot) => {
                let mut numbers = Numbers::default();
                for i in 0..batch.len() {
                    let mut p = snapshot.predict(batch.inputs(i)).map_err(in_row(i))?;
                    if let Some(&variance) = batch.variance.get(i) {
                        p.noise = variance;
                    }
                    let interval = snapshot.interval(&p, level, Horizon::Next).map_err(in_row(i))?;
                    numbers.push(p.mean, p.std(), interval.lower, interval.upper);
                }
                Ok(Said::Numbers(numbers))
            }
            Image::Classes(snapshot) => {
                let labels = snapshot.classes().to_vec();
                let mut said = ClassesSaid { labels, ..ClassesSaid::default() };
                for i in 0..batch.len() {
                    let p = snapshot.predict(batch.inputs(i)).map_err(in_row(i))?;
                    said.best.push(Some(p.best));
                    said.probabilities.extend_from_slice(&p.probabilities);
                    said.sets.push(snapshot.set(&p, level, Horizon::Next).map_err(in_row(i))?);
                }
                Ok(Said::Classes(said))
            }
            Image::Search(optimizer) => {
                let mut numbers = Numbers::default();
                for i in 0..batch.len() {
                    let said = optimizer.predict(batch.inputs(i)).map_err(in_row(i))?;
                    let p = said.ok_or(Failure::NotReady)?;
                    let interval = Interval::gaussian(&p, level).map_err(in_row(i))?;
                    numbers.push(p.mean, p.std(), interval.lower, interval.upper);
                }
                Ok(Said::Numbers(numbers))
            }
        }
    }
}
