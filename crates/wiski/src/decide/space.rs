//! The box in which an optimizer looks: named dimensions, each on a linear or logarithmic scale, or a choice between
//! things without an order.
//!
//! A number is one coordinate of the unit cube. A choice between n > 2 things is n coordinates, of which that of the
//! chosen one is high and the others are low, so that any two are equally far from each other; between two, one coordinate
//! does. A point of the cube stands for the choice whose coordinate is largest.
//!
//! A dimension may be there only if something else was chosen ([`Condition`]). Where it is not, it has the coordinates of
//! the center, whatever a point says about it, so that all such points are one.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, length};

/// The most dimensions that can be searched. Beyond some twenty even a sum of functions of one and two of them
/// needs more trials than anyone has, and the climbs of a criterion get lost.
pub const MOST_DIMENSIONS: usize = 50;

/// How far apart the coordinates of two choices are, two of them for a choice between more than two things. Length-scales
/// are learned from where numbers lie in the cube. Under their prior (a mean of ½), a function at one end of a number is
/// next to independent of that at the other, and so would be functions of different choices at the corners of the cube: each
/// combination of choices would be searched for itself. At this distance one says half of another before anything is
/// known, and results teach the rest.
pub(super) const APART: f64 = 0.4;

/// How a dimension is spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Evenly.
    #[default]
    Linear,
    /// Evenly in the logarithm: for learning rates and other positive numbers over several decades.
    Log,
}

/// What must have been chosen for a dimension to matter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// The name of the choice.
    pub choice: String,
    /// The places of those of its things that it takes, in its list.
    pub among: Vec<usize>,
}

/// One number to be chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dimension {
    /// Its name.
    pub name: String,
    /// The smallest value.
    pub lo: f64,
    /// The largest value.
    pub hi: f64,
    /// How it is spaced.
    #[serde(default)]
    pub scale: Scale,
    /// Whether only whole numbers make sense: they are rounded when asked for.
    #[serde(default)]
    pub integer: bool,
    /// How far apart the values are that make sense, counted from `lo`; on a linear scale only. With `integer` both are
    /// whole numbers. None where there are no steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<f64>,
    /// The names of what can be chosen, without an order; the value is the place in this list. Empty for a number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// Whether it is there only if something else was chosen, in a dimension before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_if: Option<Condition>,
}

impl Dimension {
    /// A dimension with values from `lo` to `hi`, evenly spaced.
    pub fn linear(name: impl Into<String>, lo: f64, hi: f64) -> Self {
        Self {
            name: name.into(),
            lo,
            hi,
            scale: Scale::Linear,
            integer: false,
            step: None,
            choices: Vec::new(),
            only_if: None,
        }
    }

    /// A dimension with positive values from `lo` to `hi`, evenly spaced in the logarithm.
    pub fn log(name: impl Into<String>, lo: f64, hi: f64) -> Self {
        Self { scale: Scale::Log, ..Self::linear(name, lo, hi) }
    }

    /// A choice between things without an order, at least two: its value is the place of one in the list.
    pub fn choice(name: impl Into<String>, choices: Vec<String>) -> Self {
        let hi = choices.len().saturating_sub(1) as f64;
        Self { integer: true, choices, ..Self::linear(name, 0.0, hi) }
    }

    /// The same, with values at `lo`, `lo + step` and so on up to `hi`.
    #[must_use]
    pub fn with_step(mut self, step: f64) -> Self {
        self.step = Some(step);
        self
    }

    /// The same, there only if one of the given things was chosen in a dimension before.
    #[must_use]
    pub fn only_if(mut self, choice: impl Into<String>, among: Vec<usize>) -> Self {
        self.only_if = Some(Condition { choice: choice.into(), among });
        self
    }

    /// The number of coordinates of the unit cube.
    pub fn coordinates(&self) -> usize {
        if self.choices.len() > 2 { self.choices.len() } else { 1 }
    }

