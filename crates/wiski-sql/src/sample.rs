//! `wiski_shape`: the shape of a model, learned on the rows of a sample.

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use wiski::Settings;
use wiski::persist::Columns;
use wiski::shard::Shape;

use crate::columns::{Rows, failed, number_type};
use crate::random::Random;

/// A sample has at most so many rows: a model keeps eight thousand in memory at most, and learns the others one by one.
const MOST_ROWS: usize = 1_000_000;

/// The aggregate `wiski_shape(y, x1, …)`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct LearnShape {
    signature: Signature,
}

impl Default for LearnShape {
    fn default() -> Self {
        Self { signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for LearnShape {
    fn name(&self) -> &'static str {
        "wiski_shape"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::LargeBinary)
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        if given.len() < 2 {
            return plan_err!("wiski_shape(y, x1, …) does not take {} arguments", given.len());
        }
        given.iter().map(|t| number_type(t, self.name())).collect()
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "rows"), DataType::LargeBinary, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let mut names = args.exprs.iter().enumerate().map(|(k, expr)| {
            let name = column_name(expr);
            name.unwrap_or_else(|| if k == 0 { "y".into() } else { format!("x{k}") })
        });
        let target = names.next().unwrap_or_default();
        let columns = Columns { inputs: names.collect(), target, ..Columns::default() };
        Ok(Box::new(Sample { columns, x: Vec::new(), y: Vec::new(), rows: Rows::default() }))
    }
}

/// The name of a column, also of one that is read as another type.
fn column_name(expr: &Arc<dyn PhysicalExpr>) -> Option<String> {
    match expr.downcast_ref::<CastExpr>() {
        Some(cast) => column_name(cast.expr()),
        None => expr.downcast_ref::<Column>().map(|column| column.name().to_string()),
    }
}

/// The rows of a sample.
#[derive(Debug)]
struct Sample {
    columns: Columns,
    x: Vec<f64>,
    y: Vec<f64>,
    rows: Rows,
}

impl Sample {
    /// The rows in an order that depends on nothing but the rows, whatever the partitions were, and is none: models
    /// learn from rows as they come.
    fn mixed(&self) -> (Vec<f64>, Vec<f64>) {
        let d = self.columns.inputs.len();
        let row = |i: usize| std::iter::once(&self.y[i]).chain(&self.x[i * d..(i + 1) * d]);
        let mut order: Vec<usize> = (0..self.y.len()).collect();
        order.sort_unstable_by(|&i, &j| {
            let pairs = row(i).zip(row(j)).map(|(a, b)| a.total_cmp(b));
            pairs.fold(Ordering::Equal, Ordering::then)
        });
        let mut random = Random::new();
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i as u64 + 1) as usize);
        }
        let x = order.iter().flat_map(|&i| &self.x[i * d..(i + 1) * d]).copied().collect();
        (x, order.iter().map(|&i| self.y[i]).collect())
    }

    fn check_size(&self) -> Result<()> {
        if self.y.len() <= MOST_ROWS {
            return Ok(());
        }
        exec_err!("wiski_shape learns on a sample of at most {MOST_ROWS} rows: … FROM (SELECT … LIMIT 8192)")
    }
}

impl Accumulator for Sample {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (all_x, all_y) = (&mut self.x, &mut self.y);
        self.rows.each(values, self.columns.inputs.len(), |x, y, _| {
            all_x.extend_from_slice(x);
            all_y.extend_from_slice(y);
            Ok(())
        })?;
        self.check_size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let bytes = self.y.iter().chain(&self.x).flat_map(|v| v.to_le_bytes()).collect();
        Ok(vec![ScalarValue::LargeBinary(Some(bytes))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let Some(states) = states.first() else { return Ok(()) };
        for state in states.as_binary::<i64>().iter().flatten() {
            let numbers: Vec<f64> = state.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect();
            let (y, x) = numbers.split_at(numbers.len() / (self.columns.inputs.len() + 1));
            self.y.extend_from_slice(y);
            self.x.extend_from_slice(x);
        }
        self.check_size()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.y.is_empty() {
            return Ok(ScalarValue::LargeBinary(None));
        }
        let (x, y) = self.mixed();
        let shape = Shape::learn(self.columns.clone(), &x, &y, None, Settings::default());
        Ok(ScalarValue::LargeBinary(Some(shape.map_err(failed)?.to_bytes().to_vec())))
    }

    fn size(&self) -> usize {
        size_of::<Self>() + size_of::<f64>() * (self.x.capacity() + self.y.capacity()) + self.rows.size()
    }
}
