//! `leeward watch`: the queue in front of any service, from outside, and why it stands there.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use leeward_admin::{Admin, Sources};
use leeward_sockdiag::Namespace;
use leeward_watch::{Observer, Share, WatchError, WatchReport, WatchTarget, prometheus_text};
use ratatui::widgets::Paragraph;

use crate::admission;
use crate::failure::Failure;
use crate::interrupt::{Interrupt, StopMode};
use crate::keyboard::Keyboard;
use crate::stdout;
use crate::terminal;

/// Time that `--once` observes.
const ONCE: Duration = Duration::from_millis(3_000);

/// Watch the queue in front of any service, in any language, from outside, and say why it stands
/// there
///
/// Reads what the kernel tells everybody: unread bytes and their age for each connection, accept
/// queues, what the service's threads wait for, their CPUs and quotas. The service is not changed.
/// Sockets need no privilege; threads of another user's processes do. Without an address, all TCP
/// listeners are watched.
#[derive(Debug, clap::Args)]
#[command(after_help = WATCH)]
pub(crate) struct WatchArgs {
    /// Listener to watch: :PORT, HOST:PORT, or the path of a Unix socket
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: Option<String>,
    /// Watch the listeners of this process and its children, in its network namespace
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Network namespace to look into, such as /run/netns/NAME; needs root
    #[arg(long, value_name = "FILE")]
    pub(crate) netns: Option<PathBuf>,
    /// Observe for three seconds, print the result, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Print one JSON object: with --once one, otherwise one per interval
    #[arg(long, conflicts_with = "prometheus")]
    pub(crate) json: bool,
    /// Print Prometheus text: with --once one, otherwise one per interval
    #[arg(long)]
    pub(crate) prometheus: bool,
    /// Serve the metrics on this address, too, as /metrics
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<String>,
    /// Time between two results
    #[arg(long, value_name = "SPAN", default_value = "1s")]
    pub(crate) interval: String,
    /// Say what a queue with the objective --slo in front of the service would have refused
    #[arg(long, requires = "slo")]
    pub(crate) what_if: bool,
    /// Objective for --what-if
    #[arg(long, value_name = "SPAN", requires = "what_if")]
    pub(crate) slo: Option<String>,
}

const WATCH: &str = "\
Examples:
  leeward watch :8080                         a live view; q ends it
  leeward watch :8080 --once                  the result in three seconds
  leeward watch --pid 4711 --once             a process, also in a container
  leeward watch :8080 --once --json | jq '.listeners[] | {cause, sentence}'
  leeward watch :8080 --once --what-if --slo 50ms
  leeward watch --admin 127.0.0.1:9465 --json >/dev/null   for Prometheus

Causes: cpu, quota, lock, disk, downstream, dns, pauses, stopped, accept, none, unknown. See docs/watch.md.";

/// Runs the command.
pub(crate) fn watch(args: &WatchArgs) -> Result<(), Failure> {
    let interval = Duration::from_nanos(admission::parse_span("--interval", &args.interval)?.0);
    let slo = args.slo.as_deref().map(|slo| admission::parse_span("--slo", slo)).transpose()?;
    let mut observer = Observer::open(target(args)?).map_err(failure)?;
    if let Some(slo) = slo {
        observer.set_objective(Duration::from_nanos(slo.0));
    }
    let interrupt = Interrupt::listen(StopMode::Prompt)?;
    if args.once {
        return once(args, &mut observer, &interrupt);
    }
    observer.set_share(Share::CONTINUOUS);
    let metrics = Metrics::serve(args.admin.as_deref())?;
    if args.json || args.prometheus || !terminal::supports_live_view() {
        return stream(args, &mut observer, interval, &metrics, &interrupt);
    }
    run_live(&mut observer, interval, &metrics, &interrupt)
}

fn target(args: &WatchArgs) -> Result<WatchTarget, Failure> {
    let target = match &args.address {
        Some(address) => WatchTarget::parse(address).map_err(failure)?,
        None => WatchTarget::all(),
    };
    let target = match &args.netns {
        Some(file) => target.in_namespace(Namespace::File(file.clone())),
        None => target,
    };
    Ok(match args.pid {
        Some(pid) => target.of_process(pid),
        None => target,
    })
}

