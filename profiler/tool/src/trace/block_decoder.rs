//! Decoders of the blocks of events while a trace is opened: the thread that reads ([`Here`]), or several (`crew`).
//! Never here: reading blocks, and the use of findings (`open`).

use super::decoded::{BlockLocation, DecodedBlock};
use crate::format::event::{Decoder, Sink};

/// Decodes blocks of events, here or elsewhere.
pub(super) trait BlockDecoder {
    /// Takes a block, and hands out what was found in it or in earlier ones, in the order of the file.
    fn push(&mut self, place: BlockLocation, payload: &[u8], each: impl FnMut(DecodedBlock));

    /// Hands out what was found in all blocks that were taken.
    fn flush(&mut self, each: impl FnMut(DecodedBlock));
}

/// Decodes blocks when they come.
pub(super) struct InlineDecoder<'a, S> {
    pub(super) decoder: Decoder,
    pub(super) sink: &'a mut S,
}

impl<S: Sink> BlockDecoder for InlineDecoder<'_, S> {
    fn push(&mut self, place: BlockLocation, payload: &[u8], mut each: impl FnMut(DecodedBlock)) {
        each(DecodedBlock::decode(place, payload, &mut self.decoder, self.sink));
    }

    fn flush(&mut self, _: impl FnMut(DecodedBlock)) {}
}
