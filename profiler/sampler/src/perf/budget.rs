//! Keeps what recording costs within a share of what the program uses.
//!
//! Does not contain measurements of time: the caller says what has passed.

/// Share of the program's CPU time that recording may take.
const LIMIT: f64 = 0.02;

/// Share of one CPU that recording may take of a program that hardly runs.
const IDLE_LIMIT: f64 = 0.005;

/// Samples per second of CPU time that are asked for at first, and at least.
const FIRST_RATE: u32 = 1000;
const LOWEST_RATE: u32 = 49;

/// First and longest period of stacks at switches.
const FIRST_PERIOD: u64 = 8;
const LONGEST_PERIOD: u64 = 1 << 10;

/// Longest of the shortest waits.
const LONGEST_WAIT: u64 = 1_000_000;

/// What a sample, a reported switch and a stack at a switch cost in the kernel, in nanoseconds:
/// measured in a virtual machine, with a loop and with a pipe between two threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventCosts {
    pub(super) sample: u64,
    pub(super) switch: u64,
    pub(super) stack: u64,
}

impl EventCosts {
    /// Events of threads, which the kernel stops and starts at each switch.
    pub(super) const THREADS: EventCosts = EventCosts { sample: 16_000, switch: 3_300, stack: 3_000 };
    /// Events of CPUs, with programs that choose.
    pub(super) const CPUS: EventCosts = EventCosts { sample: 16_000, switch: 500, stack: 2_000 };
}

/// What has been recorded so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    pub(super) samples: u64,
    pub(super) switches: u64,
    pub(super) stacks_at_switches: u64,
    /// Records that came too quickly.
    pub(super) lost: u64,
    /// CPU time of the recorder in nanoseconds.
    pub(super) own_time: u64,
}

impl Spent {
    /// CPU time that it took, in nanoseconds.
    pub(super) fn cost(&self, costs: EventCosts) -> u64 {
        let kernel =
            [(self.samples, costs.sample), (self.switches, costs.switch), (self.stacks_at_switches, costs.stack)];
        kernel.iter().map(|(count, cost)| count.saturating_mul(*cost)).fold(self.own_time, u64::saturating_add)
    }

    fn since(&self, before: &Spent) -> Spent {
        Spent {
            samples: self.samples.saturating_sub(before.samples),
            switches: self.switches.saturating_sub(before.switches),
            stacks_at_switches: self.stacks_at_switches.saturating_sub(before.stacks_at_switches),
            lost: self.lost.saturating_sub(before.lost),
            own_time: self.own_time.saturating_sub(before.own_time),
        }
    }
}

/// How much is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Effort {
    /// Samples per second of CPU time.
    pub(super) rate: u32,
    /// Switches from one with a stack to the next.
    pub(super) switch_period: u64,
    /// Nanoseconds of the shortest wait that is reported without a stack.
    pub(super) shortest_wait: u64,
}

impl Effort {
    /// Nanoseconds of CPU time between samples.
    pub(super) fn clock_period(&self) -> u64 {
        1_000_000_000 / u64::from(self.rate.max(1))
    }
}

/// Chooses how much is recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct CostBudget {
    effort: Effort,
    /// The user has chosen the rate of samples.
    is_fixed: bool,
    costs: EventCosts,
    before: Spent,
    used_before: u64,
}

impl CostBudget {
    pub(super) fn new(fixed_rate: Option<u32>, costs: EventCosts, before: Spent) -> CostBudget {
        let effort =
            Effort { rate: fixed_rate.unwrap_or(FIRST_RATE).max(1), switch_period: FIRST_PERIOD, shortest_wait: 0 };
        CostBudget { effort, is_fixed: fixed_rate.is_some(), costs, before, used_before: 0 }
    }

    pub(super) fn effort(&self) -> Effort {
        self.effort
    }

