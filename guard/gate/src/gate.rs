//! The gate: a controller's halves, shared by threads that start and end at any time. Does not
//! contain the source of requests.

use crate::builder::{BuildError, Builder, CLIENT_ONLY, MAX_IN_FLIGHT, Mode};
use crate::caller_queue::CallerQueue;
use crate::counts::GateCounts;
use crate::delay::MeanAge;
use crate::delay_weight::DelayWeight;
use crate::downstream::DownstreamGroups;
use crate::estimates::{Estimates, ROUTES};
use crate::load::{Load, Utilization};
use crate::max_age::MaxAge;
use crate::outcome::{Outcome, RequestEnd};
use crate::probe::{ProbeId, Probes};
use crate::queue::{WaitError, WaitQueue};
use crate::request::RequestInfo;
use crate::shard::{Presence, Shard};
use leeward_controllers::edge::deadline;
use leeward_core::budget::Budget;
use leeward_core::registry::Environment;
use leeward_core::server;
use leeward_core::shadow::{ShadowQueue, ShadowRequest};
use leeward_core::units::{Nanos, Priority, Tenant, Time};
use leeward_host::sync::{Mutex, lock};
use leeward_host::{ControlTicker, ControllerBounds, RequestTotals as Sums};
use leeward_observe::{Decision, DecisionId, DecisionReason, DecisionRing, LifecycleStage, Routes, Source, Tenants};
use leeward_runtime::clock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

mod admit;

/// Numbers that are tried for the name of a route.
const PROBED: usize = 32;

/// Requests per worker that may be called ahead of free slots.
const MOST_AHEAD: usize = 8;

/// Objectives after which an open request is no company of others. It is late in any case.
const COMPANY: u64 = 8;

/// Once short requests were late after a wait for a slow one, another counts as alone only after
/// this many times its own duration, or [`COMPANY`] objectives if that is less. Slow requests then
/// take a small part of the time.
const SPARED: u64 = 16;

/// Characters of a route's name that are kept.
pub const NAME_MAX: usize = 128;

/// A rejected request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Rejection {
    /// Reason for the rejection.
    pub reason: DecisionReason,
    /// Delay after which the client may retry: two to six times the objective, at random.
    /// Randomness prevents that clients return together.
    pub retry_after: Duration,
    /// Number under which [`Gate::decision`] has the details.
    pub decision: DecisionId,
}

impl Rejection {
    /// Makes a rejection by a service with the objective `slo`; `random` draws the delay before a
    /// retry.
    pub fn new(reason: DecisionReason, decision: DecisionId, slo: Nanos, random: u64) -> Self {
        let span = slo.0.saturating_mul(2).saturating_add(random % slo.0.saturating_mul(4).max(1));
        Rejection { reason, retry_after: Duration::from_nanos(span), decision }
    }
}

/// Data of the decision that is repeated when a queued request is dequeued.
#[derive(Clone, Copy)]
pub(crate) struct DequeueCheck {
    /// Time from which it is too late to begin.
    pub(crate) start_deadline: Time,
    /// Whether the delay was near zero when the request arrived.
    pub(crate) was_idle: bool,
    pub(crate) timeout: Nanos,
    pub(crate) priority: Priority,
    pub(crate) tenant: Tenant,
}

/// Admission to a service. Clones are the same gate.
#[derive(Clone)]
pub struct Gate(pub(crate) Arc<Inner>);

/// A request in the shadow queue.
struct ShadowEntry {
    shard: usize,
    pending: server::PendingRequest,
}

