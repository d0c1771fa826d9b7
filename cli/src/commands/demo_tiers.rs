//! `leeward demo --service`: runs all tiers of a service on this machine, each server in its own
//! process, at half, once and twice their capacity.
//!
//! Does not contain processes (`demo::tiers::processes`) or statistics (`demo::tiers::statistics`).

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use leeward_catalogue::Catalogue;
use leeward_core::units::Nanos;
use leeward_rpc::statistics::Statistics;
use leeward_services::arguments::Argument;
use leeward_services::definition::ServiceDefinition;
use leeward_services::tiers::{DATA, SHARD, leaf_service};
use ratatui::widgets::Paragraph;
use serde_json::Value;

use super::demo::DemoArgs;
use super::output_files;
use super::statistics_source::StatisticsSource;
use crate::admission;
use crate::demo::format::{format_us, multiple, percent};
use crate::demo::tiers::processes::{self, ServerProcess};
use crate::demo::tiers::statistics::{LATE_MAX, Phase, TierStatistics, phases, table};
use crate::failure::Failure;
use crate::hangup;
use crate::interrupt::{Interrupt, StopMode};
use crate::keyboard::Keyboard;
use crate::stdout;
use crate::terminal::{self, Canvas};

/// Demands, relative to the capacity of the tiers.
const RATIOS: [f64; 3] = [0.5, 1.0, 2.0];
/// Interval between two polls of the tiers.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Interval between two polls of the keyboard.
const KEY_INTERVAL: Duration = Duration::from_millis(50);
/// Clients of the closed loop that measures the capacity.
const CLOSED_CLIENTS: u32 = 32;

/// A service and its leaves, as the demo starts them.
struct ServicePair {
    service: &'static dyn ServiceDefinition,
    leaf: &'static dyn ServiceDefinition,
    data: Option<String>,
}

impl ServicePair {
    fn find(name: &str, data: Option<&String>) -> Result<ServicePair, Failure> {
        let catalogue = Catalogue::builtin();
        let pair = catalogue.find(name).zip(catalogue.find(&leaf_service(name)));
        let (service, leaf) = pair.ok_or_else(|| {
            let with_leaves = |name: &&str| catalogue.find(&leaf_service(name)).is_some();
            let names: Vec<&str> = catalogue.names().into_iter().filter(with_leaves).collect();
            Failure::Input(anyhow!("--service {}: accepted: {}", stdout::sanitize(name), names.join(", ")))
        })?;
        if data.is_some() && !accepts(leaf, &DATA) {
            return Err(Failure::Input(anyhow!("--data: {name} has no data of its own; its clients store some")));
        }
        let data = data.cloned().or_else(|| leaf.small_data().map(String::from)).filter(|_| accepts(leaf, &DATA));
        Ok(ServicePair { service, leaf, data })
    }

    fn with_data(&self, case: &dyn ServiceDefinition) -> Vec<String> {
        match &self.data {
            Some(data) if accepts(case, &DATA) => vec!["--data".into(), data.clone()],
            _ => Vec::new(),
        }
    }

    /// Value of `leeward load --service`. Some services send the same requests for all data.
    fn requests(&self) -> String {
        let name = self.service.name();
        let with_data = self.data.as_ref().map(|data| format!("{name}:{data}"));
        with_data.filter(|with_data| self.service.requests(with_data).is_ok()).unwrap_or_else(|| name.into())
    }
}

/// CPUs of servers and of clients. Given two or more CPUs, clients have one alone; otherwise the
/// measurement would include waits between both.
struct CpuPlacement {
    servers: Vec<usize>,
    clients: Option<usize>,
}

/// Maximum of CPUs that are considered.
const CPUS_MAX: usize = 1_024;

impl CpuPlacement {
    fn detect() -> CpuPlacement {
        let mut servers: Vec<usize> = (0..CPUS_MAX).filter(|cpu| leeward_load::may_run_on(*cpu)).collect();
        let clients = if servers.len() > 1 { servers.pop() } else { None };
        CpuPlacement { servers, clients }
    }

    /// CPU flags of the mid-tier (`None`), or of the leaf with this number.
    fn server_flags(&self, leaf: Option<u32>) -> Vec<String> {
        let cpus: Vec<String> = match (self.clients, leaf) {
            (None, _) => Vec::new(),
            (_, None) => self.servers.iter().map(ToString::to_string).collect(),
            (_, Some(leaf)) => {
                self.servers.get(leaf as usize % self.servers.len()).map(ToString::to_string).into_iter().collect()
            }
        };
        if cpus.is_empty() { Vec::new() } else { vec!["--cpus".into(), cpus.join(",")] }
    }

