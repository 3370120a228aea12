//! The selected inverse: the entries of Z = H⁻¹ inside the fronts of a [`Cholesky`], without the rest of it
//! (Takahashi's equations, front by front).
//!
//! From the root of the tree down, with Y = L_IJ L_JJ⁻¹,
//!
//! ```text
//! Z_IJ = −Z_II Y     Z_JJ = (L_JJ L_JJᵀ)⁻¹ − Yᵀ Z_IJ
//! ```
//!
//! where I is part of the parent's front, so that Z_II is known when it is needed. Every pair of grid points within
//! three cells meets in a front. About twice the arithmetic of the factorization; memory for the fronts
//! on one way from the root to a leaf.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::inverse::{inverse, inverse_scratch};
use faer::linalg::matmul::matmul;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::linalg::triangular_solve::solve_upper_triangular_in_place;
use faer::prelude::*;
use faer::{Accum, MatMut, Par};

use super::cholesky::Cholesky;
use super::dissection::Node;

/// The part of Z that belongs to one front: |J| columns of Z_JJ over Z_IJ, in a square array over J, I.
pub(super) struct Front<'a> {
    pub(super) node: &'a Node,
    rows: usize,
    values: &'a [f64],
}

impl Front<'_> {
    /// Z between the own point `column` and point `row` of the front.
    #[inline]
    pub(super) fn entry(&self, row: usize, column: usize) -> f64 {
        self.values[column * self.rows + row]
    }
}

/// Calls `visit` with every front of Z = H⁻¹, parents before their children.
pub(super) fn selected_inverse(factor: &Cholesky, visit: impl FnMut(&Front)) {
    let scratch = inverse_scratch::<f64>(factor.tree.largest_front().0, Par::Seq);
    let mut descent = Descent { factor, scratch: MemBuffer::new(scratch), visit };
    // A front needs its square array, and Y while it is computed, in place of what its children need later.
    let fronts = factor.tree.longest_path(|node| node.rows().pow(2));
    let products = factor.tree.nodes.iter().map(|node| node.own.len() * node.boundary.len()).max();
    let mut memory = vec![0.0; fronts + products.unwrap_or(0)];
    descent.invert(factor.tree.nodes.len() - 1, &[], 0, &mut memory);
}

struct Descent<'a, V> {
    factor: &'a Cholesky,
    scratch: MemBuffer,
    visit: V,
}

impl<V: FnMut(&Front)> Descent<'_, V> {
    /// Computes the front of a node from its parent's, a square array over `parent_rows` points, and goes on to its
    /// children. The memory behind its own front is theirs.
    fn invert(&mut self, at: usize, parent: &[f64], parent_rows: usize, memory: &mut [f64]) {
        let node = &self.factor.tree.nodes[at];
        let (j, i, rows) = (node.own.len(), node.boundary.len(), node.rows());
        let (own, below) = self.factor.panel(node).split_at_row(j);
        let (values, rest) = memory.split_at_mut(rows * rows);
        for (c, &from) in node.into_parent.iter().enumerate() {
            let column = &parent[from as usize * parent_rows..(from as usize + 1) * parent_rows];
            let target = &mut values[(j + c) * rows + j..(j + c + 1) * rows];
            target.iter_mut().zip(&node.into_parent).for_each(|(z, &row)| *z = column[row as usize]);
        }

        let mut y = MatMut::from_column_major_slice_mut(&mut rest[..i * j], i, j);
        y.copy_from(below);
        solve_upper_triangular_in_place(own.transpose(), y.rb_mut().transpose_mut(), Par::Seq);
        let y = y.rb();

        let z = MatMut::from_column_major_slice_mut(values, rows, rows);
        let (mut z_jj, mut z_ji, mut z_ij, z_ii) = z.split_at_mut(j, j);
        matmul(z_ij.rb_mut(), Accum::Replace, z_ii.rb(), y, -1.0, Par::Seq);
        inverse(z_jj.rb_mut(), own, Par::Seq, MemStack::new(&mut self.scratch));
        let (whole, lower) = (BlockStructure::Rectangular, BlockStructure::TriangularLower);
        let (left, right) = (y.transpose(), z_ij.rb());
        triangular::matmul(z_jj.rb_mut(), lower, Accum::Add, left, whole, right, whole, -1.0, Par::Seq);
        for c in 0..j {
            for r in c + 1..j {
                z_jj[(c, r)] = z_jj[(r, c)];
            }
        }
        if node.children.is_some() {
            z_ji.copy_from(right.transpose());
        }

        (self.visit)(&Front { node, rows, values });
        for &child in node.children.iter().flatten() {
            self.invert(child, values, rows, rest);
        }
    }
}
