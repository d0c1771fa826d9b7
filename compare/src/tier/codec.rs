//! Frames of Leeward's protocol over Tokio's sockets.

use leeward_rpc::wire::{Decoder, Encoder, Frame, PayloadLimit};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;

/// Encodes a frame.
pub(super) fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // The command line bounds payloads, so encoding can't fail.
    let _ = Encoder::new(PayloadLimit::DEFAULT).append(frame, &mut bytes);
    bytes
}

/// Reads once; returns `None` at the end of the stream or after an error.
pub(super) async fn fill(reader: &mut OwnedReadHalf, decoder: &mut Decoder) -> Option<()> {
    let count = reader.read(decoder.spare()).await.ok().filter(|count| *count > 0)?;
    decoder.advance(count);
    Some(())
}
