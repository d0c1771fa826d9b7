//! Sleeping threads of the pool, and their wake-up without a lost one. A thread announces its sleep
//! and then checks for work once more. A thread with work publishes it first and looks for sleepers
//! afterwards. One of the two sees the other.

use crate::sync::{AtomicU64, Condvar, Mutex, Ordering, Padded, fence, lock, wait};
use leeward_threading::Tasks;
use std::time::Duration;

/// Kind of a thread's sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SleepKind {
    /// On its own parker.
    Parked,
    /// In a system call on sockets, which [`super::PoolControl`]'s `wake` ends.
    Network,
}

const AWAKE: u64 = 0;
const PARKED: u64 = 1 << 8;
const NETWORK: u64 = 1 << 9;

fn state(roles: Tasks, kind: SleepKind) -> u64 {
    let mut bits = if kind == SleepKind::Parked { PARKED } else { NETWORK };
    for (bit, role) in [Tasks::RECEIVE, Tasks::EXECUTE, Tasks::AWAIT_LEAVES].into_iter().enumerate() {
        bits |= u64::from(roles.contains(role)) << bit;
    }
    bits
}

fn bit(role: Tasks) -> u64 {
    state(role, SleepKind::Parked) & !PARKED
}

/// Parks one thread. A token stays set until that thread has taken it.
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
        let mut token = lock(&self.token);
        while !*token {
            #[cfg(not(loom))]
            if let Some(longest) = longest {
                let (guard, waited) =
                    self.condvar.wait_timeout(token, longest).unwrap_or_else(|poisoned| poisoned.into_inner());
                token = guard;
                if waited.timed_out() {
                    break;
                }
                continue;
            }
            // The model checker has no time: a sleep that only a timeout would end shows as a
            // deadlock there.
            let _ = longest;
            token = wait(&self.condvar, token);
        }
        *token = false;
    }
}

/// Sleep states and parkers of all threads.
#[derive(Debug)]
pub(crate) struct Sleepers {
    threads: Vec<Padded<(AtomicU64, Parker)>>,
}

impl Sleepers {
    /// Makes states with all threads awake.
    pub(crate) fn new(threads: usize) -> Self {
        Sleepers { threads: (0..threads).map(|_| Padded((AtomicU64::new(AWAKE), Parker::default()))).collect() }
    }

    /// Notes that `thread` is about to sleep. It must check for work and the plan once more after
    /// this, and sleep only if there is neither.
    pub(crate) fn prepare_sleep(&self, thread: usize, roles: Tasks, kind: SleepKind) {
        self.flag(thread).store(state(roles, kind), Ordering::Relaxed);
        // Orders this store before the last check, against the fences of threads that wake others.
        fence(Ordering::SeqCst);
    }

    /// Notes that `thread` is awake.
    pub(crate) fn set_awake(&self, thread: usize) {
        self.flag(thread).store(AWAKE, Ordering::Relaxed);
    }

    /// Sleeps until the thread is unparked.
    pub(crate) fn sleep(&self, thread: usize, longest: Option<Duration>) {
        self.threads[thread].0.1.park(longest);
    }

    /// Wakes `thread` if it sleeps. Calls `at_network` if it sleeps there.
    pub(crate) fn wake(&self, thread: usize, at_network: impl FnOnce()) -> bool {
        fence(Ordering::SeqCst);
        let seen = self.flag(thread).load(Ordering::Relaxed);
        seen != AWAKE && self.claim(thread, seen, at_network)
    }

    /// Wakes one parked thread with this role, if there is one. The lowest index first, so that
    /// threads with warm caches stay in use.
    pub(crate) fn wake_one(&self, role: Tasks) -> bool {
        fence(Ordering::SeqCst);
        let wanted = PARKED | bit(role);
        (0..self.threads.len()).any(|thread| {
            let seen = self.flag(thread).load(Ordering::Relaxed);
            seen & wanted == wanted && self.claim(thread, seen, || ())
        })
    }

    /// Wakes one sleeping thread with this role. A parked one is preferred.
    pub(crate) fn wake_any(&self, role: Tasks, at_network: impl Fn(usize)) -> bool {
        self.wake_one(role)
            || (0..self.threads.len()).any(|thread| {
                let seen = self.flag(thread).load(Ordering::Relaxed);
                seen & bit(role) != 0 && self.claim(thread, seen, || at_network(thread))
            })
    }

    /// Ends a sleep; each is ended once, by the first caller.
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

    /// Number of sleeping threads with a role.
    pub(crate) fn leads_poll(&self) -> usize {
        let roles = bit(Tasks::RECEIVE) | bit(Tasks::EXECUTE) | bit(Tasks::AWAIT_LEAVES);
        let has_roles = |thread: &usize| self.flag(*thread).load(Ordering::Relaxed) & roles != 0;
        (0..self.threads.len()).filter(has_roles).count()
    }

    /// Canary of the models: does [`Sleepers::prepare_sleep`] without the fence.
    #[cfg(all(test, loom))]
    pub(crate) fn prepare_sleep_unfenced(&self, thread: usize, roles: Tasks, kind: SleepKind) {
        self.flag(thread).store(state(roles, kind), Ordering::Relaxed);
    }
}
