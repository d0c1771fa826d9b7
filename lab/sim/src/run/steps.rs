//! Requests of an application with locks: they work, take a lock, work, and release it.
//!
//! A request runs on its core until it is done or has to wait. At a mutex it leaves the core, and
//! joins a run queue once it has the lock. At a spinlock it keeps the core. `locks.rs` decides
//! which waiter gets a lock next.

use super::Run;
use crate::audit::Audit;
use crate::config::{LockKind, LockPolicy, MeasuredInterval, SimConfig, SlowPeriod};
use crate::event::Event;
use crate::locks::{Locks, Waiter};
use crate::requests::RequestId;
use crate::server::{Activity, OutgoingMessage};
use crate::server_queues::Task;
use leeward_core::budget::Budget;
use leeward_core::server::Outcome;
use leeward_core::units::{Nanos, Time};
use leeward_outcome::LockOutcome;
use leeward_workload::rng::{Purpose, Rng};
use leeward_workload::{Application, Step};

/// State of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not executed yet: at its client, on the wire, in the packet queue or in the run queue.
    NotStarted,
    /// On a core, or in a run queue to continue.
    Running,
    /// In this lock's queue.
    Waiting(u8),
    /// Without a core, at a disk or a downstream server.
    Suspended,
    /// It did not get a lock and no longer waits: the next core that takes it rejects it.
    Rejected,
    /// Its response or rejection has left.
    Done,
}

/// Progress of a request through the application's steps.
#[derive(Clone, Copy, Debug)]
struct Progress {
    state: State,
    path: u8,
    /// Current step; the number of steps means that its response is being sent.
    step: u8,
    /// Bit mask of the locks that it holds.
    held_locks: u64,
    /// Time at which it joined the run queue.
    queued_at: Time,
    budget: Budget,
    /// Counts the waits in its slot, to tell a time-out of an earlier wait.
    wait_id: u32,
}

/// Next action of a request.
enum NextAction {
    /// The request computes for this time.
    Work(Nanos),
    /// The core sends its response.
    Send,
    /// Its response has been sent.
    Respond,
    /// The request waits for a lock.
    Wait,
    /// The request waits for this time without a core.
    Suspend(Nanos),
    /// The request gives up a lock, and is rejected.
    Reject,
}

/// The application, its locks, and the progress of each request.
pub(super) struct StepRunner {
    application: Application,
    kind: LockKind,
    acquire: LockPolicy,
    locks: Locks,
    slow: Option<SlowPeriod>,
    /// CPU time of sending a response.
    send: Nanos,
    /// By slot.
    progress: Vec<Progress>,
    /// Requests that have just stopped waiting for a lock.
    ready: Vec<Waiter>,
    /// Whether a waiting request checks its budget again.
    rechecks_budget: bool,
    rng: Rng,
}

impl StepRunner {
    /// Returns `None` if the application has no locks; this module is then unused.
    pub(super) fn new(config: &SimConfig) -> Option<Self> {
        (!config.application.is_plain()).then(|| StepRunner {
            application: config.application.clone(),
            kind: config.locks.kind,
            acquire: config.locks.acquire,
            locks: Locks::new(&config.application.locks, MeasuredInterval::of(config)),
            slow: config.server.slow,
            send: config.server.costs.send,
            progress: Vec::new(),
            ready: Vec::new(),
            rechecks_budget: matches!(config.locks.acquire, LockPolicy::UnlessCongested { recheck: true, .. }),
            rng: Rng::new(config.seed, Purpose::Paths),
        })
    }

    /// Draws the path of the next request.
    pub(super) fn draw(&mut self) -> u8 {
        self.application.draw(&mut self.rng) as u8
    }

    /// Path of a request.
    pub(super) fn path_of(&self, request: RequestId) -> u8 {
        self.progress[request.slot()].path
    }

    /// Adds a request that has just been issued, with its path.
    pub(super) fn add_request(&mut self, request: RequestId, path: u8) {
        let budget = match self.acquire {
            LockPolicy::UnlessCongested { budget, .. } => Budget::new(budget),
            LockPolicy::Plain | LockPolicy::Try | LockPolicy::Timed { .. } => Budget::UNLIMITED,
        };
        let slot = request.slot();
        let wait = self.progress.get(slot).map_or(0, |previous| previous.wait_id);
        let fresh = Progress {
            state: State::NotStarted,
            path,
            step: 0,
            held_locks: 0,
            queued_at: Time::ZERO,
            budget,
            wait_id: wait,
        };
        match self.progress.get_mut(slot) {
            Some(progress) => *progress = fresh,
            // Slots are allocated consecutively.
            None => self.progress.push(fresh),
        }
    }

