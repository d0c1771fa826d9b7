//! The gate: a controller's halves for threads that come and go. Never here: where requests come from.

use crate::builder::{BuildError, Builder, Mode};
use crate::counts::GateCounts;
use crate::delay::DelayEstimator;
use crate::delay_weight::DelayWeight;
use crate::downstream::DownstreamGroups;
use crate::handler_time::HandlerTime;
use crate::load::{Load, Utilization};
use crate::outcome::{Outcome, RequestEnd};
use crate::probe::Probe;
use crate::queue::{WaitError, WaitQueue};
use crate::request::RequestInfo;
use crate::shard::Shard;
use leeward_controllers::edge::{cost::CostEstimate, deadline};
use leeward_core::budget::Budget;
use leeward_core::registry::Environment;
use leeward_core::server;
use leeward_core::shadow::{ShadowQueue, ShadowRequest};
use leeward_core::units::{Cost, Nanos, Priority, Tenant, Time};
use leeward_host::sync::{Mutex, lock};
use leeward_host::{ControlTicker, ControllerBounds, RequestTotals as Sums};
use leeward_observe::{Decision, DecisionId, DecisionReason, DecisionRing, LifecycleStage, Routes, Source, Tenants};
use leeward_runtime::clock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

mod admit;

/// Routes whose cost is learnt apart.
const ROUTES: usize = 256;

/// Requests that are called ahead of free slots, for each worker.
const MOST_AHEAD: usize = 8;

/// Characters of a route's name that are kept.
pub const NAME_MAX: usize = 128;

/// A request that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Rejection {
    /// Why.
    pub reason: DecisionReason,
    /// When a client may ask again: between two and six times the objective, by chance, so that clients do not come back
    /// together.
    pub retry_after: Duration,
    /// The number under which [`Gate::decision`] knows more.
    pub decision: DecisionId,
}

/// The part of a decision that is taken again in a waiting request's turn.
#[derive(Clone, Copy)]
pub(crate) struct DequeueCheck {
    /// From then on it is too late to begin.
    pub(crate) start_deadline: Time,
    /// Whether nobody seemed to wait when it came.
    pub(crate) was_idle: bool,
    pub(crate) timeout: Nanos,
    pub(crate) priority: Priority,
    pub(crate) tenant: Tenant,
}

/// Admission to a service. Clones are the same gate.
#[derive(Clone)]
pub struct Gate(pub(crate) Arc<Inner>);

/// A request in the queue that would be.
struct ShadowEntry {
    shard: usize,
    route: u8,
    class: u8,
    pending: server::PendingRequest,
}

pub(crate) struct Inner {
    pub(crate) slo: Nanos,
    pub(crate) mode: Mode,
    /// By the process's clock.
    began: Time,
    pub(crate) shards: Vec<Mutex<Shard>>,
    pub(crate) ticker: ControlTicker,
    probe: Probe,
    pub(crate) ring: DecisionRing,
    /// The controller's name and bounds, for those who ask why.
    pub(crate) controller: &'static str,
    pub(crate) bounds: ControllerBounds,
    /// The least important priority that was let in at the last tick, and the number of that tick.
    level: AtomicU64,
    ticks: AtomicU64,
    routes: Vec<CostEstimate>,
    /// Names of routes, for those who read metrics.
    pub(crate) names: Vec<OnceLock<Box<str>>>,
    /// Places of the routes that metrics tell apart.
    pub(crate) places: Routes,
    pub(crate) tenants: Tenants,
    /// Of all routes together.
    mean: CostEstimate,
    /// Time from admission to the answer, by route.
    handler_times: Vec<HandlerTime>,
    queue: Mutex<DelayEstimator>,
    /// Services that this one asks.
    pub(crate) downstream: DownstreamGroups,
    /// Requests that may be under way in a shard.
    shard_limit: u32,
    /// Where admitted requests wait for their turn.
    pub(crate) wait_queue: Option<Arc<WaitQueue>>,
    shadow_queue: Mutex<ShadowQueue<ShadowEntry>>,
    /// Time that requests have occupied workers, all together.
    cpu_ns: AtomicU64,
    /// Requests that have told their work.
    executed: AtomicU64,
    utilization: Mutex<Utilization>,
    malformed: AtomicU64,
}

