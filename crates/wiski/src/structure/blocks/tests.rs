use super::super::assert_equals_twin;
use super::*;
use crate::interp::Placement;
use crate::kernel::Family;
use crate::points::Points;

fn lattice() -> Lattice {
    Lattice::new(vec![
        Grid::covering(&[(0.0, 1.0), (0.0, 1.0)], &[8, 9]).unwrap(),
        Grid::covering(&[(0.0, 1.0)], &[11]).unwrap(),
        Grid::covering(&[(0.0, 1.0); 3], &[4, 5, 4]).unwrap(),
    ])
    .unwrap()
}

/// The same with inducing points behind the grids, and inducing points alone.
fn lattices() -> [Lattice; 3] {
    let centers: Vec<f64> = (0..38).map(|i| (0.41 * f64::from(i * i + i)).fract()).collect();
    let points = Points::new(Family::Matern52, &centers, &[0.8, 1.1]).unwrap();
    assert_eq!(points.len(), 19);
    let grids = lattice().grids().to_vec();
    [lattice(), Lattice::with_points(grids, points.clone()), Lattice::with_points(Vec::new(), points)]
}

fn filled(lattice: &Lattice) -> (BlockMatrix, Vec<f64>) {
    let m = lattice.len();
    let (mut a, mut twin, mut weights) =
        (BlockMatrix::zeros(lattice), vec![0.0; m * m], Placement::default());
    for i in 0..80 {
        let h: Vec<f64> = (0..lattice.dim()).map(|k| (0.37 * (i * i + k * i + k) as f64).fract()).collect();
        lattice.weigh(&h, 0, &mut weights).unwrap();
        a.add_outer(lattice, &weights, &[1.5]);
        let mut w = vec![0.0; m];
        lattice.scatter(&weights, 1.0, &mut w);
        for (row, &wi) in twin.chunks_exact_mut(m).zip(&w) {
            row.iter_mut().zip(&w).for_each(|(t, &wj)| *t += 1.5 * wi * wj);
        }
    }
    (a, twin)
}

#[test]
fn equals_the_dense_sum_of_outer_products() {
    for lattice in lattices() {
        let (mut a, twin) = filled(&lattice);
        assert_equals_twin(&a, &twin, 1e-14);
        let copy = a.clone();
        a.add_scaled(1.0, &copy);
        a.scale(0.5);
        assert_equals_twin(&a, &twin, 1e-14);
        let square: f64 = twin.iter().map(|t| t * t).sum();
        // Grids keep what is within three cells, and that is where the sums are.
        assert!((a.inner(&copy) - square).abs() < 1e-13 * square);

        let (m, stride) = (lattice.len(), 8);
        let x: Vec<f64> = (0..m * stride).map(|i| (0.7 * i as f64).cos()).collect();
        let mut y = vec![f64::NAN; m * stride];
        a.multiply(&x, stride, &mut y);
        for (at, &value) in y.iter().enumerate() {
            let want: f64 = (0..m).map(|j| twin[at / stride * m + j] * x[j * stride + at % stride]).sum();
            assert!((value - want).abs() < 1e-11, "{value} {want}");
        }

        let mut placement = Placement::default();
        lattice.weigh(&vec![0.3; lattice.dim()], 0, &mut placement).unwrap();
        let at = placement.row(&lattice, 0);
        let mut w = vec![0.0; lattice.len()];
        lattice.scatter(at, 1.0, &mut w);
        let mut aw = vec![0.0; lattice.len()];
        a.apply(&w, &mut aw, &mut []);
        assert!((a.quadratic(&lattice, at) - dot(&w, &aw)).abs() < 1e-12);
        // What a block has of A w at its own points, once from itself and once from the others.
        let mut others = vec![f64::NAN; 3];
        a.product_across(&lattice, at, &mut others);
        let mut place = 0;
        for (j, (grid, &offset)) in lattice.grids().iter().zip(lattice.offsets()).enumerate() {
            let own = a.bilinear(&lattice, j, &at.weights[j], &at.weights[j]);
            let (mut sum, mut want) = (own, 0.0);
            at.weights[j].for_each(grid, |i, w| {
                sum += w * others[place];
                want += w * aw[offset + i];
                place += 1;
            });
            assert!((sum - want).abs() < 1e-12, "{j}: {sum} {want}");
        }
        assert_eq!(place, others.len());
        let mut at_points = vec![f64::NAN; lattice.len() - lattice.grid_len()];
        a.product_at_points(&lattice, at, &mut at_points);
        for (found, want) in at_points.iter().zip(&aw[lattice.grid_len()..]) {
            assert!((found - want).abs() < 1e-12, "{found} {want}");
        }
    }
}

