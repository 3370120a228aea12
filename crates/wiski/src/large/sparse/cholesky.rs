//! The multifrontal Cholesky factorization of a matrix with the pattern of a stencil, over a [`Dissection`].
//!
//! Each node gathers its dense front from the entries of the matrix and the updates of its children, eliminates
//! its own points J and hands the rest on:
//!
//! ```text
//! L_JJ L_JJᵀ = F_JJ     L_IJ = F_IJ L_JJ⁻ᵀ     update = F_II − L_IJ L_IJᵀ
//! ```
//!
//! All arithmetic is dense and large: faer's Cholesky, triangular solves and products. Its own sparse Cholesky
//! takes any pattern; here the tree comes with the grid, fronts have no structural zeros, and the selected inverse
//! (`inverse.rs`), which faer does not have, goes down the same tree.

use std::sync::Arc;

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{cholesky_in_place, cholesky_in_place_scratch};
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::linalg::triangular_solve::solve_lower_triangular_in_place;
use faer::prelude::*;
use faer::{Accum, MatMut, MatRef, Par};

use super::dissection::{Dissection, Node};
use crate::error::{Error, Result};
use crate::simd::dot;

/// L with H = L Lᵀ in elimination order.
#[derive(Debug, Clone)]
pub(super) struct Cholesky {
    pub(super) tree: Arc<Dissection>,
    /// For each node the |J| columns of L_JJ over L_IJ.
    panels: Vec<f64>,
}

impl Cholesky {
    /// The factor of the matrix H over grid points, given as `row(i, f)`, which calls `f(j, x)` for the entries of
    /// row i. Entries that are given twice are added up. The memory of an earlier factor is used again.
    pub(super) fn new(
        tree: Arc<Dissection>,
        row: impl Fn(usize, &mut dyn FnMut(usize, f64)),
        memory: Vec<f64>,
    ) -> Result<Self> {
        let (mut panels, entries) = (memory, tree.entries());
        if panels.try_reserve_exact(entries.saturating_sub(panels.len())).is_err() {
            let reason = format!("a factor of {entries} entries does not fit into memory");
            return Err(Error::Config { field: "grid".into(), reason });
        }
        panels.resize(entries, 0.0);
        let scratch = cholesky_in_place_scratch::<f64>(tree.largest_front().0, Par::Seq, Default::default());
        let mut elimination = Elimination {
            tree: &tree,
            row,
            panels: &mut panels,
            places: vec![0; tree.order.len()],
            scratch: MemBuffer::new(scratch),
        };
        let mut updates = vec![0.0; tree.longest_path(|node| node.boundary.len().pow(2))];
        elimination.eliminate(tree.nodes.len() - 1, &mut updates)?;
        Ok(Self { tree, panels })
    }

    /// L_JJ over L_IJ of a node.
    pub(super) fn panel(&self, node: &Node) -> MatRef<'_, f64> {
        MatRef::from_column_major_slice(&self.panels[node.panel_range()], node.rows(), node.own.len())
    }

    /// The number of stored entries of L.
    pub(super) fn entries(&self) -> usize {
        self.panels.len()
    }

    /// log det H = 2 Σ log L_ii.
    pub(super) fn log_det(&self) -> f64 {
        let of_node = |node: &Node| {
            let panel = &self.panels[node.panel_range()];
            (0..node.own.len()).map(|c| panel[c * node.rows() + c].ln()).sum::<f64>()
        };
        2.0 * self.tree.nodes.iter().map(of_node).sum::<f64>()
    }

    /// x ← L⁻¹ x in elimination order.
    pub(super) fn solve_lower(&self, x: &mut [f64]) {
        let mut front = vec![0.0; self.tree.largest_front().1];
        for node in &self.tree.nodes {
            let (own, rows) = (node.own.len(), node.rows());
            front[..own].copy_from_slice(&x[node.own.clone()]);
            front[own..rows].fill(0.0);
            let columns = self.panels[node.panel_range()].chunks_exact(rows);
            for (c, column) in columns.enumerate() {
                let value = front[c] / column[c];
                front[c] = value;
                front[c + 1..rows].iter_mut().zip(&column[c + 1..]).for_each(|(f, l)| *f -= l * value);
            }
            x[node.own.clone()].copy_from_slice(&front[..own]);
            node.boundary.iter().zip(&front[own..rows]).for_each(|(&i, f)| x[i as usize] += f);
        }
    }

    /// x ← L⁻ᵀ x in elimination order.
    pub(super) fn solve_upper(&self, x: &mut [f64]) {
        let mut front = vec![0.0; self.tree.largest_front().1];
        for node in self.tree.nodes.iter().rev() {
            let (own, rows) = (node.own.len(), node.rows());
            front[..own].copy_from_slice(&x[node.own.clone()]);
            front[own..rows].iter_mut().zip(&node.boundary).for_each(|(f, &i)| *f = x[i as usize]);
            let columns = self.panels[node.panel_range()].chunks_exact(rows);
            for (c, column) in columns.enumerate().rev() {
                front[c] = (front[c] - dot(&column[c + 1..], &front[c + 1..rows])) / column[c];
            }
            x[node.own.clone()].copy_from_slice(&front[..own]);
        }
    }

    /// The memory, for another factor.
    pub(super) fn into_memory(self) -> Vec<f64> {
        self.panels
    }
}

