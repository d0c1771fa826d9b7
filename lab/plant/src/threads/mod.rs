//! Costs of threads on this machine: wake-ups, switches, polls, sharing. The simulator's tiers use
//! these measured costs. The loads at which one threading model overtakes another thus follow from
//! measurements.
//!
//! - `wakeups`: operations that involve another thread's CPU. `memory`: operations of a thread
//!   alone, or with a cache line of another thread.
//!
//! Does not contain the comparison of threading models, or costs of a message ([`crate::machine`]).

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

/// Costs of threads, and the reliability of the measurement.
#[derive(Clone, Debug)]
pub struct MeasuredThreadCosts {
    /// The costs. A cost that was not measured is the simulator's assumption.
    pub costs: ThreadCosts,
    /// Reasons to doubt the costs, as text.
    pub warnings: Vec<String>,
    /// Further measurements, as text.
    pub notes: Vec<String>,
}

/// Steps that [`MeasuredThreadCosts::measure`] reports.
pub const STEPS: usize = 4;

/// Largest difference of two rounds of a measurement, relative to the smaller.
const DRIFT: f64 = 0.1;

impl MeasuredThreadCosts {
    /// Measures on the CPUs of `placement`. Takes about 20 s.
    ///
    /// `receive` and `send` are the costs of a message ([`crate::machine::MessageCosts`]). `step`
    /// is called before each of [`STEPS`] steps.
    ///
    /// # Errors
    ///
    /// [`RealError::Cancelled`]; or the system lacks a needed feature.
    pub fn measure(
        placement: &Placement,
        (receive, send): (Nanos, Nanos),
        stop: &AtomicBool,
        mut step: impl FnMut(&str),
    ) -> Result<Self, RealError> {
        let clock = Clock::start();
        let cpus = (placement.server.first().copied().unwrap_or(0), placement.load);
        let (mut warnings_text, mut notes) = (Vec::new(), Vec::new());
        if cpus.0 == cpus.1 {
            warnings_text.push("there is only one CPU, so costs that need a second one were not measured".into());
        }
        step("wake-ups");
        let wakes = wakeups::measure_wakeups(&clock, cpus, stop);
        notes.extend(wakes.notes());
        step("switches");
        let switches = wakeups::measure_switches(&clock, cpus, stop);
        step("polls");
        let poll_times = memory::poll_costs(&clock, cpus.0)?;
        notes.push(format!(
            "polling 1, 64 and 1,000 sockets takes {}, {} and {}",
            poll_times[0], poll_times[1], poll_times[2]
        ));
        step("memory");
        let memory = memory::measure_memory(&clock, cpus);
        if stop.load(Ordering::Relaxed) {
            return Err(RealError::Cancelled);
        }
        warnings_text.extend(wakes.warning());
        warnings_text.extend(switches.warning());
        let assumed = presets::preset("leeward").unwrap_or_else(ThreadCosts::free);
        let wake = WakeTable::new(wakes.rows());
        if wake.is_none() {
            warnings_text.push("wake-ups took more than a second: the simulator's assumption stands instead".into());
        }
        let costs = ThreadCosts {
            wake_call: wakes.call_time(),
            wake: wake.unwrap_or(assumed.wake),
            switch: switches.switch,
            slice: switches.slice.unwrap_or(assumed.slice).max(Nanos(1)),
            preempt: switches.preempt,
            poll: poll_times[1],
            receive,
            send,
            push_pop: memory.push_pop,
            cache_line: memory.cache_line,
            cold_cache: memory.cold_cache,
            record: memory.record,
            decide: memory.decide,
            // A property of the server, not of the machine: the holder of the exclusive claim
            // writes itself.
            locked_permille: assumed.locked_permille,
        };
        Ok(MeasuredThreadCosts { costs, warnings: warnings_text, notes })
    }
}

/// Moves the calling thread to `cpu`. Without permission, the thread stays and measures another
/// CPU.
fn pin(cpu: usize) {
    let mut only = CpuSet::new();
    if cpu < CpuSet::MAX_CPU {
        only.set(cpu);
        let _ = sched_setaffinity(None, &only);
    }
}

/// Sample at this many thousandths of the sorted samples; zero without samples.
fn quantile(sorted: &[u64], permille: usize) -> Nanos {
    let index = (sorted.len() * permille / 1_000).min(sorted.len().saturating_sub(1));
    Nanos(sorted.get(index).copied().unwrap_or(0))
}

fn median(mut samples: Vec<u64>) -> Nanos {
    samples.sort_unstable();
    quantile(&samples, 500)
}

/// Whether two rounds of a measurement differ by more than [`DRIFT`] plus a clock reading (50 ns).
fn has_drifted(one: Nanos, other: Nanos) -> bool {
    one.0.abs_diff(other.0) as f64 > DRIFT * one.0.min(other.0) as f64 + 50.0
}
