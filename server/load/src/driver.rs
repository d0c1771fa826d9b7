//! The loop of one run: one thread, all connections. Issues due requests, moves bytes, and counts
//! by the recorder.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leeward_core::budget::Budget;
use leeward_core::client::ClientParts;
use leeward_core::params::ParamError;
use leeward_core::units::{Nanos, Priority, Rate, Time};
use leeward_rpc::address;
use leeward_rpc::client::{DatagramCounts, Event, Request, Transport};
use leeward_rpc::wire::ServerProtocol;
use leeward_workload::ServiceTime;
use leeward_workload::rng::{Purpose, Rng};

use crate::config::{LoadConfig, LoadError, Plan, Polling};
use crate::link::{Clock, Link, LinkEvent};
use crate::max_wait::with_max_wait;
use crate::poller::{Poller, Wait};
use crate::recorder::{IssuedRequest, Recorder, RunEnd, RunResults, WINDOWS_MAX};
use crate::report::{ClientWindow, LoadReport, RequestCounts, RunEndReason};
use crate::schedule::{PlannedRequest, Schedule, ScheduleError};
use crate::system::{PinGuard, allow_sockets};

/// Connections that may wait for their welcome at once: spares the server a thousand simultaneous
/// connects.
const PENDING_WELCOMES_MAX: u32 = 64;
/// Time that a server without a welcome may take to show its protocol.
const PROTOCOL_PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Requests issued before the next poll of the sockets.
const BATCH: usize = 32;
/// Time from the start of the loop to time zero of the run, so that the first request is not late.
const LEAD: Nanos = Nanos::from_millis(1);
/// The longest wait; bounds the delay of a stop.
const WAIT_MAX: Nanos = Nanos::from_millis(10);
/// [`Polling::Hybrid`] stops sleeping this long before a request is due: longer than a wake-up
/// takes.
const SPIN_BEFORE: Nanos = Nanos::from_micros(100);

/// Pause of a closed loop's client after a request that ended without being sent. The controller
/// expects the server to reject the next request, too.
const RETRY_DELAY: Nanos = Nanos::from_millis(10);
/// Minimum interval between requests after such pauses, over all clients together.
const RETRY_SPACING: Nanos = Nanos::from_micros(10);

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Time since the start; zero while connecting.
    pub elapsed: Nanos,
    /// Time for which requests are issued.
    pub duration: Nanos,
    /// Counters so far.
    pub counts: RequestCounts,
    /// The last complete window of the time series, if there is one.
    pub latest: Option<ClientWindow>,
    /// Whether the server's windows bind, according to its first welcome.
    pub gives_credits: Option<bool>,
}

/// Runs `plan` against a server, on this thread, and returns the results.
///
/// `client` builds the client half of the server's algorithm, once per connection. `stop` ends the
/// run early: no more requests are issued, and the run waits for the last answers as usual.
/// `progress` is called at intervals of [`LoadConfig::progress_every`].
///
/// Raises the process's limit of open files if the connections need that.
///
/// # Errors
/// Invalid settings, and all errors before the first request. After that, there is always a report.
pub fn run(
    config: &LoadConfig,
    plan: &Plan,
    client: impl FnMut() -> Result<ClientParts, ParamError>,
    stop: &AtomicBool,
    progress: impl FnMut(&Progress),
) -> Result<RunResults, LoadError> {
    check(config, plan)?;
    let _pinned = PinGuard::pin(config.cpu)?;
    // If the limit stays too low, connecting fails with an error that shows it.
    allow_sockets(plan.connections().into());
    let mut driver = Driver::new(config, plan)?;
    driver.connect(plan, client, stop)?;
    let run_end = driver.run_plan(plan, stop, progress)?;
    Ok(driver.close(&run_end))
}

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
/// Runs `closed` first, a closed loop with a quarter of its time as warm-up, until its last answer.
/// Only the first `active` of its connections send; the others stay open. Then runs the schedule
/// that `open` makes of the measured responses per second, over all of these connections, as
/// [`run`] does. `progress` covers the second part only.
///
/// # Errors
/// As [`run`]; an unknown capacity, because connections or answers were missing; an invalid
/// schedule, or one for another number of clients.
pub fn run_scaled(
    config: &LoadConfig,
    closed: &Plan,
    active: u32,
    open: impl FnOnce(Rate) -> Result<Schedule, ScheduleError>,
    client: impl FnMut() -> Result<ClientParts, ParamError>,
    stop: &AtomicBool,
    progress: impl FnMut(&Progress),
) -> Result<ScaledRun, LoadError> {
    let warmup = Nanos(closed.duration().0 / 4);
    let measuring = LoadConfig { warmup, window: None, fine_window: None, ..config.clone() };
    check(&measuring, closed)?;
    let _pinned = PinGuard::pin(config.cpu)?;
    // If the limit stays too low, connecting fails with an error that shows it.
    allow_sockets(closed.connections().into());
    let mut driver = Driver::new(&measuring, closed)?;
    driver.connect(closed, client, stop)?;
    let run_end = driver.run_plan(&closed.of_first(active), stop, |_| {})?;
    let unmeasured = |why| Err(LoadError::CapacityUnknown(why));
    match run_end.ending {
        RunEndReason::Stopped => return Err(LoadError::Stopped),
        RunEndReason::Drained => return unmeasured("some requests were never answered"),
        _ if driver.lost > 0 => return unmeasured("the server closed connections"),
        _ => {}
    }
    // No request is in flight: the second part begins with empty counters.
    let measured = driver.replace_recorder(Recorder::for_plan(config, closed)).finish(&run_end).report;
    if measured.throughput_per_s <= 0.0 {
        return unmeasured("nothing was answered in time");
    }
    let plan = Plan::Open(open(Rate(measured.throughput_per_s))?);
    if plan.connections() != closed.connections() {
        return Err(LoadError::Config("both parts of a run go over the same connections"));
    }
    check(config, &plan)?;
    driver.config = config;
    driver.replace_recorder(Recorder::for_plan(config, &plan));
    let run_end = driver.run_plan(&plan, stop, progress)?;
    Ok(ScaledRun { measured, results: driver.close(&run_end) })
}

