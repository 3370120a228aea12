//! What a search has found: printed, as JSON, and as a page with figures.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::json;
use wiski::decide::{Goal, Optimizer, Outcome, Scale, TestFunction, Trial};
use wiski_figures::{Figure, Map, Run, Trace};

use super::space::named;
use crate::output::say;
use crate::report::{self, Report};
use crate::summary;

/// What a search has come to; `run` holds its time and the test function, if it was one.
pub(super) fn print(
    optimizer: &Optimizer,
    json: bool,
    run: Option<(f64, Option<TestFunction>)>,
) -> Result<()> {
    let space = optimizer.space();
    let best = optimizer.best();
    let recommended = optimizer.recommend()?;
    let trials = optimizer.trials().len();
    let failed = optimizer.trials().iter().filter(|t| t.outcome == Outcome::Failed).count();
    let is_front = !optimizer.settings().further.is_empty();
    let has_constraints = !optimizer.settings().constraints.is_empty();
    let feasible = optimizer.trials().iter().filter(|t| t.is_feasible()).count();
    let value = |outcome: Outcome| match outcome {
        Outcome::Value(v) => Some(v),
        Outcome::Failed => None,
    };
    if json {
        let mut all = json!({
            "trials": trials,
            "failed": failed,
            "best": best.map(|t| json!({ "x": named(space, &t.x), "value": value(t.outcome) })),
            "recommended": recommended.as_ref().map(|(x, mean, std)| {
                json!({ "x": named(space, x), "mean": mean, "std": std })
            }),
        });
        if has_constraints {
            all["feasible"] = json!(feasible);
        }
        if is_front {
            let point = |t: &&Trial| json!({ "x": named(space, &t.x), "values": t.values() });
            all["front"] = optimizer.front().iter().map(point).collect();
        }
        if let Some((seconds, function)) = run {
            all["seconds"] = json!({ "total": seconds, "per_trial": seconds / (trials as f64).max(1.0) });
            if let Some(function) = function {
                // Without the noise: at the recommended point, and the best of all points tried.
                let latent =
                    optimizer.trials().iter().map(|t| function.value(&t.x)).fold(f64::INFINITY, f64::min);
                all["latent"] = json!({
                    "recommended": recommended.as_ref().map(|r| function.value(&r.0)),
                    "best": latent,
                });
            }
        }
        say(format_args!("{all}"))?;
        return Ok(());
    }
    let mut lines = vec![("trials".to_string(), format!("{trials}, {failed} of them failed"))];
    if has_constraints {
        lines.push(("feasible".into(), format!("{feasible}")));
    }
    if is_front {
        for trial in optimizer.front() {
            let values = trial.values().iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
            lines.push(("on the front".into(), format!("{values} at {}", named(space, &trial.x))));
        }
    }
    if let Some(t) = best {
        lines.push((
            "best measured".into(),
            format!("{} at {}", value(t.outcome).unwrap_or(f64::NAN), named(space, &t.x)),
        ));
    }
    if let Some((x, mean, std)) = recommended {
        lines.push(("best predicted".into(), format!("{mean:.6} ± {std:.6} at {}", named(space, &x))));
    }
    if let Some((seconds, _)) = run {
        lines.push(("time".into(), format!("{seconds:.2} s")));
    }
    say(summary::table(&lines).trim_end())?;
    Ok(())
}

