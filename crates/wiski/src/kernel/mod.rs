//! Stationary kernels on R^d whose restriction to a regular grid has Kronecker-Toeplitz structure.
//!
//! A kernel is a sum of terms, and a term is an output scale times a product over axes of one-dimensional
//! correlations ([`Family`]):
//!
//! ```text
//! k(x, x') = Σ_t s_t Π_k κ_tk(x_k − x'_k),     K_UU = Σ_t s_t (T_t1 ⊗ … ⊗ T_td)
//! ```
//!
//! Sums (`+`) join the terms. Products (`*`) multiply term by term, axis by axis: a product of product
//! kernels is again a product kernel, so nothing is lost. Parameters stay shared where a product
//! distributes over a sum.
//!
//! ```
//! use wiski::Kernel;
//! let trend = Kernel::rbf(&[10.0])?.scaled(2.0);
//! let season = Kernel::periodic(&[1.0], &[1.0])? * Kernel::rbf(&[30.0])?;
//! let kernel = trend + season;
//! assert_eq!(kernel.to_string(), "rbf + periodic*rbf");
//! assert_eq!(kernel.covariance(&[0.0]), 3.0);
//! # Ok::<(), wiski::Error>(())
//! ```

mod family;
mod parse;

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, Mul};

pub use family::Family;

use crate::error::{Error, Result, length, positive};
use crate::saved::{Restore, restored_after_reading};

/// The largest number of axes of one grid: 4^d interpolation weights limit what is sensible.
pub const MAX_DIM: usize = 4;

/// The largest number of axes of a kernel: without a grid, among few rows, more of them make sense.
pub const MAX_AXES: usize = 64;

/// A sum of scaled products of one-dimensional stationary correlations, with its parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Kernel {
    dim: usize,
    parameters: Vec<Parameter>,
    terms: Vec<Term>,
    expression: String,
}

/// One positive hyperparameter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Parameter {
    /// Which base kernel of the expression it belongs to.
    base: usize,
    label: String,
    value: f64,
}

/// s Π_k Π_f κ_f(τ_k): indices point into the kernel's parameters, so that terms may share them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Term {
    scales: Vec<usize>,
    axes: Vec<Vec<Factor>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Factor {
    family: Family,
    first: usize,
}

restored_after_reading!(Kernel);

impl Restore for Kernel {
    fn restore(&mut self) -> Result<()> {
        let reject = |reason: &str| Err(Error::Config { field: "kernel".into(), reason: reason.into() });
        if self.dim > MAX_AXES || self.terms.is_empty() {
            return reject("a kernel has at most 64 axes and at least one term");
        }
        let count = self.parameters.len();
        for term in &self.terms {
            let factors = || term.axes.iter().flatten();
            let fits = |f: &Factor| {
                f.family.parameter_count() > 0 && f.first.saturating_add(f.family.parameter_count()) <= count
            };
            if term.axes.len() != self.dim || term.scales.is_empty() || !factors().all(fits) {
                return reject("a term does not fit the axes and parameters");
            }
            if term.scales.iter().any(|&i| i >= count) {
                return reject("a scale is not among the parameters");
            }
        }
        self.parameters.iter().try_for_each(|p| positive(p.label.as_str(), p.value, 0))
    }
}

impl Factor {
    fn range(self) -> std::ops::Range<usize> {
        self.first..self.first + self.family.parameter_count()
    }
}

impl Kernel {
    /// The product over all `dim` axes of one family, with default parameters (per axis) and output scale ln 2.
    pub fn new(family: Family, dim: usize) -> Result<Self> {
        Self::on_axes(family, dim, &(0..dim).collect::<Vec<_>>())
    }

    /// As [`Kernel::new`], but constant along every axis that is not named.
    pub fn on_axes(family: Family, dim: usize, axes: &[usize]) -> Result<Self> {
        let p = family.default_parameters();
        let mut kernel = Self::build(family, dim, axes, &vec![p; axes.len()])?;
        kernel.parameters[0].value = std::f64::consts::LN_2;
        Ok(kernel)
    }

