//! Both ends of a connection on a wire in virtual time, for tests: a server's core and any number of clients, all choices
//! from one seed.
//!
//! - [`Pair`]: the whole, and what is done to it. [`PairConfig`]: the wire and the server's bounds. [`Chance`]: the seed.
//! - [`frames`]: frames by hand. [`order`]: whether a controller hears of a session's frames in order. Tests over real sockets use
//!   both, too.
//! - `far`: datagrams instead of a stream, in a network with faults.
//! - `agenda`: what happens when. `stream`: one direction of a connection, which delays, cuts and breaks. `core`: the
//!   controller and the workers. `server`, `client`: the ends. `steps`: how time passes. `seen`: what a test can look at.
//!   `books`: what must hold after every step.
//!
//! The server's end follows the engine of `leeward-engine` in what it reads, holds back, sweeps and ends. Never here: a
//! socket, a clock, a thread; nor what a scenario does, which is the caller's.
//!
//! # Example
//! ```
//! use leeward_core::params::Params;
//! use leeward_core::registry::Environment;
//! use leeward_core::units::Nanos;
//! use leeward_pair::{Ended, Pair, PairConfig, echo};
//!
//! let registry = leeward_controllers::builtin();
//! let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
//! let breakwater = registry.find("breakwater")?;
//! let mut pair = Pair::new(breakwater, &Params::default(), environment, PairConfig::default(), echo(Nanos(1_000)))?;
//! let client = pair.connect();
//! let request = pair.submit(client, b"hello");
//! pair.run_for(Nanos::from_millis(1));
//! assert_eq!(pair.ended(client, request), Some(&Ended::Completed(b"hello".to_vec())));
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
    /// The client's half ends: the server learns it after all that was said, and may go on talking.
    ClientHalf,
    /// The server's half ends, although the server did not say so.
    ServerHalf,
    /// Both, at once: what is under way is lost, and both are told.
    Reset,
    /// Nothing arrives any more, and nobody is told.
    Silence,
}

/// A connection: both ends and the bytes between them.
struct Link {
    client: Client,
    read_mode: ReadMode,
    up: Stream,
    down: Stream,
    server: Option<ServerEnd>,
    /// Its datagrams, if it is no stream.
    datagrams: Option<Box<DatagramPath>>,
    /// Its bytes were changed on the way: nothing is promised to its client.
    is_tampered: bool,
    /// Why its client was sent away.
    close_reason: Option<(ErrorCode, String)>,
    /// Why our client's connection was over.
    error: Option<ConnectionError>,
}

enum Client {
    Honest(Box<HonestClient>),
    Raw(Box<RawClient>),
}

/// A server's core and its clients on a wire in virtual time.
///
/// Everything that is done to it happens now; time passes in [`Pair::step`] and what calls it. After every step the books
/// are checked, and the first thing that does not hold is kept ([`Pair::violation`]).
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
    /// Links that the server has.
    open: Vec<usize>,
    totals: SessionTotals,
    has_stopped: bool,
    violation: Option<String>,
}

