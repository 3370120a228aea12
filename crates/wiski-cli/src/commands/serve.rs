//! `wiski serve`: models behind HTTP.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use tracing::level_filters::LevelFilter;
use wiski::model::Upkeep;
use wiski_serve::{Config, Encryption, Engine, Limits};

/// Serve the models of a folder over HTTP: predict, learn, search, merge.
#[derive(Args)]
#[command(after_help = "\
Examples:
  wiski serve --models models                              this machine only
  wiski serve --models models --listen 0.0.0.0:8443 \\
      --tokens tokens.txt --tls-cert cert.pem --tls-key key.pem

A file of tokens has a line for each: its scope (read, learn or admin), a blank, and the token.")]
pub(crate) struct Serve {
    /// The folder with the models; made if it is not there
    #[arg(long, value_name = "DIR")]
    models: PathBuf,

    /// The address to listen on; others than this machine's need --tokens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,

    /// A file with the tokens that are accepted
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,

    /// Encrypt with the certificates in this PEM file
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Who waits while features are searched for or hyperparameters refitted: the request that brings it about, or nobody,
    /// since it runs beside the stream
    #[arg(long, value_enum, default_value = "background")]
    search: Search,

    /// The largest body of a request, in mebibytes
    #[arg(long, value_name = "MIB", default_value_t = 16)]
    max_body: usize,

    /// The most rows in a request
    #[arg(long, value_name = "ROWS", default_value_t = Limits::default().rows)]
    max_rows: usize,

    /// The most input columns of a model
    #[arg(long, value_name = "COLUMNS", default_value_t = Limits::default().columns)]
    max_columns: usize,

    /// The most models in the folder
    #[arg(long, value_name = "MODELS", default_value_t = Limits::default().models)]
    max_models: usize,

    /// The most requests that wait for the writer of a model; beyond, the answer is 429
    #[arg(long, value_name = "REQUESTS", default_value_t = Limits::default().queue)]
    max_queue: usize,

    /// The most requests at a time
    #[arg(long, value_name = "REQUESTS", default_value_t = Limits::default().requests)]
    max_requests: usize,

    /// The most connections at a time
    #[arg(long, value_name = "CONNECTIONS", default_value_t = Limits::default().connections)]
    max_connections: usize,

    /// The longest time for a request, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    max_seconds: u64,

    /// Memory for models, about, in mebibytes; beyond, those used least recently are put down
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    memory: u64,

    /// Write a snapshot after so many rows in the journal
    #[arg(long, value_name = "ROWS", default_value_t = Limits::default().compact_after)]
    compact_after: u64,

    /// What goes to the log on standard error: error, warn, info, debug (a line for each request) or off. It never
    /// contains data
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log: LevelFilter,

    /// Threads that answer requests [default: one for each core]
    #[arg(long, value_name = "THREADS")]
    threads: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Search {
    /// The request waits
    Wait,
    /// No request waits
    Background,
}

impl Serve {
    pub(crate) fn run(&self) -> Result<()> {
        let config = self.config()?;
        ensure!(
            config.may_listen(self.listen),
            "--listen: {} can be reached from other machines, so --tokens is needed",
            self.listen
        );
        let encryption = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Encryption::tls(cert, key).context("--tls-cert, --tls-key")?,
            _ => Encryption::default(),
        };
        let subscriber = tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false);
        let colored = std::io::IsTerminal::is_terminal(&std::io::stderr());
        subscriber.with_ansi(colored).with_max_level(self.log).init();
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        if let Some(threads) = self.threads {
            ensure!(threads > 0, "--threads: at least one is needed");
            runtime.worker_threads(threads);
        }
        let engine = Engine::open(config)?;
        runtime.enable_all().build()?.block_on(async {
            let listener = tokio::net::TcpListener::bind(self.listen).await;
            let listener = listener.with_context(|| format!("--listen {}", self.listen))?;
            let scheme = if encryption.is_on() { "https" } else { "http" };
            let address = listener.local_addr()?;
            if !encryption.is_on() && !address.ip().is_loopback() {
                tracing::warn!("tokens and rows go over the network unencrypted; --tls-cert encrypts them");
            }
            let stop = interrupted();
            // For people and for programs that wait for it.
            eprintln!("wiski: serving {} on {scheme}://{address}", self.models.display());
            wiski_serve::serve(engine, listener, encryption, stop).await;
            Ok(())
        })
    }

    fn config(&self) -> Result<Config> {
        let mut config = Config::new(&self.models);
        if let Some(path) = &self.tokens {
            let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
            config.tokens = text.parse().with_context(|| path.display().to_string())?;
            ensure!(!config.tokens.is_empty(), "--tokens: {} has none", path.display());
        }
        config.upkeep = match self.search {
            Search::Wait => Upkeep::Wait,
            Search::Background => Upkeep::OnRequest,
        };
        ensure!(self.max_queue > 0, "--max-queue: at least one request must be able to wait");
        ensure!(
            self.max_requests > 0 && self.max_connections > 0,
            "--max-requests, --max-connections: at least 1"
        );
        config.limits = Limits {
            body: self.max_body.saturating_mul(1 << 20),
            rows: self.max_rows,
            columns: self.max_columns,
            models: self.max_models,
            queue: self.max_queue,
            requests: self.max_requests,
            connections: self.max_connections,
            time: Duration::from_secs(self.max_seconds.max(1)),
            memory: self.memory.saturating_mul(1 << 20),
            compact_after: self.compact_after.max(1),
            ..config.limits
        };
        Ok(config)
    }
}

/// Done when the process is asked to stop. It listens from now on, not only once it is waited for.
fn interrupted() -> impl Future<Output = ()> {
    #[cfg(unix)]
    let signals = {
        use tokio::signal::unix::{SignalKind, signal};
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    };
    async move {
        #[cfg(unix)]
        if let (Ok(mut terminate), Ok(mut interrupt)) = signals {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
        let _ = tokio::signal::ctrl_c().await;
    }
}
