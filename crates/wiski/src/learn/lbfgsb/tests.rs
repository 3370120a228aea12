//! Known minima, the figures of another implementation, random problems and everything that can go wrong.

use super::problems::{
    Problem, Watched, beale, chained, diagonal, gaussian_process, quadratic, rosenbrock, rosenbrock_start,
    spread,
};
use super::*;
use crate::learn::FnObjective;
use proptest::prelude::*;

/// Stops only at the gradient tolerance or when the arithmetic is exhausted.
fn strict(gradient_tolerance: f64) -> LbfgsB {
    LbfgsB {
        gradient_tolerance,
        relative_tolerance: 0.0,
        max_iterations: 10_000,
        max_evaluations: 20_000,
        ..LbfgsB::default()
    }
}

/// Minimizes, checking on the way that no point outside the box is evaluated.
fn solve(method: &LbfgsB, problem: Problem, start: &[f64], bounds: &Bounds) -> Minimum {
    let mut watched = Watched::new(problem, bounds);
    let found = method.minimize(&mut watched, start, bounds).unwrap();
    assert_eq!(found.evaluations, watched.values.len());
    assert!(bounds.contains(&found.x));
    assert!(found.value <= watched.values[0], "worse than the start");
    let best = watched.best_of(usize::MAX);
    assert!(found.value <= best + 1e-13 * best.abs().max(1.0), "a better point was seen and lost");
    found
}

fn close(x: &[f64], expected: &[f64], tolerance: f64) {
    for (i, (x, e)) in x.iter().zip(expected).enumerate() {
        assert!((x - e).abs() <= tolerance, "coordinate {i}: {x} instead of {e}");
    }
}

/// Evaluations until the projected gradient is below 10⁻⁶, against SciPy 1.17.1
/// (`minimize(method="L-BFGS-B", maxcor=10, gtol=1e-6, ftol=1e-15)`, same problems and starts):
///
/// | problem | SciPy | here |
/// | --- | --- | --- |
/// | Rosenbrock 2 / 10 / 50 | 45 / 93 / 337 | 45 / 93 / 333 |
/// | Rosenbrock 2 in [−2, 0.5]² | 4 | 19 |
/// | Rosenbrock 10 in [−1.5, 0.8]¹⁰ | 42 | 51 |
/// | chained 25, every second x ≥ 1 | 36 | 31 |
/// | Beale free / in [−4.5, 4.5]² | 16 / 16 | 16 / 16 |
/// | Gaussian process free / in [−7, 7]³ | 20 / 24 | 20 / 20 |
///
/// Without bounds the lowest values after 5, 10 and 20 evaluations agree to all six digits compared. In a box
/// SciPy's first step is all of −g cut off at the box, which for the small Rosenbrock happens to be a corner
/// beside the solution.
#[test]
fn evaluation_counts_compare_with_scipy() {
    let method = LbfgsB { gradient_tolerance: 1e-6, relative_tolerance: 1e-15, ..LbfgsB::default() };
    let alternate: Vec<f64> = (0..25).map(|i| if i % 2 == 0 { 1.0 } else { -100.0 }).collect();
    let start = [0.7_f64.ln(); 3];
    let cube = |dim, lo, hi| Bounds::cube(dim, lo, hi).unwrap();
    // The problem, its start and box, the minimum, and the evaluations allowed: a tenth above the table.
    let table: [(Problem, &[f64], Bounds, f64, usize); 10] = [
        (rosenbrock(2), &rosenbrock_start(2), Bounds::unbounded(2), 0.0, 49),
        (rosenbrock(10), &rosenbrock_start(10), Bounds::unbounded(10), 0.0, 102),
        (rosenbrock(50), &rosenbrock_start(50), Bounds::unbounded(50), 0.0, 370),
        (rosenbrock(2), &rosenbrock_start(2), cube(2, -2.0, 0.5), 0.25, 21),
        (rosenbrock(10), &rosenbrock_start(10), cube(10, -1.5, 0.8), 6.001_016_394_606_18, 56),
        (chained(25), &[3.0; 25], Bounds::new(alternate, vec![100.0; 25]).unwrap(), 0.0, 34),
        (beale(), &[1.0; 2], Bounds::unbounded(2), 0.0, 17),
        (beale(), &[1.0; 2], cube(2, -4.5, 4.5), 0.0, 17),
        (gaussian_process(), &start, Bounds::unbounded(3), -5.658_019_702_976_5, 22),
        (gaussian_process(), &start, cube(3, -7.0, 7.0), -5.658_019_702_976_5, 22),
    ];
    for (row, (problem, start, bounds, minimum, allowed)) in table.into_iter().enumerate() {
        let found = solve(&method, problem, start, &bounds);
        assert_eq!(found.stop, Stop::Gradient, "row {row}");
        // A gradient of 10⁻⁶ leaves 10⁻¹²/(2·curvature); the smallest curvature here is 0.4.
        assert!((found.value - minimum).abs() < 2e-12, "row {row}: {}", found.value);
        assert!(found.evaluations <= allowed, "row {row}: {} evaluations", found.evaluations);
    }
}

