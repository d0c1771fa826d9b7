//! Counts what happens and turns it into the report. Nothing here influences a run.

use crate::config::SimConfig;
use crate::report::{Counts, FineWindow, Percentiles, SimReport, Totals, WindowReport};
use crate::requests::Request;
use hdrhistogram::Histogram;
use leeward_control::client::LocalReason;
use leeward_control::server::Gauges;
use leeward_control::units::{Nanos, Time};

/// A distribution: the histogram's percentiles, and an exact mean.
pub(crate) struct Distribution {
    histogram: Histogram<u64>,
    sum: u128,
    count: u64,
}

impl Distribution {
    pub(crate) fn new() -> Self {
        // Three digits, up to an hour: nothing here waits longer, as no run lasts longer.
        let histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("constant bounds are valid");
        Distribution { histogram, sum: 0, count: 0 }
    }

    pub(crate) fn record(&mut self, span: Nanos) {
        self.histogram.saturating_record(span.0);
        self.sum += u128::from(span.0);
        self.count += 1;
    }

    /// Adds all samples of another.
    fn add(&mut self, other: &Distribution) {
        self.histogram.add(&other.histogram).expect("all have the same bounds");
        self.sum += other.sum;
        self.count += other.count;
    }

    /// Takes the percentiles of what was recorded; starts anew.
    fn take(&mut self) -> Percentiles {
        let percentiles = self.percentiles();
        self.histogram.reset();
        (self.sum, self.count) = (0, 0);
        percentiles
    }

    pub(crate) fn percentiles(&self) -> Percentiles {
        if self.count == 0 {
            return Percentiles::default();
        }
        let at = |quantile| Nanos(self.histogram.value_at_quantile(quantile));
        Percentiles {
            count: self.count,
            mean_ns: self.sum as f64 / self.count as f64,
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: Nanos(self.histogram.max()),
        }
    }
}

/// The number of requests in the server, or in a lock's queue, over time, for Little's law: exact, in integers.
#[derive(Clone, Copy, Default)]
pub(crate) struct Occupancy {
    inside: u64,
    since: Time,
    /// ∫ inside dt.
    area: u128,
    /// Σ time inside of those that have left.
    left: u128,
    /// Σ time of arrival of those inside.
    arrivals: u128,
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
        self.arrivals += u128::from(now.0);
    }

    pub(crate) fn leave(&mut self, now: Time, arrived: Time) {
        self.advance(now);
        self.inside -= 1;
        self.arrivals -= u128::from(arrived.0);
        self.left += u128::from(now.since(arrived).0);
        self.departures += 1;
    }

    /// Little's law as an identity: the area under the number inside is the sum of all times inside.
    fn holds(&self, now: Time) -> bool {
        let still_inside = u128::from(self.inside) * u128::from(now.0) - self.arrivals;
        self.area == self.left + still_inside
    }

    /// Adds another server's, up to the same time.
    fn add(&mut self, other: &Occupancy) {
        self.since = self.since.max(other.since);
        self.inside += other.inside;
        self.area += other.area;
        self.left += other.left;
        self.arrivals += other.arrivals;
        self.departures += other.departures;
    }

    /// Whether it has held so far.
    pub(crate) fn holds_so_far(&self) -> bool {
        self.holds(self.since)
    }
}

/// Counters of a run.
pub(crate) struct Stats {
    warmup: Time,
    end: Time,
    slo: Nanos,
    counts: Counts,
    at_warmup: Counts,
    at_window: Counts,
    latency: Distribution,
    waiting: Distribution,
    reject_delay: Distribution,
    window: Option<WindowSeries>,
    fine_width: Option<Nanos>,
    fine: Vec<FineWindow>,
    occupancy: Occupancy,
    occupancy_at_warmup: Occupancy,
    busy: u128,
}

struct WindowSeries {
    latency: Distribution,
    reject_delay: Distribution,
    start: Time,
    done: Vec<WindowReport>,
}

impl Stats {
    pub(crate) fn new(config: &SimConfig) -> Self {
        Stats {
            warmup: Time::ZERO + config.warmup,
            end: Time::ZERO + config.duration,
            slo: config.slo,
            counts: Counts::default(),
            at_warmup: Counts::default(),
            at_window: Counts::default(),
            latency: Distribution::new(),
            waiting: Distribution::new(),
            reject_delay: Distribution::new(),
            window: config.window.map(|_| WindowSeries {
                latency: Distribution::new(),
                reject_delay: Distribution::new(),
                start: Time::ZERO,
                done: Vec::new(),
            }),
            fine_width: config.fine_window,
            fine: Vec::new(),
            occupancy: Occupancy::default(),
            occupancy_at_warmup: Occupancy::default(),
            busy: 0,
        }
    }

    /// The measured part begins.
    pub(crate) fn warmed_up(&mut self, now: Time) {
        self.occupancy.advance(now);
        self.occupancy_at_warmup = self.occupancy;
        self.at_warmup = self.counts;
    }

    /// A request is sent to a second server.
    pub(crate) fn sent_again(&mut self) {
        self.counts.sent_again += 1;
    }

    pub(crate) fn issued(&mut self) {
        self.counts.offered += 1;
    }

