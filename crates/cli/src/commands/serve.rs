//! `leeward serve`: a service under an admission controller on real sockets, until told to stop.

use anyhow::{Context, anyhow};
use leeward_control::budget::Budget;
use leeward_control::units::parse_duration;
use leeward_kv::service::Kv;
use leeward_kv::store::Store;
use leeward_rpc::server::{Builder, Counts, IoUring, Server, ServerError};
use leeward_runtime::{CoreUsage, Idle};
use leeward_search::Search;
use leeward_services::{echo::Echo, synthetic::Synthetic};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{kv, record, search};
use crate::allocator::{self, Allocator};
use crate::args::{ServeArgs, Service, WhenPossible};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::{admission, serve_config, stdout};

/// The command.
pub(crate) fn serve(mut args: ServeArgs) -> Result<(), Failure> {
    serve_config::apply(&mut args)?;
    let args = &args;
    let (algorithm, params) = admission::controller(&args.admission)?;
    let slo = admission::span("--slo", &args.admission.slo)?;
    let rtt = admission::span("--rtt", &args.admission.rtt)?;
    if args.service != Service::Search && (args.corpus.is_some() || args.segments != 1) {
        return Err(Failure::Input(anyhow!(
            "--corpus and --segments are of --service search, and this is {}",
            args.service
        )));
    }
    let mut builder = Server::builder()
        .admission(&algorithm, params)
        .objective(rtt, slo)
        .cores(args.cores.most.into())
        .cpus(args.cpus.clone())
        .idle(idle(allocator::idle(args))?)
        .io_uring(if args.io_uring == WhenPossible::Auto { IoUring::Auto } else { IoUring::Off })
        .connection_limit(args.connections as usize);
    let allocator = Allocator::of(args)?;
    if let Some(allocator) = &allocator {
        builder = allocator.apply(builder);
    }
    if let Some(budget) = &args.budget {
        builder = builder.budget(Budget::of(admission::span("--budget", budget)?));
    }
    if args.print_config {
        return stdout::print(&serve_config::text(args)?);
    }
    // The runtime takes a CPU as a wish; whoever names one here means it.
    if let Some(cpu) = args.cpus.iter().find(|cpu| !leeward_load::may_run_on(**cpu)) {
        return Err(Failure::Input(anyhow!("--cpus: this process may not run on CPU {cpu}")));
    }
    // Where the system says no, connections beyond its limit have to wait.
    leeward_load::allow_sockets(args.connections.into());
    let is_new = args.record.as_deref().is_some_and(|path| !path.exists());
    let recording = args.record.as_deref().map(record::begin).transpose()?;
    if let Some(recording) = &recording {
        builder = builder.record(recording);
    }
    let interrupt = Interrupt::listen()?;
    let store = kv::store(args)?;
    let port = store.as_ref().map_or(Ok(None), |store| kv::memcached(store, args))?;
    let server = start(builder, args, store.as_ref()).inspect_err(|_| {
        // Nothing has been recorded: what is there now is an empty file.
        if let (true, Some(path)) = (is_new, &args.record) {
            let _ = std::fs::remove_file(path);
        }
    })?;
    stdout::print(&format!(
        "serving {} on {} with {} ({} core{}, objective {slo}); Ctrl-C stops",
        args.service,
        server.address(),
        algorithm.name,
        args.cores,
        if args.cores.most == 1 { "" } else { "s" },
    ))?;
    if let Some(words) = allocator::crowded(args) {
        let _ = writeln!(std::io::stderr(), "warning: {words}");
    }
    if let Some(port) = &port {
        stdout::print(&format!("memcached's clients: {}", port.address()))?;
    }
    let mut watch = recording.as_ref();
    let has_failed = || server.has_failed() || port.as_ref().is_some_and(|port| port.has_failed());
    while !interrupt.flag().load(Ordering::SeqCst) && !has_failed() {
        std::thread::sleep(Duration::from_millis(20));
        watch = watch.filter(|recording| record::goes_on(recording));
    }
    let usage = server.core_usage();
    let port = port.map(leeward_kv::server::Server::stop).transpose();
    let counts = server.stop().context("stopping").map_err(Failure::Runtime)?;
    let port = port.context("stopping the memcached port").map_err(Failure::Runtime)?;
    let cores = usage.as_ref().zip(allocator.as_ref());
    stdout::print(&if args.json { json(&counts, cores, port.as_ref()) } else { words(&counts, cores, port.as_ref()) })?;
    match (&recording, &args.record) {
        (Some(recording), Some(path)) => record::end(recording, path),
        _ => Ok(()),
    }
}