/// What a small budget buys on the Gaussian process. After 5 evaluations SciPy has −3.654 without bounds and
/// 0.734 in the box (a corner came first); after 10, −5.6499 and −5.405. The minimum is −5.658.
#[test]
fn the_first_steps_on_an_evidence_are_good() {
    for bounds in [Bounds::unbounded(3), Bounds::cube(3, -7.0, 7.0).unwrap()] {
        let mut watched = Watched::new(gaussian_process(), &bounds);
        LbfgsB::default().minimize(&mut watched, &[0.7_f64.ln(); 3], &bounds).unwrap();
        assert!(watched.best_of(5) < -3.65, "{}", watched.best_of(5));
        assert!(watched.best_of(10) < -5.649, "{}", watched.best_of(10));
    }
}

/// A refit from near the minimum: with the curvature of n rows, n/2, no evaluation is spent a unit away.
#[test]
fn a_curvature_guess_spares_the_far_first_trial() {
    let bounds = Bounds::unbounded(3);
    let near = [-1.30, -0.45, -3.70];
    let run = |first_curvature| {
        let mut watched = Watched::new(gaussian_process(), &bounds);
        let method = LbfgsB { first_curvature, max_evaluations: 4, ..LbfgsB::default() };
        method.minimize(&mut watched, &near, &bounds).unwrap();
        (watched.values[0] - watched.values[1], watched.best_of(4))
    };
    let (blind, guided) = (run(0.0), run(20.0));
    assert!(blind.0 < 0.0 && guided.0 > 0.0, "{blind:?} {guided:?}");
    assert!(guided.1 < blind.1, "{blind:?} {guided:?}");
}

#[test]
fn rosenbrock_is_solved_in_several_dimensions() {
    for dim in [2, 3, 7, 20] {
        let found = solve(&strict(1e-9), rosenbrock(dim), &vec![0.0; dim], &Bounds::unbounded(dim));
        // The smallest curvature at the minimum is about 0.4.
        close(&found.x, &vec![1.0; dim], 1e-8);
    }
    // x₁ ≤ ½: then x₂ = ¼ and the value is (1 − ½)².
    let bounds = Bounds::new(vec![f64::NEG_INFINITY; 2], vec![0.5, f64::INFINITY]).unwrap();
    let found = solve(&strict(1e-9), rosenbrock(2), &[-1.2, 1.0], &bounds);
    assert_eq!(found.x[0], 0.5);
    close(&found.x, &[0.5, 0.25], 1e-10);
    assert!((found.value - 0.25).abs() < 1e-15);
}

