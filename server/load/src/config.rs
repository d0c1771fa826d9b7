//! Configuration of a run, and the reasons for which a run can't begin.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use leeward_core::budget::Budget;
use leeward_core::params::ParamError;
use leeward_core::units::Nanos;
use leeward_rpc::client::{ConnectionConfig, DatagramSize, Transport};
use leeward_rpc::wire::Method;
use leeward_workload::ServiceTime;

use crate::schedule::Schedule;
use leeward_rpc::generator::RequestGenerator;

/// Where requests come from.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Open loop: requests are issued when they are due, whatever the server does. One connection per client.
    Open(Schedule),
    /// Closed loop: each connection keeps `outstanding` requests under way. Measures capacity; its latencies say little,
    /// because a slow server is asked less. A request waits for its credit, and does not expire.
    /// A client asks again at once after a drop, and after a rest of 10 ms or more where its
    /// request ended without being sent.
    Closed {
        /// Connections.
        connections: u32,
        /// Requests under way on each.
        outstanding: u32,
        /// How long the server should be busy with each.
        service: ServiceTime,
        /// Draws the service times.
        seed: u64,
        /// How long requests are issued.
        duration: Nanos,
    },
}

impl Plan {
    /// The same closed loop over the first `count` connections only, at least one. An open loop stays as it is.
    pub(crate) fn of_first(&self, count: u32) -> Plan {
        let mut plan = self.clone();
        if let Plan::Closed { connections, .. } = &mut plan {
            *connections = count.clamp(1, (*connections).max(1));
        }
        plan
    }

    /// How many connections it needs.
    pub fn connections(&self) -> u32 {
        match self {
            Plan::Open(schedule) => schedule.clients(),
            Plan::Closed { connections, .. } => *connections,
        }
    }

    /// How long requests are issued.
    pub fn duration(&self) -> Nanos {
        match self {
            Plan::Open(schedule) => schedule.duration(),
            Plan::Closed { duration, .. } => *duration,
        }
    }
}

/// How the generator waits for the next request or answer. An answer wakes it at once; but where it sleeps, waking takes
/// some microseconds, which count as latency. To measure microseconds, use [`Polling::Busy`] on a CPU of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Polling {
    /// Sleeps. Requests leave some tens of microseconds late, which the report shows.
    Sleep,
    /// Sleeps until shortly before the next request is due, then polls.
    #[default]
    Hybrid,
    /// Never sleeps: takes a whole core, and should have it for itself.
    Busy,
}

/// Answers to requests without an [`Ask`] that are right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerCheck {
    /// All.
    #[default]
    Any,
    /// Empty ones, as the synthetic service sends. Another service's count as failed.
    Empty,
}

/// A run's settings.
#[derive(Clone, Debug)]
pub struct LoadConfig {
    /// The server.
    pub address: SocketAddr,
    /// Which procedure is called.
    pub method: Method,
    /// Bytes of each request's payload, at least 8. The first 8 are the service time in nanoseconds, little-endian: how
    /// long a synthetic service should keep a core busy. The others are 0.
    pub payload: usize,
    /// Arguments of requests, for other services than the synthetic one.
    pub ask: Option<Arc<dyn RequestGenerator>>,
    /// Answers that are right where `ask` is none.
    pub answers: AnswerCheck,
    /// Latency objective: a response within it, from the intended time, is good.
    pub slo: Nanos,
    /// Budget of a request for queues from when it was due, the client's included. The rest of it is sent along; a
    /// request that waits for a credit for so long expires. Unlimited: the connection's budget applies, and the
    /// server's.
    pub budget: Budget,
    /// An application gives up after this long, from the intended time: a later response counts as timed out.
    pub timeout: Option<Nanos>,
    /// The part at the beginning that the measured counts leave out.
    pub warmup: Nanos,
    /// How long to wait for the last answers after the last request.
    pub drain: Nanos,
    /// A request that is issued more than this after its time counts as late.
    pub late_after: Nanos,
    /// Length of the windows of the time series, if there shall be one.
    pub window: Option<Nanos>,
    /// Length of the windows of the fine time series (responses only), if there shall be one: for what happens within
    /// milliseconds.
    pub fine_window: Option<Nanos>,
    /// How often progress is told.
    pub progress_every: Nanos,
    /// How long the server may take to accept a connection and welcome it.
    pub connect_timeout: Nanos,
    /// How to wait.
    pub polling: Polling,
    /// The CPU to run on, by the kernel's number.
    pub cpu: Option<usize>,
    /// Limits of each connection.
    pub connection: ConnectionConfig,
    /// Transport of each connection.
    pub transport: Transport,
    /// The longest datagram that is sent and asked for, where that is the transport.
    pub datagram: DatagramSize,
    /// Encryption of each TCP connection, and the name that the server must prove.
    #[cfg(feature = "tls")]
    pub tls: Option<(leeward_rpc::tls::ClientTls, leeward_rpc::tls::ServerName)>,
}