impl Pair {
    /// A server of this algorithm, whose calls `handler` executes.
    ///
    /// # Errors
    /// Parameters that can't stand together.
    pub fn new(
        algorithm: &Algorithm,
        params: &Params,
        environment: Environment,
        config: PairConfig,
        handler: Handler,
    ) -> Result<Self, ParamError> {
        let environment = Environment { cores: 1, ..environment };
        let core = Core::new(algorithm.server(params, &environment)?, handler, config);
        let mut agenda = EventQueue::default();
        agenda.schedule(Time::ZERO, SimEvent::Tick);
        agenda.schedule(Time::ZERO + config.scan_interval, SimEvent::Scan);
        Ok(Pair {
            algorithm: algorithm.clone(),
            params: params.clone(),
            environment,
            config,
            now: Time::ZERO,
            event_queue: agenda,
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
    /// If the algorithm can't make a client of parameters of which it has made a server.
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

    /// A client connects that says nothing but what it is told to.
    pub fn connect_raw(&mut self) -> ClientId {
        self.add_client(Client::Raw(Box::new(RawClient::new())))
    }

    /// Submits a request. Its name is for [`Pair::ended`] and [`Pair::cancel`].
    pub fn submit(&mut self, client: ClientId, payload: &[u8]) -> usize {
        self.submit_with(client, payload, Priority::HIGHEST, Budget::UNLIMITED)
    }

    /// Submits a request of this priority, and with a budget of its own if it is limited.
    ///
    /// # Panics
    /// If it is no client of ours.
    pub fn submit_with(&mut self, client: ClientId, payload: &[u8], priority: Priority, budget: Budget) -> usize {
        let random = self.rng.bits();
        let now = self.now;
        let token = self.honest_mut(client).submit(now, payload, budget, priority, random);
        self.pump(client.0);
        self.settle_step();
        token
    }

    /// Takes a request back. Whether it had no end yet.
    pub fn cancel(&mut self, client: ClientId, request: usize) -> bool {
        let now = self.now;
        let cancelled = self.honest_mut(client).cancel(now, request);
        self.pump(client.0);
        cancelled
    }

    /// A client of ours asks for a sign of life. Whether it could.
    pub fn ping(&mut self, client: ClientId) -> bool {
        let now = self.now;
        let asks = self.honest_mut(client).with(now, |connection, _| connection.ping(now));
        self.pump(client.0);
        asks
    }

    /// A client of ours makes no more calls.
    pub fn deregister(&mut self, client: ClientId) {
        let now = self.now;
        self.honest_mut(client).with(now, |connection, mut events| connection.deregister(now, &mut events));
        self.pump(client.0);
    }

    /// A client closes its connection, whatever is under way.
    pub fn close(&mut self, client: ClientId) {
        let now = self.now;
        match &mut self.links[client.0].client {
            Client::Honest(honest) => honest.with(now, |connection, mut events| connection.close(now, &mut events)),
            Client::Raw(raw) => raw.is_closing = true,
        }
        self.pump(client.0);
    }

    /// A raw client says these bytes.
    ///
    /// # Panics
    /// If it is a client of ours.
    pub fn send_bytes(&mut self, client: ClientId, bytes: &[u8]) {
        self.raw_mut(client).unsent.extend_from_slice(bytes);
        self.pump(client.0);
    }

    /// A raw client says this frame.
    ///
    /// # Panics
    /// If it is a client of ours, or the frame is longer than any server accepts.
    pub fn send_frame(&mut self, client: ClientId, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        let encoded = Encoder::new(PayloadLimit::MAX).append(frame, &mut bytes);
        encoded.expect("a frame that can be encoded");
        self.send_bytes(client, &bytes);
    }

    /// How a client reads from now on.
    pub fn set_read_mode(&mut self, client: ClientId, reading: ReadMode) {
        self.links[client.0].read_mode = reading;
        match reading {
            ReadMode::Eager => self.on_arrival(client.0, Endpoint::Client),
            ReadMode::Slow(_, every) => self.event_queue.schedule(self.now + every, SimEvent::Read(client.0)),
            ReadMode::Paused => {}
        }
    }

    // ---- the wire ----

    /// Cuts a connection.
    pub fn cut(&mut self, client: ClientId, cut: Cut) {
        let (now, agenda, link) = (self.now, &mut self.event_queue, &mut self.links[client.0]);
        if let (Some(far), Cut::Silence | Cut::Reset) = (&mut link.datagrams, cut) {
            far.is_cut = true;
        }
        match cut {
            Cut::ClientHalf => link.up.finish(now, agenda),
            Cut::ServerHalf => link.down.finish(now, agenda),
            // Where datagrams are cut off, the ends find out by themselves.
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

    /// Changes the chunks that are on their way to an end of a connection: swaps, damages, doubles, adds. The books then
    /// promise its client nothing but that each of its requests ends once.
    pub fn tamper(&mut self, client: ClientId, to: Endpoint, change: impl FnOnce(&mut Vec<Vec<u8>>)) {
        self.links[client.0].is_tampered = true;
        self.forge(client, to, change);
    }

    /// Like [`Pair::tamper`], behind the books' back: they must find it. For tests of the books.
    pub fn forge(&mut self, client: ClientId, to: Endpoint, change: impl FnOnce(&mut Vec<Vec<u8>>)) {
        let link = &mut self.links[client.0];
        let stream = if to == Endpoint::Server { &mut link.up } else { &mut link.down };
        stream.tamper(self.now, &mut self.event_queue, change);
    }

    /// Has the server forget, once in so many calls over datagrams, what it has answered: the books must find it.
    pub fn forget_answers(&mut self, client: ClientId, one_in: u64) {
        if let Some(far) = &mut self.links[client.0].datagrams {
            far.forget_one_in = one_in;
        }
    }

    // ---- the server ----

    /// The server stops: nothing more is admitted, what is owed is answered, and then everybody is sent away.
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
