//! `wiski_stats`, `wiski_merge` and `wiski_fit`: one accumulator, a [`Shard`], and three ways in and out.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result as Answer, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};
use wiski::persist;
use wiski::shard::{Shape, Shard};

use crate::columns::{Bytes, Cache, Known, Rows, binary_type, failed, number_type, shared_type};

/// What an aggregate ends in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Result {
    /// `wiski_stats`: sums of rows.
    Stats,
    /// `wiski_merge`: sums of sums.
    Merged,
    /// `wiski_fit`: the model of rows or sums.
    Model,
}

impl Result {
    /// The name of the aggregate.
    fn function(self) -> &'static str {
        match self {
            Self::Stats => "wiski_stats",
            Self::Merged => "wiski_merge",
            Self::Model => "wiski_fit",
        }
    }
}

/// One of the three aggregates.
#[derive(Debug)]
pub struct Gather {
    gives: Result,
    signature: Signature,
    shapes: Arc<Cache<Shape>>,
}

impl Gather {
    pub(crate) fn new(gives: Result, shapes: &Arc<Cache<Shape>>) -> Self {
        // What a path stands for may change between queries, not within one.
        Self { gives, signature: Signature::user_defined(Volatility::Stable), shapes: shapes.clone() }
    }
}

impl PartialEq for Gather {
    fn eq(&self, other: &Self) -> bool {
        self.gives == other.gives
    }
}

impl Eq for Gather {}

impl Hash for Gather {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.gives.hash(state);
    }
}

impl AggregateUDFImpl for Gather {
    fn name(&self) -> &'static str {
        self.gives.function()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Answer<DataType> {
        Ok(DataType::LargeBinary)
    }

    fn coerce_types(&self, given: &[DataType]) -> Answer<Vec<DataType>> {
        let name = self.name();
        let takes = match self.gives {
            Result::Stats => "(shape, y, x1, …)",
            Result::Merged => "(stats)",
            Result::Model => "(stats) or (shape, y, x1, …)",
        };
        let fits = match given.len() {
            1 => self.gives != Result::Stats,
            0 | 2 => false,
            _ => self.gives != Result::Merged,
        };
        if !fits {
            return plan_err!("{name}{takes} does not take {} arguments", given.len());
        }
        let first = if given.len() == 1 { binary_type } else { shared_type }(&given[0], name);
        let numbers = given[1..].iter().map(|t| number_type(t, name));
        std::iter::once(first).chain(numbers).collect()
    }

