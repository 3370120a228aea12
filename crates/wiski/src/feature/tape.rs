//! Scratch memory of one forward and backward pass.

use crate::error::{Result, length};

/// What [`Prepared::forward`](super::Prepared::forward) remembers for the backward pass of the same row.
///
/// One tape serves any number of rows and maps, one after the other: `forward` overwrites all that
/// `backward` reads, and memory is taken only when a map needs more than any before it. The row itself is
/// kept here too, so that a gradient cannot be asked for a row other than the one last sent forward.
#[derive(Debug, Clone, Default)]
pub struct Tape {
    /// [ x | hidden activations, layer by layer | z | h ]
    pub(super) values: Vec<f64>,
    /// Gradients on their way back: two vectors as long as the widest hidden layer.
    pub(super) deltas: Vec<f64>,
    /// The row, where derivatives of columns of their own need it.
    pub(super) row: Vec<f64>,
}

impl Tape {
    /// An empty tape.
    pub fn new() -> Self {
        Self::default()
    }

    /// Room for `size` values. Their contents are left as they are: forward writes every one of them.
    pub(super) fn resize(&mut self, size: usize) -> &mut [f64] {
        self.values.resize(size, 0.0);
        &mut self.values
    }

    /// Rejects a tape that another map wrote.
    pub(super) fn check(&self, size: usize) -> Result<()> {
        length("tape", size, self.values.len())
    }
}
