//! The queue and the places at backends, shared by all worker threads: which request is sent when,
//! and why another one is rejected. Does not contain HTTP or connections.
//!
//! - [`Place`]: a request at a backend. [`Waiting`]: a request in the queue.
//! - `policy`: settings of the queue. `reload`: new ones while it is in use.
//! - `source`: the same for metrics, dashboards and explanations.
//!
//! One lock guards the dispatcher. A request that is called gets its place through a channel: if
//! its client has gone meanwhile, the channel returns the place, and it passes to the next one.

mod counts;
mod hang;
mod place;
mod policy;
mod reload;
mod source;

use crate::backend::address::BackendAddress;
use crate::backend::report::BackendReport;
use crate::connections::Connections;
use crate::settings::Settings;
use crate::transport::messages::tell;
use counts::Counts;
pub(crate) use hang::HangWatch;
use leeward_concurrency::TICK;
use leeward_concurrency::dispatch::shadow::ShadowQueue;
use leeward_concurrency::dispatch::{Answer, Arrival, Dispatch, Dispatcher, QueueKey, QueuedRequest, Refusal};
use leeward_core::units::{Nanos, Priority, Tenant, Time};
use leeward_gate::{Decision, DecisionReason, Mode, Rejection, RequestInfo};
use leeward_host::FastRng;
use leeward_host::sync::{Mutex, lock};
use leeward_observe::{DecisionRing, LifecycleStage, RING_CAPACITY, SAMPLING_INTERVAL, Tenants};
use leeward_runtime::clock;
pub(crate) use place::{ClientFailure, Place, Slot, Stream};
use policy::{Policy, dispatcher};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;

/// Why a backend is ejected.
const FAILS: &str = "most of its requests fail, and those of others do not";

/// Interval between two calls of [`Admission::tick`].
pub(crate) const TICK_INTERVAL: Duration = Duration::from_nanos(TICK.0);

/// The queue in front of the backends. Clones are the same queue.
#[derive(Clone)]
pub struct Admission(Arc<Inner>);

type Token = oneshot::Sender<Result<Slot, Refusal>>;

pub(crate) struct Inner {
    began: Time,
    threads: usize,
    /// Of clients, for metrics.
    connections: Arc<Connections>,
    state: Mutex<State>,
    ring: DecisionRing,
    tenants: Tenants,
    /// Answers that are not complete, to free the place of a client that does not read.
    streams: Mutex<Vec<Weak<Stream>>>,
}

struct State {
    policy: Policy,
    dispatcher: Dispatcher<Token>,
    /// Backends by their numbers in the dispatcher.
    backends: Vec<BackendSlot>,
    is_shared: bool,
    /// The queue as it would be, in use unless rejections are enforced for all.
    shadow: ShadowQueue<Facts>,
    counts: Counts,
    random: FastRng,
}

/// A backend by its number.
#[derive(Clone, Debug)]
pub(crate) struct BackendSlot {
    pub(crate) address: BackendAddress,
    /// Whether it gets no more requests.
    pub(crate) is_removed: bool,
    /// Whether the last reload added or removed it.
    pub(crate) is_new: bool,
    pub(crate) report: BackendReport,
}

impl BackendSlot {
    pub(crate) fn new(address: &BackendAddress) -> Self {
        BackendSlot { address: address.clone(), is_removed: false, is_new: true, report: BackendReport::default() }
    }
}

impl State {
    /// Takes note of whether a backend answers; returns whether the operator is to be told.
    fn judge(&mut self, backend: usize, answer: &Answer) -> bool {
        let has_changed = self.dispatcher.judge(backend, answer);
        if let (true, Some(slot)) = (has_changed, self.backends.get_mut(backend)) {
            slot.report.record(FAILS.into());
        }
        has_changed
    }
}

/// What becomes of a request on arrival.
pub(crate) enum Admitted {
    /// It has a place.
    Now(Place),
    /// It waits.
    Later(Waiting),
}

impl Admission {
    /// Creates the queue, and numbers the rules.
    pub(crate) fn new(settings: &mut Settings, connections: &Arc<Connections>) -> Self {
        let mut policy = Policy::new(settings);
        policy.number(&mut settings.rules);
        let state = State {
            policy,
            dispatcher: dispatcher(settings),
            backends: settings.backends.iter().map(BackendSlot::new).collect(),
            is_shared: settings.is_shared,
            shadow: ShadowQueue::new(dispatcher(settings)),
            counts: Counts::default(),
            random: FastRng::new(0),
        };
        Admission(Arc::new(Inner {
            began: clock::process(),
            threads: settings.threads,
            connections: Arc::clone(connections),
            state: Mutex::new(state),
            ring: DecisionRing::new(RING_CAPACITY),
            tenants: Tenants::new(settings.threads),
            streams: Mutex::new(Vec::new()),
        }))
    }