type Cores<'a> = Option<(&'a CoreUsage, &'a Allocator)>;

/// Counts of all requests, in words.
fn words(counts: &Counts, cores: Cores<'_>, port: Option<&leeward_kv::server::Counts>) -> String {
    let Counts { received, completed, dropped, .. } = counts;
    let mut words = format!("stopped: {received} requests received, {completed} answered, {dropped} rejected");
    if counts.without_credit > 0 {
        words += &format!(" ({} of them sent without credit)", counts.without_credit);
    }
    if let Some((usage, allocator)) = cores {
        words += &format!("\n{}", allocator::words(usage, allocator.name()));
    }
    if let Some(counts) = port {
        let busy = counts.dropped;
        let (received, completed) = (counts.received, counts.completed);
        words += &format!("\nmemcached: {received} requests received, {completed} answered, {busy} told to be busy");
    }
    words
}

/// The same for programs.
fn json(counts: &Counts, cores: Cores<'_>, port: Option<&leeward_kv::server::Counts>) -> String {
    let mut report = serde_json::json!({
        "received": counts.received,
        "completed": counts.completed,
        "dropped": counts.dropped,
        "without_credit": counts.without_credit,
        "refused_lock": counts.refused_lock,
        "abandoned": counts.abandoned,
        "credits": counts.credits,
        "demands": counts.demands,
    });
    if let Some((usage, allocator)) = cores {
        report["cores"] = allocator::json(usage, allocator.name());
    }
    if let Some(counts) = port {
        let busy = counts.dropped;
        report["memcached"] =
            serde_json::json!({ "received": counts.received, "completed": counts.completed, "busy": busy });
    }
    report.to_string()
}

fn start(builder: Builder, args: &ServeArgs, store: Option<&Arc<Store>>) -> Result<Server, Failure> {
    let started = match (args.service, store) {
        (Service::Kv, Some(store)) => builder.start(&args.listen, Kv::new(Arc::clone(store))),
        (Service::Search, _) => builder.start_async(&args.listen, Search::new(search::index(args)?)),
        (Service::Echo, _) => builder.start(&args.listen, Echo),
        _ => builder.start(&args.listen, Synthetic::new()),
    };
    started.map_err(failure)
}

/// Why a server does not start.
pub(super) fn failure(error: ServerError) -> Failure {
    match error {
        ServerError::Params(_) => Failure::Input(anyhow!(error)),
        // Whether the address is wrong or taken, another one helps.
        ServerError::Listen { .. } => Failure::Input(anyhow!(error.to_string())),
        _ => Failure::Runtime(anyhow!(error)),
    }
}

/// `spin`, `block`, or how long to spin before sleeping.
pub(crate) fn idle(text: &str) -> Result<Idle, Failure> {
    match text {
        "spin" => Ok(Idle::Spin),
        "block" => Ok(Idle::Block),
        _ => parse_duration(text).map(Idle::Adaptive).map_err(|_| {
            Failure::Input(anyhow!("--idle `{text}`; accepted: `spin`, `block`, or how long to spin, such as `50us`"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_control::units::Nanos;

    #[test]
    fn idle_policies_are_read() {
        assert_eq!(idle("spin").unwrap(), Idle::Spin);
        assert_eq!(idle("block").unwrap(), Idle::Block);
        assert_eq!(idle("50us").unwrap(), Idle::Adaptive(Nanos::from_micros(50)));
        assert!(idle("sometimes").unwrap_err().to_string().contains("accepted"));
    }
}