/// From weights to correlations: the same form, and the residual in it.
#[test]
fn forms_in_correlations_contain_the_residual() {
    for lattice in &lattices()[1..] {
        let (mut a, _) = filled(lattice);
        let points = lattice.points().unwrap();
        let (m, scale) = (points.len(), 1.7);
        let (mut placement, mut raw) = (Placement::default(), Placement::default());
        let h: Vec<f64> = (0..lattice.dim()).map(|k| 0.3 + 0.1 * k as f64).collect();
        lattice.weigh(&h, 0, &mut placement).unwrap();
        lattice.correlate_all(&h, 0, &mut raw).unwrap();
        let want = a.quadratic(lattice, &placement) + scale * placement.residual(0);
        let mut inverse = vec![0.0; m * m];
        for j in 0..m {
            let mut unit = vec![0.0; m];
            unit[j] = 1.0;
            points.solve_transposed(&mut unit);
            inverse[j * m..(j + 1) * m].copy_from_slice(&unit);
        }
        let inverse = MatRef::from_row_major_slice(&inverse, m, m);
        a.points_mut().unwrap().in_correlations(inverse, scale);
        let found = a.quadratic(lattice, &raw) + scale;
        assert!((found - want).abs() < 1e-11 * want, "{found} {want}");
    }
}

/// The same numbers: on grids to the last bit, on points, whose rows go by one product, to rounding.
#[test]
fn many_points_together_equal_one_after_the_other() {
    for lattice in lattices() {
        let (n, d) = (13, lattice.dim());
        let h: Vec<f64> = (0..n * d).map(|i| (0.37 * (i * i + 3 * i) as f64).fract()).collect();
        let (mut all, mut single) = (Placement::default(), Placement::default());
        lattice.weigh_all(&h, 0, &mut all).unwrap();
        let rounding = if lattice.points().is_some() { 1e-12 } else { 0.0 };
        let mut together = BlockMatrix::zeros(&lattice);
        for c in [vec![0.7; n], (0..n).map(|i| 0.5 + 0.1 * i as f64).collect()] {
            (together, _) = filled(&lattice);
            let mut singly = together.clone();
            together.add_outer(&lattice, &all, &c);
            for (h, c) in h.chunks_exact(d).zip(&c) {
                lattice.weigh(h, 0, &mut single).unwrap();
                singly.add_outer(&lattice, &single, &[*c]);
            }
            for (a, b) in together.parts().flatten().zip(singly.parts().flatten()) {
                assert!((a - b).abs() <= rounding, "{a} {b}");
            }
        }
        let (mut forms, mut products, mut product) = (vec![f64::NAN; n], Vec::new(), Vec::new());
        together.quadratics(&lattice, &all, &mut forms);
        together.product_across(&lattice, &all, &mut products);
        for (i, h) in h.chunks_exact(d).enumerate() {
            lattice.weigh(h, 0, &mut single).unwrap();
            assert!((forms[i] - together.quadratic(&lattice, &single)).abs() <= 10.0 * rounding);
            together.product_across(&lattice, &single, &mut product);
            let width = lattice.footprint();
            for (a, b) in product.iter().zip(&products[i * width..(i + 1) * width]) {
                assert!((a - b).abs() <= rounding);
            }
        }
    }
}

#[test]
fn embedding_keeps_every_entry() {
    for lattice in lattices() {
        let (a, twin) = filled(&lattice);
        // Large enough that the dense block of the third grid becomes a stencil.
        let h = [-0.4, 1.3, 1.1, 5.9, 3.0, 5.9, 40.0, -7.0];
        let h = if lattice.grids().is_empty() { &h[6..] } else { &h[..lattice.dim()] };
        let growth = lattice.growth_to(h, 100_000, 0).unwrap();
        let (large, places) = lattice.grown(&growth).unwrap();
        let b = a.embedded(&large, &places);
        if let ([_, _, GridMatrix::Dense(_)], [_, _, after]) = (a.diagonal(), b.diagonal()) {
            assert!(matches!(after, GridMatrix::Stencil(_)));
        }
        assert_eq!(growth.is_none(), lattice.grids().is_empty());
        let (m, n) = (lattice.len(), large.len());
        let mut want = vec![0.0; n * n];
        for i in 0..m {
            for j in 0..m {
                want[places[i] * n + places[j]] = twin[i * m + j];
            }
        }
        assert_equals_twin(&b, &want, 1e-14);
    }
}

#[test]
fn blocks_fill_the_kept_entries() {
    for lattice in lattices() {
        let m = lattice.len();
        let rows: Vec<f64> = (0..m * 8).map(|i| (i as f64 * 0.77).sin()).collect();
        let mut a = BlockMatrix::zeros(&lattice);
        let row = |block: usize, i: usize| &rows[8 * (lattice.block(block).start + i)..][..8];
        a.fill_with_blocks(&lattice, &mut Pool::default(), |i, j, block, _| {
            let n = lattice.block(j).len();
            block.iter_mut().enumerate().for_each(|(at, b)| *b = dot(row(i, at / n), row(j, at % n)));
        });
        let mut weights = Placement::default();
        lattice.weigh(&vec![0.62; lattice.dim()], 0, &mut weights).unwrap();
        let projected: Vec<f64> = (0..8)
            .map(|c| lattice.gather(&weights, &(0..m).map(|i| rows[8 * i + c]).collect::<Vec<_>>()))
            .collect();
        let want = dot(&projected, &projected);
        assert!((a.quadratic(&lattice, &weights) - want).abs() < 1e-13 * want.max(1.0));
    }
}