pub(crate) struct Inner {
    pub(crate) slo: Nanos,
    pub(crate) mode: Mode,
    /// Start of the gate, by the process's clock.
    began: Time,
    pub(crate) shards: Vec<Mutex<Shard>>,
    pub(crate) ticker: ControlTicker,
    probes: Probes,
    pub(crate) ring: DecisionRing,
    /// Name and bounds of the controller, for explanations of decisions.
    pub(crate) controller: &'static str,
    pub(crate) bounds: ControllerBounds,
    /// Whether the gate itself rejects requests that can't be in time. `none` rejects nothing, and
    /// `edge` has the rule itself: there, late requests count as demand.
    rejects_late: bool,
    /// Least important priority admitted at the last tick, and the number of that tick.
    level: AtomicU64,
    ticks: AtomicU64,
    pub(crate) estimates: Estimates,
    /// Names of routes, for metrics.
    pub(crate) names: Vec<OnceLock<Box<str>>>,
    /// Slots of the routes that metrics distinguish.
    pub(crate) places: Routes,
    pub(crate) tenants: Tenants,
    /// Until when slow requests work that were admitted, as far as expected.
    slow_until: AtomicU64,
    /// When a short request last arrived that was late after a wait for a slow one; 0: never.
    delayed_at: AtomicU64,
    /// Queue in front of the gate, by the ages of arrivals.
    front: Mutex<MaxAge>,
    /// The same with the gate's wait queue, by the ages of requests that leave that.
    queued: Mutex<MeanAge>,
    /// Queue of the caller's own behind the gate, if it has one.
    pub(crate) caller_queue: OnceLock<Mutex<CallerQueue>>,
    /// Groups of downstream services.
    pub(crate) downstream: DownstreamGroups,
    /// Largest number of requests in progress.
    pub(crate) max_in_flight: u32,
    /// Their number, where a limit was set. The default one is for each shard.
    pub(crate) in_flight: Option<AtomicU32>,
    /// Queue in which admitted requests wait for a slot.
    pub(crate) wait_queue: Option<Arc<WaitQueue>>,
    shadow_queue: Mutex<ShadowQueue<ShadowEntry>>,
    utilization: Mutex<Utilization>,
    malformed: AtomicU64,
}

impl Gate {
    /// Starts the settings of a gate for a service with the objective `slo`.
    ///
    /// The objective counts from a request's arrival at this machine to its answer.
    pub fn builder(slo: Duration) -> Builder {
        Builder::new(slo)
    }

    /// The objective.
    pub fn slo(&self) -> Duration {
        Duration::from_nanos(self.0.slo.0)
    }

    /// Decides whether a queued request executes after its wait.
    pub(crate) fn check_dequeued(
        &self,
        (shard, route): (usize, u8),
        (waited, now): (Nanos, Time),
        check: &DequeueCheck,
        wait_result: Result<(), WaitError>,
    ) -> Result<(), Rejection> {
        let inner = &*self.0;
        let service = inner.estimates.service(route);
        let weight = inner.delay_weight(route, service);
        // Only dequeued requests report the queue's delay. A request that was passed over until it
        // was late measures the queue of the more important requests, not of its own class.
        let mut queue = lock(&inner.queued);
        let delay = if wait_result.is_ok() { queue.note(now, waited) } else { queue.delay(now) };
        drop(queue);
        let mut shard = lock(&inner.shards[shard]);
        let verdict = match wait_result {
            Ok(()) if now < check.start_deadline => shard.admit_dequeued(weight.weighted(waited)),
            Err(WaitError::Full) => Err(DecisionReason::Concurrency),
            _ => Err(DecisionReason::Delay),
        };
        let Err(reason) = verdict else { return Ok(()) };
        let random = shard.rng.next_u64();
        drop(shard);
        let reason = inner.refine_reason(reason, check.timeout, waited, service);
        let mut decision = Decision::admitted(now);
        (decision.reject_reason, decision.wait, decision.delay) = (Some(reason), waited, delay);
        (decision.time_left, decision.service_time, decision.route) =
            (check.timeout, inner.response_time(route, service), route);
        (decision.priority, decision.tenant) = (check.priority, check.tenant);
        decision.stage = LifecycleStage::Dequeue;
        decision.bound = match (wait_result, &inner.wait_queue) {
            (Err(WaitError::Full), Some(queue)) => queue.capacity() as u64,
            _ => inner.bound(Some(reason), decision.stage, weight),
        };
        Err(inner.rejection(reason, inner.ring.write(&decision), random))
    }