    /// Whether a backend's number is that of a removed one.
    pub(crate) fn is_removed(&self, backend: usize) -> bool {
        lock(&self.0.state).dispatcher.is_removed(backend)
    }

    /// Time since the proxy was made.
    pub(crate) fn now(&self) -> Time {
        Time(clock::process().since(self.0.began).0)
    }

    /// Decides about a request that has arrived and holds `bytes` while it waits.
    ///
    /// # Errors
    /// The request is rejected; the caller answers at once.
    pub(crate) fn admit(&self, now: Time, info: &RequestInfo, bytes: usize) -> Result<Admitted, Rejection> {
        let inner = &*self.0;
        let timeout = info.timeout.unwrap_or(Nanos::MAX);
        let class = if info.attempt > 0 { info.class.lower() } else { info.class };
        let facts = Facts { class: class.number(), tenant: info.tenant, route: info.route, arrived: now, timeout };
        let mut state = lock(&inner.state);
        state.counts.totals.arrived += 1;
        let request = QueuedRequest { arrived: now, timeout, class: facts.class, tenant: facts.tenant, bytes };
        if state.policy.mode != Mode::Enforce {
            return self.admit_shadowed(&mut state, info, &request, facts).map(Admitted::Now);
        }
        let (mut done, mut receiver) = (Vec::new(), None);
        let token = || {
            let (sender, queued) = oneshot::channel();
            receiver = Some(queued);
            sender
        };
        let arrival = state.dispatcher.arrive(now, &request, token, &mut done);
        let result = match arrival {
            Arrival::Sent(backend) => {
                let slot = Slot::new(self.clone(), backend, now, None);
                Ok(Admitted::Now(self.place(&mut state, slot, &facts)))
            }
            Arrival::Queued(key) => match receiver {
                Some(receiver) => {
                    let (admission, has_ended) = (self.clone(), false);
                    Ok(Admitted::Later(Waiting { admission, key, facts, receiver, has_ended }))
                }
                None => Err(Refusal::Full),
            },
            Arrival::Rejected(refusal) => Err(refusal),
        };
        let result = result.map_err(|refusal| self.reject(&mut state, now, refusal, &facts));
        drop(state);
        self.deliver(now, done);
        result
    }

    /// Updates limits, rejects requests that are too late, and frees the places of clients that do
    /// not read and of gRPC calls that are streams.
    pub(crate) fn tick(&self) {
        let now = self.now();
        let mut done = Vec::new();
        let mut state = lock(&self.0.state);
        state.dispatcher.tick(now, None, &mut done);
        if state.policy.mode != Mode::Enforce {
            let mut rejected = Vec::new();
            state.shadow.tick(now, &mut rejected);
            self.note_shadowed(&mut state, now, rejected);
        }
        let slo = state.policy.slo;
        drop(state);
        self.deliver(now, done);
        // A client that keeps the proxy waiting beyond the objective is no work for the backend.
        let longest = slo.max(Nanos::from_millis(100));
        let mut stalled = Vec::new();
        lock(&self.0.streams).retain(|stream| {
            let Some(stream) = stream.upgrade() else { return false };
            if stream.is_stalled(now, longest) || stream.is_open_call(now, slo) {
                stalled.push(stream);
                return false;
            }
            true
        });
        for stream in stalled {
            self.free_place(&stream);
        }
    }

    /// Marks a backend as reachable, or not for a reason; tells the operator if that is new.
    pub(crate) fn set_up(&self, backend: usize, state: Result<(), String>) {
        let now = self.now();
        let mut done = Vec::new();
        let mut guard = lock(&self.0.state);
        guard.dispatcher.set_up(now, backend, state.is_ok(), &mut done);
        if let (Err(reason), Some(slot)) = (state, guard.backends.get_mut(backend)) {
            slot.report.record(reason);
        }
        drop(guard);
        self.deliver(now, done);
        self.report_backends();
    }

    /// Tells the operator which backends went down or came back; called now and then, for a message
    /// that follows another one at once has to wait.
    pub(crate) fn report_backends(&self) {
        let now = self.now();
        let mut guard = lock(&self.0.state);
        let State { backends, dispatcher, .. } = &mut *guard;
        let mut messages = Vec::new();
        for (index, slot) in backends.iter_mut().enumerate().filter(|(_, slot)| !slot.is_removed) {
            let message = slot.report.take(now, dispatcher.is_up(index));
            messages.extend(message.map(|message| format!("backend {} {message}", slot.address)));
        }
        drop(guard);
        messages.iter().for_each(|message| tell(message));
    }

