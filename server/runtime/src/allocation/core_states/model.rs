//! Cores that park beside a first core that is about to sleep: the model checker finds no order of steps in which something
//! is forgotten.

use super::stubs::{NO_LOAD, core_states};
use super::*;
use crate::parking::Parking;
use loom::{sync::Arc, thread};

/// A core that rests comes, whether it is granted before it lies down, while it does, or after.
#[test]
fn no_grant_is_lost() {
    loom::model(|| {
        let roster = Arc::new(core_states(CoreChange::Grant(1), 2, 1));
        let other = Arc::clone(&roster);
        let resting = thread::spawn(move || other.wait_granted(1));
        roster.tick(Time(10), || NO_LOAD, |_| ());
        resting.join().unwrap();
        assert!(!roster.is_parked(1));
    });
}

/// A core parks while all are told to end: it does not, or comes back.
#[test]
fn nobody_rests_when_all_end() {
    loom::model(|| {
        let roster = Arc::new(core_states(CoreChange::Grant(1), 2, 1));
        roster.tick(Time(10), || NO_LOAD, |_| ());
        let other = Arc::clone(&roster);
        let core = thread::spawn(move || {
            other.wait_granted(1);
            if other.park(1, Time(20)) {
                other.wait_granted(1);
            }
        });
        roster.close(Time(20));
        core.join().unwrap();
        assert!(!roster.is_parked(1));
    });
}

/// Model of the kernel's two polls: whether there is something at the second core's, and whether the first core's has
/// been told to say so, which happens once for everything that comes.
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
    /// The second core's network, with what it has put off.
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

    /// As `Core::rest` does.
    fn second_parks(&self) {
        let network = lock(&self.network);
        assert!(self.roster.park(1, Time(20)));
        self.parking.set_absent(1, true);
        lock(&self.kernel).watch();
        drop(network);
        self.roster.mark_leftover(1);
        self.parking.wake(0);
    }

    /// A turn of the first core, as `Core::work` does it: what it has done, and whether it sleeps after that.
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

/// The first core does what a parking core has put off, or the parking core does not sleep over it.
#[test]
fn what_is_put_off_is_not_forgotten() {
    loom::model(|| {
        let cores = Cores::new(1);
        let other = Arc::clone(&cores);
        let second = thread::spawn(move || other.second_parks());
        let (done, sleeps) = cores.first_looks();
        second.join().unwrap();
        assert!(done == 1 || !sleeps || cores.is_woken());
    });
}

/// A message comes for a core that parks: the first core has read it, or does not sleep over it.
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

/// Somebody sets a timer of a core that parks: the first core sees it before it sleeps, or is woken for it.
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
        // As it asks for the next time-out of those that are parked.
        let sees = cores.roster.is_parked(1) && timer.load(Ordering::Relaxed) == 1;
        second.join().unwrap();
        setter.join().unwrap();
        assert!(sees || !sleeps || cores.is_woken());
    });
}
