//! What a report needs to know about a stream, gathered in constant memory.

use std::path::{Path, PathBuf};

use anyhow::Result;
use wiski::persist::{Answer, Model, Stored};

use super::super::plot;
use super::learner;
use super::lines::Promise;
use crate::input::Row;
use crate::report::{self, ClassRecorder, Recorder, Report};
use crate::summary::{self, Summary};

pub(crate) struct Recording {
    recorder: Either,
    refits: usize,
}

enum Either {
    Numbers(Box<Recorder>),
    Classes(Box<ClassRecorder>),
}

impl Recording {
    pub(crate) fn new(stored: &Stored) -> Self {
        let recorder = match &stored.model {
            Model::Regressor(_) => Either::Numbers(Box::new(Recorder::new(""))),
            Model::Classifier(_) => Either::Classes(Box::new(ClassRecorder::new())),
        };
        Self { recorder, refits: usize::MAX }
    }

    /// Takes in a row with what was predicted for it.
    pub(super) fn push(
        &mut self,
        number: u64,
        row: &Row,
        answer: Option<&Answer>,
        promise: &Promise,
        level: f64,
        stored: &Stored,
    ) {
        match (&mut self.recorder, answer) {
            (Either::Numbers(recorder), Some(Answer::Value(p))) => {
                if let Some(y) = row.target {
                    recorder.push(number, p.mean, p.std(), y);
                    if let Some(interval) = &promise.interval {
                        recorder.push_interval(number, level, interval.contains(y), interval.width());
                    }
                }
            }
            (Either::Classes(recorder), Some(Answer::Class(p))) => {
                if let Some(label) = &row.label {
                    let own = learner::probability(p, label, stored);
                    recorder.push(number, own, p.probabilities[p.best], p.label == *label);
                    if let Some(set) = &promise.set {
                        recorder.push_set(number, level, set.contains(&label.as_str()), set.len() as f64);
                    }
                }
            }
            _ => {}
        }
        let refits = learner::refits(&stored.model);
        if refits != self.refits || number.is_power_of_two() {
            let named = summary::hyperparameters(&stored.model);
            if named.is_empty() {
                return;
            }
            self.refits = refits;
            let named: Vec<(&str, f64)> = named.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            match &mut self.recorder {
                Either::Numbers(recorder) => recorder.push_hyperparameters(number, &named),
                Either::Classes(recorder) => recorder.push_hyperparameters(number, &named),
            }
        }
    }

    /// Writes the page; its path.
    pub(crate) fn write(
        &self,
        folder: &Path,
        input: &str,
        summary: &Summary,
        events: &[(String, String)],
    ) -> Result<PathBuf> {
        let columns = &summary.stored.columns;
        let mut report = Report {
            title: format!("{} from {}", columns.target, columns.inputs.join(", ")),
            summary: format!("Every row of {input} was predicted before it was learned."),
            events: events.to_vec(),
            settings: summary.lines(),
            ..Report::default()
        };
        match &self.recorder {
            Either::Numbers(recorder) => recorder.add_to(&mut report),
            Either::Classes(recorder) => recorder.add_to(&mut report),
        }
        // A copy: drawing may ask for points that extend the grid.
        report.figures.extend(plot::figures(&mut summary.stored.clone(), &plot::View::default())?);
        report::write(folder, &report)
    }
}
