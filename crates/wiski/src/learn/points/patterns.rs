//! Rows that share their noise, so that the cost of many outputs is that of one.
//!
//! The sums of output c weight row i by 1/d_ic. Written as h_i ω_kc, with a pattern k(i) of which there are few,
//!
//! ```text
//! Σ_i φ_i φ_iᵀ/d_ic = Σ_k ω_kc G_k,     G_k = Σ_{i∈k} h_i φ_i φ_iᵀ
//! ```
//!
//! so rows are multiplied once, not once for each output. One output is one pattern with h = 1/d. Targets of C classes
//! take two values of noise, which makes C patterns. Where there are more than a few patterns, each row is taken once
//! for each output.

use std::collections::HashMap;

use super::data::Table;

/// A row and its weight h.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Weighted {
    pub(super) row: usize,
    pub(super) weight: f64,
}

/// The rows of each pattern, and the patterns' weights of each output.
#[derive(Debug, Clone)]
pub(super) struct Patterns {
    pub(super) rows: Vec<Vec<Weighted>>,
    /// ω_kc.
    pub(super) weights: Vec<Vec<f64>>,
    /// The commonest ω_kc of each output: most patterns deviate from it in one output only.
    pub(super) common: Vec<f64>,
}

impl Patterns {
    pub(super) fn new(table: &Table) -> Self {
        let outputs = table.targets.len();
        let (rows, weights) = if outputs == 1 {
            let rows = table.targets[0].precision.iter().enumerate();
            (vec![rows.map(|(row, &weight)| Weighted { row, weight }).collect()], vec![vec![1.0]])
        } else {
            shared(table).unwrap_or_else(|| separate(table))
        };
        let common = (0..outputs).map(|c| commonest(weights.iter().map(|w| w[c]))).collect();
        Self { rows, weights, common }
    }

    /// H_k = Σ h over the rows of a pattern.
    pub(super) fn mass(&self, k: usize) -> f64 {
        self.rows[k].iter().map(|r| r.weight).sum()
    }
}

type Groups = (Vec<Vec<Weighted>>, Vec<Vec<f64>>);

/// Rows with the same noise in every output; `None` if that are more groups than it would save work.
fn shared(table: &Table) -> Option<Groups> {
    let outputs = table.targets.len();
    let mut known: HashMap<Vec<u64>, usize> = HashMap::new();
    let (mut rows, mut weights) = (Vec::new(), Vec::new());
    for row in 0..table.len() {
        let own: Vec<f64> = table.targets.iter().map(|t| t.precision[row]).collect();
        let k = *known.entry(own.iter().map(|w| w.to_bits()).collect()).or_insert_with(|| {
            rows.push(Vec::new());
            weights.push(own);
            rows.len() - 1
        });
        if k > 2 * outputs {
            return None;
        }
        rows[k].push(Weighted { row, weight: 1.0 });
    }
    Some((rows, weights))
}

/// Every row once for each output.
fn separate(table: &Table) -> Groups {
    let outputs = table.targets.len();
    let rows = |c: usize| {
        let all = table.targets[c].precision.iter().enumerate();
        all.map(|(row, &weight)| Weighted { row, weight }).collect()
    };
    let unit = |c: usize| (0..outputs).map(|o| f64::from(u8::from(o == c))).collect();
    ((0..outputs).map(rows).collect(), (0..outputs).map(unit).collect())
}

fn commonest(values: impl Iterator<Item = f64>) -> f64 {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    values.for_each(|v| *counts.entry(v.to_bits()).or_default() += 1);
    // Ties go to the smaller bits, so that the choice does not depend on the map's order.
    let best = counts.into_iter().max_by_key(|&(bits, count)| (count, std::cmp::Reverse(bits)));
    best.map_or(1.0, |(bits, _)| f64::from_bits(bits))
}
