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

/// Make a corpus of Debian's package descriptions, for `leeward serve --service search`
///
/// About 64,000 documents with 4 million words. Uses the system's package lists; without them
/// apt-get downloads lists into a folder of its own, without root and without changes to the
/// system. Takes some seconds. Each description has its package's licence: use the corpus on this
/// machine, and do not redistribute it.
#[derive(Debug, clap::Args)]
#[command(after_help = CORPUS)]
pub(crate) struct CorpusArgs {
    /// File to write; by default the one in the user's cache folder, which `leeward serve` reads
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
    let no_path = || Failure::Input(anyhow!("--out: give a path, because there is no cache folder (HOME is not set)"));
    let out = match &args.out {
        Some(out) => output_files::check_replaceable("--out", out)?,
        None => default_path().ok_or_else(no_path)?,
    };
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
            Failure::Runtime(error.context("no corpus was made; the search service uses its small one"))
        }
        other => other,
    })?;
    let size = std::fs::metadata(&out).context("the corpus").map_err(Failure::Runtime)?.len();
    stdout::print(&format!("{documents} documents, {:.1} MB: {}", size as f64 / 1e6, out.display()))
}
