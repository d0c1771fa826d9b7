//! Both ends of a connection over a simulated wire in virtual time, for tests: a server's core and
//! any number of clients, with all random choices from one seed.
//!
//! For tests of the protocol. Entry points: [`Pair`] and [`PairConfig`].
//!
//! - [`Pair`]: the simulation. [`PairConfig`]: the wire and the server's limits. [`Rng`]: random
//!   numbers from the seed.
//! - [`frames`]: hand-made frames. [`order`]: checks that a controller sees a session's frames in
//!   order. Tests over real sockets use both, too.
//! - `datagram_path`: datagrams instead of a stream, in a network with faults.
//! - `event_queue`: events in order. `stream`: one direction of a connection, with delays, chunks
//!   and cuts.
//! - `core`: the controller and the workers. `server`, `client`: the ends. `steps`: the passage of
//!   time.
//! - `view`: state that a test can read. `conservation`: invariants after every step.
//!
//! The server's end follows the engine of `leeward-engine` in its reads, limits, scans and closes.
//! Does not contain sockets, clocks, threads or scenarios, which belong to the caller.
//!
//! # Example
//! ```
//! use leeward_core::params::Params;
//! use leeward_core::registry::Environment;
//! use leeward_core::units::Nanos;
//! use leeward_pair::{Pair, PairConfig, RequestOutcome, echo};
//!
//! let registry = leeward_controllers::builtin();
//! let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
//! let breakwater = registry.find("breakwater")?;
//! let (params, config) = (Params::default(), PairConfig::default());
//! let mut pair = Pair::new(breakwater, &params, environment, config, echo(Nanos(1_000)))?;
//! let client = pair.connect();
//! let request = pair.submit(client, b"hello");
//! pair.run_for(Nanos::from_millis(1));
//! let expected = RequestOutcome::Completed(b"hello".to_vec());
//! assert_eq!(pair.outcome(client, request), Some(&expected));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod client;
mod config;
mod conservation;
mod core;
mod datagram_path;
mod event_queue;
pub mod frames;
pub mod order;
mod rng;
mod server;
mod steps;
mod stream;
mod view;

pub use client::{ReadMode, RequestOutcome};
pub use config::{Faults, Handler, PairConfig, WireModel, Work, echo};
pub use event_queue::Endpoint;
pub use rng::Rng;

use self::client::{HonestClient, RawClient};
use self::conservation::SessionTotals;
use self::core::Core;
use self::datagram_path::DatagramPath;
use self::event_queue::{EventQueue, SimEvent};
use self::server::ServerEnd;
use self::stream::Stream;
use leeward_core::params::{ParamError, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::units::{Priority, Time};
use leeward_session::client::{Connection, ConnectionConfig, ConnectionError};
use leeward_wire::{Budget, Encoder, ErrorCode, Frame, PayloadLimit};

/// A client of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientId(usize);

/// A way in which a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The client's half ends: the server sees it after all sent bytes, and may still send.
    ClientHalf,
    /// The server's half ends, although the server did not end it.
    ServerHalf,
    /// Both halves end at once: bytes in flight are lost, and both ends see it.
    Reset,
    /// No more bytes arrive, and neither end sees it.
    Silence,
}

/// A connection: both ends and the bytes between them.
struct Link {
    client: Client,
    read_mode: ReadMode,
    up: Stream,
    down: Stream,
    server: Option<ServerEnd>,
    /// The datagram path, if the connection uses datagrams.
    datagrams: Option<Box<DatagramPath>>,
    /// Bytes were changed in flight: no promise to this client holds.
    is_tampered: bool,
    /// Reason for which the server closed the connection.
    close_reason: Option<(ErrorCode, String)>,
    /// Error that ended the honest client's connection.
    error: Option<ConnectionError>,
}

enum Client {
    Honest(Box<HonestClient>),
    Raw(Box<RawClient>),
}

/// A server's core and its clients on a simulated wire in virtual time.
///
/// Methods act at the current time; time passes in [`Pair::step`] and its callers. Conservation is
/// checked after every step, and the first violation is kept ([`Pair::violation`]).
pub struct Pair {
    algorithm: Algorithm,
    params: Params,
    environment: Environment,
    config: PairConfig,
    now: Time,
    event_queue: EventQueue,
    rng: Rng,
    core: Core,
    links: Vec<Link>,
    /// Connections that the server has open.
    open: Vec<usize>,
    totals: SessionTotals,
    has_stopped: bool,
    violation: Option<String>,
}