    /// Requests in the wait queue; 0 without a queue.
    pub fn waiting(&self) -> usize {
        self.0.wait_queue.as_ref().map_or(0, |queue| queue.len())
    }

    pub(crate) fn end(
        &self,
        shard: usize,
        pending: server::PendingRequest,
        (arrival, waited): (Time, Nanos),
        now: Time,
        end: &RequestEnd,
        presence: Presence,
    ) {
        let inner = &*self.0;
        let sojourn = now.since(arrival);
        if end.cpu_time.is_some() && end.outcome.is_whole() {
            let answered_at = end.answered_at.map_or(now, |at| at.min(now));
            let span = answered_at.since(arrival).saturating_sub(end.queue_time);
            inner.estimates.record_handler_time(end.route, span);
        }
        let route = inner.route_index(end.route, end.outcome);
        inner.leave();
        let mut shard = lock(&inner.shards[shard]);
        if let Some(span) = end.cpu_time {
            shard.record_cost(route, span);
        }
        if end.outcome == Outcome::Rejected {
            shard.by_class.count(end.class, Some(end.reason));
        }
        shard.remove_presence(presence);
        shard.count_end((end.class, route), end.outcome, sojourn + waited, inner.slo);
        shard.last_end = now;
        shard.end(pending, now, end.outcome, sojourn);
    }

    /// Records the end of a request that shadow mode let in, as it was in truth: `latency` after
    /// its arrival. For the controller, it ends in the shadow queue.
    pub(crate) fn end_shadow(&self, shard: usize, end: &RequestEnd, latency: Nanos) {
        let inner = &*self.0;
        let route = inner.route_index(end.route, end.outcome);
        let mut shard = lock(&inner.shards[shard]);
        if let Some(span) = end.cpu_time {
            shard.record_cost(route, span);
        }
        if end.outcome == Outcome::Rejected {
            shard.by_class.count(end.class, Some(end.reason));
        }
        shard.count_end((end.class, route), end.outcome, latency, inner.slo);
    }

    /// Whether the route has a name.
    pub fn is_named(&self, route: u8) -> bool {
        self.0.names.get(usize::from(route)).is_some_and(|name| name.get().is_some())
    }

    /// Number of the route with this name: that which has the name, or a free one. `hash`: of the
    /// name. Where there is none left, routes share a number, but never that of requests without a
    /// route, 0.
    pub fn route_number(&self, name: &str, hash: u64) -> u8 {
        let name = cut(name);
        let first = (hash % (ROUTES as u64 - 1)) as usize;
        let numbers = (0..PROBED).map(|step| 1 + (first + step) % (ROUTES - 1));
        let is_it = |number: &usize| self.0.names[*number].get().is_none_or(|held| **held == *name);
        numbers.clone().find(is_it).unwrap_or(1 + first) as u8
    }

    /// Names a route for metrics: its path or method, never a text that a client may vary.
    ///
    /// The first name stays; a long name is cut to [`NAME_MAX`] characters. Routes with one number
    /// share a name.
    pub fn name_route(&self, route: u8, name: &str) {
        if let Some(cell) = self.0.names.get(usize::from(route)) {
            cell.get_or_init(|| cut(name).into());
        }
    }

    /// Load of the workers, for load balancers.
    ///
    /// The load comes from the delay alone if no request reports its CPU time
    /// ([`crate::Permit::record_cpu_time`]).
    pub fn load(&self) -> Load {
        let inner = &*self.0;
        let delay = self.delay().as_nanos() as f64 / inner.target().0.max(1) as f64;
        let work = || {
            let of_shards = inner.shards.iter().map(|shard| lock(shard).work);
            of_shards.fold((0, 0), |(ns, count), (span, more)| (span.0.wrapping_add(ns), count + more))
        };
        let Utilization { share, rate, .. } = lock(&inner.utilization).update(self.now(), inner.shards.len(), work);
        Load { utilization: share.max(delay), delay, rate }
    }

    /// The last known queueing delay: the greatest age of recent requests, or the probe's delay.
    ///
    /// In shadow mode, the delay of the shadow queue.
    pub fn delay(&self) -> Duration {
        self.delay_at(self.now())
    }

