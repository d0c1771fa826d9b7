//! How many requests there were, of which a trace holds only some, and how long they took.
//!
//! Does not contain the requests.

use serde::Serialize;

use super::meta::Clock;
use super::varint::{Cursor, FormatError, put_varint};

/// Limit of the buckets in one block.
const BUCKETS: usize = 1 << 16;

/// Counts of requests since the recording began. The slow ones are all in the trace; of the others
/// only one in so many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RequestTotals {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// All requests that ended.
    pub seen: u64,
    /// Requests that are in the trace because they took long.
    pub slow: u64,
    /// Others that are in the trace.
    pub sampled: u64,
    /// From this latency on, in nanoseconds, each request is in the trace. It may have changed
    /// since the block before.
    pub threshold: u64,
    /// Latencies in nanoseconds, and how many requests had about this one; ascending. Empty if this
    /// block does not tell.
    pub latencies: Vec<(u64, u64)>,
}

impl RequestTotals {
    /// Parses the block.
    ///
    /// # Errors
    /// The payload is truncated, or has too many buckets.
    pub fn read(payload: &[u8], clock: &Clock) -> Result<RequestTotals, FormatError> {
        let mut cursor = Cursor::new(payload);
        let mut totals = RequestTotals {
            time: clock.nanos(cursor.u64()?),
            seen: cursor.varint()?,
            slow: cursor.varint()?,
            sampled: cursor.varint()?,
            threshold: cursor.varint()?,
            latencies: Vec::new(),
        };
        let mut latency = 0_u64;
        for _ in 0..cursor.bounded(BUCKETS)? {
            latency = latency.saturating_add(cursor.varint()?);
            totals.latencies.push((latency, cursor.varint()?));
        }
        Ok(totals)
    }

    /// Returns the payload of the block.
    pub(super) fn payload(&self) -> Vec<u8> {
        let mut payload = self.time.to_le_bytes().to_vec();
        for number in [self.seen, self.slow, self.sampled, self.threshold] {
            put_varint(&mut payload, number);
        }
        let latencies = &self.latencies[..self.latencies.len().min(BUCKETS)];
        put_varint(&mut payload, latencies.len() as u64);
        let mut before = 0;
        for (latency, count) in latencies {
            put_varint(&mut payload, latency.saturating_sub(before));
            put_varint(&mut payload, *count);
            before = *latency;
        }
        payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn totals_round_trip(numbers in any::<[u64; 5]>(), buckets in prop::collection::btree_map(any::<u64>(), any::<u64>(), 0..50)) {
            let [time, seen, slow, sampled, threshold] = numbers;
            let latencies = buckets.into_iter().collect();
            let totals = RequestTotals { time, seen, slow, sampled, threshold, latencies };
            prop_assert_eq!(RequestTotals::read(&totals.payload(), &Clock::NANOSECONDS), Ok(totals));
        }

        #[test]
        fn no_payload_panics(payload in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = RequestTotals::read(&payload, &Clock::NANOSECONDS);
        }
    }
}
