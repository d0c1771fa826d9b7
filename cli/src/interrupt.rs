//! Ctrl-C (SIGTERM and SIGHUP alike): asks the running command to stop, and lets it tidy up. A second one leaves at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

use crate::failure::Failure;

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
        let handler = move || {
            let again = heard.asked.swap(true, Ordering::SeqCst);
            if again && !heard.finishing.load(Ordering::SeqCst) {
                std::process::exit(130);
            }
        };
        ctrlc::set_handler(handler).context("listening for Ctrl-C").map_err(Failure::Runtime)?;
        Ok(interrupt)
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
