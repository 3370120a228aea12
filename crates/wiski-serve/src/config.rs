//! What an operator may choose; everything has a default, and the defaults are closed.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use wiski::model::Upkeep;

use crate::auth::Tokens;

/// All settings of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The folder with the models.
    pub models: PathBuf,
    /// Who may do what. Without any token only this machine is served.
    pub tokens: Tokens,
    /// Who waits for a search for features or a refit. [`Upkeep::OnRequest`]: nobody, it runs beside the stream.
    pub upkeep: Upkeep,
    /// The bounds.
    pub limits: Limits,
}

impl Config {
    /// A server of the models in a folder, for this machine alone.
    pub fn new(models: impl Into<PathBuf>) -> Self {
        Self {
            models: models.into(),
            tokens: Tokens::default(),
            upkeep: Upkeep::OnRequest,
            limits: Limits::default(),
        }
    }

    /// Whether this address may be listened on: others than this machine need a token.
    pub fn may_listen(&self, address: SocketAddr) -> bool {
        !self.tokens.is_empty() || is_loopback(address.ip())
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// The bounds within which a server stays, whatever it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body: usize,
    /// Rows of a request.
    pub rows: usize,
    /// Input columns of a model.
    pub columns: usize,
    /// Models in the folder.
    pub models: usize,
    /// Requests that wait for the writer of a model; beyond, the answer is 429.
    pub queue: usize,
    /// Bytes of rows that wait for the writer of a model.
    pub queue_bytes: usize,
    /// Requests at a time.
    pub requests: usize,
    /// Connections at a time.
    pub connections: usize,
    /// How long a request may take, from its head to its answer.
    pub time: Duration,
    /// Bytes of models in memory, about; beyond, the ones used least recently are put down.
    pub memory: u64,
    /// Rows in a journal after which a new snapshot is written.
    pub compact_after: u64,
    /// Idempotency keys remembered for a model.
    pub keys: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 16 << 20,
            rows: 100_000,
            columns: 1024,
            models: 1000,
            queue: 256,
            queue_bytes: 64 << 20,
            requests: 1024,
            connections: 4096,
            time: Duration::from_mins(1),
            memory: 1 << 30,
            compact_after: 50_000,
            keys: 1024,
        }
    }
}