    /// A variance alone, on no axes: all that is left to learn of a block of inducing points
    /// ([`Points`](crate::points::Points)), whose correlation is its own.
    ///
    /// ```
    /// use wiski::Kernel;
    /// let kernel = Kernel::output_scale(1.5)?.scaled(2.0);
    /// assert_eq!((kernel.dim(), kernel.variance()), (0, 3.0));
    /// assert_eq!(Kernel::parse(&kernel.to_string(), 0)?.parameter_names(), ["outputscale"]);
    /// # Ok::<(), wiski::Error>(())
    /// ```
    pub fn output_scale(variance: f64) -> Result<Self> {
        positive("outputscale", variance, 0)?;
        let parameters = vec![Parameter { base: 0, label: "outputscale".into(), value: variance }];
        let terms = vec![Term { scales: vec![0], axes: Vec::new() }];
        Ok(Self { dim: 0, parameters, terms, expression: "scale".into() })
    }

    /// RBF with one length-scale per axis and output scale 1.
    pub fn rbf(lengthscales: &[f64]) -> Result<Self> {
        Self::with_lengthscales(Family::Rbf, lengthscales)
    }

    /// Matérn ½ (a product over axes) with one length-scale per axis and output scale 1.
    pub fn matern12(lengthscales: &[f64]) -> Result<Self> {
        Self::with_lengthscales(Family::Matern12, lengthscales)
    }

    /// Matérn 3/2 (a product over axes) with one length-scale per axis and output scale 1.
    pub fn matern32(lengthscales: &[f64]) -> Result<Self> {
        Self::with_lengthscales(Family::Matern32, lengthscales)
    }

    /// Matérn 5/2 (a product over axes) with one length-scale per axis and output scale 1.
    pub fn matern52(lengthscales: &[f64]) -> Result<Self> {
        Self::with_lengthscales(Family::Matern52, lengthscales)
    }

    /// Rational quadratic with a length-scale and an α per axis and output scale 1.
    pub fn rational_quadratic(lengthscales: &[f64], alphas: &[f64]) -> Result<Self> {
        Self::with_pairs(Family::RationalQuadratic, lengthscales, alphas)
    }

    /// Periodic with a length-scale and a period per axis and output scale 1.
    pub fn periodic(lengthscales: &[f64], periods: &[f64]) -> Result<Self> {
        Self::with_pairs(Family::Periodic, lengthscales, periods)
    }

    /// Cosine with a period per axis and output scale 1.
    pub fn cosine(periods: &[f64]) -> Result<Self> {
        Self::with_lengthscales(Family::Cosine, periods)
    }

    /// Spectral mixture, one per axis, each given as (weight, frequency, bandwidth) triples; output scale 1.
    pub fn spectral_mixture(axes: &[Vec<(f64, f64, f64)>]) -> Result<Self> {
        let components = axes.first().map_or(0, Vec::len);
        let mut values = Vec::with_capacity(axes.len());
        for axis in axes {
            length("spectral mixture components", components, axis.len())?;
            let weights = axis.iter().map(|c| c.0);
            let frequencies = axis.iter().map(|c| c.1);
            let bandwidths = axis.iter().map(|c| c.2);
            values.push(weights.chain(frequencies).chain(bandwidths).collect());
        }
        let family = Family::SpectralMixture { components };
        Self::build(family, axes.len(), &(0..axes.len()).collect::<Vec<_>>(), &values)
    }

    fn with_lengthscales(family: Family, values: &[f64]) -> Result<Self> {
        let per_axis: Vec<_> = values.iter().map(|&v| vec![v]).collect();
        Self::build(family, values.len(), &(0..values.len()).collect::<Vec<_>>(), &per_axis)
    }

    fn with_pairs(family: Family, first: &[f64], second: &[f64]) -> Result<Self> {
        length(family.parameter_name(1).0, first.len(), second.len())?;
        let per_axis: Vec<_> = first.iter().zip(second).map(|(&a, &b)| vec![a, b]).collect();
        Self::build(family, first.len(), &(0..first.len()).collect::<Vec<_>>(), &per_axis)
    }

