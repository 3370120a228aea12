//! A server that learns: online Gaussian processes behind HTTP.
//!
//! It speaks the Open Inference Protocol v2 and adds what no such server has: rows are learned over the wire, one or
//! thousands at a time, and are on the disk when the answer comes. `docs/server.md` shows it at work.
//!
//! A request goes through the modules in this order:
//!
//! 1. [`net`]: a connection, perhaps encrypted, within limits ([`config`]).
//! 2. [`routes`]: which path, whose token ([`auth`]), how large a body; errors become answers ([`error`]).
//! 3. `decode`: from JSON, NDJSON, CSV, Arrow or tensors to rows ([`batch`]).
//! 4. [`engine`]: which model ([`name`]), loaded if it is not in memory.
//! 5. Predictions read the newest [`view`], and wait for nothing.
//! 6. Changes ([`op`]) go to the model's writer ([`hosted`]): journal and disk first ([`store`]), then the model
//!    ([`served`]), then the answer; whoever watches hears of it ([`events`]).
//! 7. `answer`: from predictions to JSON, NDJSON, CSV, Arrow or tensors; [`figures`] from views and [`history`] to SVG.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use wiski_serve::{Config, Engine, Encryption, serve};
//!
//! let folder = std::env::temp_dir().join(format!("wiski-serve-{}", std::process::id()));
//! let engine = Engine::open(Config::new(&folder))?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
//! let stop = async { /* until this is done */ };
//! serve(engine, listener, Encryption::default(), stop).await;
//! # std::fs::remove_dir_all(folder).unwrap();
//! # Ok::<(), wiski::Error>(()) }).unwrap();
//! ```

pub mod auth;
pub mod config;
pub mod error;
pub mod name;

pub mod batch;
mod decode;

pub mod create;
pub mod op;
pub mod series;
pub mod served;
pub mod store;

pub mod events;
pub mod figures;
pub mod history;
pub mod view;

pub mod hosted;

pub mod engine;
pub mod metrics;

mod answer;
pub mod openapi;
mod page;

pub mod routes;

pub mod net;

pub use auth::{Scope, Tokens};
pub use config::{Config, Limits};
pub use engine::Engine;
pub use error::Failure;
pub use net::{Encryption, serve};
pub use routes::{ROUTES, app};
