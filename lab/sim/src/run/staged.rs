//! Requests of an application with locks: work, take a lock, work, give it back. A request runs on its core until it is
//! done or has to wait. At a mutex it leaves the core, and joins a run queue when it has the lock. At a spinlock it
//! keeps the core. `locks.rs` decides which waiter gets a lock next.

use super::Run;
use crate::audit::Audit;
use crate::config::{Acquire, LockKind, SimConfig, Slow};
use crate::event::Event;
use crate::locks::{Locks, Waiter};
use crate::requests::RequestId;
use crate::server::{Activity, Outgoing};
use crate::server_queues::Task;
use leeward_core::budget::Budget;
use leeward_core::server::Outcome;
use leeward_core::units::{Nanos, Time};
use leeward_outcome::LockOutcome;
use leeward_workload::rng::{Purpose, Rng};
use leeward_workload::{Application, Step};

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not executed so far: at its client, on the wire, in the packet or the run queue.
    Ahead,
    /// On a core, or in a run queue to go on.
    Underway,
    /// In this lock's queue.
    Waiting(u8),
    /// Without a core, at a disk or a server further down.
    Away,
    /// The request did not get a lock and waits for it no more: a drop, as soon as a core takes it.
    Refused,
    /// Its response or drop has left.
    Over,
}

/// Progress that a request of an application with locks has besides what all have.
#[derive(Clone, Copy, Debug)]
struct Progress {
    state: State,
    path: u8,
    /// The step that it is at; the number of steps: its response is being sent.
    step: u8,
    /// The locks that it holds, one bit each.
    held: u64,
    /// When it joined the run queue.
    queued: Time,
    budget: Budget,
    /// Numbers the waits in its slot, so that a time-out of an earlier one is known for what it is.
    wait: u32,
}

/// Next move of a request.
enum Move {
    /// The request works on for this span.
    Work(Nanos),
    /// Its response is sent.
    Send,
    /// Its response has been sent.
    Respond,
    /// The request waits for a lock.
    Wait,
    /// The request waits for this span without a core.
    Leave(Nanos),
    /// The request does without a lock, and ends as a drop.
    Drop,
}

/// The application, its locks, and how far each request has come.
pub(super) struct Staged {
    application: Application,
    kind: LockKind,
    acquire: Acquire,
    locks: Locks,
    slow: Option<Slow>,
    /// CPU time of sending a response.
    send: Nanos,
    /// By slot.
    progress: Vec<Progress>,
    /// Requests that have just got a lock they waited for.
    ready: Vec<Waiter>,
    /// Whether a budget may be spent while one waits.
    asks_again: bool,
    rng: Rng,
}

impl Staged {
    /// `None` if the application has no locks: then nothing of this module runs.
    pub(super) fn new(config: &SimConfig) -> Option<Self> {
        (!config.application.is_plain()).then(|| Staged {
            application: config.application.clone(),
            kind: config.locks.kind,
            acquire: config.locks.acquire,
            locks: Locks::new(&config.application.locks, config.warmup, config.duration),
            slow: config.server.slow,
            send: config.server.costs.send,
            progress: Vec::new(),
            ready: Vec::new(),
            asks_again: matches!(config.locks.acquire, Acquire::UnlessCongested { again: true, .. }),
            rng: Rng::new(config.seed, Purpose::Paths),
        })
    }

    /// The path of the next request.
    pub(super) fn draw(&mut self) -> u8 {
        self.application.draw(&mut self.rng) as u8
    }

    /// The path that a request takes.
    pub(super) fn path_of(&self, request: RequestId) -> u8 {
        self.progress[request.slot()].path
    }

    /// A request has just been issued, and will take this path.
    pub(super) fn issued(&mut self, request: RequestId, path: u8) {
        let budget = match self.acquire {
            Acquire::UnlessCongested { budget, .. } => Budget::of(budget),
            Acquire::Plain | Acquire::Try | Acquire::Timed { .. } => Budget::UNLIMITED,
        };
        let slot = request.slot();
        let wait = self.progress.get(slot).map_or(0, |before| before.wait);
        let fresh = Progress { state: State::Ahead, path, step: 0, held: 0, queued: Time::ZERO, budget, wait };
        match self.progress.get_mut(slot) {
            Some(progress) => *progress = fresh,
            // Slots are handed out one after another.
            None => self.progress.push(fresh),
        }
    }

