//! Counters of requests: how they ended at their clients, and what a server did with them. Who counts is elsewhere.

use serde::Serialize;

/// Declares a struct of counters once: its fields and what is done field by field.
macro_rules! counters {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: u64,)*
        }

        impl $name {
            /// Counts since `earlier`.
            pub fn since(&self, earlier: &Self) -> Self {
                $name { $($field: self.$field - earlier.$field,)* }
            }

            /// Counts of both.
            pub fn plus(&self, other: &Self) -> Self {
                $name { $($field: self.$field + other.$field,)* }
            }

            /// Every counter by its name.
            pub fn entries(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field),)*]
            }
        }
    };
}

counters! {
    /// How requests ended, as clients count them. Over a whole run `offered` is the sum of all others but `late`, `good` and
    /// `sent_again`.
    RequestCounts {
        /// Issued by applications: given to the client.
        offered,
        /// Of those, issued later than they were due by more than the tolerance.
        late,
        /// Responses in time for the application.
        completed,
        /// Of those, within the objective, counted from the intended time.
        good,
        /// Responses that came, or had not come by the end, after the application's timeout.
        timed_out,
        /// Drops by the server.
        dropped,
        /// Admitted by the server and ended without a result.
        failed,
        /// Unanswered when their connection was lost.
        disconnected,
        /// Not sent, because their connection was lost.
        unsent,
        /// Expired while waiting at the client.
        expired,
        /// Displaced from a full client queue.
        overflowed,
        /// Ended at the client because the algorithm expected a drop.
        throttled,
        /// Not sent, because longer than the server accepts.
        too_long,
        /// Neither answered nor given up when the run ended.
        unfinished,
        /// Sent to a second server, where there are several; no end.
        #[serde(skip_serializing_if = "is_zero")]
        sent_again,
    }
}

counters! {
    /// Counts of a server's requests and messages.
    ServerCounts {
        /// Requests received.
        received,
        /// Requests rejected.
        rejected,
        /// Of these, the ones that did not get a lock.
        refused_at_locks,
        /// Requests that the controller would have refused, where it rehearses; those that it did refuse among them.
        #[serde(skip_serializing_if = "is_zero")]
        foreseen,
        /// Messages received, of any kind.
        rx_messages,
        /// Messages sent, of any kind.
        tx_messages,
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl RequestCounts {
    /// All ends, and what has none yet.
    pub fn total(&self) -> u64 {
        self.completed
            + self.timed_out
            + self.dropped
            + self.failed
            + self.disconnected
            + self.unfinished
            + self.client_total()
    }

    /// Requests that ended at the client: the server never heard of them.
    pub fn client_total(&self) -> u64 {
        self.expired + self.overflowed + self.throttled + self.too_long + self.unsent
    }

    /// Whether every request has exactly one end, or is still under way.
    pub fn is_balanced(&self) -> bool {
        self.offered == self.total()
    }
}

impl ServerCounts {
    /// Adds what one server of several has counted.
    pub fn add(&mut self, server: &ServerCounts) {
        self.received += server.received;
        self.rejected += server.rejected;
        self.refused_at_locks += server.refused_at_locks;
        self.foreseen += server.foreseen;
        self.rx_messages += server.rx_messages;
        self.tx_messages += server.tx_messages;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_has_one_end() {
        let mut counts =
            RequestCounts { offered: 12, completed: 3, good: 2, late: 1, sent_again: 4, ..RequestCounts::default() };
        assert!(!counts.is_balanced());
        (counts.timed_out, counts.dropped, counts.failed, counts.disconnected, counts.unfinished) = (1, 1, 1, 1, 0);
        (counts.expired, counts.overflowed, counts.throttled, counts.too_long, counts.unsent) = (1, 1, 1, 1, 1);
        assert_eq!((counts.total(), counts.client_total()), (12, 5));
        assert!(counts.is_balanced());
    }

    #[test]
    fn counters_are_subtracted_and_added_one_by_one() {
        let earlier = ServerCounts { received: 5, rejected: 1, tx_messages: 4, ..ServerCounts::default() };
        let counts =
            ServerCounts { received: 9, refused_at_locks: 1, foreseen: 2, rx_messages: 9, ..ServerCounts::default() };
        let mut later = ServerCounts { rejected: 3, tx_messages: 9, ..counts };
        let since = ServerCounts { received: 4, rejected: 2, tx_messages: 5, ..counts };
        assert_eq!(later.since(&earlier), since);
        later = earlier;
        later.add(&since);
        assert_eq!(later.since(&since), earlier);
    }
}
