//! Exemplars: decisions that stand beside the samples that count them, so that `leeward why` can be asked about one. Never here: formats.

use crate::decision::{Decision, DecisionId, LifecycleStage};
use crate::explain::DecisionContext;
use crate::reason::DecisionReason;
use crate::watch::WaitStage;

/// Decisions that are looked through for exemplars, the newest ones.
pub const SCAN_MAX: usize = 4_096;

/// A decision as an example of what a sample counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    /// Its number, for `leeward why`.
    pub decision: DecisionId,
    /// When it was made, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// Why the request was refused, if it was.
    pub reason: Option<DecisionReason>,
    /// Its class, where there are classes.
    pub class: Option<u8>,
    /// Where it had waited until then.
    pub stage: WaitStage,
    /// How long.
    pub wait_ns: u64,
}

impl Exemplar {
    /// A decision as an example.
    pub fn new(decision: &Decision, context: &DecisionContext) -> Self {
        Exemplar {
            decision: decision.id,
            unix_ns: context.unix_ns_of(decision),
            reason: decision.reject_reason,
            class: context.has_classes.then(|| decision.class()),
            stage: if decision.stage == LifecycleStage::Arrival { WaitStage::Socket } else { WaitStage::Worker },
            // Decisions in the middle of work know the time since their arrival, which no bucket of waits has counted.
            wait_ns: if decision.stage == LifecycleStage::Execution { 0 } else { decision.wait.0 },
        }
    }
}

/// The example of a counter of refusals: the newest one of that reason and class.
pub(crate) fn rejection_exemplar<'a>(all: &'a [Exemplar], reason: &str, class: Option<u8>) -> Option<&'a Exemplar> {
    all.iter().find(|of| of.reason.map(DecisionReason::name) == Some(reason) && (class.is_none() || of.class == class))
}

/// The example of a bucket of waits: the newest one over `above` and not over `bound` nanoseconds. Of a decision whose wait is not known
/// nothing is told.
pub(crate) fn wait_exemplar<'a>(all: &'a [Exemplar], stage: &str, above: u64, bound: u64) -> Option<&'a Exemplar> {
    let fits = |of: &&Exemplar| of.wait_ns > above && of.wait_ns <= bound && of.stage.name() == stage;
    all.iter().find(fits)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use leeward_core::units::{Nanos, Time};

    fn exemplar(id: u64, refused: Option<DecisionReason>, waited_ns: u64) -> Exemplar {
        let mut decision = Decision::admitted(Time(5));
        (decision.id, decision.reject_reason, decision.wait) = (DecisionId(id), refused, Nanos(waited_ns));
        Exemplar::new(
            &decision,
            &DecisionContext { now: Time(9), unix_ns: 100, has_classes: true, ..DecisionContext::default() },
        )
    }

    #[test]
    fn the_newest_that_fits_is_taken() {
        let all = [
            exemplar(9, None, 30_000),
            exemplar(8, Some(DecisionReason::Level), 0),
            exemplar(7, Some(DecisionReason::Late), 15_000),
            exemplar(6, Some(DecisionReason::Late), 12_000),
        ];
        assert_eq!(all[0].unix_ns, 96);
        let refusal =
            |reason: DecisionReason, class| rejection_exemplar(&all, reason.name(), class).map(|of| of.decision.0);
        assert_eq!((refusal(DecisionReason::Late, None), refusal(DecisionReason::Late, Some(0))), (Some(7), Some(7)));
        assert_eq!((refusal(DecisionReason::Late, Some(3)), refusal(DecisionReason::Lock, None)), (None, None));
        let wait = |above, bound| wait_exemplar(&all, "socket", above, bound).map(|of| of.decision.0);
        assert_eq!((wait(10_000, 20_000), wait(20_000, 40_000), wait(0, 10_000)), (Some(7), Some(9), None));
        assert!(wait_exemplar(&all, "worker", 0, u64::MAX).is_none());
    }
}