    fn build(family: Family, dim: usize, on: &[usize], values: &[Vec<f64>]) -> Result<Self> {
        let reject = |reason: String| Err(Error::Config { field: "kernel".into(), reason });
        if dim == 0 || dim > MAX_AXES {
            return reject(format!("a kernel needs 1 to {MAX_AXES} axes, not {dim}"));
        }
        if family.parameter_count() == 0 {
            return reject("a spectral mixture needs at least one component".into());
        }
        let mut parameters = vec![Parameter { base: 0, label: "outputscale".into(), value: 1.0 }];
        let mut axes = vec![Vec::new(); dim];
        for (&axis, axis_values) in on.iter().zip(values) {
            if axis >= dim {
                return reject(format!("axis {axis} does not exist in {dim} dimensions"));
            }
            axes[axis].push(Factor { family, first: parameters.len() });
            for (i, &value) in axis_values.iter().enumerate() {
                let label = match family.parameter_name(i) {
                    (name, None) => format!("{name}[{axis}]"),
                    (name, Some(component)) => format!("{name}[{axis},{component}]"),
                };
                positive(label.as_str(), value, 0)?;
                parameters.push(Parameter { base: 0, label, value });
            }
        }
        let mut expression = family.name();
        if on.len() < dim {
            let named: Vec<String> = on.iter().map(ToString::to_string).collect();
            expression = format!("{expression}@{}", named.join(","));
        }
        Ok(Self { dim, parameters, terms: vec![Term { scales: vec![0], axes }], expression })
    }

