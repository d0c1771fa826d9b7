//! What a converter converts: records, and what it adds to them. Contains no conversion.

use std::io;

use leeward_profile::format::request_totals::RequestTotals;

use crate::record::RecordKind;

/// A record in the order of time, or an event of the converter's own.
#[derive(Debug)]
pub(super) enum Item {
    Record(u32, RecordKind),
    /// A request began in this thread.
    Began(u32),
    /// Counts of requests; true if there is no other process.
    Totals(Box<RequestTotals>, bool),
}

/// Converts items.
pub(super) trait ItemSink {
    /// Converts an item.
    fn convert_item(&mut self, time: u64, item: Item) -> io::Result<()>;

    /// Ends what is known of threads: records after this time were dropped.
    fn pause(&mut self, time: u64) -> io::Result<()>;
}
