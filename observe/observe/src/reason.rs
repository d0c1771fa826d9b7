//! Reasons of rejections, with their names in headers and metrics. Does not contain decisions.

use leeward_core::server::RejectReason;

/// Reason of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecisionReason {
    /// The request had waited so long that it could not meet the objective.
    Late,
    /// The request's deadline had passed, or would have passed before the request ended.
    Deadline,
    /// The request's priority was below the admission level.
    Level,
    /// The request's tenant had used up its share.
    Share,
    /// The concurrency limit was reached, or the request came without a credit and none was left.
    Concurrency,
    /// A lock on the request's way would have taken longer than the request's budget.
    Lock,
    /// The queueing delay exceeded the controller's limit.
    Delay,
    /// The client sent the request without a credit. The controller was not asked.
    Credit,
    /// The server was stopping.
    Stopping,
    /// The client had cancelled the request.
    Cancelled,
    /// Downstream services reject most requests of this kind.
    Downstream,
    /// A reason without a name of its own.
    Other,
}

impl DecisionReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [DecisionReason; 12] = [
        DecisionReason::Late,
        DecisionReason::Deadline,
        DecisionReason::Level,
        DecisionReason::Share,
        DecisionReason::Concurrency,
        DecisionReason::Lock,
        DecisionReason::Delay,
        DecisionReason::Credit,
        DecisionReason::Stopping,
        DecisionReason::Cancelled,
        DecisionReason::Downstream,
        DecisionReason::Other,
    ];

    /// Name in headers and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            DecisionReason::Late => "late",
            DecisionReason::Deadline => "deadline",
            DecisionReason::Level => "level",
            DecisionReason::Share => "share",
            DecisionReason::Concurrency => "concurrency",
            DecisionReason::Lock => "lock",
            DecisionReason::Delay => "delay",
            DecisionReason::Credit => "credit",
            DecisionReason::Stopping => "stopping",
            DecisionReason::Cancelled => "cancelled",
            DecisionReason::Downstream => "behind",
            DecisionReason::Other => "other",
        }
    }

    /// True if a controller rejects for this reason; false if the server rejects without asking
    /// one.
    pub const fn is_from_controller(self) -> bool {
        !matches!(
            self,
            DecisionReason::Lock
                | DecisionReason::Credit
                | DecisionReason::Stopping
                | DecisionReason::Cancelled
                | DecisionReason::Downstream
        )
    }

    /// Returns the reason with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        DecisionReason::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

impl From<RejectReason> for DecisionReason {
    fn from(reason: RejectReason) -> Self {
        match reason {
            RejectReason::Delay => DecisionReason::Delay,
            RejectReason::Priority => DecisionReason::Level,
            RejectReason::Share => DecisionReason::Share,
            RejectReason::Concurrency => DecisionReason::Concurrency,
            RejectReason::Lock => DecisionReason::Lock,
            _ => DecisionReason::Other,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_unique_name_and_number() {
        for (number, reason) in DecisionReason::ALL.into_iter().enumerate() {
            assert_eq!((reason as usize, DecisionReason::from_name(reason.name())), (number, Some(reason)));
        }
        assert_eq!(DecisionReason::from_name("Late"), None);
    }
}
