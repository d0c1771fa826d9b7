//! Sleeping cores. A core sets its flag before it sleeps and then checks the queues once more. A
//! core that queues work checks the flags afterwards. One of the two sees the other, so no wake-up
//! is lost.

use crate::sync::{AtomicBool, Ordering, Padded, fence};

/// A sleep flag per core, and the function that wakes a core.
pub struct Parking {
    asleep: Vec<Padded<AtomicBool>>,
    /// Revoked cores. Their wake-ups go to the first core.
    absent: Vec<Padded<AtomicBool>>,
    wake: Box<dyn Fn(usize) + Send + Sync>,
}

impl Parking {
    /// Makes flags with all cores awake. `wake` ends a core's sleep, or keeps it from the next one;
    /// any thread may call it.
    pub fn new(cores: usize, wake: impl Fn(usize) + Send + Sync + 'static) -> Self {
        let flags = || (0..cores).map(|_| Padded(AtomicBool::new(false))).collect();
        Parking { asleep: flags(), absent: flags(), wake: Box::new(wake) }
    }

    /// Notes that `core` is about to sleep. It must check for work once more after this, and sleep
    /// only if there is none.
    pub fn prepare_sleep(&self, core: usize) {
        self.asleep[core].0.store(true, Ordering::Relaxed);
        // Orders this store before the check of the queues, against the fence in `sleeper`.
        fence(Ordering::SeqCst);
    }

    /// Notes that `core` is awake.
    pub fn set_awake(&self, core: usize) {
        self.asleep[core].0.store(false, Ordering::Relaxed);
    }

    /// Returns a sleeping core to be woken for work that `core` has just queued. Each sleeper is
    /// returned once.
    pub fn sleeper(&self, core: usize) -> Option<usize> {
        fence(Ordering::SeqCst);
        let cores = self.asleep.len();
        (1..cores).map(|step| (core + step) % cores).find(|other| self.claim(*other))
    }

    /// Wakes one other sleeping core, if there is one, for work that `core` has just queued for
    /// itself.
    pub fn wake_another(&self, core: usize) {
        if let Some(sleeper) = self.sleeper(core) {
            (self.wake)(sleeper);
        }
    }

    /// Wakes `core` if it sleeps, for work that only it can do; instead of a revoked core, the
    /// first core. Returns whether a core was woken.
    pub fn wake(&self, core: usize) -> bool {
        fence(Ordering::SeqCst);
        let core = if self.absent[core].0.load(Ordering::Relaxed) { 0 } else { core };
        let claimed = self.claim(core);
        if claimed {
            (self.wake)(core);
        }
        claimed
    }

    /// Notes that `core` is revoked, or active again. Must come before it wakes the first core for
    /// its leftover work.
    pub fn set_absent(&self, core: usize, absent: bool) {
        self.absent[core].0.store(absent, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Wakes every core, asleep or not.
    pub fn wake_all(&self) {
        (0..self.asleep.len()).for_each(&self.wake);
    }

    fn claim(&self, core: usize) -> bool {
        let flag = &self.asleep[core].0;
        flag.load(Ordering::Relaxed) && flag.swap(false, Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::{Mutex, lock};
    use std::sync::Arc;

    #[test]
    fn each_sleeper_is_returned_once() {
        let parking = Parking::new(3, |_| ());
        assert_eq!(parking.sleeper(0), None);
        parking.prepare_sleep(2);
        parking.prepare_sleep(1);
        assert_eq!(parking.sleeper(0), Some(1));
        assert_eq!(parking.sleeper(0), Some(2));
        assert_eq!(parking.sleeper(0), None);
        parking.prepare_sleep(1);
        parking.set_awake(1);
        assert_eq!(parking.sleeper(0), None);
    }

    #[test]
    fn a_sleeping_core_is_woken_once() {
        let woken = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&woken);
        let parking = Parking::new(3, move |core| lock(&log).push(core));
        assert!(!parking.wake(1));
        parking.prepare_sleep(1);
        assert!(parking.wake(1) && !parking.wake(1));
        parking.prepare_sleep(0);
        parking.wake_another(0);
        parking.wake_another(2);
        parking.wake_all();
        assert_eq!(*lock(&woken), [1, 0, 0, 1, 2]);
    }

    #[test]
    fn the_first_core_is_woken_instead_of_an_absent_one() {
        let woken = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&woken);
        let parking = Parking::new(3, move |core| lock(&log).push(core));
        parking.set_absent(2, true);
        assert!(!parking.wake(2));
        parking.prepare_sleep(0);
        assert!(parking.wake(2) && !parking.wake(2));
        parking.set_absent(2, false);
        parking.prepare_sleep(2);
        assert!(parking.wake(2));
        assert_eq!(*lock(&woken), [0, 2]);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::queues::RunQueues;
    use leeward_core::units::Time;
    use loom::{sync::Arc, thread};

    /// Either the sleeper sees the job, or the thread that queued it sees the sleeper.
    #[test]
    fn no_wake_up_is_lost() {
        loom::model(|| {
            let queues = Arc::new(RunQueues::new(2));
            let parking = Arc::new(Parking::new(2, |_| ()));
            let (other_queues, other_parking) = (Arc::clone(&queues), Arc::clone(&parking));
            let sleeper = thread::spawn(move || {
                other_parking.prepare_sleep(1);
                !other_queues.are_empty()
            });
            queues.push(0, Time(1), 'a');
            let woken = parking.sleeper(0).is_some();
            let saw_the_job = sleeper.join().unwrap();
            assert!(woken || saw_the_job);
        });
    }

    /// Two other threads queue work for a core that goes to sleep, as wakers and timers do. The
    /// core sees it, or one of the threads has woken it. Afterwards the core finds all the work.
    #[test]
    fn a_core_is_woken_by_the_first_of_two_threads() {
        loom::model(|| {
            let queues = Arc::new(RunQueues::new(1));
            let parking = Arc::new(Parking::new(1, |_| ()));
            let waker = |now: u64| {
                let (queues, parking) = (Arc::clone(&queues), Arc::clone(&parking));
                thread::spawn(move || {
                    queues.push(0, Time(now), now);
                    parking.wake(0)
                })
            };
            let wakers = [waker(1), waker(2)];
            parking.prepare_sleep(0);
            let saw = !queues.are_empty();
            let woken = wakers.map(|waker| waker.join().unwrap());
            assert!(saw || woken.contains(&true));
            assert!(!woken.iter().all(|woken| *woken), "woken twice from one sleep");
            assert!(queues.pop(0).is_some() && queues.pop(0).is_some());
        });
    }
}
