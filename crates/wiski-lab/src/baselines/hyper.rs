//! Kernel and noise with the unconstrained numbers by which they are learned.
//!
//! The parametrization is that of the reference implementation: softplus, with a floor of 10⁻⁴ on the noise, so
//! that the paper's learning rates mean what they meant there.

use wiski::Result;
use wiski::internals::exact::Covariance;
use wiski::internals::learn::{Hyperprior, Transform};

/// A kernel and the noise variance σ².
#[derive(Debug, Clone, PartialEq)]
pub struct Hyper {
    /// The kernel.
    pub kernel: Covariance,
    /// The noise variance.
    pub noise: f64,
    /// Whether the noise is learned; where it is known it stays.
    pub learn_noise: bool,
}

/// The smallest values a step may lead to: beyond them a kernel matrix is the identity or singular.
const RANGE: (f64, f64) = (1e-3, 1e3);

impl Hyper {
    /// The start of the reference implementation: everything at softplus(0) = ln 2.
    pub fn new(kernel: Covariance) -> Self {
        Self { kernel, noise: std::f64::consts::LN_2, learn_noise: true }
    }

    /// The same with a known noise variance.
    #[must_use]
    pub fn with_known_noise(mut self, noise: f64) -> Self {
        (self.noise, self.learn_noise) = (noise, false);
        self
    }

    /// The number of unknowns.
    pub fn dim(&self) -> usize {
        self.kernel.parameters().len() + usize::from(self.learn_noise)
    }

    fn transform(&self, i: usize) -> Transform {
        let floor = if i == self.kernel.parameters().len() { 1e-4 } else { 0.0 };
        Transform::Softplus { floor }
    }

    fn values(&self) -> impl Iterator<Item = f64> + '_ {
        self.kernel.parameters().iter().copied().chain(self.learn_noise.then_some(self.noise))
    }

    /// The unknowns.
    pub fn raw(&self) -> Result<Vec<f64>> {
        self.values().enumerate().map(|(i, v)| self.transform(i).inverse(v)).collect()
    }

    /// Takes the values of the unknowns.
    pub fn set_raw(&mut self, raw: &[f64]) -> Result<()> {
        let mut values: Vec<f64> =
            raw.iter().enumerate().map(|(i, &r)| self.transform(i).forward(r)).collect();
        if self.learn_noise {
            self.noise = values.pop().unwrap_or(self.noise).clamp(1.01e-4, RANGE.1);
        }
        values.iter_mut().for_each(|v| *v = v.clamp(RANGE.0, RANGE.1));
        self.kernel.set_parameters(&values)
    }

    /// From derivatives in the parameters and the noise to derivatives in the unknowns.
    pub fn chain(&self, by_kernel: &[f64], by_noise: f64, gradient: &mut [f64]) -> Result<()> {
        let raw = self.raw()?;
        let natural = by_kernel.iter().copied().chain([by_noise]);
        for (i, (slope, slot)) in natural.zip(gradient.iter_mut()).enumerate() {
            *slot = slope * self.transform(i).derivative(raw[i]);
        }
        Ok(())
    }
}

/// Priors of the hyperparameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Priors {
    /// Of the output scale.
    pub scale: Hyperprior,
    /// Of every other parameter of the kernel.
    pub lengthscale: Hyperprior,
    /// Of the noise variance.
    pub noise: Hyperprior,
}

impl Priors {
    /// The prior of each kernel parameter and of the noise, in the order of the parameters.
    pub fn of(&self, hyper: &Hyper) -> Vec<Hyperprior> {
        let axes = hyper.kernel.parameters().len() - 1;
        [self.scale].into_iter().chain(vec![self.lengthscale; axes]).chain([self.noise]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknowns_come_back() {
        let mut hyper = Hyper::new(Covariance::rbf(0.7, &[0.2, 3.0]).unwrap());
        let raw = hyper.raw().unwrap();
        assert_eq!(raw.len(), 4);
        let before = hyper.clone();
        hyper.set_raw(&raw).unwrap();
        assert!((hyper.noise - before.noise).abs() < 1e-14);
        let known = before.with_known_noise(1.0);
        assert_eq!(known.dim(), 3);
    }
}
