//! The evidence and its gradient from solves with random vectors.
//!
//! With the preconditioner P = L Lᵀ and random signs ξ (E ξξᵀ = I),
//!
//! ```text
//! log det S = log det P + tr log G,   G = L⁻¹S L⁻ᵀ,   tr log G ≈ ξᵀ(log G)ξ = p Σ_k τ_k² log θ_k
//! ```
//!
//! where θ_k are the eigenvalues and τ_k the first entries of the eigenvectors of the tridiagonal matrix that conjugate
//! gradients for S x = L ξ leave behind. Where P is close to S the random part is small.
//!
//! The gradient is ∂ log p/∂K = ½(ααᵀ − E) with E = A/σ² − A M A/σ⁴. For random signs ε on the grid, E ε needs one
//! solve, and tr(E K_θ) ≈ εᵀK_θ(E ε) for every parameter θ at once: as for small grids, the contraction gives the
//! derivative in the entries of the Toeplitz columns, and the kernel's chain rule does the rest.

use faer::{Mat, Side};

use super::solve::{Solution, System};
use super::{Accuracy, Convergence, KrylovPosterior, sign};
use crate::error::{Error, Result};
use crate::evidence::{Evidence, diagonal_sums_between};
use crate::kernel::Kernel;
use crate::pool::Pool;
use crate::simd::{dot, padded};

/// Random signs ε on the grid and V = E ε, m rows of `columns` numbers each.
struct Traces {
    epsilon: Vec<f64>,
    image: Vec<f64>,
    columns: usize,
    convergence: Convergence,
}

pub(super) fn evidence(
    posterior: &KrylovPosterior,
    system: &System,
    kernel: &Kernel,
) -> Result<(Evidence, Convergence)> {
    let accuracy = &posterior.accuracy;
    let (log_det, traces) = if accuracy.two_threads {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| log_det(system, accuracy));
            let traces = traces(system, accuracy);
            // A panic there is a broken promise of this module, and goes on here.
            let log_det = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (log_det, traces)
        })
    } else {
        (log_det(system, accuracy), traces(system, accuracy))
    };
    let (log_det, quadrature) = log_det?;
    let traces = traces?;
    let convergence = posterior.convergence.and(quadrature).and(traces.convergence);

    let (stats, noise, z) = (system.stats, system.noise, &posterior.coordinates);
    let n = stats.count();
    let misfit = posterior.misfit(stats);
    let value = -0.5 * (misfit + log_det + n * (noise.ln() + std::f64::consts::TAU.ln()) + stats.log_noise());

    let pool = &mut Pool::default();
    let (columns, probes) = (traces.columns, traces.columns as f64);
    // [α −E ε/t] and [α ε], so that their product estimates ααᵀ − E.
    let beside = |alpha: &[f64], block: &[f64], factor: f64| -> Vec<f64> {
        let rows = alpha.iter().zip(block.chunks_exact(columns));
        rows.flat_map(|(&a, row)| std::iter::once(a).chain(row.iter().map(move |v| factor * v))).collect()
    };
    let left = beside(&posterior.alpha, &traces.image, -probes.recip());
    let right = beside(&posterior.alpha, &traces.epsilon, 1.0);
    // tr(E K) of each component, by εᵀB Bᵀ(E ε).
    let whitened = [&traces.epsilon, &traces.image].map(|x| system.prior.project(x, columns, pool));
    let mut gradient = vec![0.0; kernel.parameter_count()];
    let mut trace = 0.0;
    for component in system.prior.components() {
        let own = component.range();
        let rows = own.start * columns..own.end * columns;
        let explained = dot(&whitened[0][rows.clone()], &whitened[1][rows]) / probes;
        trace += explained;
        let by_scale = 0.5 * (dot(&z[own.clone()], &z[own]) - explained) / component.scale;
        kernel.pull_back_scale(component.term, by_scale, &mut gradient);
        for (k, axis) in stats.lattice().grids()[0].axes().iter().enumerate() {
            // The other axes' roots carry √s unless axis k does.
            let factor = 0.5 * if k == 0 { component.scale } else { 1.0 };
            let axes = &component.root.axes;
            let by_column = diagonal_sums_between(axes, k, [&left, &right], columns + 1, factor, pool);
            for (i, column) in kernel.column_derivatives(component.term, k, axis.step(), axis.points()) {
                gradient[i] += dot(&column, &by_column);
            }
        }
    }
    let by_noise = 0.5 * (misfit - dot(z, z) - n + trace) / noise;
    Ok((Evidence { value, by_kernel: vec![gradient], by_noise }, convergence))
}