/// Observes for a few seconds, and prints the result.
fn once(args: &WatchArgs, observer: &mut Observer, interrupt: &Interrupt) -> Result<(), Failure> {
    observer.set_share(Share::ONCE);
    observer.poll_for(ONCE, &|| interrupt.is_requested()).map_err(failure)?;
    if interrupt.is_requested() {
        return Err(Failure::Interrupted);
    }
    let report = observer.report();
    if report.listeners.is_empty() {
        return Err(Failure::Runtime(anyhow!("nothing listens any more: the service ended while it was watched")));
    }
    print(args, &report).map(|_| ())
}

/// Prints a result per interval until a stop is requested.
fn stream(
    args: &WatchArgs,
    observer: &mut Observer,
    interval: Duration,
    metrics: &Metrics,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    while !interrupt.is_requested() {
        observer.poll_for(interval, &|| interrupt.is_requested()).map_err(failure)?;
        let report = observer.report();
        metrics.update(&report);
        if !print(args, &report)? {
            break;
        }
    }
    Ok(())
}

/// Prints a report; returns whether somebody still reads.
fn print(args: &WatchArgs, report: &WatchReport) -> Result<bool, Failure> {
    let text = if args.json {
        serde_json::to_string(report).context("the report").map_err(Failure::Runtime)?
    } else if args.prometheus {
        prometheus_text(report)
    } else {
        text(report)
    };
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("stdout").map_err(Failure::Runtime),
    }
}

/// Results as text.
fn text(report: &WatchReport) -> String {
    // Names of programs and sockets are others' words.
    let clean = |text: String| text.lines().map(|line| stdout::sanitize(line) + "\n").collect::<String>();
    let listeners: Vec<String> = report.listeners.iter().map(|listener| clean(listener.to_string())).collect();
    let own = 100.0 * report.own_cpu;
    let end = format!("{:.1} s observed, {} polls, {own:.1} % of a CPU used for it", report.observed_s, report.polls);
    let nothing = if listeners.is_empty() { "nothing listens any more\n" } else { "" };
    listeners.join("\n") + nothing + &end
}

/// Runs the live view until q is pressed or the terminal has closed.
fn run_live(
    observer: &mut Observer,
    interval: Duration,
    metrics: &Metrics,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    observer.poll().map_err(failure)?;
    let mut canvas = terminal::take().context("the terminal").map_err(Failure::Runtime)?;
    let mut keyboard = Keyboard::open();
    let mut drawn: Option<Instant> = None;
    let outcome = loop {
        if drawn.is_none_or(|drawn| drawn.elapsed() >= interval) {
            let report = observer.report();
            metrics.update(&report);
            let text = format!("{}\n\nq ends", text(&report));
            let draw = |frame: &mut ratatui::Frame<'_>| {
                let wrap = ratatui::widgets::Wrap { trim: false };
                frame.render_widget(Paragraph::new(text.as_str()).wrap(wrap), frame.area());
            };
            if let Err(error) = canvas.draw(draw) {
                break Err(Failure::Runtime(anyhow!("the terminal: {error}")));
            }
            drawn = Some(Instant::now());
        }
        keyboard.wait(interrupt, observer.interval());
        if interrupt.is_requested() {
            break Ok(());
        }
        if let Err(error) = observer.poll() {
            break Err(failure(error));
        }
    };
    terminal::restore();
    outcome
}

/// The newest result as Prometheus text, on an admin port.
struct Metrics {
    text: Arc<Mutex<String>>,
    /// Serves as long as it lives.
    _admin: Option<Admin>,
}

impl Metrics {
    fn serve(address: Option<&str>) -> Result<Metrics, Failure> {
        let text = Arc::new(Mutex::new(String::new()));
        let Some(address) = address else { return Ok(Metrics { text, _admin: None }) };
        let sources = Sources::default();
        let newest = Arc::clone(&text);
        sources.append_metrics(Box::new(move || newest.lock().unwrap_or_else(PoisonError::into_inner).clone()));
        let admin = Admin::start(address, sources, String::new())
            .map_err(|error| Failure::Input(anyhow!("--admin {}: {error}", stdout::sanitize(address))))?;
        Ok(Metrics { text, _admin: Some(admin) })
    }

    fn update(&self, report: &WatchReport) {
        if self._admin.is_some() {
            *self.text.lock().unwrap_or_else(PoisonError::into_inner) = prometheus_text(report);
        }
    }
}

fn failure(error: WatchError) -> Failure {
    match error {
        WatchError::Address(_) | WatchError::NoProcess(_) => Failure::Input(anyhow!(error)),
        _ => Failure::Runtime(anyhow!(error)),
    }
}
