//! `leeward demo --service`: all tiers of a service on this machine, each server in a process of its own, under half of what they can do, all
//! of it and twice as much. Never here: processes (`demo::tiers::fleet`), what the numbers are made of (`demo::tiers::sight`).

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use leeward_catalogue::Catalogue;
use leeward_rpc::statistics::Statistics;
use leeward_services::arguments::Argument;
use leeward_services::case::Case;
use leeward_services::tiers::{DATA, SHARD, leaf_of};
use ratatui::widgets::Paragraph;
use serde_json::Value;

use super::demo::DemoArgs;
use super::source::Source;
use super::target;
use crate::admission;
use crate::demo::tiers::fleet::{self, Server};
use crate::demo::tiers::sight::{LATE, Phase, Tier, phases, table};
use crate::demo::words::{percent, span, times};
use crate::failure::Failure;
use crate::hangup;
use crate::interrupt::{Interrupt, Leaving};
use crate::keyboard::Keyboard;
use crate::stdout;
use crate::terminal::{self, Canvas};

/// Demands, over what the tiers can do.
const RATIOS: [f64; 3] = [0.5, 1.0, 2.0];
/// From one look at the tiers to the next.
const LOOK: Duration = Duration::from_millis(500);
/// Pause between looks at the keyboard.
const GLANCE: Duration = Duration::from_millis(50);
/// Clients of the closed loop that measures the capacity.
const CLOSED: u32 = 32;

/// A service with leaves, as the demo starts it.
struct Cast {
    service: &'static dyn Case,
    leaf: &'static dyn Case,
    data: Option<String>,
}

impl Cast {
    fn of(name: &str, data: Option<&String>) -> Result<Cast, Failure> {
        let catalogue = Catalogue::builtin();
        let pair = catalogue.find(name).zip(catalogue.find(&leaf_of(name)));
        let (service, leaf) = pair.ok_or_else(|| {
            let with_leaves = |name: &&str| catalogue.find(&leaf_of(name)).is_some();
            let names: Vec<&str> = catalogue.names().into_iter().filter(with_leaves).collect();
            Failure::Input(anyhow!("--service {}: accepted: {}", stdout::plain(name), names.join(", ")))
        })?;
        if data.is_some() && !takes(leaf, &DATA) {
            return Err(Failure::Input(anyhow!("--data: {name} has no data of its own; its clients store some")));
        }
        let data = data.cloned().or_else(|| leaf.small_data().map(String::from)).filter(|_| takes(leaf, &DATA));
        Ok(Cast { service, leaf, data })
    }

