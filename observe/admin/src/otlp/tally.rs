//! Fates of exports, counted. Never here: an export.

use super::exchange::Failed;
use leeward_observe::exposition::Exports;
use std::sync::atomic::{AtomicU64, Ordering};

/// Exports by what became of them.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    accepted: AtomicU64,
    refused: AtomicU64,
    unreachable: AtomicU64,
    unanswered: AtomicU64,
    rejected_points: AtomicU64,
}

impl Tally {
    pub(crate) fn accept(&self, rejected: u64) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.rejected_points.fetch_add(rejected, Ordering::Relaxed);
    }

    pub(super) fn fail(&self, failed: &Failed) {
        let counter = match failed {
            Failed::Unreachable(_) => &self.unreachable,
            Failed::Unanswered(_) => &self.unanswered,
            Failed::Refused { .. } => &self.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// As metrics tell it.
    pub(crate) fn told(&self) -> Exports {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Exports {
            accepted: read(&self.accepted),
            refused: read(&self.refused),
            unreachable: read(&self.unreachable),
            unanswered: read(&self.unanswered),
            rejected_points: read(&self.rejected_points),
        }
    }
}
