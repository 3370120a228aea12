//! Which of very many columns say anything about the targets: a first look at rows in memory, one column at a time.
//!
//! For column k the targets are fitted by a straight line and by the means of B groups of neighboring values. The gain
//! in log likelihood of the better fit over a constant, less Schwarz's penalty for its q parameters,
//!
//! ```text
//! −n/2 · ln(1 − R²) − q/2 · ln n
//! ```
//!
//! is the column's score. It costs O(n log n) a column. What only several columns together say is not seen, so that the
//! look is taken only where there are more columns than a model can carry.

use crate::error::{Result, length};

/// A look at so many rows, evenly spread, says enough.
const MOST_ROWS: usize = 2048;
/// Groups of neighboring values, if each has ten rows or more.
const GROUPS: usize = 10;

/// The `most` columns with the best scores, in their order. `targets` holds one value a row for each process: a column
/// that matters to one of them matters.
pub(crate) fn screen(x: &[f64], dim: usize, targets: &[&[f64]], most: usize) -> Result<Vec<usize>> {
    if dim <= most {
        return Ok((0..dim).collect());
    }
    let n = x.len() / dim;
    targets.iter().try_for_each(|y| length("targets", n, y.len()))?;
    let rows: Vec<usize> =
        (0..n).filter(|i| (i + 1) * MOST_ROWS.min(n) / n > i * MOST_ROWS.min(n) / n).collect();
    let targets: Vec<Vec<f64>> = targets.iter().map(|y| centered(rows.iter().map(|&i| y[i]))).collect();
    let mut order: Vec<usize> = Vec::with_capacity(rows.len());
    let mut scored: Vec<(f64, usize)> = Vec::with_capacity(dim);
    for column in 0..dim {
        let values: Vec<f64> = rows.iter().map(|&i| x[i * dim + column]).collect();
        order.clear();
        order.extend(0..rows.len());
        order.sort_unstable_by(|&i, &j| values[i].total_cmp(&values[j]));
        let score = targets.iter().map(|y| score(&values, &order, y)).fold(f64::NEG_INFINITY, f64::max);
        scored.push((score, column));
    }
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut kept: Vec<usize> = scored[..most].iter().map(|s| s.1).collect();
    kept.sort_unstable();
    Ok(kept)
}

fn centered(values: impl Iterator<Item = f64> + Clone) -> Vec<f64> {
    let (sum, n) = values.clone().fold((0.0, 0.0), |(sum, n), v| (sum + v, n + 1.0));
    values.map(|v| v - sum / n).collect()
}

/// The score of a column; −∞ if it or the target is constant.
fn score(values: &[f64], order: &[usize], y: &[f64]) -> f64 {
    let n = y.len() as f64;
    let total: f64 = y.iter().map(|y| y * y).sum();
    let mean = values.iter().sum::<f64>() / n;
    let spread: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    if !(total > 0.0 && spread > 0.0 && spread.is_finite()) {
        return f64::NEG_INFINITY;
    }
    let product: f64 = values.iter().zip(y).map(|(v, y)| (v - mean) * y).sum();
    let gain = |explained: f64, parameters: f64| {
        -0.5 * n * (1.0 - explained).max(1e-12).ln() - 0.5 * parameters * n.ln()
    };
    let line = gain(product * product / (spread * total), 1.0);
    let (mut between, mut groups, mut begin) = (0.0, 0.0, 0);
    let count = GROUPS.min(y.len() / 10).max(2);
    for group in 1..=count {
        // Equal values stay together.
        let mut end = (group * y.len() / count).max(begin);
        while end > begin && end < y.len() && values[order[end]] == values[order[end - 1]] {
            end += 1;
        }
        if end > begin {
            let sum: f64 = order[begin..end].iter().map(|&i| y[i]).sum();
            between += sum * sum / (end - begin) as f64;
            groups += 1.0;
        }
        begin = end;
    }
    line.max(gain(between / total, groups - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn columns_that_matter_are_found_among_thousands() {
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(1);
        let (n, dim) = (600, 2000);
        let x: Vec<f64> = (0..n * dim).map(|_| rng.random_range(-1.0..1.0)).collect();
        let row = |i: usize| &x[i * dim..(i + 1) * dim];
        // A line, a bump without any slope, and a step that only the second target has.
        let first: Vec<f64> = (0..n).map(|i| row(i)[17] + 2.0 * (3.0 * row(i)[1200]).cos()).collect();
        let second: Vec<f64> = (0..n).map(|i| f64::from(row(i)[1999] > 0.3)).collect();
        let kept = screen(&x, dim, &[&first, &second], 20).unwrap();
        assert_eq!(kept.len(), 20);
        assert!([17, 1200, 1999].iter().all(|c| kept.contains(c)), "{kept:?}");
        assert_eq!(screen(&x[..40], 4, &[&first[..10]], 5).unwrap(), [0, 1, 2, 3]);
    }

    #[test]
    fn constants_and_ties_do_no_harm() {
        let (n, dim) = (100, 3);
        let x: Vec<f64> = (0..n).flat_map(|i| [7.0, f64::from(i % 2 == 0), i as f64]).collect();
        let y: Vec<f64> = (0..n).map(|i| f64::from(i % 2 == 0)).collect();
        assert_eq!(screen(&x, dim, &[&y], 1).unwrap(), [1]);
        assert_eq!(screen(&x, dim, &[&vec![3.0; n]], 2).unwrap().len(), 2);
    }
}
