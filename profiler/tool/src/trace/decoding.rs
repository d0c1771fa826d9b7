//! Decoders of the blocks of events while a trace is opened: the thread that reads ([`Here`]), or several (`crew`).
//! Never here: reading blocks, and the use of findings (`open`).

use super::decoded::{Decoded, Place};
use crate::format::event::{Decoder, Sink};

/// Decodes blocks of events, here or elsewhere.
pub(super) trait Decoding {
    /// Takes a block, and hands out what was found in it or in earlier ones, in the order of the file.
    fn take(&mut self, place: Place, payload: &[u8], each: impl FnMut(Decoded));

    /// Hands out what was found in all blocks that were taken.
    fn settle(&mut self, each: impl FnMut(Decoded));
}

/// Decodes blocks when they come.
pub(super) struct Here<'a, S> {
    pub(super) decoder: Decoder,
    pub(super) sink: &'a mut S,
}

impl<S: Sink> Decoding for Here<'_, S> {
    fn take(&mut self, place: Place, payload: &[u8], mut each: impl FnMut(Decoded)) {
        each(Decoded::of(place, payload, &mut self.decoder, self.sink));
    }

    fn settle(&mut self, _: impl FnMut(Decoded)) {}
}
