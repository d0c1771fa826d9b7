//! State that the threads of a pool share: the plan, the assignments, the sleepers, and the poll
//! leaders. Does not contain the loop of a thread (`worker`), or the choice of setup
//! (`leeward_threading`).

use super::assignments::{Assignment, AssignmentTable};
use super::leader::PollLeader;
use super::plan::{Epoch, PlanWord};
use super::sleepers::{SleepKind, Sleepers};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, fence, lock};
use leeward_threading::{Fanout, LeftoverWork, Setup, Tasks};
use std::time::Duration;

/// Period at which each thread checks whether it may end while the pool stops.
pub(super) const STOPPING_SLEEP: Duration = Duration::from_millis(1);

/// A pool's shared state. Any thread may call it to bring work, change the plan, or stop the pool.
pub struct PoolControl {
    pub(super) plan: PlanWord,
    planner: Mutex<Planner>,
    pub(super) sleepers: Sleepers,
    /// The thread that waits at the clients' sockets.
    pub(super) client_leader: PollLeader,
    /// The thread that waits at the leaves' sockets, if threads share these.
    pub(super) leaf_leader: PollLeader,
    /// Calls of async requests in flight.
    async_calls: AtomicU64,
    switches: AtomicU64,
    pub(super) stopping: AtomicBool,
    /// Ends a thread's sleep at the network.
    wake: Box<dyn Fn(usize) + Send + Sync>,
    threads: usize,
}

struct Planner {
    assignments: AssignmentTable,
    /// Threads to wake during a change of plan.
    wake: Vec<u16>,
}

/// Numbers of a pool's threads at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCounts {
    /// All threads.
    pub threads: usize,
    /// Parked threads, which have no slot.
    pub parked: usize,
    /// Slots that no thread has taken yet.
    pub open: usize,
}

impl PoolControl {
    /// Makes the state for `threads` threads (from 1 to 65,535), which begin with `setup`. `wake`
    /// ends a thread's sleep at the network, or keeps it from the next one; any thread may call it.
    pub fn new(threads: usize, setup: &Setup, wake: impl Fn(usize) + Send + Sync + 'static) -> Self {
        let threads = threads.clamp(1, usize::from(u16::MAX));
        let planner =
            Planner { assignments: AssignmentTable::new(threads, setup), wake: Vec::with_capacity(2 * threads) };
        PoolControl {
            plan: PlanWord::new(setup),
            planner: Mutex::new(planner),
            sleepers: Sleepers::new(threads),
            client_leader: PollLeader::new(),
            leaf_leader: PollLeader::new(),
            async_calls: AtomicU64::new(0),
            switches: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            wake: Box::new(wake),
            threads,
        }
    }

    /// Number of threads in the pool.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The current setup.
    pub fn setup(&self) -> Setup {
        self.plan.load().1
    }

    /// Number of changes of setup so far.
    pub fn switches(&self) -> u64 {
        self.switches.load(Ordering::Relaxed)
    }