    /// The delay as [`Gate::delay`] has it, at a time of the caller's ([`Gate::time_at`]).
    pub fn delay_at(&self, now: Time) -> Duration {
        let delay = match self.0.mode {
            Mode::Enforce => {
                let behind = self.0.delay_behind(now);
                let waits = lock(&self.0.front).delay(now).max(lock(&self.0.queued).delay(now));
                waits.max(self.0.probes.delay(now)).max(behind)
            }
            _ => lock(&self.0.shadow_queue).delay(now),
        };
        Duration::from_nanos(delay.0)
    }

    /// The probe of the calling thread.
    pub fn probe_of_thread(&self) -> ProbeId {
        ProbeId::of_thread(number_of_thread())
    }

    /// Whether the caller should now queue a probe task at this thread's executor. Rarely true.
    ///
    /// The caller reports the task by [`Gate::start_probe`] and [`Gate::finish_probe`].
    pub fn wants_probe(&self, probe: ProbeId) -> bool {
        self.0.probes.get(probe).is_due(self.now())
    }

    /// Whether a probe task has not run yet.
    pub fn is_probing(&self, probe: ProbeId) -> bool {
        self.0.probes.get(probe).is_waiting()
    }

    /// Records that the probe task enters the queue.
    pub fn start_probe(&self, probe: ProbeId) {
        self.0.probes.get(probe).enter(self.now());
    }

    /// Records that the probe task has run.
    pub fn finish_probe(&self, probe: ProbeId) {
        self.0.probes.get(probe).leave(self.now());
    }

    /// Records that the probe task ended without running, or that its executor is no longer this
    /// thread's.
    pub fn cancel_probe(&self, probe: ProbeId) {
        self.0.probes.get(probe).forget();
    }

    /// Counts a header that a front end could not parse and ignored.
    pub fn record_malformed(&self) {
        self.0.malformed.fetch_add(1, Ordering::Relaxed);
    }

    /// Outcomes of the requests so far.
    pub fn counts(&self) -> GateCounts {
        let mut sum = GateCounts { malformed: self.0.malformed.load(Ordering::Relaxed), ..GateCounts::default() };
        for shard in &self.0.shards {
            sum.add(&lock(shard).counts);
        }
        sum
    }

    /// The decision with this number, while the ring keeps it.
    pub fn decision(&self, id: DecisionId) -> Option<Decision> {
        self.0.ring.read(id)
    }

    /// The newest kept decisions, newest first: every rejection, and one of 64 admissions.
    pub fn decisions(&self, count: usize) -> Vec<Decision> {
        self.0.ring.newest(count)
    }

    /// Explains the decision with this number in a few sentences, while the ring keeps it.
    pub fn explain(&self, id: DecisionId) -> Option<String> {
        let decision = self.decision(id)?;
        Some(self.context().explain(&decision, Some(&self.nearby_counts(&decision))))
    }

    /// The lowest priority threshold of any tenant; 128: no threshold.
    ///
    /// While the delay persists, less important requests are rejected.
    pub fn level(&self) -> f64 {
        self.0.ticker.gauges().priority_threshold.unwrap_or(128.0)
    }

    /// Time since the gate was made.
    pub fn now(&self) -> Time {
        self.time_at(clock::process())
    }

    /// Converts a reading of the process's clock ([`clock::process`]) to a time of this gate.
    ///
    /// A front end and its gate can share one reading.
    pub fn time_at(&self, reading: Time) -> Time {
        Time(reading.since(self.0.began).0)
    }
}

