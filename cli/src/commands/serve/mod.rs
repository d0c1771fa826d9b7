//! `leeward serve`: serves a service under an admission controller on real sockets, until it is
//! stopped.
//!
//! - `admin`: admin port. `args`: command line; `cores`: range of cores. `config`: configuration
//!   file.
//! - `allocator`: core allocation. `threading`: policy for a tier's setup. `recording`: recordings
//!   of the controller.
//! - `leaves`: leaves that go away and come back.
//! - `otlp`: metrics export. `shadow`: shadow mode and partial enforcement.
//! - `tls`: certificates and keys; `tenants`:
//!   tenants of certificates.
//! - `unused`: flags without effect.
//! - `wake_latency`: check that idle cores wake in time for the objective.

mod admin;
mod allocator;
mod args;
mod config;
mod cores;
mod leaves;
mod otlp;
mod recording;
mod shadow;
mod tenants;
mod threading;
mod tls;
mod unused;
mod wake_latency;

use anyhow::{Context, anyhow};
use leeward_admin::Exporter;
use leeward_core::budget::Budget;
use leeward_rpc::client::DatagramSize;
use leeward_rpc::server::{InheritedListener, IoUring, RequestCounts, Server, ServerError};
use leeward_rpc::statistics::ServiceInfo;
use leeward_rpc::tls::ServerTls;
use leeward_runtime::CoreUsage;
use leeward_services::arguments::size;
use leeward_services::backend::PortCounts;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use admin::AdminListener;
use allocator::Allocator;
use args::{IoUringMode, parse_idle};
use leaves::LeafWatch;
use recording::Recordings;

pub(crate) use args::ServeArgs;

use crate::failure::Failure;
use crate::interrupt::{Interrupt, StopMode};
use crate::systemd::{InheritedSocket, InheritedSockets};
use crate::{admission, stdout, systemd};

