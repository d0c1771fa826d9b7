//! The run: opens the connections, issues due requests, and ends requests whose time is over.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leeward_core::units::{Nanos, Rate, Time};
use leeward_load::report::{LoadReport, RunEndReason};
use leeward_load::schedule::ScheduleError;
use leeward_load::{
    PinGuard, Plan, PlannedRequest, Polling, Progress, Recorder, RecorderConfig, RunEnd, RunResults, Schedule,
    Transport, address, allow_sockets,
};
use leeward_workload::rng::{Purpose, Rng};
use tokio::task::{LocalSet, spawn_local, yield_now};

use crate::config::{HttpLoadConfig, HttpLoadError, HttpVersion};
use crate::connection;
use crate::mix::Mix;
use crate::request::RequestBuilder;
use crate::shared::{Server, Shared};
use crate::state::{ClosedLoop, Job, Place, State};
use crate::target::Endpoint;
use crate::timer::Timer;

/// Requests issued before the connections run.
const BATCH: usize = 32;
/// Time from the start of the loop to time zero of the run, so that the first request is not late.
const LEAD: Nanos = Nanos::from_millis(1);
/// The longest wait; bounds the delay of a stop.
const WAIT_MAX: Nanos = Nanos::from_millis(10);
/// [`Polling::Hybrid`] stops sleeping this long before a request is due.
const SPIN_BEFORE: Nanos = Nanos::from_micros(50);
/// Time without any open connection after which the run ends.
const DISCONNECTED_MAX: Nanos = Nanos::from_secs(2);

