//! Leeward's server, on one core.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use leeward_rpc::server::Server;
use leeward_runtime::Idle;
use leeward_services::echo::Echo;

use super::{ANY, Idling};
use crate::args::ServeArgs;

/// The echo service without admission control.
///
/// # Errors
/// It can't start.
pub(crate) fn start_echo(args: &ServeArgs) -> Result<SocketAddr> {
    let idle = match args.idle {
        Idling::Spin => Idle::Spin,
        Idling::Block => Idle::Block,
    };
    let builder = Server::builder().cores(1).cpus(args.cpu.into_iter().collect()).idle(idle);
    let server = builder.start(ANY, Echo).context("starting Leeward's server")?;
    // It runs until the process ends.
    Ok(server.address())
}
