//! Duties of a tier's crew: clients are looked at through the front, requests are executed by the service, leaves are looked at through
//! shards. Never here: which thread does what (the crew), the rules of a gather (`gather`).

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

/// A thread at the clients' sockets looks at the clock in whole milliseconds, as a core's poll does: the controller's period would
/// else keep an idle server awake.
const TICK: Duration = Duration::from_millis(1);
/// A sync thread that has not used its connections for so long looks at them before it does.
const STALE: Nanos = Nanos::from_secs(1);

/// A tier, as its crew works at it.
pub(super) struct TierRuntime<M: MidTier> {
    pub(super) event_loop: ExternalEventLoop<Rpc<ExternalExecutor>>,
    pub(super) cancels: Arc<CancelledCalls>,
    pub(super) control: Arc<PoolControl>,
    pub(super) service: M,
    pub(super) settings: Arc<Settings>,
    /// The tier's own objective.
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
    /// Sync threads that wait for leaves.
    pub(super) gathering: AtomicUsize,
    /// CPU time of the crew's threads, as far as they have told.
    pub(super) cpu_ns: AtomicU64,
}

/// Hears the argument of each request in the order in which threads take them.
pub(super) type Observer = Box<dyn FnMut(&[u8]) + Send>;

/// A shard that several threads use.
pub(super) struct SharedShard<S> {
    shard: Mutex<Shard<S>>,
    descriptor: RawFd,
    /// Whether a look is due that the descriptor may not tell of.
    has_work: AtomicBool,
}

/// Counts of requests and calls besides what the server counts.
#[derive(Debug, Default)]
pub(super) struct WorkCounters {
    pub(super) gathers: AtomicU64,
    pub(super) calls: AtomicU64,
    /// Shards that could not be made or looked at.
    pub(super) system_errors: AtomicU64,
}

/// Things of one thread.
pub(super) struct ThreadState<S> {
    thread: usize,
    /// Its own connections, for sync setups.
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