impl Pair {
    /// Creates a server of this algorithm, whose calls `handler` executes.
    ///
    /// # Errors
    /// Inconsistent parameters.
    pub fn new(
        algorithm: &Algorithm,
        params: &Params,
        environment: Environment,
        config: PairConfig,
        handler: Handler,
    ) -> Result<Self, ParamError> {
        let environment = Environment { cores: 1, ..environment };
        let core = Core::new(algorithm.server(params, &environment)?, handler, config);
        let mut queue = EventQueue::default();
        queue.schedule(Time::ZERO, SimEvent::Tick);
        queue.schedule(Time::ZERO + config.scan_interval, SimEvent::Scan);
        Ok(Pair {
            algorithm: algorithm.clone(),
            params: params.clone(),
            environment,
            config,
            now: Time::ZERO,
            event_queue: queue,
            rng: Rng::new(config.seed),
            core,
            links: Vec::new(),
            open: Vec::new(),
            totals: SessionTotals::default(),
            has_stopped: false,
            violation: None,
        })
    }

    // ---- clients ----

    /// Connects a client of `leeward-session`.
    ///
    /// # Panics
    /// If the algorithm can't build a client from the parameters of its server.
    pub fn connect(&mut self) -> ClientId {
        self.connect_with(ConnectionConfig::default())
    }

    /// Connects a client of `leeward-session`, with other limits.
    ///
    /// # Panics
    /// As [`Pair::connect`].
    pub fn connect_with(&mut self, config: ConnectionConfig) -> ClientId {
        let parts = (self.algorithm.build_client)(&self.params, &self.environment);
        let connection = Connection::new(parts.expect("the server took the same parameters"), config);
        self.add_client(Client::Honest(Box::new(HonestClient::new(connection))))
    }

    /// Connects a raw client, which sends only the bytes of the test.
    pub fn connect_raw(&mut self) -> ClientId {
        self.add_client(Client::Raw(Box::new(RawClient::new())))
    }

    /// Submits a request. Its token is for [`Pair::outcome`] and [`Pair::cancel`].
    pub fn submit(&mut self, client: ClientId, payload: &[u8]) -> usize {
        self.submit_with(client, payload, Priority::HIGHEST, Budget::UNLIMITED)
    }

    /// Submits a request of this priority, and with a budget of its own if that is limited.
    ///
    /// # Panics
    /// For a raw client.
    pub fn submit_with(&mut self, client: ClientId, payload: &[u8], priority: Priority, budget: Budget) -> usize {
        let random = self.rng.bits();
        let now = self.now;
        let token = self.honest_mut(client).submit(now, payload, budget, priority, random);
        self.pump(client.0);
        self.settle_step();
        token
    }

    /// Cancels a request. Returns whether it had no end yet.
    pub fn cancel(&mut self, client: ClientId, request: usize) -> bool {
        let now = self.now;
        let cancelled = self.honest_mut(client).cancel(now, request);
        self.pump(client.0);
        cancelled
    }

    /// Sends a ping from an honest client. Returns whether the client could send it.
    pub fn ping(&mut self, client: ClientId) -> bool {
        let now = self.now;
        let sent = self.honest_mut(client).with(now, |connection, _| connection.ping(now));
        self.pump(client.0);
        sent
    }

    /// Deregisters an honest client.
    pub fn deregister(&mut self, client: ClientId) {
        let now = self.now;
        self.honest_mut(client).with(now, |connection, mut events| connection.deregister(now, &mut events));
        self.pump(client.0);
    }

    /// Closes a client's connection, without waiting for answers.
    pub fn close(&mut self, client: ClientId) {
        let now = self.now;
        match &mut self.links[client.0].client {
            Client::Honest(honest) => honest.with(now, |connection, mut events| connection.close(now, &mut events)),
            Client::Raw(raw) => raw.is_closing = true,
        }
        self.pump(client.0);
    }

