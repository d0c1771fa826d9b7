//! Roles of the threads of a tier's pool: polling clients through the event loop, executing
//! requests, polling leaves through shards.
//!
//! Does not contain the assignment of roles to threads (the thread pool), or the rules of a gather
//! (`gather`).

use super::calls::CallList;
use super::gather::{Gather, NextAction};
use super::governor::{Governor, TierView};
use super::leaves::{Links, Settings};
use super::meter::CpuMeter;
use super::pool::Pool;
use super::server::FanoutCounters;
use super::service::{Calls, GatherCondition, MidTier, Replies, Step};
use super::shard::Shard;
use crate::server::HandlerError;
use crate::server::cancelled::CancelledCalls;
use crate::server::executor::ExternalExecutor;
use crate::server::protocol::{Call, CallOutcome, CompletedCall, Rpc};
use crate::wire::RejectCode;
use leeward_core::units::{Nanos, Time};
use leeward_engine::wait::{ThreadWaker, wait};
use leeward_engine::{AdmittedRequest, ExternalEventLoop};
use leeward_runtime::thread_pool::{Assignment, PoolControl, RoleHandler};
use leeward_runtime::{Clock, budget};
use leeward_threading::{Fanout, Setup, Tasks};
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Shortest sleep of a thread at the clients' sockets, which wakes in whole milliseconds like a
/// core's poll.
///
/// Otherwise the controller's period would keep an idle server awake.
const TICK: Duration = Duration::from_millis(1);
/// Idle time after which a sync thread polls its connections before it uses them.
const STALE: Nanos = Nanos::from_secs(1);
/// Interval at which a sync tier without requests looks for its leaves.
const WATCH: Nanos = Nanos::from_millis(500);

/// A tier, as the threads of its pool run it.
pub(super) struct TierRuntime<M: MidTier> {
    pub(super) event_loop: ExternalEventLoop<Rpc<ExternalExecutor>>,
    pub(super) cancels: Arc<CancelledCalls>,
    pub(super) control: Arc<PoolControl>,
    pub(super) service: M,
    pub(super) settings: Arc<Settings>,
    /// Objective of the tier itself.
    pub(super) objective: Nanos,
    pub(super) clock: Clock,
    pub(super) alarms: Arc<[ThreadWaker]>,
    /// Connections of async setups.
    pub(super) shards: Vec<SharedShard<M::State>>,
    pub(super) pool: Pool<M::State>,
    pub(super) counts: WorkCounters,
    pub(super) fanout_counters: Arc<FanoutCounters>,
    pub(super) seed: u64,
    pub(super) observer: Option<Mutex<Observer>>,
    pub(super) governor: Option<Governor>,
    /// Number of sync threads that wait for leaves.
    pub(super) gathering: AtomicUsize,
    /// Time of the last look for leaves without a request, in nanoseconds.
    pub(super) watched_at: AtomicU64,
    /// Requests before that look.
    pub(super) watched_requests: AtomicU64,
    /// CPU time that the pool's threads have reported, in nanoseconds.
    pub(super) cpu_ns: AtomicU64,
}

/// Receives the argument of each request, in the order in which threads take requests.
pub(super) type Observer = Box<dyn FnMut(&[u8]) + Send>;

/// A shard that several threads use.
pub(super) struct SharedShard<S> {
    shard: Mutex<Shard<S>>,
    descriptor: RawFd,
    /// Whether a poll is due that the descriptor may not announce.
    has_work: AtomicBool,
}

/// Counters of requests and calls beyond those of the server.
#[derive(Debug, Default)]
pub(super) struct WorkCounters {
    pub(super) gathers: AtomicU64,
    pub(super) calls: AtomicU64,
    /// Shards that could not be created or polled.
    pub(super) system_errors: AtomicU64,
}

/// State of one thread.
pub(super) struct ThreadState<S> {
    thread: usize,
    /// The thread's own connections, for sync setups.
    pub(super) shard: Option<Shard<S>>,
    pub(super) last_used: Time,
    calls: CallList,
    ready: Vec<Box<Gather<S>>>,
    next_shard: usize,
    meter: CpuMeter,
}