impl LoadConfig {
    /// For `address`, with an objective of `slo`: method 0, no warm-up, two seconds for the last answers.
    pub fn new(address: SocketAddr, slo: Nanos) -> Self {
        LoadConfig {
            address,
            method: Method(0),
            payload: 8,
            ask: None,
            answers: AnswerCheck::Any,
            slo,
            budget: Budget::UNLIMITED,
            timeout: None,
            warmup: Nanos::ZERO,
            drain: Nanos::from_secs(2),
            late_after: Nanos::from_micros(100),
            window: None,
            fine_window: None,
            progress_every: Nanos::from_millis(100),
            connect_timeout: Nanos::from_secs(5),
            polling: Polling::default(),
            cpu: None,
            connection: ConnectionConfig::default(),
            transport: Transport::Tcp,
            datagram: DatagramSize::DEFAULT,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

/// A word for who loads a server that is not there yet.
fn hint(number: u32, source: &io::Error) -> &'static str {
    match (number, source.kind()) {
        (1, io::ErrorKind::ConnectionRefused) => {
            "; nobody listens there: a server that still prepares its data does not, until it says `serving`"
        }
        _ => "",
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A connection could not be made.
    #[error("connection {number} of {of} to {address}: {source}{}", hint(*number, source))]
    Connect {
        /// The server.
        address: SocketAddr,
        /// Which connection, from 1.
        number: u32,
        /// How many there should be.
        of: u32,
        /// Error of the system.
        source: io::Error,
    },
    /// Connections that the server closed, or did not welcome in time.
    #[error("{address} welcomed {welcomed} of {of} connections: {reason}")]
    Welcome {
        /// The server.
        address: SocketAddr,
        /// Connections that it welcomed.
        welcomed: u32,
        /// How many there should be.
        of: u32,
        /// Why not the others.
        reason: String,
    },
    /// The caller stopped it before the first request.
    #[error("stopped before the first request")]
    Stopped,
    /// The algorithm's client side could not be made.
    #[error(transparent)]
    Client(#[from] ParamError),
    /// The thread could not be moved to the CPU.
    #[error("can't run on CPU {cpu}: {source}")]
    Pin {
        /// The CPU.
        cpu: usize,
        /// Error of the system.
        source: io::Error,
    },
    /// The system refused to wait for sockets.
    #[error("waiting for sockets: {0}")]
    Poll(#[source] io::Error),
    /// The server's capacity could not be measured, and the demand was to be a multiple of it.
    #[error("the server's capacity could not be measured: {0}")]
    CapacityUnknown(&'static str),
    /// The requests can't be drawn.
    #[error(transparent)]
    Schedule(#[from] crate::schedule::ScheduleError),
    /// The settings make no sense.
    #[error("{0}")]
    Config(&'static str),
}
