//! Bounds of a server's connections and of the memory that they hold. Never here: what happens at a bound.

use crate::receive::IoUring;
use leeward_core::budget::Budget;
use leeward_core::units::Nanos;
use leeward_datagram::DatagramSize;

/// Bounds of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections that may be open at once.
    pub connections: usize,
    /// Bytes that may wait for a peer; nothing of it is read while more do. While its socket is full 64 KiB are enough, if an answer longer
    /// than 16 KiB is among them or more than half of `sending` is in use.
    pub unsent: usize,
    /// Memory for requests that are coming and are longer than a connection's own buffer, in bytes, of all connections
    /// together.
    pub receive_memory: usize,
    /// Memory of answers that have not been taken, in bytes, of all connections together. Beyond it only connections are read that take
    /// theirs, and beyond twice as much none; with a protocol that [bounds](crate::Protocol::BOUNDS_ANSWERS) its answers these are the ones
    /// that may have long answers.
    pub send_memory: usize,
    /// A connection from which nothing has come for this long, and which is owed nothing, ends. `None`: never.
    pub idle_timeout: Option<Nanos>,
    /// A connection that takes longer for one request ends.
    pub request_timeout: Nanos,
    /// A connection that takes nothing for this long ends.
    pub write_timeout: Nanos,
    /// A stop waits this long for answers to go out.
    pub drain_timeout: Nanos,
    /// An encrypted connection has this long from its beginning to the end of its handshake, its wait for a turn included.
    pub handshake_timeout: Nanos,
    /// Whether several sockets may be read and written in one system call.
    pub io_uring: IoUring,
    /// Budget of a request for queues if it brings none.
    pub budget: Budget,
    /// The objective, for counting what was in time.
    pub slo: Nanos,
    /// The longest datagram, where datagrams are served.
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
