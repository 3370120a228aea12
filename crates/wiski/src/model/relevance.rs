//! Which inputs the inducing points read.
//!
//! The points read inputs in units of their spread, each with a length-scale ℓ of its own. Between two rows at random an input
//! adds 1/ℓ² to the squared distance that the kernel sees: an input with a long length-scale makes no difference. The
//! relevance of a column is the share of what it adds, over all inputs that it is read by (a level or a place on a circle
//! is several).

use super::encoder::Reads;
use super::online::Online;
use super::task::Task;
use super::{OnlineClassifier, OnlineRegressor};

impl<T: Task> Online<T> {
    fn relevances(&self) -> Option<Vec<f64>> {
        let learner = self.learner.as_deref()?;
        let points = learner.first().stats().lattice().points()?;
        let reads = learner.encoder().reads();
        let mut relevances = vec![0.0; self.input_dim];
        for (reads, l) in reads[reads.len() - points.dim()..].iter().zip(points.lengthscales()) {
            if let Reads::Column(column) = reads {
                relevances[*column] += l.powi(-2);
            }
        }
        let total: f64 = relevances.iter().sum();
        relevances.iter_mut().for_each(|r| *r /= total);
        Some(relevances)
    }
}

macro_rules! tells_relevances {
    ($model:ty) => {
        impl $model {
            /// How much each column matters to the inducing points: the share of 1/ℓ² that it has, ℓ its length-scale in units of
            /// its spread. They add up to one; `None` where there are no inducing points.
            pub fn relevances(&self) -> Option<Vec<f64>> {
                self.online.relevances()
            }
        }
    };
}

tells_relevances!(OnlineRegressor);
tells_relevances!(OnlineClassifier);
