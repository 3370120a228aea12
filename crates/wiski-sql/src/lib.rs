//! Gaussian processes as aggregates of SQL, on [DataFusion](https://datafusion.apache.org).
//!
//! | function | kind | gives |
//! | --- | --- | --- |
//! | `wiski_shape(y, x1, …)` | aggregate | the shape of a model, learned on the rows of a sample |
//! | `wiski_stats(shape, y, x1, …)` | aggregate | the sums that rows make |
//! | `wiski_merge(stats)` | aggregate | the sum of sums |
//! | `wiski_fit(stats)`, `wiski_fit(shape, y, x1, …)` | aggregate | a model, with hyperparameters learned from the sums |
//! | `wiski_predict(model, x1, …)` | scalar | `struct(mean, std, lower, upper)` |
//!
//! Shapes, sums and models are binary values, the bytes of [`wiski::shard`] and of model files; in their place a text is
//! the path of a file. A row with a NULL is left out, as aggregates do; a number that is not finite is an error. A model
//! whose noise is known takes the noise variance of each row as one more argument at the end.
//!
//! All aggregates but `wiski_shape` can take rows back, so that they slide over windows
//! (`OVER (ORDER BY t ROWS BETWEEN 100000 PRECEDING AND CURRENT ROW)`) in constant time a row.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use datafusion::prelude::SessionContext;
//!
//! let context = SessionContext::new();
//! wiski_sql::register(&context);
//! context.sql("CREATE TABLE t AS SELECT sin(i / 50.0) AS y, i / 50.0 AS x FROM generate_series(1, 1000) s(i)").await?.collect().await?;
//! let shape = "(SELECT wiski_shape(y, x) FROM (SELECT * FROM t LIMIT 500))";
//! let model = format!("(SELECT wiski_fit({shape}, y, x) FROM t)");
//! let query = format!("SELECT wiski_predict({model}, x)['mean'] - y AS error FROM t LIMIT 1");
//! let answer = context.sql(&query).await?.collect().await?;
//! assert_eq!(answer[0].num_rows(), 1);
//! # Ok::<(), datafusion::error::DataFusionError>(()) }).unwrap();
//! ```

#[cfg(feature = "ballista")]
pub mod cluster;
mod columns;
pub mod fit;
mod predict;
mod random;
mod sample;
mod sums;

use std::sync::Arc;

use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::prelude::SessionContext;

pub use predict::Predict;
pub use sample::LearnShape;
pub use sums::{Gather, Result as Gives};

/// The aggregates.
pub fn aggregates() -> Vec<Arc<AggregateUDF>> {
    let shapes = Arc::new(columns::Cache::default());
    let gather = |gives| Arc::new(AggregateUDF::from(Gather::new(gives, &shapes)));
    vec![
        Arc::new(AggregateUDF::from(LearnShape::default())),
        gather(Gives::Stats),
        gather(Gives::Merged),
        gather(Gives::Model),
    ]
}

/// The scalar functions.
pub fn scalars() -> Vec<Arc<ScalarUDF>> {
    vec![Arc::new(ScalarUDF::from(Predict::default()))]
}

/// Makes all functions known to a session.
pub fn register(context: &SessionContext) {
    for function in aggregates() {
        context.register_udaf(Arc::unwrap_or_clone(function));
    }
    for function in scalars() {
        context.register_udf(Arc::unwrap_or_clone(function));
    }
}
