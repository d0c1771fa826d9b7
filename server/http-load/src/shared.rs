//! What the tasks of a run share: configuration, servers, requests, state and the clock.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::time::Instant;

use leeward_core::units::{Nanos, Time};
use leeward_tls::ServerName;
use tokio::sync::{Notify, Semaphore};

use crate::config::{HttpLoadConfig, HttpLoadError};
use crate::request::RequestBuilder;
use crate::state::State;
use crate::target::Endpoint;

/// Connections that may be opened at once before the run.
const OPENING_MAX: usize = 64;

/// An endpoint with its address, and the name that the server must prove.
pub(crate) struct Server {
    pub(crate) endpoint: Endpoint,
    pub(crate) address: SocketAddr,
    pub(crate) name: Option<ServerName>,
}

/// Everything that the tasks of a run share.
pub(crate) struct Shared {
    pub(crate) config: HttpLoadConfig,
    pub(crate) servers: Vec<Server>,
    pub(crate) requests: RequestBuilder,
    pub(crate) state: RefCell<State>,
    /// Requests that a closed loop keeps in flight on each connection; `None` in an open loop.
    pub(crate) outstanding: Option<usize>,
    /// Number of connections.
    pub(crate) count: usize,
    /// Tells the driver that a connection is open, or cannot be opened.
    pub(crate) opened: Notify,
    /// Error of a connection that could not be opened before the run.
    pub(crate) open_error: RefCell<Option<HttpLoadError>>,
    /// Bounds how many connections are opened at once.
    pub(crate) opening: Semaphore,
    origin: Instant,
    /// Start of the run, from the origin.
    start: Cell<Nanos>,
}

impl Shared {
    pub(crate) fn new(
        config: &HttpLoadConfig,
        servers: Vec<Server>,
        requests: RequestBuilder,
        state: State,
        (count, outstanding): (usize, Option<usize>),
    ) -> Self {
        Shared {
            config: config.clone(),
            servers,
            requests,
            state: RefCell::new(state),
            outstanding,
            count,
            opened: Notify::new(),
            open_error: RefCell::new(None),
            opening: Semaphore::new(OPENING_MAX),
            origin: Instant::now(),
            start: Cell::new(Nanos::ZERO),
        }
    }

    /// Time since the start of the run.
    pub(crate) fn now(&self) -> Time {
        Time((self.origin.elapsed().as_nanos() as u64).saturating_sub(self.start.get().0))
    }

    /// Lets the run start at `delay` from now.
    pub(crate) fn start_after(&self, delay: Nanos) {
        self.start.set(Nanos(self.origin.elapsed().as_nanos() as u64) + delay);
    }
}
