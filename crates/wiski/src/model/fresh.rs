//! Refits that begin afresh: late in a stream its hyperparameters are questioned once more, which needs no row.
//!
//! A fit that took everything for noise, or noise for everything, does not find back in small steps. So from time to time
//! a refit also begins elsewhere, and the evidence of all rows decides ([`Wiski::refit_afresh`]).

use super::Wiski;
use crate::learn::{HyperSpace, Hyperparameters};

/// Every so many refits also begin afresh: about once while rows double.
const EVERY: usize = 8;

/// Whether the refit after so many begins afresh, too.
pub(super) fn is_due(refits: usize) -> bool {
    refits % EVERY == EVERY - 1
}

/// Other hyperparameters to begin a refit from, for a grid of columns whose posterior is cheap: length-scales from the width
/// of the grid down to what its points can show, and little noise.
pub(super) fn starts(model: &Wiski, space: &HyperSpace) -> Vec<Hyperparameters> {
    let lattice = model.stats().lattice();
    let ([grid], None) = (lattice.grids(), lattice.points()) else { return Vec::new() };
    let kernel = &model.kernels()[0];
    if kernel.term_count() > 1 || grid.dim() > 1 && model.follows_in_steps() {
        return Vec::new();
    }
    // Noise that is known stays as it is.
    let noise = if space.learns_noise() { model.noise() } else { 0.0 };
    let variance = kernel.variance() + noise;
    let start = |share: f64| {
        let mut fresh = kernel.clone().scaled(variance / kernel.variance());
        let (names, mut values) = (fresh.parameter_names(), fresh.parameters());
        for (k, axis) in grid.axes().iter().enumerate() {
            let (short, long) = (3.0 * axis.step(), 0.5 * (axis.hi() - axis.lo()));
            let own = names.iter().position(|name| *name == format!("lengthscale[{k}]"));
            own.into_iter().for_each(|i| values[i] = long.powf(share) * short.min(long).powf(1.0 - share));
        }
        fresh.set_parameters(&values).ok()?;
        Some(Hyperparameters {
            kernels: vec![fresh],
            noise: if space.learns_noise() { 0.1 * variance } else { model.noise() },
        })
    };
    [1.0, 0.5, 0.0].into_iter().filter_map(start).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;
    use crate::grid::Grid;
    use crate::kernel::Kernel;
    use crate::learn::LbfgsB;
    use crate::model::OnlineGp;
    use crate::model::schedule::brief;

    /// A model that takes everything for noise, as one may that began with too few rows.
    fn stuck() -> Result<Wiski> {
        let mut model = Wiski::builder()
            .grid(Grid::covering(&[(-1.0, 1.0); 2], &[24, 24])?)
            .kernel(Kernel::rbf(&[30.0, 30.0])?.scaled(0.3))
            .noise(0.8)
            .build()?;
        for i in 0..600 {
            let [a, b] = [0.618, 0.755].map(|c| 2.0 * (f64::from(i) * c).fract() - 1.0);
            model.step(&[a, b], (6.5 * a).cos() * b + 0.1 * (f64::from(i) * 7.1).sin())?;
        }
        Ok(model)
    }

    #[test]
    fn a_fresh_start_leads_out_of_noise() {
        let mut known = stuck().unwrap();
        let space = HyperSpace::new(&known.hyperparameters());
        known.refit(&space, &brief()).unwrap();
        assert!(known.noise() > 0.1, "{}: small steps lead out, so this shows nothing", known.noise());
        let mut fresh = stuck().unwrap();
        let starts = starts(&fresh, &space);
        assert_eq!(starts.len(), 3);
        let known_noise = super::starts(&fresh, &space.clone().with_known_noise());
        assert!(known_noise.iter().all(|start| start.noise == fresh.noise()));
        let minimum = fresh.refit_afresh(&space, &starts, &brief()).unwrap();
        assert!(fresh.noise() < 0.02, "{}", fresh.noise());
        // What comes out is the value at the hyperparameters that were taken.
        let again = fresh.refit(&space, &LbfgsB { max_evaluations: 1, ..brief() }).unwrap();
        assert!((again.value - minimum.value).abs() < 1e-9, "{} {}", again.value, minimum.value);
    }

    #[test]
    fn what_is_best_already_stays() {
        let mut model = stuck().unwrap();
        let space = HyperSpace::new(&model.hyperparameters());
        model.refit_afresh(&space, &starts(&model, &space), &LbfgsB::default()).unwrap();
        let best = model.hyperparameters();
        model.refit_afresh(&space, &starts(&model, &space), &brief()).unwrap();
        for ((_, before), (name, after)) in best.named().iter().zip(model.hyperparameters().named()) {
            assert!((after / before - 1.0).abs() < 1e-2, "{name}: {before} {after}");
        }
        assert_eq!((0..16).filter(|&refits| is_due(refits)).collect::<Vec<_>>(), [7, 15]);
    }
}