    fn check(&self) -> Result<()> {
        let reject = |reason: String| Err(Error::Config { field: self.name.clone(), reason });
        for (i, choice) in self.choices.iter().enumerate() {
            if self.choices[..i].contains(choice) {
                return reject(format!("'{choice}' can be chosen twice"));
            }
        }
        let fits = self.choices.is_empty()
            || (self.lo, self.hi, self.scale, self.integer)
                == (0.0, (self.choices.len() - 1) as f64, Scale::Linear, true);
        if !fits || self.choices.len() == 1 {
            return reject(format!("{} choices, where at least two are needed", self.choices.len()));
        }
        if !(self.lo < self.hi && self.lo.is_finite() && self.hi.is_finite()) {
            return reject(format!("{} to {} is not an interval", self.lo, self.hi));
        }
        if self.scale == Scale::Log && self.lo <= 0.0 {
            return reject(format!("a logarithmic scale needs positive values, not {}", self.lo));
        }
        let Some(step) = self.step else { return Ok(()) };
        if !self.choices.is_empty() || self.scale == Scale::Log {
            return reject("steps are for numbers on a linear scale".into());
        }
        if !(step > 0.0 && step <= self.hi - self.lo) {
            return reject(format!("{} to {} cannot be gone in steps of {step}", self.lo, self.hi));
        }
        if self.integer && (step.fract() != 0.0 || self.lo.fract() != 0.0) {
            return reject(format!("from {} in steps of {step} there are other than whole numbers", self.lo));
        }
        Ok(())
    }

    /// Whether it is a number that cannot lie anywhere between its ends.
    pub(super) fn is_spaced(&self) -> bool {
        self.choices.is_empty() && (self.integer || self.step.is_some())
    }

    /// The value after so many steps, or after all there are.
    fn after(&self, count: f64, step: f64) -> f64 {
        // Three steps of a tenth are not quite three tenths.
        let all = ((self.hi - self.lo) / step * (1.0 + 1e-9)).floor();
        (self.lo + count.clamp(0.0, all) * step).min(self.hi)
    }

    /// From the coordinates in the unit cube to a value.
    fn value(&self, u: &[f64]) -> f64 {
        if u.len() > 1 {
            let largest = (0..u.len()).max_by(|&i, &j| u[i].total_cmp(&u[j]));
            return largest.unwrap_or(0) as f64;
        }
        let value = self.number(u[0]);
        match self.step {
            Some(step) => self.after(((value - self.lo) / step).round(), step),
            None if self.integer => value.round().clamp(self.lo, self.hi),
            None => value.clamp(self.lo, self.hi),
        }
    }

    /// What a coordinate stands for where a number may lie anywhere.
    fn number(&self, u: f64) -> f64 {
        match self.scale {
            Scale::Linear => self.lo + u * (self.hi - self.lo),
            Scale::Log => (self.lo.ln() + u * (self.hi.ln() - self.lo.ln())).exp(),
        }
    }

    /// The coordinates of the whole numbers, or of the steps, on both sides of one.
    pub(super) fn neighbors(&self, u: f64) -> [f64; 2] {
        let value = self.number(u);
        let sides = if let Some(step) = self.step {
            let steps = (value - self.lo) / step;
            [steps.floor(), steps.ceil()].map(|count| self.after(count, step))
        } else {
            // The ends of an interval need not be whole.
            let (lo, hi) = (self.lo.ceil(), self.hi.floor().max(self.lo.ceil()));
            [value.floor(), value.ceil()].map(|whole| whole.clamp(lo, hi))
        };
        sides.map(|side| {
            let mut own = Vec::with_capacity(1);
            self.unit(side, &mut own);
            own[0]
        })
    }

    /// The coordinates of the choice at a place of the list, in the unit cube.
    pub(super) fn corner(&self, at: usize) -> Vec<f64> {
        let place = |is_chosen: bool, apart: f64| 0.5 + if is_chosen { 0.5 * apart } else { -0.5 * apart };
        match self.choices.len() {
            2 => vec![place(at > 0, std::f64::consts::SQRT_2 * APART)],
            n => (0..n).map(|i| place(i == at, APART)).collect(),
        }
    }

    /// From a value to the unit cube.
    fn unit(&self, value: f64, out: &mut Vec<f64>) {
        if !self.choices.is_empty() {
            out.extend(self.corner(value.round() as usize));
            return;
        }
        out.push(match self.scale {
            Scale::Linear => (value - self.lo) / (self.hi - self.lo),
            Scale::Log => (value.ln() - self.lo.ln()) / (self.hi.ln() - self.lo.ln()),
        });
    }
}

/// All dimensions of a problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Dimension>", into = "Vec<Dimension>")]
pub struct Space(Vec<Dimension>);

impl TryFrom<Vec<Dimension>> for Space {
    type Error = Error;

    fn try_from(dimensions: Vec<Dimension>) -> Result<Self> {
        Self::new(dimensions)
    }
}

impl From<Space> for Vec<Dimension> {
    fn from(space: Space) -> Self {
        space.0
    }
}