impl Gate {
    /// A gate for a service whose answers are to be there within `slo` of the request's arrival at this machine.
    pub fn builder(slo: Duration) -> Builder {
        Builder::new(slo)
    }

    /// The objective.
    pub fn slo(&self) -> Duration {
        Duration::from_nanos(self.0.slo.0)
    }

    /// A request that was let in has waited for its turn, and was called or turned away: whether it is executed.
    pub(crate) fn check_dequeued(
        &self,
        (shard, route): (usize, u8),
        (waited, now): (Nanos, Time),
        turn: &DequeueCheck,
        called: Result<(), WaitError>,
    ) -> Result<(), Rejection> {
        let inner = &*self.0;
        let service = inner.routes[usize::from(route)].time().unwrap_or(Nanos::ZERO);
        let stretch = inner.delay_weight(route, service);
        // The queue's delay is told by those whose turn it is. Whoever was passed over until it was too late says how long
        // the others' queue was, and nothing of theirs.
        let mut queue = lock(&inner.queue);
        let delay = if called.is_ok() { queue.note(now, waited) } else { queue.delay(now) };
        drop(queue);
        let mut shard = lock(&inner.shards[shard]);
        let verdict = match called {
            Ok(()) if now < turn.start_deadline => shard.admit_dequeued(stretch.weighted(waited)),
            Err(WaitError::Full) => Err(DecisionReason::Concurrency),
            _ => Err(DecisionReason::Delay),
        };
        let Err(reason) = verdict else { return Ok(()) };
        let random = shard.rng.next_u64();
        drop(shard);
        let reason = inner.refine_reason(reason, turn.timeout, waited, service);
        let mut decision = Decision::admitted(now);
        (decision.reject_reason, decision.wait, decision.delay) = (Some(reason), waited, delay);
        (decision.time_left, decision.service_time, decision.route) =
            (turn.timeout, inner.response_time(route, service), route);
        (decision.priority, decision.tenant) = (turn.priority, turn.tenant);
        decision.stage = LifecycleStage::Dequeue;
        decision.bound = inner.bound(Some(reason), decision.stage, stretch);
        Err(inner.rejection(reason, inner.ring.write(&decision), random))
    }

    /// Requests that wait for their turn; 0 without a room.
    pub fn waiting(&self) -> usize {
        self.0.wait_queue.as_ref().map_or(0, |room| room.len())
    }