/// Runs the command.
pub(crate) fn serve(mut args: ServeArgs) -> Result<(), Failure> {
    config::apply(&mut args)?;
    // The policy replaces the file of curves by a setup; print the flag as it was written.
    let effective = config::text(&args)?;
    let printed = args.print_config.then(|| effective.clone());
    let slo = admission::parse_span("--slo", &args.admission.slo)?;
    args.service.check()?;
    let governed = threading::load_policy(&mut args, slo)?;
    let args = &args;
    let (algorithm, params) = admission::controller(&args.admission)?;
    let rtt = admission::parse_span("--rtt", &args.admission.rtt)?;
    let idle = parse_idle(allocator::idle(args))?;
    let builder = Server::builder()
        .admission(&algorithm, params.clone())
        .objective(rtt, slo)
        .budget(budget(args)?)
        .cores(args.cores.max.into())
        .cpus(args.cpus.clone())
        .idle(idle)
        .io_uring(if args.io_uring == IoUringMode::Auto { IoUring::Auto } else { IoUring::Off })
        .receiving_limit(size(&args.receiving).map_err(|problem| Failure::Input(anyhow!("--receiving {problem}")))?)
        .sending_limit(size(&args.sending).map_err(|problem| Failure::Input(anyhow!("--sending {problem}")))?);
    let builder = match &args.udp {
        Some(address) => {
            builder.udp(address.as_str()).datagram_size(DatagramSize::new(args.udp_size.into()).unwrap_or_default())
        }
        None => builder,
    };
    let tls = if printed.is_some() { None } else { tls::open(args)? };
    let builder = match &tls {
        Some(tls) => builder.tls(tls.clone()),
        None => builder,
    };
    let table = if printed.is_some() { None } else { tenants::open(args)? };
    let builder = match table {
        Some(table) => builder.tenants(table),
        None => builder,
    };
    let enforced = shadow::enforced_percent(args)?;
    let builder = match enforced {
        Some(percent) => builder.rehearse(percent),
        None => builder,
    };
    let destination = otlp::endpoint(args)?;
    unused::check_dependencies(args)?;
    let allocator = Allocator::from_args(args)?;
    let builder = match &allocator {
        Some(allocator) => allocator.apply(builder),
        None => builder,
    };
    if let Some(text) = printed {
        return stdout::print(&text);
    }
    let activated = InheritedSockets::from_env();
    let admin_tls = tls::open_admin(args, args.admin.is_some() || activated.admin.is_some())?;
    let builder = builder.watched(args.admin.is_some() || activated.admin.is_some() || destination.is_some());
    let about = ServiceInfo { service: Some(args.service.name().into()), ..ServiceInfo::default() };
    let builder = builder.service_info(about);
    let builder = match governed {
        Some(governed) => builder.threading_policy(governed),
        None => builder,
    };
    // The runtime takes a CPU as a preference, but `--cpus` is a requirement.
    if let Some(cpu) = args.cpus.iter().find(|cpu| !leeward_load::may_run_on(**cpu)) {
        return Err(Failure::Input(anyhow!("--cpus: this process may not run on CPU {cpu}")));
    }
    let mut builder = builder.connection_limit(connections(args) as usize);
    let mut warnings = args.service.unused_warnings();
    warnings.extend(args::repeated_cpu(&args.cpus));
    warnings.extend(unused::unused_cpus(args));
    warnings.extend(unused::idle_allocator(args));
    warnings.extend(threading::unused_cores(args));
    warnings.extend(threading::oversubscription(args));
    warnings.iter().for_each(|warning| _ = writeln!(std::io::stderr(), "warning: {warning}"));
    let backend = args.service.open(args.cores.max.into())?;
    let mut recordings = Recordings::start(args.record.as_deref(), backend.second_port())?;
    let mut second = builder.config().clone();
    // Only one port serves datagrams.
    second.datagrams = None;
    second.recording = recordings.second_port().cloned();
    if let Some(recording) = recordings.server() {
        builder = builder.record(recording);
    }
    // Bind before the server starts, so that an address in use is reported at once.
    let admin_listener = match (activated.admin, args.admin.as_deref()) {
        (Some(socket), _) => Some(AdminListener::from_listener(socket)),
        (None, address) => address.map(AdminListener::bind).transpose()?,
    };
    if let Some(InheritedSocket::Tcp(socket)) = activated.server {
        builder = builder.inherited(InheritedListener::new(socket));
    }
    let interrupt = Interrupt::listen(StopMode::Graceful)?;
    if args.until_input_ends {
        stop_on_stdin_end(&interrupt);
    }
    let start = || -> Result<_, ServerError> {
        let port = backend.open_port(&second)?;
        Ok((backend.start(builder, &args.listen)?, port))
    };
    let (server, port) = start().map_err(failure).inspect_err(|_| recordings.remove_new_files())?;
    stdout::print(&format!(
        "serving {} on {}{} with {}{} ({} core{}, objective {slo}); Ctrl-C stops",
        args.service.name(),
        server.address(),
        match &tls {
            Some(tls) if tls.requires_client_cert() => " by TLS with clients' certificates",
            Some(_) => " by TLS",
            None => "",
        },
        algorithm.name,
        shadow::describe(enforced),
        args.cores,
        if args.cores.max == 1 { "" } else { "s" },
    ))?;
    match (&args.udp, server.datagram_address()) {
        (_, Some(address)) => stdout::print(&format!("datagrams on {address}"))?,
        (Some(_), None) => {
            _ = writeln!(std::io::stderr(), "warning: this service takes no datagrams: --udp has no effect")
        }
        (None, None) => {}
    }
    if let Some(warning) = allocator::oversubscription(args) {
        let _ = writeln!(std::io::stderr(), "warning: {warning}");
    }
    if let Some(port) = &port {
        stdout::print(&format!("{}'s clients: {}", port.name(), port.address()))?;
    }
    let sources = admin::sources(&server, port.as_deref());
    let admin = admin_listener.map(|socket| socket.start(sources.clone(), effective, admin_tls.clone())).transpose()?;
    let export = |destination| otlp::start(destination, sources, args.service.name(), server.address().to_string());
    let exporter = destination.map(export).transpose()?;
    wake_latency::check(idle, slo);
    systemd::notify_ready(&format!("serving {} on {}", args.service.name(), server.address()));
    let mut leaf_watch = LeafWatch::new(&server);
    let has_failed = || server.has_failed() || port.as_ref().is_some_and(|port| port.has_failed());
    while !interrupt.flag().load(Ordering::SeqCst) && !has_failed() {
        std::thread::sleep(Duration::from_millis(20));
        recordings.poll();
        for message in tls.iter().flat_map(ServerTls::take_messages) {
            let _ = writeln!(std::io::stderr(), "TLS: {}", stdout::sanitize(&message));
        }
        for message in admin_tls.iter().flat_map(ServerTls::take_messages) {
            let _ = writeln!(std::io::stderr(), "TLS of --admin: {}", stdout::sanitize(&message));
        }
        for message in exporter.iter().flat_map(Exporter::take_messages) {
            let _ = writeln!(std::io::stderr(), "OTLP: {}", stdout::sanitize(&message));
        }
        for message in leaf_watch.take_messages(&server) {
            let _ = writeln!(std::io::stderr(), "{message}");
        }
        for message in backend.warnings() {
            let _ = writeln!(std::io::stderr(), "warning: {}", stdout::sanitize(&message));
        }
    }
    systemd::notify_stopping();
    if let Some(admin) = &admin {
        admin.begin_stopping();
    }
    // Export once more while the server still exists.
    drop(exporter);
    let (usage, foreseen) = (server.core_usage(), server.statistics().foreseen);
    let port = port.map(|port| (port.name(), port.stop()));
    let counts = server.stop().context("stopping").map_err(Failure::Runtime)?;
    let port = match port {
        Some((name, counts)) => {
            let counts = counts.with_context(|| format!("stopping the {name} port")).map_err(Failure::Runtime)?;
            Some((name, counts))
        }
        None => None,
    };
    let cores = usage.as_ref().zip(allocator.as_ref());
    let text = if args.json { json(&counts, foreseen, cores, port) } else { describe(&counts, foreseen, cores, port) };
    stdout::print(&text)?;
    recordings.finish()
}

