//! Whether an overload is shown. Before that no request is rejected for its delay, and none by a
//! bound: a queue that cores work off by themselves leaves nobody behind whom a rejection would
//! help. A core that was woken late, or that the machine took away for a moment, finds such a
//! queue, and often a single request.
//!
//! An overload is shown by a queue that stands and gets no shorter: for fifteen objectives there has
//! always been a request in a queue for cores or, where they are counted, in the server, and in the
//! last ten of these about as many came as went. Who comes all at once, as after a pause of the machine
//! or of the clients, comes in the first five. Ticks look at moments only, and there is none while
//! cores sleep, but what is found at one tick tells of the time before: who has waited since the last
//! tick was there all along.
//!
//! It is shown sooner by a queue whose delay grows though requests are worked off all the time: in twice two
//! objectives, but not as fast as time passes. That is how old a queue gets of which nothing is worked
//! off, as by a core that the machine has taken away, and one that came all at once.
//!
//! Few clients let such a queue run dry now and then: it also shows an overload that there was one
//! for nine tenths of the recent time.
//!
//! An overload is over when in seven tenths of the recent time cores had no queue, nobody was
//! rejected and no session waited for a credit. Never as published.

use super::pool::Pool;
use crate::server::Signals;
use crate::units::{Nanos, Time};

/// Part of the delay target from which a queue is one: cores that are never without such a queue
/// never run dry.
const QUEUE: f64 = 0.25;
/// Objectives for which a queue has to stand before it is looked at: those that come all at once have come.
const BEFORE: u64 = 5;
/// Objectives in which it is then looked at as a whole: some tens of requests.
const LOOK: u64 = 10;
/// Objectives, and requests that went, in which a queue that grows is seen to grow; twice in a row.
const RISE: (u64, u64) = (2, 40);
/// Growth of the delay in that time, as a part of it: an overload of a twentieth, and one of four times
/// the capacity. Faster than that grows only what nobody works off, or what came all at once.
const RISES: std::ops::Range<f64> = 0.05..0.8;
/// Part of those who went that has to have come, or the queue is being worked off: its delay falls
/// by a tenth of the time that passes, or by more.
const CAME: f64 = 0.9;
/// Objectives that are the recent time: credits keep the queue of one core so short that it is
/// often gone for a moment.
const RECENT: u64 = 25;
/// Share of the recent time from which an overload that was shown lasts. Cores at half load have a queue for
/// less than that, and at their capacity for 0.8, unless their controller keeps it short: it rejects
/// requests then, or has sessions wait for credits.
const LASTS: f64 = 0.3;
/// Share of the recent time with a queue that shows an overload, too: few clients let it run dry again and again.
const FULL: f64 = 0.9;

/// The signs of an overload.
#[derive(Debug)]
pub(super) struct Overload {
    queue: Nanos,
    objective: Nanos,
    /// The look under way.
    look: Option<Look>,
    rise: Option<Rise>,
    is_shown: bool,
    /// Share of the recent time with a queue, or in which the controller kept requests away.
    share: f64,
    /// When a session last wanted more credits than it got.
    wanted: Option<Time>,
    now: Time,
}

/// Time in which there was always a queue for cores, and a tick now and then.
#[derive(Clone, Copy, Debug)]
struct Rise {
    since: Time,
    /// Delay at its beginning.
    delay: Nanos,
    went: u64,
    /// Whether it grew in the time just before.
    grew: bool,
}

impl Rise {
    fn begin(signals: &Signals, grew: bool) -> Rise {
        Rise { since: signals.now, delay: signals.delay(), went: 0, grew }
    }
}

/// Time in which there was always a request in a queue, or in the server.
#[derive(Clone, Copy, Debug)]
struct Look {
    since: Time,
    /// Delay at its beginning.
    delay: Nanos,
    came: u64,
    went: u64,
    /// Whether the queue has stood for long enough to be looked at.
    counts: bool,
}

impl Look {
    fn begin(signals: &Signals, counts: bool) -> Look {
        Look { since: signals.now, delay: signals.delay(), came: 0, went: 0, counts }
    }