    pub(crate) fn end(
        &self,
        shard: usize,
        ticket: server::PendingRequest,
        (came, waited): (Time, Nanos),
        now: Time,
        end: &RequestEnd,
    ) {
        let inner = &*self.0;
        let sojourn = now.since(came);
        if end.cpu_time.is_some() {
            let queued = Nanos(u64::try_from(end.queue_time.as_nanos()).unwrap_or(u64::MAX));
            let until = end.answered_at.map_or(now, |at| at.min(now));
            // Beyond the objective longer says no more, and would be remembered for longer.
            let span = until.since(came).saturating_sub(queued).min(inner.slo);
            inner.handler_times[usize::from(end.route)].note(span);
        }
        let place = inner.route_index(end.route, end.outcome);
        let mut shard = lock(&inner.shards[shard]);
        if let Some(span) = end.cpu_time {
            shard.costs[place].record(Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)));
        }
        shard.count_end((end.class, place), end.outcome, sojourn + waited, inner.slo);
        shard.end(ticket, now, end.outcome, sojourn);
    }

    /// The end of a request that the queue that would be counts: its cost is what it has really taken.
    pub(crate) fn end_shadow(&self, shard: usize, route: u8, outcome: Outcome, worked: Option<Duration>) {
        let place = self.0.route_index(route, outcome);
        if let Some(span) = worked {
            let span = Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
            lock(&self.0.shards[shard]).costs[place].record(span);
        }
    }

    /// Whether a route has a name.
    pub fn is_named(&self, route: u8) -> bool {
        self.0.names.get(usize::from(route)).is_some_and(|name| name.get().is_some())
    }

    /// Names a route, for metrics: its path or method, never what a client may vary. The first name stays; of a long one the beginning.
    /// Routes of one number have one name.
    pub fn name_route(&self, route: u8, name: &str) {
        if let Some(cell) = self.0.names.get(usize::from(route)) {
            cell.get_or_init(|| name.chars().take(NAME_MAX).collect::<String>().into());
        }
    }

    /// Learns how long a request of this route has occupied a worker.
    pub(crate) fn record_cost(&self, route: u8, worked: Duration) {
        let span = Nanos(u64::try_from(worked.as_nanos()).unwrap_or(u64::MAX));
        self.0.routes[usize::from(route)].record(span);
        self.0.mean.record(span);
        self.0.cpu_ns.fetch_add(span.0, Ordering::Relaxed);
        self.0.executed.fetch_add(1, Ordering::Relaxed);
    }

    /// Load of the workers, for balancers. Without requests that tell their work ([`crate::Ticket::worked`]) it is the delay's alone.
    pub fn load(&self) -> Load {
        let inner = &*self.0;
        let delay = self.delay().as_nanos() as f64 / inner.target().0.max(1) as f64;
        let (worked, executed) = (inner.cpu_ns.load(Ordering::Relaxed), inner.executed.load(Ordering::Relaxed));
        let Utilization { share, rate, .. } =
            lock(&inner.utilization).update(self.now(), worked, executed, inner.shards.len());
        Load { utilization: share.max(delay), delay, rate }
    }

    /// The queueing delay as it was last known: the greatest age of the last requests, or the probe's; in a rehearsal, of the queue that
    /// would be.
    pub fn delay(&self) -> Duration {
        if self.0.mode != Mode::Enforce {
            return Duration::from_nanos(lock(&self.0.shadow_queue).delay(self.now()).0);
        }
        let now = self.now();
        Duration::from_nanos(lock(&self.0.queue).delay(now).max(self.0.probe.delay(now)).0)
    }

    /// Whether the caller should let a task wait in its worker's queue now, and tell by [`Gate::probe_enters`] and
    /// [`Gate::probe_leaves`]. Rarely true.
    pub fn wants_probe(&self) -> bool {
        self.0.probe.is_due(self.now())
    }

    /// The probe's task enters the queue.
    pub fn start_probe(&self) {
        self.0.probe.enter(self.now());
    }

    /// The probe's task has had its turn.
    pub fn finish_probe(&self) {
        self.0.probe.leave(self.now());
    }

    /// The probe's task is gone without its turn.
    pub fn cancel_probe(&self) {
        self.0.probe.forget();
    }

    /// A front end could not read a header, and took it for none.
    pub fn record_malformed(&self) {
        self.0.malformed.fetch_add(1, Ordering::Relaxed);
    }

    /// Fates of the requests so far.
    pub fn counts(&self) -> GateCounts {
        let mut sum = GateCounts { malformed: self.0.malformed.load(Ordering::Relaxed), ..GateCounts::default() };
        for shard in &self.0.shards {
            sum.add(&lock(shard).counts);
        }
        sum
    }

    /// The decision of this number, as long as it is kept.
    pub fn decision(&self, id: DecisionId) -> Option<Decision> {
        self.0.ring.read(id)
    }

    /// The newest decisions that are kept, newest first: all refusals, and one in 64 admissions.
    pub fn decisions(&self, count: usize) -> Vec<Decision> {
        self.0.ring.newest(count)
    }

    /// The decision of this number in a few sentences, as long as it is kept.
    pub fn explain(&self, id: DecisionId) -> Option<String> {
        let decision = self.decision(id)?;
        Some(self.context().explain(&decision, Some(&self.nearby_counts(&decision))))
    }

    /// The lowest level of any tenant: less important requests are refused while a delay stands. 128: none.
    pub fn level(&self) -> f64 {
        self.0.ticker.gauges().priority_threshold.unwrap_or(128.0)
    }

    /// Time since the gate was made.
    pub fn now(&self) -> Time {
        self.time_at(clock::process())
    }

    /// A reading of the process's clock ([`clock::process`]) as a time of this gate: one reading serves a front end and its gate.
    pub fn time_at(&self, reading: Time) -> Time {
        Time(reading.since(self.0.began).0)
    }
}

