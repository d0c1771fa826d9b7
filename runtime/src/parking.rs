//! Which cores sleep. A core that goes to sleep says so and then looks at the queues once more; a core that queues
//! something looks for sleepers afterwards. One of the two sees the other, so no wake-up is lost.

use crate::sync::{AtomicBool, Ordering, Padded, fence};

/// One flag per core.
pub struct Parking {
    asleep: Vec<Padded<AtomicBool>>,
}

impl Parking {
    /// All of so many cores awake.
    pub fn new(cores: usize) -> Self {
        Parking { asleep: (0..cores).map(|_| Padded(AtomicBool::new(false))).collect() }
    }

    /// `core` is about to sleep. It must look for work once more after this, and sleep only if there is none.
    pub fn going_to_sleep(&self, core: usize) {
        self.asleep[core].0.store(true, Ordering::Relaxed);
        // Orders this store before the look at the queues, against the fence in `sleeper`.
        fence(Ordering::SeqCst);
    }

    /// `core` does not sleep, or no longer.
    pub fn awake(&self, core: usize) {
        self.asleep[core].0.store(false, Ordering::Relaxed);
    }

    /// A core that sleeps and shall be woken for what `core` has just queued; each sleeper is named once.
    pub fn sleeper(&self, core: usize) -> Option<usize> {
        fence(Ordering::SeqCst);
        let cores = self.asleep.len();
        let claimed = |other: &usize| {
            let flag = &self.asleep[*other].0;
            flag.load(Ordering::Relaxed) && flag.swap(false, Ordering::Relaxed)
        };
        (1..cores).map(|step| (core + step) % cores).find(claimed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_sleeper_is_named_once() {
        let parking = Parking::new(3);
        assert_eq!(parking.sleeper(0), None);
        parking.going_to_sleep(2);
        parking.going_to_sleep(1);
        assert_eq!(parking.sleeper(0), Some(1));
        assert_eq!(parking.sleeper(0), Some(2));
        assert_eq!(parking.sleeper(0), None);
        parking.going_to_sleep(1);
        parking.awake(1);
        assert_eq!(parking.sleeper(0), None);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::queues::RunQueues;
    use leeward_control::units::Time;
    use loom::{sync::Arc, thread};

    /// Either the sleeper sees the job or the one who queued it sees the sleeper.
    #[test]
    fn no_wake_up_is_lost() {
        loom::model(|| {
            let queues = Arc::new(RunQueues::new(2));
            let parking = Arc::new(Parking::new(2));
            let (other_queues, other_parking) = (Arc::clone(&queues), Arc::clone(&parking));
            let sleeper = thread::spawn(move || {
                other_parking.going_to_sleep(1);
                !other_queues.are_empty()
            });
            queues.push(0, Time(1), 'a');
            let woken = parking.sleeper(0).is_some();
            let saw_the_job = sleeper.join().unwrap();
            assert!(woken || saw_the_job);
        });
    }
}
