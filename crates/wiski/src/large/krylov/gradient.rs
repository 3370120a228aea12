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
use crate::dense::transpose;
use crate::error::{Error, Result};
use crate::evidence::{Evidence, diagonal_sums_between};
use crate::kernel::Kernel;
use crate::pool::Pool;
use crate::simd::{dot, padded};
use crate::threads;

/// Random signs ε on the grid and V = E ε, columns of m numbers each.
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
    let signs = |stream: u64, length: usize| -> Vec<f64> {
        let mut rng = accuracy.rng(stream);
        (0..padded(accuracy.probes) * length).map(|_| sign(&mut rng)).collect()
    };
    let (log_det, traces) = threads::join(
        accuracy.two_threads,
        || log_det(system, accuracy, signs(1, system.prior.rank())),
        || traces(system, accuracy, signs(2, system.stats.lattice().len())),
    );
    Ok(assemble(posterior, system, kernel, log_det?, &traces?))
}

/// The evidence and its gradient from log det S and the traces.
fn assemble(
    posterior: &KrylovPosterior,
    system: &System,
    kernel: &Kernel,
    (log_det, quadrature): (f64, Convergence),
    traces: &Traces,
) -> (Evidence, Convergence) {
    let convergence = posterior.convergence.and(quadrature).and(traces.convergence);

    let (stats, noise, z) = (system.stats, system.noise, &posterior.coordinates);
    let n = stats.count();
    let misfit = posterior.misfit(stats);
    let value = -0.5 * (misfit + log_det + n * (noise.ln() + std::f64::consts::TAU.ln()) + stats.log_noise());

    let pool = &mut Pool::default();
    let (columns, probes) = (traces.columns, traces.columns as f64);
    // [α −E ε/t] and [α ε], so that their product estimates ααᵀ − E.
    let beside = |alpha: &[f64], block: &[f64], factor: f64| -> Vec<f64> {
        let all: Vec<f64> = alpha.iter().copied().chain(block.iter().map(|v| factor * v)).collect();
        let mut rows = vec![0.0; all.len()];
        transpose(&all, alpha.len(), &mut rows);
        rows
    };
    let left = beside(&posterior.alpha, &traces.image, -probes.recip());
    let right = beside(&posterior.alpha, &traces.epsilon, 1.0);
    // tr(E K) of each component, by εᵀB Bᵀ(E ε).
    let whitened = [&traces.epsilon, &traces.image].map(|x| system.project(x, columns, pool));
    let mut gradient = vec![0.0; kernel.parameter_count()];
    let mut trace = 0.0;
    for component in system.prior.components() {
        let own = component.range();
        let both = whitened[0].chunks_exact(z.len()).zip(whitened[1].chunks_exact(z.len()));
        let explained = both.map(|(a, b)| dot(&a[own.clone()], &b[own.clone()])).sum::<f64>() / probes;
        trace += explained;
        let by_scale = 0.5 * (dot(&z[own.clone()], &z[own]) - explained) / component.scale;
        kernel.vjp_scale(component.term, by_scale, &mut gradient);
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
    (Evidence { value, by_kernel: vec![gradient], by_noise }, convergence)
}

/// log det S, with its standard error, from columns ξ whose squares have mean one.
fn log_det(system: &System, accuracy: &Accuracy, xi: Vec<f64>) -> Result<(f64, Convergence)> {
    let p = system.prior.rank();
    let (columns, mut rhs) = (xi.len() / p, xi);
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

/// E ε for columns ε on the grid.
fn traces(system: &System, accuracy: &Accuracy, epsilon: Vec<f64>) -> Result<Traces> {
    let columns = epsilon.len() / system.stats.lattice().len();
    let (inverse, pool) = (system.noise.recip(), &mut Pool::default());
    // A ε/σ², then E ε = A ε/σ² − A B S⁻¹Bᵀ(A ε/σ²)/σ².
    let mut image = system.multiply_data(&epsilon, columns, pool);
    image.iter_mut().for_each(|v| *v *= inverse);
    let rhs = system.project(&image, columns, pool);
    let (tolerance, limit) = (accuracy.probe_tolerance, accuracy.max_iterations);
    let Solution { x, convergence, .. } = system.solve(&rhs, None, columns, tolerance, limit, pool)?;
    let u = system.expand(&x, columns, pool);
    let explained = system.multiply_data(&u, columns, pool);
    image.iter_mut().zip(&explained).for_each(|(v, e)| *v -= inverse * e);
    Ok(Traces { epsilon, image, columns, convergence })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Grid;
    use crate::stats::Stats;

    /// With √m times every unit vector in turn in place of random signs, the estimates are exact.
    #[test]
    fn all_unit_vectors_give_the_exact_evidence_and_gradient() {
        let shapes: [&[usize]; 3] = [&[40], &[8, 12], &[8, 7, 7]];
        for shape in shapes {
            let d = shape.len();
            let mut stats = Stats::new(Grid::covering(&vec![(0.0, 1.0); d], shape).unwrap());
            for i in 0..300 {
                let x: Vec<f64> =
                    (0..d).map(|k| (0.618_f64.powi(k as i32 + 1) * f64::from(i)).fract()).collect();
                let y = x.iter().map(|v| (5.0 * v).sin()).sum::<f64>() + 0.1 * (1.7 * f64::from(i * i)).sin();
                stats.observe(&x, y, 1.0 + 0.5 * f64::from(i % 3)).unwrap();
            }
            let kernel = Kernel::matern32(&vec![0.3; d]).unwrap().scaled(1.4);
            let noise = 0.03;
            let (want, _) = Evidence::new(&stats, std::slice::from_ref(&kernel), noise, 1e-14).unwrap();
            let accuracy =
                Accuracy { leading: 8, probe_tolerance: 1e-10, tolerance: 1e-11, ..Accuracy::default() };
            let posterior = KrylovPosterior::new(&stats, &kernel, noise, &accuracy).unwrap();
            let system = posterior.system(&stats).unwrap();
            let units = |n: usize| {
                let size = (n as f64).sqrt();
                (0..n * n).map(|e| if e / n == e % n { size } else { 0.0 }).collect::<Vec<_>>()
            };
            // Quadrature needs vectors of length √p whatever they are; unit vectors have it.
            let log_det = log_det(&system, &accuracy, units(posterior.rank())).unwrap();
            let traces = traces(&system, &accuracy, units(stats.lattice().len())).unwrap();
            let (got, _) = assemble(&posterior, &system, &kernel, log_det, &traces);
            // Solves to 1e-10, with sums of squares up to 300/0.03.
            let close =
                |a: f64, b: f64, scale: f64| assert!((a - b).abs() < 1e-7 * scale, "{shape:?}: {a} {b}");
            close(got.value, want.value, want.value.abs() + 100.0);
            got.by_kernel[0].iter().zip(&want.by_kernel[0]).for_each(|(a, b)| close(*a, *b, b.abs() + 100.0));
            close(got.by_noise, want.by_noise, want.by_noise.abs() + 300.0 / noise);
        }
    }
}
