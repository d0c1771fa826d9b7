//! `leeward load`: sends requests to a server and reports the result of each.
//!
//! - `report`: the report as text. `problems`: reasons to doubt the report, which come first and
//!   set the exit code. `capacity`: the server's capacity. `served`: the service that it runs.
//!   `http`: HTTP services.

mod capacity;
mod http;
mod problems;
mod report;
mod served;

use anyhow::{Context, anyhow};
use clap::builder::ArgPredicate;
use leeward_catalogue::Catalogue;
use leeward_core::budget::Budget;
use leeward_core::registry::Environment;
use leeward_core::units::{Nanos, Rate, parse_duration, parse_ratio, parse_scaled};
use leeward_load::report::LoadReport;
use leeward_load::{
    AnswerCheck, LoadConfig, LoadError, Plan, Polling, Progress, RunResults, Schedule, output, run, run_scaled,
};
use leeward_rpc::client::{DatagramSize, Encryption, Transport};
use leeward_rpc::tls::{ClientTls, ServerName};
use leeward_rpc::wire::ServerProtocol;
use leeward_services::definition::{PrepareError, Target};
use leeward_workload::{Arrivals, Segment, ServiceTime, Shares, Workload};
use std::io::Write;
use std::path::PathBuf;

use crate::admission::AdmissionArgs;
use crate::failure::Failure;
use crate::interrupt::{Interrupt, StopMode};
use crate::progress::Spinner;
use crate::tls::TlsArgs;
use crate::{admission, service, stdout};

use self::capacity::CapacityMeter;
use super::{output_files, peer};
use http::HttpArgs;
use problems::{ControllerCheck, MeasurementProblem};

/// Send load to a server and report the result of each request
///
/// Open loop: the due time of each request is drawn from the seed before the run, whatever the
/// server does. Latency counts from the due time. With `--closed` each client keeps a number of
/// requests in flight instead, which measures capacity.
#[derive(Debug, clap::Args)]
#[command(after_help = LOAD)]
#[command(mut_arg("slo", |slo| slo.default_value_if("http_target", ArgPredicate::IsPresent, "20ms")))]
pub(crate) struct LoadArgs {
    /// The server's address and port
    #[arg(value_name = "ADDRESS", required_unless_present_any = ["udp", "http_target"])]
    pub(crate) address: Option<String>,
    /// Send requests as datagrams, to the address of `leeward serve --udp`; data that prepare the
    /// server still go to ADDRESS, if it is given
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) udp: Option<String>,
    /// Longest datagram with --udp, in bytes, from 1128 to 8972; the smaller size of server and
    /// client applies
    #[arg(long, value_name = "BYTES", requires = "udp", default_value_t = 1400, value_parser = clap::value_parser!(u16).range(1128..=8972))]
    pub(crate) udp_size: u16,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) admission: AdmissionArgs,
    /// Number of clients, with one connection each; by default 100 with --http and --grpc
    #[arg(long, value_name = "N", default_value_t = 1000, default_value_if("http_target", ArgPredicate::IsPresent, "100"), value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) clients: u32,
    /// Requests per second of all clients, such as 50k; or a multiple of the server's capacity,
    /// such as 1.4x. The capacity is measured first: a second of closed loop, with one request in
    /// flight on each of the same connections. By default 1k with --http and --grpc
    #[arg(
        long,
        value_name = "RATE",
        default_value = "10k",
        default_value_if("http_target", ArgPredicate::IsPresent, "1k"),
        conflicts_with = "closed"
    )]
    pub(crate) demand: String,
    /// Spacing of the requests: exponential or equal; equal for each client, or for all requests
    /// with --http and --grpc
    #[arg(long, value_name = "SPACING", default_value = "poisson", value_parser = ["poisson", "constant"], conflicts_with = "closed")]
    pub(crate) arrivals: String,
    /// Closed loop: number of requests that each client keeps in flight
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) closed: Option<u32>,
    /// Service time of each request: exp:, const:, bimodal: or lognormal: and a mean; or requests
    /// to another service, such as search or search:words=1-2,match=all
    #[arg(long, value_name = "TIMES", default_value = "exp:10us")]
    pub(crate) service: String,
    /// Bytes of each request's argument; the first 8 are its service time. Requests to another
    /// service have an argument of their own
    #[arg(long, value_name = "N", default_value_t = PAYLOAD, value_parser = clap::value_parser!(u32).range(8..=16_777_216))]
    pub(crate) payload: u32,
    /// Time that a request may spend waiting, from its due time on: at the client for a credit, or
    /// for a connection with --http; and at the server's locks, which reject a request that would
    /// exceed the rest of it. By default the server's own budget applies
    #[arg(long, value_name = "SPAN")]
    pub(crate) budget: Option<String>,
    /// Time from the due time after which a request is given up: it counts as timed out. By default
    /// 10s with --http and --grpc, otherwise never
    #[arg(long, value_name = "SPAN")]
    pub(crate) timeout: Option<String>,
    /// Time for which requests are issued, including the warm-up
    #[arg(long, value_name = "SPAN", default_value = "5s")]
    pub(crate) duration: String,
    /// Initial time that is not measured; by default 1s, or a fifth of the duration if that is less
    #[arg(long, value_name = "SPAN")]
    pub(crate) warmup: Option<String>,
    /// Seed of arrivals and service times
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// CPU to run on
    #[arg(long, value_name = "CPU")]
    pub(crate) cpu: Option<usize>,
    /// Poll without sleeping, to be precise to microseconds; needs a CPU of its own
    #[arg(long)]
    pub(crate) busy: bool,
    /// Write the latencies as an HdrHistogram percentile file
    #[arg(long, value_name = "FILE")]
    pub(crate) hgrm: Option<PathBuf>,
    /// Print the report as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) http: HttpArgs,
}

