//! `wiski_predict(model, x1, …)`: mean, standard deviation and interval of an observation at each row.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, StructArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, Field, Fields, Float64Type};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};
use wiski::Horizon;
use wiski::model::Snapshot;
use wiski::persist::{self, Model, Stored};

use crate::columns::{Bytes, Cache, Known, failed, number_type, shared_type};

/// The scalar function.
#[derive(Debug)]
pub struct Predict {
    signature: Signature,
    models: Cache<Loaded>,
}

/// A model that answers.
struct Loaded {
    snapshot: Arc<Snapshot>,
    inputs: Vec<String>,
    level: f64,
}

impl Loaded {
    fn read(bytes: &[u8]) -> wiski::Result<Self> {
        let unsupported = |reason| wiski::Error::Unsupported { operation: "wiski_predict", reason };
        let stored: Stored = persist::from_bytes(bytes)?;
        let Model::Regressor(model) = &stored.model else {
            return Err(unsupported("the model predicts classes"));
        };
        let snapshot = model.snapshot().ok_or_else(|| unsupported("the model has learned too few rows"))?;
        Ok(Self { snapshot, inputs: stored.columns.inputs, level: model.settings().intervals.level })
    }
}

impl Default for Predict {
    fn default() -> Self {
        Self { signature: Signature::user_defined(Volatility::Stable), models: Cache::default() }
    }
}

impl PartialEq for Predict {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Predict {}

impl Hash for Predict {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

fn answer_fields() -> Fields {
    ["mean", "std", "lower", "upper"].map(|name| Field::new(name, DataType::Float64, true)).to_vec().into()
}

impl ScalarUDFImpl for Predict {
    fn name(&self) -> &'static str {
        "wiski_predict"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Struct(answer_fields()))
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        if given.len() < 2 {
            return plan_err!("wiski_predict(model, x1, …) does not take {} arguments", given.len());
        }
        let numbers = given[1..].iter().map(|t| number_type(t, self.name()));
        std::iter::once(shared_type(&given[0], self.name())).chain(numbers).collect()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        // A model that is the same for all rows comes as one value.
        let models = match &args.args[0] {
            ColumnarValue::Scalar(value) => value.to_array()?,
            ColumnarValue::Array(array) => array.clone(),
        };
        let columns: Vec<ArrayRef> =
            args.args[1..].iter().map(|x| x.to_array(rows)).collect::<Result<_>>()?;
        let columns: Vec<&Float64Array> = columns.iter().map(AsArray::as_primitive::<Float64Type>).collect();
        let mut answers: [Vec<f64>; 4] = std::array::from_fn(|_| vec![0.0; rows]);
        let (mut valid, mut x) = (vec![false; rows], vec![0.0; columns.len()]);
        let mut last: Option<(Bytes<'_>, Arc<Known<Loaded>>)> = None;
        for row in 0..rows {
            let bytes = Bytes::at(&models, if models.len() == 1 { 0 } else { row })?;
            let Some(bytes) = bytes.filter(|_| columns.iter().all(|c| c.is_valid(row))) else { continue };
            let model = match &last {
                Some((before, model)) if before.is(bytes) => model,
                _ => {
                    let model = self.models.get(&bytes.content()?, Loaded::read);
                    let model = model.map_err(|error| bytes.failed(error))?;
                    check_inputs(&model.value.inputs, columns.len())?;
                    &last.insert((bytes, model)).1
                }
            };
            x.iter_mut().zip(&columns).for_each(|(x, column)| *x = column.value(row));
            let Loaded { snapshot, level, .. } = &model.value;
            let said = snapshot.predict_ahead(&x).map_err(failed)?;
            let interval = snapshot.interval(&said, *level, Horizon::Ahead).map_err(failed)?;
            let answer = [said.mean, said.std(), interval.lower, interval.upper];
            answers.iter_mut().zip(answer).for_each(|(column, value)| column[row] = value);
            valid[row] = true;
        }
        // A field that is taken out of the struct must have its gaps, too.
        let nulls = NullBuffer::from(valid);
        let array = |column: Vec<f64>| -> ArrayRef {
            Arc::new(Float64Array::new(column.into(), Some(nulls.clone())))
        };
        let arrays = answers.map(array).to_vec();
        Ok(ColumnarValue::Array(Arc::new(StructArray::try_new(answer_fields(), arrays, Some(nulls))?)))
    }
}

fn check_inputs(inputs: &[String], given: usize) -> Result<()> {
    if inputs.len() == given {
        return Ok(());
    }
    exec_err!("wiski_predict: the model has the inputs {}, but {given} were given", inputs.join(", "))
}
