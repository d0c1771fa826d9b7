//! Event sources that a server's cores poll besides their connections. The main one is a client's
//! connections: a mid-tier's responses then arrive on the core that waits for them, without another
//! thread.

use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// An event source that a core polls.
pub trait EventSource: Send {
    /// Returns the descriptor that is readable while there is work. It never changes.
    fn descriptor(&self) -> RawFd;

    /// Does the pending work, without blocking.
    fn poll(&mut self) -> PollStatus;
}

/// Result of [`EventSource::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollStatus {
    /// Nothing to do until the descriptor is readable.
    Idle,
    /// Poll again soon.
    Busy,
    /// The source has ended and is dropped.
    Done,
}

/// Event sources for the cores of a server that is about to start. Clones share the list; the first
/// server that starts takes it.
#[derive(Clone, Default)]
pub struct EventSources(Arc<Mutex<Vec<CoreSource>>>);

/// A core's index, and an event source for it.
type CoreSource = (usize, Box<dyn EventSource>);

impl std::fmt::Debug for EventSources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_tuple("EventSources").field(&sources.len()).finish()
    }
}

impl EventSources {
    /// Adds a source for `core`, counted from 0, modulo the number of cores.
    pub fn add(&self, core: usize, source: Box<dyn EventSource>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((core, source));
    }

    /// Takes the sources of `core` among `cores`.
    pub(crate) fn take(&self, core: usize, cores: usize) -> Vec<Box<dyn EventSource>> {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (here, elsewhere) = sources.drain(..).partition(|(at, _)| at % cores == core);
        *sources = elsewhere;
        let here: Vec<CoreSource> = here;
        here.into_iter().map(|(_, source)| source).collect()
    }
}

/// Polls each source, and removes those that have ended or panicked. Returns whether any wants
/// another poll soon.
pub(crate) fn poll_all(sources: &mut Vec<Box<dyn EventSource>>) -> bool {
    let mut busy = false;
    sources.retain_mut(|source| {
        // A panic ends only its own source.
        let status = catch_unwind(AssertUnwindSafe(|| source.poll())).unwrap_or(PollStatus::Done);
        busy |= status == PollStatus::Busy;
        status != PollStatus::Done
    });
    busy
}
