//! Counts of OTLP exports by result. Does not contain the export itself.

use super::exchange::ExportError;
use leeward_observe::exposition::ExportCounts;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of exports by result.
#[derive(Debug, Default)]
pub(crate) struct ExportCounters {
    accepted: AtomicU64,
    refused: AtomicU64,
    unreachable: AtomicU64,
    unanswered: AtomicU64,
    rejected_points: AtomicU64,
}

impl ExportCounters {
    pub(crate) fn accept(&self, rejected: u64) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.rejected_points.fetch_add(rejected, Ordering::Relaxed);
    }

    pub(super) fn fail(&self, failed: &ExportError) {
        let counter = match failed {
            ExportError::Unreachable(_) => &self.unreachable,
            ExportError::Unanswered(_) => &self.unanswered,
            ExportError::Refused { .. } => &self.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts so far, for the metrics.
    pub(crate) fn counts(&self) -> ExportCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ExportCounts {
            accepted: read(&self.accepted),
            refused: read(&self.refused),
            unreachable: read(&self.unreachable),
            unanswered: read(&self.unanswered),
            rejected_points: read(&self.rejected_points),
        }
    }
}