    /// Adapts to what was spent since the last call, while the program used CPU time (both since
    /// the recording began) and `elapsed` nanoseconds passed. Returns the new effort if it has
    /// changed.
    pub(super) fn adapt(&mut self, spent: Spent, used: u64, elapsed: u64) -> Option<Effort> {
        let delta = spent.since(&self.before);
        let used_now = used.saturating_sub(self.used_before);
        (self.before, self.used_before) = (spent, used);
        let limit = (LIMIT * used_now as f64).max(IDLE_LIMIT * elapsed as f64);
        // Switches without a stack are worth a tenth in the recorder's own time.
        let events = (delta.samples + delta.stacks_at_switches + delta.switches / 10).max(1);
        let own = delta.own_time as f64 / events as f64;
        let stack_cost = delta.stacks_at_switches as f64 * (self.costs.stack as f64 + own);
        let switch_cost = delta.switches as f64 * (self.costs.switch as f64 + own / 10.0);
        let sample_cost = delta.samples as f64 * (self.costs.sample as f64 + own);
        let mut effort = self.effort;
        // Samples may take half, so that switches have room.
        if !self.is_fixed {
            effort.rate = scale(effort.rate, limit / 2.0, sample_cost).clamp(LOWEST_RATE, FIRST_RATE);
        }
        let left = (limit - sample_cost.min(limit / 2.0)).max(limit / 8.0);
        // Half of what is left for stacks at switches, and half for switches.
        let wanted = effort.switch_period as f64 * stack_cost / (left / 2.0);
        // A shorter period is tried when there is room for twice as many.
        effort.switch_period = if wanted > effort.switch_period as f64 {
            (wanted.ceil() as u64).min(LONGEST_PERIOD)
        } else if wanted < effort.switch_period as f64 / 2.0 {
            (effort.switch_period / 2).max(1)
        } else {
            effort.switch_period
        };
        effort.shortest_wait = if switch_cost > left / 2.0 {
            (effort.shortest_wait * 2).clamp(10_000, LONGEST_WAIT)
        } else if switch_cost < left / 8.0 {
            if effort.shortest_wait > 10_000 { effort.shortest_wait / 2 } else { 0 }
        } else {
            effort.shortest_wait
        };
        // What was lost was not counted.
        if delta.lost > 0 {
            effort.switch_period = (self.effort.switch_period * 4).min(LONGEST_PERIOD);
            effort.shortest_wait = (self.effort.shortest_wait * 4).clamp(20_000, LONGEST_WAIT);
        }
        (effort != self.effort).then(|| {
            self.effort = effort;
            effort
        })
    }
}

/// Rate at which a cost meets its limit; small changes are left.
fn scale(rate: u32, limit: f64, cost: f64) -> u32 {
    let factor = limit / cost.max(1.0);
    if (0.8..1.5).contains(&factor) { rate } else { (f64::from(rate) * factor.clamp(0.25, 2.0)) as u32 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Plays a program: stacks at one of so many switches, samples at the rate.
    fn play(budget: &mut CostBudget, switches: u64, seconds: u64) -> (f64, Effort) {
        let (mut spent, mut used, mut share) = (Spent::default(), 0, 0.0);
        for _ in 0..seconds {
            let effort = budget.effort();
            let stacks = switches / effort.switch_period;
            let reported = if effort.shortest_wait > 20_000 { stacks } else { switches };
            let before = spent.cost(EventCosts::CPUS);
            spent.samples += u64::from(effort.rate);
            spent.switches += reported;
            spent.stacks_at_switches += stacks;
            spent.own_time += (u64::from(effort.rate) + stacks) * 4_000 + reported * 300;
            share = (spent.cost(EventCosts::CPUS) - before) as f64 / 1e9;
            used += 1_000_000_000;
            budget.adapt(spent, used, 1_000_000_000);
        }
        (share, budget.effort())
    }

    #[test]
    fn quiet_programs_have_a_stack_at_each_switch() {
        let mut budget = CostBudget::new(None, EventCosts::CPUS, Spent::default());
        let (share, effort) = play(&mut budget, 500, 20);
        assert_eq!((effort.switch_period, effort.shortest_wait), (1, 0));
        assert!(effort.rate > 400 && share < 0.025, "{effort:?} {share}");
    }

    #[test]
    fn losses_lower_the_effort() {
        let mut budget = CostBudget::new(None, EventCosts::CPUS, Spent::default());
        let effort = budget.adapt(Spent { lost: 1, ..Spent::default() }, 1, 1_000_000_000).unwrap();
        assert!(effort.switch_period > FIRST_PERIOD && effort.shortest_wait > 0);
    }

    #[test]
    fn a_fixed_rate_stays() {
        let mut budget = CostBudget::new(Some(5000), EventCosts::THREADS, Spent::default());
        play(&mut budget, 100_000, 20);
        assert_eq!(budget.effort().rate, 5000);
    }

    proptest! {
        /// However often a program switches, recording comes to cost about the limit at most.
        #[test]
        fn the_cost_is_bounded(switches in 0u64..200_000) {
            let mut budget = CostBudget::new(None, EventCosts::CPUS, Spent::default());
            let (share, effort) = play(&mut budget, switches, 40);
            prop_assert!(share < 0.03, "{effort:?} {share}");
            prop_assert!(effort.rate >= LOWEST_RATE);
        }
    }
}
