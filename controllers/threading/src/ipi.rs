//! Polling or interrupts by the number of active threads, with a pool of fixed size (Langendoen et al., as in µTune §7). Sync models only:
//! "it does not readily apply for asynchronous modes".

use super::policy::{Pace, PolicySpec, Reason, ThreadGauges, ThreadSignals, ThreadingPolicy};
use super::setup::{Fanout, Handling, POOL_MAX, Setup, Threading, Wait};
use super::wish::Wish;
use leeward_core::params::{Kind, ParamSpec};

/// The registry's entry.
pub const POLICY: PolicySpec = PolicySpec {
    name: "ipi",
    summary: "polls while no more threads are active than there are CPUs, else blocks; the pool is that of the peak",
    source: "Langendoen et al., 1996, as in µTune, OSDI'18 §7",
    params: &[
        ParamSpec {
            name: "pool",
            kind: Kind::Count { min: 1, max: POOL_MAX as u64 },
            default: "50",
            doc: "in-line threads, or workers: as many as the peak needs",
            tune: &[],
        },
        ParamSpec {
            name: "handling",
            kind: Kind::Choice(&["inline", "dispatched"]),
            default: "inline",
            doc: "which model the threads have; the paper does not say",
            tune: &[],
        },
    ],
    build: |params, _| {
        let pool = params.count("pool", 50) as u16;
        let dispatched = params.choice("handling", "inline") == "dispatched";
        let setup = |wait| {
            let handling = if dispatched { Handling::Dispatched } else { Handling::InLine };
            let (network, worker) = if dispatched { (1, pool) } else { (pool, 0) };
            Threading::Setup(Setup { fanout: Fanout::Sync, handling, wait, network, worker, response: 0 })
        };
        let (block, poll) = (setup(Wait::Block), setup(Wait::Poll));
        Ok(Box::new(Ipi { block, poll, wish: Wish::new(block) }))
    },
};

/// See the module.
#[derive(Clone, Debug)]
pub struct Ipi {
    block: Threading,
    poll: Threading,
    wish: Wish,
}

impl ThreadingPolicy for Ipi {
    /// "The system initially uses interrupts."
    fn initial(&self) -> Threading {
        self.block
    }

    fn choices(&self) -> Vec<Threading> {
        vec![self.block, self.poll]
    }

    fn pace(&self) -> Pace {
        Pace::Blocking
    }

    fn decide(&mut self, signals: &ThreadSignals) -> Option<Threading> {
        if !self.wish.advances(signals.now) {
            return None;
        }
        // "checks if the system's active thread count exceeds the machine's logical core count. If higher, the system blocks, otherwise, it
        // shifts to polling"
        let setup = if signals.runnable > signals.cpus { self.block } else { self.poll };
        self.wish.want(signals, setup, Reason::Threads)
    }

    fn gauges(&self) -> ThreadGauges {
        self.wish.gauges_without_curves()
    }
}
