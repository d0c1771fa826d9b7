//! Exemplars: decisions attached to the metric samples that count them, for `leeward why`. Does not
//! contain formats.

use crate::decision::{Decision, DecisionId, LifecycleStage};
use crate::explain::DecisionContext;
use crate::reason::DecisionReason;
use crate::watch::WaitStage;

/// Number of newest decisions that are searched for exemplars.
pub const SCAN_MAX: usize = 4_096;

/// A decision as an example of the requests that a sample counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    /// Number of the decision, for `leeward why`.
    pub decision: DecisionId,
    /// Time of the decision, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// Reason of the rejection, if the request was rejected.
    pub reason: Option<DecisionReason>,
    /// Class of the request, where there are classes.
    pub class: Option<u8>,
    /// Stage in which the request had waited until the decision.
    pub stage: WaitStage,
    /// Wait of the request, in nanoseconds; 0 if no wait histogram has counted it.
    pub wait_ns: u64,
}

impl Exemplar {
    /// Makes an exemplar of a decision.
    pub fn new(decision: &Decision, context: &DecisionContext) -> Self {
        Exemplar {
            decision: decision.id,
            unix_ns: context.unix_ns_of(decision),
            reason: decision.reject_reason,
            class: context.has_classes.then(|| decision.class()),
            stage: if decision.stage == LifecycleStage::Arrival { WaitStage::Socket } else { WaitStage::Worker },
            // During execution, `wait` is the time since arrival, and no bucket of waits has
            // counted that.
            wait_ns: if decision.stage == LifecycleStage::Execution { 0 } else { decision.wait.0 },
        }
    }
}

/// Newest exemplar of rejections with this reason and class, for a counter's sample.
pub(crate) fn rejection_exemplar<'a>(all: &'a [Exemplar], reason: &str, class: Option<u8>) -> Option<&'a Exemplar> {
    all.iter().find(|of| of.reason.map(DecisionReason::name) == Some(reason) && (class.is_none() || of.class == class))
}

/// Newest exemplar of a wait in `(above, bound]` nanoseconds, for a histogram's bucket.
///
/// A decision whose wait is not known is never an exemplar.
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
    fn the_newest_matching_exemplar_is_chosen() {
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