    /// Whether fewer came than went. Those that nobody has received yet are seen by their delay alone.
    fn gets_shorter(&self, signals: &Signals) -> bool {
        let lasted = signals.now.since(self.since);
        (self.came as f64) < CAME * self.went as f64 || signals.delay() + lasted.scale(1.0 - CAME) < self.delay
    }
}

impl Overload {
    /// Under a delay target and an objective.
    pub(super) fn new(target: Nanos, objective: Nanos) -> Self {
        let (queue, objective) = (target.scale(QUEUE).max(Nanos(1)), objective.max(Nanos(1)));
        Overload {
            queue,
            objective,
            look: None,
            rise: None,
            is_shown: false,
            share: 0.0,
            wanted: None,
            now: Time::ZERO,
        }
    }

    /// Runs one control tick. `is_occupied`: some that are in the server were there at the last
    /// tick, as far as they are counted.
    pub(super) fn tick(&mut self, pool: &Pool, signals: &Signals, is_occupied: bool) {
        let (now, delay) = (signals.now, signals.delay());
        let passed = now.since(std::mem::replace(&mut self.now, now));
        if passed == Nanos::ZERO {
            // Made up for one that was missed: it looks at nothing.
            return;
        }
        let has_queue = delay >= self.queue;
        let stands = has_queue && delay >= passed || is_occupied;
        if pool.take_wanting() {
            self.wanted = Some(now);
        }
        let lacks_credits = self.wanted.is_some_and(|wanted| now.since(wanted) < self.objective);
        let part = if self.is_shown && (lacks_credits || signals.drops > 0) {
            1.0
        } else if has_queue {
            // Who has waited for less came after the last tick: before there was none.
            delay.min(passed).0 as f64 / passed.0.max(1) as f64
        } else {
            0.0
        };
        let weight = 1.0 - (-(passed.0 as f64) / (self.objective * RECENT).0 as f64).exp();
        self.share += (part - self.share) * weight;
        self.look = match self.look.filter(|_| stands) {
            Some(look) => Some(self.go_on(look, signals)),
            None => (has_queue || stands).then(|| Look::begin(signals, false)),
        };
        let is_awake = passed < self.objective / 2;
        self.rise = match self.rise.filter(|_| has_queue && delay >= passed && is_awake) {
            Some(rise) => Some(self.rise_on(rise, signals)),
            None => has_queue.then(|| Rise::begin(signals, false)),
        };
        self.is_shown = self.share >= if self.is_shown { LASTS } else { FULL };
        pool.set_calm(!self.is_shown);
    }

    /// Counts what went, and judges how the delay has grown in a time that is long enough.
    fn rise_on(&mut self, mut rise: Rise, signals: &Signals) -> Rise {
        rise.went += signals.completions + signals.drops;
        let lasted = signals.now.since(rise.since);
        if lasted < self.objective * RISE.0 || rise.went < RISE.1 {
            return rise;
        }
        let grown = signals.delay().0 as f64 - rise.delay.0 as f64;
        let grows = RISES.contains(&(grown / lasted.0 as f64));
        if grows && rise.grew {
            (self.is_shown, self.share) = (true, 1.0);
        }
        Rise::begin(signals, grows)
    }

    /// Counts what came and went, and judges a look that is long enough.
    fn go_on(&mut self, mut look: Look, signals: &Signals) -> Look {
        look.came += signals.arrivals;
        look.went += signals.completions + signals.drops;
        let lasts = self.objective * if look.counts { LOOK } else { BEFORE };
        if signals.now.since(look.since) < lasts {
            return look;
        }
        if look.counts && !look.gets_shorter(signals) {
            (self.is_shown, self.share) = (true, 1.0);
        }
        Look::begin(signals, true)
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

        /// Ticks of 20 us with such a delay, in each of which so many come and so many go. How many
        /// of them found the server calm.
        fn flow(&mut self, ticks: u32, delay_us: u64, (came, went): (u64, u64), is_occupied: bool) -> u32 {
            let mut calm = 0;
            for _ in 0..ticks {
                self.now += Nanos::from_micros(20);
                let delay = Nanos::from_micros(delay_us);
                let quiet = Signals::idle(self.now);
                let signals = Signals { run_delay: delay, arrivals: came, completions: went, ..quiet };
                self.overload.tick(&self.pool, &signals, is_occupied);
                calm += u32::from(self.pool.is_calm());
            }
            calm
        }

        /// As many come as go.
        fn pass(&mut self, ticks: u32, delay_us: u64, is_occupied: bool) -> u32 {
            self.flow(ticks, delay_us, (10, 10), is_occupied)
        }
    }

