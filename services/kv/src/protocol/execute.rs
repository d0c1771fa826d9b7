//! Executes requests on a store.

use super::decoder::Request;
use super::update::{is_silent, update};
use super::{BUSY, tokens};
use crate::store::{Congested, RequestContext, Store};
use std::fmt::Display;
use std::sync::Arc;

/// Whether the connection goes on after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ConnectionAction {
    /// The connection goes on.
    Continue,
    /// The client wants it closed.
    Close,
}

/// Why a request is not executed. Nothing is appended to the answer, and nothing has changed, but that of several keys some may count as
/// read, or have been touched by a `gat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecuteError {
    /// A lock on its way would have cost more than it may.
    Congested(Congested),
    /// Its answer would have been longer than it may be ([`Visit::longest`]).
    TooLong,
}

impl From<Congested> for ExecuteError {
    fn from(congested: Congested) -> Self {
        ExecuteError::Congested(congested)
    }
}

/// Concern of a request. Requests that are not about items are never refused: they are few, and an operator of an
/// overloaded server needs them, as pipelines need their `mn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestScope {
    /// The connection, or what costs nothing worth a place in a queue.
    Connection,
    /// The server as a whole.
    Server,
    /// Items.
    Items,
}

/// Gets a line's name and value.
type StatsLine<'a> = &'a mut dyn FnMut(&dyn Display, &dyn Display);

/// Executes requests. Shared by all threads.
pub struct Executor {
    store: Arc<Store>,
    started: u32,
    extra_stats: Box<dyn Fn(StatsLine<'_>) + Send + Sync>,
    statistics: Box<dyn Fn() -> String + Send + Sync>,
}

impl Executor {
    /// On `store`, since `started` in seconds since 1970.
    pub fn new(store: Arc<Store>, started: u32) -> Self {
        Executor { store, started, extra_stats: Box::new(|_| ()), statistics: Box::new(String::new) }
    }

    /// Shows more lines in `stats`.
    #[must_use]
    pub fn with_stats(mut self, more: impl Fn(StatsLine<'_>) + Send + Sync + 'static) -> Self {
        self.extra_stats = Box::new(more);
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
    pub fn execute(
        &self,
        request: &Request,
        visit: &RequestContext,
        out: &mut Vec<u8>,
    ) -> Result<ConnectionAction, ExecuteError> {
        let start = out.len();
        let outcome = self.dispatch(request, visit, out);
        if outcome.is_err() {
            out.truncate(start);
        }
        outcome
    }

    fn dispatch(
        &self,
        request: &Request,
        visit: &RequestContext,
        out: &mut Vec<u8>,
    ) -> Result<ConnectionAction, ExecuteError> {
        let line = request.line();
        match tokens::tokens(line).next().unwrap_or_default() {
            b"get" | b"gets" | b"gat" | b"gats" => self.get(line, request.has_more(), visit, out)?,
            b"mg" | b"ms" | b"md" | b"ma" | b"mn" | b"me" => self.meta(line, request.data(), visit, out)?,
            _ => match update(line) {
                Some(Ok(update)) => self.update(&update, request.data(), visit, out)?,
                Some(Err(error)) => out.extend_from_slice(error.reply),
                None => return self.execute_line(line, visit, out),
            },
        }
        Ok(ConnectionAction::Continue)
    }

    /// Answer to a request that is not executed because there is too much to do: nothing if it wants no answer.
    pub fn busy_reply(request: &Request) -> &'static [u8] {
        if is_silent(request.line()) { b"" } else { BUSY }
    }

    /// Concern of a request.
    pub fn scope(request: &Request) -> RequestScope {
        match tokens::tokens(request.line()).next().unwrap_or_default() {
            b"mn" | b"version" | b"quit" | b"verbosity" => RequestScope::Connection,
            b"stats" => RequestScope::Server,
            _ => RequestScope::Items,
        }
    }

    /// Whether a request only reads. Readers and writers wait for different things: a writer evicts, too.
    pub fn only_reads(request: &Request) -> bool {
        matches!(tokens::tokens(request.line()).next().unwrap_or_default(), b"get" | b"gets" | b"mg")
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

    pub(super) fn write_extra_stats(&self, line: StatsLine<'_>) {
        (self.extra_stats)(line);
    }
}