impl<S> SharedShard<S> {
    pub(super) fn new(shard: Shard<S>) -> Self {
        let descriptor = shard.descriptor();
        SharedShard { shard: Mutex::new(shard), descriptor, has_work: AtomicBool::new(true) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Shard<S>> {
        self.shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a poll if the shard has work that the descriptor may not announce.
    pub(super) fn request_poll(&self, has_work: bool) {
        if has_work {
            self.has_work.store(true, Ordering::Relaxed);
        }
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Shard<S>>> {
        match self.shard.try_lock() {
            Ok(shard) => Some(shard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<M: MidTier> TierRuntime<M> {
    /// Runs the first step of the service, which fills `calls`.
    fn begin(&self, calls: &mut CallList, gather: &mut Gather<M::State>) -> Result<Step, HandlerError> {
        calls.clear();
        let Gather { inbound: inbound_call, state, reply, .. } = gather;
        let Some(inbound_call) = inbound_call else { return Ok(Step::Done) };
        let mut calls = Calls { list: calls, leaf_count: self.settings.parts_of_data() as u16 };
        let step = || {
            budget::with(inbound_call.call.queue_budget, || {
                self.service.begin(&inbound_call.request(), state, &mut calls, reply)
            })
            .0
        };
        catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|_| Err(HandlerError::panicked()))
    }

    fn resume(&self, calls: &mut CallList, gather: &mut Gather<M::State>) -> Result<Step, HandlerError> {
        calls.clear();
        gather.end_calls();
        let Gather { inbound: inbound_call, state, reply, replies, .. } = gather;
        let Some(inbound_call) = inbound_call else { return Ok(Step::Done) };
        let mut calls = Calls { list: calls, leaf_count: self.settings.parts_of_data() as u16 };
        let replies_view = Replies(replies);
        let step = || {
            budget::with(inbound_call.call.queue_budget, || {
                self.service.resume(state, &replies_view, &mut calls, reply)
            })
            .0
        };
        catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|_| Err(HandlerError::panicked()))
    }

    /// State of the tier for a policy.
    fn view(&self) -> TierView {
        let handle = self.event_loop.handle();
        let counts = handle.counts();
        TierView {
            current: self.control.setup(),
            oldest: handle.delay(),
            waiting: handle.shared().queues.waiting(),
            received: counts.received,
            rejected: counts.rejected,
            blocked: self.control.asleep() + self.gathering.load(Ordering::Relaxed),
        }
    }

    /// Lets the policy decide, if there is one, and switches to the setup that it wants.
    fn apply_policy(&self, decide: impl FnOnce(&Governor, Time) -> Option<Setup>) {
        if let Some(governor) = &self.governor
            && let Some(setup) = decide(governor, self.clock.now())
        {
            self.control.switch_setup(&setup);
        }
    }

    /// Notifies the policy that a thread has blocked or continues.
    pub(super) fn notify_blocking(&self) {
        if self.governor.as_ref().is_some_and(Governor::wants_blocking) {
            self.apply_policy(|governor, now| governor.decide(now, || self.view()));
        }
    }

    /// Sends the response of a request that has ended.
    fn finish(&self, mut gather: Box<Gather<M::State>>, outcome: Result<(), HandlerError>) {
        if let (Some(governor), Some(inbound_call)) = (&self.governor, &gather.inbound) {
            governor.record_latency(self.clock.now().since(inbound_call.arrival));
        }
        if gather.is_partial {
            self.fanout_counters.partial.fetch_add(1, Ordering::Relaxed);
        }
        if let Some((client, completed)) = gather.answer(outcome)
            && self.event_loop.answer(client, completed)
        {
            self.control.notify(Tasks::RECEIVE);
        }
        self.pool.keep(gather);
    }

    /// Runs a request to its end on one thread, which blocks while leaves work (µTune §3, Sync).
    fn run_sync(&self, state: &mut ThreadState<M::State>, mut gather: Box<Gather<M::State>>) {
        if !self.await_credits(state, &mut gather) {
            return self.reject_waiting(gather);
        }
        let mut step = self.begin(&mut state.calls, &mut gather);
        if let (Ok(Step::Done) | Err(_), Some(shard)) = (&step, &mut state.shard) {
            shard.release(&mut gather);
        }
        loop {
            let enough = match step {
                Ok(Step::Gather(enough)) => enough,
                Ok(Step::Done) => return self.finish(gather, Ok(())),
                Err(failed) => return self.finish(gather, Err(failed)),
            };
            self.count(&state.calls);
            let Some(shard) = &mut state.shard else {
                return self
                    .finish(gather, Err(HandlerError::Message("this server has no connections to its leaves".into())));
            };
            let mut result = shard.start(gather, &state.calls, enough);
            self.gathering.fetch_add(1, Ordering::Relaxed);
            self.notify_blocking();
            while shard.ready().is_empty() && result.is_ok() {
                result = shard.poll(None).map(|_| ());
            }
            self.gathering.fetch_sub(1, Ordering::Relaxed);
            self.notify_blocking();
            state.last_used = self.clock.now();
            if result.is_err() {
                // The poll itself fails: every call ends with its connection, and the next request
                // finds none.
                self.counts.system_errors.fetch_add(1, Ordering::Relaxed);
                shard.leave();
            }
            let next = shard.ready().pop();
            if result.is_err() {
                state.shard = None;
            }
            let Some(next) = next else { return };
            gather = next;
            step = self.resume(&mut state.calls, &mut gather);
        }
    }

    /// Begins a request that response threads continue (µTune §3, Async).
    fn run_async(&self, state: &mut ThreadState<M::State>, assignment: &Assignment, gather: Box<Gather<M::State>>) {
        let shards = usize::from(assignment.setup.response);
        if let Some((gather, shard)) = self.reserve_or_park(state, shards, gather) {
            self.begin_on(state, shards, shard, gather);
        }
        self.resume_ready(state, shards);
    }

    /// Begins a request; `shard` holds its reserved credits, if any.
    fn begin_on(
        &self,
        state: &mut ThreadState<M::State>,
        shards: usize,
        shard: Option<usize>,
        mut gather: Box<Gather<M::State>>,
    ) {
        let step = self.begin(&mut state.calls, &mut gather);
        if let (Ok(Step::Done) | Err(_), Some(shared)) = (&step, shard.and_then(|shard| self.shards.get(shard))) {
            shared.lock().release(&mut gather);
        }
        match step {
            Ok(Step::Gather(enough)) => self.start(state, shards, shard, gather, enough),
            Ok(Step::Done) => self.finish(gather, Ok(())),
            Err(failed) => self.finish(gather, Err(failed)),
        }
    }

    /// Index of the next of `shards` shards, in turn.
    pub(super) fn next_shard(&self, state: &mut ThreadState<M::State>, shards: usize) -> usize {
        state.next_shard = state.next_shard.wrapping_add(1);
        state.next_shard % shards.clamp(1, self.shards.len())
    }

    /// Makes a request's calls on this shard, or on the next of `shards`.
    fn start(
        &self,
        state: &mut ThreadState<M::State>,
        shards: usize,
        shard: Option<usize>,
        gather: Box<Gather<M::State>>,
        enough: GatherCondition,
    ) {
        self.count(&state.calls);
        self.control.begin_calls();
        let shared = &self.shards[shard.unwrap_or_else(|| self.next_shard(state, shards))];
        let mut shard = shared.lock();
        // The next poll arms the timer again.
        let _ = shard.start(gather, &state.calls, enough);
        state.ready.append(shard.ready());
        if shard.has_work() {
            shared.has_work.store(true, Ordering::Relaxed);
            drop(shard);
            self.control.notify(Tasks::AWAIT_LEAVES);
        }
    }

    /// Continues ready requests.
    fn resume_ready(&self, state: &mut ThreadState<M::State>, shards: usize) {
        while let Some(mut gather) = state.ready.pop() {
            match std::mem::replace(&mut gather.next, NextAction::Resume) {
                NextAction::Begin(shard) => self.begin_on(state, shards, Some(shard), gather),
                NextAction::Reject => self.reject_waiting(gather),
                NextAction::Resume => match self.resume(&mut state.calls, &mut gather) {
                    Ok(Step::Gather(enough)) => self.start(state, shards, None, gather, enough),
                    Ok(Step::Done) => self.finish(gather, Ok(())),
                    Err(failed) => self.finish(gather, Err(failed)),
                },
            }
            self.control.end_calls();
        }
    }

    fn take(&self) -> Option<AdmittedRequest<Rpc<ExternalExecutor>>> {
        let Some(observer) = &self.observer else { return self.take_uncancelled() };
        // One thread at a time, so that the observer sees the order of taking.
        let mut observe = observer.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = self.take_uncancelled();
        if let Some(taken) = &taken {
            observe(&taken.call.payload);
        }
        taken
    }

    /// Takes the oldest request that its client has not cancelled.
    fn take_uncancelled(&self) -> Option<AdmittedRequest<Rpc<ExternalExecutor>>> {
        loop {
            let taken = self.event_loop.take()?;
            if !self.cancels.take(&taken.call.key) {
                return Some(taken);
            }
            let AdmittedRequest { connection: client, call: Call { call_ref: reply_ref, payload, .. }, .. } = taken;
            let completed = CompletedCall {
                call_ref: reply_ref,
                outcome: CallOutcome::Rejected(RejectCode::Cancelled),
                spare: payload,
            };
            if self.event_loop.answer(client, completed) {
                self.control.notify(Tasks::RECEIVE);
            }
        }
    }

    /// Reports the narrowest leaf to the controller if its tick is due, so that this tick uses it.
    fn report_downstream(&self) {
        if self.clock.now() >= self.event_loop.next_timeout()
            && let Some(narrowest) = self.fanout_counters.credits.take_narrowest()
        {
            let counts = self.event_loop.handle().counts();
            let ended = counts.completed + counts.rejected + counts.abandoned;
            // Credits that idle clients hold limit nothing: the controller compares with the
            // requests in the server.
            self.event_loop.handle().downstream(&narrowest.with_in_flight(counts.received.saturating_sub(ended)));
        }
    }

    /// Looks for the leaves if no request has done so lately.
    ///
    /// A sync thread polls its connections with a request only. A tier that gets none, because it
    /// is not ready, must see a leaf that comes back.
    fn watch_leaves(&self) {
        let now = self.clock.now();
        let watched_at = self.watched_at.load(Ordering::Relaxed);
        if now < Time(watched_at) + WATCH {
            return;
        }
        let Some(shared) = self.shards.first() else { return };
        let Some(mut shard) = shared.try_lock() else { return };
        self.watched_at.store(now.0, Ordering::Relaxed);
        let requests = self.fanout_counters.credits.requests();
        // Requests of an async setup that has just ended have threads of their own.
        if self.watched_requests.swap(requests, Ordering::Relaxed) == requests && shard.is_unused() {
            let _ = shard.poll(Some(Duration::ZERO));
        }
    }

    /// Rejects a request whose budget the queue has used up: calls to its leaves would be useless.
    fn reject_if_spent(&self, gather: &mut Box<Gather<M::State>>) -> bool {
        if !gather.budget().is_spent() {
            return false;
        }
        if let Some((client, completed)) = gather.reject(RejectCode::Delay)
            && self.event_loop.answer(client, completed)
        {
            self.control.notify(Tasks::RECEIVE);
        }
        true
    }

    fn count(&self, calls: &CallList) {
        self.counts.gathers.fetch_add(1, Ordering::Relaxed);
        self.counts.calls.fetch_add(calls.len() as u64, Ordering::Relaxed);
    }

    /// Shards that the thread of this assignment polls: those of its index, and of indices that the
    /// setup does not have.
    fn shards_of(&self, assignment: &Assignment) -> impl Iterator<Item = &SharedShard<M::State>> {
        let (from, step) = match self.settings.links {
            Links::Shared => (0, 1),
            Links::Sharded => (usize::from(assignment.index), usize::from(assignment.count.max(1))),
        };
        self.shards.iter().skip(from).step_by(step)
    }

    /// Opens a thread's connections as soon as its assignment needs them, not with the first
    /// request.
    fn prepare(&self, state: &mut ThreadState<M::State>, assignment: &Assignment) {
        if assignment.setup.fanout != Fanout::Sync || state.shard.is_some() {
            return;
        }
        match Shard::new(&self.settings, &self.clock, self.seed ^ state.thread as u64, &self.fanout_counters) {
            Ok(shard) => state.shard = Some(shard),
            Err(_) => _ = self.counts.system_errors.fetch_add(1, Ordering::Relaxed),
        }
    }
}

impl<M: MidTier> RoleHandler for TierRuntime<M> {
    type ThreadState = ThreadState<M::State>;

    fn thread_state(&self, thread: usize) -> Self::ThreadState {
        let (calls, ready) = (CallList::default(), Vec::new());
        ThreadState {
            thread,
            shard: None,
            last_used: Time::ZERO,
            calls,
            ready,
            next_shard: thread,
            meter: CpuMeter::default(),
        }
    }

    fn run(&self, state: &mut Self::ThreadState, assignment: &Assignment) -> bool {
        self.prepare(state, assignment);
        let Some(AdmittedRequest { connection: client, arrival: arrived, wait: waited, call }) = self.take() else {
            return false;
        };
        if self.event_loop.has_queued() {
            self.control.notify_parked(Tasks::EXECUTE);
        }
        let mut gather = self.pool.take();
        gather.take(client, arrived, waited, call);
        if self.reject_if_spent(&mut gather) {
            self.pool.keep(gather);
            return true;
        }
        self.fanout_counters.credits.request();
        match assignment.setup.fanout {
            Fanout::Async => self.run_async(state, assignment, gather),
            Fanout::Sync => {
                if let Some(shard) = &mut state.shard
                    && self.clock.now().since(state.last_used) > STALE
                {
                    // A leaf may have gone since the last use.
                    let _ = shard.poll(Some(Duration::ZERO));
                }
                self.run_sync(state, gather);
            }
        }
        true
    }

    fn receive(&self, state: &mut Self::ThreadState, assignment: &Assignment) -> bool {
        state.meter.on_poll(&self.clock, &self.cpu_ns);
        self.report_downstream();
        if assignment.setup.fanout == Fanout::Sync {
            self.watch_leaves();
        }
        let found = self.event_loop.poll() == Some(true);
        self.apply_policy(|governor, now| governor.decide_if_due(now, || self.view()));
        if found && !assignment.role.tasks.contains(Tasks::EXECUTE) && self.event_loop.has_queued() {
            self.control.notify(Tasks::EXECUTE);
        }
        found
    }

    fn gather(&self, state: &mut Self::ThreadState, assignment: &Assignment) -> bool {
        state.meter.on_poll(&self.clock, &self.cpu_ns);
        let mut has_work = false;
        for shared in self.shards_of(assignment) {
            let Some(mut shard) = shared.try_lock() else { continue };
            match shard.poll(Some(Duration::ZERO)) {
                Ok(found) => has_work |= found,
                Err(_) => _ = self.counts.system_errors.fetch_add(1, Ordering::Relaxed),
            }
            state.ready.append(shard.ready());
            shared.has_work.store(shard.has_work(), Ordering::Relaxed);
        }
        has_work |= !state.ready.is_empty();
        self.resume_ready(state, usize::from(assignment.count));
        has_work
    }

    fn has_work(&self, assignment: &Assignment) -> bool {
        let roles = assignment.role.tasks;
        (roles.contains(Tasks::EXECUTE) && self.event_loop.has_queued())
            || (roles.contains(Tasks::RECEIVE) && self.event_loop.needs_poll())
            || (roles.contains(Tasks::AWAIT_LEAVES)
                && self.shards_of(assignment).any(|shared| shared.has_work.load(Ordering::Relaxed)))
    }

    fn sleep(&self, state: &mut Self::ThreadState, assignment: &Assignment, longest: Duration) {
        let roles = assignment.role.tasks;
        let mut descriptors = [0; 64];
        let mut count = 0;
        let mut longest = longest;
        if roles.contains(Tasks::RECEIVE) {
            descriptors[0] = self.event_loop.descriptor();
            count = 1;
            if assignment.setup.fanout == Fanout::Sync {
                longest = longest.min(Duration::from_nanos(WATCH.0));
            }
            let now = self.clock.now();
            let next_decision = self.governor.as_ref().map_or(Time::NEVER, Governor::next_timeout);
            let due = self.event_loop.next_timeout().since(now);
            longest = longest
                .min(Duration::from_nanos(due.0).max(TICK))
                .min(Duration::from_nanos(next_decision.since(now).0));
        }
        if roles.contains(Tasks::AWAIT_LEAVES) {
            for (descriptor, shared) in descriptors[count..].iter_mut().zip(self.shards_of(assignment)) {
                *descriptor = shared.descriptor;
                count += 1;
            }
        }
        wait(&self.alarms[state.thread], &descriptors[..count], longest);
    }

    fn set_waiting(&self, state: &mut Self::ThreadState, is_pausing: bool) {
        if is_pausing {
            state.meter.read(&self.clock, &self.cpu_ns);
        }
        self.notify_blocking();
    }

    fn shares_leaf_sockets(&self) -> bool {
        self.settings.links == Links::Shared
    }

    fn is_drained(&self) -> bool {
        self.event_loop.has_failed() || self.event_loop.is_drained()
    }
}