    /// Two gigabytes would be the end of `Binary` in a batch of states.
    fn state_fields(&self, args: StateFieldsArgs) -> Answer<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "sums"), DataType::LargeBinary, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Answer<Box<dyn Accumulator>> {
        Ok(Box::new(Sums {
            gives: self.gives,
            shapes: self.shapes.clone(),
            name: self.gives.function(),
            takes_rows: args.exprs.len() > 1,
            shape: None,
            shard: None,
            rows: Rows::default(),
        }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// The sums of the rows so far.
#[derive(Debug)]
struct Sums {
    gives: Result,
    name: &'static str,
    takes_rows: bool,
    shapes: Arc<Cache<Shape>>,
    /// As it was given with the last rows.
    shape: Option<Given>,
    shard: Option<Shard>,
    rows: Rows,
}

/// A shape as it was given.
#[derive(Debug)]
struct Given {
    path: Option<String>,
    shape: Arc<Known<Shape>>,
}

impl Given {
    /// A file is read once, so that a query goes by one shape.
    fn is(&self, bytes: Bytes<'_>) -> bool {
        match bytes {
            Bytes::Here(bytes) => self.path.is_none() && self.shape.bytes == bytes,
            Bytes::File(path) => self.path.as_deref() == Some(path),
        }
    }
}

impl Sums {
    /// The shape that stands in a column.
    fn read_shape(&mut self, column: &ArrayRef) -> Answer<Shape> {
        let Some(bytes) = Bytes::of_all(column, self.name)? else {
            return exec_err!("{}: the shape is NULL", self.name);
        };
        if let Some(given) = self.shape.as_ref().filter(|given| given.is(bytes)) {
            return Ok(given.shape.value.clone());
        }
        let shape = self.shapes.get(&bytes.content()?, Shape::from_bytes);
        let shape = shape.map_err(|error| bytes.failed(error))?;
        let value = shape.value.clone();
        let path = if let Bytes::File(path) = bytes { Some(path.to_string()) } else { None };
        self.shape = Some(Given { path, shape });
        Ok(value)
    }

    /// Adds rows, or takes them away.
    fn add_rows(&mut self, values: &[ArrayRef], forget: bool) -> Answer<()> {
        let Some(column) = values.first().filter(|column| !column.is_empty()) else { return Ok(()) };
        let shape = self.read_shape(column)?;
        let (d, given) = (shape.input_dim(), values.len() - 2);
        if given != d + usize::from(shape.knows_noise()) {
            let inputs = shape.columns().inputs.join(", ");
            let noise = if shape.knows_noise() { " and the noise variance" } else { "" };
            return exec_err!(
                "{}: the shape has the inputs {inputs}{noise}, but {given} were given",
                self.name
            );
        }
        let shard = self.shard.get_or_insert_with(|| Shard::new(&shape));
        if shard.shape().id() != shape.id() {
            return exec_err!("{}: the shape must be the same for all rows of a group", self.name);
        }
        self.rows.each(&values[1..], d, |x, y, noise| {
            if forget { shard.forget_batch(x, y, noise) } else { shard.observe_batch(x, y, noise) }
        })
    }

    /// Adds sums, or takes them away.
    fn add_sums(&mut self, column: &ArrayRef, forget: bool) -> Answer<()> {
        for row in 0..column.len() {
            let Some(bytes) = Bytes::at(column, row)? else { continue };
            let content = bytes.content()?;
            let other = match &self.shard {
                Some(own) => Shard::from_bytes_of(&content, own.shape()),
                None => Shard::from_bytes(&content),
            };
            let other = other.map_err(|error| bytes.failed(error))?;
            match &mut self.shard {
                Some(own) if forget => own.unmerge(&other).map_err(failed)?,
                Some(own) => own.merge(&other).map_err(failed)?,
                None if forget => return exec_err!("{}: there is nothing to take away from", self.name),
                none => *none = Some(other),
            }
        }
        Ok(())
    }

    fn add(&mut self, values: &[ArrayRef], forget: bool) -> Answer<()> {
        match values {
            [] => Ok(()),
            [sums] if !self.takes_rows => self.add_sums(sums, forget),
            rows => self.add_rows(rows, forget),
        }
    }

    /// The sums, unless there are none.
    fn shard(&self) -> Option<&Shard> {
        self.shard.as_ref().filter(|shard| shard.count() > 0.0 || shard.ignored() > 0)
    }
}

impl Accumulator for Sums {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Answer<()> {
        self.add(values, false)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Answer<()> {
        self.add(values, true)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Answer<()> {
        states.first().map_or(Ok(()), |states| self.add_sums(states, false))
    }

    fn state(&mut self) -> Answer<Vec<ScalarValue>> {
        let bytes = self.shard().map(Shard::to_bytes).transpose().map_err(failed)?;
        Ok(vec![ScalarValue::LargeBinary(bytes)])
    }

    /// The sums stay as they are: a window is evaluated again with its next row.
    fn evaluate(&mut self) -> Answer<ScalarValue> {
        let bytes = match (self.gives, self.shard()) {
            (_, None) => None,
            (Result::Stats | Result::Merged, Some(shard)) => Some(shard.to_bytes().map_err(failed)?),
            (Result::Model, Some(shard)) => {
                let model = shard.fit().map_err(failed)?;
                Some(persist::to_bytes(&model).map_err(failed)?)
            }
        };
        Ok(ScalarValue::LargeBinary(bytes))
    }

    /// A shard has its own copy of the shape's parts, which take about as much as the shape's bytes.
    fn size(&self) -> usize {
        let shard = |shard: &Shard| shard.memory() + shard.shape().to_bytes().len();
        size_of::<Self>() + self.shard.as_ref().map_or(0, shard) + self.rows.size()
    }
}
