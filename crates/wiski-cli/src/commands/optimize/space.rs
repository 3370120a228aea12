//! Space files, and points by the names of their dimensions.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use wiski::decide::{Dimension, Scale, Space};

use crate::model_options::number;

/// One entry of a space file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    min: f64,
    max: f64,
    #[serde(default)]
    scale: Scale,
    #[serde(default)]
    integer: bool,
    step: Option<f64>,
}

/// The entry of a choice.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Choices {
    choices: Vec<Value>,
}

/// The space that a TOML file describes.
pub(super) fn read(path: &Path) -> Result<Space> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let one_line = |error: toml::de::Error| {
        let line = error.span().map_or(1, |s| 1 + text[..s.start.min(text.len())].matches('\n').count());
        anyhow::anyhow!("{}: line {line}: {}", path.display(), error.message())
    };
    let ranges: toml::Table = text.parse().map_err(one_line)?;
    let plain = |name: String, value: toml::Value| -> Result<Dimension> {
        let reject = |e: toml::de::Error| anyhow::anyhow!("{}: [{name}]: {}", path.display(), e.message());
        if value.get("choices").is_some() {
            let Choices { choices } = value.try_into().map_err(reject)?;
            let text = |choice: &Value| choice.as_str().map_or_else(|| choice.to_string(), String::from);
            return Ok(Dimension::choice(name, choices.iter().map(text).collect()));
        }
        let Range { min, max, scale, integer, step } = value.try_into().map_err(reject)?;
        Ok(Dimension { scale, integer, step, ..Dimension::linear(name, min, max) })
    };
    let mut dimensions: Vec<Dimension> = Vec::new();
    for (name, mut value) in ranges {
        let only_if = value.as_table_mut().and_then(|entry| entry.remove("only_if"));
        let condition = only_if.map(|said| condition(&said, &dimensions)).transpose();
        let condition = condition.with_context(|| format!("{}: [{name}]", path.display()))?;
        let dimension = plain(name, value)?;
        dimensions.push(match condition {
            Some((choice, among)) => dimension.only_if(choice, among),
            None => dimension,
        });
    }
    Space::new(dimensions).with_context(|| path.display().to_string())
}

/// What `only_if = { solver = ["sgd"] }` says: the choice, and the places of its values.
fn condition(said: &toml::Value, before: &[Dimension]) -> Result<(String, Vec<usize>)> {
    let usage = "only_if names one choice above and its values, as { solver = [\"sgd\"] }";
    let entry = said.as_table().filter(|table| table.len() == 1).and_then(|table| table.iter().next());
    let (name, values) = entry.context(usage)?;
    let choice = before.iter().find(|d| d.name == *name && !d.choices.is_empty()).context(usage)?;
    let place = |value: &toml::Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), String::from);
        let place = choice.choices.iter().position(|known| *known == text);
        place.with_context(|| format!("only_if: '{text}' is not one of the choices of '{name}'"))
    };
    let places = values.as_array().context(usage)?.iter().map(place).collect::<Result<_>>()?;
    Ok((name.clone(), places))
}

/// A point as JSON, by names.
pub(super) fn named(space: &Space, x: &[f64]) -> Value {
    let value = |(d, v): (&Dimension, &f64)| {
        let v = match d.choices.get(*v as usize) {
            Some(choice) => json!(choice),
            None if d.integer => json!(*v as i64),
            None => json!(v),
        };
        (d.name.clone(), v)
    };
    Value::Object(space.dimensions().iter().zip(x).map(value).collect())
}

/// A value as it stands on a command line.
pub(super) fn text(dimension: &Dimension, value: f64) -> String {
    match dimension.choices.get(value as usize) {
        Some(choice) => choice.clone(),
        None if dimension.integer => format!("{}", value as i64),
        None => format!("{value}"),
    }
}

/// The value that a text on a command line stands for.
pub(super) fn value(dimension: &Dimension, text: &str) -> Result<f64> {
    if dimension.choices.is_empty() {
        return number("--at", text);
    }
    let place = dimension.choices.iter().position(|choice| choice == text.trim());
    let place = place.with_context(|| {
        format!(
            "--at: '{text}' is not one of the choices {} of '{}'",
            dimension.choices.join(", "),
            dimension.name
        )
    })?;
    Ok(place as f64)
}
