//! Nested dissection of a grid: the order in which its points are eliminated, and the tree of dense fronts in
//! which that happens.
//!
//! A box of grid points is cut across its longest axis by a slab, the *separator*, as thick as entries reach: three
//! places for values, 3q where a point has q states on the axis. So the two halves have nothing to do with each other
//! once the separator is known: they are eliminated first, each cut in turn, the separator last. A box that is small
//! enough is eliminated whole.
//!
//! A node of the tree eliminates its own points J (a separator, or a small box). What that couples is the
//! *boundary* I of its box: the points outside within reach. All of them belong to separators above:
//!
//! ```text
//! I(child) = J(parent) followed by the points of I(parent) within reach of the child's box
//! ```
//!
//! so that J, I is a dense front without structural zeros, the boundary of a child is found in order in the front
//! of its parent, and no symbolic factorization is needed.

use std::ops::Range;

use crate::kernel::MAX_DIM;

/// One dense front.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// The elimination numbers of the points J that are eliminated here.
    pub(super) own: Range<usize>,
    /// The elimination numbers of the boundary I, ascending: all are above `own`.
    pub(super) boundary: Vec<u32>,
    /// The place of each boundary point in the front J, I of the parent, ascending.
    pub(super) into_parent: Vec<u32>,
    pub(super) children: Option<[usize; 2]>,
    /// Where the |J| columns of |J| + |I| numbers of the factor begin.
    pub(super) panel: usize,
}

impl Node {
    /// The numbers of rows of the front: |J| + |I|.
    pub(super) fn rows(&self) -> usize {
        self.own.len() + self.boundary.len()
    }

    pub(super) fn panel_range(&self) -> Range<usize> {
        self.panel..self.panel + self.rows() * self.own.len()
    }
}

/// The elimination order of a grid with its tree of fronts.
#[derive(Debug, Clone)]
pub(super) struct Dissection {
    pub(super) shape: Vec<usize>,
    pub(super) reach: Vec<usize>,
    /// Children come before their parents; the root is last.
    pub(super) nodes: Vec<Node>,
    /// The grid point with each elimination number.
    pub(super) order: Vec<u32>,
    /// The elimination number of each grid point.
    pub(super) number: Vec<u32>,
}

impl Dissection {
    /// The dissection of a grid of the given shape, on whose axes entries reach so far, into boxes of at most `leaf`
    /// points.
    pub(super) fn new(shape: &[usize], reach: &[usize], leaf: usize) -> Self {
        let size = shape.iter().product();
        let order = Vec::with_capacity(size);
        let mut builder = Builder { shape, reach, leaf, nodes: Vec::new(), order, panel: 0 };
        let mut whole = Region { from: [0; MAX_DIM], to: [1; MAX_DIM] };
        whole.to[..shape.len()].copy_from_slice(shape);
        builder.eliminate(whole, Vec::new(), Vec::new());
        let Builder { mut nodes, order, .. } = builder;
        let mut number = vec![0; size];
        for (i, &point) in order.iter().enumerate() {
            number[point as usize] = i as u32;
        }
        // Boundaries were collected as grid points, before all numbers were known.
        nodes.iter_mut().flat_map(|n| &mut n.boundary).for_each(|i| *i = number[*i as usize]);
        Self { shape: shape.to_vec(), reach: reach.to_vec(), nodes, order, number }
    }

    /// The number of entries of the factor.
    pub(super) fn entries(&self) -> usize {
        self.nodes.last().map_or(0, |root| root.panel_range().end)
    }

    /// The multiply-adds of a factorization: |J|³/6 + |J|²|I|/2 + |J||I|²/2 for each front.
    pub(super) fn multiply_adds(&self) -> f64 {
        let of_front = |node: &Node| {
            let (j, i) = (node.own.len() as f64, node.boundary.len() as f64);
            j * (j * j / 6.0 + i * (j + i) / 2.0)
        };
        self.nodes.iter().map(of_front).sum()
    }

    /// The largest sum of a quantity over the nodes on the way from the root to a leaf: how much memory a recursion
    /// over the tree needs.
    pub(super) fn longest_path(&self, quantity: impl Fn(&Node) -> usize) -> usize {
        let mut paths = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let below = node.children.iter().flatten().map(|&child| paths[child]).max();
            paths.push(quantity(node) + below.unwrap_or(0));
        }
        paths.last().copied().unwrap_or(0)
    }

    /// The most points that one node eliminates, and the most rows of a front.
    pub(super) fn largest_front(&self) -> (usize, usize) {
        let own = self.nodes.iter().map(|n| n.own.len()).max();
        let rows = self.nodes.iter().map(Node::rows).max();
        (own.unwrap_or(0), rows.unwrap_or(0))
    }
}

/// A box of grid points: from ≤ x < to on every axis, [0, 1) on axes that the grid does not have.
#[derive(Debug, Clone, Copy)]
struct Region {
    from: [usize; MAX_DIM],
    to: [usize; MAX_DIM],
}

impl Region {
    fn len(&self) -> usize {
        (0..MAX_DIM).map(|k| self.to[k] - self.from[k]).product()
    }

