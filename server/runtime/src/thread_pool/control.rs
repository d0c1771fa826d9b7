//! State that the threads of a crew share: the plan, who has which slot, who sleeps, who watches the sockets. Never here: the loop of a
//! thread (`worker`), and which setup fits (`leeward_threading`).

use super::assignments::{Assignment, AssignmentTable};
use super::leader::PollLeader;
use super::plan::{Epoch, PlanWord};
use super::sleepers::{SleepKind, Sleepers};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, fence, lock};
use leeward_threading::{Fanout, LeftoverWork, Setup, Tasks};
use std::time::Duration;

/// While the crew ends, each thread looks this often whether it may.
pub(super) const STOPPING_SLEEP: Duration = Duration::from_millis(1);

/// A crew's shared state. Whoever brings work, changes the plan or stops the crew calls it, from any thread.
pub struct PoolControl {
    pub(super) plan: PlanWord,
    planner: Mutex<Planner>,
    pub(super) sleepers: Sleepers,
    /// Which thread waits at the clients' sockets.
    pub(super) client_leader: PollLeader,
    /// Which thread waits at the leaves' sockets, if the threads that do share them.
    pub(super) leaf_leader: PollLeader,
    /// Calls of async requests that are out.
    async_calls: AtomicU64,
    switches: AtomicU64,
    pub(super) stopping: AtomicBool,
    /// Ends a thread's sleep at the network.
    wake: Box<dyn Fn(usize) + Send + Sync>,
    threads: usize,
}

struct Planner {
    assignments: AssignmentTable,
    /// Threads to wake, as a change of plan goes on.
    wake: Vec<u16>,
}

/// Threads of a crew at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCounts {
    /// All of them.
    pub threads: usize,
    /// Threads without a slot that are parked.
    pub parked: usize,
    /// Slots that no thread has taken yet.
    pub open: usize,
}

impl PoolControl {
    /// For so many threads (from 1 to 65,535), which begin with `setup`. `wake` ends a thread's sleep at the network, or keeps it from
    /// the next one; any thread may call it.
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

    /// Threads of the crew.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The setup that holds.
    pub fn setup(&self) -> Setup {
        self.plan.load().1
    }

    /// Changes of setup so far.
    pub fn switches(&self) -> u64 {
        self.switches.load(Ordering::Relaxed)
    }

    /// Changes the setup. Threads take their new slots as soon as they end what they are at; requests in flight end as they began. A
    /// setup that needs more threads than there are gets as many as there are.
    pub fn switch_setup(&self, setup: &Setup) {
        let mut planner = lock(&self.planner);
        if planner.assignments.setup() == setup || self.is_stopping() {
            return;
        }
        self.switches.store(self.switches.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.replan(&mut planner, setup);
    }

    /// Publishes a plan and has those hear of it whom it concerns. Under the lock, so that threads which see the new epoch wait
    /// for the new table.
    fn replan(&self, planner: &mut Planner, setup: &Setup) {
        let Planner { assignments: claims, wake } = planner;
        self.plan.store(claims.epoch().next(), setup);
        // Orders the store before the look at what is owed, against the fence in `begin_calls`: a call that leaves meanwhile is
        // seen here, or sees the plan that has nobody to wait for it.
        fence(Ordering::SeqCst);
        let owed = LeftoverWork { async_calls: self.async_calls().min(u64::from(u32::MAX)) as u32 };
        claims.plan(setup, owed, wake);
        for thread in wake.drain(..) {
            self.wake(usize::from(thread));
        }
    }

    /// Calls of async requests that are out.
    pub fn async_calls(&self) -> u64 {
        self.async_calls.load(Ordering::Relaxed)
    }

    /// The calls of an async request are about to leave. Balanced by [`Control::end_calls`].
    pub fn begin_calls(&self) {
        self.async_calls.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.plan.load().1.fanout == Fanout::Sync {
            self.replan_if_needed();
        }
    }

    /// The calls of an async request have ended, and it has been continued. Whoever ends the last has the thread go that waited for them.
    pub fn end_calls(&self) {
        let before = self.async_calls.fetch_sub(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if before == 1 && self.plan.load().1.fanout == Fanout::Sync {
            self.replan_if_needed();
        }
    }

    /// Makes the claims anew if a sync setup lacks a thread for what is owed, or has one for nothing.
    fn replan_if_needed(&self) {
        let mut planner = lock(&self.planner);
        let setup = *planner.assignments.setup();
        let owes = self.async_calls() > 0;
        if setup.fanout == Fanout::Sync && planner.assignments.has_leftover_slot() != owes {
            self.replan(&mut planner, &setup);
        }
    }

    /// The slot of `thread` under the plan that holds, and that plan's epoch.
    pub(super) fn claim(&self, thread: usize) -> (Epoch, Option<Assignment>) {
        let claims = &mut lock(&self.planner).assignments;
        (claims.epoch(), claims.claim(thread as u16))
    }

    /// There is work for threads with this role, which was published before: wakes one that sleeps. Says whether there was one.
    pub fn notify(&self, role: Tasks) -> bool {
        self.sleepers.wake_any(role, |thread| (self.wake)(thread))
    }

    /// As [`Control::call`], for a helping hand: only a thread that sleeps on its bell, not one that watches sockets.
    pub fn notify_parked(&self, role: Tasks) -> bool {
        self.sleepers.wake_one(role)
    }

    fn wake(&self, thread: usize) -> bool {
        self.sleepers.wake(thread, || (self.wake)(thread))
    }

    /// `thread` watches no longer, if it did; another of its kind is to.
    pub(super) fn release_leader(&self, watch: &PollLeader, role: Tasks, thread: usize) {
        if watch.release(thread) {
            self.sleepers.wake_one(role);
        }
    }

    /// Rests until there is a slot, or the crew stops: at once if the plan is another than that of `epoch`.
    pub(super) fn park(&self, thread: usize, epoch: Epoch) {
        self.sleepers.prepare_sleep(thread, Tasks::default(), SleepKind::Parked);
        if self.plan.epoch() == epoch {
            self.sleepers.sleep(thread, self.is_stopping().then_some(STOPPING_SLEEP));
        }
        self.sleepers.set_awake(thread);
    }

    /// Sleeps on the thread's bell.
    pub(super) fn sleep(&self, thread: usize, longest: Duration) {
        self.sleepers.sleep(thread, Some(longest));
    }

    /// Threads with a duty that sleep.
    pub fn asleep(&self) -> usize {
        self.sleepers.on_duty()
    }

    /// Asks all threads to finish what they owe and end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    pub(super) fn wake_all(&self) {
        (0..self.threads).for_each(|thread| _ = self.wake(thread));
    }

    /// Whether the crew has been asked to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Whether a slot is there for calls of an older setup alone.
    #[cfg(all(test, loom))]
    pub(super) fn has_leftover_slot(&self) -> bool {
        lock(&self.planner).assignments.has_leftover_slot()
    }

    /// Canary of the models: a call that leaves without a look at the plan.
    #[cfg(all(test, loom))]
    pub(super) fn begin_calls_unchecked(&self) {
        self.async_calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts of threads by what they do at this moment.
    pub fn thread_counts(&self) -> ThreadCounts {
        let claims = &lock(&self.planner).assignments;
        ThreadCounts { threads: self.threads, parked: claims.parked(), open: claims.open() }
    }
}

impl std::fmt::Debug for PoolControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control")
            .field("setup", &self.setup())
            .field("census", &self.thread_counts())
            .finish_non_exhaustive()
    }
}
