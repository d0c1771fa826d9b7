//! `leeward demo --service`: all tiers of a service on this machine, each server in a process of its own, under half of what they can do, all
//! of it and twice as much. Never here: processes (`demo::tiers::fleet`), what the numbers are made of (`demo::tiers::sight`).

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use leeward_catalogue::Catalogue;
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

/// Demands, over what the tiers can do.
const RATIOS: [f64; 3] = [0.5, 1.0, 2.0];
/// From one look at the tiers to the next.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Pause between looks at the keyboard.
const KEY_INTERVAL: Duration = Duration::from_millis(50);
/// Clients of the closed loop that measures the capacity.
const CLOSED_CLIENTS: u32 = 32;

/// A service with leaves, as the demo starts it.
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

    /// Requests of clients, as `leeward load --service` names them. Some ask the same of all data.
    fn requests(&self) -> String {
        let name = self.service.name();
        let about = self.data.as_ref().map(|data| format!("{name}:{data}"));
        about.filter(|about| self.service.requests(about).is_ok()).unwrap_or_else(|| name.into())
    }
}

/// CPUs of servers and of clients: those share none where there are two, for each would else be measured waiting for the other.
struct CpuPlacement {
    servers: Vec<usize>,
    clients: Option<usize>,
}

/// CPUs that are looked at.
const CPUS_MAX: usize = 1_024;

impl CpuPlacement {
    fn detect() -> CpuPlacement {
        let mut servers: Vec<usize> = (0..CPUS_MAX).filter(|cpu| leeward_load::may_run_on(*cpu)).collect();
        let clients = if servers.len() > 1 { servers.pop() } else { None };
        CpuPlacement { servers, clients }
    }

    /// Flags of the mid-tier, or of the leaf with this number.
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

/// The command.
pub(crate) fn demo(args: &DemoArgs, service: &str) -> Result<(), Failure> {
    let cast = ServicePair::find(service, args.data.as_ref())?;
    admission::parse_span("--duration", &args.duration)?;
    admission::parse_span("--slo", &args.slo)?;
    output_files::check_folder(&args.out)?;
    let interrupt = Interrupt::listen(StopMode::Graceful)?;
    hangup::stop_on_hangup(&interrupt);
    let live = !args.plain && terminal::supports_live_view();
    if !live {
        print_line(&format!("starting {} leaves and a mid-tier of {service} on this machine ...", args.leaves));
    }
    let mut stage = DemoRun::launch(args, &cast, live, interrupt)?;
    let played = stage.run_phases(args, &cast);
    stage.shut_down();
    let (capacity, played) = played?;
    let last = played.last().map(|phase| table(&phase.tiers)).unwrap_or_default();
    let slo = &args.slo;
    let text = format!(
        "{service} under {}: a mid-tier and {} leaves on this machine, beside their clients. In closed loop it answered {capacity:.0} \
         requests per second; demand is a multiple of that. A good answer is whole, and comes within {slo}.",
        args.admission, args.leaves
    );
    let report = serde_json::json!({
        "service": service, "leaves": args.leaves, "admission": args.admission, "slo": slo, "data": cast.data,
        "capacity_per_s": capacity, "phases": played.iter().map(Phase::json).collect::<Vec<_>>(),
    });
    let path = args.out.join("tiers.json");
    output_files::write_into(&args.out, "tiers.json", &format!("{report:#}\n"))?;
    stdout::print(&format!(
        "{}\n{}\nThe tiers at the largest demand:\n\n{last}\nReport: {}",
        crate::table::wrap(&text, 0, crate::table::WIDTH),
        phases(&played),
        path.display()
    ))
}

fn print_line(words: &str) {
    let _ = writeln!(std::io::stderr(), "{words}");
}

/// The terminal and its keys.
struct Screen {
    canvas: Canvas,
    keyboard: Keyboard,
}

/// Everything that runs.
struct DemoRun {
    interrupt: Interrupt,
    screen: Option<Screen>,
    /// The mid-tier first, then its leaves.
    servers: Vec<ServerProcess>,
    monitors: Vec<ServerMonitor>,
    /// Line above the table, and tables of what has ended.
    heading: String,
    finished: Vec<Phase>,
    warnings: Vec<String>,
    tiers: Vec<TierStatistics>,
    polled_at: Instant,
    service: &'static str,
    placement: CpuPlacement,
}

/// A server that is watched.
struct ServerMonitor {
    source: StatisticsSource,
    previous: Statistics,
    current: Statistics,
    /// At the beginning of a phase.
    phase_start: Statistics,
}

impl DemoRun {
    /// Starts everything.
    fn launch(args: &DemoArgs, cast: &ServicePair, live: bool, interrupt: Interrupt) -> Result<DemoRun, Failure> {
        let screen = live.then(terminal::take).and_then(Result::ok);
        let mut stage = DemoRun {
            interrupt,
            screen: screen.map(|canvas| Screen { canvas, keyboard: Keyboard::open() }),
            servers: Vec::new(),
            monitors: Vec::new(),
            heading: format!("Starting {} leaves and a mid-tier of {}", args.leaves, cast.service.name()),
            finished: Vec::new(),
            warnings: Vec::new(),
            tiers: Vec::new(),
            polled_at: Instant::now(),
            service: cast.service.name(),
            placement: CpuPlacement::detect(),
        };
        match stage.start(args, cast) {
            Ok(()) => Ok(stage),
            Err(failure) => {
                stage.shut_down();
                Err(failure)
            }
        }
    }

