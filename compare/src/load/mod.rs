//! The load: one program for all contenders, which differ only in the bytes that are written and
//! counted.
//!
//! The load builds nothing per request that it can build before, so that the server is the limit.
//!
//! - `speak`: the trait of protocols. `bare`, `leeward`, `grpc`: the protocols.
//! - `closed`: many connections, as fast as the server answers. `round_trip`: one request at a
//!   time. `far`: both over datagrams. `sealed`: any protocol within TLS, and handshakes.
//! - `half`: half of a server's capacity, from `leeward-load`, for controllers.

mod bare;
mod closed;
mod far;
mod grpc;
pub(crate) mod half;
mod leeward;
mod round_trip;
pub(crate) mod sealed;
mod speak;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use leeward_core::units::Nanos;
use leeward_rpc::tls::ClientTls;
use sealed::Sealed;

pub(crate) use closed::Closed;

/// Protocol of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Length-prefixed messages, as long as Leeward's.
    Bare,
    /// Leeward's protocol.
    Leeward,
    /// Leeward's protocol within TLS.
    LeewardTls,
    /// gRPC over HTTP/2.
    Grpc,
    /// gRPC within TLS.
    GrpcTls,
    /// Datagrams as long as Leeward's.
    BareUdp,
    /// Leeward's protocol over datagrams.
    LeewardUdp,
}

/// Load of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// A single connection with one request at a time; the client never sleeps.
    RoundTrip(Dialect),
    /// Each connection keeps `outstanding` requests in flight.
    Closed { dialect: Dialect, connections: u32, outstanding: u32 },
    /// Full TLS handshakes without requests.
    Handshakes(Dialect),
    /// Half of the capacity without control, from clients of this controller.
    Half(&'static str),
}

/// Approximate round trip over loopback, passed to controllers.
pub(crate) const RTT: Nanos = Nanos::from_micros(30);
/// The objective: ten times the mean service time plus a round trip, as in the papers.
pub(crate) const SLO: Nanos = Nanos::from_micros(400);

/// Duration of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Time before the measurement.
    pub(crate) warmup: Duration,
    /// Time of the measurement.
    pub(crate) measured: Duration,
}

/// Callback at the beginning and at the end of the measured phase.
pub(crate) type PhaseHook<'a> = &'a mut dyn FnMut() -> Result<()>;

/// TLS settings for clients of a protocol.
pub(crate) fn client(dialect: Dialect, certificates: &Path) -> Result<ClientTls> {
    sealed::client(certificates, if dialect == Dialect::GrpcTls { b"h2" } else { b"leeward" })
}

/// Measures round trips with `payload` bytes of argument; returns their times in nanoseconds.
///
/// # Errors
/// The server does not follow its protocol.
pub(crate) fn round_trips(
    dialect: Dialect,
    address: SocketAddr,
    payload: usize,
    times: Times,
    certificates: &Path,
    hook: PhaseHook<'_>,
) -> Result<hdrhistogram::Histogram<u64>> {
    match dialect {
        Dialect::Bare => round_trip::run(bare::Bare::new(payload), address, times, hook),
        Dialect::Leeward => round_trip::run(leeward::Leeward::new(payload), address, times, hook),
        Dialect::Grpc => round_trip::run(grpc::Grpc::new(payload), address, times, hook),
        Dialect::LeewardTls => {
            let tls = client(dialect, certificates)?;
            round_trip::run(Sealed::new(&tls, leeward::Leeward::new(payload)), address, times, hook)
        }
        Dialect::GrpcTls => {
            let tls = client(dialect, certificates)?;
            round_trip::run(Sealed::new(&tls, grpc::Grpc::new(payload)), address, times, hook)
        }
        Dialect::BareUdp => far::round_trips(bare::Bare::new(payload), |_, _| far::Wire::bare(address), times, hook),
        Dialect::LeewardUdp => {
            let wire = |number, clock| far::Wire::leeward(address, number, clock);
            far::round_trips(leeward::Leeward::new(payload), wire, times, hook)
        }
    }
}

/// Runs a closed loop of requests with `payload` bytes of argument.
///
/// # Errors
/// The server does not follow its protocol, or does not answer.
pub(crate) fn closed_loop(
    dialect: Dialect,
    address: SocketAddr,
    (connections, outstanding): (u32, u32),
    payload: usize,
    times: Times,
    certificates: &Path,
    hook: PhaseHook<'_>,
) -> Result<Closed> {
    let plan = closed::Plan { address, connections, outstanding, times };
    match dialect {
        Dialect::Bare => closed::run(|| bare::Bare::new(payload), &plan, hook),
        Dialect::Leeward => closed::run(|| leeward::Leeward::new(payload), &plan, hook),
        Dialect::Grpc => closed::run(|| grpc::Grpc::new(payload), &plan, hook),
        Dialect::LeewardTls => {
            let tls = client(dialect, certificates)?;
            closed::run(|| Sealed::new(&tls, leeward::Leeward::new(payload)), &plan, hook)
        }
        Dialect::GrpcTls => {
            let tls = client(dialect, certificates)?;
            closed::run(|| Sealed::new(&tls, grpc::Grpc::new(payload)), &plan, hook)
        }
        Dialect::BareUdp => far::closed(|| bare::Bare::new(payload), |_, _| far::Wire::bare(address), &plan, hook),
        Dialect::LeewardUdp => {
            let wire = |number, clock| far::Wire::leeward(address, number, clock);
            far::closed(|| leeward::Leeward::new(payload), wire, &plan, hook)
        }
    }
}
