//! What waits for its turn in the order of time.
//!
//! Does not contain the order.

use leeward_profile::format::request_totals::RequestTotals;

use crate::record::RecordKind;

/// A record, or what is known of requests.
#[derive(Debug)]
pub(super) enum Item {
    Record(u32, RecordKind),
    /// A request began in this thread.
    Began(u32),
    /// Counts of requests; true if there is no other process.
    Totals(Box<RequestTotals>, bool),
    /// From here on nothing was recorded for a time.
    Pause,
}
