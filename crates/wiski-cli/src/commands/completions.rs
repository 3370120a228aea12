//! `wiski completions`: what a shell needs to complete this program's words; `wiski man`: its manual pages.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;

/// Print the script by which a shell completes commands and options.
#[derive(Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self, mut command: Command) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "wiski", &mut script);
        stdout().write_all(&script)?;
        Ok(())
    }
}

/// Write manual pages, one for each command, to a folder.
#[derive(Args)]
pub(crate) struct Man {
    /// The folder, which is made if it is not there
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(&self, mut command: Command) -> Result<()> {
        std::fs::create_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        command.build();
        pages(&command, "wiski", &self.folder)
    }
}

/// The page of a command and those of its subcommands, named as the words are written, with hyphens.
fn pages(command: &Command, name: &str, folder: &Path) -> Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name).render(&mut page)?;
    let path = folder.join(format!("{name}.1"));
    std::fs::write(&path, page).with_context(|| path.display().to_string())?;
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
    {
        pages(inner, &format!("{name}-{}", inner.get_name()), folder)?;
    }
    Ok(())
}
