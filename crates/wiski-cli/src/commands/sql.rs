//! `wiski sql` and `wiski fit`: hand over to the program `wiski-sql`, which is built apart since DataFusion takes minutes
//! to compile.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

/// The program, beside this one or on the path.
const PROGRAM: &str = "wiski-sql";

/// Fit and predict in SQL, over files of Parquet, CSV and JSON.
///
/// wiski sql "SELECT wiski_predict('model.wiski', a, b) FROM 'data/*.parquet'". All arguments go to the program wiski-sql,
/// which must be installed: cargo install --path crates/wiski-sql.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Sql {
    /// The arguments of wiski-sql; --help shows them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Fit a model to all rows of files at once, of Parquet, CSV or JSON.
///
/// wiski fit 'data/*.parquet' --target y. All arguments go to the program wiski-sql, which must be installed: cargo
/// install --path crates/wiski-sql.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Fit {
    /// The arguments of wiski-sql fit; --help shows them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Sql {
    pub(crate) fn run(&self) -> Result<()> {
        hand_over(&[], &self.arguments)
    }
}

impl Fit {
    pub(crate) fn run(&self) -> Result<()> {
        hand_over(&["fit"], &self.arguments)
    }
}

fn hand_over(command: &[&str], arguments: &[OsString]) -> Result<()> {
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.join(PROGRAM))).filter(|path| path.is_file());
    let program = beside.map_or_else(|| PROGRAM.into(), PathBuf::into_os_string);
    match Command::new(&program).args(command).args(arguments).status() {
        Ok(status) if status.success() => Ok(()),
        // It has said what is wrong.
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("the program wiski-sql is not installed: cargo install --path crates/wiski-sql")
        }
        Err(error) => Err(error).with_context(|| program.display().to_string()),
    }
}
