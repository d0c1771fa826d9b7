//! Statistics of a run and their report. They never influence the run.

use crate::config::{MeasuredInterval, SimConfig};
use crate::kinds::KindStats;
use crate::requests::Request;
use crate::settling::{Decision, Settling, WindowSample};
use leeward_core::client::LocalReason;
use leeward_core::server::Gauges;
use leeward_core::units::{Nanos, Time};
use leeward_outcome::{
    ClientWindow, Distribution, FineWindow, RequestCounts, RunOutcome, ServerCounts, ServerState, WindowOutcome,
};
use leeward_threading::Setup;

/// Number of requests in the server or in a lock's queue over time, for Little's law: exact, in
/// integers.
#[derive(Clone, Copy, Default)]
pub(crate) struct Occupancy {
    inside: u64,
    since: Time,
    /// ∫ inside dt.
    area: u128,
    /// Σ time inside, over departed requests.
    sojourn_sum: u128,
    /// Σ arrival time, over requests inside.
    arrival_sum: u128,
    departures: u64,
}

impl Occupancy {
    fn advance(&mut self, now: Time) {
        self.area += u128::from(now.since(self.since).0) * u128::from(self.inside);
        self.since = now;
    }

    pub(crate) fn enter(&mut self, now: Time) {
        self.advance(now);
        self.inside += 1;
        self.arrival_sum += u128::from(now.0);
    }

    pub(crate) fn leave(&mut self, now: Time, arrived: Time) {
        self.advance(now);
        self.inside -= 1;
        self.arrival_sum -= u128::from(arrived.0);
        self.sojourn_sum += u128::from(now.since(arrived).0);
        self.departures += 1;
    }

    /// Checks Little's law as an identity: the area under the number inside equals the sum of all
    /// times inside.
    fn is_consistent_at(&self, now: Time) -> bool {
        let still_inside = u128::from(self.inside) * u128::from(now.0) - self.arrival_sum;
        self.area == self.sojourn_sum + still_inside
    }

    /// Adds the occupancy of another server up to the same time.
    fn add(&mut self, other: &Occupancy) {
        self.since = self.since.max(other.since);
        self.inside += other.inside;
        self.area += other.area;
        self.sojourn_sum += other.sojourn_sum;
        self.arrival_sum += other.arrival_sum;
        self.departures += other.departures;
    }

    /// Whether Little's law has held so far.
    pub(crate) fn is_consistent(&self) -> bool {
        self.is_consistent_at(self.since)
    }
}

/// Counters of clients and server.
#[derive(Clone, Copy, Default)]
struct RunCounts {
    clients: RequestCounts,
    server: ServerCounts,
}

impl RunCounts {
    fn since(&self, earlier: &RunCounts) -> RunCounts {
        RunCounts { clients: self.clients.since(&earlier.clients), server: self.server.since(&earlier.server) }
    }
}

/// Statistics of a run.
pub(crate) struct Stats {
    interval: MeasuredInterval,
    observer: Option<Observer>,
    slo: Nanos,
    counts: RunCounts,
    at_warmup: RunCounts,
    at_window: RunCounts,
    takes_locks: bool,
    latency: Distribution,
    waiting: Distribution,
    reject_delay: Distribution,
    window: Option<WindowSeries>,
    fine_width: Option<Nanos>,
    fine: Vec<FineWindow>,
    occupancy: Occupancy,
    occupancy_at_warmup: Occupancy,
    busy: u128,
    kinds: KindStats,
}

/// Observation of the run in windows.
struct Observer {
    settling: Settling,
    at_window: RequestCounts,
}

struct WindowSeries {
    latency: Distribution,
    reject_delay: Distribution,
    start: Time,
    windows: Vec<WindowOutcome>,
}

impl Stats {
    pub(crate) fn new(config: &SimConfig) -> Self {
        Stats {
            interval: MeasuredInterval::of(config),
            observer: config
                .stopping
                .map(|rule| Observer { settling: Settling::new(rule), at_window: RequestCounts::default() }),
            slo: config.slo,
            counts: RunCounts::default(),
            at_warmup: RunCounts::default(),
            at_window: RunCounts::default(),
            takes_locks: !config.application.is_plain(),
            latency: Distribution::new(),
            waiting: Distribution::new(),
            reject_delay: Distribution::new(),
            window: config.window.map(|_| WindowSeries {
                latency: Distribution::new(),
                reject_delay: Distribution::new(),
                start: Time::ZERO,
                windows: Vec::new(),
            }),
            fine_width: config.fine_window,
            fine: Vec::new(),
            occupancy: Occupancy::default(),
            occupancy_at_warmup: Occupancy::default(),
            busy: 0,
            kinds: KindStats::new(config),
        }
    }

    /// Says how long the controller takes from one change to the next.
    pub(crate) fn expect_reaction(&mut self, reaction: Nanos) {
        if let Some(observer) = &mut self.observer {
            observer.settling.expect_reaction(reaction);
        }
    }

    /// The measured interval, as far as it is decided.
    pub(crate) fn interval(&self) -> MeasuredInterval {
        self.interval
    }

