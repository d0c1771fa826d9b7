//! Law of the admitted work per nanosecond: the completions of the cores, slightly more while the
//! standing delay is below its target and slightly less above it. Does not contain the choice of
//! requests.

use leeward_core::units::Nanos;

/// Completions before a capacity is known. Until then the level stays, and only late requests are
/// rejected.
const MIN_COMPLETIONS: u64 = 16;
/// Share of the target from which a queue persists: the cores always have work, so completions are
/// the capacity.
const BUSY: f64 = 0.25;
/// Demand over capacity that shows an overload soon, that shows one after a while, and that ends
/// one. A nearly full service has queues now and then and works them off: rejections would help no
/// request.
const ONSET_RATIO: f64 = 1.2;
const STANDING_RATIO: f64 = 1.1;
const END_RATIO: f64 = 1.05;
/// Share of the allowed work below which the cores, and not the limit, bound what is completed. The
/// strict limits of a delay above its target admit as little as 0.65 of it (`share`).
const LIMITED_SHARE: f64 = 0.5;
/// Memories for which a delay stays above its target before it shows an overload, at these ratios.
/// The queue that a short pause leaves is gone before; until then only late requests are rejected.
const ONSET_MEMORIES: f64 = 1.0;
const STANDING_MEMORIES: f64 = 5.0;
/// Memories after which a limit is lifted to measure the capacity anew, at first and at most. It
/// doubles where the capacity is found again. A limit that does not lower the delay is useless, and
/// bounds what its completions could show.
const LEAST_PATIENCE: f64 = 64.0;
const MOST_PATIENCE: f64 = 512.0;
/// Logarithm of the ratio up to which a capacity is found again.
const CONFIRMED: f64 = 0.15;

/// Events since the last update, and averages over the memory.
pub(super) struct Observation {
    /// The delay now.
    pub(super) delay: Nanos,
    /// The minimum delay of the interval.
    pub(super) standing_delay: Nanos,
    /// Nanoseconds since the last update.
    pub(super) elapsed_ns: f64,
    /// Weight of this update in an average.
    pub(super) weight: f64,
    /// Nanoseconds over which averages are taken.
    pub(super) memory: f64,
    pub(super) completions: u64,
    /// Cost admitted per nanosecond, averaged.
    pub(super) admitted: f64,
    /// Mean cost of an admitted request.
    pub(super) cost: f64,
    /// Cost that arrived per nanosecond, averaged.
    pub(super) demand: f64,
}

pub(super) struct Law {
    target: f64,
    /// Nanoseconds between two updates above which a delay shows a pause of the process, and no
    /// work of the cores.
    pause: f64,
    gain: f64,
    increase: f64,
    /// Whether an overload is detected; without one everything is admitted.
    is_overloaded: bool,
    /// Nanoseconds since the limit took effect; infinite if it does not bound the completions.
    limited_time: f64,
    /// The capacity when the limit last took effect.
    limited_at: f64,
    /// Memories after which a limit is lifted to measure the capacity anew.
    patience: f64,
    /// Nanoseconds with the delay above its target, less later nanoseconds below it.
    time_above: f64,
    /// Completions per nanosecond while cores were busy, and not held back by the limit.
    capacity: f64,
    /// Completions per nanosecond, averaged, and nanoseconds since the beginning.
    completed: f64,
    time: f64,
    /// Busy nanoseconds in the mean `capacity`, up to the memory.
    busy_time: f64,
    /// Completions of this busy time.
    busy_completions: u64,
    /// Nanoseconds since a queue last persisted.
    quiet_time: f64,
    /// Cost per nanosecond to admit; infinite while everything is admitted.
    allowed: f64,
}

impl Law {
    pub(super) fn new(target: Nanos, pause: Nanos, gain: f64, increase: f64) -> Self {
        Law {
            target: target.0.max(1) as f64,
            pause: pause.0 as f64,
            is_overloaded: false,
            limited_time: 0.0,
            limited_at: f64::INFINITY,
            patience: LEAST_PATIENCE,
            time_above: 0.0,
            gain,
            increase,
            capacity: 0.0,
            completed: 0.0,
            time: 0.0,
            busy_time: 0.0,
            busy_completions: 0,
            quiet_time: f64::INFINITY,
            allowed: f64::INFINITY,
        }
    }

