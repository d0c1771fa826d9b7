//! The header's code byte: reasons of rejections, failures and connection errors, and the meaning
//! of windows. The numbers are the wire's. 0 is none of them, so a header that was never filled in
//! is no valid frame.

use leeward_core::server::RejectReason;

/// Declares an enum whose variants have numbers on the wire.
macro_rules! codes {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $number:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$doc])* $variant = $number,)+
        }

        impl $name {
            /// All variants, by number.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The number on the wire.
            pub const fn number(self) -> u8 {
                self as u8
            }

            /// `None` for an unknown number.
            pub const fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some($name::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// Reason for which the server rejected a request before its execution, or gave it up while it
    /// waited.
    RejectCode {
        /// The queueing delay exceeds the controller's threshold.
        Delay = 1,
        /// The request is less important than the server's threshold.
        Priority = 2,
        /// The server's concurrency limit is reached, or it had no credit for a call on trust.
        Concurrency = 3,
        /// The request's budget would not last for a lock that it needs.
        Lock = 4,
        /// The client sent the request without a credit.
        NoCredit = 5,
        /// The server takes no more requests; another server may.
        ShuttingDown = 6,
        /// The client has cancelled the request. Since version 2.
        Cancelled = 7,
        /// A reason without a number of its own.
        Other = 255,
    }
}

impl From<RejectReason> for RejectCode {
    fn from(reason: RejectReason) -> Self {
        match reason {
            RejectReason::Delay => RejectCode::Delay,
            RejectReason::Priority => RejectCode::Priority,
            RejectReason::Concurrency => RejectCode::Concurrency,
            RejectReason::Lock => RejectCode::Lock,
            _ => RejectCode::Other,
        }
    }
}

codes! {
    /// Reason for which an admitted request has no result. The connection stays open.
    FailureCode {
        /// The server has no such method.
        UnknownMethod = 1,
        /// The method ended without a result: it panicked, or gave up.
        Failed = 2,
        /// The result is longer than the client accepts.
        ResponseTooLarge = 3,
    }
}

codes! {
    /// Reason for which the server closes the connection, in its final frame.
    ErrorCode {
        /// The client speaks a version that the server doesn't.
        Version = 1,
        /// Bytes that are no frame, or a frame with an invalid value.
        Malformed = 2,
        /// A payload longer than the server accepts.
        TooLarge = 3,
        /// A frame that the connection's phase forbids, such as a call before registration.
        Unexpected = 4,
        /// A call with the identifier of an unanswered call.
        DuplicateRequest = 5,
        /// The server has reached its limit of connections.
        ConnectionLimit = 6,
        /// The client was silent, or stuck in the middle of a frame, for too long.
        Timeout = 7,
        /// The server stops.
        ShuttingDown = 8,
        /// The server's own fault.
        Internal = 9,
    }
}

codes! {
    /// Meaning of a session's windows, which depends on the server's algorithm.
    Regime {
        /// A client may have at most its window of unanswered requests.
        Credits = 1,
        /// Windows are advisory; the client's own algorithm decides when to send.
        Open = 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_meaning_and_zero_has_none() {
        for number in 0..=u8::MAX {
            if let Some(reason) = RejectCode::from_number(number) {
                assert_eq!(reason.number(), number);
            }
        }
        assert_eq!(RejectCode::ALL.len(), 8);
        assert_eq!(RejectCode::from_number(0), None);
        assert_eq!(FailureCode::from_number(0), None);
        assert_eq!(ErrorCode::from_number(0), None);
        assert_eq!(Regime::from_number(0), None);
    }

    #[test]
    fn reject_reasons_map_to_codes() {
        assert_eq!(RejectCode::from(RejectReason::Delay), RejectCode::Delay);
        assert_eq!(RejectCode::from(RejectReason::Priority), RejectCode::Priority);
        assert_eq!(RejectCode::from(RejectReason::Concurrency), RejectCode::Concurrency);
    }
}