    /// Leaves the observation of the run to the caller.
    pub(crate) fn stop_observing(&mut self) {
        self.observer = None;
    }

    /// Sets the measured interval of a part of a run, which does not decide by itself.
    pub(crate) fn set_interval(&mut self, interval: MeasuredInterval) {
        if interval == MeasuredInterval::UNDECIDED {
            self.discard();
        }
        self.interval = interval;
    }

    /// End of the observed window after `now`; `NEVER` if nothing observes the run any more.
    pub(crate) fn next_observation(&self, now: Time) -> Time {
        self.observer.as_ref().map_or(Time::NEVER, |observer| observer.settling.next_window(now))
    }

    /// Ends an observed window. Returns true if the measured interval has changed.
    pub(crate) fn observe(&mut self, now: Time, gauges: &Gauges) -> bool {
        let Some(observer) = &mut self.observer else { return false };
        let counts = self.counts.clients.since(&observer.at_window);
        observer.at_window = self.counts.clients;
        let sample = WindowSample {
            offered: counts.offered as f64,
            good: counts.good as f64,
            completed: counts.completed as f64,
            at_clients: counts.client_total() as f64,
            rejected: counts.dropped as f64,
            pool: gauges.credit_pool.unwrap_or(0) as f64,
        };
        match observer.settling.observe(now, sample) {
            Decision::Continue => return false,
            Decision::MeasureFrom(from) => self.interval.from = from,
            Decision::Discard => self.discard(),
            Decision::EndAt(to) => self.interval.to = to,
        }
        true
    }

    /// Removes what was measured so far.
    fn discard(&mut self) {
        self.interval = MeasuredInterval::UNDECIDED;
        for distribution in [&mut self.latency, &mut self.waiting, &mut self.reject_delay] {
            distribution.clear();
        }
        self.busy = 0;
        self.kinds.discard();
    }

    /// Begins the measurement.
    pub(crate) fn end_warmup(&mut self, now: Time) {
        self.occupancy.advance(now);
        self.occupancy_at_warmup = self.occupancy;
        self.at_warmup = self.counts;
        self.kinds.end_warmup();
    }

    /// Counts a request that is sent to a second server.
    pub(crate) fn record_retry(&mut self) {
        self.counts.clients.sent_again += 1;
    }

    /// Counts a request of this kind that is issued.
    pub(crate) fn record_issue(&mut self, kind: u8) {
        self.count(kind, |counts| counts.offered += 1);
    }

    /// Counts a request of this kind that ends at its client.
    pub(crate) fn record_client_end(&mut self, kind: u8, reason: LocalReason) {
        self.count(kind, |counts| match reason {
            LocalReason::Overflow => counts.overflowed += 1,
            LocalReason::Throttled => counts.throttled += 1,
            // A reason unknown to this crate counts as an expiry.
            _ => counts.expired += 1,
        });
    }

    /// Applies a client event to the counters of all requests and of its kind.
    fn count(&mut self, kind: u8, event: impl Fn(&mut RequestCounts)) {
        event(&mut self.counts.clients);
        self.kinds.count(kind, event);
    }

    /// Counts a request whose packet has reached the server.
    pub(crate) fn record_arrival(&mut self, now: Time) {
        self.occupancy.enter(now);
    }

    /// Counts a message that a core has received and parsed.
    pub(crate) fn record_receive(&mut self, is_request: bool) {
        self.counts.server.rx_messages += 1;
        self.counts.server.received += u64::from(is_request);
    }

    /// Counts a request that the controller would have rejected.
    pub(crate) fn record_shadow_reject(&mut self) {
        self.counts.server.foreseen += 1;
    }

    pub(crate) fn record_reject(&mut self) {
        self.counts.server.rejected += 1;
    }

    /// Counts a rejection at a lock.
    pub(crate) fn record_lock_reject(&mut self) {
        self.counts.server.refused_at_locks += 1;
    }

    /// Records the wait of a request that begins to execute.
    pub(crate) fn record_start(&mut self, now: Time, request: &Request) {
        if self.interval.has_begun(now) {
            self.waiting.record(now.since(request.arrived));
        }
    }

    /// Counts a request that leaves the server.
    pub(crate) fn record_departure(&mut self, now: Time, request: &Request) {
        self.occupancy.leave(now, request.arrived);
    }

    pub(crate) fn record_sent(&mut self, messages: u64) {
        self.counts.server.tx_messages += messages;
    }

    /// Adds `work`, which a core does between `start` and `end`, to the cores' busy time.
    ///
    /// Time that the machine takes away in between is no CPU time of the server. At an end of the
    /// measured part, work counts in proportion.
    pub(crate) fn record_busy(&mut self, start: Time, end: Time, work: Nanos) {
        let span = u128::from(end.since(start).0);
        self.busy += self.interval.part(start, end) * u128::from(work.0) / span.max(1);
    }

