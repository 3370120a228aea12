//! Class labels: which there are, and what happens when another one comes along.
//!
//! Labels are strings; inside a classifier a class is its number in the list.

use crate::error::{Error, Result};
use crate::saved::{Restore, restored_after_reading};
use serde::{Deserialize, Serialize};

/// What to do with a label that is not among the known classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Unseen {
    /// Reject the row with an error that names the label and the known ones.
    #[default]
    Error,
    /// Make it a new class. Every earlier row counts as one that is not of this class, exactly.
    Add,
}

/// The classes of a classifier.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Classes {
    /// The labels in the order in which probabilities are given; `None` to take those of the warm-up rows, in
    /// alphabetical order.
    pub labels: Option<Vec<String>>,
    /// What to do with other labels later.
    pub unseen: Unseen,
}

impl Classes {
    /// The given classes and no others.
    pub fn declared<S: Into<String>>(labels: impl IntoIterator<Item = S>) -> Self {
        Self { labels: Some(labels.into_iter().map(Into::into).collect()), unseen: Unseen::Error }
    }

    /// The classes that occur in the warm-up rows and no others.
    pub fn discovered() -> Self {
        Self::default()
    }

    /// Lets labels that come up later become new classes.
    #[must_use]
    pub fn adding_unseen(mut self) -> Self {
        self.unseen = Unseen::Add;
        self
    }
}

/// The labels known at the moment.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub(super) struct Labels {
    names: Vec<String>,
    discover: bool,
    unseen: Unseen,
}

restored_after_reading!(Labels);

impl Restore for Labels {
    fn restore(&mut self) -> Result<()> {
        let labels = if self.discover { None } else { Some(self.names.clone()) };
        Self::new(Classes { labels, unseen: self.unseen }).map(|_| ())
    }
}

impl Labels {
    pub(super) fn new(classes: Classes) -> Result<Self> {
        let reject = |reason: String| Err(Error::Config { field: "classes".into(), reason });
        let discover = classes.labels.is_none();
        let names = classes.labels.unwrap_or_default();
        if let Some(twice) = names.iter().enumerate().find_map(|(i, n)| names[..i].contains(n).then_some(n)) {
            return reject(format!("{twice:?} is declared twice"));
        }
        if !discover && classes.unseen == Unseen::Error && names.len() < 2 {
            return reject(format!("a classifier needs at least two classes, not {}", names.len()));
        }
        Ok(Self { names, discover, unseen: classes.unseen })
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    pub(super) fn unseen(&self) -> Unseen {
        self.unseen
    }

    /// The number of a label; `None` for one that may become a new class.
    pub(super) fn index(&self, label: &str, warming_up: bool) -> Result<Option<usize>> {
        let known = self.names.iter().position(|n| n == label);
        if known.is_some() || self.unseen == Unseen::Add || (self.discover && warming_up) {
            return Ok(known);
        }
        Err(Error::UnknownLabel { label: label.into(), known: self.names.clone(), row: 0 })
    }

    /// Adds a label and returns its number. While classes are being discovered the list stays sorted, and
    /// numbers from there on move up by one.
    pub(super) fn add(&mut self, label: &str, warming_up: bool) -> usize {
        let at = if self.discover && warming_up {
            self.names.partition_point(|n| n.as_str() < label)
        } else {
            self.names.len()
        };
        self.names.insert(at, label.into());
        at
    }
}
