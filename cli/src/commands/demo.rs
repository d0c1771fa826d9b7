//! `leeward demo`: overloads a server on this machine, with and without control, and shows the
//! results live.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use leeward_admin::{Admin, AdminError, Sources};
use leeward_lab::results::Plot;
use leeward_lab::run::Options;
use leeward_lab::{Results, Scenario, real};
use leeward_plant::ServerObservers;

use super::output_files;
use super::run::check_measured;
use crate::admission;
use crate::demo::events::{DemoEvent, RunResult};
use crate::demo::explanation;
use crate::demo::plain;
use crate::demo::screen::Screen;
use crate::demo::state::{self, DemoState};
use crate::failure::Failure;
use crate::interrupt::{Interrupt, StopMode};
use crate::scenario::SEED_MAX;
use crate::stdout;
use crate::terminal;

/// Overload a server on this machine, with and without control, and watch
///
/// A synthetic server on one CPU, its clients on another, over loopback: the machine is measured,
/// then demand is half of its capacity, all of it, twice as much, and a spike. Each demand is run
/// without control, under the default controller `auto` and under Breakwater. Takes a good minute.
/// In a terminal there is a live view; elsewhere, or with NO_COLOR set, plain lines. A run whose
/// clients were late themselves does not measure the server, and is marked. Exit code 3: no run
/// measured it.
///
/// With --service all tiers of that service are started on this machine, a process each, under
/// `auto`, and are shown under the same demands.
///
/// With --proxy a small service that is not Leeward's is started (Python, else Go), and the same
/// demands meet it without and with `leeward proxy` in front. Plain lines only.
#[derive(Debug, clap::Args)]
#[command(after_help = DEMO)]
pub(crate) struct DemoArgs {
    /// Folder for result.json, results.jsonl and report.html; with --proxy for result.json, by
    /// default results/demo-proxy
    #[arg(long, value_name = "DIR", default_value = "results/demo", default_value_if("proxy", "true", PROXY_RESULTS))]
    pub(crate) out: PathBuf,
    /// No live view: plain lines, as where there is no terminal
    #[arg(long)]
    pub(crate) plain: bool,
    /// Where the dashboard is while the demo runs: an address and port, or `off`; if that port is
    /// taken, another one. With --service there is none
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9464")]
    pub(crate) admin: String,
    /// Length of a run of steady demand; one with a spike takes half as long again
    #[arg(long, value_name = "SPAN", default_value = "4s")]
    pub(crate) duration: String,
    /// Clients: one connection each
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) clients: u32,
    /// `leeward proxy` in front of a service in another language, instead of a synthetic server;
    /// the objective follows from the service
    #[arg(long, conflicts_with_all = ["clients", "service", "leaves", "data", "admission", "slo"])]
    pub(crate) proxy: bool,
    /// A service with leaves instead of a synthetic server: hdsearch, router, sets or recommend
    #[arg(long, value_name = "SERVICE")]
    pub(crate) service: Option<String>,
    /// With --service: how many leaves
    #[arg(long, value_name = "N", requires = "service", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) leaves: u32,
    /// With --service: data of the tiers, as `leeward serve` has it; by default little that is made
    /// up
    #[arg(long, value_name = "DATA", requires = "service")]
    pub(crate) data: Option<String>,
    /// With --service: controller of all tiers
    #[arg(long, value_name = "CONTROLLER", requires = "service", default_value = "auto")]
    pub(crate) admission: String,
    /// With --service: the objective; leaves have half of it
    #[arg(long, value_name = "SPAN", requires = "service", default_value = "20ms")]
    pub(crate) slo: String,
    /// Draws arrivals and service times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=SEED_MAX))]
    pub(crate) seed: u64,
}

/// Folder for the results with --proxy.
const PROXY_RESULTS: &str = "results/demo-proxy";

const DEMO: &str = "\
Examples:
  leeward demo
  leeward demo --plain --out /tmp/demo
  leeward demo --duration 10s                     longer runs, steadier numbers
  leeward demo --service hdsearch                 a mid-tier and four leaves, each with its numbers
  leeward demo --service router --admission none
  leeward demo --proxy                            a service in Python or Go, and the proxy before it";

/// Runs the command.
pub(crate) fn demo(args: &DemoArgs) -> Result<(), Failure> {
    let scenarios = scenarios(args)?;
    output_files::check_folder(&args.out, &output_files::RESULT_FILES)?;
    let interrupt = Interrupt::listen(StopMode::Prompt)?;
    let admin = dashboard(&args.admin)?;
    let dashboard = admin.as_ref().map(|admin| format!("http://{}/", admin.address()));
    let audience = admin.as_ref().map(observers);
    let options = Options { seed: args.seed, plant: "real".into(), observers: audience, ..Options::default() };
    let (runs, seconds) = (scenarios.iter().map(run_count).sum(), estimated_seconds(&scenarios));
    let parts = {
        let live = !args.plain && terminal::supports_live_view();
        let screen = live
            .then(|| Screen::start(DemoState::new(runs, seconds, dashboard.clone()), interrupt.clone()).ok())
            .flatten();
        if screen.is_none() {
            plain::intro(seconds);
            dashboard.iter().for_each(|address| plain::print_line(&format!("Dashboard while it runs: {address}")));
        }
        let watch = |stage: &real::RealRunStage<'_>| match &screen {
            Some(screen) => screen.send(DemoEvent::from_stage(stage)),
            None => plain::report(&DemoEvent::from_stage(stage)),
        };
        real::run_all(&scenarios, &leeward_controllers::builtin(), &options, &|_| {}, &watch, interrupt.flag())?
    };
    let (results, rows) = merge(parts, args);
    let page = leeward_report::render(&results);
    interrupt.finish()?;
    let report = output_files::write_results(&args.out, &results, &page)?;
    let late = rows.iter().filter(|row| !row.is_measured()).count();
    stdout::print(&format!(
        "\n{}{}\n{}",
        explanation::late_clients_warning(late, rows.len()),
        plain::outro(&rows, &results.machines),
        report_link(&report)
    ))?;
    // No late clients explain that the server fails.
    if results.doubts.len() > late {
        let failed = results.doubts.len() - late;
        return Err(Failure::Runtime(anyhow!("the server failed requests in {failed} runs; the report names them")));
    }
    check_measured(&results.doubts, rows.len())
}

