//! A line on standard error that shows how far long work is. Nothing is shown where nobody looks.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use wiski::persist::Model;

/// Rows learned, rows a second and the running figures.
pub(crate) struct Progress {
    bar: ProgressBar,
    shown: Instant,
}

impl Progress {
    pub(crate) fn new(visible: bool) -> Self {
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        Self { bar, shown: Instant::now() }
    }

    /// Shows the state from time to time; cheap enough to be called every few hundred rows.
    pub(crate) fn show(&mut self, rows: u64, read: Option<(u64, u64)>, model: &Model) {
        if self.bar.is_hidden() || self.shown.elapsed() < Duration::from_millis(100) {
            return;
        }
        self.shown = Instant::now();
        if let Some((done, total)) = read {
            if self.bar.length() != Some(total) {
                let style = ProgressStyle::with_template("{bar:24} {percent:>3} % {msg} eta {eta}");
                self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
                self.bar.set_length(total);
            }
            self.bar.set_position(done);
        } else {
            self.bar.tick();
        }
        let speed = rows as f64 / self.bar.elapsed().as_secs_f64().max(1e-3);
        self.bar.set_message(format!("{rows} rows, {speed:.0}/s, {}", figures(model)));
    }

    /// Takes the line away.
    pub(crate) fn done(&self) {
        self.bar.finish_and_clear();
    }
}

fn figures(model: &Model) -> String {
    match model {
        Model::Regressor(model) if model.metrics().rows() > 0.0 => {
            let m = model.metrics();
            format!("RMSE {:.4} NLL {:.3} coverage {:.1} %", m.rmse(), m.nll(), 100.0 * m.coverage95())
        }
        Model::Classifier(model) if model.metrics().rows() > 0.0 => {
            let m = model.metrics();
            format!("accuracy {:.1} % log-loss {:.3}", 100.0 * m.accuracy(), m.log_loss())
        }
        _ => "collecting the first rows".into(),
    }
}
