//! Configuration of a run, and the errors that keep a run from beginning.

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

/// Source of a run's requests.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Open loop: each request is issued when it is due, independent of the server. One connection
    /// per client.
    Open(Schedule),
    /// Closed loop: each connection keeps `outstanding` requests in flight.
    ///
    /// Measures capacity. Its latencies say little, because a slow server gets fewer requests. A
    /// request waits for its credit, and does not expire. A client sends its next request at once
    /// after a rejection. After a request that ended without being sent, the client pauses for 10
    /// ms or more.
    Closed {
        /// Connections.
        connections: u32,
        /// Requests in flight on each connection.
        outstanding: u32,
        /// Time for which each request keeps the server busy.
        service: ServiceTime,
        /// Seed of the service times.
        seed: u64,
        /// Time for which requests are issued.
        duration: Nanos,
    },
}

impl Plan {
    /// The same closed loop over the first `count` connections only, at least one. An open loop
    /// stays as it is.
    pub(crate) fn of_first(&self, count: u32) -> Plan {
        let mut plan = self.clone();
        if let Plan::Closed { connections, .. } = &mut plan {
            *connections = count.clamp(1, (*connections).max(1));
        }
        plan
    }

    /// Number of connections.
    pub fn connections(&self) -> u32 {
        match self {
            Plan::Open(schedule) => schedule.clients(),
            Plan::Closed { connections, .. } => *connections,
        }
    }

    /// Time for which requests are issued.
    pub fn duration(&self) -> Nanos {
        match self {
            Plan::Open(schedule) => schedule.duration(),
            Plan::Closed { duration, .. } => *duration,
        }
    }
}

/// How the generator waits for the next request or answer.
///
/// An answer wakes the generator at once. If it sleeps, waking takes some microseconds, which count
/// as latency. To measure microseconds, use [`Polling::Busy`] on a CPU of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Polling {
    /// Sleeps. Requests leave some tens of microseconds late, which the report shows.
    Sleep,
    /// Sleeps until shortly before the next request is due, then polls.
    #[default]
    Hybrid,
    /// Never sleeps: occupies a whole core, and should have it for itself.
    Busy,
}

/// Correct answers to requests without a [`RequestGenerator`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerCheck {
    /// All answers.
    #[default]
    Any,
    /// Empty answers, as the synthetic service sends. Other answers count as failed.
    Empty,
}

/// Configuration of a run.
#[derive(Clone, Debug)]
pub struct LoadConfig {
    /// The server's address.
    pub address: SocketAddr,
    /// The procedure that requests call.
    pub method: Method,
    /// Length of each request's payload in bytes, at least 8. The first 8 bytes are the synthetic
    /// service's service time in nanoseconds, little-endian; the others are 0.
    pub payload: usize,
    /// Generates the requests of services other than the synthetic one.
    pub ask: Option<Arc<dyn RequestGenerator>>,
    /// Correct answers, if `ask` is `None`.
    pub answers: AnswerCheck,
    /// Latency objective: a response within it, from the intended time, is good.
    pub slo: Nanos,
    /// Queueing budget of a request from its intended time, the wait in the client included. The
    /// rest is sent along; a request that waits that long for a credit expires. Unlimited: the
    /// budgets of the connection and of the server apply.
    pub budget: Budget,
    /// Time after which an application gives up, from the intended time: a later response counts as
    /// timed out.
    pub timeout: Option<Nanos>,
    /// The part at the beginning that the measured counts exclude.
    pub warmup: Nanos,
    /// Longest wait for the last answers after the last request.
    pub drain: Nanos,
    /// A request that is issued more than this after its time counts as late.
    pub late_after: Nanos,
    /// Window length of the time series; `None`: no time series.
    pub window: Option<Nanos>,
    /// Window length of the fine time series (responses only); `None`: no such series. Shows
    /// effects within milliseconds.
    pub fine_window: Option<Nanos>,
    /// Interval of progress reports.
    pub progress_every: Nanos,
    /// Time that the server may take to accept a connection and welcome it.
    pub connect_timeout: Nanos,
    /// How the generator waits.
    pub polling: Polling,
    /// The CPU to run on, by the kernel's number.
    pub cpu: Option<usize>,
    /// Limits of each connection.
    pub connection: ConnectionConfig,
    /// Transport of each connection.
    pub transport: Transport,
    /// The longest datagram that is sent and requested, for the datagram transport.
    pub datagram: DatagramSize,
    /// Encryption of each TCP connection, and the name that the server must prove.
    pub tls: Option<(leeward_rpc::tls::ClientTls, leeward_rpc::tls::ServerName)>,
}

impl LoadConfig {
    /// Configuration for `address` with the objective `slo`: method 0, no warm-up, two seconds for
    /// the last answers.
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
            tls: None,
        }
    }
}

/// A hint for a load on a server that does not listen yet.
fn hint(number: u32, source: &io::Error) -> &'static str {
    match (number, source.kind()) {
        (1, io::ErrorKind::ConnectionRefused) => {
            "; no server listens there. A server that still prepares its data listens only after it has printed `serving`"
        }
        _ => "",
    }
}

/// Error without a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A connection could not be opened.
    #[error("connection {number} of {of} to {address}: {source}{}", hint(*number, source))]
    Connect {
        /// The server's address.
        address: SocketAddr,
        /// Number of the connection, from 1.
        number: u32,
        /// Number of connections in all.
        of: u32,
        /// The system's error.
        source: io::Error,
    },
    /// The server closed connections, or did not welcome them in time.
    #[error("{address} accepted {welcomed} of {of} connections: {reason}")]
    Welcome {
        /// The server's address.
        address: SocketAddr,
        /// Connections that the server welcomed.
        welcomed: u32,
        /// Number of connections in all.
        of: u32,
        /// Reason for which the others failed.
        reason: String,
    },
    /// The caller stopped the run before the first request.
    #[error("stopped before the first request")]
    Stopped,
    /// The algorithm's client half could not be built.
    #[error(transparent)]
    Client(#[from] ParamError),
    /// The thread could not be moved to the CPU.
    #[error("can't run on CPU {cpu}: {source}")]
    Pin {
        /// The CPU.
        cpu: usize,
        /// The system's error.
        source: io::Error,
    },
    /// Waiting for sockets failed.
    #[error("waiting for sockets: {0}")]
    Poll(#[source] io::Error),
    /// The server's capacity could not be measured, although the demand is a multiple of it.
    #[error("the server's capacity could not be measured: {0}")]
    CapacityUnknown(&'static str),
    /// The requests can't be drawn.
    #[error(transparent)]
    Schedule(#[from] crate::schedule::ScheduleError),
    /// The settings contradict each other.
    #[error("{0}")]
    Config(&'static str),
}