    /// Puts an admitted request, which has `waited` in the packet queue, into the run queue.
    /// Returns whether its budget allows the run queue's delay.
    fn enter_run_queue(&mut self, request: RequestId, now: Time, waited: Nanos, run_delay: Nanos) -> bool {
        let progress = &mut self.progress[request.slot()];
        progress.budget.charge(waited);
        progress.queued_at = now;
        progress.budget.allows(run_delay)
    }

    /// Charges the wait in the run queue to a request that a core takes. Returns whether the
    /// request executes for the first time.
    pub(super) fn start_if_new(&mut self, request: RequestId, now: Time) -> bool {
        let progress = &mut self.progress[request.slot()];
        progress.budget.charge(now.since(progress.queued_at));
        let first = progress.state == State::NotStarted;
        if first {
            progress.state = State::Running;
        }
        first
    }

    /// Time for which a request on a core computes until its next action.
    pub(super) fn next_work(&self, request: RequestId, service: Nanos) -> Nanos {
        let progress = &self.progress[request.slot()];
        match (progress.state, self.step(request)) {
            (State::Rejected, _) | (_, Some(Step::Wait(_) | Step::Acquire(_) | Step::Release(_))) => Nanos::ZERO,
            (_, Some(Step::Work(_))) => self.application.length(progress.path.into(), progress.step.into(), service),
            (_, None) => self.send,
        }
    }

    /// Current step of a request; `None`: its response is being sent.
    fn step(&self, request: RequestId) -> Option<Step> {
        let Progress { path, step, .. } = self.progress[request.slot()];
        self.application.paths[usize::from(path)].steps.get(usize::from(step)).copied()
    }

    /// Suspends a request without a core if that is its next step. Returns the length of the wait.
    fn suspend(&mut self, request: RequestId, service: Nanos, now: Time) -> Option<Nanos> {
        let Some(Step::Wait(_)) = self.step(request) else { return None };
        let progress = &mut self.progress[request.slot()];
        progress.state = State::Suspended;
        let length = self.application.length(progress.path.into(), progress.step.into(), service);
        Some(length.scale(SlowPeriod::factor_at(self.slow, now)))
    }

    /// Ends a request's wait without a core, and releases the locks that the wait held.
    fn resume(&mut self, request: RequestId, now: Time) {
        let progress = &mut self.progress[request.slot()];
        progress.state = State::Running;
        progress.queued_at = now;
        progress.step += 1;
        while let Some(Step::Release(lock)) = self.step(request) {
            self.progress[request.slot()].step += 1;
            self.release(lock, request, now);
        }
    }

    /// Takes a request on `core` past the end of its step, through its lock operations, to the next
    /// action that takes time.
    ///
    /// Calls `run_delay` only if the lock policy needs it.
    fn advance(
        &mut self,
        now: Time,
        core: usize,
        request: RequestId,
        service: Nanos,
        run_delay: impl Fn() -> Nanos,
    ) -> NextAction {
        let slot = request.slot();
        if self.progress[slot].state == State::Rejected {
            return self.reject(request, now);
        }
        match self.step(request) {
            None => return NextAction::Respond,
            Some(Step::Work(_)) => self.progress[slot].step += 1,
            Some(Step::Wait(_) | Step::Acquire(_) | Step::Release(_)) => {}
        }
        loop {
            match self.step(request) {
                None => return NextAction::Send,
                Some(Step::Work(_)) => return NextAction::Work(self.next_work(request, service)),
                Some(Step::Wait(_)) => {
                    return NextAction::Suspend(self.suspend(request, service, now).unwrap_or(Nanos::ZERO));
                }
                Some(Step::Release(lock)) => {
                    self.progress[slot].step += 1;
                    self.release(lock, request, now);
                }
                Some(Step::Acquire(lock)) if self.locks.acquire(lock, request, now) => self.set_holder(lock, request),
                Some(Step::Acquire(lock)) => {
                    if self.may_wait(lock, request, now, &run_delay) {
                        let spins_on = (self.kind == LockKind::Spinlock).then_some(core);
                        self.locks.enqueue(lock, Waiter { request, since: now, spinning_core: spins_on });
                        let progress = &mut self.progress[slot];
                        progress.state = State::Waiting(lock as u8);
                        progress.wait_id = progress.wait_id.wrapping_add(1);
                        return NextAction::Wait;
                    }
                    self.locks.reject(lock, now);
                    return self.reject(request, now);
                }
            }
        }
    }

    fn may_wait(&self, lock: usize, request: RequestId, now: Time, run_delay: impl Fn() -> Nanos) -> bool {
        match self.acquire {
            LockPolicy::Plain | LockPolicy::Timed { .. } => true,
            LockPolicy::Try => false,
            // The wait for the lock, and then for a core (Hoover §3.4).
            LockPolicy::UnlessCongested { .. } => {
                let (budget, delay) = (self.progress[request.slot()].budget, self.locks.delay(lock, now) + run_delay());
                budget.allows(delay) && !(self.rechecks_budget && budget.is_spent())
            }
        }
    }