/// Runs `plan` against the targets, on this thread, and returns the results.
///
/// `stop` ends the run early: no more requests are issued, and the run waits for the last answers
/// as usual. `progress` is called at intervals of [`HttpLoadConfig::progress_every`]. The service
/// times of `plan` are not used.
///
/// Raises the process's limit of open files if the connections need that.
///
/// # Errors
/// Invalid settings, and all errors before the first request. After that, there is always a report.
pub fn run(
    config: &HttpLoadConfig,
    plan: &Plan,
    stop: &AtomicBool,
    mut progress: impl FnMut(&Progress),
) -> Result<RunResults, HttpLoadError> {
    let requests = check(config, plan)?;
    let (endpoints, endpoint_of) = endpoints(config);
    let servers = endpoints.into_iter().map(|endpoint| resolve(config, endpoint)).collect::<Result<Vec<_>, _>>()?;
    let _pinned = PinGuard::pin(config.cpu).map_err(HttpLoadError::Pin)?;
    // If the limit stays too low, connecting fails with an error that shows it.
    let connections = config.connections.unwrap_or_else(|| plan.connections());
    allow_sockets(connections.into());
    let places = places(config, &endpoint_of, servers.len(), connections as usize);
    let mix = Mix::new(config, &endpoint_of);
    let (mix, closed, outstanding) = match plan {
        Plan::Open(_) => (Some(mix), None, None),
        Plan::Closed { outstanding, seed, duration, .. } => {
            let closed = ClosedLoop { mix, bits: Rng::new(*seed, Purpose::Clients), end: Time::ZERO + *duration };
            (None, Some(closed), Some(*outstanding as usize))
        }
    };
    let limits = (config.timeout, config.budget, config.slo);
    let state = State::new(recorders(config, plan), servers.len(), places.len(), limits, closed);
    let shared = Rc::new(Shared::new(config, servers, requests, state, (places.len(), outstanding)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(HttpLoadError::EventLoop)?;
    let tasks = LocalSet::new();
    let driver = Driver { shared: Rc::clone(&shared), endpoint_of, mix, stop };
    let run_end = tasks.block_on(&runtime, async {
        driver.connect(&places).await?;
        driver.drive(plan, &mut progress).await
    });
    // Ends all tasks, so that the counters are this thread's alone.
    drop((tasks, runtime));
    let run_end = run_end?;
    let now = shared.now();
    drop(driver);
    let shared = Rc::try_unwrap(shared).map_err(|_| HttpLoadError::Config("a task of the run has not ended".into()))?;
    Ok(shared.state.into_inner().finish(now, &run_end))
}

/// Share of rejected requests up to which a closed loop's throughput is the capacity.
const REJECTED_MAX: f64 = 0.01;

/// Results of a run whose demand is a multiple of the measured capacity.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScaledRun {
    /// The closed loop that measured the capacity, which is its throughput.
    pub measured: LoadReport,
    /// Results of the run.
    pub results: RunResults,
}

/// Measures the capacity, then runs a schedule that depends on it.
///
/// Runs `closed` first, a closed loop with a quarter of its time as warm-up. While the service
/// rejects requests, runs it again with a quarter of the connections: connections that ask again
/// at once make a service with admission control spend its time on rejections. Then runs the
/// schedule that `open` makes of the most responses per second, over new connections. `progress`
/// covers the last part only.
///
/// # Errors
/// As [`run`]; an unknown capacity, because answers were missing; an invalid schedule.
pub fn run_scaled(
    config: &HttpLoadConfig,
    closed: &Plan,
    open: impl FnOnce(Rate) -> Result<Schedule, ScheduleError>,
    stop: &AtomicBool,
    progress: impl FnMut(&Progress),
) -> Result<ScaledRun, HttpLoadError> {
    let mut connections = config.connections.unwrap_or_else(|| closed.connections());
    let mut measured = measure(config, closed, connections, stop)?;
    let mut newest = measured.clone();
    while connections > 1 && newest.measured.dropped as f64 > REJECTED_MAX * newest.measured.total() as f64 {
        connections = (connections / 4).max(1);
        newest = measure(config, closed, connections, stop)?;
        if newest.throughput_per_s > measured.throughput_per_s {
            measured = newest.clone();
        }
    }
    if measured.throughput_per_s <= 0.0 {
        let codes: Vec<String> = measured.failures.iter().map(|(code, count)| format!("{code} {count}")).collect();
        let reason = if codes.is_empty() { String::new() } else { format!(" (failures: {})", codes.join(", ")) };
        return Err(HttpLoadError::CapacityUnknown(format!("nothing was answered in time{reason}")));
    }
    let plan = Plan::Open(open(Rate(measured.throughput_per_s))?);
    Ok(ScaledRun { results: run(config, &plan, stop, progress)?, measured })
}

/// Runs a closed loop with this number of connections.
fn measure(
    config: &HttpLoadConfig,
    closed: &Plan,
    connections: u32,
    stop: &AtomicBool,
) -> Result<LoadReport, HttpLoadError> {
    let warmup = Nanos(closed.duration().0 / 4);
    let config = HttpLoadConfig { warmup, window: None, connections: Some(connections), ..config.clone() };
    let measured = run(&config, closed, stop, |_| {})?.report;
    if measured.ending == RunEndReason::Stopped { Err(HttpLoadError::Stopped) } else { Ok(measured) }
}

fn check(config: &HttpLoadConfig, plan: &Plan) -> Result<RequestBuilder, HttpLoadError> {
    let refuse = |when: bool, why: &str| if when { Err(HttpLoadError::Config(why.into())) } else { Ok(()) };
    refuse(config.targets.is_empty(), "a run needs at least one target")?;
    refuse(config.targets.len() > usize::from(u16::MAX), "too many targets")?;
    refuse(config.connections.unwrap_or_else(|| plan.connections()) == 0, "a run needs at least one connection")?;
    refuse(config.warmup >= plan.duration(), "the warm-up is as long as the run: nothing would be measured")?;
    if let Plan::Closed { outstanding, .. } = plan {
        refuse(*outstanding == 0, "a closed loop needs at least one request in flight")?;
        let is_http1 = config.version == HttpVersion::Http1;
        refuse(
            is_http1 && *outstanding > 1,
            "a connection of HTTP/1.1 has one request in flight: use more connections",
        )?;
    }
    refuse(config.is_grpc && config.version == HttpVersion::Http1, "gRPC needs HTTP/2")?;
    let is_encrypted = config.targets.iter().any(|target| target.endpoint.is_encrypted);
    refuse(is_encrypted && config.tls.is_none(), "https needs certificates of authorities")?;
    RequestBuilder::new(config)
}

/// The different endpoints of the targets, and the index of each target's endpoint.
fn endpoints(config: &HttpLoadConfig) -> (Vec<Endpoint>, Vec<usize>) {
    let mut endpoints: Vec<Endpoint> = Vec::new();
    let mut index = |endpoint: &Endpoint| {
        endpoints.iter().position(|known| known == endpoint).unwrap_or_else(|| {
            endpoints.push(endpoint.clone());
            endpoints.len() - 1
        })
    };
    let endpoint_of = config.targets.iter().map(|target| index(&target.endpoint)).collect();
    (endpoints, endpoint_of)
}

/// Resolves an endpoint to an address at which a server listens.
fn resolve(config: &HttpLoadConfig, endpoint: Endpoint) -> Result<Server, HttpLoadError> {
    let failed = |source| HttpLoadError::Resolve { endpoint: endpoint.to_string(), source };
    let timeout = Duration::from_nanos(config.connect_timeout.0);
    let addresses = address::resolve(&endpoint.host_and_port()).map_err(failed)?;
    let address = address::find_listener(&addresses, Transport::Tcp, timeout).map_err(failed)?;
    let name = match &config.tls {
        Some(tls) if endpoint.is_encrypted => {
            let name = tls.name_for(&endpoint.host_and_port());
            Some(name.map_err(|error| HttpLoadError::Config(format!("{endpoint}: {error}")))?)
        }
        _ => None,
    };
    Ok(Server { endpoint, address, name })
}

/// Spreads the connections over the endpoints by weight, at least one for each.
fn places(config: &HttpLoadConfig, endpoint_of: &[usize], endpoints: usize, count: usize) -> Vec<Place> {
    let mut weights = vec![0.0; endpoints];
    config.targets.iter().zip(endpoint_of).for_each(|(target, endpoint)| weights[*endpoint] += target.weight);
    let mut counts = vec![1_usize; endpoints];
    for _ in endpoints..count {
        // The endpoint that has the fewest connections for its weight.
        let load = |endpoint: usize| counts[endpoint] as f64 / weights[endpoint];
        let next = (0..endpoints).min_by(|a, b| load(*a).total_cmp(&load(*b)));
        counts[next.unwrap_or_default()] += 1;
    }
    let numbered = counts.iter().enumerate().flat_map(|(endpoint, count)| (0..*count).map(move |_| endpoint));
    numbered.enumerate().map(|(slot, endpoint)| Place { endpoint, slot }).collect()
}

/// Recorders of all requests and of each class.
fn recorders(config: &HttpLoadConfig, plan: &Plan) -> (Recorder, Vec<(String, Recorder)>) {
    let settings = RecorderConfig {
        slo: config.slo,
        timeout: config.timeout,
        late_after: config.late_after,
        warmup: config.warmup,
        duration: plan.duration(),
        window: config.window,
        fine_window: None,
    };
    let of_class = RecorderConfig { window: None, ..settings };
    let classes = config.classes.iter().map(|class| (class.name.clone(), Recorder::new(&of_class)));
    (Recorder::new(&settings), classes.collect())
}

/// The task that issues requests and watches the time.
struct Driver<'a> {
    shared: Rc<Shared>,
    endpoint_of: Vec<usize>,
    /// The mix of an open loop.
    mix: Option<Mix>,
    stop: &'a AtomicBool,
}

