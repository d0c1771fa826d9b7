//! Configuration of a pair: the wire, the server's limits, and the work of a call. Plain data.

use super::rng::Rng;
use leeward_core::units::Nanos;
use leeward_wire::{PayloadLimit, Version};

/// Model of the wire, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireModel {
    /// One-way delay.
    pub delay: Nanos,
    /// Extra delay of each chunk, uniformly distributed up to this: chunks of different connections
    /// overtake each other.
    pub jitter: Nanos,
    /// Longest chunk, in bytes. Written bytes are cut into chunks of 1 to this many; 0: they stay
    /// whole.
    pub chunk_max: usize,
    /// Bytes of a stream that may be in flight or unread before its writer has to wait.
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
    /// Lost datagrams, per thousand.
    pub loss: u64,
    /// Duplicated datagrams, per thousand.
    pub duplication: u64,
    /// Delayed datagrams, which others overtake, per thousand.
    pub reordering: u64,
    /// Maximum extra delay of a delayed datagram.
    pub extra_delay_max: Nanos,
}

impl Faults {
    /// A network with the same rate of each fault, per thousand.
    pub fn each(of_thousand: u64) -> Self {
        Faults {
            loss: of_thousand,
            duplication: of_thousand,
            reordering: of_thousand,
            extra_delay_max: Nanos::from_millis(3),
        }
    }
}

/// Configuration of a pair's server and wire, and the seed of all random choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairConfig {
    /// Seed of all random choices.
    pub seed: u64,
    /// The wire of every connection.
    pub wire: WireModel,
    /// Faults of the network between the server and honest clients, which then use datagrams;
    /// `None`: streams. Raw clients use streams.
    pub datagrams: Option<Faults>,
    /// Calls that are executed at the same time.
    pub workers: usize,
    /// Unanswered calls that a connection may have.
    pub unanswered_max: usize,
    /// The longest argument that the server accepts.
    pub payload_max: PayloadLimit,
    /// The newest protocol version that the server speaks.
    pub max_version: Version,
    /// Unsent bytes at which the server stops reading a connection.
    pub unsent_max: usize,
    /// Connections that may be open.
    pub connections_max: usize,
    /// Interval of the scan for silent, stuck and paused connections.
    pub scan_interval: Nanos,
    /// Time that a client without pending answers may be silent.
    pub idle_timeout: Nanos,
    /// Time that one frame may take to arrive.
    pub frame_timeout: Nanos,
    /// Time that a client may take no output.
    pub write_timeout: Nanos,
    /// Time that a client has to end its half after the server's final frame.
    pub linger: Nanos,
    /// Time that a stopping server waits for pending answers.
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

/// Work of an admitted call: its outcome and its service time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// A result.
    Result(Nanos, Vec<u8>),
    /// No result, and the reason as text.
    Failure(Nanos, String),
    /// Name of a lock that could not be acquired in time: a rejection.
    Congested(Nanos, String),
    /// The call never completes, and occupies no worker.
    Hang,
}

/// Executes calls, from an argument and random numbers.
pub type Handler = Box<dyn FnMut(&[u8], &mut Rng) -> Work>;

/// A handler with this service time, which returns the argument, and fails for `no`.
pub fn echo(service: Nanos) -> Handler {
    Box::new(move |payload, _| match payload {
        b"no" => Work::Failure(service, "no".into()),
        payload => Work::Result(service, payload.to_vec()),
    })
}
