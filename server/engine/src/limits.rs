//! Limits of a server's connections and of their memory. Does not contain the reaction at a limit.

use crate::receive::IoUring;
use leeward_core::budget::Budget;
use leeward_core::units::Nanos;
use leeward_datagram::DatagramSize;

/// Limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum open connections.
    pub connections: usize,
    /// Maximum bytes that may wait for a peer; the peer is not read while more wait. While its
    /// socket is full, the limit is 64 KiB if a response longer than 16 KiB waits, or if more than
    /// half of `send_memory` is used.
    pub unsent: usize,
    /// Memory, in bytes, for incoming requests that exceed a connection's own buffer, for all
    /// connections together.
    pub receive_memory: usize,
    /// Memory, in bytes, for responses that were not taken, for all connections together. Above it
    /// only connections that take their responses are read, above twice as much none. With a
    /// protocol that [bounds](crate::Protocol::BOUNDS_ANSWERS) its responses, this applies to long
    /// responses only.
    pub send_memory: usize,
    /// A connection that sends nothing for this long, with no response pending, is closed. `None`:
    /// never.
    pub idle_timeout: Option<Nanos>,
    /// Maximum time for receiving one request.
    pub request_timeout: Nanos,
    /// Maximum time for which a peer may take nothing.
    pub write_timeout: Nanos,
    /// Maximum time that a stop waits for responses to leave.
    pub drain_timeout: Nanos,
    /// Maximum time from the beginning of an encrypted connection to the end of its handshake,
    /// waits included.
    pub handshake_timeout: Nanos,
    /// Whether several sockets may be read and written in one system call.
    pub io_uring: IoUring,
    /// Budget of a request for queues, if it brings none.
    pub budget: Budget,
    /// Latency objective, for counting requests in time.
    pub slo: Nanos,
    /// The longest datagram, if datagrams are served.
    pub datagram: DatagramSize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 16_384,
            unsent: 1 << 20,
            receive_memory: 64 << 20,
            send_memory: 128 << 20,
            idle_timeout: Some(Nanos::from_secs(300)),
            request_timeout: Nanos::from_secs(300),
            write_timeout: Nanos::from_secs(10),
            drain_timeout: Nanos::from_secs(5),
            handshake_timeout: Nanos::from_secs(3),
            io_uring: IoUring::Auto,
            budget: Budget::UNLIMITED,
            slo: Nanos::ZERO,
            datagram: DatagramSize::DEFAULT,
        }
    }
}
