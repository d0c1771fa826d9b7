//! Bytes that wait for the socket: frames are appended at the end, sent bytes are removed from the
//! front.

use leeward_wire::{EncodeError, Encoder, Frame, HEADER_LEN};

/// Bytes beyond the limit that frames other than calls may use: calls can wait for space, a pong
/// cannot.
const CONTROL_RESERVE: usize = 64 * HEADER_LEN;

#[derive(Debug)]
pub(super) struct SendBuffer {
    bytes: Vec<u8>,
    /// Bytes at the front that the socket has taken already.
    consumed: usize,
    limit: usize,
}

impl SendBuffer {
    /// Creates a buffer that is full for calls once `limit` bytes wait.
    pub(super) fn new(limit: usize) -> Self {
        SendBuffer { bytes: Vec::new(), consumed: 0, limit }
    }

    pub(super) fn pending(&self) -> &[u8] {
        &self.bytes[self.consumed..]
    }

    /// Whether calls have to wait.
    pub(super) fn is_full(&self) -> bool {
        self.pending().len() >= self.limit
    }

    /// Whether even a pong has no space.
    pub(super) fn overflows(&self) -> bool {
        self.pending().len() >= self.limit.saturating_add(CONTROL_RESERVE)
    }

    pub(super) fn append(&mut self, encoder: Encoder, frame: &Frame<'_>) -> Result<(), EncodeError> {
        // Free space at the front is reused before memory grows; each byte moves at most once per
        // byte sent.
        if self.consumed > 0 && self.consumed >= self.bytes.len() - self.consumed {
            self.bytes.drain(..self.consumed);
            self.consumed = 0;
        }
        encoder.append(frame, &mut self.bytes).map(|_| ())
    }

    /// Removes `count` bytes that the socket has taken.
    ///
    /// # Panics
    /// If fewer bytes were pending.
    pub(super) fn consume(&mut self, count: usize) {
        assert!(count <= self.pending().len(), "the socket took more than there was");
        self.consumed += count;
        if self.consumed == self.bytes.len() {
            self.bytes.clear();
            self.consumed = 0;
        }
    }

    /// Discards all bytes and frees the memory.
    pub(super) fn discard(&mut self) {
        (self.bytes, self.consumed) = (Vec::new(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_wire::{PayloadLimit, Ping, Timestamp};

    #[test]
    fn memory_shrinks_with_the_buffered_bytes() {
        let encoder = Encoder::new(PayloadLimit::DEFAULT);
        let mut buffer = SendBuffer::new(2 * HEADER_LEN);
        let ping = Frame::Ping(Ping { timestamp: Timestamp(1) });
        for round in 0..10_000 {
            buffer.append(encoder, &ping).unwrap();
            assert_eq!(buffer.is_full(), round > 0);
            // One frame always waits.
            if round > 0 {
                buffer.consume(HEADER_LEN);
            }
        }
        assert!(buffer.bytes.capacity() <= 16 * HEADER_LEN, "{}", buffer.bytes.capacity());
    }
}