    /// An admitted request, which has `waited` in the packet queue, joins the run queue, unless its delay is more than
    /// what is left of the budget.
    fn joins_run_queue(&mut self, request: RequestId, now: Time, waited: Nanos, run_delay: Nanos) -> bool {
        let progress = &mut self.progress[request.slot()];
        progress.budget.charge(waited);
        progress.queued = now;
        progress.budget.allows(run_delay)
    }

    /// A core takes a request from a run queue. Whether it is for the first time.
    pub(super) fn takes_its_first_turn(&mut self, request: RequestId, now: Time) -> bool {
        let progress = &mut self.progress[request.slot()];
        progress.budget.charge(now.since(progress.queued));
        let first = progress.state == State::Ahead;
        if first {
            progress.state = State::Underway;
        }
        first
    }

    /// For how long a request that is on a core works on before anything else happens to it.
    pub(super) fn next_work(&self, request: RequestId, service: Nanos) -> Nanos {
        let progress = &self.progress[request.slot()];
        match (progress.state, self.step(request)) {
            (State::Refused, _) | (_, Some(Step::Wait(_) | Step::Acquire(_) | Step::Release(_))) => Nanos::ZERO,
            (_, Some(Step::Work(_))) => self.application.length(progress.path.into(), progress.step.into(), service),
            (_, None) => self.send,
        }
    }

    /// The step that a request is at; `None`: its response is being sent.
    fn step(&self, request: RequestId) -> Option<Step> {
        let Progress { path, step, .. } = self.progress[request.slot()];
        self.application.paths[usize::from(path)].steps.get(usize::from(step)).copied()
    }

    /// Sends a request away from its core, if that is its next step; for how long.
    fn leaves_core(&mut self, request: RequestId, service: Nanos, now: Time) -> Option<Nanos> {
        let Some(Step::Wait(_)) = self.step(request) else { return None };
        let progress = &mut self.progress[request.slot()];
        progress.state = State::Away;
        let length = self.application.length(progress.path.into(), progress.step.into(), service);
        Some(length.scale(Slow::factor_at(self.slow, now)))
    }

    /// A request's wait without a core is over. Whatever it waited for gives the locks back that are to be given back then.
    fn returns(&mut self, request: RequestId, now: Time) {
        let progress = &mut self.progress[request.slot()];
        progress.state = State::Underway;
        progress.queued = now;
        progress.step += 1;
        while let Some(Step::Release(lock)) = self.step(request) {
            self.progress[request.slot()].step += 1;
            self.gives_back(lock, request, now);
        }
    }

    /// A request on `core` has come to the end of its step: it takes and gives back locks up to the next thing that takes
    /// time. `run_delay` is asked for only where it matters.
    fn advance(
        &mut self,
        now: Time,
        core: usize,
        request: RequestId,
        service: Nanos,
        run_delay: impl Fn() -> Nanos,
    ) -> Move {
        let slot = request.slot();
        if self.progress[slot].state == State::Refused {
            return self.drops(request, now);
        }
        match self.step(request) {
            None => return Move::Respond,
            Some(Step::Work(_)) => self.progress[slot].step += 1,
            Some(Step::Wait(_) | Step::Acquire(_) | Step::Release(_)) => {}
        }
        loop {
            match self.step(request) {
                None => return Move::Send,
                Some(Step::Work(_)) => return Move::Work(self.next_work(request, service)),
                Some(Step::Wait(_)) => {
                    return Move::Leave(self.leaves_core(request, service, now).unwrap_or(Nanos::ZERO));
                }
                Some(Step::Release(lock)) => {
                    self.progress[slot].step += 1;
                    self.gives_back(lock, request, now);
                }
                Some(Step::Acquire(lock)) if self.locks.acquire(lock, request, now) => self.has(lock, request),
                Some(Step::Acquire(lock)) => {
                    if self.may_wait(lock, request, now, &run_delay) {
                        let spins_on = (self.kind == LockKind::Spinlock).then_some(core);
                        self.locks.wait(lock, Waiter { request, since: now, spins_on });
                        let progress = &mut self.progress[slot];
                        progress.state = State::Waiting(lock as u8);
                        progress.wait = progress.wait.wrapping_add(1);
                        return Move::Wait;
                    }
                    self.locks.refuse(lock, now);
                    return self.drops(request, now);
                }
            }
        }
    }

