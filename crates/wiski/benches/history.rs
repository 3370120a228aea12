//! A few figures that can be compared from commit to commit, whatever the machine: `./bench` keeps them.
//!
//! Each is the time of an operation in thousands of multiply-adds that the machine could have done meanwhile, by the fastest
//! matrix product at hand, in the same run. Prints names in one line and figures in the next, for a file of comma-separated
//! values.

mod limits;

use std::hint::black_box;
use std::sync::Arc;

use limits::{Limits, time};
use wiski::internals::evidence::Evidence;
use wiski::internals::grid::Lattice;
use wiski::internals::points::Points;
use wiski::{Family, Grid, Kernel, OnlineGp, OnlineRegressor, Settings, Stats, Wiski};

/// The place of row `i` on axis `k`.
fn place(i: usize, k: usize) -> f64 {
    ([0.754_878, 0.569_840, 0.414_213, 0.236_068][k] * i as f64).fract()
}

fn target(i: usize) -> f64 {
    (6.0 * place(i, 0)).sin() * place(i, 1) + 0.1 * place(i * i + 1, 2)
}

fn main() {
    // One measurement may be disturbed, and the figures are ratios to it.
    let all: Vec<Limits> = (0..5).map(|_| Limits::measure()).collect();
    let best = |of: &dyn Fn(&Limits) -> f64| all.iter().map(of).fold(0.0, f64::max);
    let gflops = best(&|limits| limits.gflops);
    eprintln!("machine: {gflops:.1} GFLOP/s, {:.0} GB/s (one thread)", best(&|limits| limits.gbytes));
    let mut figures = Vec::new();
    let mut report = |name: &'static str, seconds: f64| figures.push((name, seconds * gflops * 1e6 / 2.0));

    let square = |points: usize| Grid::covering(&[(0.0, 1.0); 2], &[points; 2]).expect("a grid");
    let at = |i: usize| [place(i, 0), place(i, 1)];
    let mut stats = Stats::new(square(16));
    let mut i = 0;
    report(
        "observe",
        time(|| {
            stats.observe(&at(i), target(i), 1.0).expect("a row");
            i += 1;
        }),
    );

    let rough = Kernel::matern32(&[0.5; 2]).expect("a kernel");
    let mut model = Wiski::builder().grid(square(11)).kernel(rough).noise(0.01).build().expect("a model");
    (0..500).for_each(|i| model.observe(&at(i), target(i)).map(|_| ()).expect("a row"));
    let mut i = 500;
    report(
        "step",
        time(|| {
            black_box(model.step(&at(i), target(i)).expect("a row"));
            i += 1;
        }),
    );
    let predictor = model.predictor().expect("a predictor");
    report("predict", time(|| drop(black_box(predictor.predict(black_box(&[0.3, 0.7]))))));

    let smooth = Kernel::rbf(&[0.3; 2]).expect("a kernel");
    report(
        "evidence",
        time(|| {
            drop(black_box(Evidence::new(&stats, std::slice::from_ref(&smooth), 0.01, 1e-12)));
        }),
    );

    let centers: Vec<f64> = (0..256).flat_map(|i| (0..4).map(move |k| place(i, k))).collect();
    let points = Arc::new(Points::new(Family::Matern32, &centers, &[0.8; 4]).expect("points"));
    let mut stats = Stats::new(Lattice::with_points(Vec::new(), points.clone()));
    let row = |i: usize| [place(i, 0), place(i, 1), place(i, 2), place(i, 3)];
    let mut i = 0;
    report(
        "observe_points",
        time(|| {
            stats.observe(&row(i), target(i), 1.0).expect("a row");
            i += 1;
        }),
    );
    let scale = Kernel::output_scale(1.0).expect("a kernel");
    let mut model = Wiski::builder().points(points).kernel(scale).noise(0.01).build().expect("a model");
    (0..500).for_each(|i| model.observe(&row(i), target(i)).map(|_| ()).expect("a row"));
    let mut i = 500;
    report(
        "step_points",
        time(|| {
            black_box(model.step(&row(i), target(i)).expect("a row"));
            i += 1;
        }),
    );

    let mut model = OnlineRegressor::new(2, Settings::default()).expect("settings");
    (0..3000).for_each(|i| model.step(&at(i), target(i)).map(|_| ()).expect("a row"));
    model.freeze_features().expect("features");
    let mut i = 3000;
    report(
        "row",
        time(|| {
            black_box(model.step(&at(i), target(i)).expect("a row"));
            i += 1;
        }),
    );

    let (names, values): (Vec<&str>, Vec<String>) =
        figures.iter().map(|(n, v)| (*n, format!("{v:.1}"))).unzip();
    println!("{}\n{}", names.join(","), values.join(","));
}