/// A separable quadratic is solved by cutting its center off at the box; centers lie inside, outside and
/// exactly on bounds.
#[test]
fn the_active_set_of_a_separable_quadratic_is_found() {
    let n = 24;
    let center: Vec<f64> = (0..n).map(|i| 0.25 * f64::from(i) - 3.0).collect();
    let dim = center.len();
    let bounds = Bounds::cube(dim, -1.0, 1.0).unwrap();
    let mut expected = center.clone();
    bounds.project(&mut expected);
    let mut curvatures = spread(dim, 1e3);
    // Mix steep and flat coordinates.
    curvatures.rotate_left(7);
    let found = solve(&strict(1e-9), diagonal(curvatures, center.clone()), &vec![0.1; dim], &bounds);
    assert_eq!(found.stop, Stop::Gradient);
    close(&found.x, &expected, 1e-8);
    for i in 0..dim {
        if center[i].abs() > 1.0 {
            assert_eq!(found.x[i], expected[i], "an active bound is met exactly");
        }
    }
}

/// Condition 10⁶ over six even decades, with the curvature from 1 up, so that an error of x is at most the
/// gradient. The method is slow here unless its memory is long: SciPy takes 6558 evaluations with 10 pairs, 1914
/// with 20 and 205 with 40.
#[test]
fn an_ill_conditioned_quadratic_is_solved() {
    let method = LbfgsB { memory: 40, ..strict(1e-8) };
    let problem = diagonal(spread(20, 1e6), vec![1.0; 20]);
    let found = solve(&method, problem, &[0.0; 20], &Bounds::unbounded(20));
    assert_eq!(found.stop, Stop::Gradient);
    close(&found.x, &[1.0; 20], 1e-8);
    assert!(found.evaluations < 226, "{}", found.evaluations);
}

#[test]
fn beale_is_solved() {
    for (start, lo) in [([1.0, 1.0], -4.5), ([0.0, 0.0], -4.5), ([2.0, -1.0], f64::NEG_INFINITY)] {
        let bounds = Bounds::cube(2, lo, -lo).unwrap();
        let found = solve(&strict(1e-10), beale(), &start, &bounds);
        close(&found.x, &[3.0, 0.5], 1e-9);
    }
}

/// Σ x − log x, NaN for x < 0, from a start whose gradient −999 invites far too long a step into that region
/// and whose neighbor's invites one across it.
#[test]
fn regions_without_a_value_are_backed_out_of() {
    let bounds = Bounds::unbounded(3);
    for first_step in [1.0, 1e6] {
        let barrier = FnObjective::new(3, |x, g| {
            for i in 0..3 {
                g[i] = 1.0 - 1.0 / x[i];
            }
            Ok(x.iter().map(|x| x - x.ln()).sum())
        });
        let method = LbfgsB { first_step, ..strict(1e-9) };
        let mut watched = Watched::new(Box::new(barrier), &bounds);
        let found = method.minimize(&mut watched, &[1e-3, 5.0, 200.0], &bounds).unwrap();
        assert_eq!(found.stop, Stop::Gradient);
        close(&found.x, &[1.0; 3], 1e-8);
        assert!(first_step == 1.0 || watched.values.iter().any(|v| v.is_nan()), "the region was never met");
    }
}

/// The minimizer of (x − 1)² + y² lies 10⁻³ from a cliff beyond which evaluations fail.
#[test]
fn a_cliff_beside_the_minimum_does_not_stop_it() {
    let mut failures = 0;
    let mut f = FnObjective::new(2, |x, g| {
        if x[0] > 1.001 {
            failures += 1;
            return Err(Error::Unsupported { operation: "evaluation", reason: "beyond the cliff" });
        }
        g[0] = 2.0 * (x[0] - 1.0);
        g[1] = 20.0 * x[1];
        Ok((x[0] - 1.0).powi(2) + 10.0 * x[1] * x[1])
    });
    let method = LbfgsB { first_step: 100.0, ..strict(1e-9) };
    let found = method.minimize(&mut f, &[-3.0, 2.0], &Bounds::unbounded(2)).unwrap();
    assert_eq!(found.stop, Stop::Gradient);
    close(&found.x, &[1.0, 0.0], 1e-9);
    assert!(failures > 0, "the cliff was never met");
}