struct Elimination<'a, R> {
    tree: &'a Dissection,
    row: R,
    panels: &'a mut [f64],
    /// For elimination numbers in the front at hand, their place in it.
    places: Vec<u32>,
    scratch: MemBuffer,
}

impl<R: Fn(usize, &mut dyn FnMut(usize, f64))> Elimination<'_, R> {
    /// Eliminates the box of a node. The update of its boundary, |I|×|I|, of which the lower triangle counts, is
    /// left at the beginning of `updates`; what lies behind it is for the children.
    fn eliminate(&mut self, at: usize, updates: &mut [f64]) -> Result<()> {
        let tree = self.tree;
        let node = &tree.nodes[at];
        let (j, i) = (node.own.len(), node.boundary.len());
        self.gather(node);
        let (update, rest) = updates.split_at_mut(i * i);
        let mut add = Accum::Replace;
        if let Some(children) = node.children {
            update.chunks_exact_mut(i.max(1)).enumerate().for_each(|(c, column)| column[c..].fill(0.0));
            add = Accum::Add;
            for child in children {
                self.eliminate(child, rest)?;
                extend(rest, &tree.nodes[child].into_parent, &mut self.panels[node.panel_range()], j, update);
            }
        }
        let panel = MatMut::from_column_major_slice_mut(&mut self.panels[node.panel_range()], j + i, j);
        let (mut own, mut below) = panel.split_at_row_mut(j);
        let stack = MemStack::new(&mut self.scratch);
        if cholesky_in_place(own.rb_mut(), Default::default(), Par::Seq, stack, Default::default()).is_err() {
            let reason = "the precision is not positive definite to rounding: a length-scale is far too long for \
                          the grid, or a point was forgotten that was never learned";
            return Err(Error::Unsupported { operation: "sparse factorization", reason });
        }
        solve_lower_triangular_in_place(own.rb(), below.rb_mut().transpose_mut(), Par::Seq);
        let target = MatMut::from_column_major_slice_mut(update, i, i);
        let (whole, lower) = (BlockStructure::Rectangular, BlockStructure::TriangularLower);
        let below = below.rb();
        triangular::matmul(target, lower, add, below, whole, below.transpose(), whole, -1.0, Par::Seq);
        Ok(())
    }

    /// Writes the entries of H between the points of a node and its front, the lower triangle.
    fn gather(&mut self, node: &Node) {
        let (first, rows) = (node.own.start, node.rows());
        let front = (node.own.start as u32..node.own.end as u32).chain(node.boundary.iter().copied());
        for (place, i) in (0..).zip(front) {
            self.places[i as usize] = place;
        }
        let panel = &mut self.panels[node.panel_range()];
        panel.fill(0.0);
        for (c, column) in panel.chunks_exact_mut(rows).enumerate() {
            let i = first + c;
            (self.row)(self.tree.order[i] as usize, &mut |point, value| {
                let other = self.tree.number[point] as usize;
                if other >= i {
                    column[self.places[other] as usize] += value;
                }
            });
        }
    }
}

/// Adds the lower triangle of a child's update to its parent's front: |J| columns in the panel, the others in the
/// parent's own update.
fn extend(part: &[f64], into_parent: &[u32], panel: &mut [f64], own: usize, update: &mut [f64]) {
    let size = into_parent.len();
    let rows = panel.len() / own.max(1);
    let boundary = rows - own;
    for (c, &column) in into_parent.iter().enumerate() {
        let (column, from) = (column as usize, &part[c * size + c..(c + 1) * size]);
        // Places ascend, so a lower triangle goes into a lower triangle.
        let places = into_parent[c..].iter().map(|&p| p as usize);
        if column < own {
            let target = &mut panel[column * rows..(column + 1) * rows];
            places.zip(from).for_each(|(p, x)| target[p] += x);
        } else {
            let target = &mut update[(column - own) * boundary..(column - own + 1) * boundary];
            places.zip(from).for_each(|(p, x)| target[p - own] += x);
        }
    }
}