const LOAD: &str = "\
Examples:
  leeward load 127.0.0.1:7117 --demand 50k
  leeward load 127.0.0.1:7117 --closed 1 --admission none             capacity
  leeward load 127.0.0.1:7117 --demand 1.4x                           overload, on any machine
  leeward load --udp 127.0.0.1:7117 --demand 50k                       by datagrams
  leeward load localhost:7117 --tls-ca ca.pem                          with TLS; --tls-cert, --tls-key if the server requires them
  leeward load 127.0.0.1:7117 --demand 120k --busy --cpu 1 --json
  leeward load --http http://127.0.0.1:8080/ --demand 2k           HTTP/1.1; or --http2
  leeward load --http http://127.0.0.1:8080/ --demand 1.4x --class critical=1 --class batch=3
  leeward load --grpc http://127.0.0.1:50051 helloworld.Greeter/SayHello --body 0a0161

1.4x is a multiple of the server's capacity: the throughput of its cores' busy time, late answers included. It is measured
with two active clients per core, so that the controller rejects almost nothing. With --http it is the closed loop's throughput,
with fewer connections while the service rejects requests.

With --http and --grpc, 429, 503, RESOURCE_EXHAUSTED and UNAVAILABLE count as dropped, other errors as failed
(docs/http-load.md). A request that has waited for a connection for --timeout or --budget ends at the client.

`measured` in the JSON counts requests by their due time and results by their end: these sums differ by the requests in
flight at the end of the measurement less those at its start.

Exit codes: 0 measured; 1 no server listens, another protocol answers, a connection failed, or no request was answered; 2 a
bad value; 3 the load generator was too late to measure: more than 1 request in 100 was late by more than the objective.
The report is printed in any case, and begins with its problems.";

