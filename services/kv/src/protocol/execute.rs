//! Executes requests on a store.

use super::decoder::Request;
use super::update::{is_silent, update};
use super::{BUSY, tokens};
use crate::store::{Congested, RequestContext, Store};
use std::fmt::Display;
use std::sync::Arc;

/// Action on the connection after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ConnectionAction {
    /// The connection stays open.
    Continue,
    /// The client asked to close the connection.
    Close,
}

/// Reason why a request is not executed; the answer stays empty.
///
/// Nothing has changed, with one exception: some keys of a multi-get may count as read, or be
/// touched by a `gat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecuteError {
    /// A lock would have cost more than the request's budget.
    Congested(Congested),
    /// The answer would exceed its limit ([`RequestContext::reply_max`]).
    TooLong,
}

impl From<Congested> for ExecuteError {
    fn from(congested: Congested) -> Self {
        ExecuteError::Congested(congested)
    }
}

/// Scope of a request.
///
/// Requests without items are never rejected. They are few; operators of an overloaded server need
/// them, and pipelines need their `mn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestScope {
    /// The connection, or work too small to be queued.
    Connection,
    /// The whole server.
    Server,
    /// Items.
    Items,
}

/// Receives a line's name and value.
type StatsLine<'a> = &'a mut dyn FnMut(&dyn Display, &dyn Display);

/// Executes requests. Shared by all threads.
pub struct Executor {
    store: Arc<Store>,
    started: u32,
    extra_stats: Box<dyn Fn(StatsLine<'_>) + Send + Sync>,
    statistics: Box<dyn Fn() -> String + Send + Sync>,
}

impl Executor {
    /// Creates an executor on `store`; `started` is the start time in seconds since 1970.
    pub fn new(store: Arc<Store>, started: u32) -> Self {
        Executor { store, started, extra_stats: Box::new(|_| ()), statistics: Box::new(String::new) }
    }

    /// Adds lines to `stats`.
    #[must_use]
    pub fn with_stats(mut self, more: impl Fn(StatsLine<'_>) + Send + Sync + 'static) -> Self {
        self.extra_stats = Box::new(more);
        self
    }

    /// Adds the server's statistics, one line of JSON, as `stats leeward`.
    #[must_use]
    pub fn with_statistics(mut self, statistics: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.statistics = Box::new(statistics);
        self
    }

    /// Executes `request` and appends its answer to `out`.
    ///
    /// # Errors
    /// The request is rejected; `out` is unchanged.
    pub fn execute(
        &self,
        request: &Request,
        context: &RequestContext,
        out: &mut Vec<u8>,
    ) -> Result<ConnectionAction, ExecuteError> {
        let start = out.len();
        let outcome = self.dispatch(request, context, out);
        if outcome.is_err() {
            out.truncate(start);
        }
        outcome
    }

    fn dispatch(
        &self,
        request: &Request,
        context: &RequestContext,
        out: &mut Vec<u8>,
    ) -> Result<ConnectionAction, ExecuteError> {
        let line = request.line();
        match tokens::tokens(line).next().unwrap_or_default() {
            b"get" | b"gets" | b"gat" | b"gats" => self.get(line, request.has_more(), context, out)?,
            b"mg" | b"ms" | b"md" | b"ma" | b"mn" | b"me" => self.meta(line, request.data(), context, out)?,
            _ => match update(line) {
                Some(Ok(update)) => self.update(&update, request.data(), context, out)?,
                Some(Err(error)) => out.extend_from_slice(error.reply),
                None => return self.execute_line(line, context, out),
            },
        }
        Ok(ConnectionAction::Continue)
    }

    /// Returns the reply to a request that is rejected under overload; empty if the request wants
    /// no reply.
    pub fn busy_reply(request: &Request) -> &'static [u8] {
        if is_silent(request.line()) { b"" } else { BUSY }
    }

    /// Returns the scope of a request.
    pub fn scope(request: &Request) -> RequestScope {
        match tokens::tokens(request.line()).next().unwrap_or_default() {
            b"mn" | b"version" | b"quit" | b"verbosity" => RequestScope::Connection,
            b"stats" => RequestScope::Server,
            _ => RequestScope::Items,
        }
    }

    /// Returns whether a request only reads. Readers and writers wait for different locks: a writer
    /// also evicts.
    pub fn only_reads(request: &Request) -> bool {
        matches!(tokens::tokens(request.line()).next().unwrap_or_default(), b"get" | b"gets" | b"mg")
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    pub(super) fn started(&self) -> u32 {
        self.started
    }

    /// Clients derive the available commands from the first numbers: 1.6 introduced the meta
    /// commands.
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