impl Builder {
    /// Builds the gate.
    ///
    /// # Errors
    ///
    /// The objective is below 1 us or above 1 h, the controller rejects the parameters, or has no
    /// shadow mode.
    pub fn build(self) -> Result<Gate, BuildError> {
        if !(Duration::from_micros(1)..=Duration::from_secs(3_600)).contains(&self.slo) {
            return Err(BuildError::Objective);
        }
        if self.mode != Mode::Enforce && CLIENT_ONLY.contains(&self.algorithm.name) {
            return Err(BuildError::ShadowMode(self.algorithm.name));
        }
        let slo = Nanos::from(self.slo);
        // The objective is measured at this machine; a client must subtract the network's part
        // itself.
        let environment = Environment::new(self.workers as u32, Nanos::ZERO, slo);
        let params = self.algorithm.params(&self.params)?;
        let halves = self.algorithm.server(&params, &environment)?;
        let shards = halves.cores.into_iter().enumerate();
        let shards: Vec<_> = shards.map(|(index, half)| Mutex::new(Shard::new(index, self.seed, half))).collect();
        let queue_capacity = self.queue_capacity.filter(|_| self.mode == Mode::Enforce);
        Ok(Gate(Arc::new(Inner {
            slo,
            mode: self.mode,
            began: clock::process(),
            max_in_flight: self.max_in_flight.unwrap_or(MAX_IN_FLIGHT),
            in_flight: self.max_in_flight.map(|_| AtomicU32::default()),
            tenants: Tenants::new(shards.len()),
            shards,
            ticker: ControlTicker::new(halves.control),
            // A quarter of the target, at least 1 ms: more frequent probes show nothing more.
            probes: Probes::new(slo.scale(0.1).max(Nanos::from_millis(1))),
            ring: DecisionRing::new(self.decisions),
            controller: self.algorithm.name,
            bounds: ControllerBounds::of(&self.algorithm, &params, &environment),
            rejects_late: !matches!(self.algorithm.name, "none" | "edge"),
            level: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
            estimates: Estimates::new(slo),
            names: (0..ROUTES).map(|_| OnceLock::new()).collect(),
            places: Routes::default(),
            slow_until: AtomicU64::new(0),
            delayed_at: AtomicU64::new(0),
            // Ages are forgotten after one target delay.
            front: Mutex::new(MaxAge::new(slo.scale(0.4))),
            queued: Mutex::new(MeanAge::new(slo.scale(0.4))),
            caller_queue: OnceLock::new(),
            downstream: DownstreamGroups::new(ROUTES),
            wait_queue: queue_capacity.map(|queue_capacity| Arc::new(WaitQueue::new(self.workers, queue_capacity))),
            shadow_queue: Mutex::new(ShadowQueue::default()),
            utilization: Mutex::new(Utilization::default()),
            malformed: AtomicU64::new(0),
        })))
    }
}

impl Inner {
    /// Time and delays of an arriving request in the shadow queue. Ends the shadow requests that
    /// finish before it.
    fn shadow_delays(&self, now: Time, arriving: &RequestInfo) -> (Time, Nanos, Nanos) {
        let kernel_time = Time(now.0.saturating_sub(arriving.age.unwrap_or(Nanos::ZERO).0));
        let (now, delay, ended) = lock(&self.shadow_queue).poll(now, kernel_time);
        for ShadowRequest { end: at, sojourn, token: ShadowEntry { shard, pending: request }, .. } in ended {
            self.leave();
            let mut shard = lock(&self.shards[shard]);
            shard.counts.modelled += 1;
            shard.end(request, at, Outcome::Completed, sojourn);
        }
        (now, delay, delay)
    }

    /// Wait in the caller's own queue.
    fn delay_behind(&self, now: Time) -> Nanos {
        let Some(queue) = self.caller_queue.get() else { return Nanos::ZERO };
        lock(queue).delay(now, self.estimates.mean_service())
    }