/// Runs the command.
pub(crate) fn load(args: &LoadArgs) -> Result<(), Failure> {
    if args.http.is_given() {
        return http::load(args);
    }
    let (algorithm, params) = admission::controller(&args.admission)?;
    let slo = admission::parse_span("--slo", &args.admission.slo)?;
    let rtt = admission::parse_span("--rtt", &args.admission.rtt)?;
    let budget = match &args.budget {
        Some(budget) => Budget::new(admission::parse_span("--budget", budget)?),
        None => Budget::UNLIMITED,
    };
    let requests =
        Catalogue::builtin().requests(&args.service).map_err(|error| Failure::Input(anyhow!("--service: {error}")))?;
    let warmup = warmup(args)?;
    if requests.service_times().is_none() && args.payload != PAYLOAD {
        let (given, service) = (args.payload, &args.service);
        let message =
            format!("--payload {given}: requests to `{service}` have an argument of their own; accepted: without it");
        return Err(Failure::Input(anyhow!(message)));
    }
    // The service time of a service that is not synthetic cannot be chosen.
    let times = requests.service_times().cloned().unwrap_or(ServiceTime::Constant(Nanos::from_micros(1)));
    let wish = load_spec(args, times)?;
    check_outputs(args)?;
    // The client half of a controller does not depend on the server's cores.
    let environment = Environment::new(1, rtt, slo);
    let ends = ControllerCheck::new(&algorithm, &params, &environment)?;
    let tls = tls(args)?;
    // All arguments are checked; from here on the server is contacted.
    let far = args.udp.as_deref().map(|text| peer::find_listener(text, Transport::Udp)).transpose()?;
    let near = args.address.as_deref().map(|text| peer::find_listener(text, Transport::Tcp)).transpose()?;
    let Some(address) = near.or(far) else { return Err(Failure::Input(anyhow!("no address"))) };
    let encryption = tls.as_ref().map(|(tls, name)| Encryption::from(tls.with_name(name)));
    let encryption = encryption.as_ref();
    let server = Target { address, algorithm: &algorithm, params: &params, rtt, slo, encryption };
    let ask = {
        // Some services make a quarter of a gigabyte of data for their clients, or fill a store.
        let steps = Spinner::new("load");
        steps.show("preparing the requests");
        // Until the run begins, a signal ends the program at once.
        let served = || served::service(&server, &Interrupt::without_handler());
        requests.prepare(&server).map_err(|error| prepare_failure(error, &server, &args.service, served))?
    };
    let config = LoadConfig {
        budget,
        timeout: timeout(args)?,
        ask,
        answers: if requests.service_times().is_some() { AnswerCheck::Empty } else { AnswerCheck::Any },
        warmup,
        payload: args.payload as usize,
        polling: if args.busy { Polling::Busy } else { Polling::Hybrid },
        cpu: args.cpu,
        transport: if far.is_some() { Transport::Udp } else { Transport::Tcp },
        datagram: DatagramSize::new(args.udp_size.into()).unwrap_or_default(),
        tls,
        ..LoadConfig::new(far.unwrap_or(address), slo)
    };
    let interrupt = Interrupt::listen(StopMode::Graceful)?;
    let client = || (algorithm.build_client)(&params, &environment);
    let mut is_reported = false;
    let watch = |progress: &Progress| {
        if let (false, Some(warning)) = (is_reported, ends.mismatch(progress.gives_credits)) {
            is_reported = true;
            let _ = writeln!(std::io::stderr(), "warning: {warning}");
        }
    };
    let (capacity, recording) = match wish {
        LoadSpec::Plan(plan) => (None, run(&config, &plan, client, interrupt.flag(), watch).map_err(failure)?),
        LoadSpec::Multiple { ratio, closed, workload, duration } => {
            // The counters do not fit into a datagram.
            let has_meter = near.is_some() && requests.is_cpu_bound();
            let meter = has_meter.then(|| CapacityMeter::start(&server, &interrupt)).flatten();
            let active = meter.as_ref().map_or(args.clients, CapacityMeter::active_clients);
            let mut capacity = Rate(0.0);
            let schedule = |throughput: Rate| {
                capacity = meter.as_ref().map_or(throughput, |meter| meter.capacity(throughput));
                Schedule::draw(&workload(Rate(ratio * capacity.0)), args.seed, duration)
            };
            let scaled =
                run_scaled(&config, &closed, active, schedule, client, interrupt.flag(), watch).map_err(failure)?;
            (Some((ratio, capacity.0)), scaled.results)
        }
    };
    let served = || near.and_then(|_| served::service(&server, &interrupt));
    let doubts = problems::find(&recording.report, &args.service, served);
    print_results(args, &recording, capacity, doubts, "")
}