/// Linear and concave functions in a box end in a corner, exactly, also along curvature that is negative.
#[test]
fn corners_are_met_exactly() {
    let bounds = Bounds::new(vec![0.0, -1.0, -2.0], vec![3.0, 0.5, 7.0]).unwrap();
    let linear = FnObjective::new(3, |x, g| {
        g.copy_from_slice(&[-1.0, 1e-3, 50.0]);
        Ok(-x[0] + 1e-3 * x[1] + 50.0 * x[2])
    });
    let found = solve(&LbfgsB::default(), Box::new(linear), &[1.0, 0.0, 0.0], &bounds);
    assert_eq!((found.x.as_slice(), found.stop), (&[3.0, -1.0, -2.0][..], Stop::Gradient));
    let concave = diagonal(vec![-1.0, -10.0, -0.1], vec![1.0, 0.0, 0.0]);
    let found = solve(&LbfgsB::default(), concave, &[1.5, 0.1, 0.3], &bounds);
    assert_eq!((found.x.as_slice(), found.stop), (&[3.0, 0.5, 7.0][..], Stop::Gradient));
}

#[test]
fn a_start_outside_is_projected_and_equal_bounds_fix_a_coordinate() {
    let bounds = Bounds::new(vec![0.0, 2.0, -1.0], vec![1.0, 2.0, 1.0]).unwrap();
    let problem = diagonal(vec![1.0, 3.0, 5.0], vec![0.3, -4.0, -0.2]);
    let found = solve(&strict(1e-10), problem, &[-50.0, 1e9, 77.0], &bounds);
    close(&found.x, &[0.3, 2.0, -0.2], 1e-10);
    // Nothing can move: the start is the answer after one evaluation.
    let fixed = Bounds::cube(2, 1.5, 1.5).unwrap();
    let found = solve(&LbfgsB::default(), rosenbrock(2), &[0.0, 0.0], &fixed);
    assert_eq!((found.x.as_slice(), found.evaluations, found.stop), (&[1.5; 2][..], 1, Stop::Gradient));
}

#[test]
fn dimensions_zero_and_one_are_no_special_cases() {
    let mut nothing = FnObjective::new(0, |_, _| Ok(7.0));
    let found = LbfgsB::default().minimize(&mut nothing, &[], &Bounds::unbounded(0)).unwrap();
    assert_eq!((found.value, found.evaluations, found.stop), (7.0, 1, Stop::Gradient));
    // cosh(x − 2) + x/2: sinh(x − 2) = −½.
    let expected = 2.0 - 0.5_f64.asinh();
    for bounds in [Bounds::unbounded(1), Bounds::cube(1, -30.0, 30.0).unwrap()] {
        let f = FnObjective::new(1, |x, g| {
            g[0] = (x[0] - 2.0).sinh() + 0.5;
            Ok((x[0] - 2.0).cosh() + 0.5 * x[0])
        });
        let found = solve(&strict(1e-9), Box::new(f), &[-20.0], &bounds);
        close(&found.x, &[expected], 1e-9);
    }
}

/// Whatever the budget, it is kept to, and more of it never gives a worse point.
#[test]
fn budgets_are_kept_and_values_only_fall() {
    for bounds in [Bounds::unbounded(10), Bounds::cube(10, -1.5, 0.8).unwrap()] {
        let mut last = f64::INFINITY;
        for max_evaluations in 1..55 {
            let method = LbfgsB { max_evaluations, ..strict(1e-9) };
            let found = solve(&method, rosenbrock(10), &rosenbrock_start(10), &bounds);
            assert_eq!((found.evaluations, found.stop), (max_evaluations, Stop::Evaluations));
            // One step may lose 64 roundings.
            assert!(found.value <= last + 64.0 * f64::EPSILON * last.max(1.0));
            last = found.value;
        }
        let method = LbfgsB { max_iterations: 3, ..strict(1e-9) };
        let found = solve(&method, rosenbrock(10), &rosenbrock_start(10), &bounds);
        assert_eq!((found.iterations, found.stop), (3, Stop::Iterations));
    }
}

