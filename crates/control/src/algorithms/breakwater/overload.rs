//! Whether an overload is shown. Before that no request is rejected for its delay, and none by a
//! bound: a queue that cores work off by themselves leaves nobody behind whom a rejection would
//! help. A core that was woken late, or that the machine took away for a moment, finds such a
//! queue, and often a single request.
//!
//! An overload is shown by a queue that stands: for five objectives each tick has found requests in
//! a queue for cores or, where they are counted, in the server. It is over when cores have had no
//! queue for three fifths of the recent time. Never as published.

use super::pool::Pool;
use crate::server::Signals;
use crate::units::{Nanos, Time};

/// Part of the delay target from which a queue is one: cores that are never without such a queue
/// never run dry.
const QUEUE: f64 = 0.25;
/// Objectives without a break that show an overload. Half loaded cores have worked off by then what
/// came while they slept.
const UNBROKEN: u64 = 5;
/// Objectives that are the recent time: credits keep the queue of one core so short that it is
/// often gone for a moment.
const RECENT: u64 = 25;
/// Share of the recent time with a queue from which an overload that was shown lasts. Cores at half
/// load have one for 0.3 of the time, at their capacity for 0.8.
const LASTS: f64 = 0.4;

/// The signs of an overload.
#[derive(Debug)]
pub(super) struct Overload {
    queue: Nanos,
    objective: Nanos,
    /// First tick of those without a break.
    unbroken_since: Option<Time>,
    /// Share of the recent time in which there was a queue.
    share: f64,
    now: Time,
}

impl Overload {
    /// Under a delay target and an objective.
    pub(super) fn new(target: Nanos, objective: Nanos) -> Self {
        let (queue, objective) = (target.scale(QUEUE).max(Nanos(1)), objective.max(Nanos(1)));
        Overload { queue, objective, unbroken_since: None, share: 0.0, now: Time::ZERO }
    }

    /// Runs one control tick. `is_occupied`: requests are in the server, as far as they are
    /// counted.
    pub(super) fn tick(&mut self, pool: &Pool, signals: &Signals, is_occupied: bool) {
        let now = signals.now;
        let passed = now.since(std::mem::replace(&mut self.now, now));
        let has_queue = signals.delay() >= self.queue;
        // A queue that is found after a pause is one finding. Of the pause it says nothing.
        let passed = if has_queue { passed.min(self.objective) } else { passed };
        let weight = 1.0 - (-(passed.0 as f64) / (self.objective * RECENT).0 as f64).exp();
        self.share += (f64::from(u8::from(has_queue)) - self.share) * weight;
        self.unbroken_since = if has_queue || is_occupied { self.unbroken_since.or(Some(now)) } else { None };
        if self.unbroken_since.is_some_and(|since| now.since(since) >= self.objective * UNBROKEN) {
            self.share = 1.0;
        }
        pool.set_calm(self.share < LASTS);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const TARGET: Nanos = Nanos::from_micros(80);
    const OBJECTIVE: Nanos = Nanos::from_micros(200);

    struct World {
        overload: Overload,
        pool: Pool,
        now: Time,
    }

    impl World {
        fn new() -> Self {
            World { overload: Overload::new(TARGET, OBJECTIVE), pool: Pool::new(100), now: Time::ZERO }
        }

        /// Ticks of 20 us with such a delay. How many of them found the server calm.
        fn pass(&mut self, ticks: u32, delay_us: u64, is_occupied: bool) -> u32 {
            let mut calm = 0;
            for _ in 0..ticks {
                self.now += Nanos::from_micros(20);
                let signals = Signals { run_delay: Nanos::from_micros(delay_us), ..Signals::idle(self.now) };
                self.overload.tick(&self.pool, &signals, is_occupied);
                calm += u32::from(self.pool.is_calm());
            }
            calm
        }
    }

    #[test]
    fn a_queue_that_is_worked_off_shows_no_overload() {
        let mut world = World::new();
        for _ in 0..100 {
            assert_eq!(world.pass(50, 5_000, true), 50);
            assert_eq!(world.pass(200, 0, false), 200);
        }
        assert_eq!(world.pass(200, 10, false), 200, "a queue that is hardly one");
    }

    #[test]
    fn a_queue_that_stands_shows_an_overload() {
        for (delay_us, is_occupied) in [(20, false), (0, true)] {
            let mut world = World::new();
            assert_eq!(world.pass(50, delay_us, is_occupied), 50);
            assert_eq!(world.pass(500, delay_us, is_occupied), 0);
        }
    }

    #[test]
    fn an_overload_lasts_until_cores_have_no_queue_for_a_good_part_of_the_time() {
        let mut world = World::new();
        world.pass(60, 20, false);
        for _ in 0..200 {
            assert_eq!(world.pass(8, 20, false) + world.pass(2, 0, false), 0, "as at the capacity");
        }
        let calm = (0..200).map(|_| world.pass(3, 20, false) + world.pass(7, 0, false)).sum::<u32>();
        assert!((1_500..1_700).contains(&calm), "as at half load, after some milliseconds: {calm} of 2,000");
    }
}
