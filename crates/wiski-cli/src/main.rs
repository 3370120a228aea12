//! The `wiski` command: online Gaussian processes behind a pipe.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 the program itself
//! failed, 2 the input, a file or an option is wrong.

mod commands;
mod files;
mod input;
mod inputs;
mod intervals;
mod latency;
mod model_options;
mod names;
mod output;
mod progress;
mod reading;
mod report;
mod summary;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Learn from a stream, one row at a time, in constant time and memory, with calibrated uncertainty.
#[derive(Parser)]
#[command(name = "wiski", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  wiski stream data.csv --target y --report out      learn a file, write a report
  tail -f log.csv | wiski stream - --target y --emit  one prediction a row, as it arrives
  wiski predict model.wiski new.csv > predicted.csv   use a saved model
  wiski forecast sales.csv --time day --target sold --horizon 28d   what comes next")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Predict, then learn, row after row
    Stream(Box<commands::stream::Stream>),
    /// Add predictions to the rows of a file
    Predict(commands::predict::Predict),
    /// Say what comes next in a series
    Forecast(Box<commands::forecast::Forecast>),
    /// Learn further rows into a saved model
    Update(commands::update::Update),
    /// Fit the hyperparameters of a model to everything it has learned
    Refit(commands::refit::Refit),
    /// Un-learn rows that a model has learned
    Forget(commands::forget::Forget),
    /// Make an empty model with the scales and hyperparameters of another, to be merged later
    Shard(commands::shard::Shard),
    /// Add up what several models have learned
    Merge(commands::merge::Merge),
    /// Show what a model is
    Info(commands::info::Info),
    /// Draw what a model has learned
    Plot(commands::plot::Plot),
    /// Draw functions from the posterior
    Sample(commands::sample::Sample),
    /// Find the best values of a few numbers by trying them out
    Optimize(Box<commands::optimize::Optimize>),
    /// Choose which rows of a pool to measure next
    Explore(commands::explore::Explore),
    /// Reproduce the experiments of the paper
    #[cfg(feature = "reproduce")]
    Reproduce(commands::reproduce::Reproduce),
    /// Serve models over HTTP: predict, learn, search, merge
    #[cfg(feature = "serve")]
    Serve(Box<commands::serve::Serve>),
    /// Fit a model to all rows of files at once, of Parquet, CSV or JSON
    Fit(commands::sql::Fit),
    /// Fit and predict in SQL, over files of Parquet, CSV and JSON
    Sql(commands::sql::Sql),
    /// Measure how fast this machine is
    Bench(commands::bench::Bench),
    /// Print the script by which a shell completes commands and options
    Completions(commands::completions::Completions),
    /// Write manual pages to a folder
    Man(commands::completions::Man),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Stream(command) => command.run(),
        Command::Predict(command) => command.run(),
        Command::Forecast(command) => command.run(),
        Command::Update(command) => command.run(),
        Command::Refit(command) => command.run(),
        Command::Forget(command) => command.run(),
        Command::Shard(command) => command.run(),
        Command::Merge(command) => command.run(),
        Command::Info(command) => command.run(),
        Command::Plot(command) => command.run(),
        Command::Sample(command) => command.run(),
        Command::Optimize(command) => command.run(),
        Command::Explore(command) => command.run(),
        #[cfg(feature = "reproduce")]
        Command::Reproduce(command) => command.run(),
        #[cfg(feature = "serve")]
        Command::Serve(command) => command.run(),
        Command::Fit(command) => command.run(),
        Command::Sql(command) => command.run(),
        Command::Bench(command) => command.run(),
        Command::Completions(command) => command.run(Cli::command()),
        Command::Man(command) => command.run(Cli::command()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the output has seen enough, as `head` does.
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wiski: {}", output::message(&error));
            ExitCode::from(2)
        }
    }
}