    fn client_flags(&self) -> Vec<String> {
        self.clients.map(|cpu| vec!["--cpu".into(), cpu.to_string()]).unwrap_or_default()
    }
}

fn accepts(case: &dyn ServiceDefinition, argument: &Argument) -> bool {
    case.arguments().iter().any(|own| own.name == argument.name)
}

/// Runs the command.
pub(crate) fn demo(args: &DemoArgs, service: &str) -> Result<(), Failure> {
    let pair = ServicePair::find(service, args.data.as_ref())?;
    admission::parse_span("--duration", &args.duration)?;
    let slo = admission::parse_span("--slo", &args.slo)?;
    output_files::check_folder(&args.out, &["tiers.json"])?;
    let interrupt = Interrupt::listen(StopMode::Graceful)?;
    hangup::stop_on_hangup(&interrupt);
    let live = !args.plain && terminal::supports_live_view();
    if !live {
        print_line(&format!("starting {} leaves and a mid-tier of {service} on this machine ...", args.leaves));
    }
    let mut run = DemoRun::launch(args, &pair, (live, slo), interrupt)?;
    let phases_run = run.run_phases(args, &pair);
    run.shut_down();
    let (capacity, phases_run) = phases_run?;
    let last = phases_run.last().map(|phase| table(&phase.tiers)).unwrap_or_default();
    let slo = &args.slo;
    let text = format!(
        "{service} under {}: a mid-tier and {} leaves on this machine, beside their clients. In closed loop it answered {capacity:.0} \
         requests per second; demand is a multiple of that. A good answer is whole, and comes within {slo}. Leaves have half of that.",
        args.admission, args.leaves
    );
    let report = serde_json::json!({
        "service": service, "leaves": args.leaves, "admission": args.admission, "slo": slo, "data": pair.data,
        "capacity_per_s": capacity, "phases": phases_run.iter().map(Phase::json).collect::<Vec<_>>(),
    });
    let path = args.out.join("tiers.json");
    output_files::write_into(&args.out, "tiers.json", &format!("{report:#}\n"))?;
    stdout::print(&format!(
        "{}\n{}\nThe tiers at the largest demand:\n\n{last}\nReport: {}",
        crate::table::wrap(&text, 0, crate::table::WIDTH),
        phases(&phases_run),
        path.display()
    ))?;
    if phases_run.iter().all(|phase| phase.late > LATE_MAX) {
        return Err(Failure::Unmeasured(anyhow!("the clients were late at every demand")));
    }
    Ok(())
}

