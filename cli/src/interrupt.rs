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
const REPEATED: Duration = Duration::from_millis(500);
/// Time that a command with nothing to lose has from a request to stop until the process is ended.
const PATIENCE: Duration = Duration::from_millis(600);

/// Way in which a command ends when it is asked to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// In its own time, because it owes somebody something, such as answers or a report.
    #[default]
    InOrder,
    /// After [`PATIENCE`] at the latest, because it has nothing to lose before [`Interrupt::finish`].
    Soon,
}

/// Whether somebody pressed Ctrl-C.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    asked: Arc<AtomicBool>,
    finishing: Arc<AtomicBool>,
    /// Time of the first request to stop.
    first: Arc<Mutex<Option<Instant>>>,
    leaving: Leaving,
}

impl Interrupt {
    /// Listens from now on. Once per process.
    pub(crate) fn listen(leaving: Leaving) -> Result<Interrupt, Failure> {
        let interrupt = Interrupt { leaving, ..Interrupt::default() };
        let heard = interrupt.clone();
        ctrlc::set_handler(move || heard.ask()).context("listening for Ctrl-C").map_err(Failure::Runtime)?;
        Ok(interrupt)
    }

    /// Asks to stop, as Ctrl-C does.
    pub(crate) fn ask(&self) {
        if self.is_second(Instant::now()) && !self.finishing.load(Ordering::SeqCst) {
            leave(self.leaving);
        }
    }

    /// Takes note of a request at `now`; whether it is one to leave at once.
    fn is_second(&self, now: Instant) -> bool {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = *first {
            return now.saturating_duration_since(first) > REPEATED;
        }
        *first = Some(now);
        drop(first);
        self.asked.store(true, Ordering::SeqCst);
        if self.leaving == Leaving::Soon {
            let finishing = Arc::clone(&self.finishing);
            // Without a thread the command ends when it next looks at the flag.
            let _ = thread::Builder::new().name("leaving".into()).spawn(move || {
                thread::sleep(PATIENCE);
                if !finishing.load(Ordering::SeqCst) {
                    leave(Leaving::Soon);
                }
            });
        }
        false
    }

    /// Whether somebody asked.
    pub(crate) fn asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    /// The flag to watch.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.asked
    }

    /// The last moment to stop: from here on the results are written, which takes a moment and is not broken off.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        self.finishing.store(true, Ordering::SeqCst);
        if self.asked.load(Ordering::SeqCst) { Err(Failure::Interrupted) } else { Ok(()) }
    }
}

/// Ends the process, whatever its threads are doing.
fn leave(leaving: Leaving) -> ! {
    terminal::restore_or_give_up();
    match leaving {
        Leaving::Soon => _ = Failure::Interrupted.report(),
        Leaving::InOrder => {
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
            assert_eq!(interrupt.is_second(first + Duration::from_millis(after_ms)), is_second, "after {after_ms} ms");
        };
        assert!(!interrupt.asked());
        check(0, false);
        assert!(interrupt.asked());
        check(1, false);
        check(500, false);
        check(501, true);
        check(9_000, true);
    }
}
