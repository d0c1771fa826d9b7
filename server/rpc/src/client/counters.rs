//! Counters of calls by outcome, for monitoring and for the accounting in tests.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::call::Outcome;
use super::call_error::CallError;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Calls so far by outcome, with related counters.
        ///
        /// All except `calls`, `retries` and `connects` are outcomes. The difference between
        /// `calls` and their sum ([`ClientCounts::ended`]) is in flight.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct ClientCounts {
            $($(#[$doc])* pub $name: u64,)+
        }

        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: AtomicU64,)+
            /// Open connections that the server has welcomed.
            pub(super) connected: AtomicUsize,
        }

        impl Counters {
            pub(super) fn counts(&self) -> ClientCounts {
                // Read outcomes before calls: a call that ends meanwhile is never one outcome too
                // many.
                ClientCounts { $($name: self.$name.load(Ordering::Acquire),)+ }
            }
        }
    };
}

counters! {
    /// Ended with a result.
    completed,
    /// Rejected by a server, after all retries.
    rejected,
    /// Not sent because this client's controller expected a rejection.
    throttled,
    /// Expired at the client.
    expired,
    /// Displaced or rejected because too many calls waited.
    queue_full,
    /// Lost with a connection, or without any connection.
    disconnected,
    /// Lost because the server violated the protocol.
    protocol,
    /// Argument or result too long.
    too_large,
    /// Timed out.
    timed_out,
    /// Executed without a result, or of an unknown method.
    failed,
    /// Cancelled: the future was dropped.
    cancelled,
    /// Ended by the client's shutdown.
    shut_down,
    /// Calls made.
    calls,
    /// Retries of rejected calls at another replica.
    retries,
    /// Connections that a server has welcomed.
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

/// Counts an event.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::AcqRel);
}

impl Counters {
    /// Counts an outcome.
    pub(super) fn record_outcome(&self, outcome: &Outcome) {
        match outcome {
            Ok(_) => count(&self.completed),
            Err(error) => self.record_error(error),
        }
    }

    /// Counts an outcome without a result.
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
