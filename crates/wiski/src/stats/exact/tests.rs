use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::grid::Grid;

/// Rows on two grids; a few targets are so large that there is no room for them.
fn rows(n: usize, rng: &mut Xoshiro256PlusPlus) -> Vec<([f64; 3], f64, f64)> {
    (0..n)
        .map(|i| {
            let far = if i % 97 == 0 { 1e5 } else { 1.0 };
            let h = std::array::from_fn(|_| rng.random_range(-1.0..1.0));
            (h, far * rng.random_range(-3.0..3.0), rng.random_range(0.01..2.0))
        })
        .collect()
}

fn lattice() -> Lattice {
    let plane = Grid::covering(&[(-1.0, 1.0); 2], &[9, 8]).unwrap();
    Lattice::new(vec![plane, Grid::covering(&[(-1.0, 1.0)], &[12]).unwrap()]).unwrap()
}

fn gathered(rows: &[([f64; 3], f64, f64)], sign: f64, into: &mut ExactStats) {
    let h: Vec<f64> = rows.iter().flat_map(|r| r.0).collect();
    let y: Vec<f64> = rows.iter().map(|r| r.1).collect();
    let noise: Vec<f64> = rows.iter().map(|r| r.2).collect();
    into.add(&h, &y, Some(&noise), sign).unwrap();
}

fn bits(sums: &ExactStats) -> Vec<u64> {
    let (value, rest) = sums.split();
    let all = |mut s: Stats| s.numbers_mut().flatten().map(|v| (*v + 0.0).to_bits()).collect::<Vec<_>>();
    [all(value), all(rest)].concat()
}

#[test]
fn sums_do_not_depend_on_the_order_and_leave_without_a_trace() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut all = rows(30_000, &mut rng);
    let mut expected = ExactStats::new(lattice());
    gathered(&all, 1.0, &mut expected);
    for parts in [1, 3, 40] {
        all.shuffle(&mut rng);
        let mut sum = ExactStats::new(lattice());
        for part in all.chunks(all.len() / parts) {
            let mut own = ExactStats::new(lattice());
            part.chunks(17 + parts).for_each(|rows| gathered(rows, 1.0, &mut own));
            let (value, rest) = own.split();
            sum.merge(&ExactStats::join(value, rest), 1.0).unwrap();
        }
        assert!(bits(&sum) == bits(&expected), "{parts} parts");
    }
    // Twice as many rows come and go.
    let others = rows(30_000, &mut rng);
    gathered(&others, 1.0, &mut expected);
    let mut own = ExactStats::new(lattice());
    gathered(&others, 1.0, &mut own);
    let mut again = ExactStats::new(lattice());
    gathered(&all, 1.0, &mut again);
    for chunk in others.chunks(1000) {
        gathered(chunk, -1.0, &mut expected);
    }
    assert!(bits(&expected) == bits(&again));
    again.merge(&own, 1.0).unwrap();
    again.merge(&own, -1.0).unwrap();
    assert!(bits(&expected) == bits(&again));
}

#[test]
fn sums_are_those_of_plain_statistics() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(8);
    let all = rows(5000, &mut rng);
    let (mut exact, mut plain) = (ExactStats::new(lattice()), Stats::new(lattice()));
    gathered(&all, 1.0, &mut exact);
    for (h, y, noise) in &all {
        plain.observe(h, *y, *noise).unwrap();
    }
    let mut total = exact.total();
    assert_eq!(total.count, plain.count);
    // 2⁻³⁹ a row at most, and what rounding did to the plain sums.
    for (own, plain) in total.numbers_mut().zip(plain.numbers_mut()) {
        for (own, plain) in own.iter().zip(plain.iter()) {
            assert!((own - *plain).abs() <= 5000.0 * 2e-12 + 1e-13 * plain.abs(), "{own} {plain}");
        }
    }
}
