//! Ctrl-C (SIGTERM and SIGHUP alike): asks the running command to stop, and lets it tidy up. A second one leaves at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

use crate::failure::Failure;
use crate::terminal;

/// Whether somebody pressed Ctrl-C.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    asked: Arc<AtomicBool>,
    finishing: Arc<AtomicBool>,
}

impl Interrupt {
    /// Listens from now on. Once per process.
    pub(crate) fn listen() -> Result<Interrupt, Failure> {
        let interrupt = Interrupt::default();
        let heard = interrupt.clone();
        ctrlc::set_handler(move || heard.ask()).context("listening for Ctrl-C").map_err(Failure::Runtime)?;
        Ok(interrupt)
    }

    /// Asks to stop, as Ctrl-C does.
    pub(crate) fn ask(&self) {
        let again = self.asked.swap(true, Ordering::SeqCst);
        if again && !self.finishing.load(Ordering::SeqCst) {
            terminal::restore();
            std::process::exit(130);
        }
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