/// Writes a page with figures; its path.
pub(super) fn write_report(folder: &Path, optimizer: &Optimizer) -> Result<PathBuf> {
    let goals: Vec<Goal> = optimizer.settings().goals().collect();
    let mut runs = Vec::new();
    for (k, goal) in goals.iter().enumerate() {
        let better = |a: f64, b: f64| match goal {
            Goal::Minimize => a.min(b),
            Goal::Maximize => a.max(b),
        };
        let told: Vec<&Trial> = optimizer.trials().iter().filter(|t| t.outcome != Outcome::Failed).collect();
        // Those count as the best at which every constraint holds; before there is one, none does.
        let best = told.iter().scan(f64::NAN, |best, trial| {
            if trial.is_feasible() {
                let value = trial.values()[k];
                *best = if best.is_nan() { value } else { better(*best, value) };
            }
            Some(*best)
        });
        let name = if goals.len() > 1 { format!("objective {}", k + 1) } else { "value".into() };
        runs.push(Run { name, best: best.collect(), values: told.iter().map(|t| t.values()[k]).collect() });
    }
    let mut figures: Vec<Box<dyn Figure>> =
        vec![Box::new(Trace { title: String::new(), y_label: "value".into(), runs })];
    if let Some(map) = surface(optimizer)? {
        figures.push(Box::new(map));
    }
    let mut headline = vec![("Trials".to_string(), optimizer.trials().len().to_string())];
    if let Some((x, mean, std)) = optimizer.recommend()? {
        headline.push(("Best predicted".into(), format!("{mean:.5} ± {std:.5}")));
        headline.push(("At".into(), named(optimizer.space(), &x).to_string()));
    }
    let settings = format!("{:?}", optimizer.settings().strategy);
    let page = Report {
        title: "Optimization".into(),
        summary: "Each point was proposed by the model that had learned all results before it.".into(),
        headline,
        figures,
        settings: vec![("Strategy".into(), settings)],
        ..Report::default()
    };
    report::write(folder, &page)
}

/// Mean and deviation over the first two dimensions, the others where the best point is.
fn surface(optimizer: &Optimizer) -> Result<Option<Map>> {
    let (space, mut model) = (optimizer.space(), optimizer.surrogate().cloned());
    let Some((best, _, _)) = optimizer.recommend()? else { return Ok(None) };
    let Some(model) = &mut model else { return Ok(None) };
    let plain = |k: usize| space.dimensions().get(k).is_some_and(|d| d.coordinates() == 1);
    // In many dimensions the model covers a part of the box only.
    if !(plain(0) && plain(1)) || model.covers().iter().any(|side| *side != (-1.0, 1.0)) {
        return Ok(None);
    }
    let mut unit = space.to_unit(&best)?;
    let places: Vec<f64> = (0..60).map(|i| 1e-9 + (1.0 - 2e-9) * f64::from(i) / 59.0).collect();
    let sign = if optimizer.settings().goal == Goal::Maximize { 1.0 } else { -1.0 };
    let (mut mean, mut std) = (Vec::new(), Vec::new());
    for &v in &places {
        for &u in &places {
            (unit[0], unit[1]) = (u, v);
            let place: Vec<f64> = unit.iter().map(|u| 2.0 * u - 1.0).collect();
            let p = model.predict(&place)?;
            mean.push(sign * p.mean);
            std.push(p.variance.sqrt());
        }
    }
    let axis = |k: usize| -> (String, Vec<f64>) {
        let d = &space.dimensions()[k];
        match d.scale {
            Scale::Linear => (d.name.clone(), places.iter().map(|u| d.lo + u * (d.hi - d.lo)).collect()),
            Scale::Log => {
                let (lo, hi) = (d.lo.log10(), d.hi.log10());
                (format!("log10 {}", d.name), places.iter().map(|u| lo + u * (hi - lo)).collect())
            }
        }
    };
    let ((x_label, x), (y_label, y)) = (axis(0), axis(1));
    let scaled =
        |k: usize, t: &[f64]| if space.dimensions()[k].scale == Scale::Log { t[k].log10() } else { t[k] };
    let field = |of: &str, values| wiski_figures::Field { title: String::new(), quantity: of.into(), values };
    Ok(Some(Map {
        title: String::new(),
        x_label,
        y_label,
        x,
        y,
        fields: vec![field("mean", mean), field("standard deviation", std)],
        data_x: optimizer.trials().iter().map(|t| scaled(0, &t.x)).collect(),
        data_y: optimizer.trials().iter().map(|t| scaled(1, &t.x)).collect(),
    }))
}