impl Driver<'_> {
    /// Opens all connections.
    async fn connect(&self, places: &[Place]) -> Result<(), HttpLoadError> {
        for place in places {
            spawn_local(connection::run(Rc::clone(&self.shared), *place));
        }
        loop {
            if let Some(error) = self.shared.open_error.borrow_mut().take() {
                return Err(error);
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(HttpLoadError::Stopped);
            }
            if self.shared.state.borrow().connections.opened == places.len() {
                return Ok(());
            }
            // Wakes at times for a request to stop.
            let _ = tokio::time::timeout(Duration::from_millis(10), self.shared.opened.notified()).await;
        }
    }

    /// Issues the requests, and waits for the last answers.
    async fn drive(&self, plan: &Plan, progress: &mut impl FnMut(&Progress)) -> Result<RunEnd, HttpLoadError> {
        let Shared { state, config, .. } = &*self.shared;
        let timer = Timer::new().map_err(HttpLoadError::EventLoop)?;
        self.shared.start_after(LEAD);
        let (mut requests, planned) = match plan {
            Plan::Open(schedule) => (schedule.requests(), schedule.requests().len() as u64),
            Plan::Closed { .. } => (&[][..], 0),
        };
        let end_of_loop = matches!(plan, Plan::Closed { .. }).then(|| Time::ZERO + plan.duration());
        if end_of_loop.is_some() {
            state.borrow_mut().begin_closed_loop();
        }
        // Set when the last request has been issued.
        let mut deadline = None;
        let mut is_stopped = false;
        let mut next_progress = Time::ZERO;
        let mut failing_since = None;
        let ending = loop {
            let now = self.shared.now();
            if deadline.is_none() {
                is_stopped = self.stop.load(Ordering::Relaxed);
            }
            let due = match end_of_loop {
                _ if is_stopped => None,
                Some(end) => (now < end).then_some(end),
                None => self.issue(&mut requests),
            };
            {
                let mut state = state.borrow_mut();
                if due.is_none() && deadline.is_none() {
                    deadline = Some(now + config.drain);
                    state.end_closed_loop();
                    if is_stopped {
                        state.end_early(now);
                    }
                }
                state.expire_all(now);
                state.abort_overdue(now);
                if now >= next_progress {
                    next_progress = now + config.progress_every;
                    let counts = *state.recorder().totals();
                    let latest = state.recorder().latest_window(now);
                    let duration = plan.duration();
                    progress(&Progress { elapsed: Nanos(now.0), duration, counts, latest, gives_credits: None });
                }
                if state.connections.failing == self.shared.count {
                    let since = *failing_since.get_or_insert(now);
                    if now.since(since) >= DISCONNECTED_MAX {
                        let reason = state.connections.last_error.take().unwrap_or_default();
                        state.recorder().record_loss(&reason);
                        state.end_early(now);
                        break RunEndReason::Disconnected;
                    }
                } else {
                    failing_since = None;
                }
                if let Some(deadline) = deadline {
                    let all_ended = state.recorder().in_flight() == 0;
                    if all_ended || now >= deadline {
                        break match (is_stopped, all_ended) {
                            (true, _) => RunEndReason::Stopped,
                            (_, true) => RunEndReason::Finished,
                            _ => RunEndReason::Drained,
                        };
                    }
                }
            }
            self.wait(&timer, due, deadline).await?;
        };
        Ok(RunEnd { ending, planned })
    }

    /// Issues some of the due requests. Returns the due time of the next one; `None` at the end.
    fn issue(&self, requests: &mut &[PlannedRequest]) -> Option<Time> {
        let mix = self.mix.as_ref()?;
        let mut state = self.shared.state.borrow_mut();
        for _ in 0..BATCH {
            let (planned, rest) = requests.split_first()?;
            let now = self.shared.now();
            // The clock stands at zero until the run starts.
            if planned.at > now || now == Time::ZERO {
                return Some(planned.at);
            }
            // A late request is issued all the same: without it, the worst moments would lack
            // requests.
            let kind = mix.draw(planned.random);
            state.submit(
                now,
                self.endpoint_of[usize::from(kind.target)],
                Job { due: planned.at, kind, was_taken: false },
            );
            *requests = rest;
        }
        requests.first().map(|next| next.at)
    }

    /// Waits for the next request or time-out, while the connections run.
    async fn wait(&self, timer: &Timer, due: Option<Time>, deadline: Option<Time>) -> Result<(), HttpLoadError> {
        let now = self.shared.now();
        let other = self.shared.state.borrow().next_deadline().min(deadline.unwrap_or(Time::NEVER));
        let idle = other.since(now).min(WAIT_MAX);
        let until_due = due.map_or(Nanos::MAX, |due| due.since(now));
        let span = match self.shared.config.polling {
            Polling::Busy => Nanos::ZERO,
            Polling::Sleep => idle.min(until_due),
            Polling::Hybrid => idle.min(until_due.saturating_sub(SPIN_BEFORE)),
        };
        if span == Nanos::ZERO {
            yield_now().await;
            return Ok(());
        }
        timer.wait(span).await.map_err(HttpLoadError::EventLoop)
    }
}
