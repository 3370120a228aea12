//! `wiski-sql`: queries with Gaussian processes in them, over files of Parquet, CSV and JSON.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
use datafusion::arrow::csv;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::DFParser;
use wiski::persist;
use wiski::shard::Shape;
use wiski::{Features, Settings};
use wiski_sql::fit::{Fit, session};

/// Gaussian processes in SQL: `wiski_shape`, `wiski_stats`, `wiski_merge`, `wiski_fit` and `wiski_predict`.
///
/// Tables are files, folders or patterns: SELECT … FROM 'data/*.parquet'.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    query: Query,
}

#[derive(Subcommand)]
enum Command {
    /// Fit a model to all rows of files, in parallel
    Fit(FitFiles),
}

#[derive(Args)]
struct Query {
    /// One or more queries, separated by semicolons; the answer of the last is shown
    #[arg(value_name = "QUERY")]
    text: Option<String>,

    /// How rows are written
    #[arg(long, value_enum, default_value = "table")]
    format: Format,

    /// Write the one binary value of the answer to a file: a shape, statistics or a model
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    session: Session,
}

#[derive(Args)]
struct Session {
    /// The number of threads, or of partitions on a cluster; as many as there are cores unless told otherwise
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Rows that are worked on together
    #[arg(long, value_name = "ROWS", default_value_t = 8192)]
    batch: usize,

    /// Send queries to a cluster of wiski-executors, where its wiski-scheduler listens; files and shapes must lie where
    /// all of them find them
    #[arg(long, value_name = "df://HOST:PORT")]
    cluster: Option<String>,
}

impl Session {
    async fn context(&self) -> Result<SessionContext> {
        if self.batch == 0 || self.threads == Some(0) {
            bail!("--threads and --batch must be at least 1");
        }
        let config = SessionConfig::new().with_batch_size(self.batch);
        let config = match self.threads {
            Some(threads) => config.with_target_partitions(threads),
            None => config,
        };
        match &self.cluster {
            None => Ok(session(config)),
            Some(url) => on_cluster(url, config).await,
        }
    }
}

#[cfg(feature = "ballista")]
async fn on_cluster(url: &str, config: SessionConfig) -> Result<SessionContext> {
    wiski_sql::cluster::session(url, config).await.with_context(|| format!("--cluster {url}"))
}

#[cfg(not(feature = "ballista"))]
#[expect(clippy::unused_async, reason = "the same face with and without a cluster")]
async fn on_cluster(_: &str, _: SessionConfig) -> Result<SessionContext> {
    bail!(
        "--cluster: this program was built without: cargo install --path crates/wiski-sql --features ballista"
    )
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// For people
    Table,
    /// Comma-separated values with a header
    Csv,
    /// One object a line
    Json,
}

#[derive(Args)]
struct FitFiles {
    /// A file, a folder or a pattern of Parquet, CSV or JSON files, as 'data/*.parquet'
    files: String,

    /// The column that is predicted
    #[arg(long)]
    target: String,

    /// The input columns, separated by commas; all numeric columns but the target unless told otherwise
    #[arg(long, value_delimiter = ',')]
    inputs: Vec<String>,

    /// Where the model is written
    #[arg(long, short, value_name = "FILE", default_value = "model.wiski")]
    output: PathBuf,

    /// Learn scales and features on so many rows, drawn from all
    #[arg(long, value_name = "ROWS", default_value_t = 8192)]
    sample: usize,

    /// Take scales and features from a shape or a model instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sample", "grid"])]
    shape: Option<PathBuf>,

    /// One grid over the inputs themselves (one to four) with so many points on each axis
    #[arg(long, value_name = "POINTS")]
    grid: Option<usize>,

    #[command(flatten)]
    session: Session,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Some(Command::Fit(fit)) => fit.run().await,
        None => cli.query.run().await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the output has seen enough, as `head` does.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wiski-sql: {}", message(&error));
            ExitCode::from(2)
        }
    }
}