fn check(config: &LoadConfig, plan: &Plan) -> Result<(), LoadError> {
    let refuse = |when: bool, why| if when { Err(LoadError::Config(why)) } else { Ok(()) };
    refuse(config.payload < 8, "a payload has at least 8 bytes, which carry the service time")?;
    refuse(plan.connections() == 0, "a run needs at least one connection")?;
    refuse(config.warmup >= plan.duration(), "the warm-up is as long as the run: nothing would be measured")?;
    refuse(matches!(plan, Plan::Closed { outstanding: 0, .. }), "a closed loop needs at least one request under way")?;
    let whole = plan.duration() + config.drain;
    let windows = [config.window, config.fine_window];
    let too_many = windows.iter().flatten().any(|window| whole.0 / window.0.max(1) > WINDOWS_MAX);
    refuse(too_many, "more than 100,000 windows: make them longer")
}

/// Source of the next request and its due time.
enum Source<'a> {
    Open { requests: &'a [PlannedRequest] },
    Closed { service: &'a ServiceTime, services: Rng, clients: Rng, end: Time },
}

/// Action on one connection.
enum Action<'a> {
    Submit(Time, IssuedRequest, Request<'a>, Budget),
    Ready,
    Flush,
    Timer(Time, Time),
    Close,
}

struct Driver<'a> {
    config: &'a LoadConfig,
    clock: Clock,
    poller: Poller,
    links: Vec<Link>,
    /// Timers by time; an entry that its link has moved since has no effect.
    timers: BinaryHeap<Reverse<(Time, u32)>>,
    recorder: Recorder,
    /// Start of the run, by the clock.
    start: Time,
    /// Connections welcomed, and connections lost.
    welcomed: u32,
    lost: u32,
    /// Connections with new output.
    dirty_links: Vec<u32>,
    ready: Vec<u32>,
    /// Connections whose requests have ended, once per request; a closed loop issues the next.
    idle_links: Vec<u32>,
    /// Connections whose requests ended without being sent, and the time of each connection's next
    /// request.
    backing_off: VecDeque<(Time, u32)>,
    /// Whether requests wait for a credit, instead of expiring.
    wait_for_credit: Arc<AtomicBool>,
    payload: Vec<u8>,
}

impl<'a> Driver<'a> {
    fn new(config: &'a LoadConfig, plan: &Plan) -> Result<Self, LoadError> {
        Ok(Driver {
            config,
            clock: Clock::start(),
            poller: Poller::new().map_err(LoadError::Poll)?,
            links: Vec::new(),
            timers: BinaryHeap::new(),
            recorder: Recorder::for_plan(config, plan),
            start: Time::ZERO,
            welcomed: 0,
            lost: 0,
            dirty_links: Vec::new(),
            ready: Vec::new(),
            idle_links: Vec::new(),
            backing_off: VecDeque::new(),
            wait_for_credit: Arc::default(),
            payload: vec![0; config.payload],
        })
    }