    /// Counts a response that a client has received.
    pub(crate) fn record_completion(&mut self, now: Time, request: &Request) {
        let latency = now.since(request.issued);
        let good = latency <= self.kinds.objective(request.kind, self.slo);
        self.kinds.record_completion(self.interval.has_begun(now), request.kind, latency);
        self.counts.clients.completed += 1;
        self.counts.clients.good += u64::from(good);
        if self.interval.has_begun(now) {
            self.latency.record(latency);
        }
        if let Some(series) = &mut self.window {
            series.latency.record(latency);
        }
        if let Some(width) = self.fine_width {
            let index = (now.0 / width.0) as usize;
            while self.fine.len() <= index {
                let start = Time(self.fine.len() as u64 * width.0);
                self.fine.push(FineWindow { start, completed: 0, good: 0 });
            }
            self.fine[index].completed += 1;
            self.fine[index].good += u64::from(good);
        }
    }

    /// Counts a reply that a client has received after its application gave up.
    pub(crate) fn record_timeout(&mut self, kind: u8) {
        self.count(kind, |counts| counts.timed_out += 1);
    }

    /// Counts a rejection that a client has received.
    pub(crate) fn record_client_reject(&mut self, now: Time, request: &Request) {
        self.record_rejected_end(request.kind);
        self.record_reject_delay(now, request);
    }

    /// Counts a request of this kind that has ended with a rejection.
    pub(crate) fn record_rejected_end(&mut self, kind: u8) {
        self.count(kind, |counts| counts.dropped += 1);
    }

    /// Records the delay of a rejection, which may not be the request's end.
    pub(crate) fn record_reject_delay(&mut self, now: Time, request: &Request) {
        let delay = now.since(request.sent);
        if self.interval.has_begun(now) {
            self.reject_delay.record(delay);
        }
        if let Some(series) = &mut self.window {
            series.reject_delay.record(delay);
        }
    }

    /// Ends a window of the time series.
    pub(crate) fn end_window(&mut self, now: Time, gauges: Gauges, delay: Nanos, cores: Option<f64>) {
        let counts = self.counts.since(&self.at_window);
        self.at_window = self.counts;
        if let Some(series) = &mut self.window {
            series.windows.push(WindowOutcome {
                length: now.since(series.start),
                clients: ClientWindow {
                    start: series.start,
                    counts: counts.clients,
                    latency: series.latency.take(),
                    reject_delay_mean_ns: series.reject_delay.take().mean_ns,
                },
                server: Some(counts.server),
                state: ServerState { gauges, delay },
                cores,
                setup: None,
            });
            series.start = now;
        }
    }

    /// Sets the setup of the last finished window.
    pub(crate) fn set_window_setup(&mut self, setup: Setup) {
        if let Some(window) = self.window.as_mut().and_then(|series| series.windows.last_mut()) {
            window.setup = Some(setup);
        }
    }

    /// Whether Little's law has held so far.
    pub(crate) fn littles_law_holds(&self) -> bool {
        self.occupancy.is_consistent()
    }

    /// Whether the kinds' counts add up to those of all requests.
    pub(crate) fn kinds_add_up(&self) -> bool {
        self.kinds.sums_to(&self.counts.clients)
    }

    /// Adds the server-side counters of one of several servers, after its [`report`](Self::report).
    /// The clients' counters are kept here.
    pub(crate) fn merge(&mut self, server: &Stats) {
        self.counts.server.add(&server.counts.server);
        self.at_warmup.server.add(&server.at_warmup.server);
        self.occupancy.add(&server.occupancy);
        self.occupancy_at_warmup.add(&server.occupancy_at_warmup);
        self.waiting.add(&server.waiting);
        self.busy += server.busy;
    }

    pub(crate) fn report(&mut self, cores: u32, unfinished: u64, gauges: Gauges, events: u64) -> RunOutcome {
        self.occupancy.advance(self.interval.to);
        let measured = self.interval.to.since(self.interval.from);
        let counts = self.counts.since(&self.at_warmup);
        let before = self.occupancy_at_warmup;
        let departures = self.occupancy.departures - before.departures;
        RunOutcome {
            measured,
            settling: self.observer.as_ref().map(|observer| observer.settling.outcome()),
            counts: counts.clients,
            totals: RequestCounts { unfinished, ..self.counts.clients },
            server: counts.server,
            uses_locks: self.takes_locks,
            latency: self.latency.percentiles(),
            reject_delay: self.reject_delay.percentiles(),
            waiting: Some(self.waiting.percentiles()),
            cpu_utilization: self.busy as f64 / (measured.0 as f64 * f64::from(cores)),
            mean_in_server: Some((self.occupancy.area - before.area) as f64 / measured.0 as f64),
            mean_sojourn_ns: if departures == 0 {
                0.0
            } else {
                (self.occupancy.sojourn_sum - before.sojourn_sum) as f64 / departures as f64
            },
            violations: Vec::new(),
            locks: Vec::new(),
            windows: self.window.take().map(|series| series.windows).unwrap_or_default(),
            fine_windows: std::mem::take(&mut self.fine),
            gauges,
            events: Some(events),
            cores: None,
            failure_delay: None,
            kinds: self.kinds.report(),
            lateness: None,
            replicas: Vec::new(),
            threads: None,
            graph: None,
        }
    }
}
