//! Hyperparameters in the units of the data.
//!
//! Inside a model columns are scaled by factors a_k, u = a_k (x − shift), and targets by s. In the units of the data
//!
//! | hyperparameter | is larger by |
//! | --- | --- |
//! | length-scale or period on the axis of column k | 1/a_k; P/2 for a column that repeats after P, 1 for levels |
//! | frequency or bandwidth there | the inverse |
//! | variance of a kernel, noise | s² |
//! | any other, and lengths along learned features, which have no unit | 1 |

use super::Wiski;
use super::encoder::{ColumnScaling, Encoder};
use super::settings::{Features, Settings};
use super::targets::TargetScale;
use crate::error::{Error, Result, positive};
use crate::feature::{Column, FeatureMap, Source};
use crate::kernel::Kernel;
use serde::{Deserialize, Serialize};

/// A hyperparameter that the user knows something about, in the units of the data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartValue {
    /// Its name, as `lengthscale[0]`; or `lengthscale` for that of every axis.
    pub name: String,
    /// One value for all that have the name, or one for each.
    pub values: Vec<f64>,
    /// Whether it stays there, or is only where learning starts.
    pub fixed: bool,
}

impl StartValue {
    /// The places of the hyperparameters that are meant, with their values.
    pub(super) fn places(&self, names: &[String]) -> Result<Vec<(usize, f64)>> {
        let reject = |reason: String| Err(Error::Config { field: self.name.clone(), reason });
        // In a sum, each part's number stands before the name, as in 0.lengthscale[0].
        let stem = |full: &str| {
            let stem = full.split('[').next().unwrap_or(full);
            stem == self.name || stem.split_once('.').is_some_and(|(_, own)| own == self.name)
        };
        let own: Vec<usize> =
            (0..names.len()).filter(|&i| names[i] == self.name || stem(&names[i])).collect();
        if own.is_empty() {
            return reject(format!("no hyperparameter has this name; there are {}", names.join(", ")));
        }
        if self.values.len() != 1 && self.values.len() != own.len() {
            return reject(format!("{} values were given for {} of this name", self.values.len(), own.len()));
        }
        self.values.iter().try_for_each(|&value| positive(self.name.as_str(), value, 0))?;
        let value = |(place, &i): (usize, &usize)| (i, self.values[place.min(self.values.len() - 1)]);
        Ok(own.iter().enumerate().map(value).collect())
    }
}

/// By what a hyperparameter of the given label is larger in the units of the data. `length` is the unit of an axis,
/// `target` that of the targets; a variance counts if it is a `leading` one, since factors of a product have no unit.
fn unit(label: &str, length: impl Fn(usize) -> Option<f64>, target: f64, leading: bool) -> f64 {
    let label = label.rsplit('.').next().unwrap_or(label);
    let (stem, axis) = match label.split_once('[') {
        Some((stem, rest)) => (stem, rest.split([',', ']']).next().and_then(|axis| axis.parse().ok())),
        None => (label, None),
    };
    let along = axis.and_then(length).unwrap_or(1.0);
    match stem {
        "lengthscale" | "period" => along,
        "frequency" | "bandwidth" => along.recip(),
        "noise" => target * target,
        "outputscale" if leading => target * target,
        _ => 1.0,
    }
}

/// All hyperparameters of a process in the units of the data, by the names of [`crate::learn::Hyperparameters::named`].
/// `target` is the scale of the targets (1 for classes).
pub fn in_user_units(process: &Wiski, encoder: &Encoder, target: f64) -> Vec<(String, f64)> {
    let hyper = process.hyperparameters();
    let lengths = axis_units(encoder);
    let (mut named, mut first) = (hyper.named().into_iter(), 0);
    let mut all = Vec::new();
    for kernel in &hyper.kernels {
        let leading = kernel.leading_scales();
        for (i, (name, value)) in named.by_ref().take(kernel.parameter_count()).enumerate() {
            let length = |axis: usize| lengths.get(first + axis).copied().flatten();
            let unit = unit(&name, length, target, leading.contains(&i));
            all.push((name, value * unit));
        }
        first += kernel.dim();
    }
    all.extend(named.map(|(name, value)| (name, value * target * target)));
    all
}

/// The unit of each axis, where it has one.
fn axis_units(encoder: &Encoder) -> Vec<Option<f64>> {
    let of_column = |k: usize| Some(encoder.scaling().factor[k].recip());
    match encoder.map() {
        FeatureMap::Identity(_) => (0..encoder.scaling().factor.len()).map(of_column).collect(),
        FeatureMap::Mixed(map) => {
            let unit = |source: &Source| match source {
                Source::Column(k) => Some(match map.columns()[*k] {
                    Column::Periodic { period } => 0.5 * period,
                    Column::Numeric | Column::Categorical { .. } => 1.0,
                }),
                _ => None,
            };
            map.sources().iter().map(unit).collect()
        }
        map => vec![None; map.output_dim()],
    }
}

impl Settings {
    /// These settings with their start values in the units of a model that scales columns and targets so.
    pub(super) fn in_scaled_units(
        &self,
        scaling: &ColumnScaling,
        scale: TargetScale,
        input_dim: usize,
    ) -> Result<Self> {
        let mut settings = self.clone();
        if self.start_values.is_empty() {
            return Ok(settings);
        }
        let kernel = self.plain_kernel(input_dim)?;
        let (names, leading) = (Self::names(&kernel), kernel.leading_scales());
        let identity = self.features == Features::Identity;
        let length = |axis: usize| identity.then(|| scaling.factor[axis].recip());
        settings.start_values.clear();
        for start in &self.start_values {
            for (i, value) in start.places(&names)? {
                let unit = unit(&names[i], length, scale.scale, leading.contains(&i));
                let (name, values) = (names[i].clone(), vec![value / unit]);
                if name == "noise" {
                    settings.initial_noise = values[0];
                }
                settings.start_values.push(StartValue { name, values, fixed: start.fixed });
            }
        }
        Ok(settings)
    }

    /// The names of the hyperparameters of a model with one grid and this kernel.
    pub(super) fn names(kernel: &Kernel) -> Vec<String> {
        kernel.parameter_names().into_iter().chain(["noise".to_string()]).collect()
    }
}
