//! What happens to a model, for those who watch: rows with what was predicted for them, refits, drift, failures.

use std::fmt::Write;
use std::sync::Arc;

use tokio::sync::broadcast;
use wiski::persist::{Answer, Target};

use crate::served::Step;

/// A target so many standard deviations off is an alarm.
const ALARM: f64 = 4.0;
/// Events that a slow watcher may lag behind before it misses some.
const BACKLOG: usize = 1024;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What: `row`, `refit`, `drift`, `failure`, `merge`.
    pub name: &'static str,
    /// More about it, in JSON.
    pub data: String,
}

/// Where the events of a model come from.
#[derive(Debug, Clone)]
pub struct Events(broadcast::Sender<Arc<Event>>);

impl Default for Events {
    fn default() -> Self {
        Self(broadcast::Sender::new(BACKLOG))
    }
}

impl Events {
    /// Whether anybody watches.
    pub fn has_watchers(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Watches from now on.
    pub fn watch(&self) -> broadcast::Receiver<Arc<Event>> {
        self.0.subscribe()
    }

    /// Tells those who watch, if any do.
    pub fn tell(&self, name: &'static str, data: String) {
        if self.has_watchers() {
            // Should the last one leave right now, nobody minds.
            let _ = self.0.send(Arc::new(Event { name, data }));
        }
    }
}

/// A row in JSON.
pub fn row(step: &Step) -> String {
    let mut out = format!("{{\"row\":{}", step.row);
    let mut number = |name: &str, value: f64| {
        if value.is_finite() {
            let mut buffer = zmij::Buffer::new();
            let _ = write!(out, ",\"{name}\":{}", buffer.format(value));
        }
    };
    if let Target::Value(y) = step.target {
        number("y", y);
        if let Some(Answer::Value(p)) = step.answer {
            number("mean", p.mean);
            number("std", p.std());
            number("z", (y - p.mean) / p.std());
        }
    }
    if let Some(interval) = step.interval {
        number("lower", interval.lower);
        number("upper", interval.upper);
    }
    let text = |text: &str| serde_json::Value::from(text).to_string();
    if let Target::Label(label) = step.target {
        let _ = write!(out, ",\"y\":{}", text(label));
        if let Some(Answer::Class(p)) = step.answer {
            let probability = p.probabilities.get(p.best).copied().unwrap_or(f64::NAN);
            let _ = write!(out, ",\"label\":{},\"probability\":{probability}", text(&p.label));
        }
    }
    let _ = write!(out, ",\"x\":{}", serde_json::Value::from(step.x));
    if let Some(inside) = step.inside {
        let _ = write!(out, ",\"inside\":{inside}");
    }
    if is_alarm(step) {
        out.push_str(",\"alarm\":true");
    }
    out.push('}');
    out
}

fn is_alarm(step: &Step) -> bool {
    match (step.target, step.answer) {
        (Target::Value(y), Some(Answer::Value(p))) => ((y - p.mean) / p.std()).abs() >= ALARM,
        _ => false,
    }
}
