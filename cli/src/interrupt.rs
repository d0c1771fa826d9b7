//! Ctrl-C, SIGTERM and SIGHUP: requests the running command to stop, and lets it clean up. A second
//! signal ends the process at once.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::failure::Failure;
use crate::terminal;

/// Time within which a repeated signal counts as the first: `timeout` sends its signal to the
/// program and to its process group.
const REPEAT_WINDOW: Duration = Duration::from_millis(500);
/// Time after a stop request at which a command in [`StopMode::Prompt`] is ended.
const EXIT_TIMEOUT: Duration = Duration::from_millis(600);

/// Reaction of a command to a stop request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StopMode {
    /// The command ends by itself, because it still has to deliver something, such as responses or
    /// a report.
    #[default]
    Graceful,
    /// The process ends after `EXIT_TIMEOUT` at the latest, because nothing is lost before
    /// [`Interrupt::finish`].
    Prompt,
}

/// Stop request of the user, by a signal or a key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    is_requested: Arc<AtomicBool>,
    is_finishing: Arc<AtomicBool>,
    /// Time of the first stop request.
    first_request: Arc<Mutex<Option<Instant>>>,
    stop_mode: StopMode,
}

impl Interrupt {
    /// A stop request of a command that listens for signals by itself, and ends gracefully.
    pub(crate) fn without_handler() -> Interrupt {
        Interrupt { stop_mode: StopMode::Graceful, ..Interrupt::default() }
    }

    /// Installs the signal handler. Call this once per process.
    pub(crate) fn listen(mode: StopMode) -> Result<Interrupt, Failure> {
        let interrupt = Interrupt { stop_mode: mode, ..Interrupt::default() };
        let handler = interrupt.clone();
        ctrlc::set_handler(move || handler.request()).context("listening for Ctrl-C").map_err(Failure::Runtime)?;
        Ok(interrupt)
    }

    /// Requests a stop, as Ctrl-C does.
    pub(crate) fn request(&self) {
        if self.record_request(Instant::now()) && !self.is_finishing.load(Ordering::SeqCst) {
            exit(self.stop_mode);
        }
    }

    /// Records a request at `now`; returns true if the process must end at once.
    fn record_request(&self, now: Instant) -> bool {
        let mut first = self.first_request.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = *first {
            return now.saturating_duration_since(first) > REPEAT_WINDOW;
        }
        *first = Some(now);
        drop(first);
        self.is_requested.store(true, Ordering::SeqCst);
        if self.stop_mode == StopMode::Prompt {
            let finishing = Arc::clone(&self.is_finishing);
            // Without a thread the command ends when it next checks the flag.
            let _ = thread::Builder::new().name("exit-timeout".into()).spawn(move || {
                thread::sleep(EXIT_TIMEOUT);
                if !finishing.load(Ordering::SeqCst) {
                    exit(StopMode::Prompt);
                }
            });
        }
        false
    }

    /// True if a stop was requested.
    pub(crate) fn is_requested(&self) -> bool {
        self.is_requested.load(Ordering::SeqCst)
    }

    /// Flag that is set by a stop request.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.is_requested
    }

    /// Last chance to stop: from here on results are written, which is short and not interrupted.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        self.is_finishing.store(true, Ordering::SeqCst);
        if self.is_requested.load(Ordering::SeqCst) { Err(Failure::Interrupted) } else { Ok(()) }
    }
}

/// Ends the process at once.
fn exit(mode: StopMode) -> ! {
    terminal::restore_with_timeout();
    match mode {
        StopMode::Prompt => _ = Failure::Interrupted.report(),
        StopMode::Graceful => {
            _ = writeln!(std::io::stderr(), "error: interrupted twice; unfinished work is lost");
        }
    }
    std::process::exit(130);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_within_half_a_second_are_one_request() {
        let interrupt = Interrupt::default();
        let first = Instant::now();
        let check = |after_ms: u64, is_second: bool| {
            assert_eq!(
                interrupt.record_request(first + Duration::from_millis(after_ms)),
                is_second,
                "after {after_ms} ms"
            );
        };
        assert!(!interrupt.is_requested());
        check(0, false);
        assert!(interrupt.is_requested());
        check(1, false);
        check(500, false);
        check(501, true);
        check(9_000, true);
    }
}
