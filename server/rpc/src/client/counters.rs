//! How many calls ended how: for monitoring, and for the books of tests.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::call::Outcome;
use super::call_error::CallError;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Calls so far, by how they ended, and what was done for them. All but `calls`, `retries` and `connects` are
        /// ends: `calls` less their sum ([`ClientCounts::ended`]) is under way.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct ClientCounts {
            $($(#[$doc])* pub $name: u64,)+
        }

        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: AtomicU64,)+
            /// Connections that have been welcomed and live.
            pub(super) connected: AtomicUsize,
        }

        impl Counters {
            pub(super) fn counts(&self) -> ClientCounts {
                // Ends before calls: a call that ends meanwhile is never an end too many.
                ClientCounts { $($name: self.$name.load(Ordering::Acquire),)+ }
            }
        }
    };
}

counters! {
    /// Ended with a result.
    completed,
    /// Rejected by a server, in the end.
    rejected,
    /// Not sent because this client's controller expected a rejection.
    throttled,
    /// Expired here.
    expired,
    /// Displaced or refused because too many waited.
    queue_full,
    /// Lost with a connection, or there was none.
    disconnected,
    /// Lost because the server broke the protocol.
    protocol,
    /// Too long an argument or a result.
    too_large,
    /// Timed out.
    timed_out,
    /// Executed without a result, or of no known method.
    failed,
    /// Their future was dropped.
    cancelled,
    /// Ended by the client's end.
    shut_down,
    /// Calls made.
    calls,
    /// Times that a rejected call was sent to another replica.
    retries,
    /// Connections that were welcomed.
    connects,
}

impl ClientCounts {
    /// Calls that have ended.
    pub fn ended(&self) -> u64 {
        self.completed
            + self.rejected
            + self.throttled
            + self.expired
            + self.queue_full
            + self.disconnected
            + self.protocol
            + self.too_large
            + self.timed_out
            + self.failed
            + self.cancelled
            + self.shut_down
    }
}

/// ClientCounts an event.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::AcqRel);
}

impl Counters {
    /// ClientCounts an end.
    pub(super) fn record_outcome(&self, outcome: &Outcome) {
        match outcome {
            Ok(_) => count(&self.completed),
            Err(error) => self.record_error(error),
        }
    }

    /// ClientCounts an end without a result.
    pub(super) fn record_error(&self, error: &CallError) {
        count(match error {
            CallError::Rejected { .. } => &self.rejected,
            CallError::Throttled => &self.throttled,
            CallError::Expired { .. } => &self.expired,
            CallError::QueueFull { .. } => &self.queue_full,
            CallError::Disconnected { .. } => &self.disconnected,
            CallError::Protocol { .. } => &self.protocol,
            CallError::TooLarge { .. } | CallError::ResponseTooLarge => &self.too_large,
            CallError::TimedOut { .. } => &self.timed_out,
            CallError::Failed { .. } | CallError::UnknownMethod { .. } => &self.failed,
            CallError::ShutDown { .. } => &self.shut_down,
        });
    }
}
