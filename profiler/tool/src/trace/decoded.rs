//! A decoded block of events, with counts. Does not contain the choice of the decoding thread.

use super::runs::{BlockRun, TraceCounts, start_of};
use crate::format::Event;
use crate::format::event::{Decoder, Sink};
use crate::format::varint::FormatError;

/// Location of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockLocation {
    /// Index of the segment.
    pub(super) segment: u32,
    pub(super) offset: u64,
    /// Bytes of the block, header included.
    pub(super) bytes: u64,
}

/// Counts of a decoded block.
#[derive(Clone, Debug)]
pub(super) struct DecodedBlock {
    pub(super) location: BlockLocation,
    pub(super) counts: TraceCounts,
    /// The earliest and the latest time of an event.
    first: u64,
    latest: u64,
    /// Defect of the block.
    pub(super) error: Option<FormatError>,
}

impl DecodedBlock {
    /// Decodes a block, and passes its events to `sink`.
    pub(super) fn decode(
        place: BlockLocation,
        payload: &[u8],
        decoder: &mut Decoder,
        sink: &mut impl Sink,
    ) -> DecodedBlock {
        let mut tally = CountingSink { sink, counts: TraceCounts::new(), first: u64::MAX };
        let error = decoder.decode_into(payload, &mut tally).err();
        let CountingSink { mut counts, first, .. } = tally;
        counts.event_bytes = place.bytes;
        // An empty block has no earliest or latest time.
        let latest = counts.last;
        DecodedBlock { location: place, counts, first, latest, error }
    }

    /// Returns the location of its events; `None` without events.
    pub(super) fn run(&self) -> Option<BlockRun> {
        let BlockLocation { segment, offset, bytes } = self.location;
        let (events, earliest) = (self.counts.events, self.counts.first);
        (events > 0).then_some(BlockRun {
            segment,
            offset,
            bytes,
            events,
            earliest,
            first: self.first,
            latest: self.latest,
        })
    }
}

/// Counts events and passes them to another sink.
struct CountingSink<'a, S> {
    sink: &'a mut S,
    counts: TraceCounts,
    first: u64,
}

impl<S: Sink> Sink for CountingSink<'_, S> {
    #[inline(always)]
    fn event(&mut self, event: &Event) {
        self.counts.count(event);
        self.counts.first = self.counts.first.min(start_of(event));
        self.counts.last = self.counts.last.max(event.time);
        self.first = self.first.min(event.time);
        self.sink.event(event);
    }
}