    /// Returns the cost per nanosecond to admit from now on; infinite for everything.
    pub(super) fn update(&mut self, observed: &Observation) -> f64 {
        // Few completions in a pause would show a small capacity, for seconds after it.
        let paused = Observation { delay: Nanos::ZERO, standing_delay: Nanos::ZERO, ..*observed };
        let observed = if self.is_paused(observed.elapsed_ns, observed.delay) { &paused } else { observed };
        let standing = observed.standing_delay.0 as f64;
        let persists = standing >= BUSY * self.target;
        self.quiet_time = if persists { 0.0 } else { self.quiet_time + observed.elapsed_ns };
        self.learn(observed);
        if persists {
            if self.busy_completions >= MIN_COMPLETIONS {
                let error = ((self.target - standing) / self.target).clamp(-1.0, 1.0);
                self.allowed = self.capacity * observed.cost * (1.0 + self.gain * error);
            }
        } else if self.is_remembered(observed) {
            // A moment without a queue says nothing about the capacity. Requests that find free
            // cores are admitted anyway.
            let max = self.capacity * observed.cost * (1.0 + self.gain);
            self.allowed = self.allowed.max(max.min(self.allowed + self.increase * observed.demand));
        } else {
            // No queue persists: admits more than was admitted, and no less than before.
            self.allowed = self.allowed.max(observed.admitted) + self.increase * observed.demand;
        }
        self.detect_overload(observed);
        self.limited_time += observed.elapsed_ns;
        if self.is_overloaded && self.limited_time >= self.patience * observed.memory {
            (self.busy_time, self.busy_completions, self.time_above) = (0.0, 0, 0.0);
            self.is_overloaded = false;
        }
        if self.allowed >= observed.demand || !self.is_overloaded {
            self.allowed = f64::INFINITY;
        }
        self.allowed
    }

    /// Whether a delay after `elapsed_ns` without an update shows a pause of the process.
    pub(super) fn is_paused(&self, elapsed_ns: f64, delay: Nanos) -> bool {
        elapsed_ns > self.pause && delay.0 as f64 >= BUSY * self.target
    }

    /// Detects an overload by a delay that stands above its target while demand exceeds the
    /// capacity: for a memory, or for long if it exceeds it little. A delay beside a demand that is
    /// served is not the queue's. The overload ends when demand fits and the delay is below its
    /// target.
    fn detect_overload(&mut self, observed: &Observation) {
        let standing = observed.standing_delay.0 as f64;
        let capacity = self.capacity * observed.cost;
        if standing >= self.target {
            self.time_above = (self.time_above + observed.elapsed_ns).min(STANDING_MEMORIES * observed.memory);
            let memories = if observed.demand >= ONSET_RATIO * capacity {
                ONSET_MEMORIES
            } else if observed.demand >= STANDING_RATIO * capacity {
                STANDING_MEMORIES
            } else {
                f64::INFINITY
            };
            let is_measured = self.busy_completions >= MIN_COMPLETIONS && self.busy_time >= observed.memory;
            if !self.is_overloaded && is_measured && self.time_above >= memories * observed.memory {
                self.begin_overload();
            }
        } else {
            self.time_above = (self.time_above - observed.elapsed_ns).max(0.0);
            self.is_overloaded &= observed.demand > END_RATIO * capacity;
        }
    }

    fn begin_overload(&mut self) {
        let is_confirmed = (self.capacity / self.limited_at).ln().abs() < CONFIRMED;
        self.patience = if is_confirmed { (self.patience * 2.0).min(MOST_PATIENCE) } else { LEAST_PATIENCE };
        (self.is_overloaded, self.limited_at, self.limited_time) = (true, self.capacity, 0.0);
    }

    /// Whether the capacity learned during the last standing delay still counts.
    fn is_remembered(&self, observed: &Observation) -> bool {
        self.busy_completions >= MIN_COMPLETIONS && self.quiet_time < observed.memory
    }

