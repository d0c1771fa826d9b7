//! `leeward demo --proxy`: overloads a service in another language, without and with
//! `leeward proxy` in front of it.
//!
//! Does not contain the service (`demo::proxy::service`) or the output (`demo::proxy::results`).

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use leeward_core::units::{Nanos, Rate};
use leeward_http_load::{HttpLoadConfig, HttpLoadError, Target, run};
use leeward_load::report::RunEndReason;
use leeward_load::{LoadReport, PinGuard, Plan, Schedule, may_run_on};
use leeward_proxy::{BackendAddress, Proxy, Settings};
use leeward_workload::{Arrivals, ServiceTime, Shares, Workload};

use super::demo::{DemoArgs, dashboard};
use super::output_files;
use crate::admission;
use crate::demo::plain::print_line;
use crate::demo::proxy::results::{self, Demand, Measured, RunRow};
use crate::demo::proxy::service::Service;
use crate::failure::Failure;
use crate::hangup;
use crate::interrupt::{Interrupt, StopMode};
use crate::stdout;

/// Connections of the load. As many requests can be inside of the service without the proxy.
const CONNECTIONS: u32 = 200;
/// Clients of the closed loop that measures the capacity.
const CLOSED_CLIENTS: u32 = 8;
/// Longest closed loop.
const CLOSED_TIME: Nanos = Nanos::from_secs(2);
/// The objective in medians of the unloaded service, and its least value.
const SLO_MEDIANS: f64 = 10.0;
const SLO_MIN: Nanos = Nanos::from_millis(20);
/// 99th percentile of the unloaded service, in medians, above which other programs disturb it.
const DISTURBED_RATIO: u64 = 5;
/// Part of a run that is not measured.
const WARMUP: f64 = 0.25;
/// Longest wait for the service to finish what an overload left.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(15);
/// Interval between two checks of a run.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time of a run besides its duration, s, about.
const OVERHEAD_S: f64 = 1.0;
/// CPUs that are considered.
const CPUS_MAX: usize = 1_024;

/// CPUs of the service, the proxy and the load. With two, the latter share one.
struct CpuPlacement {
    service: Option<usize>,
    proxy: Option<usize>,
    load: Option<usize>,
}

impl CpuPlacement {
    fn detect() -> CpuPlacement {
        let cpus: Vec<usize> = (0..CPUS_MAX).filter(|cpu| may_run_on(*cpu)).take(3).collect();
        let at = |index: usize| cpus.get(index.min(cpus.len() - 1)).copied();
        match cpus.len() {
            0 | 1 => CpuPlacement { service: None, proxy: None, load: None },
            _ => CpuPlacement { service: at(0), proxy: at(1), load: at(2) },
        }
    }
}

/// Runs the command.
pub(crate) fn demo(args: &DemoArgs) -> Result<(), Failure> {
    let duration = admission::parse_span("--duration", &args.duration)?;
    output_files::check_folder(&args.out, &["result.json"])?;
    let interrupt = Interrupt::listen(StopMode::Graceful)?;
    hangup::stop_on_hangup(&interrupt);
    let admin = dashboard(&args.admin)?;
    let cpus = CpuPlacement::detect();
    let seconds = Demand::ALL.map(|demand| 2.0 * (demand.duration(duration).as_secs_f64() + OVERHEAD_S));
    print_line(&format!(
        "A service in another language, without and with `leeward proxy` in front: about {:.0} s.",
        seconds.iter().sum::<f64>() + CLOSED_TIME.as_secs_f64()
    ));
    let service = Service::start(cpus.service, &interrupt)?;
    let mut demo = ProxyDemo { seed: args.seed, duration, cpus, interrupt, service };
    let measured = demo.measure()?;
    print_line(&results::introduction(&measured));
    let proxy = demo.start_proxy(measured.slo)?;
    if let Some(admin) = &admin {
        admin.sources().insert("proxy", Arc::new(proxy.admission().clone()));
        print_line(&format!("Dashboard of the proxy while it runs: http://{}/", admin.address()));
    }
    let mut rows = Vec::new();
    for demand in Demand::ALL {
        for has_proxy in [false, true] {
            let address =
                if has_proxy { proxy.address().tcp().unwrap_or(demo.service.address) } else { demo.service.address };
            let report = demo.run_open(&address.to_string(), demand, &measured)?;
            let row = RunRow { demand, has_proxy, report };
            print_line(&row.line());
            rows.push(row);
        }
    }
    let interrupt = demo.interrupt.clone();
    drop(demo);
    proxy.stop();
    interrupt.finish()?;
    output_files::write_json(&args.out, "result.json", &results::to_json(&measured, &rows))?;
    stdout::print(&format!(
        "\n{}\nThe same before a service of yours: leeward proxy --slo 50ms --listen :8080 --to 127.0.0.1:3000\nResults: {}",
        results::text(&measured, &rows),
        args.out.join("result.json").display()
    ))?;
    if rows.iter().all(|row| !row.report.adherence.kept) {
        return Err(Failure::Unmeasured(anyhow!("the load was late in all {} runs", rows.len())));
    }
    Ok(())
}

/// The service, and what loads it.
struct ProxyDemo {
    seed: u64,
    duration: Nanos,
    cpus: CpuPlacement,
    interrupt: Interrupt,
    service: Service,
}

