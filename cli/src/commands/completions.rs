//! `leeward completions` and `leeward man`: shell completions and man pages, generated from the
//! command line's definition.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;

use super::output_files;
use crate::failure::{Failure, file_failure};
use crate::stdout;

/// Print the completions of a shell
#[derive(Debug, clap::Args)]
#[command(after_help = COMPLETIONS)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub(crate) shell: Shell,
}

const COMPLETIONS: &str = "\
Examples:
  leeward completions bash > ~/.local/share/bash-completion/completions/leeward
  leeward completions zsh > ~/.zfunc/_leeward
  leeward completions fish > ~/.config/fish/completions/leeward.fish";

/// Write the man pages, one per command
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Folder for leeward.1, leeward-serve.1 and the others
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

/// Prints the completions of a shell.
pub(crate) fn completions(args: &CompletionsArgs, mut command: Command) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "leeward", &mut text);
    stdout::print(String::from_utf8_lossy(&text).trim_end())
}

/// Writes the man pages.
pub(crate) fn man(args: &ManArgs, mut command: Command) -> Result<(), Failure> {
    output_files::check_folder(&args.folder, &[])?;
    std::fs::create_dir_all(&args.folder).with_context(|| args.folder.display().to_string()).map_err(Failure::Input)?;
    command.build();
    write_page(&command, "leeward", &args.folder)?;
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        write_page(below, &format!("leeward-{}", below.get_name()), &args.folder)?;
    }
    Ok(())
}

fn write_page(command: &Command, name: &str, folder: &Path) -> Result<(), Failure> {
    // clap needs names of static lifetime; about thirty names are leaked.
    let named: &'static str = Box::leak(name.to_string().into_boxed_str());
    let mut text = Vec::new();
    let file = folder.join(format!("{name}.1"));
    let written = || format!("writing {}", file.display());
    clap_mangen::Man::new(command.clone().name(named))
        .render(&mut text)
        .and_then(|()| std::fs::write(&file, &text))
        .with_context(written)
        .map_err(file_failure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn common_shells_are_supported() {
        for shell in ["bash", "zsh", "fish"] {
            assert!(Shell::value_variants().iter().any(|known| known.to_string() == shell), "{shell}");
        }
    }
}
