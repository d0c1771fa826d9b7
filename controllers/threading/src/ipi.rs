//! Polling or interrupts by the number of active threads, with a pool of fixed size (Langendoen et
//! al., as in µTune §7). Sync models only: "it does not readily apply for asynchronous modes".

use super::policy::{PolicySpec, PollSchedule, SwitchReason, ThreadGauges, ThreadSignals, ThreadingPolicy};
use super::preferred::PreferredSetup;
use super::setup::{Fanout, Handling, POOL_MAX, Setup, ThreadingSetup, Wait};
use leeward_core::params::{ParamKind, ParamSpec};

/// The registry's entry.
pub const POLICY: PolicySpec = PolicySpec {
    name: "ipi",
    summary: "polls while no more threads are active than there are CPUs, else blocks; the pool is that of the peak",
    source: "Langendoen et al., 1996, as in µTune, OSDI'18 §7",
    params: &[
        ParamSpec {
            name: "pool",
            kind: ParamKind::Count { min: 1, max: POOL_MAX as u64 },
            default: "50",
            doc: "in-line threads, or workers: as many as the peak needs",
            tuning_values: &[],
        },
        ParamSpec {
            name: "handling",
            kind: ParamKind::Choice(&["inline", "dispatched"]),
            default: "inline",
            doc: "which model the threads have; the paper does not say",
            tuning_values: &[],
        },
    ],
    build: |params, _| {
        let pool = params.count("pool", 50) as u16;
        let dispatched = params.choice("handling", "inline") == "dispatched";
        let setup = |wait| {
            let handling = if dispatched { Handling::Dispatched } else { Handling::InLine };
            let (network, worker) = if dispatched { (1, pool) } else { (pool, 0) };
            ThreadingSetup::Setup(Setup { fanout: Fanout::Sync, handling, wait, network, worker, response: 0 })
        };
        let (block, poll) = (setup(Wait::Block), setup(Wait::Poll));
        Ok(Box::new(Ipi { block, poll, preferred: PreferredSetup::new(block) }))
    },
};

/// Policy that chooses between polling and blocking; see the module.
#[derive(Clone, Debug)]
pub struct Ipi {
    block: ThreadingSetup,
    poll: ThreadingSetup,
    preferred: PreferredSetup,
}

impl ThreadingPolicy for Ipi {
    /// "The system initially uses interrupts."
    fn initial(&self) -> ThreadingSetup {
        self.block
    }

    fn choices(&self) -> Vec<ThreadingSetup> {
        vec![self.block, self.poll]
    }

    fn poll_schedule(&self) -> PollSchedule {
        PollSchedule::Blocking
    }

    fn decide(&mut self, signals: &ThreadSignals) -> Option<ThreadingSetup> {
        if !self.preferred.advances(signals.now) {
            return None;
        }
        // "checks if the system's active thread count exceeds the machine's logical core count. If
        // higher, the system blocks, otherwise, it shifts to polling"
        let setup = if signals.runnable > signals.cpus { self.block } else { self.poll };
        self.preferred.prefer(signals, setup, SwitchReason::Threads)
    }

    fn gauges(&self) -> ThreadGauges {
        self.preferred.gauges_without_curves()
    }
}
