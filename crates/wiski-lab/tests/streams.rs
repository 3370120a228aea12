//! Streams through the methods: budgets, settings chosen on validation rows, wiski as it comes.

use wiski_lab::data::{Split, Table};
use wiski_lab::method::{Method, Task, ranks, stream, stream_best};
use wiski_lab::watch;

fn table(rows: usize) -> Table {
    let place = |i: usize, step: f64| 2.0 * (step * (i + 1) as f64).fract() - 1.0;
    let x: Vec<f64> = (0..rows).flat_map(|i| [place(i, 0.618), place(i, 0.414)]).collect();
    let y = x.chunks_exact(2).enumerate().map(|(i, x)| (3.0 * x[0]).sin() + x[1] + 0.1 * place(i, 0.732));
    Table { dim: 2, y: y.collect(), x: x.clone() }
}

#[test]
fn the_settings_of_the_paper_are_among_those_that_are_tried() {
    for method in [Method::svgp(64), Method::sgpr(64), Method::local(64)] {
        let tried = method.candidates();
        assert!(tried.len() >= 6 && tried.contains(&method), "{tried:?}");
    }
    assert_eq!(Method::ExactCholesky.candidates(), [Method::ExactCholesky]);
}

/// Settings are chosen without the test rows: other targets there change nothing but the scores.
#[test]
fn settings_are_chosen_on_training_rows() {
    let task = Task::named("dem_jacksboro");
    let split = Split::paper(&table(300), 1, usize::MAX);
    let best = stream_best(&task, Method::local(40), &split, 60, 1).unwrap();
    let mut other = split.clone();
    other.test.y.iter_mut().for_each(|y| *y = -*y);
    let again = stream_best(&task, Method::local(40), &other, 60, 1).unwrap();
    assert!(best.chosen.is_some() && best.chosen == again.chosen);
    assert_eq!((best.planned, best.warm_up, best.checkpoints.last().unwrap().n), (60, 13, 60));
    assert!(again.checkpoints.last().unwrap().rmse > best.checkpoints.last().unwrap().rmse);
}

#[test]
fn a_budget_ends_a_stream_with_a_checkpoint() {
    let task = Task::named("dem_jacksboro");
    let split = Split::paper(&table(300), 1, usize::MAX);
    let (course, _) = watch::within(0.0, || stream(&task, Method::ExactCholesky, &split, usize::MAX, 1));
    let course = course.unwrap();
    assert_eq!(course.planned, 257);
    // The clock of a thread ticks in steps, so some rows are learned before it says that time is over.
    let end = course.checkpoints.last().unwrap().n;
    assert!((1..200).contains(&end), "{end}");
}

#[test]
fn wiski_as_it_comes_and_the_ranks_along_a_stream() {
    let task = Task::named("powerplant");
    let split = Split::paper(&table(300), 1, usize::MAX);
    let course = stream(&task, Method::Product, &split, usize::MAX, 1).unwrap();
    assert!(course.checkpoints.last().unwrap().rmse < 0.2, "{:?}", course.checkpoints.last());
    let points = ranks(&task, 8, &split, 1).unwrap();
    assert_eq!(points.iter().map(|p| p.rows).collect::<Vec<_>>(), [50, 100, 200, 257]);
    assert!(points.iter().all(|p| (1.0..=64.0).contains(&p.rank) && p.noise > 0.0 && p.lengthscale > 0.0));
}