/// Checks the values of `--hgrm` and `--cpu`.
fn check_outputs(args: &LoadArgs) -> Result<(), Failure> {
    if let Some(path) = &args.hgrm {
        output_files::check_file("--hgrm", path)?;
    }
    match args.cpu.filter(|cpu| !leeward_load::may_run_on(*cpu)) {
        Some(cpu) => Err(Failure::Input(anyhow!("--cpu: this process may not run on CPU {cpu}"))),
        None => Ok(()),
    }
}

/// Writes the `.hgrm` file and prints the report. `details` are more lines of its text. The first
/// doubt sets the exit code.
fn print_results(
    args: &LoadArgs,
    results: &RunResults,
    capacity: Option<(f64, f64)>,
    doubts: Vec<MeasurementProblem>,
    details: &str,
) -> Result<(), Failure> {
    if let Some(path) = &args.hgrm {
        let mut bytes = Vec::new();
        output::write_hgrm(results.latency.histogram(), &mut bytes).context("writing").map_err(Failure::Runtime)?;
        output_files::write(path, &String::from_utf8_lossy(&bytes))?;
    }
    let report = &results.report;
    let text = if args.json { json(report, capacity)? } else { report::text(report, capacity, &doubts) + details };
    stdout::print(&text)?;
    if let Some(violation) = report.violations.first() {
        return Err(Failure::Runtime(anyhow!("conservation check failed, please report this: {violation}")));
    }
    doubts.into_iter().next().map_or(Ok(()), |doubt| Err(doubt.failure(!args.json)))
}

/// Opens TLS for the connections; returns it with the name that the server must prove.
fn tls(args: &LoadArgs) -> Result<Option<(ClientTls, ServerName)>, Failure> {
    let Some(tls) = args.tls.open()? else { return Ok(None) };
    let Some(address) = args.address.as_deref().filter(|_| args.udp.is_none()) else {
        return Err(Failure::Input(anyhow!("--udp: datagrams are not encrypted; omit --tls-ca, or use TCP")));
    };
    let name = tls.name_for(address).map_err(|error| Failure::Input(anyhow!("{error}; set it with --tls-name")))?;
    Ok(Some((tls, name)))
}

/// Duration of the capacity measurement; the first quarter is not counted.
const CALIBRATION_TIME: Nanos = Nanos::from_millis(1_000);

/// Default of `--payload`: the service time alone.
const PAYLOAD: u32 = 8;

/// Requested load.
enum LoadSpec<W> {
    /// A plan that is known before the run.
    Plan(Plan),
    /// A multiple of the server's capacity.
    Multiple { ratio: f64, closed: Plan, workload: W, duration: Nanos },
}

/// Time after which a request is given up.
fn timeout(args: &LoadArgs) -> Result<Option<Nanos>, Failure> {
    args.timeout.as_deref().map(|text| admission::parse_span("--timeout", text)).transpose()
}

/// Duration of the initial part that is not measured.
fn warmup(args: &LoadArgs) -> Result<Nanos, Failure> {
    let duration = admission::parse_span("--duration", &args.duration)?;
    let Some(written) = &args.warmup else { return Ok(Nanos::from_secs(1).min(Nanos(duration.0 / 5))) };
    let warmup = parse_duration(written).map_err(|error| Failure::Input(anyhow!("--warmup: {error}")))?;
    if warmup >= duration {
        return Err(Failure::Input(anyhow!(
            "--warmup {written} is all of --duration {}: nothing would be measured",
            args.duration
        )));
    }
    Ok(warmup)
}

