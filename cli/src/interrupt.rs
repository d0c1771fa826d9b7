//! Ctrl-C (SIGTERM and SIGHUP alike): asks the running command to stop, and lets it tidy up. A second one leaves at once.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::failure::Failure;
use crate::terminal;

/// Requests to stop within this time of the first are the first again: `timeout` sends its signal to the program and to
/// the group that the program is in.
const REPEAT_WINDOW: Duration = Duration::from_millis(500);
/// Time that a command with nothing to lose has from a request to stop until the process is ended.
const EXIT_TIMEOUT: Duration = Duration::from_millis(600);

/// Way in which a command ends when it is asked to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StopMode {
    /// In its own time, because it owes somebody something, such as answers or a report.
    #[default]
    Graceful,
    /// After [`PATIENCE`] at the latest, because it has nothing to lose before [`Interrupt::finish`].
    Prompt,
}

/// Whether somebody pressed Ctrl-C.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    is_requested: Arc<AtomicBool>,
    is_finishing: Arc<AtomicBool>,
    /// Time of the first request to stop.
    first_request: Arc<Mutex<Option<Instant>>>,
    stop_mode: StopMode,
}

impl Interrupt {
    /// Listens from now on. Once per process.
    pub(crate) fn listen(leaving: StopMode) -> Result<Interrupt, Failure> {
        let interrupt = Interrupt { stop_mode: leaving, ..Interrupt::default() };
        let heard = interrupt.clone();
        ctrlc::set_handler(move || heard.request()).context("listening for Ctrl-C").map_err(Failure::Runtime)?;
        Ok(interrupt)
    }

    /// Asks to stop, as Ctrl-C does.
    pub(crate) fn request(&self) {
        if self.record_request(Instant::now()) && !self.is_finishing.load(Ordering::SeqCst) {
            exit(self.stop_mode);
        }
    }

    /// Takes note of a request at `now`; whether it is one to leave at once.
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
            // Without a thread the command ends when it next looks at the flag.
            let _ = thread::Builder::new().name("leaving".into()).spawn(move || {
                thread::sleep(EXIT_TIMEOUT);
                if !finishing.load(Ordering::SeqCst) {
                    exit(StopMode::Prompt);
                }
            });
        }
        false
    }

    /// Whether somebody asked.
    pub(crate) fn is_requested(&self) -> bool {
        self.is_requested.load(Ordering::SeqCst)
    }

    /// The flag to watch.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.is_requested
    }

    /// The last moment to stop: from here on the results are written, which takes a moment and is not broken off.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        self.is_finishing.store(true, Ordering::SeqCst);
        if self.is_requested.load(Ordering::SeqCst) { Err(Failure::Interrupted) } else { Ok(()) }
    }
}

/// Ends the process, whatever its threads are doing.
fn exit(leaving: StopMode) -> ! {
    terminal::restore_with_timeout();
    match leaving {
        StopMode::Prompt => _ = Failure::Interrupted.report(),
        StopMode::Graceful => {
            _ = writeln!(std::io::stderr(), "error: interrupted twice; what was under way is lost");
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
