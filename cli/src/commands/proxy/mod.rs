//! `leeward proxy`: a reverse proxy that keeps any HTTP service inside its objective. Does not
//! contain the proxy (`leeward-proxy`).
//!
//! - `files`: settings from a file and flags. `sockets`: where it listens, or what it has
//!   inherited.
//! - `signals`: SIGHUP, SIGUSR2 and those that stop. `reload`: new settings. `upgrade`: another
//!   process takes over. `operation`: all of it while the proxy runs.

mod files;
mod operation;
mod reload;
mod signals;
mod sockets;
mod upgrade;

use std::path::PathBuf;

use anyhow::anyhow;
use leeward_proxy::{Proxy, ProxyError};

use crate::failure::Failure;
use crate::{hangup, stdout};
use files::Loaded;
use operation::Operation;
use signals::Signals;
use sockets::Sockets;
use upgrade::{Announcement, Program};

/// Keep any HTTP service inside its latency objective, in any language, told the objective and
/// nothing else
///
/// Owns the queue in front of the service: it keeps as many requests at each backend as fill it,
/// finds that number by itself, and holds the rest by class, tenant and deadline. A request that
/// can't be answered in time is refused at once: 503 with `leeward-reason` and `retry-after`.
#[derive(Debug, clap::Args)]
#[command(after_help = PROXY)]
pub(crate) struct ProxyArgs {
    /// Latency objective, from a request's arrival to the last byte of its answer
    #[arg(long, value_name = "SPAN")]
    pub(crate) slo: Option<String>,
    /// Address to listen on, such as :8080 or unix:/run/leeward.sock
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Backends, separated by commas: HOST:PORT, https://HOST, h2c://HOST:PORT or unix:/PATH
    #[arg(long, value_name = "ADDRESS[,...]", value_delimiter = ',')]
    pub(crate) to: Option<Vec<String>>,
    /// Configuration file (TOML) with the names of these flags as keys; flags come first
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Serve metrics, dashboard and explanations on this address
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<String>,
    /// One number of requests for the sum of all backends, which share a resource
    #[arg(long)]
    pub(crate) shared: bool,
    /// Requests at a backend: `knee` finds the number; a number fixes it
    #[arg(long, value_name = "LIMIT")]
    pub(crate) limit: Option<String>,
    /// Enforce refusals (`enforce`), only count them (`shadow`), or enforce them for a share of
    /// tenants (`10%`)
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
    /// Ask every backend for this path each second, and send nothing to one that is not well
    #[arg(long, value_name = "PATH")]
    pub(crate) health: Option<String>,
    /// Believe headers about class, deadline and client from these networks; default: loopback
    #[arg(long, value_name = "CIDR[,...]", value_delimiter = ',')]
    pub(crate) trust: Option<Vec<String>>,
    /// Event that frees a request's place: last-byte, or first-byte for answers that stream
    #[arg(long, value_name = "EVENT")]
    pub(crate) until: Option<String>,
    /// Worker threads; default: the CPUs, at most 4
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Check the settings, print nothing but errors, and end
    #[arg(long)]
    pub(crate) check: bool,
}

const PROXY: &str = "\
Examples:
  leeward proxy --slo 50ms --listen :8080 --to 127.0.0.1:3000
  leeward proxy --slo 50ms --listen :8080 --to 10.0.0.1:80,10.0.0.2:80 --health /healthz
  leeward proxy --slo 50ms --listen :8080 --to :3000 --admin 127.0.0.1:9464
  leeward proxy --slo 50ms --listen :8080 --to :3000 --mode shadow        refuses nothing yet
  leeward proxy --config proxy.toml                     SIGHUP reads the file again
  leeward why 8f3a 127.0.0.1:9464               what a refusal's `leeward-decision` means

Signals: SIGHUP takes the settings anew; SIGUSR2 starts the program anew, which takes over
without a lost request; SIGTERM and Ctrl-C wait for requests in progress.

See docs/proxy.md.";

/// Runs the command.
pub(crate) fn proxy(args: &ProxyArgs) -> Result<(), Failure> {
    let Loaded { merged, settings } = files::load(args)?;
    if args.check {
        return Proxy::check(&settings).map_err(failure);
    }
    let program = Program::current();
    let announcement = Announcement::from_env();
    let signals = Signals::listen()?;
    hangup::stop_on_hangup(signals.interrupt());
    let (listener, admin, sockets) = Sockets::open(&settings.listen, merged.admin.as_deref(), announcement.is_some())?;
    let (slo, limit) = (settings.slo, settings.limit.name());
    let backends: Vec<String> = settings.backends.iter().map(ToString::to_string).collect();
    let proxy = Proxy::start_on(listener, settings).map_err(failure)?;
    let operation = Operation::start(proxy, args, merged, sockets, admin)?;
    let listens = format!("Listens on {}, sends to {}", operation.address(), stdout::sanitize(&backends.join(", ")));
    stdout::print(&format!(
        "{listens}; objective {slo:?}; limit: {limit}.\n{}",
        operation.admin_address().map_or_else(String::new, |address| format!("Dashboard: http://{address}/\n"))
    ))?;
    upgrade::announce(announcement, &listens);
    operation.run(&signals, &program)
}

fn failure(error: ProxyError) -> Failure {
    match error {
        ProxyError::Listen { .. } => Failure::Input(anyhow!("--listen: {}", stdout::sanitize(&error.to_string()))),
        ProxyError::OwnBackend(_)
        | ProxyError::Admin { .. }
        | ProxyError::Certificates { .. }
        | ProxyError::BothCertificates { .. }
        | ProxyError::AccessLog { .. } => Failure::Input(anyhow!(stdout::sanitize(&error.to_string()))),
        _ => Failure::Runtime(anyhow!(error)),
    }
}