impl Builder {
    /// The gate.
    ///
    /// # Errors
    /// An objective below 1 us or above an hour, or parameters that the controller does not take.
    pub fn build(self) -> Result<Gate, BuildError> {
        if !(Duration::from_micros(1)..=Duration::from_secs(3_600)).contains(&self.slo) {
            return Err(BuildError::Objective);
        }
        let slo = Nanos(self.slo.as_nanos() as u64);
        // Clients measure from another place; the network's part is theirs to take off the objective.
        let environment = Environment::new(self.workers as u32, Nanos::ZERO, slo);
        let params = self.algorithm.params(&self.params)?;
        let halves = self.algorithm.server(&params, &environment)?;
        let shards = halves.cores.into_iter().enumerate();
        let shards: Vec<_> = shards.map(|(index, half)| Mutex::new(Shard::new(index, self.seed, half))).collect();
        let places = self.queue_capacity.filter(|_| self.mode == Mode::Enforce);
        Ok(Gate(Arc::new(Inner {
            slo,
            mode: self.mode,
            began: clock::process(),
            shard_limit: self.max_in_flight.div_ceil(shards.len() as u32),
            tenants: Tenants::new(shards.len()),
            shards,
            ticker: ControlTicker::new(halves.control),
            // A quarter of the target, at least a millisecond: more probes see no more.
            probe: Probe::new(slo.scale(0.1).max(Nanos::from_millis(1))),
            ring: DecisionRing::new(self.decisions),
            controller: self.algorithm.name,
            bounds: ControllerBounds::of(&self.algorithm, &params, &environment),
            level: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
            routes: (0..ROUTES).map(|_| CostEstimate::default()).collect(),
            names: (0..ROUTES).map(|_| OnceLock::new()).collect(),
            places: Routes::default(),
            mean: CostEstimate::default(),
            handler_times: (0..ROUTES).map(|_| HandlerTime::default()).collect(),
            // What stood longer ago than the target is over.
            queue: Mutex::new(DelayEstimator::new(slo.scale(0.4), places.is_some())),
            downstream: DownstreamGroups::new(ROUTES),
            wait_queue: places.map(|places| Arc::new(WaitQueue::new(self.workers, places))),
            shadow_queue: Mutex::new(ShadowQueue::default()),
            cpu_ns: AtomicU64::new(0),
            executed: AtomicU64::new(0),
            utilization: Mutex::new(Utilization::default()),
            malformed: AtomicU64::new(0),
        })))
    }
}

impl Inner {
    /// Time, wait and delay of a request in the queue that would be. Whatever would have ended before it ends.
    fn shadow_delays(&self, now: Time, arriving: &RequestInfo) -> (Time, Nanos, Nanos) {
        let came = Time(now.0.saturating_sub(arriving.age.unwrap_or(Nanos::ZERO).0));
        let (now, delay, ended) = lock(&self.shadow_queue).poll(now, came);
        for ShadowRequest { end: at, sojourn, token: ShadowEntry { shard, route, class, pending: ticket }, .. } in ended
        {
            let place = self.places.find(u32::from(route));
            let mut shard = lock(&self.shards[shard]);
            shard.count_end((class, place), Outcome::Completed, sojourn, self.slo);
            shard.end(ticket, at, Outcome::Completed, sojourn);
        }
        (now, delay, delay)
    }

    /// Place of a request's route among those that metrics tell apart. A route takes one with its first result: whatever never succeeds may
    /// be no route.
    fn route_index(&self, route: u8, outcome: Outcome) -> usize {
        match outcome {
            Outcome::Completed => self.places.find_or_insert(u32::from(route)),
            _ => self.places.find(u32::from(route)),
        }
    }

    /// How long this request has waited, and the delay that the controller is told of.
    fn wait_and_delay(&self, now: Time, arriving: &RequestInfo) -> (Nanos, Nanos) {
        match arriving.age {
            // It will still wait: what it has waited so far is not all.
            Some(waited) if self.wait_queue.is_some() => (waited, lock(&self.queue).delay(now).max(waited)),
            // An exact age: a probe of another worker would only blur it.
            Some(waited) => (waited, lock(&self.queue).note(now, waited)),
            // A probe does not know which request is late: nothing of it is charged to this one.
            None if self.wait_queue.is_some() => (Nanos::ZERO, lock(&self.queue).delay(now).max(self.probe.delay(now))),
            None => (Nanos::ZERO, self.probe.delay(now)),
        }
    }

    /// How much longer than it is a wait in front of this route counts, whose requests work for `service`.
    fn delay_weight(&self, route: u8, service: Nanos) -> DelayWeight {
        // The queue of a rehearsal has no executor behind it.
        let besides = match self.mode {
            Mode::Enforce => self.handler_times[usize::from(route)].upper_bound().saturating_sub(service),
            Mode::Shadow | Mode::Share(_) => Nanos::ZERO,
        };
        DelayWeight::new(self.slo, besides)
    }

