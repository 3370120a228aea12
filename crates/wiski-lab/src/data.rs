//! Tables from gzipped CSV files, scaled and split as in the paper.
//!
//! Inputs are scaled to [−1, 1] and regression targets standardized, both over the whole set; a tenth of the rows is
//! held out; the first twentieth of the rest is the warm-up and the remainder is streamed once.

use anyhow::{Context, ensure};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::io::Read;
use std::path::Path;

/// The text of `NAME.csv.gz`.
pub fn read_text(folder: &Path, name: &str) -> anyhow::Result<String> {
    let path = folder.join(format!("{name}.csv.gz"));
    let at = || path.display().to_string();
    let file = std::fs::File::open(&path).with_context(at)?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).with_context(at)?;
    Ok(text)
}

/// Rows of inputs, one after the other, and their targets.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    /// The number of inputs.
    pub dim: usize,
    /// The inputs, row after row.
    pub x: Vec<f64>,
    /// The targets.
    pub y: Vec<f64>,
}

impl Table {
    /// Reads `NAME.csv.gz`: a header, then numbers; the last column is the target.
    pub fn read(folder: &Path, name: &str) -> anyhow::Result<Self> {
        Self::parse(&read_text(folder, name)?).with_context(|| format!("{name}.csv.gz"))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut lines = text.lines();
        let columns = lines.next().context("the file is empty")?.split(',').count();
        ensure!(columns > 1, "there is one column only");
        let mut table = Self { dim: columns - 1, ..Self::default() };
        for (i, line) in lines.enumerate() {
            let row: Vec<f64> = line
                .split(',')
                .map(|cell| cell.trim().parse::<f64>())
                .collect::<Result<_, _>>()
                .with_context(|| format!("row {}", i + 1))?;
            ensure!(row.len() == columns, "row {} has {} columns, not {columns}", i + 1, row.len());
            ensure!(row.iter().all(|v| v.is_finite()), "row {} has a number that is not finite", i + 1);
            table.x.extend_from_slice(&row[..table.dim]);
            table.y.push(row[table.dim]);
        }
        Ok(table)
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.y.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.y.is_empty()
    }

    /// The inputs of a row.
    pub fn row(&self, i: usize) -> &[f64] {
        &self.x[i * self.dim..(i + 1) * self.dim]
    }

    /// The chosen rows, in the given order.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> Self {
        Self {
            dim: self.dim,
            x: rows.iter().flat_map(|&i| self.row(i)).copied().collect(),
            y: rows.iter().map(|&i| self.y[i]).collect(),
        }
    }

    /// Every input from its range to [−1, 1]; a constant input becomes 0.
    pub fn scale_inputs(tables: &mut [&mut Self]) {
        let dim = tables.first().map_or(0, |t| t.dim);
        for k in 0..dim {
            let all = tables.iter().flat_map(|t| t.x.iter().skip(k).step_by(dim)).copied();
            let (lo, hi) = all.fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), v| (lo.min(v), hi.max(v)));
            for table in tables.iter_mut() {
                for v in table.x.iter_mut().skip(k).step_by(dim) {
                    *v = if hi > lo { 2.0 * (*v - lo) / (hi - lo) - 1.0 } else { 0.0 };
                }
            }
        }
    }

    /// Targets of mean 0 and (unbiased) variance 1.
    pub fn standardize_targets(&mut self) {
        let n = self.y.len() as f64;
        let mean = self.y.iter().sum::<f64>() / n;
        let deviation = (self.y.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
        self.y.iter_mut().for_each(|y| *y = (*y - mean) / deviation);
    }

    /// A regression set with the paper's scaling.
    pub fn regression(folder: &Path, name: &str) -> anyhow::Result<Self> {
        let mut table = Self::read(folder, name)?;
        Self::scale_inputs(&mut [&mut table]);
        table.standardize_targets();
        Ok(table)
    }

    /// Training and test rows of a classification set, with inputs scaled over both and labels 0 and 1.
    pub fn classification(folder: &Path, name: &str) -> anyhow::Result<(Self, Self)> {
        let mut train = Self::read(folder, &format!("{name}_train"))?;
        let mut test = Self::read(folder, &format!("{name}_test"))?;
        Self::scale_inputs(&mut [&mut train, &mut test]);
        for table in [&mut train, &mut test] {
            table.y.iter_mut().for_each(|y| *y = f64::from(u8::from(*y > 0.5)));
        }
        Ok((train, test))
    }
}

/// The three parts of a set.
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    /// Learned in batch.
    pub warm_up: Table,
    /// Learned row by row.
    pub stream: Table,
    /// Never learned.
    pub test: Table,
}

impl Split {
    /// The paper's split, by the order that a seed gives; at most `most_test` of the held-out rows are kept.
    pub fn paper(table: &Table, seed: u64, most_test: usize) -> Self {
        let mut order: Vec<usize> = (0..table.len()).collect();
        order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
        let (test, train) = order.split_at(table.len() / 10);
        let (warm_up, stream) = train.split_at(train.len() / 20);
        let test = &test[..test.len().min(most_test)];
        Self { warm_up: table.select(warm_up), stream: table.select(stream), test: table.select(test) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_scaled_and_split() {
        let text = "a,b,y\n0,5,1\n1,5,2\n2,5,3\n4,5,6\n";
        let mut table = Table::parse(text).unwrap();
        Table::scale_inputs(&mut [&mut table]);
        table.standardize_targets();
        assert_eq!(table.x, [-1.0, 0.0, -0.5, 0.0, 0.0, 0.0, 1.0, 0.0]);
        assert!(table.y.iter().sum::<f64>().abs() < 1e-15);
        assert!((table.y.iter().map(|y| y * y).sum::<f64>() / 3.0 - 1.0).abs() < 1e-15);
        assert!(Table::parse("a,y\n1,x\n").is_err() && Table::parse("a,y\n1\n").is_err());
        let many = Table { dim: 1, x: (0..1000).map(f64::from).collect(), y: vec![0.0; 1000] };
        let split = Split::paper(&many, 3, 50);
        assert_eq!((split.warm_up.len(), split.stream.len(), split.test.len()), (45, 855, 50));
        assert_eq!(split, Split::paper(&many, 3, 50));
    }

    /// The row counts of the paper, where the data are.
    #[test]
    fn the_streams_have_the_sizes_of_the_paper() {
        let Some(folder) = std::env::var_os("WISKI_DATA") else {
            eprintln!("skipped: WISKI_DATA is not set");
            return;
        };
        for (name, streamed) in [("skillcraft", 2855), ("powerplant", 8182), ("elevators", 14193)] {
            let table = Table::regression(Path::new(&folder), name).unwrap();
            assert_eq!(Split::paper(&table, 0, usize::MAX).stream.len(), streamed, "{name}");
        }
    }
}