    /// Has a look be due, if there is something that the descriptor may not tell of.
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
    /// Runs a step of the service. Its calls are in the hand's list then.
    fn begin(&self, calls: &mut CallList, gather: &mut Gather<M::State>) -> Result<Step, HandlerError> {
        calls.clear();
        let Gather { inbound: owner, state, reply, .. } = gather;
        let Some(owner) = owner else { return Ok(Step::Done) };
        let mut calls = Calls { list: calls, leaf_count: self.settings.parts_of_data() as u16 };
        let step = || {
            budget::with(owner.call.queue_budget, || self.service.begin(&owner.request(), state, &mut calls, reply)).0
        };
        catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|_| Err(HandlerError::panicked()))
    }

    fn resume(&self, calls: &mut CallList, gather: &mut Gather<M::State>) -> Result<Step, HandlerError> {
        calls.clear();
        let Gather { inbound: owner, state, reply, replies, .. } = gather;
        let Some(owner) = owner else { return Ok(Step::Done) };
        let mut calls = Calls { list: calls, leaf_count: self.settings.parts_of_data() as u16 };
        let came = Replies(replies);
        let step = || budget::with(owner.call.queue_budget, || self.service.resume(state, &came, &mut calls, reply)).0;
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

    /// Asks the policy, if there is one and it wants to be asked, and does what it wants.
    fn apply_policy(&self, ask: impl FnOnce(&Governor, Time) -> Option<Setup>) {
        if let Some(governor) = &self.governor
            && let Some(setup) = ask(governor, self.clock.now())
        {
            self.control.switch_setup(&setup);
        }
    }

    /// A thread has blocked, or goes on.
    pub(super) fn notify_blocking(&self) {
        if self.governor.as_ref().is_some_and(Governor::wants_blocking) {
            self.apply_policy(|governor, now| governor.decide(now, || self.view()));
        }
    }

    /// The request has ended.
    fn finish(&self, mut gather: Box<Gather<M::State>>, outcome: Result<(), HandlerError>) {
        if let (Some(governor), Some(owner)) = (&self.governor, &gather.inbound) {
            governor.record_latency(self.clock.now().since(owner.arrival));
        }
        if let Some((to, done)) = gather.answer(outcome)
            && self.event_loop.answer(to, done)
        {
            self.control.notify(Tasks::RECEIVE);
        }
        self.pool.keep(gather);
    }

    /// A thread has a request until its end, and blocks while leaves are asked (µTune §3, Sync).
    fn run_sync(&self, hand: &mut ThreadState<M::State>, mut gather: Box<Gather<M::State>>) {
        if !self.await_credits(hand, &mut gather) {
            return self.reject_waiting(gather);
        }
        let mut step = self.begin(&mut hand.calls, &mut gather);
        if let (Ok(Step::Done) | Err(_), Some(own)) = (&step, &mut hand.shard) {
            own.release(&mut gather);
        }
        loop {
            let enough = match step {
                Ok(Step::Gather(enough)) => enough,
                Ok(Step::Done) => return self.finish(gather, Ok(())),
                Err(failed) => return self.finish(gather, Err(failed)),
            };
            self.count(&hand.calls);
            let Some(own) = &mut hand.shard else {
                return self
                    .finish(gather, Err(HandlerError::Message("this server has no connections to give".into())));
            };
            let mut came = own.start(gather, &hand.calls, enough);
            self.gathering.fetch_add(1, Ordering::Relaxed);
            self.notify_blocking();
            while own.ready().is_empty() && came.is_ok() {
                came = own.poll(None).map(|_| ());
            }
            self.gathering.fetch_sub(1, Ordering::Relaxed);
            self.notify_blocking();
            hand.last_used = self.clock.now();
            if came.is_err() {
                // The poll itself fails: every call ends with its connection, and the next request finds none.
                self.counts.system_errors.fetch_add(1, Ordering::Relaxed);
                own.leave();
            }
            let next = own.ready().pop();
            if came.is_err() {
                hand.shard = None;
            }
            let Some(next) = next else { return };
            gather = next;
            step = self.resume(&mut hand.calls, &mut gather);
        }
    }

    /// Begins a request that response threads go on with (µTune §3, Async).
    fn run_async(&self, hand: &mut ThreadState<M::State>, post: &Assignment, gather: Box<Gather<M::State>>) {
        let shards = usize::from(post.setup.response);
        if let Some((gather, shard)) = self.reserve_or_park(hand, shards, gather) {
            self.begin_on(hand, shards, shard, gather);
        }
        self.resume_ready(hand, shards);
    }

    /// Begins a request, whose credits are of this shard if there is one.
    fn begin_on(
        &self,
        hand: &mut ThreadState<M::State>,
        shards: usize,
        shard: Option<usize>,
        mut gather: Box<Gather<M::State>>,
    ) {
        let step = self.begin(&mut hand.calls, &mut gather);
        if let (Ok(Step::Done) | Err(_), Some(shared)) = (&step, shard.and_then(|shard| self.shards.get(shard))) {
            shared.lock().release(&mut gather);
        }
        match step {
            Ok(Step::Gather(enough)) => self.start(hand, shards, shard, gather, enough),
            Ok(Step::Done) => self.finish(gather, Ok(())),
            Err(failed) => self.finish(gather, Err(failed)),
        }
    }

    /// The next of so many shards, in turn.
    pub(super) fn next_shard(&self, hand: &mut ThreadState<M::State>, shards: usize) -> usize {
        hand.next_shard = hand.next_shard.wrapping_add(1);
        hand.next_shard % shards.clamp(1, self.shards.len())
    }

    /// Makes a request's calls on this shard, or on the next of so many.
    fn start(
        &self,
        hand: &mut ThreadState<M::State>,
        shards: usize,
        shard: Option<usize>,
        gather: Box<Gather<M::State>>,
        enough: GatherCondition,
    ) {
        self.count(&hand.calls);
        self.control.begin_calls();
        let shared = &self.shards[shard.unwrap_or_else(|| self.next_shard(hand, shards))];
        let mut shard = shared.lock();
        // Its timer is armed again at the next look.
        let _ = shard.start(gather, &hand.calls, enough);
        hand.ready.append(shard.ready());
        if shard.has_work() {
            shared.has_work.store(true, Ordering::Relaxed);
            drop(shard);
            self.control.notify(Tasks::AWAIT_LEAVES);
        }
    }

    /// Goes on with requests whose replies have come.
    fn resume_ready(&self, hand: &mut ThreadState<M::State>, shards: usize) {
        while let Some(mut gather) = hand.ready.pop() {
            match std::mem::replace(&mut gather.next, NextAction::Resume) {
                NextAction::Begin(shard) => self.begin_on(hand, shards, Some(shard), gather),
                NextAction::Reject => self.reject_waiting(gather),
                NextAction::Resume => match self.resume(&mut hand.calls, &mut gather) {
                    Ok(Step::Gather(enough)) => self.start(hand, shards, None, gather, enough),
                    Ok(Step::Done) => self.finish(gather, Ok(())),
                    Err(failed) => self.finish(gather, Err(failed)),
                },
            }
            self.control.end_calls();
        }
    }

    fn take(&self) -> Option<AdmittedRequest<Rpc<ExternalExecutor>>> {
        let Some(observer) = &self.observer else { return self.take_uncancelled() };
        // One at a time, so that the order that is heard is the order of taking.
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
            let AdmittedRequest { connection: to, call: Call { call_ref: whose, payload, .. }, .. } = taken;
            let done = CompletedCall {
                call_ref: whose,
                outcome: CallOutcome::Rejected(RejectCode::Cancelled),
                spare: payload,
            };
            if self.event_loop.answer(to, done) {
                self.control.notify(Tasks::RECEIVE);
            }
        }
    }

    /// Tells the controller of the narrowest leaf if its tick is due: the same tick knows it.
    fn report_downstream(&self) {
        if self.clock.now() >= self.event_loop.next_timeout()
            && let Some(news) = self.fanout_counters.credits.take_narrowest()
        {
            let counts = self.event_loop.handle().counts();
            let ended = counts.completed + counts.rejected + counts.abandoned;
            // Credits that lie with idle clients hold nothing back: the controller compares with what is in the server.
            self.event_loop.handle().downstream(&news.with_in_flight(counts.received.saturating_sub(ended)));
        }
    }

    /// Drops a request whose budget was spent in the queue: its leaves would be asked in vain.
    fn reject_if_spent(&self, gather: &mut Box<Gather<M::State>>) -> bool {
        if !gather.budget().is_spent() {
            return false;
        }
        if let Some((to, done)) = gather.reject(RejectCode::Delay)
            && self.event_loop.answer(to, done)
        {
            self.control.notify(Tasks::RECEIVE);
        }
        true
    }

    fn count(&self, calls: &CallList) {
        self.counts.gathers.fetch_add(1, Ordering::Relaxed);
        self.counts.calls.fetch_add(calls.len() as u64, Ordering::Relaxed);
    }

    /// Shards that the thread of this post looks at: those of its place, and of places that this setup has not.
    fn shards_of(&self, post: &Assignment) -> impl Iterator<Item = &SharedShard<M::State>> {
        let (from, step) = match self.settings.links {
            Links::Shared => (0, 1),
            Links::Sharded => (usize::from(post.index), usize::from(post.count.max(1))),
        };
        self.shards.iter().skip(from).step_by(step)
    }

    /// Makes a thread's connections as soon as it has a post that needs them, not with its first request.
    fn prepare(&self, hand: &mut ThreadState<M::State>, post: &Assignment) {
        if post.setup.fanout != Fanout::Sync || hand.shard.is_some() {
            return;
        }
        match Shard::new(&self.settings, &self.clock, self.seed ^ hand.thread as u64, &self.fanout_counters) {
            Ok(shard) => hand.shard = Some(shard),
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

    fn run(&self, hand: &mut Self::ThreadState, post: &Assignment) -> bool {
        self.prepare(hand, post);
        let Some(AdmittedRequest { connection: to, arrival: arrived, wait: waited, call }) = self.take() else {
            return false;
        };
        if self.event_loop.has_queued() {
            self.control.notify_parked(Tasks::EXECUTE);
        }
        let mut gather = self.pool.take();
        gather.take(to, arrived, waited, call);
        if self.reject_if_spent(&mut gather) {
            self.pool.keep(gather);
            return true;
        }
        self.fanout_counters.credits.request();
        match post.setup.fanout {
            Fanout::Async => self.run_async(hand, post, gather),
            Fanout::Sync => {
                if let Some(own) = &mut hand.shard
                    && self.clock.now().since(hand.last_used) > STALE
                {
                    // A leaf may have gone meanwhile.
                    let _ = own.poll(Some(Duration::ZERO));
                }
                self.run_sync(hand, gather);
            }
        }
        true
    }

    fn receive(&self, hand: &mut Self::ThreadState, post: &Assignment) -> bool {
        hand.meter.on_poll(&self.clock, &self.cpu_ns);
        self.report_downstream();
        let found = self.event_loop.poll() == Some(true);
        self.apply_policy(|governor, now| governor.decide_if_due(now, || self.view()));
        if found && !post.role.tasks.contains(Tasks::EXECUTE) && self.event_loop.has_queued() {
            self.control.notify(Tasks::EXECUTE);
        }
        found
    }

    fn gather(&self, hand: &mut Self::ThreadState, post: &Assignment) -> bool {
        hand.meter.on_poll(&self.clock, &self.cpu_ns);
        let mut anything = false;
        for shared in self.shards_of(post) {
            let Some(mut shard) = shared.try_lock() else { continue };
            match shard.poll(Some(Duration::ZERO)) {
                Ok(found) => anything |= found,
                Err(_) => _ = self.counts.system_errors.fetch_add(1, Ordering::Relaxed),
            }
            hand.ready.append(shard.ready());
            shared.has_work.store(shard.has_work(), Ordering::Relaxed);
        }
        anything |= !hand.ready.is_empty();
        self.resume_ready(hand, usize::from(post.count));
        anything
    }

    fn has_work(&self, post: &Assignment) -> bool {
        let roles = post.role.tasks;
        (roles.contains(Tasks::EXECUTE) && self.event_loop.has_queued())
            || (roles.contains(Tasks::RECEIVE) && self.event_loop.needs_poll())
            || (roles.contains(Tasks::AWAIT_LEAVES)
                && self.shards_of(post).any(|shared| shared.has_work.load(Ordering::Relaxed)))
    }

    fn sleep(&self, hand: &mut Self::ThreadState, post: &Assignment, longest: Duration) {
        let roles = post.role.tasks;
        let mut descriptors = [0; 64];
        let mut count = 0;
        let mut longest = longest;
        if roles.contains(Tasks::RECEIVE) {
            descriptors[0] = self.event_loop.descriptor();
            count = 1;
            let now = self.clock.now();
            let asks = self.governor.as_ref().map_or(Time::NEVER, Governor::next_timeout);
            let due = self.event_loop.next_timeout().since(now);
            longest = longest.min(Duration::from_nanos(due.0).max(TICK)).min(Duration::from_nanos(asks.since(now).0));
        }
        if roles.contains(Tasks::AWAIT_LEAVES) {
            for (place, shared) in descriptors[count..].iter_mut().zip(self.shards_of(post)) {
                *place = shared.descriptor;
                count += 1;
            }
        }
        wait(&self.alarms[hand.thread], &descriptors[..count], longest);
    }

    fn set_waiting(&self, hand: &mut Self::ThreadState, is_pausing: bool) {
        if is_pausing {
            hand.meter.read(&self.clock, &self.cpu_ns);
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
