//! Reasons for which a request is refused, under the words that headers, metrics and people know. Never here: decisions.

use leeward_core::server::RejectReason;

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
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
    Behind,
    /// A reason without a name of its own.
    Other,
}

impl Reason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Reason; 12] = [
        Reason::Late,
        Reason::Deadline,
        Reason::Level,
        Reason::Share,
        Reason::Concurrency,
        Reason::Lock,
        Reason::Delay,
        Reason::Credit,
        Reason::Stopping,
        Reason::Cancelled,
        Reason::Behind,
        Reason::Other,
    ];

    /// The word for it in headers and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Reason::Late => "late",
            Reason::Deadline => "deadline",
            Reason::Level => "level",
            Reason::Share => "share",
            Reason::Concurrency => "concurrency",
            Reason::Lock => "lock",
            Reason::Delay => "delay",
            Reason::Credit => "credit",
            Reason::Stopping => "stopping",
            Reason::Cancelled => "cancelled",
            Reason::Behind => "behind",
            Reason::Other => "other",
        }
    }

    /// Whether a controller refuses for it, and not the server without asking one.
    pub const fn is_of_controller(self) -> bool {
        !matches!(self, Reason::Lock | Reason::Credit | Reason::Stopping | Reason::Cancelled | Reason::Behind)
    }

    /// The reason of this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Reason::ALL.into_iter().find(|reason| reason.word() == word)
    }
}

impl From<RejectReason> for Reason {
    fn from(reason: RejectReason) -> Self {
        match reason {
            RejectReason::Delay => Reason::Delay,
            RejectReason::Priority => Reason::Level,
            RejectReason::Share => Reason::Share,
            RejectReason::Concurrency => Reason::Concurrency,
            RejectReason::Lock => Reason::Lock,
            _ => Reason::Other,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_word_and_a_number_of_its_own() {
        for (number, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!((reason as usize, Reason::from_word(reason.word())), (number, Some(reason)));
        }
        assert_eq!(Reason::from_word("Late"), None);
    }
}