    /// The slab across the middle of the axis that is longest in terms of reach, and the halves on its sides.
    fn cut(&self, reach: &[usize], leaf: usize) -> Option<(Self, [Self; 2])> {
        let extent = |k: usize| self.to[k] - self.from[k];
        // extent/reach, compared without fractions: all reaches are divisors of 18.
        let k = (0..reach.len()).rev().max_by_key(|&k| 18 * extent(k) / reach[k])?;
        // Halves thinner than the separator would save nothing.
        if self.len() <= leaf || extent(k) < 3 * reach[k] {
            return None;
        }
        let lower_end = self.from[k] + (extent(k) - reach[k]) / 2;
        let (mut below, mut separator, mut above) = (*self, *self, *self);
        below.to[k] = lower_end;
        separator.from[k] = lower_end;
        separator.to[k] = lower_end + reach[k];
        above.from[k] = lower_end + reach[k];
        Some((separator, [below, above]))
    }
}

struct Builder<'a> {
    shape: &'a [usize],
    reach: &'a [usize],
    leaf: usize,
    nodes: Vec<Node>,
    order: Vec<u32>,
    panel: usize,
}

impl Builder<'_> {
    /// Eliminates a box whose boundary is given as grid points, with their places in the parent's front; returns
    /// the number of its node. The depth of the recursion is logarithmic in the size of the box.
    fn eliminate(&mut self, region: Region, boundary: Vec<u32>, into_parent: Vec<u32>) -> usize {
        let (own, halves) = match region.cut(self.reach, self.leaf) {
            Some((separator, halves)) => (self.points(&separator), Some(halves)),
            None => (self.points(&region), None),
        };
        let children = halves.map(|halves| {
            halves.map(|half| {
                let mut points = own.clone();
                let mut places: Vec<u32> = (0..own.len() as u32).collect();
                for (place, &point) in (own.len() as u32..).zip(&boundary) {
                    if self.reaches(&half, point as usize) {
                        points.push(point);
                        places.push(place);
                    }
                }
                self.eliminate(half, points, places)
            })
        });
        let first = self.order.len();
        self.order.extend(&own);
        let node = Node { own: first..self.order.len(), boundary, into_parent, children, panel: self.panel };
        self.panel = node.panel_range().end;
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn points(&self, region: &Region) -> Vec<u32> {
        let mut points = vec![0];
        for (k, &g) in self.shape.iter().enumerate() {
            let along = |p: u32| (region.from[k]..region.to[k]).map(move |i| p * g as u32 + i as u32);
            points = points.into_iter().flat_map(along).collect();
        }
        points
    }

    /// Whether a point outside the box lies within reach of it.
    fn reaches(&self, region: &Region, point: usize) -> bool {
        let mut rest = point;
        (0..self.shape.len()).rev().all(|k| {
            let i = rest % self.shape[k];
            rest /= self.shape[k];
            i + self.reach[k] >= region.from[k] && i < region.to[k] + self.reach[k]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Symbolic elimination by brute force: the points coupled to a node's points when they are eliminated.
    fn check(shape: &[usize], reach: &[usize], leaf: usize) {
        let tree = Dissection::new(shape, reach, leaf);
        let size: usize = shape.iter().product();
        // Order and number are permutations, inverse to each other.
        assert_eq!(tree.order.len(), size);
        assert!((0..size).all(|i| tree.number[tree.order[i] as usize] as usize == i));
        let coordinates = |mut i: usize| -> Vec<usize> {
            let mut at: Vec<usize> = shape
                .iter()
                .rev()
                .map(|g| {
                    let digit = i % g;
                    i /= g;
                    digit
                })
                .collect();
            at.reverse();
            at
        };
        let places: Vec<Vec<usize>> = (0..size).map(coordinates).collect();
        let near =
            |i: usize, j: usize| (0..shape.len()).all(|k| places[i][k].abs_diff(places[j][k]) <= reach[k]);
        let mut eliminated = 0;
        for (at, node) in tree.nodes.iter().enumerate() {
            assert_eq!(node.own.start, eliminated, "nodes eliminate one after the other");
            eliminated = node.own.end;
            // The couplings of the node: neighbors of its points, and what its children couple.
            let mut coupled = std::collections::BTreeSet::new();
            for i in node.own.clone() {
                let point = tree.order[i] as usize;
                coupled.extend((0..size).filter(|&j| near(point, j)).map(|j| tree.number[j]));
            }
            for &child in node.children.iter().flatten() {
                let child = &tree.nodes[child];
                assert!(child.own.end <= node.own.start);
                coupled.extend(&child.boundary);
                // A child's boundary is found in the front of its parent.
                let front: Vec<u32> = (node.own.start as u32..node.own.end as u32)
                    .chain(node.boundary.iter().copied())
                    .collect();
                let found: Vec<u32> = child.into_parent.iter().map(|&p| front[p as usize]).collect();
                assert_eq!(found, child.boundary);
            }
            let later: Vec<u32> = coupled.into_iter().filter(|&i| i as usize >= node.own.end).collect();
            assert_eq!(later, node.boundary, "{shape:?}, node {at}");
        }
        assert_eq!(eliminated, size);
        let panels: usize = tree.nodes.iter().map(|n| n.rows() * n.own.len()).sum();
        assert_eq!(tree.entries(), panels);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn fronts_hold_exactly_what_elimination_couples(
            axes in prop::collection::vec((4usize..26, prop::sample::select(vec![3usize, 6, 9])), 1..=3),
            leaf in 1usize..80,
        ) {
            let (shape, reach): (Vec<usize>, Vec<usize>) = axes.into_iter().unzip();
            prop_assume!(shape.iter().product::<usize>() < 2000);
            check(&shape, &reach, leaf);
        }
    }

    #[test]
    fn long_lines_and_four_axes() {
        check(&[1000], &[3], 16);
        check(&[4, 150], &[3, 6], 30);
        check(&[4, 5, 4, 10], &[3; 4], 50);
    }
}
