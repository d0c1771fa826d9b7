//! Configuration of a pair: the wire, the server's bounds, and what a call takes. Plain data.

use super::rng::Rng;
use leeward_core::units::Nanos;
use leeward_wire::{PayloadLimit, Version};

/// How bytes travel, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireModel {
    /// From one end to the other.
    pub delay: Nanos,
    /// Each chunk takes up to this much longer, evenly distributed: chunks of different connections overtake each other.
    pub jitter: Nanos,
    /// Most bytes of a chunk, into which written bytes are cut (1 to this many); 0: they stay whole.
    pub chunk_max: usize,
    /// Bytes of a stream that may be under way or unread before its writer has to wait.
    pub buffer_max: usize,
}

impl Default for WireModel {
    fn default() -> Self {
        WireModel { delay: Nanos::from_micros(5), jitter: Nanos::ZERO, chunk_max: 0, buffer_max: 256 * 1024 }
    }
}

/// Faults of a network that carries datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Of a thousand datagrams, so many are lost.
    pub loss: u64,
    /// So many come twice.
    pub duplication: u64,
    /// So many come later than they would, and are overtaken.
    pub reordering: u64,
    /// By up to this much.
    pub extra_delay_max: Nanos,
}

impl Faults {
    /// A network with as many of each, of a thousand.
    pub fn each(of_thousand: u64) -> Self {
        Faults {
            loss: of_thousand,
            duplication: of_thousand,
            reordering: of_thousand,
            extra_delay_max: Nanos::from_millis(3),
        }
    }
}

/// A pair's server, its wire, and the seed of every choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairConfig {
    /// Draws everything random.
    pub seed: u64,
    /// The wire of every connection.
    pub wire: WireModel,
    /// Faults of the network between the server and clients of ours, which use datagrams then; `None`: streams. Raw clients
    /// use streams.
    pub datagrams: Option<Faults>,
    /// Calls that are executed at the same time.
    pub workers: usize,
    /// Calls that a connection may have unanswered.
    pub unanswered_max: usize,
    /// The longest argument that the server accepts.
    pub payload_max: PayloadLimit,
    /// The newest version of the protocol that the server speaks.
    pub max_version: Version,
    /// Unsent bytes with which a connection is not read.
    pub unsent_max: usize,
    /// Connections that may be open.
    pub connections_max: usize,
    /// How often silent, stuck and paused connections are looked at.
    pub scan_interval: Nanos,
    /// How long a client that is owed nothing may be silent.
    pub idle_timeout: Nanos,
    /// How long one frame may take.
    pub frame_timeout: Nanos,
    /// How long a client may take nothing of what waits for it.
    pub write_timeout: Nanos,
    /// How long a client that was told why it is sent away has to end its half.
    pub linger: Nanos,
    /// How long a server that stops waits for what it owes.
    pub drain_timeout: Nanos,
}

impl Default for PairConfig {
    fn default() -> Self {
        PairConfig {
            seed: 1,
            wire: WireModel::default(),
            datagrams: None,
            workers: 1,
            unanswered_max: 256,
            payload_max: PayloadLimit::DEFAULT,
            max_version: Version::NEWEST,
            unsent_max: 1 << 20,
            connections_max: usize::MAX,
            scan_interval: Nanos::from_millis(10),
            idle_timeout: Nanos::from_secs(60),
            frame_timeout: Nanos::from_secs(60),
            write_timeout: Nanos::from_secs(10),
            linger: Nanos::from_millis(100),
            drain_timeout: Nanos::from_secs(10),
        }
    }
}

/// Work of an admitted call: its outcome, and how long it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// A result.
    Result(Nanos, Vec<u8>),
    /// No result, and words why.
    Failure(Nanos, String),
    /// A refused lock's name: a drop.
    Congested(Nanos, String),
    /// The call is never done, and keeps no worker.
    Hang,
}

/// Executes calls: is given an argument and what it may draw from.
pub type Handler = Box<dyn FnMut(&[u8], &mut Rng) -> Work>;

/// A handler that takes `service` and answers with the argument. It has no result for `no`.
pub fn echo(service: Nanos) -> Handler {
    Box::new(move |payload, _| match payload {
        b"no" => Work::Failure(service, "no".into()),
        payload => Work::Result(service, payload.to_vec()),
    })
}
