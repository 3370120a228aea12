//! All rows in memory, for those who need them in another order than the file's.

use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};

use super::{BadRow, Result, Row, Rows, TargetKind};

/// Rows in memory, column by column; columns that were not selected are empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Table {
    /// How many inputs a row has.
    pub(crate) width: usize,
    /// The inputs, row by row.
    pub(crate) inputs: Vec<f64>,
    /// The targets; NaN where a row has none and may do without.
    pub(crate) target: Vec<f64>,
    /// The labels; empty where a row has none and may do without.
    pub(crate) labels: Vec<String>,
    pub(crate) noise: Vec<f64>,
    pub(crate) time: Vec<f64>,
    /// Where each row stands in its file, as [`Row::number`].
    pub(crate) numbers: Vec<u64>,
}

impl Table {
    /// Reads what is left of `rows`. Bad rows go to `on_bad`, an error of which ends the reading.
    pub(crate) fn read(rows: &mut Rows, on_bad: &mut dyn FnMut(BadRow) -> Result<()>) -> Result<Self> {
        let mut table = Self { width: rows.inputs.len(), ..Self::default() };
        let labeled = rows.target.as_ref().is_some_and(|(_, target)| target.kind == TargetKind::Label);
        let targeted = rows.target.is_some() && !labeled;
        let mut row = Row::default();
        while rows.next_good(&mut row, on_bad)? {
            table.inputs.extend_from_slice(&row.inputs);
            table.noise.extend(row.noise);
            table.time.extend(row.time);
            table.numbers.push(row.number);
            if targeted {
                table.target.push(row.target.unwrap_or(f64::NAN));
            }
            if labeled {
                table.labels.push(row.label.clone().unwrap_or_default());
            }
        }
        Ok(table)
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Fills `row` with the row at this place, from 0, so that one loop serves tables and streams. Lines and cells are
    /// not kept in a table.
    pub(crate) fn get(&self, i: usize, row: &mut Row) {
        row.number = self.numbers[i];
        row.line = None;
        row.inputs.clear();
        row.inputs.extend_from_slice(&self.inputs[i * self.width..(i + 1) * self.width]);
        row.target = self.target.get(i).copied().filter(|target| !target.is_nan());
        match self.labels.get(i).filter(|label| !label.is_empty()) {
            Some(label) => row.label.get_or_insert_default().clone_from(label),
            None => row.label = None,
        }
        row.noise = self.noise.get(i).copied();
        row.time = self.time.get(i).copied();
        row.cells.clear();
    }

    /// Brings the rows into an order that depends on the seed alone (Fisher and Yates).
    pub(crate) fn shuffle(&mut self, seed: u64) {
        fn swap<T>(column: &mut [T], i: usize, j: usize) {
            if !column.is_empty() {
                column.swap(i, j);
            }
        }
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        for i in (1..self.len()).rev() {
            // The high word of a product is uniform below i + 1, up to one part in 2^64 / (i + 1).
            let j = ((u128::from(random.next_u64()) * (i as u128 + 1)) >> 64) as usize;
            for k in 0..self.width {
                self.inputs.swap(i * self.width + k, j * self.width + k);
            }
            swap(&mut self.target, i, j);
            swap(&mut self.labels, i, j);
            swap(&mut self.noise, i, j);
            swap(&mut self.time, i, j);
            swap(&mut self.numbers, i, j);
        }
    }
}