    fn start(&mut self, args: &DemoArgs, cast: &ServicePair) -> Result<(), Failure> {
        self.draw()?;
        let common = ["--admission", &args.admission, "--slo", &args.slo].map(String::from);
        let flags = |case: &dyn ServiceDefinition, more: &[String]| {
            [&["--service".to_string(), case.name().into()], &common[..], &cast.with_data(case), more].concat()
        };
        for leaf in 1..=args.leaves {
            let shard = [format!("--{}", SHARD.name), format!("{leaf}/{}", args.leaves)];
            let shard = if accepts(cast.leaf, &SHARD) { &shard[..] } else { &[] };
            let more = [shard, &self.placement.server_flags(Some(leaf))].concat();
            self.servers.push(ServerProcess::start(&flags(cast.leaf, &more))?);
        }
        let interrupt = self.interrupt.clone();
        self.servers.iter_mut().try_for_each(|server| server.wait(&interrupt))?;
        let leaves: Vec<&str> = self.servers.iter().map(|server| server.address.as_str()).collect();
        let more = ["--leaves", &leaves.join(","), "--leaf-admission", &args.admission].map(String::from);
        let more = [&more[..], &self.placement.server_flags(None)].concat();
        let mut middle = ServerProcess::start(&flags(cast.service, &more))?;
        middle.wait(&interrupt)?;
        self.servers.insert(0, middle);
        for server in &self.servers {
            let source = StatisticsSource::open(&server.address, None, &interrupt)?;
            let now = source.query(&interrupt, || {}).map_err(|error| poll_failure(&interrupt, error))?;
            self.monitors.push(ServerMonitor { source, previous: now.clone(), phase_start: now.clone(), current: now });
        }
        Ok(())
    }

    /// Measures the capacity, then puts the demands on. Returns the capacity, and what came of each demand.
    fn run_phases(&mut self, args: &DemoArgs, cast: &ServicePair) -> Result<(f64, Vec<Phase>), Failure> {
        let address = self.servers[0].address.clone();
        let common = [
            address,
            "--service".into(),
            cast.requests(),
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
            self.monitors.iter_mut().for_each(|watch| watch.phase_start = watch.current.clone());
            // The same clients at each demand, few enough for the machine.
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
        let tiers = self.tiers(|watch| (watch.phase_start.clone(), watch.current.clone()));
        let late = report["adherence"]["late_share"].as_f64().unwrap_or(0.0);
        Phase { ratio, demand_per_s: demand, goodput_per_s: goodput, p99_us: p99, lost, late, tiers }
    }

    /// The mid-tier and the leaves, between two looks at each server.
    fn tiers(&self, looks: impl Fn(&ServerMonitor) -> (Statistics, Statistics)) -> Vec<TierStatistics> {
        let looks: Vec<_> = self.monitors.iter().map(looks).collect();
        let (middle, leaves) = looks.split_at(looks.len().min(1));
        vec![
            TierStatistics::from_statistics(self.service, middle),
            TierStatistics::from_statistics(&leaf_service(self.service), leaves),
        ]
    }

    fn load(&mut self, arguments: &[String]) -> Result<Value, Failure> {
        processes::load(arguments, || self.poll())
    }

    /// A turn of watching: keys, a look at the tiers if it is time, a picture.
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

    /// Asks all servers.
    fn poll_servers(&mut self) -> Result<(), Failure> {
        self.polled_at = Instant::now();
        let DemoRun { monitors: watches, interrupt, servers, warnings, screen, .. } = self;
        for watch in watches {
            // One that does not answer now may do so later.
            if let Ok(newer) = watch.source.query(interrupt, || {}) {
                watch.previous = std::mem::replace(&mut watch.current, newer);
            }
        }
        if interrupt.is_requested() {
            return Err(Failure::Interrupted);
        }
        for words in servers.iter().flat_map(ServerProcess::warnings) {
            if screen.is_none() {
                print_line(&words);
            }
            if warnings.len() < 3 && !warnings.contains(&words) {
                warnings.push(words);
            }
        }
        self.tiers = self.tiers(|watch| (watch.previous.clone(), watch.current.clone()));
        Ok(())
    }

    fn draw(&mut self) -> Result<(), Failure> {
        let DemoRun { screen: Some(screen), heading, finished: past, tiers, warnings, .. } = self else {
            return Ok(());
        };
        let past = if past.is_empty() { String::new() } else { format!("\n{}", phases(past)) };
        let warnings: String = warnings.iter().map(|words| format!("{words}\n")).collect();
        let text = format!("{heading}\n\n{}{past}\n{warnings}q stops", table(tiers));
        let drawn = screen.canvas.draw(|frame| frame.render_widget(Paragraph::new(text), frame.area()));
        drawn.map_err(|error| Failure::Runtime(anyhow!("the terminal: {error}")))
    }

    /// Gives the terminal back and stops the servers, the mid-tier first.
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
