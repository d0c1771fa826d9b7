//! Model of cores that park beside a first core that is about to sleep. The model checker finds no
//! interleaving that forgets work.

use super::stubs::{NO_LOAD, core_states};
use super::*;
use crate::parking::Parking;
use loom::{sync::Arc, thread};

/// A parked core wakes, whether it is granted before it waits, meanwhile, or afterwards.
#[test]
fn no_grant_is_lost() {
    loom::model(|| {
        let states = Arc::new(core_states(CoreChange::Grant(1), 2, 1));
        let other = Arc::clone(&states);
        let resting = thread::spawn(move || other.wait_granted(1));
        states.tick(Time(10), || NO_LOAD, |_| ());
        resting.join().unwrap();
        assert!(!states.is_parked(1));
    });
}

/// A core parks while all cores must end. It does not park, or wakes again.
#[test]
fn no_core_stays_parked_at_shutdown() {
    loom::model(|| {
        let states = Arc::new(core_states(CoreChange::Grant(1), 2, 1));
        states.tick(Time(10), || NO_LOAD, |_| ());
        let other = Arc::clone(&states);
        let core = thread::spawn(move || {
            other.wait_granted(1);
            if other.park(1, Time(20)) {
                other.wait_granted(1);
            }
        });
        states.close(Time(20));
        core.join().unwrap();
        assert!(!states.is_parked(1));
    });
}

/// Model of the kernel's two polls: whether the second core's poll has an event, and whether the
/// first core's poll watches it. Each event causes one edge there.
#[derive(Default)]
struct Kernel {
    ready: bool,
    watched: bool,
    edges: u32,
}

impl Kernel {
    fn deliver(&mut self) {
        self.ready = true;
        self.edges += u32::from(self.watched);
    }

    fn watch(&mut self) {
        self.watched = true;
        self.edges += u32::from(self.ready);
    }
}

struct Cores {
    roster: CoreStates,
    parking: Parking,
    kernel: Arc<Mutex<Kernel>>,
    /// The second core's network, with the work that it has put off.
    network: Mutex<u32>,
}

impl Cores {
    fn new(put_off: u32) -> Arc<Self> {
        let kernel: Arc<Mutex<Kernel>> = Arc::default();
        let waker = Arc::clone(&kernel);
        let cores = Cores {
            roster: core_states(CoreChange::Grant(1), 2, 1),
            // A waker is an edge like any other.
            parking: Parking::new(2, move |_| lock(&waker).edges += 1),
            kernel,
            network: Mutex::new(put_off),
        };
        cores.roster.tick(Time(10), || NO_LOAD, |_| ());
        cores.roster.wait_granted(1);
        Arc::new(cores)
    }

    /// Parks as `Core::wait_parked` does.
    fn second_parks(&self) {
        let network = lock(&self.network);
        assert!(self.roster.park(1, Time(20)));
        self.parking.set_absent(1, true);
        lock(&self.kernel).watch();
        drop(network);
        self.roster.mark_leftover(1);
        self.parking.wake(0);
    }

    /// One round of the first core, as in `Core::run_loop`. Returns the work done, and whether the
    /// core sleeps afterwards.
    fn first_looks(&self) -> (u32, bool) {
        lock(&self.kernel).edges = 0;
        let (mut done, mut contended) = (0, false);
        if self.roster.is_parked(1) {
            self.roster.clear_leftover(1);
            match self.network.try_lock() {
                Ok(mut put_off) => {
                    done += std::mem::take(&mut *put_off);
                    done += u32::from(std::mem::take(&mut lock(&self.kernel).ready));
                }
                Err(_) => contended = true,
            }
        }
        self.parking.prepare_sleep(0);
        (done, !contended && !self.roster.has_leftover())
    }

    fn is_woken(&self) -> bool {
        lock(&self.kernel).edges > 0
    }
}

/// The first core does the work that a parking core has put off, or does not sleep over it.
#[test]
fn deferred_work_is_not_lost() {
    loom::model(|| {
        let cores = Cores::new(1);
        let other = Arc::clone(&cores);
        let second = thread::spawn(move || other.second_parks());
        let (done, sleeps) = cores.first_looks();
        second.join().unwrap();
        assert!(done == 1 || !sleeps || cores.is_woken());
    });
}

/// A message arrives for a core that parks. The first core reads it, or does not sleep over it.
#[test]
fn no_message_is_lost() {
    loom::model(|| {
        let cores = Cores::new(0);
        let (parks, comes) = (Arc::clone(&cores), Arc::clone(&cores));
        let second = thread::spawn(move || parks.second_parks());
        let message = thread::spawn(move || lock(&comes.kernel).deliver());
        let (done, sleeps) = cores.first_looks();
        second.join().unwrap();
        message.join().unwrap();
        assert!(done == 1 || !sleeps || cores.is_woken());
    });
}

/// Another thread sets a timer of a core that parks. The first core sees it before it sleeps, or is
/// woken for it.
#[test]
fn no_timer_is_lost() {
    loom::model(|| {
        let cores = Cores::new(0);
        let timer = Arc::new(AtomicU64::new(0));
        let (parks, sets, set) = (Arc::clone(&cores), Arc::clone(&cores), Arc::clone(&timer));
        let second = thread::spawn(move || parks.second_parks());
        let setter = thread::spawn(move || {
            set.store(1, Ordering::Relaxed);
            sets.parking.wake(1);
        });
        let (_, sleeps) = cores.first_looks();
        // As the first core asks for the next timeout of parked cores.
        let sees = cores.roster.is_parked(1) && timer.load(Ordering::Relaxed) == 1;
        second.join().unwrap();
        setter.join().unwrap();
        assert!(sees || !sleeps || cores.is_woken());
    });
}