    /// Whether a backend is marked as reachable.
    pub(crate) fn is_up(&self, backend: usize) -> bool {
        lock(&self.0.state).dispatcher.is_up(backend)
    }

    /// A reachable backend for a request that needs no place.
    pub(crate) fn any_backend(&self, except: Option<usize>) -> usize {
        lock(&self.0.state).dispatcher.least_loaded(except)
    }

    /// Counts a header of a trusted peer that could not be parsed.
    pub(crate) fn record_malformed(&self, headers: u32) {
        if headers > 0 {
            lock(&self.0.state).counts.totals.malformed += u64::from(headers);
        }
    }

    /// Counts a request that ended before the queue: malformed, or of a kind that is not served.
    pub(crate) fn record_bad_request(&self) {
        lock(&self.0.state).counts.bad_requests += 1;
    }

    /// Whether a request may be sent again on which a backend may have worked: at most one in ten
    /// is.
    pub(crate) fn try_retry(&self) -> bool {
        let mut state = lock(&self.0.state);
        let counts = &mut state.counts;
        let may = counts.charged_retries * 10 < counts.totals.admitted + 100;
        counts.charged_retries += u64::from(may);
        counts.retries += u64::from(may);
        may
    }

    /// Counts a request that is sent again, and was no load for the backend.
    pub(crate) fn record_retry(&self) {
        lock(&self.0.state).counts.retries += 1;
    }

    /// In shadow mode every request is sent at once, unless its rejection is enforced.
    fn admit_shadowed(
        &self,
        state: &mut State,
        info: &RequestInfo,
        request: &QueuedRequest,
        facts: Facts,
    ) -> Result<Place, Rejection> {
        let (now, mut rejected) = (request.arrived, Vec::new());
        let (number, refusal) = state.shadow.arrive(now, request, facts, &mut rejected);
        if let Some(refusal) = refusal {
            let random = state.random.next_u64();
            if state.policy.mode.enforces(info.caller(random)) {
                self.note_shadowed(state, now, rejected);
                return Err(self.reject(state, now, refusal, &facts));
            }
            rejected.push((facts, refusal));
        }
        self.note_shadowed(state, now, rejected);
        let backend = state.dispatcher.least_loaded(None);
        state.dispatcher.begin(now, backend);
        Ok(self.place(state, Slot::new(self.clone(), backend, now, Some(number)), &facts))
    }

    /// Counts requests that would have been rejected, with the rejections, as a gate does. They are
    /// sent all the same, and end.
    fn note_shadowed(&self, state: &mut State, now: Time, rejected: Vec<(Facts, Refusal)>) {
        for (facts, refusal) in rejected {
            let reason = reason_of(refusal);
            state.counts.totals.shadowed += 1;
            state.counts.reject(facts.class, reason);
            let mut decision = self.decision(state, now, reason, &facts);
            decision.is_shadow = true;
            self.0.ring.write(&decision);
        }
    }

    /// Counts a request that takes a place.
    fn place(&self, state: &mut State, slot: Slot, facts: &Facts) -> Place {
        let (backend, now) = (slot.backend(), slot.dispatched());
        state.counts.admit(facts.class, now.since(facts.arrived));
        if state.counts.totals.admitted.is_multiple_of(SAMPLING_INTERVAL) {
            let mut decision = Decision::admitted(now);
            (decision.wait, decision.time_left) = (now.since(facts.arrived), facts.timeout);
            decision.delay = decision.wait;
            decision.service_time = state.dispatcher.mean_sojourn(backend);
            decision.bound = u64::from(state.dispatcher.limit(backend));
            (decision.priority, decision.tenant, decision.route) = (facts.priority(), facts.tenant, facts.route);
            self.0.ring.write(&decision);
        }
        if facts.tenant != Tenant::DEFAULT {
            self.0.tenants.charge(0, facts.tenant, state.dispatcher.mean_sojourn(backend), true);
        }
        Place::new(slot, *facts)
    }

    /// Counts a rejection and makes its record.
    fn reject(&self, state: &mut State, now: Time, refusal: Refusal, facts: &Facts) -> Rejection {
        let reason = reason_of(refusal);
        state.counts.reject(facts.class, reason);
        let random = state.random.next_u64();
        let decision = self.0.ring.write(&self.decision(state, now, reason, facts));
        if facts.tenant != Tenant::DEFAULT {
            self.0.tenants.charge(0, facts.tenant, state.dispatcher.mean_sojourn(0), false);
        }
        Rejection::new(reason, decision, state.policy.slo, random)
    }

