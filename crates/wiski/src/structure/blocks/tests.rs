use super::super::assert_equals_twin;
use super::*;

fn lattice() -> Lattice {
    Lattice::new(vec![
        Grid::covering(&[(0.0, 1.0), (0.0, 1.0)], &[8, 9]).unwrap(),
        Grid::covering(&[(0.0, 1.0)], &[11]).unwrap(),
        Grid::covering(&[(0.0, 1.0); 3], &[4, 5, 4]).unwrap(),
    ])
    .unwrap()
}

fn filled(lattice: &Lattice) -> (BlockMatrix, Vec<f64>) {
    let m = lattice.len();
    let (mut a, mut twin, mut weights) = (BlockMatrix::zeros(lattice), vec![0.0; m * m], Vec::new());
    for i in 0..80 {
        let h: Vec<f64> = (0..lattice.dim()).map(|k| (0.37 * (i * i + k * i + k) as f64).fract()).collect();
        lattice.locate(&h, 0, &mut weights).unwrap();
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
    let lattice = lattice();
    let (mut a, twin) = filled(&lattice);
    assert_equals_twin(&a, &twin, 1e-14);
    let copy = a.clone();
    a.add_scaled(1.0, &copy);
    a.scale(0.5);
    assert_equals_twin(&a, &twin, 1e-14);

    let (m, stride) = (lattice.len(), 8);
    let x: Vec<f64> = (0..m * stride).map(|i| (0.7 * i as f64).cos()).collect();
    let mut y = vec![f64::NAN; m * stride];
    a.multiply(&x, stride, &mut y);
    for (at, &value) in y.iter().enumerate() {
        let want: f64 = (0..m).map(|j| twin[at / stride * m + j] * x[j * stride + at % stride]).sum();
        assert!((value - want).abs() < 1e-11, "{value} {want}");
    }

    let mut weights = Vec::new();
    lattice.locate(&[0.3; 6], 0, &mut weights).unwrap();
    let mut w = vec![0.0; lattice.len()];
    lattice.scatter(&weights, 1.0, &mut w);
    let mut aw = vec![0.0; lattice.len()];
    a.apply(&w, &mut aw, &mut []);
    assert!((a.quadratic(&lattice, &weights) - dot(&w, &aw)).abs() < 1e-12);
    // What a block has of A w at its own points, once from itself and once from the others.
    let mut others = vec![f64::NAN; 3];
    a.product_across(&lattice, &weights, &mut others);
    let mut place = 0;
    for (j, (grid, &offset)) in lattice.grids().iter().zip(lattice.offsets()).enumerate() {
        let own = a.bilinear(&lattice, j, &weights[j], &weights[j]);
        let (mut sum, mut want) = (own, 0.0);
        weights[j].for_each(grid, |i, w| {
            sum += w * others[place];
            want += w * aw[offset + i];
            place += 1;
        });
        assert!((sum - want).abs() < 1e-12, "{j}: {sum} {want}");
    }
    assert_eq!(place, others.len());
}

/// The same numbers, to the last bit for sums and to rounding for forms.
#[test]
fn many_points_together_equal_one_after_the_other() {
    let lattice = lattice();
    let (n, d) = (13, lattice.dim());
    let h: Vec<f64> = (0..n * d).map(|i| (0.37 * (i * i + 3 * i) as f64).fract()).collect();
    let c: Vec<f64> = (0..n).map(|i| 0.5 + 0.1 * i as f64).collect();
    let (mut all, mut weights) = (Vec::new(), Vec::new());
    lattice.locate_all(&h, 0, &mut all).unwrap();
    let (mut together, _) = filled(&lattice);
    let mut singly = together.clone();
    together.add_outer(&lattice, &all, &c);
    for (h, c) in h.chunks_exact(d).zip(&c) {
        lattice.locate(h, 0, &mut weights).unwrap();
        singly.add_outer(&lattice, &weights, &[*c]);
    }
    assert_eq!(together, singly);

    let (mut forms, mut products, mut product) = (vec![f64::NAN; n], Vec::new(), Vec::new());
    together.quadratics(&lattice, &all, &mut forms);
    together.product_across(&lattice, &all, &mut products);
    for (i, h) in h.chunks_exact(d).enumerate() {
        lattice.locate(h, 0, &mut weights).unwrap();
        assert_eq!(forms[i], together.quadratic(&lattice, &weights));
        together.product_across(&lattice, &weights, &mut product);
        let width = lattice.footprint();
        assert_eq!(product, products[i * width..(i + 1) * width]);
    }
}

#[test]
fn embedding_keeps_every_entry() {
    let lattice = lattice();
    let (a, twin) = filled(&lattice);
    // Large enough that the dense block of the third grid becomes a stencil.
    let growth = lattice.growth_to(&[-0.4, 1.3, 1.1, 5.9, 3.0, 5.9], 100_000, 0).unwrap();
    let (large, places) = lattice.grown(&growth).unwrap();
    let b = a.embedded(&large, &places);
    assert!(matches!(a.diagonal[2], GridMatrix::Dense(_)) && matches!(b.diagonal[2], GridMatrix::Stencil(_)));
    let (m, n) = (lattice.len(), large.len());
    let mut want = vec![0.0; n * n];
    for i in 0..m {
        for j in 0..m {
            want[places[i] * n + places[j]] = twin[i * m + j];
        }
    }
    assert_equals_twin(&b, &want, 1e-14);
}

#[test]
fn blocks_fill_the_kept_entries() {
    let lattice = lattice();
    let m = lattice.len();
    let rows: Vec<f64> = (0..m * 8).map(|i| (i as f64 * 0.77).sin()).collect();
    let mut a = BlockMatrix::zeros(&lattice);
    let row = |grid: usize, i: usize| &rows[8 * (lattice.offsets()[grid] + i)..][..8];
    a.fill_with_blocks(&lattice, &mut Pool::default(), |i, j, block, _| {
        let n = lattice.grids()[j].len();
        block.iter_mut().enumerate().for_each(|(at, b)| *b = dot(row(i, at / n), row(j, at % n)));
    });
    let mut weights = Vec::new();
    lattice.locate(&[0.62; 6], 0, &mut weights).unwrap();
    let projected: Vec<f64> = (0..8)
        .map(|c| lattice.gather(&weights, &(0..m).map(|i| rows[8 * i + c]).collect::<Vec<_>>()))
        .collect();
    let want = dot(&projected, &projected);
    assert!((a.quadratic(&lattice, &weights) - want).abs() < 1e-13 * want.max(1.0));
}
