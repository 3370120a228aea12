//! Trials that are runs of the user's program.

use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use anyhow::{Context, Result, ensure};
use wiski::decide::{Dimension, Optimizer, Outcome, Space, Trial};

use super::space;

/// A command with places for the values.
pub(super) struct Program {
    command: String,
    keys: Keys,
    jobs: usize,
    dimensions: Vec<Dimension>,
}

/// Where results are in the last JSON object that a program prints; without any it is the last number.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys {
    pub(super) objectives: Vec<String>,
    pub(super) constraints: Vec<String>,
}

/// What a run came to.
enum Ended {
    /// The values of the objectives and of the constraints.
    Values(Vec<f64>, Vec<f64>),
    Failed(String),
}

impl Program {
    pub(super) fn new(command: &str, keys: Keys, jobs: usize, space: &Space) -> Result<Self> {
        ensure!(jobs > 0, "--jobs: at least one");
        for d in space.dimensions() {
            let place = format!("{{{}}}", d.name);
            ensure!(command.contains(&place), "--command: {place} does not occur in it");
        }
        Ok(Self { command: command.into(), keys, jobs, dimensions: space.dimensions().to_vec() })
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
                Ended::Values(values, constraints) => {
                    let before = failures(optimizer);
                    let trial = Trial::new(x, values[0]).with_further(&values[1..]);
                    optimizer.tell_trial(&trial.with_constraints(constraints))?;
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
        let keys = self.keys.clone();
        thread::spawn(move || {
            let ended = execute(&command, &keys);
            // Nobody waits any more if the optimizer has failed.
            let _ = send.send((x, ended));
        });
    }
}

fn failures(optimizer: &Optimizer) -> usize {
    optimizer.trials().iter().filter(|trial| trial.outcome == Outcome::Failed).count()
}

fn execute(command: &str, keys: &Keys) -> Ended {
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
    if keys.objectives.is_empty() {
        let last = text.split_whitespace().rev().find_map(|word| word.trim_matches([',', ';']).parse().ok());
        return match last {
            Some(value) => ended(vec![value], Vec::new()),
            None => Ended::Failed("it printed no number".into()),
        };
    }
    // The last line that has the first objective has the others, too.
    let has_result = |line: &str| {
        let object = serde_json::from_str::<serde_json::Value>(line).ok()?;
        object.get(&keys.objectives[0])?.as_f64()?;
        Some(object)
    };
    let Some(object) = text.lines().rev().find_map(has_result) else {
        return Ended::Failed(format!("it printed no JSON object with a number '{}'", keys.objectives[0]));
    };
    let number = |key: &String| {
        let found = object.get(key).and_then(serde_json::Value::as_f64);
        found.ok_or_else(|| Ended::Failed(format!("its result has no number '{key}'")))
    };
    let all = |keys: &[String]| keys.iter().map(number).collect::<Result<Vec<f64>, Ended>>();
    match (all(&keys.objectives), all(&keys.constraints)) {
        (Ok(values), Ok(constraints)) => ended(values, constraints),
        (Err(failed), _) | (_, Err(failed)) => failed,
    }
}

/// What a result is worth, infinity included, is for the optimizer to say.
fn ended(values: Vec<f64>, constraints: Vec<f64>) -> Ended {
    if values.iter().chain(&constraints).any(|value| value.is_nan()) {
        return Ended::Failed("its result is NaN".into());
    }
    Ended::Values(values, constraints)
}
