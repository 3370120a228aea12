//! `wiski-scheduler`: the scheduler of a Ballista cluster that knows the functions.

use std::net::SocketAddr;

use anyhow::Result;
use clap::Parser;
use wiski_sql::cluster::Scheduler;

/// Plan queries for a cluster of `wiski-executor`s.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:50050")]
    bind: SocketAddr,

    /// Give an executor up after so many seconds without a sign of life
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    patience: u64,
}

fn main() -> Result<()> {
    env_logger::init();
    let cli = Cli::parse();
    let scheduler = Scheduler { address: cli.bind, patience: cli.patience };
    // Plans are trees, and reading one is recursive.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(32 << 20).build()?;
    Ok(runtime.block_on(scheduler.run())?)
}