    fn may_wait(&self, lock: usize, request: RequestId, now: Time, run_delay: impl Fn() -> Nanos) -> bool {
        match self.acquire {
            Acquire::Plain | Acquire::Timed { .. } => true,
            Acquire::Try => false,
            // What it would wait for here, and for a core afterwards (Hoover §3.4).
            Acquire::UnlessCongested { .. } => {
                let (budget, delay) = (self.progress[request.slot()].budget, self.locks.delay(lock, now) + run_delay());
                budget.allows(delay) && !(self.asks_again && budget.is_spent())
            }
        }
    }

    /// `lock` is `request`'s.
    fn has(&mut self, lock: usize, request: RequestId) {
        let progress = &mut self.progress[request.slot()];
        progress.held |= 1 << lock;
        progress.step += 1;
    }

    /// Gives `lock` to the next waiter whose budget still lasts. That waiter is noted in `ready`, and so are the late
    /// ones before it.
    fn gives_back(&mut self, lock: usize, request: RequestId, now: Time) {
        self.progress[request.slot()].held &= !(1 << lock);
        self.locks.release(lock, now);
        while let Some(next) = self.locks.next(lock, now) {
            let progress = &mut self.progress[next.request.slot()];
            progress.queued = now;
            let in_time = !self.asks_again || progress.budget.allows(now.since(next.since));
            progress.budget.charge(now.since(next.since));
            progress.state = if in_time { State::Underway } else { State::Refused };
            self.ready.push(next);
            if in_time {
                self.locks.hand(lock, next, now);
                self.has(lock, next.request);
                return;
            }
            self.locks.refuse(lock, now);
        }
    }

    fn drops(&mut self, request: RequestId, now: Time) -> Move {
        self.progress[request.slot()].state = State::Refused;
        for lock in (0..self.locks.count()).rev() {
            if self.progress[request.slot()].held >> lock & 1 == 1 {
                self.gives_back(lock, request, now);
            }
        }
        Move::Drop
    }

    /// A wait has lasted long enough; `None` if it is over already.
    fn times_out(&mut self, request: RequestId, wait: u32, now: Time) -> Option<Waiter> {
        let progress = &mut self.progress[request.slot()];
        let State::Waiting(lock) = progress.state else { return None };
        if progress.wait != wait {
            return None;
        }
        progress.state = State::Refused;
        progress.queued = now;
        self.locks.give_up(lock.into(), request, now)
    }

    /// A request's response or drop leaves. Whether it is a drop because of a lock.
    pub(super) fn leaves(&mut self, request: RequestId) -> bool {
        let state = std::mem::replace(&mut self.progress[request.slot()].state, State::Over);
        state == State::Refused
    }

    /// Compares what the locks and the requests say of each other.
    pub(super) fn audit(&self, now: Time, audit: &mut Audit) {
        let contradiction = self.locks.contradiction();
        audit.check(contradiction.is_none(), now, || contradiction.unwrap_or_default());
        for lock in 0..self.locks.count() {
            let waiting = self.progress.iter().filter(|own| own.state == State::Waiting(lock as u8)).count();
            let queued = self.locks.waiters(lock);
            audit.check(waiting == queued, now, || {
                format!("{waiting} requests wait for lock {lock}, but its queue has {queued}")
            });
            let holding = self.progress.iter().filter(|own| own.held >> lock & 1 == 1).count();
            let holder = self.locks.holder(lock).map(|holder| self.progress[holder.slot()].held >> lock & 1);
            audit.check(holding as u64 == u64::from(holder.is_some()) && holder != Some(0), now, || {
                format!("lock {lock} has the holder {holder:?}, and {holding} requests have it")
            });
        }
        let leaked = self.progress.iter().any(|own| own.state == State::Over && own.held != 0);
        audit.check(!leaked, now, || "a request has left with a lock".into());
    }

    pub(super) fn report(self) -> Vec<LockOutcome> {
        self.locks.report()
    }
}

