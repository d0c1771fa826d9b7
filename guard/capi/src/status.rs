//! Result codes of the C functions. Does not contain the functions.

use crate::border::cancel::Uncancelled;
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Reason for which a C function did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Failure {
    /// A pointer is NULL, a value is out of range, or a text is not UTF-8.
    Argument = -1,
    /// A structure's `size` is not one that this library knows.
    Size = -2,
    /// The permit has ended, the lock is not held, another thread runs the request, or this thread
    /// runs one of another gate.
    State = -3,
    /// The gate was freed.
    Closed = -4,
    /// The lock is held, or the gate has open permits, or an admin port already.
    Busy = -5,
    /// A table of fixed size is full.
    Limit = -6,
    /// The gate belongs to the parent process.
    Forked = -7,
    /// The lock would take longer than the request's budget.
    Congested = -8,
    /// The thread already holds the lock.
    Deadlock = -9,
    /// The operating system refused; `errno` or the log has the reason.
    System = -10,
    /// A defect of the library. The log has the message.
    Internal = -11,
}

impl Failure {
    const ALL: [Failure; 11] = [
        Failure::Argument,
        Failure::Size,
        Failure::State,
        Failure::Closed,
        Failure::Busy,
        Failure::Limit,
        Failure::Forked,
        Failure::Congested,
        Failure::Deadlock,
        Failure::System,
        Failure::Internal,
    ];

    fn text(self) -> &'static CStr {
        match self {
            Failure::Argument => c"an argument is NULL, out of range, or not UTF-8",
            Failure::Size => c"the structure's size is unknown to this library",
            Failure::State => {
                c"the permit has ended, the lock is not held, another thread runs the request, or this thread runs one of another gate"
            },
            Failure::Closed => c"the gate was freed",
            Failure::Busy => c"the lock is held, or the gate has open permits, or an admin port already",
            Failure::Limit => c"a table of fixed size is full",
            Failure::Forked => c"the gate belongs to the parent process",
            Failure::Congested => c"the lock would take longer than the request's budget",
            Failure::Deadlock => c"the thread already holds the lock",
            Failure::System => c"the operating system refused: see errno and the log",
            Failure::Internal => c"defect of libleeward: see the log",
        }
    }
}

/// Text of a result code.
pub(crate) fn text(code: i32) -> &'static CStr {
    match (code, Failure::ALL.into_iter().find(|failure| *failure as i32 == code)) {
        (0, _) => c"success",
        (1, _) => c"the request was rejected",
        (_, Some(failure)) => failure.text(),
        _ => c"unknown result code",
    }
}

/// Runs the body of a C function, in which the thread can't be cancelled; a panic becomes
/// [`Failure::Internal`].
pub(crate) fn uncancelled(body: impl FnOnce() -> Result<i32, Failure>) -> i32 {
    let _uncancelled = Uncancelled::new();
    caught(body)
}

/// Runs the body of a C function that calls nothing in which a thread can be cancelled, as those of
/// each request are; a panic becomes [`Failure::Internal`].
#[inline]
pub(crate) fn caught(body: impl FnOnce() -> Result<i32, Failure>) -> i32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(code)) => code,
        Ok(Err(failure)) => failure as i32,
        Err(panic) => {
            // The payload's own destructor may panic, too.
            std::mem::forget(panic);
            Failure::Internal as i32
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_code() {
        assert_eq!(caught(|| panic!("as asked")), Failure::Internal as i32);
        assert_eq!((caught(|| Ok(1)), caught(|| Err(Failure::Busy))), (1, -5));
    }

    #[test]
    fn every_code_has_a_text() {
        for failure in Failure::ALL {
            assert_eq!(text(failure as i32), failure.text());
        }
        assert_eq!((text(0), text(-99)), (c"success", c"unknown result code"));
    }
}
