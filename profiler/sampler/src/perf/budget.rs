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

/// Longest period of stacks at switches.
const LONGEST_PERIOD: u64 = 1 << 10;

/// What a sample, a switch and a stack at a switch cost in the kernel, in nanoseconds: measured
/// with a pipe between two threads, in a virtual machine.
const SAMPLE_COST: u64 = 4_000;
const SWITCH_COST: u64 = 700;
const STACK_COST: u64 = 1_500;

/// What has been recorded so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    pub(super) samples: u64,
    pub(super) switches: u64,
    pub(super) stacks_at_switches: u64,
    /// CPU time of the recorder in nanoseconds.
    pub(super) own_time: u64,
}

impl Spent {
    /// CPU time that it took, in nanoseconds.
    pub(super) fn cost(&self) -> u64 {
        let kernel = [(self.samples, SAMPLE_COST), (self.switches, SWITCH_COST), (self.stacks_at_switches, STACK_COST)];
        kernel.iter().map(|(count, cost)| count.saturating_mul(*cost)).fold(self.own_time, u64::saturating_add)
    }

    fn since(&self, before: &Spent) -> Spent {
        Spent {
            samples: self.samples.saturating_sub(before.samples),
            switches: self.switches.saturating_sub(before.switches),
            stacks_at_switches: self.stacks_at_switches.saturating_sub(before.stacks_at_switches),
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
    before: Spent,
    used_before: u64,
}

impl CostBudget {
    pub(super) fn new(fixed_rate: Option<u32>, before: Spent) -> CostBudget {
        let effort = Effort { rate: fixed_rate.unwrap_or(FIRST_RATE).max(1), switch_period: 1 };
        CostBudget { effort, is_fixed: fixed_rate.is_some(), before, used_before: 0 }
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
        let events = (delta.samples + delta.stacks_at_switches).max(1);
        // The recorder's own time goes for what has stacks.
        let own = delta.own_time as f64 / events as f64;
        let switch_cost = delta.stacks_at_switches as f64 * (STACK_COST as f64 + own);
        let sample_cost = delta.samples as f64 * (SAMPLE_COST as f64 + own);
        let mut effort = self.effort;
        // Samples may take half, so that switches have room.
        if !self.is_fixed {
            effort.rate = scale(effort.rate, limit / 2.0, sample_cost).clamp(LOWEST_RATE, FIRST_RATE);
        }
        let left = (limit - sample_cost.min(limit / 2.0)).max(limit / 8.0);
        let wanted = effort.switch_period as f64 * switch_cost / left;
        // A shorter period is tried when there is room for twice as many.
        effort.switch_period = if wanted > effort.switch_period as f64 {
            (wanted.ceil() as u64).min(LONGEST_PERIOD)
        } else if wanted < effort.switch_period as f64 / 2.0 {
            (effort.switch_period / 2).max(1)
        } else {
            effort.switch_period
        };
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
