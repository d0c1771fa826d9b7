//! `leeward proxy`: a reverse proxy that keeps any HTTP service inside its objective. Does not
//! contain the proxy (`leeward-proxy`).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use leeward_admin::{Admin, Sources};
use leeward_proxy::settings::file::FileSettings;
use leeward_proxy::{Proxy, ProxyError};

use crate::failure::Failure;
use crate::interrupt::{Interrupt, StopMode};
use crate::stdout;

/// Largest configuration file.
const FILE_MAX: u64 = 1 << 20;

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
    /// Backends: HOST:PORT, https://HOST:PORT or unix:/PATH, several separated by commas
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
  leeward proxy --config proxy.toml
  leeward why 8f3a 127.0.0.1:9464               what a refusal's `leeward-decision` means

See docs/proxy.md.";

/// Runs the command.
pub(crate) fn proxy(args: &ProxyArgs) -> Result<(), Failure> {
    let file = match &args.config {
        Some(path) => read(path)?,
        None => FileSettings::default(),
    };
    let merged = file.merge(flags(args));
    let settings = merged.settings().map_err(|error| Failure::Input(anyhow!(stdout::sanitize(&error.to_string()))))?;
    if args.check {
        return Ok(());
    }
    let interrupt = Interrupt::listen(StopMode::Graceful)?;
    let backends: Vec<String> = settings.backends.iter().map(ToString::to_string).collect();
    let (slo, limit) = (settings.slo, settings.limit.name());
    let proxy = Proxy::start(settings).map_err(|error| match error {
        ProxyError::Listen { .. } => Failure::Input(anyhow!("--listen: {}", stdout::sanitize(&error.to_string()))),
        ProxyError::Certificates { .. } => Failure::Input(anyhow!(stdout::sanitize(&error.to_string()))),
        _ => Failure::Runtime(anyhow!(error)),
    })?;
    let admin = merged.admin.as_deref().map(|address| serve_admin(address, &proxy, &merged)).transpose()?;
    stdout::print(&format!(
        "Listens on {}, sends to {}; objective {slo:?}; limit: {limit}.\n{}",
        proxy.address(),
        stdout::sanitize(&backends.join(", ")),
        admin.as_ref().map_or_else(String::new, |admin| format!("Dashboard: http://{}/\n", admin.address()))
    ))?;
    while !interrupt.is_requested() {
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = writeln!(std::io::stderr(), "Stops: waits for requests in progress.");
    if let Some(admin) = &admin {
        admin.begin_stopping();
    }
    proxy.stop();
    Ok(())
}

fn read(path: &Path) -> Result<FileSettings, Failure> {
    let name = stdout::sanitize(&path.display().to_string());
    let failed = |error: anyhow::Error| Failure::Input(error.context(format!("--config {name}")));
    let size = std::fs::metadata(path).context("can't be read").map_err(failed)?.len();
    if size > FILE_MAX {
        return Err(failed(anyhow!("is larger than 1 MiB")));
    }
    let text = std::fs::read_to_string(path).context("can't be read").map_err(failed)?;
    FileSettings::parse(&text).map_err(|error| failed(anyhow!(clean_lines(&error.to_string()))))
}

/// The flags as settings of a file.
fn flags(args: &ProxyArgs) -> FileSettings {
    FileSettings {
        slo: args.slo.clone(),
        listen: args.listen.clone(),
        to: args.to.clone(),
        shared: args.shared.then_some(true),
        limit: args.limit.clone(),
        mode: args.mode.clone(),
        health: args.health.clone(),
        trust: args.trust.clone(),
        until: args.until.clone(),
        admin: args.admin.clone(),
        threads: args.threads,
        ..FileSettings::default()
    }
}

/// Opens the admin port.
fn serve_admin(address: &str, proxy: &Proxy, settings: &FileSettings) -> Result<Admin, Failure> {
    let sources = Sources::default();
    let (admission, transport) = (proxy.admission().clone(), proxy.transport().clone());
    sources.insert("proxy", Arc::new(admission.clone()));
    sources.append_metrics(Box::new(move || admission.backend_metrics() + &transport.metrics()));
    let address = if address.starts_with(':') { format!("0.0.0.0{address}") } else { address.into() };
    Admin::start(&address, sources, format!("{settings:#?}\n"))
        .map_err(|error| Failure::Input(anyhow!("--admin {}: {error}", stdout::sanitize(&address))))
}

/// A text of several lines without control characters.
fn clean_lines(text: &str) -> String {
    text.trim_end().lines().map(stdout::sanitize).collect::<Vec<_>>().join("\n")
}