    fn with_data(&self, case: &dyn Case) -> Vec<String> {
        match &self.data {
            Some(data) if takes(case, &DATA) => vec!["--data".into(), data.clone()],
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
struct Places {
    servers: Vec<usize>,
    clients: Option<usize>,
}

/// CPUs that are looked at.
const CPUS: usize = 1_024;

impl Places {
    fn find() -> Places {
        let mut servers: Vec<usize> = (0..CPUS).filter(|cpu| leeward_load::may_run_on(*cpu)).collect();
        let clients = if servers.len() > 1 { servers.pop() } else { None };
        Places { servers, clients }
    }

    /// Flags of the mid-tier, or of the leaf with this number.
    fn of_server(&self, leaf: Option<u32>) -> Vec<String> {
        let cpus: Vec<String> = match (self.clients, leaf) {
            (None, _) => Vec::new(),
            (_, None) => self.servers.iter().map(ToString::to_string).collect(),
            (_, Some(leaf)) => {
                self.servers.get(leaf as usize % self.servers.len()).map(ToString::to_string).into_iter().collect()
            }
        };
        if cpus.is_empty() { Vec::new() } else { vec!["--cpus".into(), cpus.join(",")] }
    }

    fn of_clients(&self) -> Vec<String> {
        self.clients.map(|cpu| vec!["--cpu".into(), cpu.to_string()]).unwrap_or_default()
    }
}

fn takes(case: &dyn Case, argument: &Argument) -> bool {
    case.arguments().iter().any(|own| own.name == argument.name)
}

/// The command.
pub(crate) fn demo(args: &DemoArgs, service: &str) -> Result<(), Failure> {
    let cast = Cast::of(service, args.data.as_ref())?;
    admission::span("--duration", &args.duration)?;
    admission::span("--slo", &args.slo)?;
    target::check_folder(&args.out)?;
    let interrupt = Interrupt::listen(Leaving::InOrder)?;
    hangup::end_with_stderr(&interrupt);
    let live = !args.plain && terminal::wanted();
    if !live {
        say(&format!("starting {} leaves and a mid-tier of {service} on this machine ...", args.leaves));
    }
    let mut stage = Stage::open(args, &cast, live, interrupt)?;
    let played = stage.play(args, &cast);
    stage.end();
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
    target::write_into(&args.out, "tiers.json", &format!("{report:#}\n"))?;
    stdout::print(&format!(
        "{}\n{}\nThe tiers at the largest demand:\n\n{last}\nReport: {}",
        crate::table::folded(&text, 0, crate::table::WIDTH),
        phases(&played),
        path.display()
    ))
}

fn say(words: &str) {
    let _ = writeln!(std::io::stderr(), "{words}");
}

/// The terminal and its keys.
struct Screen {
    canvas: Canvas,
    keyboard: Keyboard,
}

/// Everything that runs.
struct Stage {
    interrupt: Interrupt,
    screen: Option<Screen>,
    /// The mid-tier first, then its leaves.
    servers: Vec<Server>,
    watches: Vec<Watch>,
    /// Line above the table, and tables of what has ended.
    heading: String,
    past: Vec<Phase>,
    warnings: Vec<String>,
    tiers: Vec<Tier>,
    looked: Instant,
    service: &'static str,
    places: Places,
}

/// A server that is watched.
struct Watch {
    source: Source,
    before: Statistics,
    now: Statistics,
    /// At the beginning of a phase.
    first: Statistics,
}

impl Stage {
    /// Starts everything.
    fn open(args: &DemoArgs, cast: &Cast, live: bool, interrupt: Interrupt) -> Result<Stage, Failure> {
        let screen = live.then(terminal::take).and_then(Result::ok);
        let mut stage = Stage {
            interrupt,
            screen: screen.map(|canvas| Screen { canvas, keyboard: Keyboard::open() }),
            servers: Vec::new(),
            watches: Vec::new(),
            heading: format!("Starting {} leaves and a mid-tier of {}", args.leaves, cast.service.name()),
            past: Vec::new(),
            warnings: Vec::new(),
            tiers: Vec::new(),
            looked: Instant::now(),
            service: cast.service.name(),
            places: Places::find(),
        };
        match stage.start(args, cast) {
            Ok(()) => Ok(stage),
            Err(failure) => {
                stage.end();
                Err(failure)
            }
        }
    }

    fn start(&mut self, args: &DemoArgs, cast: &Cast) -> Result<(), Failure> {
        self.draw()?;
        let common = ["--admission", &args.admission, "--slo", &args.slo].map(String::from);
        let flags = |case: &dyn Case, more: &[String]| {
            [&["--service".to_string(), case.name().into()], &common[..], &cast.with_data(case), more].concat()
        };
        for leaf in 1..=args.leaves {
            let shard = [format!("--{}", SHARD.name), format!("{leaf}/{}", args.leaves)];
            let shard = if takes(cast.leaf, &SHARD) { &shard[..] } else { &[] };
            let more = [shard, &self.places.of_server(Some(leaf))].concat();
            self.servers.push(Server::start(&flags(cast.leaf, &more))?);
        }
        let interrupt = self.interrupt.clone();
        self.servers.iter_mut().try_for_each(|server| server.wait(&interrupt))?;
        let leaves: Vec<&str> = self.servers.iter().map(|server| server.address.as_str()).collect();
        let more = ["--leaves", &leaves.join(","), "--leaf-admission", &args.admission].map(String::from);
        let more = [&more[..], &self.places.of_server(None)].concat();
        let mut middle = Server::start(&flags(cast.service, &more))?;
        middle.wait(&interrupt)?;
        self.servers.insert(0, middle);
        for server in &self.servers {
            let source = Source::open(&server.address, None, &interrupt)?;
            let now = source.ask(&interrupt, || {}).map_err(|error| stopped(&interrupt, error))?;
            self.watches.push(Watch { source, before: now.clone(), first: now.clone(), now });
        }
        Ok(())
    }

    /// Measures the capacity, then puts the demands on. Returns the capacity, and what came of each demand.
    fn play(&mut self, args: &DemoArgs, cast: &Cast) -> Result<(f64, Vec<Phase>), Failure> {
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
        let admission = [&["--admission".to_string(), args.admission.clone()], &self.places.of_clients()[..]].concat();
        let closed = ["--closed", "1", "--clients"].map(String::from);
        let closed = [&common[..], &admission, &closed, &[CLOSED.to_string()]].concat();
        let report = self.load(&closed)?;
        let capacity = number(&report, "throughput_per_s").filter(|capacity| *capacity >= 1.0);
        let capacity =
            capacity.ok_or_else(|| Failure::Runtime(anyhow!("the tiers answered nothing in closed loop")))?;
        for ratio in RATIOS {
            let demand = ratio * capacity;
            self.heading = format!("Demand {}: {demand:.0} requests per second", times(ratio));
            self.announce();
            self.watches.iter_mut().for_each(|watch| watch.first = watch.now.clone());
            // The same clients at each demand, few enough for the machine.
            let clients = args.clients.min(CLOSED * 4).to_string();
            let open = ["--demand".to_string(), format!("{demand:.0}"), "--clients".into(), clients];
            let report = self.load(&[&common[..], &admission, &open].concat())?;
            self.look()?;
            let phase = self.phase(ratio, demand, &report);
            if self.screen.is_none() {
                let (goodput, p99) = (phase.goodput_per_s, span(phase.p99_us));
                say(&format!("  goodput {goodput:.0}/s, p99 {p99}, {} without a good answer", percent(phase.lost)));
                if phase.late > LATE {
                    say(&format!(
                        "  the clients were late with {} of their requests: too little CPU",
                        percent(phase.late)
                    ));
                }
            }
            self.past.push(phase);
        }
        Ok((capacity, std::mem::take(&mut self.past)))
    }

    fn announce(&self) {
        if self.screen.is_none() {
            say(&self.heading);
        }
    }

    fn phase(&self, ratio: f64, demand: f64, report: &Value) -> Phase {
        let goodput = number(report, "goodput_per_s").unwrap_or(0.0);
        let p99 = report["latency"]["p99_ns"].as_f64().unwrap_or(f64::NAN) / 1e3;
        let (offered, good) = (report["totals"]["offered"].as_f64(), report["totals"]["good"].as_f64());
        let lost = offered.zip(good).map_or(f64::NAN, |(offered, good)| 1.0 - good / offered.max(1.0));
        let tiers = self.tiers(|watch| (watch.first.clone(), watch.now.clone()));
        let late = report["adherence"]["late_share"].as_f64().unwrap_or(0.0);
        Phase { ratio, demand_per_s: demand, goodput_per_s: goodput, p99_us: p99, lost, late, tiers }
    }

    /// The mid-tier and the leaves, between two looks at each server.
    fn tiers(&self, looks: impl Fn(&Watch) -> (Statistics, Statistics)) -> Vec<Tier> {
        let looks: Vec<_> = self.watches.iter().map(looks).collect();
        let (middle, leaves) = looks.split_at(looks.len().min(1));
        vec![Tier::between(self.service, middle), Tier::between(&leaf_of(self.service), leaves)]
    }

    fn load(&mut self, arguments: &[String]) -> Result<Value, Failure> {
        fleet::load(arguments, || self.watch())
    }

    /// A turn of watching: keys, a look at the tiers if it is time, a picture.
    fn watch(&mut self) -> Result<(), Failure> {
        let interrupt = self.interrupt.clone();
        match &mut self.screen {
            Some(screen) => screen.keyboard.listen(&interrupt, GLANCE),
            None => std::thread::sleep(GLANCE),
        }
        if interrupt.asked() {
            return Err(Failure::Interrupted);
        }
        if let Some(failure) = self.servers.iter_mut().find_map(Server::has_failed) {
            return Err(failure);
        }
        if self.looked.elapsed() >= LOOK {
            self.look()?;
            self.draw()?;
        }
        Ok(())
    }

    /// Asks all servers.
    fn look(&mut self) -> Result<(), Failure> {
        self.looked = Instant::now();
        let Stage { watches, interrupt, servers, warnings, screen, .. } = self;
        for watch in watches {
            // One that does not answer now may do so later.
            if let Ok(newer) = watch.source.ask(interrupt, || {}) {
                watch.before = std::mem::replace(&mut watch.now, newer);
            }
        }
        if interrupt.asked() {
            return Err(Failure::Interrupted);
        }
        for words in servers.iter().flat_map(Server::warnings) {
            if screen.is_none() {
                say(&words);
            }
            if warnings.len() < 3 && !warnings.contains(&words) {
                warnings.push(words);
            }
        }
        self.tiers = self.tiers(|watch| (watch.before.clone(), watch.now.clone()));
        Ok(())
    }

    fn draw(&mut self) -> Result<(), Failure> {
        let Stage { screen: Some(screen), heading, past, tiers, warnings, .. } = self else { return Ok(()) };
        let past = if past.is_empty() { String::new() } else { format!("\n{}", phases(past)) };
        let warnings: String = warnings.iter().map(|words| format!("{words}\n")).collect();
        let text = format!("{heading}\n\n{}{past}\n{warnings}q stops", table(tiers));
        let drawn = screen.canvas.draw(|frame| frame.render_widget(Paragraph::new(text), frame.area()));
        drawn.map_err(|error| Failure::Runtime(anyhow!("the terminal: {error}")))
    }

    /// Gives the terminal back and stops the servers, the mid-tier first.
    fn end(&mut self) {
        if self.screen.take().is_some() {
            terminal::restore();
        }
        self.watches.clear();
        fleet::stop(std::mem::take(&mut self.servers));
    }
}

fn stopped(interrupt: &Interrupt, error: anyhow::Error) -> Failure {
    if interrupt.asked() { Failure::Interrupted } else { Failure::Runtime(error.context("a tier")) }
}

fn number(report: &Value, name: &str) -> Option<f64> {
    report[name].as_f64()
}