    fn decision(&self, state: &State, now: Time, reason: DecisionReason, facts: &Facts) -> Decision {
        let mut decision = Decision::rejected(now, reason);
        decision.wait = now.since(facts.arrived);
        if decision.wait > Nanos::ZERO {
            decision.stage = LifecycleStage::Dequeue;
        }
        let expected = match state.policy.mode {
            Mode::Enforce => Expected::of(&state.dispatcher, facts, state.policy.slo),
            Mode::Shadow | Mode::Share(_) => Expected::of(state.shadow.dispatcher(), facts, state.policy.slo),
        };
        (decision.delay, decision.time_left, decision.service_time) = (expected.wait, facts.timeout, expected.margin);
        decision.bound = match reason {
            DecisionReason::Concurrency => expected.queued as u64,
            DecisionReason::Delay => expected.wait_limit.0,
            _ => 0,
        };
        (decision.priority, decision.tenant, decision.route) = (facts.priority(), facts.tenant, facts.route);
        decision
    }

    /// Hands places and rejections to the requests that waited for them.
    fn deliver(&self, now: Time, done: Vec<Dispatch<Token>>) {
        for Dispatch { token, result } in done {
            // A slot that comes back, because its request has gone, frees itself.
            let _ = token.send(result.map(|backend| Slot::new(self.clone(), backend, now, None)));
        }
    }

    /// Frees the place of a request; false: it holds none.
    fn free_place(&self, stream: &Stream) -> bool {
        let Some(backend) = stream.take_backend() else { return false };
        let now = self.now();
        let (mut done, mut rejected) = (Vec::new(), Vec::new());
        let mut state = lock(&self.0.state);
        state.dispatcher.release(now, backend, &mut done);
        if let Some(number) = stream.shadow_number() {
            state.shadow.end(now, number, &mut rejected);
            self.note_shadowed(&mut state, now, rejected);
        }
        drop(state);
        self.deliver(now, done);
        true
    }
}

/// What a queue expects for a request.
struct Expected {
    wait: Nanos,
    wait_limit: Nanos,
    margin: Nanos,
    queued: usize,
}

impl Expected {
    fn of<T>(dispatcher: &Dispatcher<T>, facts: &Facts, objective: Nanos) -> Self {
        Expected {
            wait: dispatcher.expected_wait(facts.class, facts.tenant),
            wait_limit: dispatcher.wait_limit(facts.timeout.min(objective)),
            margin: dispatcher.margin(0),
            queued: dispatcher.queued(),
        }
    }
}

/// Facts about a request that its records need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) class: u8,
    pub(crate) tenant: Tenant,
    pub(crate) route: u8,
    pub(crate) arrived: Time,
    pub(crate) timeout: Nanos,
}

impl Facts {
    fn priority(&self) -> Priority {
        Priority::new(self.class * 16 + 1)
    }
}

fn reason_of(refusal: Refusal) -> DecisionReason {
    match refusal {
        Refusal::Late => DecisionReason::Late,
        Refusal::Deadline => DecisionReason::Deadline,
        Refusal::Wait => DecisionReason::Delay,
        Refusal::Full => DecisionReason::Concurrency,
    }
}

/// A request in the queue. Dropping it removes the request.
pub(crate) struct Waiting {
    admission: Admission,
    key: QueueKey,
    facts: Facts,
    receiver: oneshot::Receiver<Result<Slot, Refusal>>,
    has_ended: bool,
}

impl Future for Waiting {
    /// The place, or the rejection.
    type Output = Result<Place, Rejection>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(received) = Pin::new(&mut self.receiver).poll(context) else { return Poll::Pending };
        self.has_ended = true;
        let (admission, facts) = (self.admission.clone(), self.facts);
        let now = admission.now();
        let mut state = lock(&admission.0.state);
        Poll::Ready(match received {
            Ok(Ok(slot)) => Ok(admission.place(&mut state, slot, &facts)),
            Ok(Err(refusal)) => Err(admission.reject(&mut state, now, refusal, &facts)),
            // The channel closes only if the dispatcher is gone.
            Err(_) => Err(admission.reject(&mut state, now, Refusal::Full, &facts)),
        })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.has_ended {
            let mut state = lock(&self.admission.0.state);
            let token = state.dispatcher.leave(&self.key);
            state.counts.reject(self.facts.class, DecisionReason::Cancelled);
            drop(state);
            drop(token);
        }
    }
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission").field("backends", &lock(&self.0.state).backends).finish_non_exhaustive()
    }
}
