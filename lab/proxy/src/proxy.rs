//! The proxy: the queue of the real one ([`Dispatcher`]) in front of one backend, or of several
//! equal ones. Does not contain the queue, the limit or the backend.

use crate::backend::{Backend, Work};
use crate::case::{Case, Feature, Schedule};
use leeward_concurrency::dispatch::{Answer, Arrival, Dispatch, DispatchSettings, Dispatcher, QueuedRequest};
use leeward_concurrency::{ConcurrencyLimit, Outcome, TICK};
use leeward_core::units::{Nanos, Tenant, Time};
use leeward_workload::ArrivalStream;
use leeward_workload::rng::{Purpose, Rng};
use std::collections::VecDeque;

/// Result of a run, of the requests that arrived in the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct RunResult {
    /// Requests that arrived.
    pub offered: u64,
    /// Answers within the objective.
    pub good: u64,
    /// Answers, late ones included.
    pub answered: u64,
    /// Median of the latency from arrival at the proxy, of all answers to requests that arrived
    /// while the demand exceeded the capacity.
    pub p50_ns: u64,
    /// Mean limit in the measurement.
    pub mean_limit: f64,
}

impl RunResult {
    /// Share of the answers that were late.
    pub fn late_share(&self) -> f64 {
        (self.answered - self.good) as f64 / self.answered.max(1) as f64
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    arrived: Time,
    work: Work,
}

struct Proxy<'a> {
    case: &'a Case,
    now: Time,
    dispatcher: Dispatcher<Waiting>,
    /// What became of requests that waited.
    done: Vec<Dispatch<Waiting>>,
    backends: Vec<Backend>,
    /// Arrival and dispatch of each request at each backend.
    dispatched: Vec<Vec<(Time, Time)>>,
    faults: &'a [Fault],
    /// Requests that fail: when, where, and when they were sent.
    failing: VecDeque<(Time, usize, Time)>,
    fault_rng: Rng,
    schedule: Schedule,
    latencies: Vec<u64>,
    result: RunResult,
    slots: Vec<Slot>,
}

/// Requests that may wait: more than can be in time.
const CAPACITY: usize = 1 << 20;

/// What happens in [`SLOT`] of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Requests that arrived.
    pub offered: u64,
    /// Answers within the objective.
    pub good: u64,
    /// Requests that were rejected.
    pub rejected: u64,
    /// Requests that failed.
    pub failed: u64,
    /// The limit at the end.
    pub limit: u32,
}

/// Length of a slot.
pub const SLOT: Nanos = Nanos::from_millis(100);

/// A fault of one backend: requests that are sent to it fail soon, and are no load for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// Number of the backend.
    pub backend: usize,
    /// Beginning.
    pub from: Nanos,
    /// End.
    pub to: Nanos,
    /// Share of the requests that fail.
    pub share: f64,
}

/// Time after which a request fails.
const FAILURE_TIME: Nanos = Nanos::from_micros(200);
/// Interval between two checks of a backend that is not up.
const CHECK_INTERVAL: Nanos = Nanos::from_secs(1);

/// Plays a case with a limit. The same arguments give the same result.
pub fn run(case: &Case, limit: Box<dyn ConcurrencyLimit>, seed: u64) -> RunResult {
    timeline(case, limit, seed).0
}

/// Plays a case with a limit; returns what happened over time, too.
pub fn timeline(case: &Case, limit: Box<dyn ConcurrencyLimit>, seed: u64) -> (RunResult, Vec<Slot>) {
    several(case, vec![limit], &[], seed)
}

/// Plays a case before as many backends as there are limits; each has the capacity of the case.
pub fn several(
    case: &Case,
    limits: Vec<Box<dyn ConcurrencyLimit>>,
    faults: &[Fault],
    seed: u64,
) -> (RunResult, Vec<Slot>) {
    let schedule = case.schedule();
    let settings = DispatchSettings { objective: case.objective, capacity: CAPACITY, capacity_bytes: usize::MAX };
    let mut proxy = Proxy {
        case,
        now: Time::ZERO,
        backends: limits.iter().map(|_| Backend::new(case)).collect(),
        dispatched: vec![Vec::new(); limits.len()],
        dispatcher: Dispatcher::new(settings, limits),
        done: Vec::new(),
        faults,
        failing: VecDeque::new(),
        fault_rng: Rng::new(seed, Purpose::Kinds),
        schedule,
        latencies: Vec::new(),
        result: RunResult::default(),
        slots: Vec::new(),
    };
    proxy.play(seed);
    let Proxy { mut latencies, mut result, slots, .. } = proxy;
    if !latencies.is_empty() {
        let middle = latencies.len() / 2;
        result.p50_ns = *latencies.select_nth_unstable(middle).1;
    }
    (result, slots)
}

