//! The load: one program for all contenders, which differ only in the bytes that are written and counted. Nothing is
//! built per request that could be built before, so that the server is what limits, not the load.
//!
//! - `speak`: what a protocol must say. `bare`, `leeward`, `grpc`: the protocols.
//! - `closed`: many connections, as fast as the server answers. `round_trip`: one request at a time. `far`: both over datagrams. `sealed`: any dialect within TLS, and handshakes.
//! - `half`: half of what a server manages, from `leeward-load`, which controllers need.

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

/// How the bytes look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Length-framed messages, as long as Leeward's.
    Bare,
    /// Leeward's protocol.
    Leeward,
    /// The same within TLS.
    LeewardTls,
    /// gRPC over HTTP/2.
    Grpc,
    /// The same within TLS.
    GrpcTls,
    /// Datagrams as long as Leeward's.
    BareUdp,
    /// Leeward's protocol over datagrams.
    LeewardUdp,
}

/// Load that a server gets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// A single connection, one request at a time, without ever sleeping.
    RoundTrip(Dialect),
    /// Each connection keeps so many requests under way.
    Closed { dialect: Dialect, connections: u32, outstanding: u32 },
    /// Full handshakes of TLS, and nothing within.
    Handshakes(Dialect),
    /// Half of what a server without control manages, from the clients of this controller.
    Half(&'static str),
}

/// The network's round trip over loopback, about, as controllers are told.
pub(crate) const RTT: Nanos = Nanos::from_micros(30);
/// The objective: ten times the mean service time and a round trip, as in the papers.
pub(crate) const SLO: Nanos = Nanos::from_micros(400);

/// How long a load lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Not measured.
    pub(crate) warmup: Duration,
    /// Measured.
    pub(crate) measured: Duration,
}

/// Called when the measured time begins and when it ends.
pub(crate) type Edge<'a> = &'a mut dyn FnMut() -> Result<()>;

/// TLS of a dialect's clients.
pub(crate) fn client(dialect: Dialect, certificates: &Path) -> Result<ClientTls> {
    sealed::client(certificates, if dialect == Dialect::GrpcTls { b"h2" } else { b"leeward" })
}

/// Round trips with `payload` bytes of argument; every one of the measured time, in nanoseconds.
///
/// # Errors
/// The server does not answer as its protocol says.
pub(crate) fn round_trips(
    dialect: Dialect,
    address: SocketAddr,
    payload: usize,
    times: Times,
    certificates: &Path,
    edge: Edge<'_>,
) -> Result<hdrhistogram::Histogram<u64>> {
    match dialect {
        Dialect::Bare => round_trip::run(bare::Bare::new(payload), address, times, edge),
        Dialect::Leeward => round_trip::run(leeward::Leeward::new(payload), address, times, edge),
        Dialect::Grpc => round_trip::run(grpc::Grpc::new(payload), address, times, edge),
        Dialect::LeewardTls => {
            let tls = client(dialect, certificates)?;
            round_trip::run(Sealed::new(&tls, leeward::Leeward::new(payload)), address, times, edge)
        }
        Dialect::GrpcTls => {
            let tls = client(dialect, certificates)?;
            round_trip::run(Sealed::new(&tls, grpc::Grpc::new(payload)), address, times, edge)
        }
        Dialect::BareUdp => far::round_trips(bare::Bare::new(payload), |_, _| far::Wire::bare(address), times, edge),
        Dialect::LeewardUdp => {
            let wire = |number, clock| far::Wire::leeward(address, number, clock);
            far::round_trips(leeward::Leeward::new(payload), wire, times, edge)
        }
    }
}

/// Requests with `payload` bytes of argument, as many as the server answers.
///
/// # Errors
/// The server does not answer as its protocol says, or not at all.
pub(crate) fn closed_loop(
    dialect: Dialect,
    address: SocketAddr,
    (connections, outstanding): (u32, u32),
    payload: usize,
    times: Times,
    certificates: &Path,
    edge: Edge<'_>,
) -> Result<Closed> {
    let plan = closed::Plan { address, connections, outstanding, times };
    match dialect {
        Dialect::Bare => closed::run(|| bare::Bare::new(payload), &plan, edge),
        Dialect::Leeward => closed::run(|| leeward::Leeward::new(payload), &plan, edge),
        Dialect::Grpc => closed::run(|| grpc::Grpc::new(payload), &plan, edge),
        Dialect::LeewardTls => {
            let tls = client(dialect, certificates)?;
            closed::run(|| Sealed::new(&tls, leeward::Leeward::new(payload)), &plan, edge)
        }
        Dialect::GrpcTls => {
            let tls = client(dialect, certificates)?;
            closed::run(|| Sealed::new(&tls, grpc::Grpc::new(payload)), &plan, edge)
        }
        Dialect::BareUdp => far::closed(|| bare::Bare::new(payload), |_, _| far::Wire::bare(address), &plan, edge),
        Dialect::LeewardUdp => {
            let wire = |number, clock| far::Wire::leeward(address, number, clock);
            far::closed(|| leeward::Leeward::new(payload), wire, &plan, edge)
        }
    }
}