    /// Sends these bytes from a raw client.
    ///
    /// # Panics
    /// For an honest client.
    pub fn send_bytes(&mut self, client: ClientId, bytes: &[u8]) {
        self.raw_mut(client).unsent.extend_from_slice(bytes);
        self.pump(client.0);
    }

    /// Sends this frame from a raw client.
    ///
    /// # Panics
    /// For an honest client, or if the frame is longer than any server accepts.
    pub fn send_frame(&mut self, client: ClientId, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        let encoded = Encoder::new(PayloadLimit::MAX).append(frame, &mut bytes);
        encoded.expect("a frame that can be encoded");
        self.send_bytes(client, &bytes);
    }

    /// Sets how a client reads from now on.
    pub fn set_read_mode(&mut self, client: ClientId, mode: ReadMode) {
        self.links[client.0].read_mode = mode;
        match mode {
            ReadMode::Eager => self.on_arrival(client.0, Endpoint::Client),
            ReadMode::Slow(_, every) => self.event_queue.schedule(self.now + every, SimEvent::Read(client.0)),
            ReadMode::Paused => {}
        }
    }

    // ---- the wire ----

    /// Cuts a connection.
    pub fn cut(&mut self, client: ClientId, cut: Cut) {
        let (now, queue, link) = (self.now, &mut self.event_queue, &mut self.links[client.0]);
        if let (Some(path), Cut::Silence | Cut::Reset) = (&mut link.datagrams, cut) {
            path.is_cut = true;
        }
        match cut {
            Cut::ClientHalf => link.up.finish(now, queue),
            Cut::ServerHalf => link.down.finish(now, queue),
            // With datagrams, the ends detect the silence by themselves.
            Cut::Silence if link.datagrams.is_some() => {}
            Cut::Silence => {
                link.up.freeze();
                link.down.freeze();
            }
            Cut::Reset => {
                link.up.reset(now);
                link.down.reset(now);
                self.close_server_end(client.0);
                self.on_arrival(client.0, Endpoint::Client);
            }
        }
    }

    /// Changes the chunks in flight to an end of a connection: swaps, damages, duplicates, adds.
    /// The conservation checks then only require that each request of this client ends once.
    pub fn tamper(&mut self, client: ClientId, to: Endpoint, change: impl FnOnce(&mut Vec<Vec<u8>>)) {
        self.links[client.0].is_tampered = true;
        self.forge(client, to, change);
    }

    /// Like [`Pair::tamper`], but hidden from the conservation checks, which must detect it. For
    /// tests of the checks.
    pub fn forge(&mut self, client: ClientId, to: Endpoint, change: impl FnOnce(&mut Vec<Vec<u8>>)) {
        let link = &mut self.links[client.0];
        let stream = if to == Endpoint::Server { &mut link.up } else { &mut link.down };
        stream.tamper(self.now, &mut self.event_queue, change);
    }

    /// Makes the server forget its answers, once in so many calls over datagrams. The conservation
    /// checks must detect it.
    pub fn forget_answers(&mut self, client: ClientId, one_in: u64) {
        if let Some(path) = &mut self.links[client.0].datagrams {
            path.forget_one_in = one_in;
        }
    }

    // ---- the server ----

    /// Stops the server: it admits no more calls, answers pending ones, and then closes all
    /// connections.
    pub fn stop(&mut self) {
        self.core.stopping_since.get_or_insert(self.now);
        self.settle_step();
    }

    fn honest(&self, client: ClientId) -> &HonestClient {
        let Client::Honest(honest) = &self.links[client.0].client else { panic!("a raw client has no connection") };
        honest
    }

    fn honest_mut(&mut self, client: ClientId) -> &mut HonestClient {
        let Client::Honest(honest) = &mut self.links[client.0].client else { panic!("a raw client has no connection") };
        honest
    }

    fn raw(&self, client: ClientId) -> &RawClient {
        let Client::Raw(raw) = &self.links[client.0].client else { panic!("not a raw client") };
        raw
    }

    fn raw_mut(&mut self, client: ClientId) -> &mut RawClient {
        let Client::Raw(raw) = &mut self.links[client.0].client else { panic!("not a raw client") };
        raw
    }
}
