//! Reasons for which a request is refused, under the words that headers, metrics and people know. Never here: decisions.

use leeward_core::server::RejectReason;

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecisionReason {
    /// The request had waited so long that it could not be in time.
    Late,
    /// Its deadline had passed or would have before its end.
    Deadline,
    /// Less important than what is admitted.
    Level,
    /// Its tenant has had its share.
    Share,
    /// As many requests are under way as may be, or it came on trust and there was no credit for it.
    Concurrency,
    /// A lock on its way would not have come in time.
    Lock,
    /// The server's queues were longer than the controller lets them grow.
    Delay,
    /// Its client sent it without a credit. The controller was not asked.
    Credit,
    /// The server was stopping.
    Stopping,
    /// Its client had cancelled it.
    Cancelled,
    /// Services behind refuse most of its kind.
    Downstream,
    /// A reason without a name of its own.
    Other,
}

impl DecisionReason {
    /// All of them, in the order of their numbers.
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

    /// The word for it in headers and metrics.
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

    /// Whether a controller refuses for it, and not the server without asking one.
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

    /// The reason of this word.
    pub fn from_name(word: &str) -> Option<Self> {
        DecisionReason::ALL.into_iter().find(|reason| reason.name() == word)
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
    fn every_reason_has_a_word_and_a_number_of_its_own() {
        for (number, reason) in DecisionReason::ALL.into_iter().enumerate() {
            assert_eq!((reason as usize, DecisionReason::from_name(reason.name())), (number, Some(reason)));
        }
        assert_eq!(DecisionReason::from_name("Late"), None);
    }
}