    pub(crate) fn ended_at_client(&mut self, reason: LocalReason) {
        match reason {
            LocalReason::Overflow => self.counts.overflowed += 1,
            LocalReason::Throttled => self.counts.throttled += 1,
            // A reason that is new to this crate is an expiry of some kind.
            _ => self.counts.expired += 1,
        }
    }

    /// A request's packet has reached the server.
    pub(crate) fn entered(&mut self, now: Time) {
        self.occupancy.enter(now);
    }

    /// A message has been received and parsed.
    pub(crate) fn received(&mut self, is_request: bool) {
        self.counts.rx_messages += 1;
        self.counts.received += u64::from(is_request);
    }

    pub(crate) fn rejected(&mut self) {
        self.counts.rejected += 1;
    }

    /// Counts a rejection for a lock.
    pub(crate) fn refused_at_lock(&mut self) {
        self.counts.refused_at_locks += 1;
    }

    /// A request begins to execute.
    pub(crate) fn started(&mut self, now: Time, request: &Request) {
        if now >= self.warmup {
            self.waiting.record(now.since(request.arrived));
        }
    }

    /// A request leaves the server.
    pub(crate) fn left(&mut self, now: Time, request: &Request) {
        self.occupancy.leave(now, request.arrived);
    }

    pub(crate) fn sent_messages(&mut self, messages: u64) {
        self.counts.tx_messages += messages;
    }

    /// A core works from `start` to `end`.
    pub(crate) fn busy(&mut self, start: Time, end: Time) {
        let measured = end.min(self.end).since(start.max(self.warmup));
        self.busy += u128::from(measured.0);
    }

    /// A client has received a response.
    pub(crate) fn completed(&mut self, now: Time, request: &Request) {
        let latency = now.since(request.issued);
        let good = latency <= self.slo;
        self.counts.completed += 1;
        self.counts.good += u64::from(good);
        if now >= self.warmup {
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

    /// A client has received a reply after its application gave up.
    pub(crate) fn timed_out(&mut self) {
        self.counts.timed_out += 1;
    }

    /// A client has received a drop.
    pub(crate) fn dropped(&mut self, now: Time, request: &Request) {
        self.ended_as_drop();
        self.told_of_drop(now, request);
    }

    /// A request has ended as a drop.
    pub(crate) fn ended_as_drop(&mut self) {
        self.counts.dropped += 1;
    }

    /// A client has received a drop, which may not be the request's end.
    pub(crate) fn told_of_drop(&mut self, now: Time, request: &Request) {
        let delay = now.since(request.sent);
        if now >= self.warmup {
            self.reject_delay.record(delay);
        }
        if let Some(series) = &mut self.window {
            series.reject_delay.record(delay);
        }
    }

    /// A window of the time series ends.
    pub(crate) fn window_ends(&mut self, now: Time, gauges: Gauges, delay: Nanos, cores: Option<f64>) {
        let counts = self.counts.since(&self.at_window);
        self.at_window = self.counts;
        if let Some(series) = &mut self.window {
            series.done.push(WindowReport {
                start: series.start,
                length: now.since(series.start),
                counts,
                latency: series.latency.take(),
                reject_delay: series.reject_delay.take(),
                gauges,
                delay,
                cores,
            });
            series.start = now;
        }
    }

    /// Whether Little's law has held so far.
    pub(crate) fn littles_law_holds(&self) -> bool {
        self.occupancy.holds_so_far()
    }

    /// Adds the counts of one server of several, after its [`report`](Self::report): the events in a server. The
    /// clients' view of the whole is counted here.
    pub(crate) fn absorb(&mut self, server: &Stats) {
        self.counts.add_servers(&server.counts);
        self.at_warmup.add_servers(&server.at_warmup);
        self.occupancy.add(&server.occupancy);
        self.occupancy_at_warmup.add(&server.occupancy_at_warmup);
        self.waiting.add(&server.waiting);
        self.busy += server.busy;
    }

    pub(crate) fn report(&mut self, cores: u32, unfinished: u64, gauges: Gauges, events: u64) -> SimReport {
        self.occupancy.advance(self.end);
        let measured = self.end.since(self.warmup);
        let counts = self.counts.since(&self.at_warmup);
        let before = self.occupancy_at_warmup;
        let departures = self.occupancy.departures - before.departures;
        let ended_at_client = self.counts.expired + self.counts.overflowed + self.counts.throttled;
        SimReport {
            measured,
            counts,
            totals: Totals {
                offered: self.counts.offered,
                completed: self.counts.completed,
                dropped: self.counts.dropped,
                timed_out: self.counts.timed_out,
                sent_again: self.counts.sent_again,
                ended_at_client,
                unfinished,
            },
            latency: self.latency.percentiles(),
            reject_delay: self.reject_delay.percentiles(),
            waiting: self.waiting.percentiles(),
            cpu_utilization: self.busy as f64 / (measured.0 as f64 * f64::from(cores)),
            mean_in_server: (self.occupancy.area - before.area) as f64 / measured.0 as f64,
            mean_sojourn_ns: if departures == 0 {
                0.0
            } else {
                (self.occupancy.left - before.left) as f64 / departures as f64
            },
            violations: Vec::new(),
            locks: Vec::new(),
            windows: self.window.take().map(|series| series.done).unwrap_or_default(),
            fine: std::mem::take(&mut self.fine),
            gauges,
            events,
            cores: None,
            failure_delay: Percentiles::default(),
            replicas: Vec::new(),
        }
    }
}