fn load_spec(args: &LoadArgs, service: ServiceTime) -> Result<LoadSpec<impl Fn(Rate) -> Workload>, Failure> {
    let duration = admission::parse_span("--duration", &args.duration)?;
    if let Some(outstanding) = args.closed {
        let (connections, seed) = (args.clients, args.seed);
        return Ok(LoadSpec::Plan(Plan::Closed { connections, outstanding, service, seed, duration }));
    }
    let (connections, seed) = (args.clients, args.seed);
    let closed =
        Plan::Closed { connections, outstanding: 1, service: service.clone(), seed, duration: CALIBRATION_TIME };
    let arrivals = if args.arrivals == "constant" { Arrivals::Constant } else { Arrivals::Poisson };
    // Over HTTP any connection takes the next request, so the schedule knows one client.
    let clients = if args.http.is_given() { 1 } else { connections };
    let workload = move |rate| Workload {
        clients,
        arrivals,
        shares: Shares::Equal,
        demand: vec![Segment { from: Nanos::ZERO, rate }],
        service: service.clone(),
    };
    if args.demand.ends_with('x') {
        let ratio = parse_ratio(&args.demand).ok().filter(|ratio| (0.01..=100.0).contains(ratio));
        let wrong = || Failure::Input(anyhow!("--demand `{}`: a multiple lies between 0.01x and 100x", args.demand));
        let ratio = ratio.ok_or_else(wrong)?;
        return Ok(LoadSpec::Multiple { ratio, closed, workload, duration });
    }
    let rate = parse_scaled(&args.demand).map_err(|error| {
        Failure::Input(anyhow!("--demand: {error}, or a multiple of the server's capacity, such as `1.4x`"))
    })?;
    let schedule =
        Schedule::draw(&workload(Rate(rate)), seed, duration).map_err(|error| Failure::Input(anyhow!("{error}")))?;
    if schedule.requests().is_empty() {
        return Err(Failure::Input(anyhow!("--demand {}: no request is due within {duration}", args.demand)));
    }
    Ok(LoadSpec::Plan(Plan::Open(schedule)))
}

/// The report as one JSON object, with the capacity if it was measured.
fn json(report: &LoadReport, capacity: Option<(f64, f64)>) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    output::write_json(report, &mut bytes).context("writing").map_err(Failure::Runtime)?;
    let text = String::from_utf8_lossy(&bytes);
    let Some((ratio, capacity)) = capacity else { return Ok(text.trim_end().into()) };
    let mut value: serde_json::Value = serde_json::from_str(&text).context("the report").map_err(Failure::Runtime)?;
    value["demand_ratio"] = ratio.into();
    value["capacity_per_s"] = capacity.into();
    serde_json::to_string(&value).context("the report").map_err(Failure::Runtime)
}

/// Failure to prepare the server; names its protocol, or its service, if it is not the expected
/// one.
fn prepare_failure(
    error: PrepareError,
    server: &Target<'_>,
    service: &str,
    served: impl Fn() -> Option<String>,
) -> Failure {
    let expected = if server.encryption.is_some() { ServerProtocol::Tls } else { ServerProtocol::Leeward };
    match error {
        PrepareError::Server { address, .. } => match served() {
            Some(served) => {
                let text = [Some(error.to_string()), problems::other_service(service, Some(&served))];
                Failure::Runtime(anyhow!(text.into_iter().flatten().collect::<Vec<_>>().join("; ")))
            }
            None => peer::failure(anyhow!(error), address, expected),
        },
        _ => service::failure(error),
    }
}

fn failure(error: LoadError) -> Failure {
    match error {
        LoadError::Stopped => Failure::Interrupted,
        LoadError::Client(_) | LoadError::Config(_) | LoadError::Schedule(_) | LoadError::Pin { .. } => {
            Failure::Input(anyhow!(error))
        }
        _ => {
            let text = error.to_string();
            // A server of HTTP is told by its answer to a request of Leeward's protocol.
            let hint = if text.ends_with("speaks HTTP") { "; load it with --http URL" } else { "" };
            Failure::Runtime(anyhow!(text + hint))
        }
    }
}
