//! Costs of threads on this machine: waking, changing, polling, sharing. The simulator's tiers cost what is measured here, so that the loads at
//! which one threading model overtakes another are not invented.
//!
//! - `wakes`: what another thread's CPU is asked for. `memory`: what a thread does by itself, or with a cache line that another has.
//!
//! Never here: which threading model is better, and costs of a message ([`crate::machine`]).

mod memory;
mod wakeups;

use crate::error::RealError;
use crate::placement::Placement;
use leeward_core::units::Nanos;
use leeward_runtime::Clock;
use leeward_sim::threads::model::ThreadCosts;
use leeward_sim::threads::presets;
use leeward_sim::threads::wakes::WakeTable;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::atomic::{AtomicBool, Ordering};

/// Costs of threads, and how far they are to be trusted.
#[derive(Clone, Debug)]
pub struct MeasuredThreadCosts {
    /// The costs. Those that are not measured are the simulator's assumptions.
    pub costs: ThreadCosts,
    /// Reasons to doubt them, in words.
    pub warnings: Vec<String>,
    /// Further measurements, in words.
    pub notes: Vec<String>,
}

/// Steps that [`Threads::measure`] tells of.
pub const STEPS: usize = 4;

/// Two rounds of one measurement may differ so much, in parts of the smaller.
const DRIFT: f64 = 0.1;

impl MeasuredThreadCosts {
    /// Measures on the CPUs of `placement`. `receive` and `send` are what a message costs here ([`crate::machine::MessageCosts`]). `step` is
    /// told before each of [`STEPS`] steps. Takes some 20 s.
    ///
    /// # Errors
    /// [`RealError::Cancelled`]; or the system lacks what is measured.
    pub fn measure(
        placement: &Placement,
        (receive, send): (Nanos, Nanos),
        stop: &AtomicBool,
        mut step: impl FnMut(&str),
    ) -> Result<Self, RealError> {
        let clock = Clock::start();
        let cpus = (placement.server.first().copied().unwrap_or(0), placement.load);
        let (mut doubts, mut notes) = (Vec::new(), Vec::new());
        if cpus.0 == cpus.1 {
            doubts.push("there is one CPU: nothing that needs another could be measured".into());
        }
        step("wake-ups");
        let wakes = wakeups::measure_wakeups(&clock, cpus, stop);
        notes.extend(wakes.notes());
        step("switches");
        let switches = wakeups::measure_switches(&clock, cpus, stop);
        step("polls");
        let poll_turn = memory::poll_costs(&clock, cpus.0)?;
        notes.push(format!(
            "a look at 1, 64 and 1,000 sockets takes {}, {} and {}",
            poll_turn[0], poll_turn[1], poll_turn[2]
        ));
        step("memory");
        let memory = memory::measure_memory(&clock, cpus);
        if stop.load(Ordering::Relaxed) {
            return Err(RealError::Cancelled);
        }
        doubts.extend(wakes.warning());
        doubts.extend(switches.warning());
        let assumed = presets::preset("leeward").unwrap_or_else(ThreadCosts::free);
        let wake = WakeTable::new(wakes.rows());
        if wake.is_none() {
            doubts.push("wake-ups took more than a second: the simulator's assumption stands instead".into());
        }
        let costs = ThreadCosts {
            wake_call: wakes.call_time(),
            wake: wake.unwrap_or(assumed.wake),
            switch: switches.switch,
            slice: switches.slice.unwrap_or(assumed.slice).max(Nanos(1)),
            preempt: switches.preempt,
            poll: poll_turn[1],
            receive,
            send,
            push_pop: memory.push_pop,
            cache_line: memory.cache_line,
            cold_cache: memory.cold_cache,
            record: memory.record,
            decide: memory.decide,
            // A property of the server, not of the machine: whoever has the lease writes itself.
            locked_permille: assumed.locked_permille,
        };
        Ok(MeasuredThreadCosts { costs, warnings: doubts, notes })
    }
}

/// Moves the calling thread; where that is not allowed it stays, and what it measures is of another CPU.
fn pin(cpu: usize) {
    let mut only = CpuSet::new();
    if cpu < CpuSet::MAX_CPU {
        only.set(cpu);
        let _ = sched_setaffinity(None, &only);
    }
}

/// Sample at this many thousandths of the sorted samples; zero of none.
fn quantile(sorted: &[u64], permille: usize) -> Nanos {
    let place = (sorted.len() * permille / 1_000).min(sorted.len().saturating_sub(1));
    Nanos(sorted.get(place).copied().unwrap_or(0))
}

fn median(mut samples: Vec<u64>) -> Nanos {
    samples.sort_unstable();
    quantile(&samples, 500)
}

/// Whether two measurements of the same differ by more than [`DRIFT`] and a clock's reading.
fn has_drifted(one: Nanos, other: Nanos) -> bool {
    one.0.abs_diff(other.0) as f64 > DRIFT * one.0.min(other.0) as f64 + 50.0
}