    /// Performs `action` on a connection, and handles the resulting change of its state.
    fn act(&mut self, number: u32, action: Action<'_>) {
        let Driver { clock, poller, recorder, idle_links: idle, backing_off: paused, start, .. } = self;
        let pause = RETRY_DELAY.max(RETRY_SPACING * self.links.len() as u64);
        let link = &mut self.links[number as usize];
        let mut events = |now: Time, event: Event<'_, IssuedRequest>| {
            recorder.record_end(Time(now.since(*start).0), &event);
            match event {
                Event::EndedLocally { .. } => paused.push_back((now + pause, number)),
                _ => idle.push(number),
            }
        };
        match action {
            Action::Submit(now, issued, request, budget) => link.submit(now, issued, &request, budget, &mut events),
            Action::Ready => link.ready(*clock, poller, &mut events),
            Action::Flush => link.flush(*clock, poller, &mut events),
            Action::Timer(at, now) => {
                link.on_timer(at, now, &mut events);
                link.flush(*clock, poller, &mut events);
            }
            Action::Close => link.close(clock.now(), &mut events),
        }
        match link.take_event() {
            Some(LinkEvent::Welcomed) => {
                self.welcomed += 1;
                self.recorder.record_welcome(link.gives_credits());
            }
            Some(LinkEvent::Lost) => {
                self.lost += 1;
                self.recorder.record_loss(&link.reason());
            }
            None => {}
        }
        if let Some(at) = link.rearm(self.clock.now()) {
            self.timers.push(Reverse((at, number)));
        }
    }

    // ---- before the run ----

    /// Opens all connections, some at a time, and waits until the server has welcomed each.
    fn connect(
        &mut self,
        plan: &Plan,
        mut client: impl FnMut() -> Result<ClientParts, ParamError>,
        stop: &AtomicBool,
    ) -> Result<(), LoadError> {
        let LoadConfig { address, connect_timeout, .. } = *self.config;
        let count = plan.connections();
        for number in 0..count {
            let mut parts = client()?;
            if let Some(budget) = self.config.budget.remaining() {
                parts.config.max_delay = parts.config.max_delay.min(budget);
            }
            if let Plan::Closed { outstanding, .. } = plan {
                // Outstanding requests must not displace each other from the queue.
                parts.config.queue = parts.config.queue.max(*outstanding as usize);
            }
            let parts =
                with_max_wait(parts, self.config.budget.remaining().unwrap_or(Nanos::MAX), &self.wait_for_credit);
            let link = Link::open(number, self.config, connect_timeout, parts, &self.poller, self.clock.now())
                .map_err(|source| LoadError::Connect { address, number: number + 1, of: count, source })?;
            self.links.push(link);
            self.act(number, Action::Flush);
            self.await_welcomes((number + 1).saturating_sub(PENDING_WELCOMES_MAX), count, stop)?;
        }
        self.await_welcomes(count, count, stop)
    }

    /// Waits until at least `enough` of the connections opened so far are welcomed.
    fn await_welcomes(&mut self, enough: u32, of: u32, stop: &AtomicBool) -> Result<(), LoadError> {
        let deadline = self.clock.now() + self.config.connect_timeout;
        loop {
            let failed = |welcomed, reason: String| {
                let reason = self.with_protocol(reason);
                LoadError::Welcome { address: self.config.address, welcomed, of, reason }
            };
            if self.lost > 0 {
                let reason = self.links.iter().find(|link| link.is_lost()).map(Link::reason).unwrap_or_default();
                return Err(failed(self.welcomed, reason));
            }
            if stop.load(Ordering::Relaxed) {
                return Err(LoadError::Stopped);
            }
            if self.welcomed >= enough {
                return Ok(());
            }
            let now = self.clock.now();
            if now >= deadline {
                return Err(failed(self.welcomed, "no welcome in time".into()));
            }
            self.poll(Wait::For(deadline.since(now).min(WAIT_MAX)))?;
        }
    }

    /// Adds the server's protocol to `reason` if no connection was welcomed and the server speaks
    /// another one.
    fn with_protocol(&self, reason: String) -> String {
        if self.welcomed > 0 || self.config.transport != Transport::Tcp {
            return reason;
        }
        let expected = if self.config.tls.is_some() { ServerProtocol::Tls } else { ServerProtocol::Leeward };
        address::with_protocol(reason, self.config.address, expected, PROTOCOL_PROBE_TIMEOUT)
    }

    // ---- the run ----

    fn run_plan(
        &mut self,
        plan: &Plan,
        stop: &AtomicBool,
        mut progress: impl FnMut(&Progress),
    ) -> Result<RunEnd, LoadError> {
        self.start = self.clock.now() + LEAD;
        self.idle_links.clear();
        self.backing_off.clear();
        self.wait_for_credit.store(matches!(plan, Plan::Closed { .. }), Ordering::Relaxed);
        let (mut source, planned) = self.source(plan);
        // Set when the last request has been issued.
        let mut deadline = None;
        let mut stopped = false;
        let mut next_progress = self.start;
        let ending = loop {
            let now = self.clock.now();
            if deadline.is_none() {
                stopped = stop.load(Ordering::Relaxed);
            }
            let due = if stopped { None } else { self.issue(&mut source) };
            if due.is_none() && deadline.is_none() {
                deadline = Some(now + self.config.drain);
                if self.wait_for_credit.swap(false, Ordering::Relaxed) {
                    // Waiting requests now expire as usual. The flush sets each connection's timer.
                    self.dirty_links.extend(0..self.links.len() as u32);
                }
                if stopped {
                    self.recorder.end_early(Time(now.since(self.start).0));
                }
            }
            self.fire_timers();
            self.flush();
            if now >= next_progress {
                next_progress = now + self.config.progress_every;
                let (elapsed, counts) = (now.since(self.start), *self.recorder.totals());
                let latest = self.recorder.latest_window(Time(elapsed.0));
                let gives_credits = self.recorder.gives_credits();
                progress(&Progress { elapsed, duration: plan.duration(), counts, latest, gives_credits });
            }
            if self.lost as usize == self.links.len() {
                self.recorder.end_early(Time(now.since(self.start).0));
                break RunEndReason::Disconnected;
            }
            if let Some(deadline) = deadline {
                let all_ended = self.recorder.in_flight() == 0;
                if all_ended || now >= deadline {
                    break if stopped {
                        RunEndReason::Stopped
                    } else if all_ended {
                        RunEndReason::Finished
                    } else {
                        RunEndReason::Drained
                    };
                }
            }
            let wait = self.wait(due, deadline);
            self.poll(wait)?;
        };
        Ok(RunEnd { ending, planned })
    }

    /// Replaces the recorder by one that has the same connections. Returns the old one.
    fn replace_recorder(&mut self, recorder: Recorder) -> Recorder {
        let before = mem::replace(&mut self.recorder, recorder);
        let gives_credits = before.gives_credits().unwrap_or_default();
        (0..self.welcomed).for_each(|_| self.recorder.record_welcome(gives_credits));
        before
    }

    /// Ends all requests in flight and closes all connections.
    fn close(mut self, run_end: &RunEnd) -> RunResults {
        self.recorder.close();
        for number in 0..self.links.len() as u32 {
            self.act(number, Action::Close);
        }
        let mut counts = DatagramCounts::default();
        self.links.iter().for_each(|link| counts += link.datagrams());
        let mut results = self.recorder.finish(run_end);
        (results.report.retransmitted, results.report.duplicates) = (counts.retransmitted, counts.duplicates);
        results
    }

    fn source<'p>(&mut self, plan: &'p Plan) -> (Source<'p>, u64) {
        match plan {
            Plan::Open(schedule) => {
                let requests = schedule.requests();
                (Source::Open { requests }, requests.len() as u64)
            }
            Plan::Closed { connections, outstanding, service, seed, duration } => {
                // As if that many requests had just ended on each connection, in turn.
                self.idle_links.extend((0..*outstanding).flat_map(|_| 0..*connections));
                let rng = |purpose| Rng::new(*seed, purpose);
                let (services, clients) = (rng(Purpose::Service), rng(Purpose::Clients));
                (Source::Closed { service, services, clients, end: self.start + *duration }, 0)
            }
        }
    }

    /// Issues some of the due requests. Returns the due time of the next one; `None` at the end.
    fn issue(&mut self, source: &mut Source<'_>) -> Option<Time> {
        match source {
            Source::Open { requests } => {
                self.idle_links.clear();
                self.backing_off.clear();
                for _ in 0..BATCH {
                    let (planned, rest) = requests.split_first()?;
                    let (now, due) = (self.clock.now(), self.start + Nanos(planned.at.0));
                    if due > now {
                        return Some(due);
                    }
                    // A late request is issued all the same: without it, the worst moments would
                    // lack requests.
                    self.submit(now, planned.client, planned.at, planned.service, planned.priority, planned.random);
                    *requests = rest;
                }
                requests.first().map(|next| self.start + Nanos(next.at.0))
            }
            Source::Closed { service, services, clients, end } => {
                if self.clock.now() < self.start {
                    return Some(self.start);
                }
                while let Some((at, number)) = self.backing_off.front().copied()
                    && at <= self.clock.now()
                {
                    self.backing_off.pop_front();
                    self.idle_links.push(number);
                }
                // Taken out first: requests that end at once follow in the next round, after the
                // sockets.
                let mut idle = mem::take(&mut self.idle_links);
                for number in idle.drain(..) {
                    let now = self.clock.now();
                    if now >= *end {
                        return None;
                    }
                    if !self.links[number as usize].is_lost() {
                        let at = Time(now.since(self.start).0);
                        let (service, priority) = (service.draw(services), Priority::from_random(clients.bits()));
                        self.submit(now, number, at, service, priority, clients.bits());
                    }
                }
                let now = self.clock.now();
                if now >= *end {
                    return None;
                }
                if self.idle_links.is_empty() {
                    // Keeps the memory for the next round.
                    self.idle_links = idle;
                    Some(self.backing_off.front().map_or(*end, |(at, _)| (*at).min(*end)))
                } else {
                    Some(now)
                }
            }
        }
    }

    /// Submits one request, due at `at` from the start, to its client.
    fn submit(&mut self, now: Time, number: u32, at: Time, service: Nanos, priority: Priority, random: u64) {
        self.recorder.record_issue(Time(now.since(self.start).0), at);
        let mut payload = mem::take(&mut self.payload);
        let bits = bits_of(random);
        let method = match &self.config.ask {
            Some(generator) => {
                payload.clear();
                generator.generate(bits, &mut payload)
            }
            None => {
                payload[..8].copy_from_slice(&service.0.to_le_bytes());
                self.config.method
            }
        };
        let request = Request { method, payload: &payload, priority, random };
        let mut budget = self.config.budget;
        budget.charge(Time(now.since(self.start).0).since(at));
        self.act(number, Action::Submit(now, IssuedRequest { due: at, method, random: bits }, request, budget));
        self.payload = payload;
        self.dirty_links.push(number);
    }

    fn fire_timers(&mut self) {
        let now = self.clock.now();
        while let Some(&Reverse((at, number))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            self.act(number, Action::Timer(at, now));
        }
    }

    fn flush(&mut self) {
        let mut dirty = mem::take(&mut self.dirty_links);
        for number in dirty.drain(..) {
            self.act(number, Action::Flush);
        }
        self.dirty_links = dirty;
    }

    /// How long to wait for sockets if the next request is `due` and the run ends at `deadline`.
    fn wait(&self, due: Option<Time>, deadline: Option<Time>) -> Wait {
        let now = self.clock.now();
        let timer = self.timers.peek().map_or(Time::NEVER, |Reverse((at, _))| *at);
        let idle = timer.min(deadline.unwrap_or(Time::NEVER)).since(now).min(WAIT_MAX);
        let until_due = due.map_or(Nanos::MAX, |due| due.since(now));
        match self.config.polling {
            Polling::Busy => Wait::NonBlocking,
            Polling::Sleep => Wait::For(idle.min(until_due)),
            Polling::Hybrid if until_due <= SPIN_BEFORE => {
                // The server may need this core as much.
                std::thread::yield_now();
                Wait::NonBlocking
            }
            Polling::Hybrid => Wait::For(idle.min(until_due - SPIN_BEFORE)),
        }
    }

    fn poll(&mut self, wait: Wait) -> Result<(), LoadError> {
        let mut ready = mem::take(&mut self.ready);
        self.poller.wait(wait, &mut ready).map_err(LoadError::Poll)?;
        for number in ready.drain(..) {
            self.act(number, Action::Ready);
        }
        self.ready = ready;
        Ok(())
    }
}

/// Bits for a [`RequestGenerator`](leeward_rpc::generator::RequestGenerator), from the bits of a
/// request's client and independent of them (SplitMix64's last steps).
fn bits_of(random: u64) -> u64 {
    let mixed = random.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