impl Space {
    /// A space of the given dimensions, one to [`MOST_DIMENSIONS`].
    pub fn new(dimensions: Vec<Dimension>) -> Result<Self> {
        dimensions.iter().try_for_each(Dimension::check)?;
        let coordinates: usize = dimensions.iter().map(Dimension::coordinates).sum();
        if dimensions.is_empty() || coordinates > MOST_DIMENSIONS {
            let reason = format!(
                "one to {MOST_DIMENSIONS} dimensions can be searched, not {coordinates} (a choice between n > 2 counts as n)"
            );
            return Err(Error::Config { field: "space".into(), reason });
        }
        for (i, dimension) in dimensions.iter().enumerate() {
            if dimensions[..i].iter().any(|d| d.name == dimension.name) {
                let reason = "the name stands for two dimensions".into();
                return Err(Error::Config { field: dimension.name.clone(), reason });
            }
            if let Some(Condition { choice, among }) = &dimension.only_if {
                let other = dimensions[..i].iter().find(|d| d.name == *choice).map_or(0, |d| d.choices.len());
                if among.is_empty() || among.iter().any(|&at| at >= other) {
                    let reason = format!("'{choice}' is no choice before it with what it depends on");
                    return Err(Error::Config { field: dimension.name.clone(), reason });
                }
            }
        }
        Ok(Self(dimensions))
    }

    /// The unit cube in d dimensions.
    pub fn unit(d: usize) -> Result<Self> {
        Self::new((0..d).map(|k| Dimension::linear(format!("x{k}"), 0.0, 1.0)).collect())
    }

    /// The dimensions.
    pub fn dimensions(&self) -> &[Dimension] {
        &self.0
    }

    /// The number of dimensions.
    pub fn dim(&self) -> usize {
        self.0.len()
    }

    /// The number of coordinates of the unit cube: of dimensions, a choice between n > 2 counting as n.
    pub fn coordinates(&self) -> usize {
        self.0.iter().map(Dimension::coordinates).sum()
    }

    /// From the unit cube to values.
    pub fn values(&self, u: &[f64]) -> Vec<f64> {
        let (mut rest, mut values) = (u, Vec::with_capacity(self.dim()));
        for d in &self.0 {
            let (own, others) = rest.split_at(d.coordinates());
            rest = others;
            values.push(if self.is_active(d, &values) {
                d.value(own)
            } else {
                d.value(&vec![0.5; own.len()])
            });
        }
        values
    }

    /// Where coordinates of points can be: anywhere for numbers, up to the corners for choices.
    pub(super) fn sides(&self) -> Vec<(f64, f64)> {
        let own = |d: &Dimension| {
            let ends = if d.choices.is_empty() { (0.0, 1.0) } else { (d.corner(1)[0], d.corner(0)[0]) };
            vec![(ends.0.min(ends.1), ends.0.max(ends.1)); d.coordinates()]
        };
        self.0.iter().flat_map(own).collect()
    }

    /// Whether there are choices.
    pub(super) fn has_choices(&self) -> bool {
        self.0.iter().any(|d| !d.choices.is_empty())
    }

    /// Whether a dimension is there, given the values of those before it.
    pub fn is_active(&self, dimension: &Dimension, values: &[f64]) -> bool {
        let Some(Condition { choice, among }) = &dimension.only_if else { return true };
        let on = self.0.iter().zip(values).find(|(d, _)| d.name == *choice);
        on.is_some_and(|(d, value)| self.is_active(d, values) && among.contains(&(value.round() as usize)))
    }

    /// From values to the unit cube; values outside are rejected by name.
    pub fn to_unit(&self, values: &[f64]) -> Result<Vec<f64>> {
        length("x", self.dim(), values.len())?;
        let mut all = Vec::with_capacity(self.coordinates());
        for (d, &v) in self.0.iter().zip(values) {
            // A rounding on either side is not outside.
            let slack = 1e-9 * (d.hi - d.lo);
            if !(v.is_finite() && v >= d.lo - slack && v <= d.hi + slack) {
                let reason = format!("{v} lies outside of {} to {}", d.lo, d.hi);
                return Err(Error::Config { field: d.name.clone(), reason });
            }
            if self.is_active(d, values) {
                d.unit(v.clamp(d.lo, d.hi), &mut all);
            } else {
                all.resize(all.len() + d.coordinates(), 0.5);
            }
        }
        Ok(all)
    }
}
