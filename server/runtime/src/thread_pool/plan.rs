//! The plan: the current setup, in one word that any thread reads without a lock. Does not contain
//! the assignment of threads.

use crate::sync::{AtomicU64, Ordering};
use leeward_core::units::Nanos;
use leeward_threading::{Fanout, Handling, SPIN_MIN, Setup, Wait};

/// Bits of the setup; the epoch has the others.
const SETUP_BITS: u32 = 40;
/// Bits of a pool's size. Sizes are stored less one, since a model's pool is never empty.
const POOL_BITS: u32 = 10;
const EPOCHS: u32 = 1 << (u64::BITS - SETUP_BITS);

/// Number of plan changes, modulo 2²⁴. Plans are compared only for equality. A thread would have to
/// sleep through sixteen million switches to mistake a new plan for its own. Even then, only its
/// role would be outdated until the next plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(u32);

impl Epoch {
    /// Epoch that no plan has, for a thread that has seen none.
    pub const NONE: Epoch = Epoch(u32::MAX);
    /// Epoch of the first plan.
    pub const FIRST: Epoch = Epoch(0);

    /// The epoch after this one.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch(self.0.wrapping_add(1) % EPOCHS)
    }
}

/// The plan word: 24 bits of epoch, 40 bits of setup (threading models, §2.4). It is
/// level-triggered: a thread that reads it late has missed only plans that are no longer current.
#[derive(Debug)]
pub(crate) struct PlanWord(AtomicU64);

impl PlanWord {
    pub(crate) fn new(setup: &Setup) -> Self {
        PlanWord(AtomicU64::new(pack(Epoch::FIRST, setup)))
    }

    /// Loads the current plan. The fences of [`super::sleepers`] order a sleeper's last check
    /// against the planner's store.
    pub(crate) fn load(&self) -> (Epoch, Setup) {
        unpack(self.0.load(Ordering::Acquire))
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.load().0
    }

    /// Called under the lock of the assignments.
    pub(crate) fn store(&self, epoch: Epoch, setup: &Setup) {
        self.0.store(pack(epoch, setup), Ordering::Release);
    }
}

fn pack(epoch: Epoch, setup: &Setup) -> u64 {
    let (wait, spin) = match setup.wait {
        Wait::Block => (0, 0),
        Wait::Poll => (1, 0),
        Wait::PollFor(span) => (2, u64::from((span.0 / SPIN_MIN.0).max(1).ilog2())),
    };
    let pool = |size: u16| u64::from(size.max(1) - 1) & ((1 << POOL_BITS) - 1);
    let mut word = u64::from(epoch.0);
    let mut append = |bits: u32, value: u64| word = word << bits | value;
    append(1, u64::from(setup.fanout == Fanout::Async));
    append(1, u64::from(setup.handling == Handling::Dispatched));
    append(2, wait);
    append(6, spin);
    append(POOL_BITS, pool(setup.network));
    append(POOL_BITS, pool(setup.worker));
    append(POOL_BITS, pool(setup.response));
    word
}

fn unpack(word: u64) -> (Epoch, Setup) {
    let mut rest = word;
    let mut take = |bits: u32| {
        let value = rest & ((1 << bits) - 1);
        rest >>= bits;
        value
    };
    let (response, worker, network) = (take(POOL_BITS), take(POOL_BITS), take(POOL_BITS));
    let (spin, wait) = (take(6), take(2));
    let handling = if take(1) == 1 { Handling::Dispatched } else { Handling::InLine };
    let fanout = if take(1) == 1 { Fanout::Async } else { Fanout::Sync };
    let pool = |size: u64, is_there: bool| if is_there { size as u16 + 1 } else { 0 };
    let setup = Setup {
        fanout,
        handling,
        wait: match wait {
            0 => Wait::Block,
            1 => Wait::Poll,
            _ => Wait::PollFor(Nanos(SPIN_MIN.0 << spin)),
        },
        network: pool(network, true),
        worker: pool(worker, handling == Handling::Dispatched),
        response: pool(response, fanout == Fanout::Async),
    };
    (Epoch(rest as u32), setup)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn plans_round_trip() {
        let setups = [
            "SIB1",
            "SIP1024",
            "SDB1-50",
            "SDP3-1024@250ns",
            "AIB1-0-1",
            "AIP1024-0-1024@16384us",
            "ADB1-4-4",
            "ADP7-9-11",
        ];
        for text in setups {
            let Ok(setup) = text.parse::<Setup>() else { panic!("{text}") };
            for epoch in [Epoch::FIRST, Epoch(77), Epoch(EPOCHS - 1)] {
                assert_eq!(unpack(pack(epoch, &setup)), (epoch, setup), "{text}");
            }
        }
    }

    #[test]
    fn epochs_wrap_around_and_never_equal_the_epoch_of_no_plan() {
        assert_eq!(Epoch(EPOCHS - 1).next(), Epoch::FIRST);
        assert_ne!(Epoch(EPOCHS - 1), Epoch::NONE);
    }
}