impl Proxy<'_> {
    fn play(&mut self, seed: u64) {
        let workload = self.case.workload();
        let mut arrivals = ArrivalStream::new(&workload, seed).map(|(at, _)| at);
        let mut service_rng = Rng::new(seed, Purpose::Service);
        let mut path_rng = Rng::new(seed, Purpose::Paths);
        let end = Time::ZERO + self.schedule.to + self.case.objective;
        let mut next_arrival = arrivals.next().unwrap_or(Time::NEVER);
        let mut next_tick = Time::ZERO + TICK;
        let (mut limits, mut ticks) = (0.0, 0.0);
        loop {
            // The backend's times have fractions of a nanosecond; an event is due in its whole one.
            let times = self.backends.iter().map(|backend| Time(backend.next_time() as u64)).enumerate();
            let (backend, next_end) = times.min_by_key(|(_, at)| *at).unwrap_or((0, Time::NEVER));
            let next_failure = self.failing.front().map_or(Time::NEVER, |(at, ..)| *at);
            let now = next_end.min(next_failure).min(next_arrival).min(next_tick);
            if now > end {
                break;
            }
            self.now = now;
            if next_end == now {
                if let Some(job) = self.backends[backend].step() {
                    self.finish(backend, job);
                }
            } else if next_failure == now {
                self.fail();
            } else if next_arrival == now {
                next_arrival = arrivals.next().unwrap_or(Time::NEVER);
                let work = self.draw(&mut service_rng, &mut path_rng);
                self.result.offered += u64::from(self.is_measured(now));
                self.slot().offered += 1;
                self.arrive(Waiting { arrived: now, work });
            } else {
                next_tick = now + TICK;
                self.dispatcher.tick(now, None, &mut self.done);
                if now.0.is_multiple_of(CHECK_INTERVAL.0) {
                    self.check();
                }
                self.begin_dispatched();
                self.slot().limit = self.dispatcher.limit(0);
                if self.is_measured(now) {
                    limits += f64::from(self.dispatcher.limit(0));
                    ticks += 1.0;
                }
            }
        }
        self.result.mean_limit = limits / f64::max(ticks, 1.0);
    }

    fn is_measured(&self, arrived: Time) -> bool {
        let at = arrived.since(Time::ZERO);
        at >= self.schedule.from && at < self.schedule.to
    }

    fn draw(&self, service: &mut Rng, path: &mut Rng) -> Work {
        let mut work = Work { work: self.case.service.draw(service).0 as f64, ..Work::default() };
        for feature in &self.case.features {
            match feature {
                Feature::Awaiting(time) if self.case.features.contains(&Feature::LateReads) => {
                    work.awaiting = time.0 as f64;
                }
                Feature::Awaiting(time) => work.awaiting = time.0 as f64 * (0.5 + path.unit()),
                Feature::Long { share, time } if path.unit() < *share => work.awaiting = time.0 as f64,
                Feature::Lock(share) => work.has_lock = path.unit() < *share,
                Feature::Series => work.second = self.case.service.draw(service).0 as f64,
                _ => {}
            }
        }
        work
    }

    fn arrive(&mut self, waiting: Waiting) {
        let request = QueuedRequest {
            arrived: waiting.arrived,
            timeout: Nanos::MAX,
            class: 3,
            tenant: Tenant::DEFAULT,
            bytes: 0,
        };
        match self.dispatcher.arrive(self.now, &request, || waiting, &mut self.done) {
            Arrival::Sent(backend) => self.begin(backend, waiting),
            Arrival::Queued(_) => {}
            Arrival::Rejected(_) => self.slot().rejected += 1,
        }
        self.begin_dispatched();
    }

    /// Tries the backends again that are not up.
    fn check(&mut self) {
        for backend in 0..self.backends.len() {
            if !self.dispatcher.is_up(backend) {
                self.dispatcher.set_up(self.now, backend, true, &mut self.done);
            }
        }
    }

    /// Sends the requests to the backend that have waited for it.
    fn begin_dispatched(&mut self) {
        for Dispatch { token, result } in std::mem::take(&mut self.done) {
            match result {
                Ok(backend) => self.begin(backend, token),
                Err(_) => self.slot().rejected += 1,
            }
        }
    }

    fn begin(&mut self, backend: usize, request: Waiting) {
        let at = self.now.since(Time::ZERO);
        let fault = self.faults.iter().find(|fault| fault.backend == backend && fault.from <= at && at < fault.to);
        if fault.is_some_and(|fault| self.fault_rng.unit() < fault.share) {
            return self.failing.push_back((self.now + FAILURE_TIME, backend, self.now));
        }
        let job = self.backends[backend].begin(self.now.0 as f64, request.work) as usize;
        let dispatched = &mut self.dispatched[backend];
        if job >= dispatched.len() {
            dispatched.resize(job + 1, (Time::ZERO, Time::ZERO));
        }
        dispatched[job] = (request.arrived, self.now);
    }

    /// Ends the request that fails now.
    fn fail(&mut self) {
        if let Some((now, backend, dispatched)) = self.failing.pop_front() {
            self.slot().failed += 1;
            self.answer(backend, &Answer { now, dispatched, outcome: Outcome::Failed });
        }
    }

    fn finish(&mut self, backend: usize, job: u32) {
        let (arrived, dispatched) = self.dispatched[backend][job as usize];
        let (now, outcome) = (self.now, Outcome::Completed);
        self.answer(backend, &Answer { now, dispatched, outcome });
        self.slot().good += u64::from(now.since(arrived) <= self.case.objective);
        if self.is_measured(arrived) {
            let latency = now.since(arrived);
            self.result.answered += 1;
            self.result.good += u64::from(latency <= self.case.objective);
            if self.case.is_overloaded(arrived.since(Time::ZERO)) {
                self.latencies.push(latency.0);
            }
        }
    }

    /// Tells the queue that a request has ended.
    fn answer(&mut self, backend: usize, answer: &Answer) {
        self.dispatcher.judge(backend, answer);
        self.dispatcher.answer(backend, answer);
        self.dispatcher.charge(3, Tenant::DEFAULT, answer.now.since(answer.dispatched));
        self.dispatcher.release(answer.now, backend, &mut self.done);
        self.begin_dispatched();
    }

    /// The slot of now.
    fn slot(&mut self) -> &mut Slot {
        let index = (self.now.0 / SLOT.0) as usize;
        if index >= self.slots.len() {
            self.slots.resize(index + 1, Slot::default());
        }
        &mut self.slots[index]
    }
}
