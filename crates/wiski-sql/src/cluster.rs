//! The functions on a [Ballista](https://datafusion.apache.org/ballista) cluster: a scheduler and executors that know
//! them, and sessions that send their queries there.
//!
//! Plans travel with the names of functions, and whoever reads one must know the functions by name: the scheduler, which
//! plans, and the executors, which compute. What the functions are given (shapes, models) travels as values of the plan,
//! and sums as the states of the aggregates, so that nothing else has to be told how to travel. A path instead of a value
//! is read by the executors.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ballista::prelude::{SessionConfigExt, SessionContextExt};
use ballista_core::registry::BallistaFunctionRegistry;
use ballista_core::utils::default_session_builder;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::start_server;
use datafusion::common::Result;
use datafusion::execution::{FunctionRegistry, SessionState, SessionStateBuilder};
use datafusion::prelude::{SessionConfig, SessionContext};

use crate::{aggregates, register, scalars};

/// The largest message: a plan with a shape in it, which holds inducing points.
const LARGEST_MESSAGE: u32 = 1 << 30;

/// A session whose queries run on the cluster of the scheduler at `url`, as `df://host:50050`.
pub async fn session(url: &str, config: SessionConfig) -> Result<SessionContext> {
    let config =
        config.upgrade_for_ballista().with_ballista_grpc_client_max_message_size(LARGEST_MESSAGE as usize);
    let state = SessionStateBuilder::new().with_default_features().with_config(config).build();
    let context = SessionContext::remote_with_state(url, state).await?.enable_url_table();
    register(&context);
    Ok(context)
}

/// How a scheduler runs.
#[derive(Debug, Clone)]
pub struct Scheduler {
    /// Where it listens.
    pub address: SocketAddr,
    /// An executor that was not heard of for so many seconds is given up, and its tasks are done elsewhere.
    pub patience: u64,
}

impl Scheduler {
    /// Runs until the process ends.
    pub async fn run(&self) -> ballista_core::error::Result<()> {
        let config = SchedulerConfig {
            bind_host: self.address.ip().to_string(),
            external_host: self.address.ip().to_string(),
            bind_port: self.address.port(),
            executor_timeout_seconds: self.patience,
            expire_dead_executor_interval_seconds: (self.patience / 4).max(1),
            no_executors_grace_period_seconds: self.patience,
            grpc_server_max_decoding_message_size: LARGEST_MESSAGE,
            grpc_server_max_encoding_message_size: LARGEST_MESSAGE,
            grpc_client_max_message_size: LARGEST_MESSAGE,
            override_session_builder: Some(Arc::new(knowing)),
            ..SchedulerConfig::default()
        };
        let cluster = BallistaCluster::new_from_config(&config).await?;
        start_server(cluster, self.address, Arc::new(config)).await
    }
}

/// The state of a session in the scheduler.
fn knowing(config: SessionConfig) -> Result<SessionState> {
    let mut state = default_session_builder(config)?;
    for function in aggregates() {
        state.register_udaf(function)?;
    }
    for function in scalars() {
        state.register_udf(function)?;
    }
    Ok(state)
}

/// How an executor runs.
#[derive(Debug, Clone)]
pub struct Executor {
    /// Where it listens: for those who fetch results, and for the scheduler.
    pub host: String,
    /// The port for results.
    pub port: u16,
    /// The port for the scheduler.
    pub grpc_port: u16,
    /// The scheduler's host and port.
    pub scheduler: (String, u16),
    /// Tasks at a time; as many as there are cores if this is 0.
    pub tasks: usize,
    /// Where results wait to be fetched; a temporary folder unless told otherwise.
    pub folder: Option<PathBuf>,
    /// Seconds between signs of life.
    pub heartbeat: u64,
}

impl Executor {
    /// Runs until it is told to stop.
    pub async fn run(&self) -> ballista_core::error::Result<()> {
        let mut functions = BallistaFunctionRegistry::default();
        functions.aggregate_functions.extend(aggregates().into_iter().map(|f| (f.name().to_string(), f)));
        functions.scalar_functions.extend(scalars().into_iter().map(|f| (f.name().to_string(), f)));
        let config = ExecutorProcessConfig {
            bind_host: self.host.clone(),
            external_host: Some(self.host.clone()),
            port: self.port,
            grpc_port: self.grpc_port,
            scheduler_host: self.scheduler.0.clone(),
            scheduler_port: self.scheduler.1,
            scheduler_connect_timeout_seconds: 30,
            vcores: self.tasks,
            work_dir: self.folder.as_ref().map(|folder| folder.display().to_string()),
            executor_heartbeat_interval_seconds: self.heartbeat,
            grpc_max_decoding_message_size: LARGEST_MESSAGE,
            grpc_max_encoding_message_size: LARGEST_MESSAGE,
            override_function_registry: Some(Arc::new(functions)),
            ..ExecutorProcessConfig::default()
        };
        start_executor_process(Arc::new(config)).await
    }
}
