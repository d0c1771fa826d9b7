//! Bytes on their way to the socket: frames are appended, what the socket has taken is removed from the front.

use leeward_wire::{EncodeError, Encoder, Frame, HEADER_LEN};

/// Frames besides calls that may be appended beyond the limit: calls wait for room, a pong can't.
const CONTROL_RESERVE: usize = 64 * HEADER_LEN;

#[derive(Debug)]
pub(super) struct SendBuffer {
    bytes: Vec<u8>,
    /// Bytes at the front that the socket has taken already.
    consumed: usize,
    limit: usize,
}

impl SendBuffer {
    /// Takes no more calls once `limit` bytes wait.
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

    /// Whether not even a pong has room.
    pub(super) fn overflows(&self) -> bool {
        self.pending().len() >= self.limit.saturating_add(CONTROL_RESERVE)
    }

    pub(super) fn append(&mut self, encoder: Encoder, frame: &Frame<'_>) -> Result<(), EncodeError> {
        // Room at the front is used before more memory: each byte moves at most once per as many bytes taken.
        if self.consumed > 0 && self.consumed >= self.bytes.len() - self.consumed {
            self.bytes.drain(..self.consumed);
            self.consumed = 0;
        }
        encoder.append(frame, &mut self.bytes).map(|_| ())
    }

    /// The socket has taken `count` bytes.
    ///
    /// # Panics
    /// If there weren't as many.
    pub(super) fn consume(&mut self, count: usize) {
        assert!(count <= self.pending().len(), "the socket took more than there was");
        self.consumed += count;
        if self.consumed == self.bytes.len() {
            self.bytes.clear();
            self.consumed = 0;
        }
    }

    /// Forgets everything, memory included.
    pub(super) fn discard(&mut self) {
        (self.bytes, self.consumed) = (Vec::new(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_wire::{PayloadLimit, Ping, Timestamp};

    #[test]
    fn memory_follows_what_waits() {
        let encoder = Encoder::new(PayloadLimit::DEFAULT);
        let mut outbox = SendBuffer::new(2 * HEADER_LEN);
        let ping = Frame::Ping(Ping { timestamp: Timestamp(1) });
        for round in 0..10_000 {
            outbox.append(encoder, &ping).unwrap();
            assert_eq!(outbox.is_full(), round > 0);
            // One frame always waits.
            if round > 0 {
                outbox.consume(HEADER_LEN);
            }
        }
        assert!(outbox.bytes.capacity() <= 16 * HEADER_LEN, "{}", outbox.bytes.capacity());
    }
}