/// Requests a stop through `interrupt` when the standard input ends.
fn stop_on_stdin_end(interrupt: &Interrupt) {
    let interrupt = interrupt.clone();
    // If the thread cannot start, only signals stop the server.
    let _ = std::thread::Builder::new().name("input".into()).spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        interrupt.request();
    });
}

/// Number of connections that suffices if `--connections` is not given.
const DEFAULT_CONNECTIONS: u64 = 1_024;

/// Number of connections per port: the requested number, as far as the system allows descriptors.
fn connections(args: &ServeArgs) -> u64 {
    let (asked, ports) = (u64::from(args.connections), args.service.ports() as u64);
    let there = leeward_load::allow_sockets(asked * ports) / ports;
    // Without `--connections`, warn only below the default.
    let is_asked = args.written.iter().any(|name| name == "connections");
    if there < if is_asked { asked } else { DEFAULT_CONNECTIONS } {
        let hint = "a process may open only so many descriptors (ulimit -n); further connections are rejected";
        let _ = writeln!(std::io::stderr(), "warning: {there} connections instead of --connections {asked}: {hint}");
    }
    there.clamp(1, asked)
}

type CoreSummary<'a> = Option<(&'a CoreUsage, &'a Allocator)>;
/// Name and request counts of the second port, if there is one.
type PortSummary = Option<(&'static str, PortCounts)>;

/// Queueing budget of a request.
fn budget(args: &ServeArgs) -> Result<Budget, Failure> {
    let span = args.budget.as_deref().map(|budget| admission::parse_span("--budget", budget)).transpose()?;
    Ok(span.map_or(Budget::UNLIMITED, Budget::new))
}

/// Summary of all requests, as text.
fn describe(counts: &RequestCounts, foreseen: Option<u64>, cores: CoreSummary<'_>, port: PortSummary) -> String {
    let RequestCounts { received, completed, failed, rejected: dropped, .. } = counts;
    let failures = if *failed > 0 { format!(" ({failed} failed)") } else { String::new() };
    let mut text = format!("stopped: {received} requests received, {completed} answered{failures}, {dropped} rejected");
    if counts.without_credit > 0 {
        text += &format!(" ({} of them sent without credit)", counts.without_credit);
    }
    if let Some(foreseen) = foreseen {
        text += &format!("; without shadow mode {foreseen} more would have been rejected");
    }
    if let Some((usage, allocator)) = cores {
        text += &format!("\n{}", allocator::describe(usage, allocator.name()));
    }
    if let Some((name, PortCounts { received, completed, busy })) = port {
        text += &format!("\n{name}: {received} requests received, {completed} answered, {busy} rejected as busy");
    }
    text
}

/// Summary of all requests, as JSON.
fn json(counts: &RequestCounts, foreseen: Option<u64>, cores: CoreSummary<'_>, port: PortSummary) -> String {
    let mut report = serde_json::json!({
        "received": counts.received,
        "completed": counts.completed,
        "failed": counts.failed,
        "dropped": counts.rejected,
        "without_credit": counts.without_credit,
        "refused_lock": counts.rejected_by_lock,
        "abandoned": counts.abandoned,
        "credits": counts.credits,
        "demands": counts.demands,
        "overflowed": counts.overflowed,
        "retransmitted": counts.retransmitted,
        "duplicates": counts.duplicates,
    });
    if let Some(foreseen) = foreseen {
        report["foreseen"] = foreseen.into();
    }
    if let Some((usage, allocator)) = cores {
        report["cores"] = allocator::json(usage, allocator.name());
    }
    if let Some((name, PortCounts { received, completed, busy })) = port {
        report[name] = serde_json::json!({ "received": received, "completed": completed, "busy": busy });
    }
    report.to_string()
}

/// Failure to start a server.
fn failure(error: ServerError) -> Failure {
    match error {
        ServerError::Params(_) => Failure::Input(anyhow!(error)),
        // Another address helps, whether this one is malformed or in use.
        ServerError::Other(_) | ServerError::Listen { .. } => Failure::Input(anyhow!(error.to_string())),
        _ => Failure::Runtime(anyhow!(error)),
    }
}
