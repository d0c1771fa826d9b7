//! Which threads of the crew sleep, where, and how one of them is woken without losing a wake-up: a thread says that it is about to
//! sleep and looks once more; who has work for it says so first and looks for sleepers afterwards. One of the two sees the other.

use crate::sync::{AtomicU64, Condvar, Mutex, Ordering, Padded, fence, lock, wait};
use leeward_threading::Tasks;
use std::time::Duration;

/// Place in which a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SleepKind {
    /// On its own bell.
    Parked,
    /// In a system call on sockets, which [`super::Duties::wake`] ends.
    Network,
}

const AWAKE: u64 = 0;
const PARKED: u64 = 1 << 8;
const NETWORK: u64 = 1 << 9;

fn state(roles: Tasks, place: SleepKind) -> u64 {
    let mut bits = if place == SleepKind::Parked { PARKED } else { NETWORK };
    for (bit, role) in [Tasks::RECEIVE, Tasks::EXECUTE, Tasks::AWAIT_LEAVES].into_iter().enumerate() {
        bits |= u64::from(roles.contains(role)) << bit;
    }
    bits
}

fn bit(role: Tasks) -> u64 {
    state(role, SleepKind::Parked) & !PARKED
}

/// Wakes one thread; stays rung until that thread has heard it.
#[derive(Debug, Default)]
struct Parker {
    token: Mutex<bool>,
    condvar: Condvar,
}

impl Parker {
    fn unpark(&self) {
        *lock(&self.token) = true;
        self.condvar.notify_one();
    }

    fn park(&self, longest: Option<Duration>) {
        let mut rung = lock(&self.token);
        while !*rung {
            #[cfg(not(loom))]
            if let Some(longest) = longest {
                let (guard, waited) =
                    self.condvar.wait_timeout(rung, longest).unwrap_or_else(|poisoned| poisoned.into_inner());
                rung = guard;
                if waited.timed_out() {
                    break;
                }
                continue;
            }
            // The model checker knows no time: what only a time-out would end shows as a deadlock there.
            let _ = longest;
            rung = wait(&self.condvar, rung);
        }
        *rung = false;
    }
}

/// Flags and bells of all threads.
#[derive(Debug)]
pub(crate) struct Sleepers {
    threads: Vec<Padded<(AtomicU64, Parker)>>,
}

impl Sleepers {
    /// All awake.
    pub(crate) fn new(threads: usize) -> Self {
        Sleepers { threads: (0..threads).map(|_| Padded((AtomicU64::new(AWAKE), Parker::default()))).collect() }
    }

    /// `thread` is about to sleep. It must look for work and at the plan once more after this, and sleep only if there is neither.
    pub(crate) fn prepare_sleep(&self, thread: usize, roles: Tasks, place: SleepKind) {
        self.flag(thread).store(state(roles, place), Ordering::Relaxed);
        // Orders this store before the last look, against the fences of those who wake.
        fence(Ordering::SeqCst);
    }

    /// `thread` does not sleep, or no longer.
    pub(crate) fn set_awake(&self, thread: usize) {
        self.flag(thread).store(AWAKE, Ordering::Relaxed);
    }

    /// Sleeps until the thread's bell rings.
    pub(crate) fn sleep(&self, thread: usize, longest: Option<Duration>) {
        self.threads[thread].0.1.park(longest);
    }

    /// Wakes `thread` if it sleeps. `at_network` is called if it sleeps there.
    pub(crate) fn wake(&self, thread: usize, at_network: impl FnOnce()) -> bool {
        fence(Ordering::SeqCst);
        let seen = self.flag(thread).load(Ordering::Relaxed);
        seen != AWAKE && self.claim(thread, seen, at_network)
    }

    /// Wakes one of those that sleep on their bells and have this role, if there is one. The lowest first: those whose caches are
    /// warm stay in use.
    pub(crate) fn wake_one(&self, role: Tasks) -> bool {
        fence(Ordering::SeqCst);
        let wanted = PARKED | bit(role);
        (0..self.threads.len()).any(|thread| {
            let seen = self.flag(thread).load(Ordering::Relaxed);
            seen & wanted == wanted && self.claim(thread, seen, || ())
        })
    }

    /// Wakes one of those that have this role, wherever they sleep. One on its bell is preferred.
    pub(crate) fn wake_any(&self, role: Tasks, at_network: impl Fn(usize)) -> bool {
        self.wake_one(role)
            || (0..self.threads.len()).any(|thread| {
                let seen = self.flag(thread).load(Ordering::Relaxed);
                seen & bit(role) != 0 && self.claim(thread, seen, || at_network(thread))
            })
    }

    /// Each sleep is ended once, by whoever is first.
    fn claim(&self, thread: usize, seen: u64, at_network: impl FnOnce()) -> bool {
        let flag = self.flag(thread);
        let claimed = flag.compare_exchange(seen, AWAKE, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if claimed && seen & PARKED != 0 {
            self.threads[thread].0.1.unpark();
        } else if claimed {
            at_network();
        }
        claimed
    }

    fn flag(&self, thread: usize) -> &AtomicU64 {
        &self.threads[thread].0.0
    }

    /// Threads that sleep and have roles.
    pub(crate) fn on_duty(&self) -> usize {
        let roles = bit(Tasks::RECEIVE) | bit(Tasks::EXECUTE) | bit(Tasks::AWAIT_LEAVES);
        let has_roles = |thread: &usize| self.flag(*thread).load(Ordering::Relaxed) & roles != 0;
        (0..self.threads.len()).filter(has_roles).count()
    }

    /// Canary of the models: as [`Sleepers::going_to_sleep`], without the fence.
    #[cfg(all(test, loom))]
    pub(crate) fn prepare_sleep_unfenced(&self, thread: usize, roles: Tasks, place: SleepKind) {
        self.flag(thread).store(state(roles, place), Ordering::Relaxed);
    }
}
