//! Executes requests on a store.

use super::decoder::Request;
use super::update::{is_silent, update};
use super::{BUSY, words};
use crate::store::{Congested, Store, Visit};
use std::fmt::Display;
use std::sync::Arc;

/// Whether the connection goes on after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum After {
    /// The connection goes on.
    GoOn,
    /// The client wants it closed.
    Close,
}

/// Why a request is not executed. Nothing is appended to the answer, and nothing has changed, but that of several keys some may count as
/// read, or have been touched by a `gat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A lock on its way would have cost more than it may.
    Congested(Congested),
    /// Its answer would have been longer than it may be ([`Visit::longest`]).
    TooLong,
}

impl From<Congested> for Refused {
    fn from(congested: Congested) -> Self {
        Refused::Congested(congested)
    }
}

/// Concern of a request. Requests that are not about items are never refused: they are few, and an operator of an
/// overloaded server needs them, as pipelines need their `mn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concern {
    /// The connection, or what costs nothing worth a place in a queue.
    Nothing,
    /// The server as a whole.
    Server,
    /// Items.
    Items,
}

/// Gets a line's name and value.
type Line<'a> = &'a mut dyn FnMut(&dyn Display, &dyn Display);

/// Executes requests. Shared by all threads.
pub struct Executor {
    store: Arc<Store>,
    started: u32,
    more: Box<dyn Fn(Line<'_>) + Send + Sync>,
    statistics: Box<dyn Fn() -> String + Send + Sync>,
}

impl Executor {
    /// On `store`, since `started` in seconds since 1970.
    pub fn new(store: Arc<Store>, started: u32) -> Self {
        Executor { store, started, more: Box::new(|_| ()), statistics: Box::new(String::new) }
    }

    /// Shows more lines in `stats`.
    #[must_use]
    pub fn with_stats(mut self, more: impl Fn(Line<'_>) + Send + Sync + 'static) -> Self {
        self.more = Box::new(more);
        self
    }

    /// Shows the server's own statistics, one line of JSON, in `stats leeward`.
    #[must_use]
    pub fn with_statistics(mut self, statistics: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.statistics = Box::new(statistics);
        self
    }

    /// Executes `request` and appends its answer to `out`.
    ///
    /// # Errors
    /// Refused.
    pub fn execute(&self, request: &Request, visit: &Visit, out: &mut Vec<u8>) -> Result<After, Refused> {
        let start = out.len();
        let outcome = self.dispatch(request, visit, out);
        if outcome.is_err() {
            out.truncate(start);
        }
        outcome
    }

    fn dispatch(&self, request: &Request, visit: &Visit, out: &mut Vec<u8>) -> Result<After, Refused> {
        let line = request.line();
        match words::words(line).next().unwrap_or_default() {
            b"get" | b"gets" | b"gat" | b"gats" => self.get(line, request.more(), visit, out)?,
            b"mg" | b"ms" | b"md" | b"ma" | b"mn" | b"me" => self.meta(line, request.data(), visit, out)?,
            _ => match update(line) {
                Some(Ok(update)) => self.update(&update, request.data(), visit, out)?,
                Some(Err(error)) => out.extend_from_slice(error.reply),
                None => return self.line(line, visit, out),
            },
        }
        Ok(After::GoOn)
    }

    /// Answer to a request that is not executed because there is too much to do: nothing if it wants no answer.
    pub fn busy(request: &Request) -> &'static [u8] {
        if is_silent(request.line()) { b"" } else { BUSY }
    }

    /// Concern of a request.
    pub fn concern(request: &Request) -> Concern {
        match words::words(request.line()).next().unwrap_or_default() {
            b"mn" | b"version" | b"quit" | b"verbosity" => Concern::Nothing,
            b"stats" => Concern::Server,
            _ => Concern::Items,
        }
    }

    /// Whether a request only reads. Readers and writers wait for different things: a writer evicts, too.
    pub fn only_reads(request: &Request) -> bool {
        matches!(words::words(request.line()).next().unwrap_or_default(), b"get" | b"gets" | b"mg")
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    pub(super) fn started(&self) -> u32 {
        self.started
    }

    /// Clients look at its first numbers to know what they may use: the meta commands came with 1.6.
    pub(super) fn version(&self) -> &'static str {
        concat!("1.6.18-leeward-", env!("CARGO_PKG_VERSION"))
    }

    pub(super) fn statistics(&self) -> String {
        (self.statistics)()
    }

    pub(super) fn more_stats(&self, line: Line<'_>) {
        (self.more)(line);
    }
}