impl Run<'_> {
    /// Whether an admitted request's budget lasts for the run queue: the server's own check after the controller's, where
    /// budgets are given at all.
    pub(super) fn budget_lasts(&mut self, request: RequestId) -> bool {
        let Some(staged) = &mut self.staged else { return true };
        let waited = self.now.since(self.requests[request].arrived).saturating_sub(self.server.cost_of_receiving());
        staged.joins_run_queue(request, self.now, waited, self.server.queues.run_delay(self.now))
    }

    /// The request on `core` has come to the end of a step. What the core still owes if it is free now; `None` if it goes
    /// on with the same request.
    pub(super) fn step_ends(&mut self, core: usize, task: Task) -> Option<Nanos> {
        let staged = self.staged.as_mut()?;
        let (queues, now) = (&self.server.queues, self.now);
        let service = self.requests[task.request].service;
        let next = staged.advance(now, core, task.request, service, || queues.run_delay(now));
        let owed = match next {
            Move::Work(length) => self.keeps_core(core, task, length),
            Move::Send => self.keeps_core(core, task, self.server.cost_of_sending()),
            Move::Wait => self.waits(core, task.request),
            Move::Leave(length) => {
                self.agenda.schedule(now + length, Event::Returns(task.request));
                Some(Nanos::ZERO)
            }
            Move::Respond => {
                self.respond(task.request, Outcome::Completed);
                self.stats.sent_messages(1);
                Some(Nanos::ZERO)
            }
            Move::Drop => {
                self.stats.rejected();
                self.stats.refused_at_lock();
                let session = self.requests[task.request].session;
                self.server.cores[core].outgoing.push_back(Outgoing::Drop(session, task.request));
                Some(self.server.cost_of_rejection())
            }
        };
        self.wake_ready(core);
        owed
    }

    fn keeps_core(&mut self, core: usize, task: Task, length: Nanos) -> Option<Nanos> {
        self.server.cores[core].activity = Activity::Executing(task);
        let until = self.stalls.delayed(core, self.now, self.now + length);
        self.stats.busy(self.now, until);
        self.agenda.schedule(until, Event::Core(core as u32));
        None
    }

    fn waits(&mut self, core: usize, request: RequestId) -> Option<Nanos> {
        let staged = self.staged.as_ref()?;
        if let Acquire::Timed { after } = staged.acquire {
            let wait = staged.progress[request.slot()].wait;
            self.agenda.schedule(self.now + after, Event::LockTimeout(request, wait));
        }
        match staged.kind {
            LockKind::Mutex => Some(Nanos::ZERO),
            LockKind::Spinlock => {
                self.server.cores[core].activity = Activity::Spinning(self.now);
                None
            }
        }
    }

    /// Resumes the requests whose turn has come: in the run queue of the core that gave the lock back, or on the core
    /// that they burn.
    fn wake_ready(&mut self, core: usize) {
        let Some(staged) = &mut self.staged else { return };
        let mut ready = std::mem::take(&mut staged.ready);
        for waiter in ready.drain(..) {
            self.goes_on(waiter, core);
        }
        if let Some(staged) = &mut self.staged {
            staged.ready = ready;
        }
    }

    /// A request is back from where it waited without a core.
    pub(super) fn returns(&mut self, request: RequestId) {
        let Some(staged) = &mut self.staged else { return };
        staged.returns(request, self.now);
        let home = self.home(self.requests[request].session);
        self.server.queues.push_task(home, self.now, Task { request });
        self.wake_ready(home);
        self.wake_idle_cores(home);
    }

    fn goes_on(&mut self, waiter: Waiter, core: usize) {
        let task = Task { request: waiter.request };
        let service = self.requests[waiter.request].service;
        match waiter.spins_on {
            // A disk that has a queue goes on with the next without asking for a core.
            None if let Some(length) = self.leaves_at_once(waiter.request, service) => {
                self.agenda.schedule(self.now + length, Event::Returns(waiter.request));
            }
            None => self.server.queues.push_task(core, self.now, task),
            Some(core) => {
                self.stats.busy(waiter.since, self.now);
                let work = self.staged.as_ref().map_or(Nanos::ZERO, |staged| staged.next_work(waiter.request, service));
                self.keeps_core(core, task, work);
            }
        }
    }

    fn leaves_at_once(&mut self, request: RequestId, service: Nanos) -> Option<Nanos> {
        let staged = self.staged.as_mut()?;
        let has_it = staged.progress[request.slot()].state == State::Underway;
        has_it.then(|| staged.leaves_core(request, service, self.now)).flatten()
    }

    /// A request may have waited long enough for a lock.
    pub(super) fn lock_times_out(&mut self, request: RequestId, wait: u32) {
        let Some(staged) = &mut self.staged else { return };
        if let Some(waiter) = staged.times_out(request, wait, self.now) {
            let home = self.home(self.requests[request].session);
            self.goes_on(waiter, home);
            self.wake_idle_cores(home);
        }
    }

    /// The run ends: what spinning cores have burned so far counts.
    pub(super) fn spinners_end(&mut self, end: Time) {
        for core in &self.server.cores {
            if let Activity::Spinning(since) = core.activity {
                self.stats.busy(since, end);
            }
        }
    }
}
