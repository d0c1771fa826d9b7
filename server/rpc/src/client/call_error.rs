//! Errors of calls that end without a result.

use leeward_core::units::Nanos;

use crate::wire::{PayloadLimit, RejectCode};

/// Whether a call without a result may have had an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The call was not begun: a repetition does nothing twice.
    Excluded,
    /// The call was sent, and its outcome is unknown.
    Possible,
}

/// Reason for a call without a result. `waited` is the time since the call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server rejected the call, mostly because of overload. Send less, or elsewhere.
    #[error("rejected by the server after {waited}: {reason:?}{}{}", message_suffix(.message), hint(.retry_after))]
    Rejected {
        /// The server's reason.
        reason: RejectCode,
        /// Details for people: the lock's name for [`RejectCode::Lock`]; mostly empty.
        message: String,
        /// Time for which the server asks this client to send nothing, if it does.
        retry_after: Option<Nanos>,
        /// Time since the call.
        waited: Nanos,
    },
    /// Not sent: this client's controller expects the server to reject it.
    #[error("not sent: the server would reject it")]
    Throttled,
    /// Not sent: the call waited too long for credit at the client.
    #[error("not sent: expired after {waited} at the client")]
    Expired {
        /// Time since the call.
        waited: Nanos,
    },
    /// Not sent: the call was the oldest in a full queue, or too many calls were in flight.
    #[error("not sent: the client's queue was full (after {waited})")]
    QueueFull {
        /// Time since the call.
        waited: Nanos,
    },
    /// The connection was lost, or no replica was reachable within the wait for a connection.
    #[error("{}: {reason}", lost(.effect))]
    Disconnected {
        /// Whether the server may have executed the call.
        effect: Effect,
        /// Cause of the loss, for people.
        reason: String,
    },
    /// The server violated the protocol after this call was sent.
    #[error("the server broke the protocol (the call may have been executed): {violation}")]
    Protocol {
        /// Description of the violation, for people.
        violation: String,
    },
    /// The argument is too long.
    #[error("not sent: an argument of {length} B; accepted: {} B", limit.bytes())]
    TooLarge {
        /// Length of the argument in bytes.
        length: usize,
        /// Limit of this client, or of the server.
        limit: PayloadLimit,
    },
    /// The result is longer than this client accepts, or than its datagrams hold; the server
    /// executed the call.
    #[error("the result is longer than this client accepts, or than its datagrams hold")]
    ResponseTooLarge,
    /// No response arrived within the call's timeout.
    #[error("timed out after {waited}{}", executed(.effect))]
    TimedOut {
        /// Whether the server may have executed the call.
        effect: Effect,
        /// Time since the call.
        waited: Nanos,
    },
    /// The server executed the call, without a result.
    #[error("failed at the server: {message}")]
    Failed {
        /// The handler's message.
        message: String,
    },
    /// The server has no such method.
    #[error("the server has no such method: {message}")]
    UnknownMethod {
        /// The server's message.
        message: String,
    },
    /// The client was shut down, before the call or during it.
    #[error("the client was shut down{}", executed(.effect))]
    ShutDown {
        /// Whether the server may have executed the call.
        effect: Effect,
    },
}

fn message_suffix(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" ({message})") }
}

fn hint(retry_after: &Option<Nanos>) -> String {
    retry_after.map_or_else(String::new, |span| format!(", retry after {span}"))
}

fn lost(effect: &Effect) -> &'static str {
    match effect {
        Effect::Excluded => "not sent, no connection",
        Effect::Possible => "connection lost (the call may have been executed)",
    }
}

fn executed(effect: &Effect) -> &'static str {
    match effect {
        Effect::Excluded => ", the call was not sent",
        Effect::Possible => " (the call may have been executed)",
    }
}

impl CallError {
    /// Whether the server may have executed the call, wholly or in part.
    ///
    /// A call with [`Effect::Excluded`] is always safe to repeat.
    pub fn effect(&self) -> Effect {
        match self {
            CallError::Rejected { reason, .. } => effect_of(*reason),
            CallError::Throttled
            | CallError::Expired { .. }
            | CallError::QueueFull { .. }
            | CallError::TooLarge { .. }
            | CallError::UnknownMethod { .. } => Effect::Excluded,
            CallError::Protocol { .. } | CallError::ResponseTooLarge | CallError::Failed { .. } => Effect::Possible,
            CallError::Disconnected { effect, .. }
            | CallError::TimedOut { effect, .. }
            | CallError::ShutDown { effect } => *effect,
        }
    }

    /// Whether the error is a sign of overload, which more calls would make worse.
    pub fn is_overload(&self) -> bool {
        matches!(
            self,
            CallError::Rejected { .. }
                | CallError::Throttled
                | CallError::Expired { .. }
                | CallError::QueueFull { .. }
                | CallError::TimedOut { .. }
        )
    }
}

/// Effect of a rejected call, by docs/protocol.md: begun, or not.
pub(super) fn effect_of(reason: RejectCode) -> Effect {
    match reason {
        RejectCode::Delay
        | RejectCode::Priority
        | RejectCode::Concurrency
        | RejectCode::NoCredit
        | RejectCode::ShuttingDown => Effect::Excluded,
        RejectCode::Lock | RejectCode::Cancelled | RejectCode::Other => Effect::Possible,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_errors_have_informative_messages() {
        let waited = Nanos::from_micros(120);
        for (error, text) in [
            (
                CallError::Rejected {
                    reason: RejectCode::Delay,
                    message: String::new(),
                    retry_after: Some(Nanos::from_millis(2)),
                    waited,
                },
                "rejected by the server after 120us: Delay, retry after 2ms",
            ),
            (
                CallError::Rejected { reason: RejectCode::Lock, message: "accounts".into(), retry_after: None, waited },
                "rejected by the server after 120us: Lock (accounts)",
            ),
            (CallError::Expired { waited }, "not sent: expired after 120us at the client"),
            (
                CallError::TimedOut { effect: Effect::Possible, waited },
                "timed out after 120us (the call may have been executed)",
            ),
            (
                CallError::Disconnected { effect: Effect::Excluded, reason: "refused".into() },
                "not sent, no connection: refused",
            ),
            (
                CallError::TooLarge { length: 5000, limit: PayloadLimit::MIN },
                "not sent: an argument of 5000 B; accepted: 1024 B",
            ),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn only_unexecuted_calls_are_safe_to_retry() {
        let rejected =
            |reason| CallError::Rejected { reason, message: String::new(), retry_after: None, waited: Nanos::ZERO };
        assert_eq!(rejected(RejectCode::Delay).effect(), Effect::Excluded);
        assert_eq!(rejected(RejectCode::Lock).effect(), Effect::Possible);
        assert_eq!(CallError::Protocol { violation: String::new() }.effect(), Effect::Possible);
    }
}