impl ProxyDemo {
    /// Measures the service alone, and chooses the objective.
    fn measure(&mut self) -> Result<Measured, Failure> {
        print_line(&format!("Measuring {} ...", self.service.name));
        let address = self.service.address.to_string();
        let unloaded = self.run_closed(&address, 1)?;
        let capacity = Rate(self.run_closed(&address, CLOSED_CLIENTS)?.throughput_per_s);
        if unloaded.latency.count == 0 || capacity.0 <= 0.0 {
            return Err(Failure::Runtime(anyhow!("{} answered nothing", self.service.name)));
        }
        let median = unloaded.latency.p50;
        let slo = Nanos::from_millis(median.scale(SLO_MEDIANS).0.div_ceil(1_000_000)).max(SLO_MIN);
        let is_apart = self.cpus.service != self.cpus.load;
        let is_disturbed = unloaded.latency.p99.0 > DISTURBED_RATIO * median.0;
        Ok(Measured { service: self.service.name, median, capacity, slo, is_apart, is_disturbed })
    }

    fn start_proxy(&self, slo: Nanos) -> Result<Proxy, Failure> {
        let failed = |error: String| Failure::Runtime(anyhow!("the proxy: {error}"));
        let address = self.service.address.to_string().parse::<BackendAddress>();
        let backend = address.map_err(|error| failed(error.to_string()))?;
        let mut settings = Settings::new(Duration::from_nanos(slo.0), "127.0.0.1:0", vec![backend]);
        settings.threads = 1;
        let _pinned = PinGuard::pin(self.cpus.proxy).map_err(|error| failed(error.to_string()))?;
        Proxy::start(settings).map_err(|error| failed(error.to_string()))
    }

    fn run_closed(&mut self, address: &str, connections: u32) -> Result<LoadReport, Failure> {
        let duration = self.duration.min(CLOSED_TIME);
        let service = ServiceTime::Constant(Nanos::ZERO);
        let plan = Plan::Closed { connections, outstanding: 1, service, seed: self.seed, duration };
        self.run(address, connections, SLO_MIN, plan)
    }

    fn run_open(&mut self, address: &str, demand: Demand, measured: &Measured) -> Result<LoadReport, Failure> {
        let workload = Workload {
            clients: 1,
            arrivals: Arrivals::Poisson,
            shares: Shares::Equal,
            demand: demand.segments(measured.capacity, self.duration),
            service: ServiceTime::Constant(Nanos::ZERO),
        };
        let schedule = Schedule::draw(&workload, self.seed, demand.duration(self.duration));
        let schedule = schedule.map_err(|error| Failure::Input(anyhow!("--duration: {error}")))?;
        if schedule.requests().is_empty() {
            return Err(Failure::Input(anyhow!("--duration {}: no request is due within it", self.duration)));
        }
        let report = self.run(address, CONNECTIONS, measured.slo, Plan::Open(schedule))?;
        self.wait_for_recovery(measured.slo)?;
        Ok(report)
    }

    /// Runs a load on a thread of its own, so that a stop need not wait for its last answers.
    fn run(&mut self, address: &str, connections: u32, slo: Nanos, plan: Plan) -> Result<LoadReport, Failure> {
        let target = Target::parse(&format!("http://{address}/")).map_err(|error| Failure::Runtime(anyhow!(error)))?;
        let config = HttpLoadConfig {
            connections: Some(connections),
            warmup: plan.duration().scale(WARMUP),
            cpu: self.cpus.load,
            ..HttpLoadConfig::new(vec![target], slo)
        };
        let interrupt = self.interrupt.clone();
        let load =
            thread::Builder::new().name("load".into()).spawn(move || run(&config, &plan, interrupt.flag(), |_| {}));
        let load = load.map_err(|error| Failure::Runtime(anyhow!("starting a thread: {error}")))?;
        while !load.is_finished() {
            if self.interrupt.is_requested() {
                return Err(Failure::Interrupted);
            }
            thread::sleep(POLL_INTERVAL);
        }
        if let Some(failure) = self.service.exit_failure() {
            return Err(failure);
        }
        match load.join() {
            Ok(Ok(results)) if results.report.ending == RunEndReason::Stopped => Err(Failure::Interrupted),
            Ok(Ok(results)) => Ok(results.report),
            Ok(Err(HttpLoadError::Stopped)) => Err(Failure::Interrupted),
            Ok(Err(error)) => Err(Failure::Runtime(anyhow!("the load: {error}"))),
            Err(_) => Err(Failure::Runtime(anyhow!("the load has failed"))),
        }
    }

    /// Waits until the service answers as it does unloaded: an overload leaves requests inside it.
    fn wait_for_recovery(&mut self, slo: Nanos) -> Result<(), Failure> {
        let began = Instant::now();
        while began.elapsed() < RECOVERY_TIMEOUT {
            if self.interrupt.is_requested() {
                return Err(Failure::Interrupted);
            }
            if let Some(failure) = self.service.exit_failure() {
                return Err(failure);
            }
            if self.service.probe().is_ok_and(|time| time.as_nanos() < u128::from(slo.0)) {
                return Ok(());
            }
            thread::sleep(POLL_INTERVAL);
        }
        Err(Failure::Runtime(anyhow!(
            "the service did not recover from the load within {} s",
            RECOVERY_TIMEOUT.as_secs()
        )))
    }
}
