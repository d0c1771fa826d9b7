//! `leeward corpus`: makes the documents that `leeward serve --service search` serves.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use leeward_search::corpus::debian::{self, FetchError, Step};
use leeward_search::corpus::default_path;

use super::output_files;
use crate::failure::Failure;
use crate::interrupt::{Interrupt, StopMode};
use crate::progress::Spinner;
use crate::stdout;

/// Make a corpus of what the package manager knows, for `leeward serve --service search`
///
/// Some 64,000 documents: Debian's long package descriptions, 4 million words. Lists that the
/// system has are used; otherwise apt-get gets them with a state of its own, which changes nothing
/// of the system's and needs no rights. Takes some seconds. The descriptions' licences are their
/// packages': the corpus is for this machine, not for passing on.
#[derive(Debug, clap::Args)]
#[command(after_help = CORPUS)]
pub(crate) struct CorpusArgs {
    /// File to write; by default where `leeward serve` looks for it: in the user's folder for
    /// caches
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

const CORPUS: &str = "\
Examples:
  leeward corpus
  leeward serve --service search --cores 2
  leeward load 127.0.0.1:7117 --service search --demand 500 --slo 10ms";

/// Runs the command.
pub(crate) fn corpus(args: &CorpusArgs) -> Result<(), Failure> {
    let no_path = || Failure::Input(anyhow!("--out: say where, for there is no folder for caches (HOME is not set)"));
    let out: PathBuf = args.out.clone().or_else(default_path).ok_or_else(no_path)?;
    if args.out.is_some() {
        output_files::check_file("--out", &out)?;
    }
    // Ctrl-C also stops apt-get; this process then removes its leftover files.
    let interrupt = Interrupt::listen(StopMode::Graceful)?;
    let documents = {
        let steps = Spinner::with_interrupt("corpus", &interrupt);
        let mut report = |step: Step<'_>| match step {
            Step::Getting(line) => steps.show(line),
            Step::Writing(documents) => steps.show(&format!("{documents} documents")),
            _ => {}
        };
        debian::fetch(&out, &mut report)
    };
    if interrupt.is_requested() {
        return Err(Failure::Interrupted);
    }
    let documents = documents.map_err(|error| match error {
        // Trying again would not help.
        FetchError::Program { .. } | FetchError::NoDescriptions => Failure::Input(anyhow!(error)),
        error => Failure::Runtime(anyhow!(error)),
    });
    let documents = documents.map_err(|failure| match failure {
        Failure::Runtime(error) => {
            Failure::Runtime(error.context("no corpus was made; search does with the small one"))
        }
        other => other,
    })?;
    let size = std::fs::metadata(&out).context("the corpus").map_err(Failure::Runtime)?.len();
    stdout::print(&format!("{documents} documents, {:.1} MB: {}", size as f64 / 1e6, out.display()))
}