/// On the way to this solution a step no longer than a rounding runs into a bound and leaves a model without
/// pairs. The next step must not inherit its length.
#[test]
fn a_step_of_the_length_of_a_rounding_does_not_end_the_search() {
    let numbers = |text: &str| -> Vec<f64> { text.split(' ').map(|v| v.parse().unwrap()).collect() };
    let h = [
        "1.344331643746934 0.6815738223256038 -0.9471572147784711 -0.2252009067089315 0.4013192421687094",
        "0.6815738223256038 -0.17138643788373176 0.14677082268569366 -0.17395131857244336 0.5978618772236032",
        "-0.9471572147784711 0.14677082268569366 0.7023399945913658 -0.41452315496067826 1.1967102299363617",
        "-0.2252009067089315 -0.17395131857244336 -0.41452315496067826 -0.42363708285049084 -0.7423309765159591",
        "0.4013192421687094 0.5978618772236032 1.1967102299363617 -0.7423309765159591 1.196641243788239",
    ];
    let b = "-0.1545341817944835 0 -1.1283038133885432 2.3617727561306463 -0.9753390117013859";
    let start =
        "-1.5887856740858837 1.8801318763801613 1.8512613035292753 0.9605994852309288 -0.8854420132487614";
    let problem = quadratic(h.map(numbers).to_vec(), numbers(b));
    let method = LbfgsB { memory: 4, ..strict(1e-7) };
    let found = solve(&method, problem, &numbers(start), &Bounds::cube(5, -1.0, 1.0).unwrap());
    assert_eq!(found.stop, Stop::Gradient);
}

/// A gradient with the wrong sign gives the start back; a function without a minimum ends with a finite value.
#[test]
fn hopeless_problems_end() {
    let mut wrong = FnObjective::new(2, |x, g| {
        g.copy_from_slice(&[-2.0 * x[0], -2.0 * x[1]]);
        Ok(x[0] * x[0] + x[1] * x[1])
    });
    let found = LbfgsB::default().minimize(&mut wrong, &[3.0, -4.0], &Bounds::unbounded(2)).unwrap();
    assert_eq!((found.x.as_slice(), found.value, found.stop), (&[3.0, -4.0][..], 25.0, Stop::NoDescent));
    let mut endless = FnObjective::new(1, |x, g| {
        g[0] = -x[0].exp();
        Ok(-x[0].exp())
    });
    let found = LbfgsB::default().minimize(&mut endless, &[0.0], &Bounds::unbounded(1)).unwrap();
    assert!(found.value < -1e100 && found.value.is_finite(), "{found:?}");
}

#[test]
fn a_used_workspace_gives_the_same_numbers() {
    let method = LbfgsB::default();
    let mut workspace = Workspace::default();
    let cube = Bounds::cube(10, -1.5, 0.8).unwrap();
    for _ in 0..2 {
        let used = method
            .minimize_with(rosenbrock(10).as_mut(), &rosenbrock_start(10), &cube, &mut workspace)
            .unwrap();
        let fresh = method.minimize(rosenbrock(10).as_mut(), &rosenbrock_start(10), &cube).unwrap();
        assert_eq!(used, fresh);
        let free = Bounds::unbounded(2);
        let used = LbfgsB { memory: 3, ..method.clone() }
            .minimize_with(beale().as_mut(), &[1.0, 1.0], &free, &mut workspace)
            .unwrap();
        let fresh =
            LbfgsB { memory: 3, ..method.clone() }.minimize(beale().as_mut(), &[1.0, 1.0], &free).unwrap();
        assert_eq!(used, fresh);
    }
}

#[test]
fn unusable_input_is_rejected_by_name() {
    let free = Bounds::unbounded(2);
    let minimize = |method: &LbfgsB, start: &[f64], bounds: &Bounds| {
        method.minimize(beale().as_mut(), start, bounds).unwrap_err().to_string()
    };
    let usual = LbfgsB::default();
    assert!(minimize(&usual, &[1.0], &free).contains("start has 1"));
    assert!(minimize(&usual, &[1.0; 2], &Bounds::unbounded(3)).contains("bounds has 3"));
    assert!(minimize(&usual, &[1.0, f64::NAN], &free).contains("start[1] is NaN"));
    assert!(minimize(&usual, &[1e200, 1e200], &free).contains("at the start"));
    for (method, field) in [
        (LbfgsB { memory: 0, ..usual.clone() }, "memory"),
        (LbfgsB { max_evaluations: 0, ..usual.clone() }, "max_evaluations"),
        (LbfgsB { first_step: 0.0, ..usual.clone() }, "first_step"),
        (LbfgsB { gradient_tolerance: f64::NAN, ..usual.clone() }, "gradient_tolerance"),
        (LbfgsB { relative_tolerance: -1.0, ..usual.clone() }, "relative_tolerance"),
    ] {
        assert!(minimize(&method, &[1.0; 2], &free).starts_with(field), "{field}");
    }
}

