//! `wiski-executor`: an executor of a Ballista cluster that knows the functions.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use wiski_sql::cluster::Executor;

/// Work for a Ballista scheduler, with the functions of wiski-sql.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Where the scheduler listens
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:50050")]
    scheduler: String,

    /// The address of this machine in the cluster
    #[arg(long, default_value = "127.0.0.1")]
    host: String,

    /// The port for those who fetch results
    #[arg(long, default_value_t = 50051)]
    port: u16,

    /// The port for the scheduler
    #[arg(long, default_value_t = 50052)]
    grpc_port: u16,

    /// Tasks at a time; as many as there are cores unless told otherwise
    #[arg(long, value_name = "N", default_value_t = 0)]
    tasks: usize,

    /// Where results wait to be fetched; a temporary folder unless told otherwise
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,

    /// Seconds between signs of life
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    heartbeat: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    env_logger::init();
    let cli = Cli::parse();
    let (host, port) = cli.scheduler.rsplit_once(':').context("--scheduler: HOST:PORT is needed")?;
    let executor = Executor {
        host: cli.host,
        port: cli.port,
        grpc_port: cli.grpc_port,
        scheduler: (host.to_string(), port.parse().context("--scheduler: the port is not a number")?),
        tasks: cli.tasks,
        folder: cli.folder,
        heartbeat: cli.heartbeat,
    };
    Ok(executor.run().await?)
}
