//! Trials that are runs of the user's program.

use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use anyhow::{Context, Result, ensure};
use wiski::decide::{Dimension, Optimizer, Outcome, Space};

use super::space;

/// A command with places for the values.
pub(super) struct Program {
    command: String,
    key: Option<String>,
    jobs: usize,
    dimensions: Vec<Dimension>,
}

/// What a run came to.
enum Ended {
    Value(f64),
    Failed(String),
}

impl Program {
    pub(super) fn new(command: &str, key: Option<String>, jobs: usize, space: &Space) -> Result<Self> {
        ensure!(jobs > 0, "--jobs: at least one");
        for d in space.dimensions() {
            let place = format!("{{{}}}", d.name);
            ensure!(command.contains(&place), "--command: {place} does not occur in it");
        }
        Ok(Self { command: command.into(), key, jobs, dimensions: space.dimensions().to_vec() })
    }

    /// Runs trials until there are `total`, several at once; `after` sees every result.
    pub(super) fn run(
        &self,
        optimizer: &mut Optimizer,
        total: u64,
        mut after: impl FnMut(&Optimizer, u64) -> wiski::Result<()>,
    ) -> Result<()> {
        let (send, receive) = channel();
        let mut done = optimizer.trials().len() as u64;
        let mut running = 0;
        while done < total || running > 0 {
            while running < self.jobs as u64 && done + running < total {
                for x in optimizer.ask(1)? {
                    self.start(x, send.clone());
                    running += 1;
                }
            }
            let (x, ended) = receive.recv().context("a trial has vanished")?;
            running -= 1;
            done += 1;
            match ended {
                Ended::Value(value) => {
                    let before = failures(optimizer);
                    optimizer.tell(&x, value)?;
                    // Those of the first trials show as absurd only beside the others.
                    let unbelieved = failures(optimizer) - before;
                    if unbelieved > 0 {
                        eprintln!(
                            "wiski: after trial {done}: {unbelieved} results cannot be believed beside the others, and \
                             count as failed"
                        );
                    }
                }
                Ended::Failed(why) => {
                    eprintln!("wiski: trial {done} failed: {why}");
                    optimizer.tell_failed(&x)?;
                }
            }
            after(optimizer, done)?;
        }
        Ok(())
    }

    fn start(&self, x: Vec<f64>, send: Sender<(Vec<f64>, Ended)>) {
        let mut command = self.command.clone();
        for (d, v) in self.dimensions.iter().zip(&x) {
            command = command.replace(&format!("{{{}}}", d.name), &space::text(d, *v));
        }
        let key = self.key.clone();
        thread::spawn(move || {
            let ended = execute(&command, key.as_deref());
            // Nobody waits any more if the optimizer has failed.
            let _ = send.send((x, ended));
        });
    }
}

fn failures(optimizer: &Optimizer) -> usize {
    optimizer.trials().iter().filter(|trial| trial.outcome == Outcome::Failed).count()
}

fn execute(command: &str, key: Option<&str>) -> Ended {
    let output = match Command::new("sh").arg("-c").arg(command).output() {
        Ok(output) => output,
        Err(error) => return Ended::Failed(error.to_string()),
    };
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or_default().to_string();
        return Ended::Failed(format!("{}: {last}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let value = match key {
        Some(key) => text
            .lines()
            .rev()
            .find_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()?.get(key)?.as_f64()),
        None => text.split_whitespace().rev().find_map(|word| word.trim_matches([',', ';']).parse().ok()),
    };
    match value {
        Some(v) if v.is_finite() => Ended::Value(v),
        Some(v) => Ended::Failed(format!("its result is {v}")),
        None => Ended::Failed("it printed no number".into()),
    }
}