    fn learn(&mut self, observed: &Observation) {
        self.time += observed.elapsed_ns;
        let weight = observed.weight.max(observed.elapsed_ns / self.time);
        self.completed += weight * (observed.completions as f64 / observed.elapsed_ns - self.completed);
        if (observed.delay.0 as f64) < BUSY * self.target {
            // Completions beside free cores measure the demand. A later overload may have another
            // capacity.
            if !self.is_remembered(observed) {
                (self.busy_time, self.busy_completions) = (0.0, 0);
            }
            return;
        }
        self.busy_completions = self.busy_completions.saturating_add(observed.completions);
        self.busy_time += observed.elapsed_ns;
        let rate = observed.completions as f64 / observed.elapsed_ns;
        if self.allowed.is_infinite() {
            // The mean of this busy time until it is longer than the memory; then an average over
            // the memory.
            let weight = observed.weight.max(observed.elapsed_ns / self.busy_time);
            self.capacity += weight * (rate - self.capacity);
        } else if self.completed * observed.cost < LIMITED_SHARE * self.allowed {
            // Something else bounds the completions: the cores have become slower, or requests are
            // late for another reason. The capacity is measured anew.
            self.limited_time = f64::INFINITY;
        } else if self.completed > self.capacity {
            // Else the limit bounds the completions, which show no capacity. If a delay persists
            // whatever is admitted, as with clients that send in batches, less and less would be
            // admitted and completed.
            self.capacity += observed.weight * (rate - self.capacity);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MS: f64 = 1e6;

    fn observed(delay_ms: f64, completions: u64, admitted: f64, demand: f64) -> Observation {
        let delay = Nanos((delay_ms * MS) as u64);
        Observation {
            delay,
            standing_delay: delay,
            elapsed_ns: MS,
            weight: 0.01,
            memory: 100.0 * MS,
            completions,
            admitted,
            cost: 1.0,
            demand,
        }
    }

    fn law() -> Law {
        Law::new(Nanos::from_millis(8), Nanos::from_millis(40), 0.3, 0.01)
    }

    #[test]
    fn a_pause_of_the_process_shows_no_capacity() {
        for pause_ms in [50.0, 5_000.0] {
            let mut law = law();
            let paused = Observation { elapsed_ns: pause_ms * MS, weight: 0.9, ..observed(18.0, 2, 1e-6, 2e-5) };
            let _ = law.update(&paused);
            // The requests that came meanwhile, and what is usual.
            assert!((0..20).all(|_| law.update(&observed(9.0, 20, 2e-5, 2e-5)).is_infinite()), "{pause_ms} ms");
        }
    }

    #[test]
    fn a_delay_at_its_target_admits_the_capacity() {
        let mut law = law();
        let allowed = (0..140).map(|_| law.update(&observed(8.0, 20, 2e-5, 4e-5))).last().unwrap();
        assert!((allowed - 2e-5).abs() < 1e-9, "{allowed}");
        assert!((law.update(&observed(16.0, 20, 2e-5, 4e-5)) - 1.4e-5).abs() < 1e-9);
    }

    #[test]
    fn the_limit_is_lifted_after_an_interval_without_delay() {
        let mut law = law();
        for _ in 0..140 {
            let _ = law.update(&observed(16.0, 20, 2e-5, 4e-5));
        }
        let steps = (0..1_000).take_while(|_| law.update(&observed(0.0, 20, 2e-5, 4e-5)).is_finite()).count();
        assert!((110..200).contains(&steps), "{steps}");
    }

    #[test]
    fn a_draining_queue_is_no_overload() {
        let mut law = law();
        // The delay is above the target for half of the time, at a demand that fits.
        for _ in 0..2_000 {
            for delay in [2.0, 9.0, 15.0, 7.0] {
                let allowed = law.update(&observed(delay, 20, 2e-5, 2.1e-5));
                assert!(allowed.is_infinite());
            }
        }
    }

    #[test]
    fn late_requests_for_less_than_a_memory_are_no_overload() {
        let mut law = law();
        for _ in 0..20 {
            assert!((0..80).all(|_| law.update(&observed(19.0, 20, 2e-5, 4e-5)).is_infinite()));
            assert!((0..90).all(|_| law.update(&observed(1.0, 20, 2e-5, 2e-5)).is_infinite()));
        }
    }

    #[test]
    fn a_persistent_delay_is_an_overload_where_demand_exceeds_the_capacity() {
        let first = |delay: f64, demand: f64| {
            let mut law = law();
            (0..10_000).take_while(|_| law.update(&observed(delay, 20, 2e-5, demand)).is_infinite()).count()
        };
        for (delay, demand, updates) in [(12.0, 2.25e-5, 500), (18.0, 2.25e-5, 500), (9.0, 2.5e-5, 100)] {
            let first = first(delay, demand);
            assert!((updates - 2..updates + 2).contains(&first), "{first} at {delay} ms");
        }
        // What is served needs no limit, however long it waits.
        assert_eq!(first(18.0, 2.1e-5), 10_000);
    }

    #[test]
    fn an_overload_is_over_when_demand_fits() {
        let mut law = law();
        for _ in 0..100 {
            let _ = law.update(&observed(10.0, 20, 2e-5, 4e-5));
        }
        assert!(law.update(&observed(9.0, 20, 2e-5, 2.05e-5)).is_finite());
        let _ = law.update(&observed(7.0, 20, 2e-5, 2.05e-5));
        assert!(law.update(&observed(9.0, 20, 2e-5, 2.05e-5)).is_infinite());
    }

    #[test]
    fn a_delay_that_no_limit_lowers_closes_nothing_for_long() {
        let mut law = law();
        // Clients that send in batches, and pauses of the machine: the delay is what it is. Nearly
        // all of the capacity is demanded.
        let mut completed = 0.0;
        for step in 0..100_000_u32 {
            let delay = [6.0, 9.0, 14.0, 11.0, 9.0, 18.5][step as usize / 40 % 6];
            let allowed = law.update(&observed(delay, completed as u64, completed / MS, 19e-6));
            completed = if delay < 8.0 { 19.0 } else { (allowed * MS).min(19.0) };
            assert!(step < 1_000 || completed >= 0.65 * 19.0, "{completed} in step {step}");
        }
    }

    #[test]
    fn a_persistent_delay_lowers_no_capacity_unless_the_cores_are_slower() {
        let mut law = law();
        let mut admitted = 2e-2;
        for _ in 0..10_000 {
            let allowed = law.update(&observed(16.0, (admitted * MS) as u64, admitted, 4e-2));
            admitted = allowed.min(2e-2);
        }
        assert!((1.39e-2..1.41e-2).contains(&admitted), "{admitted}");
        // Cores that complete a tenth of what is allowed have become slower.
        for _ in 0..10_000 {
            admitted = law.update(&observed(16.0, 700, 0.7e-3, 4e-2));
        }
        assert!(admitted < 2.01 * 0.7e-3, "{admitted}");
        // They are whole again.
        for _ in 0..10_000 {
            admitted = law.update(&observed(2.5, (admitted * MS) as u64, admitted, 4e-2)).min(2e-2);
        }
        assert!(admitted > 1.9e-2, "{admitted}");
    }

    #[test]
    fn a_capacity_that_was_measured_in_a_pause_is_measured_anew() {
        let mut law = law();
        for _ in 0..200 {
            let _ = law.update(&observed(16.0, 2, 2e-6, 2e-5));
        }
        let mut completed = 0;
        let mut open = 0;
        for step in 0..10_000 {
            let allowed = law.update(&observed(9.0, completed, completed as f64 / MS, 2e-5));
            completed = (allowed * MS).min(20.0) as u64;
            open += u32::from(step >= 7_000 && completed == 20);
        }
        assert!(open >= 2_900, "{open}");
    }

    #[test]
    fn too_few_completions_give_no_capacity_estimate() {
        let mut law = law();
        assert!((0..15).all(|_| law.update(&observed(16.0, 1, 1e-6, 4e-5)).is_infinite()));
    }
}
