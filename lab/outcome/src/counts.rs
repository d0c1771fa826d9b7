//! Counters of requests: their ends at the clients, and their treatment by a server. Does not
//! contain the counting.

use serde::Serialize;

/// Declares a struct of counters, with its operations on each field.
macro_rules! counters {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: u64,)*
        }

        impl $name {
            /// Counts since `earlier`, field by field.
            pub fn since(&self, earlier: &Self) -> Self {
                $name { $($field: self.$field - earlier.$field,)* }
            }

            /// Sum of both, field by field.
            pub fn plus(&self, other: &Self) -> Self {
                $name { $($field: self.$field + other.$field,)* }
            }

            /// Name and value of each counter.
            pub fn entries(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field),)*]
            }
        }
    };
}

counters! {
    /// Ends of requests, as clients count them.
    ///
    /// Over a whole run, `offered` is the sum of all others except `late`, `good` and `sent_again`.
    RequestCounts {
        /// Requests issued by applications to the client.
        offered,
        /// Of these, issued later than due by more than the tolerance.
        late,
        /// Responses before the application's timeout.
        completed,
        /// Of these, within the objective, counted from the intended time.
        good,
        /// Requests whose response came after the application's timeout, or had not come by the
        /// end.
        timed_out,
        /// Rejected by the server.
        dropped,
        /// Admitted by the server, but ended without a result.
        failed,
        /// Unanswered at the loss of their connection.
        disconnected,
        /// Not sent because of the loss of their connection.
        unsent,
        /// Expired while waiting at the client.
        expired,
        /// Displaced from a full client queue.
        overflowed,
        /// Ended at the client because the algorithm expected a rejection.
        throttled,
        /// Not sent because they are longer than the server accepts.
        too_long,
        /// Neither answered nor given up at the end of the run.
        unfinished,
        /// Sent to a second server, if there are several; not an end.
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
        /// Of these, rejected because they did not get a lock.
        refused_at_locks,
        /// Requests that the controller would have rejected in shadow mode, including those that it
        /// did reject.
        #[serde(skip_serializing_if = "is_zero")]
        foreseen,
        /// Messages received, of any kind.
        rx_messages,
        /// Messages sent, of any kind.
        tx_messages,
    }
}

pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl RequestCounts {
    /// Sum of all ends, and of unfinished requests.
    pub fn total(&self) -> u64 {
        self.completed
            + self.timed_out
            + self.dropped
            + self.failed
            + self.disconnected
            + self.unfinished
            + self.client_total()
    }

    /// Requests that ended at the client, without reaching the server.
    pub fn client_total(&self) -> u64 {
        self.expired + self.overflowed + self.throttled + self.too_long + self.unsent
    }

    /// Whether every request has exactly one end, or is unfinished.
    pub fn is_balanced(&self) -> bool {
        self.offered == self.total()
    }
}

impl ServerCounts {
    /// Adds the counts of one of several servers.
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
    fn every_request_ends_once() {
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
