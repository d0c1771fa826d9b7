//! The documents that `leeward serve --service search` serves, and `leeward corpus`, which makes them.

use anyhow::{Context, anyhow};
use leeward_plant::search::Corpus;
use leeward_search::corpus::debian::{self, FetchError, Step};
use leeward_search::{Index, Layout, corpus};
use std::path::PathBuf;
use std::sync::Arc;

use super::target;
use crate::args::{CorpusArgs, ServeArgs};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::progress::Steps;
use crate::stdout;

/// Reads and indexes the corpus that `serve` is to search. Notes on stderr tell the user how far it is.
pub(crate) fn index(args: &ServeArgs) -> Result<Arc<Index>, Failure> {
    let corpus = load(args.corpus.as_deref())?;
    let steps = Steps::new("search");
    steps.show(&format!("indexing {} documents", corpus.documents.len()));
    Ok(Arc::new(Index::build(corpus.documents, Layout { segments: args.segments as usize, ..Layout::default() })))
}

/// Warns on stderr before a measurement, if the large corpus was not made.
pub(crate) fn warn_of_small_corpus() {
    if !corpus::default_path().is_some_and(|path| path.exists()) {
        eprintln!(
            "warning: only the few hundred documents that come along are searched, which takes no time worth measuring; \
             `leeward corpus` makes some 64,000"
        );
    }
}

/// The documents, and a word on stderr if they are the small ones for want of others.
pub(crate) fn load(file: Option<&std::path::Path>) -> Result<Corpus, Failure> {
    let corpus = Corpus::load(file).map_err(|error| Failure::Input(anyhow!(error)))?;
    if corpus.file.is_none() {
        eprintln!(
            "searching the {} documents that come along: `leeward corpus` makes some 64,000",
            corpus.documents.len()
        );
    }
    Ok(corpus)
}

/// The command.
pub(crate) fn make(args: &CorpusArgs) -> Result<(), Failure> {
    let no_place = || Failure::Input(anyhow!("--out: say where, for there is no folder for caches (HOME is not set)"));
    let out: PathBuf = args.out.clone().or_else(corpus::default_path).ok_or_else(no_place)?;
    if args.out.is_some() {
        target::check_file("--out", &out)?;
    }
    // apt-get hears Ctrl-C too; what it leaves behind is ours to tidy up.
    let interrupt = Interrupt::listen()?;
    let documents = {
        let steps = Steps::new("corpus");
        let mut tell = |step: Step<'_>| match step {
            Step::Getting(line) => steps.show(line),
            Step::Writing(documents) => steps.show(&format!("{documents} documents")),
            _ => {}
        };
        debian::fetch(&out, &mut tell)
    };
    if interrupt.asked() {
        return Err(Failure::Interrupted);
    }
    let documents = documents.map_err(|error| match error {
        // Nothing that trying again would change.
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
