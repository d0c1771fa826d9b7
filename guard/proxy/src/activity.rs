//! Whether a client's connection is busy. Does not contain the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Requests of a connection: those in progress, and all so far.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    in_progress: AtomicU32,
    started: AtomicU32,
}

/// Mark that a connection is busy with a request.
pub(crate) struct Busy(Arc<Activity>);

impl Busy {
    pub(crate) fn new(activity: &Arc<Activity>) -> Self {
        activity.in_progress.fetch_add(1, Ordering::Relaxed);
        activity.started.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(activity))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.in_progress.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Activity {
    /// Whether no request is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_progress.load(Ordering::Relaxed) == 0
    }

    /// Requests so far.
    pub(crate) fn started(&self) -> u32 {
        self.started.load(Ordering::Relaxed)
    }
}