    /// The kernel multiplied by a positive number: every term's output scale is multiplied.
    ///
    /// A factor that is not positive and finite leaves an invalid kernel, which the model builder rejects.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Self {
        for i in self.leading_scales() {
            self.parameters[i].value *= factor;
        }
        self
    }

    /// The places of the scales that have the unit of a variance: the first of each term.
    pub(crate) fn leading_scales(&self) -> Vec<usize> {
        let mut leading: Vec<usize> = self.terms.iter().map(|t| t.scales[0]).collect();
        leading.dedup();
        leading
    }

    /// The number of axes d.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The values of all hyperparameters: positive numbers in a fixed order.
    pub fn parameters(&self) -> Vec<f64> {
        self.parameters.iter().map(|p| p.value).collect()
    }

    /// The number of hyperparameters.
    pub fn parameter_count(&self) -> usize {
        self.parameters.len()
    }

    /// The names of all hyperparameters, for example `lengthscale[1]`; in a sum or product the position of
    /// the base kernel stands before it, as in `1.period[0]`.
    pub fn parameter_names(&self) -> Vec<String> {
        let several = self.parameters.iter().any(|p| p.base > 0);
        let name = |p: &Parameter| if several { format!("{}.{}", p.base, p.label) } else { p.label.clone() };
        self.parameters.iter().map(name).collect()
    }

    /// Replaces the values of all hyperparameters.
    pub fn set_parameters(&mut self, values: &[f64]) -> Result<()> {
        length("kernel parameters", self.parameters.len(), values.len())?;
        for (p, &v) in self.parameters.iter().zip(values) {
            positive(p.label.as_str(), v, 0)?;
        }
        for (p, &v) in self.parameters.iter_mut().zip(values) {
            p.value = v;
        }
        Ok(())
    }

    /// Rejects parameters that are not positive and finite.
    pub(crate) fn validate(&self) -> Result<()> {
        self.parameters.iter().try_for_each(|p| positive(p.label.as_str(), p.value, 0))
    }

    /// The prior variance k(x, x) = Σ_t s_t.
    pub fn variance(&self) -> f64 {
        (0..self.terms.len()).map(|t| self.term_scale(t)).sum()
    }

    /// k(x, x') for the difference x − x'.
    pub fn covariance(&self, difference: &[f64]) -> f64 {
        let values = self.parameters();
        let product = |term: &Term| -> f64 {
            term.axes
                .iter()
                .zip(difference)
                .flat_map(|(fs, &tau)| fs.iter().map(move |f| (f, tau)))
                .map(|(f, tau)| f.family.value(&values[f.range()], tau))
                .product()
        };
        self.terms.iter().enumerate().map(|(t, term)| self.term_scale(t) * product(term)).sum()
    }

    /// The number of terms in the sum.
    pub(crate) fn term_count(&self) -> usize {
        self.terms.len()
    }

    /// The output scale s_t of a term.
    pub(crate) fn term_scale(&self, term: usize) -> f64 {
        self.terms[term].scales.iter().map(|&i| self.parameters[i].value).product()
    }

    /// The first column of the Toeplitz factor T_tk on an axis of spacing `step`: κ(0), κ(h), κ(2h), …
    pub(crate) fn toeplitz_column(&self, term: usize, axis: usize, step: f64, column: &mut [f64]) {
        let values = self.parameters();
        let factors = &self.terms[term].axes[axis];
        for (lag, entry) in column.iter_mut().enumerate() {
            let tau = step * lag as f64;
            *entry = factors.iter().map(|f| f.family.value(&values[f.range()], tau)).product();
        }
    }

    /// The derivatives ∂κ(lag·h)/∂θ of the first Toeplitz column on an axis, for each parameter that acts
    /// there: its place among the parameters, and the column.
    pub(crate) fn column_derivatives(
        &self,
        term: usize,
        axis: usize,
        step: f64,
        points: usize,
    ) -> Vec<(usize, Vec<f64>)> {
        let values = self.parameters();
        let factors = &self.terms[term].axes[axis];
        let mut columns: Vec<_> =
            factors.iter().flat_map(|f| f.range()).map(|i| (i, vec![0.0; points])).collect();
        let mut local = Vec::new();
        for lag in 0..points {
            let tau = step * lag as f64;
            let mut own = columns.iter_mut();
            for (i, factor) in factors.iter().enumerate() {
                local.resize(factor.family.parameter_count(), 0.0);
                factor.family.value_and_gradient(&values[factor.range()], tau, &mut local);
                let others: f64 = factors
                    .iter()
                    .enumerate()
                    .filter(|(j, _)| *j != i)
                    .map(|(_, f)| f.family.value(&values[f.range()], tau))
                    .product();
                local.iter().zip(own.by_ref()).for_each(|(d, (_, column))| column[lag] = others * d);
            }
        }
        columns
    }

    /// Chain rule from a term's output scale s_t, a product of parameters, to those parameters.
    pub(crate) fn vjp_scale(&self, term: usize, by_scale: f64, gradient: &mut [f64]) {
        let scale = self.term_scale(term);
        for &i in &self.terms[term].scales {
            gradient[i] += by_scale * scale / self.parameters[i].value;
        }
    }

    /// For a single term with one Matérn process on every axis: how many numbers (the value and its derivatives)
    /// make it a Markov process, ν + ½, and its rate λ = √(2ν)/ℓ. Several Matérn ½ on one axis multiply to one,
    /// exp(−τ/ℓ₁ − τ/ℓ₂ − …), so that their rates add up.
    pub(crate) fn markov_processes(&self) -> Option<Vec<(usize, f64)>> {
        let [term] = self.terms.as_slice() else { return None };
        let process = |factors: &Vec<Factor>| {
            let states = factors.first()?.family.markov_states()?;
            let is_process =
                factors.iter().all(|f| f.family.markov_states() == Some(1)) || factors.len() == 1;
            is_process.then(|| (states, factors.iter().map(|f| self.rate(*f)).sum()))
        };
        term.axes.iter().map(process).collect()
    }

    /// The shortest distance over which the kernel changes along an axis: the smallest length-scale of its factors there, in
    /// units of the axis; infinite where it has none.
    pub(crate) fn shortest_lengthscale(&self, axis: usize) -> f64 {
        (0..self.terms.len()).map(|term| self.term_lengthscale(term, axis)).fold(f64::INFINITY, f64::min)
    }

    /// The same of one term.
    pub(crate) fn term_lengthscale(&self, term: usize, axis: usize) -> f64 {
        let values = self.parameters();
        let factors = self.terms[term].axes.get(axis).into_iter().flatten();
        factors.map(|f| f.family.lengthscale(&values[f.range()])).fold(f64::INFINITY, f64::min)
    }

    /// λ = √(2ν)/ℓ of a Matérn process with ν + ½ states.
    fn rate(&self, factor: Factor) -> f64 {
        let states = factor.family.markov_states().unwrap_or(1);
        ((2 * states - 1) as f64).sqrt() / self.parameters[factor.first].value
    }

    /// Chain rule from the rate λ of the [process](Kernel::markov_processes) on an axis to the length-scales there:
    /// ∂λ/∂ℓ = −λ/ℓ for each of its factors.
    pub(crate) fn vjp_rate(&self, axis: usize, by_rate: f64, gradient: &mut [f64]) {
        for &factor in &self.terms[0].axes[axis] {
            gradient[factor.first] -= by_rate * self.rate(factor) / self.parameters[factor.first].value;
        }
    }

    /// Moves parameter indices and base positions behind those of `left`.
    fn shifted_behind(mut self, left: &Self) -> Self {
        let offset = left.parameters.len();
        let bases = left.parameters.iter().map(|p| p.base + 1).max().unwrap_or(0);
        self.parameters.iter_mut().for_each(|p| p.base += bases);
        for term in &mut self.terms {
            term.scales.iter_mut().for_each(|i| *i += offset);
            term.axes.iter_mut().flatten().for_each(|f| f.first += offset);
        }
        self
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.expression)
    }
}

