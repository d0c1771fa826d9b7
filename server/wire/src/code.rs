//! The header's code byte: why a request was dropped or failed, why a connection ends, what windows mean. The numbers
//! are the wire's; 0 is none of them, so that a header which was never filled in is no valid frame.

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
            /// All of them, by number.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The number on the wire.
            pub const fn number(self) -> u8 {
                self as u8
            }

            /// `None` for a number that means nothing.
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
    /// Why the server dropped a request without executing it, or gave up while it waited.
    RejectCode {
        /// The queueing delay is over the controller's threshold.
        Delay = 1,
        /// The request is less important than the server's threshold.
        Priority = 2,
        /// The server's concurrency limit is reached, or it had no credit for a call on trust.
        Concurrency = 3,
        /// The request's budget would not last for a lock on its way.
        Lock = 4,
        /// The client sent it without a credit.
        NoCredit = 5,
        /// The server takes no more requests; another one may.
        ShuttingDown = 6,
        /// The client has cancelled it. Since version 2.
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
    /// Why an admitted request has no result. The connection goes on.
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
    /// Why the server closes the connection. The last frame that it sends.
    ErrorCode {
        /// The client speaks a version that the server doesn't.
        Version = 1,
        /// Bytes that are no frame, or a frame with a value that it must not have.
        Malformed = 2,
        /// A payload longer than the server accepts.
        TooLarge = 3,
        /// A frame at a moment when it must not come, such as a call before registration.
        Unexpected = 4,
        /// A call with the identifier of one that is still unanswered.
        DuplicateRequest = 5,
        /// The server has as many connections as it allows.
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
        /// A client has no more requests unanswered than its window.
        Credits = 1,
        /// Windows are advice; the client's own algorithm decides what it sends.
        Open = 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_means_one_thing_and_zero_nothing() {
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
    fn the_controllers_reasons_have_numbers() {
        assert_eq!(RejectCode::from(RejectReason::Delay), RejectCode::Delay);
        assert_eq!(RejectCode::from(RejectReason::Priority), RejectCode::Priority);
        assert_eq!(RejectCode::from(RejectReason::Concurrency), RejectCode::Concurrency);
    }
}