/// A random quadratic ½xᵀ(AᵀA + shift·I)x − bᵀx, a box with some sides open, and a start that may lie outside.
fn random_problem(shift: f64) -> impl Strategy<Value = (Vec<Vec<f64>>, Vec<f64>, Bounds, Vec<f64>, usize)> {
    (1_usize..9).prop_flat_map(move |n| {
        let entry = -1.0..1.0_f64;
        let side = (-1.0..1.0_f64, 0.0..1.5_f64, 0_u8..6).prop_map(|(lo, width, kind)| match kind {
            0 => (f64::NEG_INFINITY, f64::INFINITY),
            1 => (lo, f64::INFINITY),
            2 => (f64::NEG_INFINITY, lo),
            _ => (lo, lo + width),
        });
        (
            prop::collection::vec(prop::collection::vec(entry.clone(), n), n),
            prop::collection::vec(-3.0..3.0_f64, n),
            prop::collection::vec(side, n),
            prop::collection::vec(-2.0..2.0_f64, n),
            1_usize..12,
        )
            .prop_map(move |(a, b, sides, start, memory)| {
                let h: Vec<Vec<f64>> = (0..n)
                    .map(|i| {
                        (0..n)
                            .map(|j| {
                                let product: f64 = (0..n).map(|k| a[k][i] * a[k][j]).sum();
                                product + shift * f64::from(i == j)
                            })
                            .collect()
                    })
                    .collect();
                let (lo, hi) = sides.into_iter().unzip();
                (h, b, Bounds::new(lo, hi).unwrap(), start, memory)
            })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Convex box problems end where the KKT conditions hold: the gradient vanishes on free coordinates and
    /// points out of the box on the others. Since the curvature is at least 0.1, x is then within 10⁻⁷ of the
    /// minimizer.
    #[test]
    fn convex_box_problems_satisfy_the_kkt_conditions(
        (h, b, bounds, start, memory) in random_problem(0.1)
    ) {
        let method = LbfgsB { memory, ..strict(1e-8) };
        let found = solve(&method, quadratic(h.clone(), b.clone()), &start, &bounds);
        prop_assert_eq!(found.stop, Stop::Gradient);
        for i in 0..b.len() {
            let g: f64 = h[i].iter().zip(&found.x).map(|(h, x)| h * x).sum::<f64>() - b[i];
            prop_assert!((g - found.gradient[i]).abs() < 1e-13 * found.x.iter().fold(10.0, |m, x| x.abs().max(m)));
            let x = found.x[i];
            prop_assert!(x <= bounds.lo()[i] + 1e-8 || g <= 1e-8, "x[{}] could go down: {}", i, g);
            prop_assert!(x >= bounds.hi()[i] - 1e-8 || g >= -1e-8, "x[{}] could go up: {}", i, g);
        }
    }

    /// Indefinite problems in a closed box end at a stationary point no worse than the start.
    #[test]
    fn indefinite_problems_end_at_a_stationary_point((h, b, _, start, memory) in random_problem(-1.0)) {
        let bounds = Bounds::cube(b.len(), -1.0, 1.0).unwrap();
        let method = LbfgsB { memory, ..strict(1e-7) };
        let found = solve(&method, quadratic(h, b), &start, &bounds);
        prop_assert_eq!(found.stop, Stop::Gradient);
        prop_assert!(bounds.projected_gradient(&found.x, &found.gradient) <= 1e-7);
    }
}
