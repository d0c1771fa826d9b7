//! Messages for the program that uses the library. Silent until the program sets a function. Does
//! not contain the messages.
#![allow(unsafe_code)]

use crate::border::cancel::Uncancelled;
use crate::thread;
use leeward_core::units::{Nanos, Time};
use leeward_runtime::clock;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};

/// Function of the program that takes a message.
pub(crate) type LogFunction = unsafe extern "C" fn(user: *mut c_void, level: c_int, message: *const c_char);

/// Importance of a message.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum Level {
    /// A defect of the library.
    Error = 1,
    /// A wrong use by the program.
    Warning = 2,
    /// A change of state, such as a new gate.
    Info = 3,
}

#[derive(Clone, Copy)]
struct Target {
    function: LogFunction,
    user: *mut c_void,
}

// SAFETY: the program promises (`lw_log_set`) that any thread may call the function with `user`;
// this library never follows the pointer.
unsafe impl Send for Target {}

static TARGET: Mutex<Option<Target>> = Mutex::new(None);

/// Sets or removes the function.
pub(crate) fn set(function: Option<LogFunction>, user: *mut c_void) {
    *TARGET.lock().unwrap_or_else(PoisonError::into_inner) = function.map(|function| Target { function, user });
}

/// When a message was given last, by the process's clock.
pub(crate) struct LastGiven(AtomicU64);

impl LastGiven {
    pub(crate) const fn never() -> Self {
        LastGiven(AtomicU64::new(0))
    }

    /// Whether the message is due at `now`: it was not given in the minute before.
    fn is_due(&self, now: Time) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        let is_due = last == 0 || now.since(Time(last)) >= Nanos::from_secs(60);
        // Of threads that find so together, one gives it.
        is_due && self.0.compare_exchange(last, now.0.max(1), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// Gives a warning as [`message`] does, at most once a minute.
pub(crate) fn warn(last: &LastGiven, text: &str) {
    if last.is_due(clock::process()) {
        message(Level::Warning, text);
    }
}

/// Gives a message to the program's function, if there is one.
pub(crate) fn message(level: Level, text: &str) {
    // Copied, so that the function may set another one.
    let target = *TARGET.lock().unwrap_or_else(PoisonError::into_inner);
    let (Some(target), Ok(text)) = (target, CString::new(text.replace('\0', " "))) else { return };
    // It may write, and is called by requests, too.
    let _uncancelled = Uncancelled::new();
    // SAFETY: the program promises that the function may be called by any thread with this pointer.
    unsafe { (target.function)(target.user, level as c_int, text.as_ptr()) }
}

/// Sends the message of a panic to the program's function instead of standard error, whose number
/// may be a client's connection in a daemon.
///
/// A program that links the static library has one standard library, and so one hook, for all of
/// its Rust code: panics of threads that never called the library keep the hook that was there.
pub(crate) fn install_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if thread::is_known() {
                message(Level::Error, &format!("defect: {panic}"));
            } else {
                previous(panic);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_due_once_a_minute() {
        let last = LastGiven::never();
        let due = [1, 2, 60_000, 60_001, 60_002, 120_000, 120_001].map(|ms| last.is_due(Time(ms * 1_000_000)));
        assert_eq!(due, [true, false, false, true, false, false, true]);
    }
}