impl Add for Kernel {
    type Output = Kernel;

    /// k₁ + k₂.
    ///
    /// # Panics
    /// If the two kernels have different numbers of axes.
    fn add(mut self, right: Kernel) -> Kernel {
        assert_eq!(self.dim, right.dim, "a sum needs kernels with the same number of axes");
        let expression = format!("{self} + {right}");
        let right = right.shifted_behind(&self);
        self.parameters.extend(right.parameters);
        self.terms.extend(right.terms);
        Kernel { expression, ..self }
    }
}

impl Mul for Kernel {
    type Output = Kernel;

    /// k₁ · k₂, distributed over the terms of both.
    ///
    /// The output scales of the product would be known only up to a common factor, so the right kernel's
    /// first output scale is moved into the left kernel and is no longer a parameter.
    ///
    /// # Panics
    /// If the two kernels have different numbers of axes.
    fn mul(self, right: Kernel) -> Kernel {
        assert_eq!(self.dim, right.dim, "a product needs kernels with the same number of axes");
        let bracket = |k: &Kernel| if k.terms.len() > 1 { format!("({k})") } else { k.to_string() };
        let expression = format!("{}*{}", bracket(&self), bracket(&right));
        let absorbed = right.parameters[right.terms[0].scales[0]].value;
        let mut left = self.scaled(absorbed);
        let mut right = right.scaled(1.0 / absorbed).without_first_scale();
        right = right.shifted_behind(&left);
        let mut terms = Vec::with_capacity(left.terms.len() * right.terms.len());
        for a in &left.terms {
            for b in &right.terms {
                let scales = a.scales.iter().chain(&b.scales).copied().collect();
                let axes = a.axes.iter().zip(&b.axes).map(|(x, y)| [x.as_slice(), y].concat()).collect();
                terms.push(Term { scales, axes });
            }
        }
        left.parameters.extend(right.parameters);
        Kernel { terms, expression, ..left }
    }
}

