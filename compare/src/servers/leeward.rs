//! Leeward's server, on one core.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use leeward_control::registry::Registry;
use leeward_rpc::server::{Builder, Handler, IoUring, Server};
use leeward_runtime::Idle;
use leeward_services::echo::Echo;
use leeward_services::synthetic::Synthetic;

use super::{ANY, Idling};
use crate::args::ServeArgs;
use crate::load::{RTT, SLO};

/// The echo service without admission control, with several sockets per system call or one.
///
/// # Errors
/// It can't start.
pub(crate) fn start_echo(args: &ServeArgs, io_uring: IoUring) -> Result<SocketAddr> {
    start(builder(args).io_uring(io_uring), Echo)
}

/// The synthetic service, which keeps the core busy as long as a request says, under a controller with its defaults.
///
/// # Errors
/// It can't start.
pub(crate) fn start_synthetic(controller: &str, args: &ServeArgs) -> Result<SocketAddr> {
    let registry = Registry::builtin();
    let algorithm = registry.find(controller)?;
    start(builder(args).objective(RTT, SLO).admission(algorithm, algorithm.params(&[])?), Synthetic::new())
}

fn builder(args: &ServeArgs) -> Builder {
    let idle = match args.idle {
        Idling::Spin => Idle::Spin,
        Idling::Block => Idle::Block,
    };
    Server::builder().cores(1).cpus(args.cpu.into_iter().collect()).idle(idle)
}

/// Starts a server, which runs until the process ends.
fn start(builder: Builder, handler: impl Handler) -> Result<SocketAddr> {
    let server = builder.start(ANY, handler).context("starting Leeward's server")?;
    Ok(server.address())
}
