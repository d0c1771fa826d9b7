//! Configuration of a run, and the errors that keep a run from beginning.

use std::io;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method};
use leeward_core::units::Nanos;
use leeward_load::Polling;
use leeward_load::schedule::ScheduleError;
use leeward_tls::ClientTls;

use crate::target::Target;

/// Protocol of the connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1, with one request in flight on each connection.
    #[default]
    Http1,
    /// HTTP/2, with as many streams as the server permits. Without encryption the server must
    /// expect it (prior knowledge).
    Http2,
}

/// A name with its share of the requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// Name, unique among the shares of its kind.
    pub name: String,
    /// Weight, above 0. The shares need not add up to 1.
    pub weight: f64,
}

/// Configuration of a run.
#[derive(Clone, Debug)]
pub struct HttpLoadConfig {
    /// URLs of the requests, at least one.
    pub targets: Vec<Target>,
    /// Number of connections. `None`: the plan's number of clients.
    ///
    /// A request of the schedule goes to any connection, so the number need not be that of the
    /// schedule's clients.
    pub connections: Option<u32>,
    /// Protocol of the connections.
    pub version: HttpVersion,
    /// Whether requests are unary gRPC calls: the status is `grpc-status`, in headers or trailers.
    pub is_grpc: bool,
    /// Method of the requests.
    pub method: Method,
    /// Headers of each request.
    pub headers: HeaderMap,
    /// Content of each request; of a gRPC call its encoded message, without the prefix.
    pub body: Bytes,
    /// Classes of the requests. Empty: requests have no class.
    pub classes: Vec<Share>,
    /// Header with the name of a request's class. `None`: member `p` of the `leeward` header.
    pub class_header: Option<HeaderName>,
    /// Tenants of the requests. Empty: requests have no tenant.
    pub tenants: Vec<Share>,
    /// Header with the name of a request's tenant.
    pub tenant_header: HeaderName,
    /// Time that a request may take from its due time. Each request carries the rest of it: in the
    /// `leeward` header, or as `grpc-timeout`. A request that waits longer for a connection
    /// expires.
    pub budget: Option<Nanos>,
    /// Latency objective: a response within it, from the due time, is good.
    pub slo: Nanos,
    /// Time after which a request is given up, from its due time.
    ///
    /// A waiting request expires then. A request in flight counts as timed out; its HTTP/1.1
    /// connection is closed and opened again, its HTTP/2 stream is reset.
    pub timeout: Option<Nanos>,
    /// The part at the beginning that the measured counts exclude.
    pub warmup: Nanos,
    /// Longest wait for the last answers after the last request.
    pub drain: Nanos,
    /// A request that is issued more than this after its time counts as late.
    pub late_after: Nanos,
    /// Window length of the time series; `None`: no time series.
    pub window: Option<Nanos>,
    /// Interval of progress reports.
    pub progress_every: Nanos,
    /// Time for opening a connection, the handshake of TLS included.
    pub connect_timeout: Nanos,
    /// How the generator waits.
    pub polling: Polling,
    /// The CPU to run on, by the kernel's number.
    pub cpu: Option<usize>,
    /// Encryption of connections to `https` targets.
    pub tls: Option<ClientTls>,
}

impl HttpLoadConfig {
    /// Configuration of `GET` requests over HTTP/1.1 with the objective `slo`: no warm-up, a
    /// time-out of ten seconds, two seconds for the last answers.
    pub fn new(targets: Vec<Target>, slo: Nanos) -> Self {
        HttpLoadConfig {
            targets,
            connections: None,
            version: HttpVersion::default(),
            is_grpc: false,
            method: Method::GET,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            classes: Vec::new(),
            class_header: None,
            tenants: Vec::new(),
            tenant_header: HeaderName::from_static("x-tenant"),
            budget: None,
            slo,
            timeout: Some(Nanos::from_secs(10)),
            warmup: Nanos::ZERO,
            drain: Nanos::from_secs(2),
            late_after: Nanos::from_micros(100),
            window: None,
            progress_every: Nanos::from_millis(100),
            connect_timeout: Nanos::from_secs(5),
            polling: Polling::default(),
            cpu: None,
            tls: None,
        }
    }
}

/// Error without a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpLoadError {
    /// A host name has no address, or no server listens at any of its addresses.
    #[error("{endpoint}: {source}")]
    Resolve {
        /// Endpoint of the target.
        endpoint: String,
        /// The system's error.
        source: io::Error,
    },
    /// A connection could not be opened before the first request.
    #[error("connection {number} of {of} to {endpoint}: {reason}")]
    Connect {
        /// Endpoint of the target.
        endpoint: String,
        /// Number of the connection, from 1.
        number: usize,
        /// Number of connections in all.
        of: usize,
        /// Error of the system, or of TLS.
        reason: String,
    },
    /// The caller stopped the run before the first request.
    #[error("stopped before the first request")]
    Stopped,
    /// The thread could not be moved to the CPU.
    #[error(transparent)]
    Pin(leeward_load::LoadError),
    /// The event loop could not be set up.
    #[error("preparing the event loop: {0}")]
    EventLoop(#[source] io::Error),
    /// The server's capacity could not be measured, although the demand is a multiple of it.
    #[error("the server's capacity could not be measured: {0}")]
    CapacityUnknown(String),
    /// The requests can't be drawn.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The settings contradict each other.
    #[error("{0}")]
    Config(String),
}