impl Kernel {
    /// Removes the first term's leading output scale (which is 1) from the parameters.
    fn without_first_scale(mut self) -> Self {
        let gone = self.terms[0].scales[0];
        self.parameters.remove(gone);
        for term in &mut self.terms {
            term.scales.retain(|&i| i != gone);
            term.scales.iter_mut().for_each(|i| *i -= usize::from(*i > gone));
            term.axes.iter_mut().flatten().for_each(|f| f.first -= usize::from(f.first > gone));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn composite() -> Kernel {
        let a = Kernel::rbf(&[0.5, 0.8]).unwrap().scaled(1.7)
            + Kernel::matern32(&[0.3, 1.1]).unwrap().scaled(0.4);
        let b = Kernel::periodic(&[0.9, 1.2], &[0.7, 1.9]).unwrap().scaled(2.0)
            + Kernel::cosine(&[1.3, 2.1]).unwrap().scaled(0.5);
        a * b + Kernel::on_axes(Family::RationalQuadratic, 2, &[1]).unwrap()
    }

    #[test]
    fn products_and_sums_are_pointwise() {
        let a = Kernel::rbf(&[0.5, 0.8]).unwrap().scaled(1.7)
            + Kernel::matern32(&[0.3, 1.1]).unwrap().scaled(0.4);
        let b = Kernel::periodic(&[0.9, 1.2], &[0.7, 1.9]).unwrap().scaled(2.0)
            + Kernel::cosine(&[1.3, 2.1]).unwrap().scaled(0.5);
        let d = [0.31, -0.44];
        let product = a.clone() * b.clone();
        assert!((product.covariance(&d) - a.covariance(&d) * b.covariance(&d)).abs() < 1e-14);
        assert!(((a.clone() + b.clone()).covariance(&d) - a.covariance(&d) - b.covariance(&d)).abs() < 1e-14);
        // One of the four output scales is redundant and gone.
        assert_eq!(product.parameter_count(), a.parameter_count() + b.parameter_count() - 1);
        assert_eq!(product.to_string(), "(rbf + matern32)*(periodic + cosine)");
        assert_eq!(product.parameter_names().len(), product.parameter_count());
    }

    #[test]
    fn columns_agree_with_the_covariance() {
        let k = composite();
        let (step, g) = ([0.21, 0.17], 6);
        let mut columns = [[0.0; 6]; 2];
        for (i, j) in [(0, 0), (2, 5), (5, 1)] {
            let mut sum = 0.0;
            for t in 0..k.term_count() {
                for axis in 0..2 {
                    k.toeplitz_column(t, axis, step[axis], &mut columns[axis][..g]);
                }
                sum += k.term_scale(t) * columns[0][i] * columns[1][j];
            }
            let direct = k.covariance(&[step[0] * i as f64, step[1] * j as f64]);
            assert!((sum - direct).abs() < 1e-14 * k.variance());
        }
    }

    #[test]
    fn vjps_match_central_differences() {
        let k = composite();
        let p = k.parameters();
        let (step, g) = (0.23, 7);
        let weights: Vec<f64> = (0..g).map(|i| (i as f64 * 1.3).sin()).collect();
        let mut gradient = vec![0.0; p.len()];
        for t in 0..k.term_count() {
            k.vjp_scale(t, 0.7, &mut gradient);
            for (i, column) in k.column_derivatives(t, 1, step, g) {
                gradient[i] += column.iter().zip(&weights).map(|(a, b)| a * b).sum::<f64>();
            }
        }
        let objective = |p: &[f64]| {
            let mut k = k.clone();
            k.set_parameters(p).unwrap();
            let mut column = vec![0.0; g];
            (0..k.term_count())
                .map(|t| {
                    k.toeplitz_column(t, 1, step, &mut column);
                    0.7 * k.term_scale(t) + column.iter().zip(&weights).map(|(a, b)| a * b).sum::<f64>()
                })
                .sum::<f64>()
        };
        for i in 0..p.len() {
            let h = 1e-5 * p[i];
            let (mut hi, mut lo) = (p.clone(), p.clone());
            hi[i] += h;
            lo[i] -= h;
            let numeric = (objective(&hi) - objective(&lo)) / (2.0 * h);
            assert!(
                (gradient[i] - numeric).abs() < 1e-8 * (1.0 + numeric.abs()),
                "{}",
                k.parameter_names()[i]
            );
        }
    }

    #[test]
    fn bad_kernels_are_rejected_by_name() {
        assert!(matches!(Kernel::rbf(&[]), Err(Error::Config { .. })));
        assert!(matches!(Kernel::rbf(&[1.0; MAX_AXES + 1]), Err(Error::Config { .. })));
        assert!(matches!(Kernel::spectral_mixture(&[vec![]]), Err(Error::Config { .. })));
        let Err(Error::NotPositive { field, .. }) = Kernel::rbf(&[0.5, -1.0]) else { panic!("accepted") };
        assert_eq!(field, "lengthscale[1]");
        let mut k = Kernel::rbf(&[0.5]).unwrap();
        assert!(k.set_parameters(&[1.0, f64::NAN]).is_err());
        assert_eq!(k.parameters(), [1.0, 0.5]);
        assert!(Kernel::rbf(&[0.5]).unwrap().scaled(-1.0).validate().is_err());
    }
}