/// Name of the server on the dashboard.
const SERVER: &str = "demo";

/// Starts the admin port with the dashboard, unless it is switched off.
pub(super) fn dashboard(address: &str) -> Result<Option<Admin>, Failure> {
    if address == "off" {
        return Ok(None);
    }
    let start = |address: &str| Admin::start(address, Sources::default(), String::new());
    let try_other_port = |error: AdminError| match address.rsplit_once(':') {
        // The port is in use by another demo or a server; any free port serves.
        Some((host, _)) if matches!(&error, AdminError::Listen { source, .. } if source.kind() == ErrorKind::AddrInUse) => {
            start(&format!("{host}:0"))
        }
        _ => Err(error),
    };
    start(address).or_else(try_other_port).map(Some).map_err(|error| Failure::Input(anyhow!("--admin: {error}")))
}

/// Registers the server of each run on the dashboard, always under the same name.
fn observers(admin: &Admin) -> ServerObservers {
    let sources = admin.sources().clone();
    ServerObservers::new(move |source| match source {
        Some(source) => sources.insert(SERVER, source),
        None => sources.remove(SERVER),
    })
}

/// The demo's scenario and a spike under the same controllers.
fn scenarios(args: &DemoArgs) -> Result<[Scenario; 2], Failure> {
    let duration = admission::parse_span("--duration", &args.duration)?;
    let at = |share: f64| format!("{}ns", duration.scale(share).0);
    let common =
        [format!("workload.clients={}", args.clients), format!("run.warmup={}", at(0.25)), "run.seeds=1".to_string()];
    let steady = ["workload.demand=[0.5x, 1x, 2x]".to_string(), format!("run.duration={}", at(1.0))];
    let spike = [
        format!("workload.shift.1.at={}", at(0.5)),
        format!("workload.shift.2.at={}", at(1.0)),
        format!("run.duration={}", at(1.5)),
    ];
    let built = |id: &str, own: &[String]| Scenario::builtin(id, &[&common[..], own].concat(), false);
    let steady = built("demo", &steady)?;
    let mut spike = built("real-spike", &spike)?;
    // The spike's claims are for runs of another length and other controllers.
    spike.claims.clear();
    spike.controllers.clone_from(&steady.controllers);
    Ok([steady, spike])
}

/// Estimated duration of the demo, in seconds.
fn estimated_seconds(scenarios: &[Scenario]) -> f64 {
    let each = scenarios
        .iter()
        .map(|scenario| run_count(scenario) as f64 * (scenario.run.duration.as_secs_f64() + state::OVERHEAD_S));
    state::CALIBRATION_S + each.sum::<f64>()
}

fn run_count(scenario: &Scenario) -> usize {
    let demands = if scenario.workload.demand.is_shifting() { 1 } else { scenario.workload.demand.levels().len() };
    demands * scenario.controllers.len()
}

/// Merges the results of both scenarios, with a row per run, by demand.
fn merge(parts: Vec<Results>, args: &DemoArgs) -> (Results, Vec<RunResult>) {
    let mut rows: Vec<RunResult> = Vec::new();
    let mut merged = Results::default();
    for (index, part) in parts.into_iter().enumerate() {
        let shifts_of =
            |label: &str| part.shifts.iter().filter(|shift| shift.run.label == label).cloned().collect::<Vec<_>>();
        let mut own: Vec<RunResult> =
            part.points.iter().map(|point| RunResult::from_point(point, &shifts_of(&point.run.label))).collect();
        own.sort_by(|a, b| a.point.workload.demand_ratio.total_cmp(&b.point.workload.demand_ratio));
        rows.append(&mut own);
        if index == 0 {
            merged = part;
        } else {
            // Points of the spike are means over quiet and loaded intervals; beside steady demands
            // they would mislead.
            let over_time =
                part.plots.into_iter().map(|plot| Plot { title: format!("{}, during a spike", plot.title), ..plot });
            merged.plots.extend(over_time);
            merged.windows.extend(part.windows);
            merged.shifts.extend(part.shifts);
            merged.doubts.extend(part.doubts);
        }
    }
    merged.scenario = "demo".into();
    merged.source = String::new();
    merged.overrides = Vec::new();
    merged.description = format!(
        "{} clients over loopback TCP ask one core for 10 µs of work on average: half of what it can serve, all of it, twice as \
         much, and a spike to 1.4 times the capacity. The demo measured capacity, round trip and objective before the runs. Each \
         run is short; `leeward run demo --plant real` repeats them with five seeds.",
        args.clients
    );
    (merged, rows)
}

/// Link to the report that terminals and browsers open.
fn report_link(report: &Path) -> String {
    match report.canonicalize() {
        Ok(path) => format!("Report, to open in a browser: file://{}", path.display()),
        Err(_) => format!("Report: {}", report.display()),
    }
}