    #[test]
    fn a_queue_that_is_soon_gone_shows_no_overload() {
        let mut world = World::new();
        for _ in 0..100 {
            assert_eq!(world.pass(100, 5_000, true), 100);
            assert_eq!(world.pass(200, 0, false), 200);
        }
        assert_eq!(world.pass(200, 10, false), 200, "a queue that is hardly one");
    }

    #[test]
    fn who_came_all_at_once_is_worked_off() {
        let mut world = World::new();
        for _ in 0..20 {
            assert_eq!(world.flow(1, 50, (1_000, 0), true), 1);
            assert_eq!(world.flow(250, 2_000, (6, 10), true), 250);
            assert_eq!(world.pass(250, 0, false), 250);
        }
    }

    #[test]
    fn those_whom_nobody_has_received_yet_are_worked_off_as_well() {
        let mut world = World::new();
        for _ in 0..20 {
            // Each tick finds the oldest of them younger by a half of what has passed.
            let calm = (0..500).map(|tick| world.pass(1, 5_000 - 10 * tick, true)).sum::<u32>();
            assert_eq!(calm + world.pass(500, 0, false), 1_000);
        }
    }

    #[test]
    fn a_queue_that_gets_no_shorter_shows_an_overload() {
        for (delay_us, flow, is_occupied) in [(20, (10, 10), false), (0, (3, 3), true), (500, (20, 10), true)] {
            let mut world = World::new();
            assert_eq!(world.flow(151, delay_us, flow, is_occupied), 150);
            assert_eq!(world.flow(500, delay_us, flow, is_occupied), 0);
        }
    }

    #[test]
    fn a_queue_that_grows_while_it_is_worked_off_shows_an_overload_soon() {
        for (per_tick_us, is_shown) in [(10, true), (1, true), (20, false), (0, false)] {
            let mut world = World::new();
            let calm = (0..100).map(|tick| world.pass(1, 30 + per_tick_us * tick, true)).sum::<u32>();
            assert_eq!(calm < 100, is_shown, "{per_tick_us} us in each 20: {calm}");
        }
    }

    #[test]
    fn a_queue_that_is_nearly_always_there_shows_an_overload() {
        let mut world = World::new();
        let calm = (0..100).map(|_| world.pass(50, 1_000, false) + world.pass(2, 0, false)).sum::<u32>();
        assert!((500..1_500).contains(&calm), "of 5,200: {calm}");
    }

    #[test]
    fn what_is_found_after_a_sleep_is_new() {
        let mut world = World::new();
        for _ in 0..1_000 {
            world.now += Nanos::from_millis(10);
            assert_eq!(world.pass(1, 300, false), 1);
        }
    }

    #[test]
    fn an_overload_lasts_until_cores_have_no_queue_for_a_good_part_of_the_time() {
        let mut world = World::new();
        world.pass(160, 20, false);
        for _ in 0..200 {
            assert_eq!(world.pass(8, 20, false) + world.pass(2, 0, false), 0, "as at the capacity");
        }
        let calm = (0..200).map(|_| world.pass(2, 20, false) + world.pass(8, 0, false)).sum::<u32>();
        assert!((1_500..1_700).contains(&calm), "as at half load, after some milliseconds: {calm} of 2,000");
    }

    #[test]
    fn an_overload_lasts_while_the_controller_keeps_requests_away() {
        let mut world = World::new();
        world.pass(160, 20, false);
        for _ in 0..2_000 {
            world.pool.note_wanting();
            assert_eq!(world.pass(10, 0, false), 0, "credits are short");
        }
        assert!(world.pass(500, 0, false) > 150, "nobody lacks any");
    }
}
