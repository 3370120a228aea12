//! Models as they stand in files, of this format and of earlier ones.
//!
//! Format 2 writes the fields of [`Online`] as they are. Format 1 had a layout of its own for each kind of model; it is
//! read here into the same parts.

use serde::{Deserialize, Deserializer};

use super::classification::Classification;
use super::encoder::Encoder;
use super::labels::Labels;
use super::learner::{Learner, Process};
use super::memory::Memory;
use super::metrics::{Prequential, PrequentialClasses};
use super::online::Online;
use super::regression::Regression;
use super::schedule::Fading;
use super::settings::Settings;
use super::targets::{TargetMoments, TargetScale};
use super::{OnlineClassifier, OnlineRegressor, Wiski};
use crate::error::{Error, Result};
use crate::learn::{Adam, Choice, HyperSpace, Rows};
use crate::stats::Stats;

#[derive(Deserialize)]
struct SavedRegressor {
    #[serde(default)]
    online: Option<Online<Regression>>,
    metrics: Prequential,
    drifts: u64,
    // Format 1.
    settings: Option<Settings>,
    input_dim: Option<usize>,
    targets: Option<TargetMoments>,
    warm_up: Option<Rows>,
    #[serde(default)]
    times: Vec<f64>,
    running: Option<Running>,
}

/// What existed of a regressor after the warm-up in format 1.
#[derive(Deserialize)]
struct Running {
    encoder: Encoder,
    model: Wiski,
    space: HyperSpace,
    scale: TargetScale,
    choice: Option<Choice>,
    every_step: Option<(Adam, Vec<f64>)>,
    rows_since_refit: f64,
    refits: usize,
    fading: Fading,
}

fn missing(field: &str) -> Error {
    Error::Config { field: field.into(), reason: "is missing".into() }
}

impl TryFrom<SavedRegressor> for OnlineRegressor {
    type Error = Error;

    fn try_from(saved: SavedRegressor) -> Result<Self> {
        if let Some(online) = saved.online {
            return Self::restored(online, saved.metrics, saved.drifts);
        }
        let moments = saved.targets.ok_or_else(|| missing("targets"))?;
        let memory = Memory::new(saved.warm_up.ok_or_else(|| missing("warm_up"))?, saved.times);
        let (mut scale, mut learner) = (TargetScale::IDENTITY, None);
        if let Some(running) = saved.running {
            scale = running.scale;
            let process = Process::resumed(running.model, running.every_step, None);
            learner = Some(Box::new(Learner::resumed_from(
                running.encoder,
                vec![process],
                None,
                (running.space, running.choice, running.fading),
                (running.rows_since_refit, running.refits),
            )?));
        }
        let settings = saved.settings.ok_or_else(|| missing("settings"))?;
        let input_dim = saved.input_dim.ok_or_else(|| missing("input_dim"))?;
        let online =
            Online::from_parts(settings, input_dim, Regression::new(moments, scale), memory, learner);
        Self::restored(online, saved.metrics, saved.drifts)
    }
}

impl<'de> Deserialize<'de> for OnlineRegressor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        SavedRegressor::deserialize(deserializer)?.try_into().map_err(serde::de::Error::custom)
    }
}

#[derive(Deserialize)]
struct SavedClassifier {
    #[serde(default)]
    online: Option<Online<Classification>>,
    metrics: PrequentialClasses,
    // Format 1.
    settings: Option<Settings>,
    input_dim: Option<usize>,
    labels: Option<Labels>,
    warm_up: Option<LabeledRows>,
    running: Option<Processes>,
}

/// Warm-up rows with the number of their class, in format 1.
#[derive(Deserialize)]
struct LabeledRows {
    #[serde(with = "crate::saved::floats")]
    x: Vec<f64>,
    classes: Vec<usize>,
    #[serde(default)]
    last_time: Option<f64>,
}

/// What existed of a classifier after the warm-up in format 1.
#[derive(Deserialize)]
struct Processes {
    encoder: Encoder,
    classes: Vec<ClassProcess>,
    space: HyperSpace,
    never: Option<Stats>,
    choice: Option<Choice>,
    rows_since_refit: f64,
    refits: usize,
    fading: Fading,
}

#[derive(Deserialize)]
struct ClassProcess {
    model: Wiski,
    every_step: Option<(Adam, Vec<f64>)>,
    hits: f64,
}

impl TryFrom<SavedClassifier> for OnlineClassifier {
    type Error = Error;

    fn try_from(saved: SavedClassifier) -> Result<Self> {
        if let Some(online) = saved.online {
            return Self::restored(online, &saved.metrics);
        }
        let warm_up = saved.warm_up.ok_or_else(|| missing("warm_up"))?;
        let (y, noise): (Vec<f64>, Vec<f64>) = warm_up.classes.iter().map(|&c| (c as f64, 1.0)).unzip();
        // Only the last time was kept, and only it matters.
        let times = warm_up.last_time.map_or(Vec::new(), |time| vec![time; y.len()]);
        let memory = Memory::new(Rows { x: warm_up.x, y, noise }, times);
        let mut learner = None;
        if let Some(running) = saved.running {
            let resumed = |c: ClassProcess| Process::resumed(c.model, c.every_step, Some(c.hits));
            learner = Some(Box::new(Learner::resumed_from(
                running.encoder,
                running.classes.into_iter().map(resumed).collect(),
                running.never,
                (running.space, running.choice, running.fading),
                (running.rows_since_refit, running.refits),
            )?));
        }
        let settings = saved.settings.ok_or_else(|| missing("settings"))?;
        let input_dim = saved.input_dim.ok_or_else(|| missing("input_dim"))?;
        let task = Classification::new(saved.labels.ok_or_else(|| missing("labels"))?);
        Self::restored(Online::from_parts(settings, input_dim, task, memory, learner), &saved.metrics)
    }
}

impl<'de> Deserialize<'de> for OnlineClassifier {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        SavedClassifier::deserialize(deserializer)?.try_into().map_err(serde::de::Error::custom)
    }
}
