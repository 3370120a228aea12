//! What a writer is asked to do, and what came of it. Both stand in the journal, in MessagePack.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::batch::Batch;

/// Predictions that a remembered reply keeps; of longer ones only what was learned is repeated.
const KEPT_PREDICTIONS: usize = 256;

/// A change of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Op {
    /// Predicts rows, then learns them; at a level, the reply has the predictions.
    Learn(Batch, Option<f64>),
    /// Un-learns rows.
    Forget(Batch),
    /// Proposes so many points.
    Ask(usize),
    /// Learns the results of trials.
    Tell(Batch),
    /// Fits the hyperparameters to everything learned.
    Refit,
    /// Ends learning of features, and the warm-up if it is not over.
    Freeze,
    /// Goes on with what a search or refit beside the stream has found, which catches up with so many rows first. Nobody
    /// asks for it: it stands in the journal so that replaying goes on with it at the same row.
    Attend(usize),
}

impl Op {
    /// The number of rows it brings.
    pub fn rows(&self) -> usize {
        match self {
            Self::Learn(batch, _) | Self::Forget(batch) | Self::Tell(batch) => batch.len(),
            Self::Ask(_) | Self::Refit | Self::Freeze | Self::Attend(_) => 0,
        }
    }

    /// About the memory it takes.
    pub fn bytes(&self) -> usize {
        let rows = match self {
            Self::Learn(batch, _) | Self::Forget(batch) | Self::Tell(batch) => batch.bytes(),
            Self::Ask(_) | Self::Refit | Self::Freeze | Self::Attend(_) => 0,
        };
        rows + 256
    }

    /// What tells it from another change.
    pub fn digest(&self) -> u64 {
        xxh3_64(&rmp_serde::to_vec(self).unwrap_or_default())
    }
}

/// A row that the model did not take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rejected {
    /// Its number in the request, from 0.
    pub row: usize,
    /// Why.
    pub error: String,
}

/// What was said about rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Said {
    /// About numbers; NaN for rows of the warm-up and rejected ones.
    Numbers(Numbers),
    /// About classes.
    Classes(ClassesSaid),
}

/// Predicted numbers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Numbers {
    /// The means.
    pub mean: Vec<f64>,
    /// The standard deviations of an observation.
    pub std: Vec<f64>,
    /// The lower ends of the intervals.
    pub lower: Vec<f64>,
    /// The upper ends.
    pub upper: Vec<f64>,
    /// The times, of a forecast; otherwise empty.
    #[serde(default)]
    pub time: Vec<f64>,
}

impl Numbers {
    /// The lists with their names; the times first, if there are any.
    pub fn columns(&self) -> impl Iterator<Item = (&'static str, &[f64])> {
        let time = (!self.time.is_empty()).then_some(("time", &self.time[..]));
        let rest: [(&str, &[f64]); 4] =
            [("mean", &self.mean), ("std", &self.std), ("lower", &self.lower), ("upper", &self.upper)];
        time.into_iter().chain(rest)
    }

    /// Takes in a prediction with its interval.
    pub fn push(&mut self, mean: f64, std: f64, lower: f64, upper: f64) {
        self.mean.push(mean);
        self.std.push(std);
        self.lower.push(lower);
        self.upper.push(upper);
    }
}

/// Predicted classes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ClassesSaid {
    /// The labels, in the order of the probabilities.
    pub labels: Vec<String>,
    /// For each row the number of the likeliest class; nothing for rows of the warm-up and rejected ones.
    pub best: Vec<Option<usize>>,
    /// For each row the probabilities, one list after the other; NaN where nothing was said.
    pub probabilities: Vec<f64>,
    /// For each row the classes in its set.
    pub sets: Vec<Vec<usize>>,
}

impl Said {
    /// The number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Numbers(numbers) => numbers.mean.len(),
            Self::Classes(classes) => classes.best.len(),
        }
    }

    /// Whether it is about none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What came of a change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// Rows were taken, or not.
    Rows {
        /// How many were.
        taken: usize,
        /// Those that were not.
        rejected: Vec<Rejected>,
        /// The rows that the model has seen by now.
        seen: u64,
        /// What was predicted, where that was asked.
        said: Option<Said>,
    },
    /// Proposed points.
    Points(Vec<Vec<f64>>),
    /// It was done.
    Done,
    /// It makes no sense for this model as it is.
    Refused(String),
    /// The warm-up is not over.
    NotReady,
}

impl From<wiski::Error> for Reply {
    fn from(error: wiski::Error) -> Self {
        match error {
            wiski::Error::NotReady { .. } => Self::NotReady,
            other => Self::Refused(other.to_string()),
        }
    }
}

/// A change as it stands in the journal, with the key by which a retry is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The key, if the client gave one.
    pub key: Option<String>,
    /// The change.
    pub op: Op,
}

/// A reply that is kept for retries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// The key.
    pub key: String,
    /// What was asked.
    pub digest: u64,
    /// What came of it.
    pub reply: Reply,
}

/// The keys of the last changes, and what came of them: bounded, oldest out first.
#[derive(Debug, Default)]
pub struct Keys {
    most: usize,
    order: VecDeque<String>,
    replies: HashMap<String, (u64, Reply)>,
}

impl Keys {
    /// At most so many.
    pub fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// The digest and reply of a key.
    pub fn get(&self, key: &str) -> Option<&(u64, Reply)> {
        self.replies.get(key)
    }

    /// Remembers a key.
    pub fn insert(&mut self, key: String, digest: u64, mut reply: Reply) {
        if let Reply::Rows { said, .. } = &mut reply {
            said.take_if(|said| said.len() > KEPT_PREDICTIONS);
        }
        if self.replies.insert(key.clone(), (digest, reply)).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > self.most {
            if let Some(oldest) = self.order.pop_front() {
                self.replies.remove(&oldest);
            }
        }
    }

    /// All, from the oldest.
    pub fn list(&self) -> Vec<Kept> {
        let one = |key: &String| {
            let (digest, reply) = self.replies.get(key)?;
            Some(Kept { key: key.clone(), digest: *digest, reply: reply.clone() })
        };
        self.order.iter().filter_map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_keys_make_room() {
        let mut keys = Keys::new(3);
        for i in 0..10 {
            keys.insert(format!("k{i}"), i, Reply::Done);
            keys.insert(format!("k{i}"), i, Reply::Done);
        }
        assert_eq!(keys.list().iter().map(|k| k.key.as_str()).collect::<Vec<_>>(), ["k7", "k8", "k9"]);
        assert!(keys.get("k6").is_none() && keys.get("k9").is_some());
    }
}
