//! A model of the files of a folder: a sample for the shape, one aggregate over all rows, hyperparameters from the sums.

use anyhow::{Context, Result, bail, ensure};
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::dataframe::DataFrame;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{Expr, cast, lit};
use datafusion::prelude::{SessionConfig, SessionContext, ident};
use datafusion::scalar::ScalarValue;
use futures::StreamExt;
use wiski::Settings;
use wiski::persist::{self, Columns, Stored};
use wiski::shard::Shape;

use crate::random::Random;
use crate::register;

/// What is to be fitted.
#[derive(Debug, Clone)]
pub struct Fit {
    /// Files: a path, a folder or a pattern, of Parquet, CSV or JSON.
    pub files: String,
    /// The column that is predicted.
    pub target: String,
    /// The inputs; empty for all numeric columns but the target.
    pub inputs: Vec<String>,
    /// The rows that the shape is learned on.
    pub sample: usize,
    /// A shape from elsewhere: no sample is drawn.
    pub shape: Option<Shape>,
    /// How the shape is learned.
    pub settings: Settings,
}

/// A session that knows the functions and reads files by their path.
pub fn session(config: SessionConfig) -> SessionContext {
    let context = SessionContext::new_with_config(config).enable_url_table();
    register(&context);
    context
}

impl Fit {
    /// Fits the model in a session made by [`session`].
    pub async fn run(&self, context: &SessionContext) -> Result<Stored> {
        let table = context.table(quoted(&self.files)).await;
        let table = table.with_context(|| format!("{}: these files cannot be read", self.files))?;
        let columns = self.columns(&table)?;
        let shape = match &self.shape {
            Some(shape) => shape.clone(),
            None => self.learn_shape(&table, &columns).await?,
        };
        let bytes = ScalarValue::LargeBinary(Some(shape.to_bytes().to_vec()));
        let numbers = std::iter::once(&columns.target).chain(&columns.inputs).map(number);
        let arguments = std::iter::once(lit(bytes)).chain(numbers).collect();
        let fit = context.udaf("wiski_fit")?.call(arguments);
        let answer = table.aggregate(vec![], vec![fit])?.collect().await?;
        let model = answer.first().filter(|batch| batch.num_rows() == 1).context("no answer")?;
        let model = model.column(0).as_binary::<i64>();
        ensure!(model.is_valid(0), "{}: there are no rows without a gap", self.files);
        Ok(persist::from_bytes(model.value(0))?)
    }

    /// The columns that take part.
    fn columns(&self, table: &DataFrame) -> Result<Columns> {
        let fields = table.schema().fields();
        let names = || fields.iter().map(|f| f.name().as_str()).collect::<Vec<_>>().join(", ");
        let find = |name: &str| match fields.iter().find(|f| f.name() == name) {
            Some(field) => Ok(field.data_type()),
            None => bail!("{}: there is no column {name}, but {}", self.files, names()),
        };
        let is_number = |kind: &DataType| kind.is_numeric() || *kind == DataType::Boolean;
        for name in self.inputs.iter().chain([&self.target]) {
            let kind = find(name)?;
            ensure!(is_number(kind), "{}: the column {name} holds {kind}, not numbers", self.files);
        }
        let mut inputs = self.inputs.clone();
        if let (true, Some(shape)) = (inputs.is_empty(), &self.shape) {
            inputs.clone_from(&shape.columns().inputs);
            inputs.iter().try_for_each(|name| find(name).map(|_| ()))?;
        } else if inputs.is_empty() {
            let others = fields.iter().filter(|f| *f.name() != self.target && is_number(f.data_type()));
            inputs = others.map(|f| f.name().clone()).collect();
        }
        ensure!(!inputs.is_empty(), "{}: there are no inputs beside {}", self.files, self.target);
        Ok(Columns { inputs, target: self.target.clone(), ..Columns::default() })
    }

    /// Learns the shape on a sample: every row has the same chance, and the same files give the same sample.
    async fn learn_shape(&self, table: &DataFrame, columns: &Columns) -> Result<Shape> {
        let all = std::iter::once(&columns.target).chain(&columns.inputs);
        // One partition, so that rows come in the order of the files.
        let (mut state, plan) = table.clone().into_parts();
        let config = state.config_mut();
        *config = config.clone().with_target_partitions(1).with_repartition_file_scans(false);
        let rows = DataFrame::new(state, plan).select(all.map(number).collect::<Vec<_>>())?;
        let mut stream = rows.execute_stream().await?;
        let d = columns.inputs.len();
        let mut sample = Reservoir { rows: Vec::new(), most: self.sample, seen: 0, random: Random::new() };
        let mut row = vec![0.0; d + 1];
        while let Some(batch) = stream.next().await.transpose()? {
            let numbers: Vec<_> = batch.columns().iter().map(AsArray::as_primitive::<Float64Type>).collect();
            for i in (0..batch.num_rows()).filter(|&i| numbers.iter().all(|c| c.is_valid(i))) {
                row.iter_mut().zip(&numbers).for_each(|(value, c)| *value = c.value(i));
                sample.offer(&row);
            }
        }
        let y: Vec<f64> = sample.rows.chunks_exact(d + 1).map(|row| row[0]).collect();
        let x: Vec<f64> = sample.rows.chunks_exact(d + 1).flat_map(|row| row[1..].iter().copied()).collect();
        ensure!(y.len() >= 2, "{}: at least two rows without a gap are needed", self.files);
        let settings = self.settings.clone();
        Shape::learn(columns.clone(), &x, &y, None, settings).context("learning the shape on a sample")
    }
}

/// A uniform sample of a stream of rows (algorithm R: Vitter 1985).
struct Reservoir {
    rows: Vec<f64>,
    most: usize,
    seen: u64,
    random: Random,
}

impl Reservoir {
    fn offer(&mut self, row: &[f64]) {
        self.seen += 1;
        if self.rows.len() < self.most * row.len() {
            self.rows.extend_from_slice(row);
            return;
        }
        let place = self.random.below(self.seen) as usize;
        if place < self.most {
            self.rows[place * row.len()..(place + 1) * row.len()].copy_from_slice(row);
        }
    }
}

/// A column as numbers.
fn number(name: &String) -> Expr {
    cast(ident(name), DataType::Float64)
}

/// A path as the name of a table.
fn quoted(path: &str) -> datafusion::common::TableReference {
    datafusion::common::TableReference::bare(path.to_string())
}
