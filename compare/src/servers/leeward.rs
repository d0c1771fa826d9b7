//! Leeward's server, on one core.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use leeward_rpc::server::{Builder, Handler, HandlerError, Request, Server};
use leeward_rpc::tier::{Leaves, Options};
use leeward_rpc::tls::{ServerFiles, ServerTls};
use leeward_runtime::IdlePolicy;
use leeward_services::backend::Backend;
use leeward_services::echo::Echo;
use leeward_services::synthetic::Synthetic;
use leeward_services::tier::FanOut;
use leeward_services::wait::WaitBackend;
use leeward_threading::ThreadingSetup;
use leeward_workload::ServiceTime;

use super::{ANY, Idling, bare, work};
use crate::args::ServeArgs;
use crate::certificate;
use crate::load::{RTT, SLO};

/// Starts the echo service without admission control, with work before each response.
///
/// # Errors
/// The server can't start.
pub(crate) fn start_echo(args: &ServeArgs) -> Result<SocketAddr> {
    start(builder(args), EchoAfterWork(work(args)))
}

/// Starts the echo service with metrics and a ring of decisions.
///
/// # Errors
/// The server can't start.
pub(crate) fn start_watched(args: &ServeArgs) -> Result<SocketAddr> {
    start(builder(args).watched(true), Echo)
}

/// Starts the echo service within TLS.
///
/// # Errors
/// The server can't start, or has no certificate.
pub(crate) fn start_sealed(args: &ServeArgs) -> Result<SocketAddr> {
    let file = |name| args.certificates.join(name);
    let files = ServerFiles { cert: file(certificate::CERT), key: file(certificate::KEY), client_ca: None };
    start(builder(args).tls(ServerTls::open(files)?), Echo)
}

/// Starts the echo service over datagrams, with work before each response.
///
/// # Errors
/// The server can't start.
pub(crate) fn start_far(args: &ServeArgs) -> Result<SocketAddr> {
    let server = builder(args).udp(ANY).start(ANY, EchoAfterWork(work(args))).context("starting Leeward's server")?;
    server.datagram_address().context("a server without datagrams")
}

/// Starts the synthetic service under a controller with its defaults.
///
/// The service keeps the core busy for the time that each request specifies.
///
/// # Errors
/// The server can't start.
pub(crate) fn start_synthetic(controller: &str, args: &ServeArgs) -> Result<SocketAddr> {
    let registry = leeward_controllers::builtin();
    let algorithm = registry.find(controller)?;
    start(builder(args).objective(RTT, SLO).admission(algorithm, algorithm.params(&[])?), Synthetic::new())
}

/// Starts a leaf that waits before it answers each request.
///
/// # Errors
/// The leaf can't start, or the service time is invalid.
pub(crate) fn start_leaf(args: &ServeArgs) -> Result<SocketAddr> {
    let leaf = WaitBackend { times: ServiceTime::parse(&args.wait)? };
    let server = leaf.start(builder(args), ANY).context("starting a leaf")?;
    Ok(server.address())
}

/// Starts the echo tier under a threading model.
///
/// # Errors
/// The tier can't start, or has no leaves.
pub(crate) fn start_tier(args: &ServeArgs) -> Result<SocketAddr> {
    let leaves = Leaves::resolve(args.leaves.iter().map(ToString::to_string))?;
    let cores = match args.threading {
        ThreadingSetup::Cores(cores) => cores,
        ThreadingSetup::Setup(_) => 1,
    };
    // The threading model defines how its threads wait; plain cores block, because they share a
    // CPU.
    let cpus = vec![args.cpu.unwrap_or(0); usize::from(cores)];
    let builder = Server::builder().cores(usize::from(cores)).cpus(cpus).idle(IdlePolicy::Block);
    let tier = builder.start_tier(ANY, Options::new(leaves, args.threading), FanOut::new(usize::MAX));
    let server = tier.context("starting the tier")?;
    Ok(server.address())
}

/// Echoes after it has kept the core busy for this time.
struct EchoAfterWork(Duration);

impl Handler for EchoAfterWork {
    fn call(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), HandlerError> {
        bare::spin(self.0);
        Echo.call(request, reply)
    }
}

fn builder(args: &ServeArgs) -> Builder {
    let idle = match args.idle {
        Idling::Spin => IdlePolicy::Spin,
        Idling::Block => IdlePolicy::Block,
    };
    Server::builder().cores(1).cpus(args.cpu.into_iter().collect()).idle(idle)
}

/// Starts a server that runs until the process ends.
fn start(builder: Builder, handler: impl Handler) -> Result<SocketAddr> {
    let server = builder.start(ANY, handler).context("starting Leeward's server")?;
    Ok(server.address())
}
