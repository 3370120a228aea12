//! One file for each subcommand.

pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod explore;
pub(crate) mod forecast;
pub(crate) mod forget;
pub(crate) mod info;
pub(crate) mod merge;
pub(crate) mod optimize;
pub(crate) mod plot;
pub(crate) mod predict;
pub(crate) mod refit;
#[cfg(feature = "reproduce")]
pub(crate) mod reproduce;
pub(crate) mod sample;
#[cfg(feature = "serve")]
pub(crate) mod serve;
pub(crate) mod shard;
pub(crate) mod sql;
pub(crate) mod stream;
pub(crate) mod update;