    /// Changes the setup. Threads take their new slots as soon as they end their current work;
    /// requests in flight end as they began. A setup for more threads than exist gets as many as
    /// exist.
    pub fn switch_setup(&self, setup: &Setup) {
        let mut planner = lock(&self.planner);
        if planner.assignments.setup() == setup || self.is_stopping() {
            return;
        }
        self.switches.store(self.switches.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.replan(&mut planner, setup);
    }

    /// Publishes a plan and wakes the threads that it concerns. Under the lock, so that threads
    /// which see the new epoch wait for the new table.
    fn replan(&self, planner: &mut Planner, setup: &Setup) {
        let Planner { assignments: table, wake } = planner;
        self.plan.store(table.epoch().next(), setup);
        // Orders the store before the check of leftover calls, against the fence in `begin_calls`.
        // A call that begins meanwhile is seen here, or sees the plan without a thread that waits
        // for it.
        fence(Ordering::SeqCst);
        let leftover = LeftoverWork { async_calls: self.async_calls().min(u64::from(u32::MAX)) as u32 };
        table.plan(setup, leftover, wake);
        for thread in wake.drain(..) {
            self.wake(usize::from(thread));
        }
    }

    /// Calls of async requests in flight.
    pub fn async_calls(&self) -> u64 {
        self.async_calls.load(Ordering::Relaxed)
    }

    /// Notes that the calls of an async request are about to leave. Balanced by
    /// [`PoolControl::end_calls`].
    pub fn begin_calls(&self) {
        self.async_calls.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.plan.load().1.fanout == Fanout::Sync {
            self.replan_if_needed();
        }
    }

    /// Notes that the calls of an async request have ended, and the request was continued. After
    /// the last one, the thread that waited for leftover calls is released.
    pub fn end_calls(&self) {
        let before = self.async_calls.fetch_sub(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if before == 1 && self.plan.load().1.fanout == Fanout::Sync {
            self.replan_if_needed();
        }
    }

    /// Plans again if a sync setup lacks a thread for leftover calls, or has one without such
    /// calls.
    fn replan_if_needed(&self) {
        let mut planner = lock(&self.planner);
        let setup = *planner.assignments.setup();
        let has_calls = self.async_calls() > 0;
        if setup.fanout == Fanout::Sync && planner.assignments.has_leftover_slot() != has_calls {
            self.replan(&mut planner, &setup);
        }
    }

    /// Returns the current plan's epoch, and the slot of `thread` under it.
    pub(super) fn claim(&self, thread: usize) -> (Epoch, Option<Assignment>) {
        let table = &mut lock(&self.planner).assignments;
        (table.epoch(), table.claim(thread as u16))
    }

    /// Wakes one sleeping thread with this role for work that was published before. Returns whether
    /// there was one.
    pub fn notify(&self, role: Tasks) -> bool {
        self.sleepers.wake_any(role, |thread| (self.wake)(thread))
    }

    /// Does the same as [`PoolControl::notify`] for additional help: only for a parked thread, not
    /// for one that waits at sockets.
    pub fn notify_parked(&self, role: Tasks) -> bool {
        self.sleepers.wake_one(role)
    }

    fn wake(&self, thread: usize) -> bool {
        self.sleepers.wake(thread, || (self.wake)(thread))
    }

    /// Releases the leadership of `thread`, if it has it, and wakes another thread of this role.
    pub(super) fn release_leader(&self, leader: &PollLeader, role: Tasks, thread: usize) {
        if leader.release(thread) {
            self.sleepers.wake_one(role);
        }
    }

    /// Parks until there is a slot, or the pool stops. Returns at once if the plan's epoch is not
    /// `epoch`.
    pub(super) fn park(&self, thread: usize, epoch: Epoch) {
        self.sleepers.prepare_sleep(thread, Tasks::default(), SleepKind::Parked);
        if self.plan.epoch() == epoch {
            self.sleepers.sleep(thread, self.is_stopping().then_some(STOPPING_SLEEP));
        }
        self.sleepers.set_awake(thread);
    }

    /// Sleeps on the thread's parker.
    pub(super) fn sleep(&self, thread: usize, longest: Duration) {
        self.sleepers.sleep(thread, Some(longest));
    }

    /// Number of sleeping threads that have a role.
    pub fn asleep(&self) -> usize {
        self.sleepers.leads_poll()
    }

    /// Asks all threads to finish their pending work and end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    pub(super) fn wake_all(&self) {
        (0..self.threads).for_each(|thread| _ = self.wake(thread));
    }

    /// Returns whether the pool has been asked to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Returns whether a slot exists only for calls of an older setup.
    #[cfg(all(test, loom))]
    pub(super) fn has_leftover_slot(&self) -> bool {
        lock(&self.planner).assignments.has_leftover_slot()
    }

    /// Canary of the models: a call that begins without checking the plan.
    #[cfg(all(test, loom))]
    pub(super) fn begin_calls_unchecked(&self) {
        self.async_calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Numbers of threads by state.
    pub fn thread_counts(&self) -> ThreadCounts {
        let table = &lock(&self.planner).assignments;
        ThreadCounts { threads: self.threads, parked: table.parked(), open: table.open() }
    }
}

impl std::fmt::Debug for PoolControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolControl")
            .field("setup", &self.setup())
            .field("thread_counts", &self.thread_counts())
            .finish_non_exhaustive()
    }
}
