//! What this machine can do on one thread, and how long something takes: what benchmarks measure against.

use std::time::Instant;

/// What one core can do, measured in this run.
pub(crate) struct Limits {
    /// Billions of operations a second, two for a multiply-add.
    pub(crate) gflops: f64,
    /// Billions of bytes a second from the second cache.
    pub(crate) gbytes: f64,
}

impl Limits {
    /// Measures them.
    pub(crate) fn measure() -> Self {
        // A matrix product of 256 is the fastest code at hand for multiply-adds.
        let n = 256;
        let a = faer::Mat::from_fn(n, n, |i, j| (i * j % 7) as f64);
        let mut c = faer::Mat::<f64>::zeros(n, n);
        let seconds = time(|| {
            faer::linalg::matmul::matmul(
                c.as_mut(),
                faer::Accum::Replace,
                a.as_ref(),
                a.as_ref(),
                1.0,
                faer::Par::Seq,
            );
        });
        let flops = 2.0 * (n * n * n) as f64;
        // A matrix-vector product reads 512 kB, which stay in the second cache, once.
        let x = faer::Mat::<f64>::from_fn(n, 1, |i, _| i as f64);
        let mut y = faer::Mat::<f64>::zeros(n, 1);
        let bytes = (8 * n * n) as f64;
        let sweep = time(|| {
            faer::linalg::matmul::matmul(
                y.as_mut(),
                faer::Accum::Replace,
                a.as_ref(),
                x.as_ref(),
                1.0,
                faer::Par::Seq,
            );
        });
        Self { gflops: flops / seconds / 1e9, gbytes: bytes / sweep / 1e9 }
    }
}

/// Seconds for one call: the best of many short measurements, most of which nothing interrupts.
pub(crate) fn time(mut f: impl FnMut()) -> f64 {
    f();
    let start = Instant::now();
    let mut repetitions = 0u32;
    while start.elapsed().as_secs_f64() < 0.001 {
        f();
        repetitions += 1;
    }
    let mut best = f64::INFINITY;
    for _ in 0..200 {
        let start = Instant::now();
        (0..repetitions).for_each(|_| f());
        best = best.min(start.elapsed().as_secs_f64() / f64::from(repetitions));
    }
    best
}