    /// Makes `request` the holder of `lock`.
    fn set_holder(&mut self, lock: usize, request: RequestId) {
        let progress = &mut self.progress[request.slot()];
        progress.held_locks |= 1 << lock;
        progress.step += 1;
    }

    /// Grants `lock` to the next waiter whose budget lasts. Adds that waiter, and the rejected ones
    /// before it, to `ready`.
    fn release(&mut self, lock: usize, request: RequestId, now: Time) {
        self.progress[request.slot()].held_locks &= !(1 << lock);
        self.locks.release(lock, now);
        while let Some(next) = self.locks.pop_waiter(lock, now) {
            let progress = &mut self.progress[next.request.slot()];
            progress.queued_at = now;
            let in_time = !self.rechecks_budget || progress.budget.allows(now.since(next.since));
            progress.budget.charge(now.since(next.since));
            progress.state = if in_time { State::Running } else { State::Rejected };
            self.ready.push(next);
            if in_time {
                self.locks.grant(lock, next, now);
                self.set_holder(lock, next.request);
                return;
            }
            self.locks.reject(lock, now);
        }
    }

    fn reject(&mut self, request: RequestId, now: Time) -> NextAction {
        self.progress[request.slot()].state = State::Rejected;
        for lock in (0..self.locks.count()).rev() {
            if self.progress[request.slot()].held_locks >> lock & 1 == 1 {
                self.release(lock, request, now);
            }
        }
        NextAction::Reject
    }

    /// Ends a wait that has reached its time limit; `None` if it is over already.
    fn cancel_wait(&mut self, request: RequestId, wait: u32, now: Time) -> Option<Waiter> {
        let progress = &mut self.progress[request.slot()];
        let State::Waiting(lock) = progress.state else { return None };
        if progress.wait_id != wait {
            return None;
        }
        progress.state = State::Rejected;
        progress.queued_at = now;
        self.locks.cancel_wait(lock.into(), request, now)
    }

    /// Ends a request whose response or rejection leaves. Returns whether a lock was the reason of
    /// its rejection.
    pub(super) fn on_departure(&mut self, request: RequestId) -> bool {
        let state = std::mem::replace(&mut self.progress[request.slot()].state, State::Done);
        state == State::Rejected
    }

    /// Changes the measured interval.
    pub(super) fn set_interval(&mut self, interval: MeasuredInterval) {
        self.locks.set_interval(interval);
    }

    /// Checks that the locks and the requests agree on holders and waiters.
    pub(super) fn audit(&self, now: Time, audit: &mut Audit) {
        let contradiction = self.locks.contradiction();
        audit.check(contradiction.is_none(), now, || contradiction.unwrap_or_default());
        for lock in 0..self.locks.count() {
            let waiting = self.progress.iter().filter(|own| own.state == State::Waiting(lock as u8)).count();
            let queued = self.locks.waiters(lock);
            audit.check(waiting == queued, now, || {
                format!("{waiting} requests wait for lock {lock}, but its queue has {queued}")
            });
            let holding = self.progress.iter().filter(|own| own.held_locks >> lock & 1 == 1).count();
            let holder = self.locks.holder(lock).map(|holder| self.progress[holder.slot()].held_locks >> lock & 1);
            audit.check(holding as u64 == u64::from(holder.is_some()) && holder != Some(0), now, || {
                format!("lock {lock} has the holder {holder:?}, and {holding} requests have it")
            });
        }
        let leaked = self.progress.iter().any(|own| own.state == State::Done && own.held_locks != 0);
        audit.check(!leaked, now, || "a request has left with a lock".into());
    }

    pub(super) fn report(self) -> Vec<LockOutcome> {
        self.locks.report()
    }
}