/// log det S, with its standard error.
fn log_det(system: &System, accuracy: &Accuracy) -> Result<(f64, Convergence)> {
    let (columns, p) = (padded(accuracy.probes), system.prior.rank());
    let mut rng = accuracy.rng(1);
    let mut rhs: Vec<f64> = (0..p * columns).map(|_| sign(&mut rng)).collect();
    system.preconditioner.multiply_root(&mut rhs, columns);
    let (tolerance, limit) = (accuracy.probe_tolerance, accuracy.max_iterations);
    let solution = system.solve(&rhs, None, columns, tolerance, limit, &mut Pool::default())?;
    let Solution { tridiagonals, convergence, .. } = solution;
    let values =
        tridiagonals.iter().map(|t| Ok(p as f64 * log_quadrature(t)?)).collect::<Result<Vec<_>>>()?;
    let mean = values.iter().sum::<f64>() / columns as f64;
    let spread: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let log_det_error = (spread / (columns * (columns - 1)) as f64).sqrt();
    Ok((system.preconditioner.log_det() + mean, Convergence { log_det_error, ..convergence }))
}

/// e₁ᵀ(log T)e₁ for a tridiagonal matrix given by its diagonal and squared off-diagonal.
fn log_quadrature((diagonal, off): &(Vec<f64>, Vec<f64>)) -> Result<f64> {
    let k = diagonal.len();
    if k == 0 {
        return Ok(0.0); // S x = L ξ was solved by zero: there is nothing to learn from
    }
    let entry = |i: usize, j: usize| match i.abs_diff(j) {
        0 => diagonal[i],
        1 => off[i.min(j)].sqrt(),
        _ => 0.0,
    };
    let t = Mat::from_fn(k, k, entry);
    let eigen = t.self_adjoint_eigen(Side::Lower).map_err(|_| Error::NoConvergence {
        method: "Lanczos quadrature",
        iterations: k,
        residual: f64::NAN,
    })?;
    // Positive by construction; rounding cannot bring an eigenvalue of S ≥ I near zero unless P is far off.
    let log = |i: usize| eigen.S()[i].max(f64::MIN_POSITIVE).ln();
    Ok((0..k).map(|i| eigen.U()[(0, i)].powi(2) * log(i)).sum())
}

fn traces(system: &System, accuracy: &Accuracy) -> Result<Traces> {
    let (columns, m) = (padded(accuracy.probes), system.stats.lattice().len());
    let (inverse, pool) = (system.noise.recip(), &mut Pool::default());
    let mut rng = accuracy.rng(2);
    let epsilon: Vec<f64> = (0..m * columns).map(|_| sign(&mut rng)).collect();
    // A ε/σ², then E ε = A ε/σ² − A B S⁻¹Bᵀ(A ε/σ²)/σ².
    let mut image = vec![0.0; m * columns];
    system.stats.multiply_few(&epsilon, columns, &mut image);
    image.iter_mut().for_each(|v| *v *= inverse);
    let rhs = system.prior.project(&image, columns, pool);
    let (tolerance, limit) = (accuracy.probe_tolerance, accuracy.max_iterations);
    let Solution { x, convergence, .. } = system.solve(&rhs, None, columns, tolerance, limit, pool)?;
    let u = system.prior.expand(&x, columns, pool);
    let mut explained = pool.take(m * columns);
    system.stats.multiply_few(&u, columns, &mut explained);
    image.iter_mut().zip(&explained).for_each(|(v, e)| *v -= inverse * e);
    Ok(Traces { epsilon, image, columns, convergence })
}
