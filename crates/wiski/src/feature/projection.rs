//! The matrix P of a linear projection: k directions in R^D.

use crate::error::{Error, Result, length};

use super::{Moments, check_finite};
use crate::simd::dot;

/// A k×D matrix whose rows are the directions a linear map projects onto.
///
/// ```
/// use wiski::internals::feature::Projection;
///
/// let sum = Projection::new(1, 2, vec![1.0, 1.0])?;
/// let both = sum.stack(&Projection::new(1, 2, vec![1.0, -1.0])?)?;
/// assert_eq!((both.outputs(), both.inputs()), (2, 2));
/// assert_eq!(both.row(1), &[1.0, -1.0]);
/// # Ok::<(), wiski::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Projection {
    outputs: usize,
    inputs: usize,
    values: Vec<f64>,
}

impl Projection {
    /// A projection from its rows, one after the other.
    pub fn new(outputs: usize, inputs: usize, values: Vec<f64>) -> Result<Self> {
        for (field, size) in [("outputs", outputs), ("inputs", inputs)] {
            if size == 0 {
                return Err(Error::Config { field: field.into(), reason: "at least one is needed".into() });
            }
        }
        length("projection", outputs.saturating_mul(inputs), values.len())?;
        check_finite("projection", &values)?;
        Ok(Self { outputs, inputs, values })
    }

    /// The number of directions k.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// The number of columns D.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// All entries, row after row.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Direction `j`; empty for one that does not exist.
    pub fn row(&self, j: usize) -> &[f64] {
        self.values.chunks_exact(self.inputs).nth(j).unwrap_or(&[])
    }

    /// The directions of `self` followed by those of `below`: for an additive model, say, the ridge
    /// direction and then every coordinate axis.
    pub fn stack(&self, below: &Self) -> Result<Self> {
        length("stacked projection", self.inputs, below.inputs)?;
        let values = [self.values.as_slice(), below.values.as_slice()].concat();
        Self::new(self.outputs + below.outputs, self.inputs, values)
    }

    /// Scales every direction to Var(p·x) = tr Cov(x)/(3D), O(kD²).
    ///
    /// This is the variance that a row of independent entries, uniform on ±1/√D, has on average. All starts
    /// share it, so that one learning rate suits them all, and it moves with the units of the inputs. A
    /// direction along which the data do not vary keeps its length.
    pub fn rescale(mut self, moments: &Moments) -> Result<Self> {
        length("moments", self.inputs, moments.dim())?;
        let target = moments.variances().sum::<f64>() / (3.0 * self.inputs as f64);
        let mut image = vec![0.0; self.inputs];
        for row in self.values.chunks_exact_mut(self.inputs) {
            moments.covariance_times(row, &mut image);
            let factor = (target / dot(row, &image)).sqrt();
            if factor.is_finite() && factor > 0.0 {
                for p in row {
                    *p *= factor;
                }
            }
        }
        Ok(self)
    }

    pub(super) fn into_values(self) -> Vec<f64> {
        self.values
    }
}
