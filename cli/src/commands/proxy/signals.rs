//! Signals of `leeward proxy`: SIGHUP and SIGUSR2 are requests of the operator, SIGINT and SIGTERM
//! stop. Several of a kind that come while one is dealt with are one. Does not contain their
//! effects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};

use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// Requests that signals have made.
pub(super) struct Signals {
    interrupt: Interrupt,
    reload: Arc<AtomicBool>,
    upgrade: Arc<AtomicBool>,
}

impl Signals {
    /// Listens for signals, and wakes this thread. Call this once per process.
    pub(super) fn listen() -> Result<Signals, Failure> {
        let listening = || "listening for signals";
        let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM, SIGUSR2])
            .with_context(listening)
            .map_err(Failure::Runtime)?;
        let (interrupt, reload, upgrade) = (Interrupt::without_handler(), Arc::default(), Arc::default());
        let all = Signals { interrupt, reload, upgrade };
        let (interrupt, reload, upgrade) = (all.interrupt.clone(), Arc::clone(&all.reload), Arc::clone(&all.upgrade));
        let waiting: Thread = thread::current();
        let listen = move || {
            for signal in signals.forever() {
                match signal {
                    SIGHUP => reload.store(true, Ordering::SeqCst),
                    SIGUSR2 => upgrade.store(true, Ordering::SeqCst),
                    _ => interrupt.request(),
                }
                waiting.unpark();
            }
        };
        thread::Builder::new()
            .name("signals".into())
            .spawn(listen)
            .with_context(listening)
            .map_err(Failure::Runtime)?;
        Ok(all)
    }

    /// Waits for a signal, at most so long; it may return early.
    pub(super) fn wait(&self, longest: Duration) {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::SeqCst);
        if !self.interrupt.is_requested() && !is_set(&self.reload) && !is_set(&self.upgrade) {
            thread::park_timeout(longest);
        }
    }

    /// The request to stop.
    pub(super) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Whether new settings are to be taken; the request is then done.
    pub(super) fn take_reload(&self) -> bool {
        self.reload.swap(false, Ordering::SeqCst)
    }

    /// Whether another process is to take over; the request is then done.
    pub(super) fn take_upgrade(&self) -> bool {
        self.upgrade.swap(false, Ordering::SeqCst)
    }
}