    /// How long requests of this route, whose work is `service`, take from their admission until their answer begins, as far as that is known.
    fn response_time(&self, route: u8, service: Nanos) -> Nanos {
        service.max(self.handler_times[usize::from(route)].mean())
    }

    /// About how long requests of this route occupy a worker; nothing before anything is known.
    fn expected_cost(&self, route: u8) -> Nanos {
        self.routes[usize::from(route)].time().or(self.mean.time()).unwrap_or(Nanos::ZERO)
    }

    /// In microseconds; before anything is known every request costs the same.
    fn cost(&self, route: u8) -> Cost {
        self.routes[usize::from(route)].cost(self.mean.cost(Cost::ONE))
    }

    /// Time that an admitted request may spend in queues inside. A tenth of the objective is kept, as for queues in front.
    /// Other than there, time that it awaits inside counts: a pool's connection is kept for longer than a CPU.
    pub(crate) fn queue_budget(&self, left: Nanos, route: u8, waited: Nanos) -> Budget {
        deadline::budget(left.min(self.slo.scale(0.9)), waited, self.handler_times[usize::from(route)].mean())
    }

    /// Requests that are called ahead of free slots: as many as a sixteenth of the target is enough for, so that a flood of what is only
    /// read and refused leaves time for them between two looks at the sockets, and never many of those that take long.
    pub(crate) fn call_ahead(&self) -> usize {
        let fit = self.mean.time().map_or(0, |mean| self.target().0 / 16 / mean.0.max(1));
        (fit as usize).min(MOST_AHEAD) * self.shards.len()
    }

    /// The delay that the controller aims at.
    fn target(&self) -> Nanos {
        self.bounds.target.unwrap_or(self.slo.scale(0.4))
    }

    fn rejection(&self, reason: DecisionReason, decision: DecisionId, random: u64) -> Rejection {
        let span = self.slo.0 * 2 + random % (self.slo.0 * 4);
        Rejection { reason, retry_after: Duration::from_nanos(span), decision }
    }

    fn tick(&self, now: Time, delay: Nanos) {
        let load = || {
            let mut sum = GateCounts::default();
            for shard in &self.shards {
                sum.add(&lock(shard).counts);
            }
            Sums {
                arrivals: sum.arrived,
                completions: sum.completed,
                rejections: sum.rejections() + sum.rejected_inside + sum.abandoned,
                lock_rejections: 0,
            }
        };
        let ticks = self.ticker.tick(now, load, || (delay, Nanos::ZERO));
        if ticks != self.ticks.load(Ordering::Relaxed) {
            self.ticks.store(ticks, Ordering::Relaxed);
            let level = self.ticker.gauges().priority_threshold.unwrap_or(0.0);
            self.level.store(level.max(0.0) as u64, Ordering::Relaxed);
        }
    }

    /// The reason under the name that fits: `edge` refuses by age, and a deadline may have been nearer than the objective.
    fn refine_reason(&self, reason: DecisionReason, left: Nanos, waited: Nanos, service: Nanos) -> DecisionReason {
        let reason =
            if reason == DecisionReason::Delay && self.controller == "edge" { DecisionReason::Late } else { reason };
        let own = reason == DecisionReason::Late && left < self.slo && waited + service >= left;
        if own { DecisionReason::Deadline } else { reason }
    }

    /// The bound that a refusal met, as far as it is known.
    fn bound(&self, refused: Option<DecisionReason>, moment: LifecycleStage, stretch: DelayWeight) -> u64 {
        let limit = |bound: Option<Nanos>| bound.map_or(0, |bound| stretch.unweighted(bound).0);
        match refused {
            Some(DecisionReason::Level) => self.level.load(Ordering::Relaxed),
            Some(DecisionReason::Late) => limit(self.bounds.stale),
            Some(DecisionReason::Delay) if moment == LifecycleStage::Dequeue => limit(self.bounds.stale),
            Some(DecisionReason::Delay) => limit(self.bounds.arrival_limit),
            Some(DecisionReason::Concurrency) => u64::from(self.shard_limit).saturating_mul(self.shards.len() as u64),
            _ => 0,
        }
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("slo", &self.0.slo).field("counts", &self.counts()).finish_non_exhaustive()
    }
}