fn print_line(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The terminal and its keyboard.
struct Screen {
    canvas: Canvas,
    keyboard: Keyboard,
}

/// State of the running demo.
struct DemoRun {
    interrupt: Interrupt,
    screen: Option<Screen>,
    /// The mid-tier first, then its leaves.
    servers: Vec<ServerProcess>,
    monitors: Vec<ServerMonitor>,
    /// Line above the table, and the phases that have ended.
    heading: String,
    finished: Vec<Phase>,
    warnings: Vec<String>,
    tiers: Vec<TierStatistics>,
    polled_at: Instant,
    service: &'static str,
    placement: CpuPlacement,
}

/// A monitored server and its statistics.
struct ServerMonitor {
    source: StatisticsSource,
    previous: Statistics,
    current: Statistics,
    /// Statistics at the start of the phase.
    phase_start: Statistics,
}

impl DemoRun {
    /// Starts the servers.
    fn launch(
        args: &DemoArgs,
        pair: &ServicePair,
        (live, slo): (bool, Nanos),
        interrupt: Interrupt,
    ) -> Result<DemoRun, Failure> {
        let screen = live.then(terminal::take).and_then(Result::ok);
        let mut run = DemoRun {
            interrupt,
            screen: screen.map(|canvas| Screen { canvas, keyboard: Keyboard::open() }),
            servers: Vec::new(),
            monitors: Vec::new(),
            heading: format!("Starting {} leaves and a mid-tier of {}", args.leaves, pair.service.name()),
            finished: Vec::new(),
            warnings: Vec::new(),
            tiers: Vec::new(),
            polled_at: Instant::now(),
            service: pair.service.name(),
            placement: CpuPlacement::detect(),
        };
        match run.start(args, pair, slo) {
            Ok(()) => Ok(run),
            Err(failure) => {
                run.shut_down();
                Err(failure)
            }
        }
    }

    fn start(&mut self, args: &DemoArgs, pair: &ServicePair, slo: Nanos) -> Result<(), Failure> {
        self.draw()?;
        let flags = |case: &dyn ServiceDefinition, slo: Nanos, more: &[String]| {
            let own = ["--service", case.name(), "--admission", &args.admission, "--slo", &slo.to_string()];
            [&own.map(String::from)[..], &pair.with_data(case), more].concat()
        };
        // A leaf may not spend the whole objective: its caller's work and queue need the rest.
        let leaf_slo = Nanos((slo.0 / 2).max(1));
        for leaf in 1..=args.leaves {
            let shard = [format!("--{}", SHARD.name), format!("{leaf}/{}", args.leaves)];
            let shard = if accepts(pair.leaf, &SHARD) { &shard[..] } else { &[] };
            let more = [shard, &self.placement.server_flags(Some(leaf))].concat();
            self.servers.push(ServerProcess::start(&flags(pair.leaf, leaf_slo, &more))?);
        }
        let interrupt = self.interrupt.clone();
        self.servers.iter_mut().try_for_each(|server| server.wait(&interrupt))?;
        let leaves: Vec<&str> = self.servers.iter().map(|server| server.address.as_str()).collect();
        let more = ["--leaves", &leaves.join(","), "--leaf-admission", &args.admission].map(String::from);
        let more = [&more[..], &self.placement.server_flags(None)].concat();
        let mut middle = ServerProcess::start(&flags(pair.service, slo, &more))?;
        middle.wait(&interrupt)?;
        self.servers.insert(0, middle);
        for server in &self.servers {
            let source = StatisticsSource::open(&server.address, None, &interrupt)?;
            let now = source.query(&interrupt, || {}).map_err(|error| poll_failure(&interrupt, error))?;
            self.monitors.push(ServerMonitor { source, previous: now.clone(), phase_start: now.clone(), current: now });
        }
        Ok(())
    }

    /// Measures the capacity, then runs a phase per demand. Returns the capacity and the phases.
    fn run_phases(&mut self, args: &DemoArgs, pair: &ServicePair) -> Result<(f64, Vec<Phase>), Failure> {
        let address = self.servers[0].address.clone();
        let common = [
            address,
            "--service".into(),
            pair.requests(),
            "--slo".into(),
            args.slo.clone(),
            "--seed".into(),
            args.seed.to_string(),
            "--duration".into(),
            args.duration.clone(),
        ];
        self.heading = format!("Measuring what {} can do", self.service);
        self.announce();
        let admission =
            [&["--admission".to_string(), args.admission.clone()], &self.placement.client_flags()[..]].concat();
        let closed = ["--closed", "1", "--clients"].map(String::from);
        let closed = [&common[..], &admission, &closed, &[CLOSED_CLIENTS.to_string()]].concat();
        let report = self.load(&closed)?;
        let capacity = number(&report, "throughput_per_s").filter(|capacity| *capacity >= 1.0);
        let capacity =
            capacity.ok_or_else(|| Failure::Runtime(anyhow!("the tiers answered nothing in closed loop")))?;
        for ratio in RATIOS {
            let demand = ratio * capacity;
            self.heading = format!("Demand {}: {demand:.0} requests per second", multiple(ratio));
            self.announce();
            self.monitors.iter_mut().for_each(|monitor| monitor.phase_start = monitor.current.clone());
            // Use the same clients at each demand, few enough for the machine.
            let clients = args.clients.min(CLOSED_CLIENTS * 4).to_string();
            let open = ["--demand".to_string(), format!("{demand:.0}"), "--clients".into(), clients];
            let report = self.load(&[&common[..], &admission, &open].concat())?;
            self.poll_servers()?;
            let phase = self.phase(ratio, demand, &report);
            if self.screen.is_none() {
                let (goodput, p99) = (phase.goodput_per_s, format_us(phase.p99_us));
                print_line(&format!(
                    "  goodput {goodput:.0}/s, p99 {p99}, {} without a good answer",
                    percent(phase.lost)
                ));
                if phase.late > LATE_MAX {
                    print_line(&format!(
                        "  the clients were late with {} of their requests: too little CPU",
                        percent(phase.late)
                    ));
                }
            }
            self.finished.push(phase);
        }
        Ok((capacity, std::mem::take(&mut self.finished)))
    }

    fn announce(&self) {
        if self.screen.is_none() {
            print_line(&self.heading);
        }
    }

    fn phase(&self, ratio: f64, demand: f64, report: &Value) -> Phase {
        let goodput = number(report, "goodput_per_s").unwrap_or(0.0);
        let p99 = report["latency"]["p99_ns"].as_f64().unwrap_or(f64::NAN) / 1e3;
        let (offered, good) = (report["totals"]["offered"].as_f64(), report["totals"]["good"].as_f64());
        let lost = offered.zip(good).map_or(f64::NAN, |(offered, good)| 1.0 - good / offered.max(1.0));
        let tiers = self.tiers(|monitor| (monitor.phase_start.clone(), monitor.current.clone()));
        let late = report["adherence"]["late_share"].as_f64().unwrap_or(0.0);
        Phase { ratio, demand_per_s: demand, goodput_per_s: goodput, p99_us: p99, lost, late, tiers }
    }

    /// Statistics of the mid-tier and of the leaves, between two polls of each server.
    fn tiers(&self, polls: impl Fn(&ServerMonitor) -> (Statistics, Statistics)) -> Vec<TierStatistics> {
        let polls: Vec<_> = self.monitors.iter().map(polls).collect();
        let (middle, leaves) = polls.split_at(polls.len().min(1));
        vec![
            TierStatistics::from_statistics(self.service, middle),
            TierStatistics::from_statistics(&leaf_service(self.service), leaves),
        ]
    }

    fn load(&mut self, arguments: &[String]) -> Result<Value, Failure> {
        processes::load(arguments, || self.poll())
    }

    /// Handles keys, and polls the tiers and draws if the interval has passed.
    fn poll(&mut self) -> Result<(), Failure> {
        let interrupt = self.interrupt.clone();
        match &mut self.screen {
            Some(screen) => screen.keyboard.wait(&interrupt, KEY_INTERVAL),
            None => std::thread::sleep(KEY_INTERVAL),
        }
        if interrupt.is_requested() {
            return Err(Failure::Interrupted);
        }
        if let Some(failure) = self.servers.iter_mut().find_map(ServerProcess::exit_failure) {
            return Err(failure);
        }
        if self.polled_at.elapsed() >= POLL_INTERVAL {
            self.poll_servers()?;
            self.draw()?;
        }
        Ok(())
    }

    /// Polls all servers.
    fn poll_servers(&mut self) -> Result<(), Failure> {
        self.polled_at = Instant::now();
        let DemoRun { monitors: all_monitors, interrupt, servers, warnings, screen, .. } = self;
        for monitor in all_monitors {
            // A server that does not respond now is polled again.
            if let Ok(newer) = monitor.source.query(interrupt, || {}) {
                monitor.previous = std::mem::replace(&mut monitor.current, newer);
            }
        }
        if interrupt.is_requested() {
            return Err(Failure::Interrupted);
        }
        for warning in servers.iter().flat_map(ServerProcess::warnings) {
            if screen.is_none() {
                print_line(&warning);
            }
            if warnings.len() < 3 && !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        self.tiers = self.tiers(|monitor| (monitor.previous.clone(), monitor.current.clone()));
        Ok(())
    }

    fn draw(&mut self) -> Result<(), Failure> {
        let DemoRun { screen: Some(screen), heading, finished: past, tiers, warnings, .. } = self else {
            return Ok(());
        };
        let past = if past.is_empty() { String::new() } else { format!("\n{}", phases(past)) };
        let warnings: String = warnings.iter().map(|warning| format!("{warning}\n")).collect();
        let text = format!("{heading}\n\n{}{past}\n{warnings}q stops", table(tiers));
        let drawn = screen.canvas.draw(|frame| frame.render_widget(Paragraph::new(text), frame.area()));
        drawn.map_err(|error| Failure::Runtime(anyhow!("the terminal: {error}")))
    }

    /// Restores the terminal and stops the servers, the mid-tier first.
    fn shut_down(&mut self) {
        if self.screen.take().is_some() {
            terminal::restore();
        }
        self.monitors.clear();
        processes::stop(std::mem::take(&mut self.servers));
    }
}

fn poll_failure(interrupt: &Interrupt, error: anyhow::Error) -> Failure {
    if interrupt.is_requested() { Failure::Interrupted } else { Failure::Runtime(error.context("a tier")) }
}

fn number(report: &Value, name: &str) -> Option<f64> {
    report[name].as_f64()
}