impl Run<'_> {
    /// Whether an admitted request's budget lasts for the run queue: the server's own check after
    /// the controller's.
    ///
    /// Requests without a budget always pass.
    pub(super) fn has_budget(&mut self, request: RequestId) -> bool {
        let Some(steps) = &mut self.steps else { return true };
        let waited = self.now.since(self.requests[request].arrived).saturating_sub(self.server.cost_of_receiving());
        steps.enter_run_queue(request, self.now, waited, self.server.queues.run_delay(self.now))
    }

    /// Continues the request on `core` after the end of a step. Returns the CPU time that a free
    /// core still owes; `None` if the core continues with the same request.
    pub(super) fn on_step_end(&mut self, core: usize, task: Task) -> Option<Nanos> {
        let steps = self.steps.as_mut()?;
        let (queues, now) = (&self.server.queues, self.now);
        let service = self.requests[task.request].service;
        let next = steps.advance(now, core, task.request, service, || queues.run_delay(now));
        let debt = match next {
            NextAction::Work(length) => self.continue_on_core(core, task, length),
            NextAction::Send => self.continue_on_core(core, task, self.server.cost_of_sending()),
            NextAction::Wait => self.wait_for_lock(core, task.request),
            NextAction::Suspend(length) => {
                self.event_queue.schedule(now + length, Event::WaitEnded(task.request));
                Some(Nanos::ZERO)
            }
            NextAction::Respond => {
                self.respond(task.request, Outcome::Completed);
                self.stats.record_sent(1);
                Some(Nanos::ZERO)
            }
            NextAction::Reject => {
                self.stats.record_reject();
                self.stats.record_lock_reject();
                let session = self.requests[task.request].session;
                self.server.cores[core].outgoing.push_back(OutgoingMessage::Rejection(session, task.request));
                Some(self.server.cost_of_rejection())
            }
        };
        self.wake_ready(core);
        debt
    }

    fn continue_on_core(&mut self, core: usize, task: Task, length: Nanos) -> Option<Nanos> {
        self.server.cores[core].activity = Activity::Executing(task);
        let until = self.stalls.delayed_end(core, self.now, self.now + length);
        self.stats.record_busy(self.now, until, length);
        self.event_queue.schedule(until, Event::Core(core as u32));
        None
    }

    fn wait_for_lock(&mut self, core: usize, request: RequestId) -> Option<Nanos> {
        let steps = self.steps.as_ref()?;
        if let LockPolicy::Timed { timeout: limit } = steps.acquire {
            let wait = steps.progress[request.slot()].wait_id;
            self.event_queue.schedule(self.now + limit, Event::LockTimeout(request, wait));
        }
        match steps.kind {
            LockKind::Mutex => Some(Nanos::ZERO),
            LockKind::Spinlock => {
                self.server.cores[core].activity = Activity::Spinning(self.now);
                None
            }
        }
    }

    /// Resumes the requests in `ready`: in the run queue of the core that released the lock, or on
    /// the core on which they spin.
    fn wake_ready(&mut self, core: usize) {
        let Some(steps) = &mut self.steps else { return };
        let mut ready = std::mem::take(&mut steps.ready);
        for waiter in ready.drain(..) {
            self.resume_waiter(waiter, core);
        }
        if let Some(steps) = &mut self.steps {
            steps.ready = ready;
        }
    }

    /// Resumes a request after its wait without a core.
    pub(super) fn on_wait_ended(&mut self, request: RequestId) {
        let Some(steps) = &mut self.steps else { return };
        steps.resume(request, self.now);
        let home = self.home(self.requests[request].session);
        self.server.queues.push_task(home, self.now, Task { request });
        self.wake_ready(home);
        self.wake_idle_cores(home);
    }

    fn resume_waiter(&mut self, waiter: Waiter, core: usize) {
        let task = Task { request: waiter.request };
        let service = self.requests[waiter.request].service;
        match waiter.spinning_core {
            // A disk with a queue continues with the next request without a core.
            None if let Some(length) = self.suspend_if_due(waiter.request, service) => {
                self.event_queue.schedule(self.now + length, Event::WaitEnded(waiter.request));
            }
            None => self.server.queues.push_task(core, self.now, task),
            Some(core) => {
                let spun = self.stalls.without_pauses(waiter.since, self.now);
                self.stats.record_busy(waiter.since, self.now, spun);
                let work = self.steps.as_ref().map_or(Nanos::ZERO, |steps| steps.next_work(waiter.request, service));
                self.continue_on_core(core, task, work);
            }
        }
    }

    fn suspend_if_due(&mut self, request: RequestId, service: Nanos) -> Option<Nanos> {
        let steps = self.steps.as_mut()?;
        let has_lock = steps.progress[request.slot()].state == State::Running;
        has_lock.then(|| steps.suspend(request, service, self.now)).flatten()
    }

    /// Handles the time limit of a request's wait for a lock.
    pub(super) fn on_lock_timeout(&mut self, request: RequestId, wait: u32) {
        let Some(steps) = &mut self.steps else { return };
        if let Some(waiter) = steps.cancel_wait(request, wait, self.now) {
            let home = self.home(self.requests[request].session);
            self.resume_waiter(waiter, home);
            self.wake_idle_cores(home);
        }
    }

    /// Counts the time of the cores that still spin at the end of the run.
    pub(super) fn account_spinning(&mut self, end: Time) {
        for core in &self.server.cores {
            if let Activity::Spinning(since) = core.activity {
                self.stats.record_busy(since, end, self.stalls.without_pauses(since, end));
            }
        }
    }
}
