//! Decoders of event blocks during the opening of a trace: on the reading thread
//! ([`InlineDecoder`]), or on several (`pool`).
//!
//! Does not contain the reading of blocks, or the use of the results (`open`).

use super::decoded::{BlockLocation, DecodedBlock};
use crate::format::event::{Decoder, Sink};

/// Decodes event blocks, on this thread or on others.
pub(super) trait BlockDecoder {
    /// Adds a block; passes results of this or earlier blocks to `each`, in the order of the file.
    fn push(&mut self, location: BlockLocation, payload: &[u8], each: impl FnMut(DecodedBlock));

    /// Passes the results of all added blocks to `each`.
    fn flush(&mut self, each: impl FnMut(DecodedBlock));
}

/// Decodes each block at once.
pub(super) struct InlineDecoder<'a, S> {
    pub(super) decoder: Decoder,
    pub(super) sink: &'a mut S,
}

impl<S: Sink> BlockDecoder for InlineDecoder<'_, S> {
    fn push(&mut self, location: BlockLocation, payload: &[u8], mut each: impl FnMut(DecodedBlock)) {
        each(DecodedBlock::decode(location, payload, &mut self.decoder, self.sink));
    }

    fn flush(&mut self, _: impl FnMut(DecodedBlock)) {}
}