    /// Counts a request in; false: there are as many as may be. `pending`: those of its shard.
    fn enter(&self, pending: u32) -> bool {
        let Some(in_flight) = &self.in_flight else { return pending < self.max_in_flight };
        let more = |count: u32| (count < self.max_in_flight).then_some(count + 1);
        in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Counts a request out that [`Inner::enter`] has counted in.
    fn leave(&self) {
        if let Some(in_flight) = &self.in_flight {
            in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Slot of a request's route in the metrics.
    ///
    /// A route takes a slot with its first result: a route that never succeeds may not exist.
    fn route_index(&self, route: u8, outcome: Outcome) -> usize {
        match outcome {
            Outcome::Completed => self.places.find_or_insert(u32::from(route)),
            _ => self.places.find(u32::from(route)),
        }
    }

    /// The wait of this request so far, and the delay that the controller gets.
    fn wait_and_delay(&self, now: Time, arriving: &RequestInfo) -> (Nanos, Nanos) {
        match arriving.age {
            // The request will queue as well, so its age so far is only a part of its delay.
            Some(waited) if self.queues(arriving) => (waited, lock(&self.queued).delay(now).max(waited)),
            // The age is exact; a probe of another worker would add noise.
            Some(waited) => (waited, lock(&self.front).note(now, waited)),
            // A probe doesn't know which request is late, so this request is charged no wait.
            None => {
                let delay = self.probes.get(ProbeId::of_thread(number_of_thread())).delay(now);
                let queue = if self.queues(arriving) { lock(&self.queued).delay(now) } else { Nanos::ZERO };
                (Nanos::ZERO, delay.max(queue))
            }
        }
    }

    /// Whether a request waits in the gate's queue.
    fn queues(&self, arriving: &RequestInfo) -> bool {
        self.wait_queue.is_some() && !arriving.skips_queue
    }

    /// Weight of the delay in front of this route; its requests work for `service`.
    fn delay_weight(&self, route: u8, service: Nanos) -> DelayWeight {
        // The shadow queue models no executor, so time inside adds nothing.
        let idle = match self.mode {
            Mode::Enforce => self.estimates.most_handler_time(route).saturating_sub(service),
            Mode::Shadow | Mode::Share(_) => Nanos::ZERO,
        };
        DelayWeight::new(self.slo, idle)
    }

    /// Mean time from admission until the answer begins, if known; at least `service`.
    fn response_time(&self, route: u8, service: Nanos) -> Nanos {
        service.max(self.estimates.handler_time(route))
    }

    /// Whether a request that arrives now has no company: none of those inside would be earlier
    /// without it. Locks all shards, one after the other.
    fn is_alone(&self, now: Time) -> bool {
        let company = |shard: &Mutex<Shard>| match self.mode {
            Mode::Enforce => lock(shard).company(now, self.slo * COMPANY),
            // Shadow requests end with the shadow queue.
            Mode::Shadow | Mode::Share(_) => lock(shard).pending(),
        };
        self.shards.iter().all(|shard| company(shard) == 0)
    }

    /// Records an admitted request, which begins after a wait of `behind`.
    fn note_admitted(&self, now: Time, behind: Nanos, route: u8, service: Nanos) {
        if let Some(time) = self.estimates.slow_time(route, service) {
            self.slow_until.fetch_max((now + behind + time).0, Ordering::Relaxed);
        }
    }

    /// Records that a request has waited for `wait`. Of interest are those that this makes late,
    /// that work for a small part of the objective, and that have waited while a slow one worked.
    fn note_wait(&self, now: Time, wait: Nanos, service: Nanos) {
        let is_late = service > Nanos::ZERO && service < self.slo / 2 && wait + service >= self.slo;
        if is_late && now.0.saturating_sub(wait.0) < self.slow_until.load(Ordering::Relaxed) {
            self.delayed_at.store(now.0, Ordering::Relaxed);
        }
    }

    /// Whether a slow request of this route would make others late, although none is inside. Short
    /// requests that lately were late show it. `service`: as far as it is known.
    fn delays_others(&self, now: Time, route: u8, service: Nanos) -> bool {
        let time = self.estimates.slow_time(route, service).unwrap_or(service).min(self.slo * COMPANY);
        let delayed_at = Time(self.delayed_at.load(Ordering::Relaxed));
        delayed_at > Time::ZERO && now.since(delayed_at) < time * SPARED
    }

    /// Time that an admitted request may spend in queues inside.
    ///
    /// A tenth of the objective is reserved, as for queues in front. Unlike there, time that the
    /// request awaits inside counts: it holds a pool's connection for longer than a CPU.
    pub(crate) fn queue_budget(&self, time_left: Nanos, route: u8, waited: Nanos) -> Budget {
        deadline::budget(time_left.min(self.slo.scale(0.9)), waited, self.estimates.handler_time(route))
    }

    /// Requests that may be called ahead of free slots: as many as fit in a sixteenth of the
    /// target.
    ///
    /// A flood of requests that are only read and rejected then leaves time for them between two
    /// polls of the sockets. Few requests are called if each takes long.
    pub(crate) fn call_ahead(&self) -> usize {
        let fit = self.estimates.mean_cost().map_or(0, |mean| self.target().0 / 16 / mean.0.max(1));
        (fit as usize).min(MOST_AHEAD) * self.shards.len()
    }

    /// Delay target of the controller; 0.4 of the objective if the controller has none.
    fn target(&self) -> Nanos {
        self.bounds.target.unwrap_or(self.slo.scale(0.4))
    }

    fn rejection(&self, reason: DecisionReason, decision: DecisionId, random: u64) -> Rejection {
        Rejection::new(reason, decision, self.slo, random)
    }

    fn tick(&self, now: Time, delay: Nanos) {
        let load = || {
            let mut sum = GateCounts::default();
            for shard in &self.shards {
                sum.add(&lock(shard).counts);
            }
            // In shadow mode, the controller works on what the shadow queue would complete.
            let (completions, unfinished) = match self.mode {
                Mode::Enforce => (sum.completed, sum.rejected_inside + sum.abandoned),
                Mode::Shadow | Mode::Share(_) => (sum.modelled, 0),
            };
            Sums { arrivals: sum.arrived, completions, rejections: sum.rejections() + unfinished, lock_rejections: 0 }
        };
        let ticks = self.ticker.tick(now, load, || (delay, Nanos::ZERO));
        if ticks != self.ticks.load(Ordering::Relaxed) {
            self.ticks.store(ticks, Ordering::Relaxed);
            let level = self.ticker.gauges().priority_threshold.unwrap_or(0.0);
            self.level.store(level.max(0.0) as u64, Ordering::Relaxed);
        }
    }

    /// Refines a reason: `edge` rejects by age, and the deadline may end before the objective.
    fn refine_reason(&self, reason: DecisionReason, time_left: Nanos, waited: Nanos, service: Nanos) -> DecisionReason {
        let reason =
            if reason == DecisionReason::Delay && self.controller == "edge" { DecisionReason::Late } else { reason };
        let is_deadline = reason == DecisionReason::Late && time_left < self.slo && waited + service >= time_left;
        if is_deadline { DecisionReason::Deadline } else { reason }
    }

    /// The bound that the request exceeded; 0 if unknown.
    fn bound(&self, reason: Option<DecisionReason>, stage: LifecycleStage, weight: DelayWeight) -> u64 {
        let limit = |bound: Option<Nanos>| bound.map_or(0, |bound| weight.unweighted(bound).0);
        match reason {
            Some(DecisionReason::Level) => self.level.load(Ordering::Relaxed),
            // The gate's own limit is the objective.
            Some(DecisionReason::Late) if self.rejects_late => 0,
            Some(DecisionReason::Late) => limit(self.bounds.stale),
            Some(DecisionReason::Delay) if stage == LifecycleStage::Dequeue => limit(self.bounds.stale),
            Some(DecisionReason::Delay) => limit(self.bounds.arrival_limit),
            Some(DecisionReason::Concurrency) => self.max_in_flight.into(),
            _ => 0,
        }
    }
}

/// The part of a name that is kept.
fn cut(name: &str) -> &str {
    if name.len() <= NAME_MAX {
        return name;
    }
    name.char_indices().nth(NAME_MAX).map_or(name, |(end, _)| &name[..end])
}

/// Number of the calling thread among those that have called a gate.
fn number_of_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = THREADS.fetch_add(1, Ordering::Relaxed));
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("slo", &self.0.slo).field("counts", &self.counts()).finish_non_exhaustive()
    }
}