/// An error and its causes, each once: those of DataFusion say what their causes say.
fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            text += if text.is_empty() { "" } else { ": " };
            text += &cause;
        }
    }
    text
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let of_io = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
    };
    // Writers of rows keep the text of an error only.
    error.chain().any(|cause| of_io(cause) || cause.to_string().contains("Broken pipe"))
}

impl Query {
    async fn run(&self) -> Result<()> {
        let Some(query) = &self.text else { bail!("a query is needed") };
        let context = self.session.context().await?;
        let mut answer = Vec::new();
        for statement in DFParser::parse_sql(query)? {
            let plan = context.state().statement_to_plan(statement).await?;
            answer = context.execute_logical_plan(plan).await?.collect().await?;
        }
        match &self.output {
            Some(path) => {
                let bytes = one_binary(&answer).context("--output needs an answer of one binary value")?;
                fs::write(path, bytes).with_context(|| path.display().to_string())?;
                writeln!(std::io::stdout(), "{} bytes: {}", bytes.len(), path.display())?;
                Ok(())
            }
            None => self.show(&answer),
        }
    }

    fn show(&self, answer: &[RecordBatch]) -> Result<()> {
        let mut out = std::io::stdout().lock();
        match self.format {
            Format::Table => {
                let answer = answer.iter().map(shortened).collect::<Result<Vec<_>>>()?;
                writeln!(out, "{}", pretty_format_batches(&answer)?)?;
            }
            Format::Csv => {
                let mut writer = csv::WriterBuilder::new().with_header(true).build(out);
                // The fields of p become the columns p.mean, p.std, …
                answer.iter().try_for_each(|batch| writer.write(&batch.normalize(".", None)?))?;
            }
            Format::Json => {
                let mut writer = LineDelimitedWriter::new(out);
                answer.iter().try_for_each(|batch| writer.write(batch))?;
                writer.finish()?;
            }
        }
        Ok(())
    }
}

/// A batch for people: of binary values, how large they are.
fn shortened(batch: &RecordBatch) -> Result<RecordBatch> {
    let shorten = |column: &ArrayRef| -> ArrayRef {
        let Some(values) = column.as_binary_opt::<i64>() else { return column.clone() };
        let texts = values.iter().map(|value| value.map(|bytes| format!("{} bytes", bytes.len())));
        Arc::new(texts.collect::<StringArray>())
    };
    let names = batch.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    let columns = batch.columns().iter().map(shorten);
    Ok(RecordBatch::try_from_iter_with_nullable(names.into_iter().zip(columns).map(|(n, c)| (n, c, true)))?)
}

/// The only value of an answer.
fn one_binary(answer: &[RecordBatch]) -> Option<&[u8]> {
    let mut batches = answer.iter().filter(|batch| batch.num_rows() > 0);
    let (batch, None) = (batches.next()?, batches.next()) else { return None };
    let column = batch.column(0);
    let is_one = batch.num_rows() == 1 && batch.num_columns() == 1 && column.is_valid(0);
    (is_one && *column.data_type() == DataType::LargeBinary).then(|| column.as_binary::<i64>().value(0))
}

impl FitFiles {
    async fn run(&self) -> Result<()> {
        let shape = match &self.shape {
            None => None,
            Some(path) => {
                let bytes = fs::read(path).with_context(|| path.display().to_string())?;
                Some(Shape::from_bytes(&bytes).with_context(|| path.display().to_string())?)
            }
        };
        let settings = match self.grid {
            None => Settings::default(),
            Some(points) => {
                Settings { features: Features::Identity, grid: vec![points], ..Settings::default() }
            }
        };
        let fit = Fit {
            files: self.files.clone(),
            target: self.target.clone(),
            inputs: self.inputs.clone(),
            sample: self.sample,
            shape,
            settings,
        };
        let model = fit.run(&self.session.context().await?).await?;
        persist::save(&self.output, &model)?;
        let ignored = model.model.ignored();
        let mut out = std::io::stdout();
        writeln!(out, "{} rows of {}: {}", model.model.count(), self.files, self.output.display())?;
        if ignored > 0 {
            writeln!(out, "{ignored} rows lie further out than the grids may grow, and were left out")?;
        }
        Ok(())
    }
}
