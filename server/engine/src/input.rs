//! Bytes of a connection between its socket and its protocol. Does not contain their meaning.

use leeward_wire::Decoder;

/// Receive buffer of a connection: the engine reads into it, the protocol takes requests out of it.
pub trait Input {
    /// Space for the next read. Empty only if the protocol must take bytes out first.
    fn spare(&mut self) -> &mut [u8];

    /// Notes that the first `count` bytes of [`Input::spare`] were filled.
    fn filled(&mut self, count: usize);

    /// Bytes received and not handled.
    fn buffered(&self) -> usize;

    /// Memory, in bytes, for the incoming request and for those received. 0 if every connection may
    /// have as much.
    fn wanted(&self) -> usize {
        0
    }

    /// Frees the memory, if nothing is buffered. The engine decides when, since a client that sends
    /// one long request after the other would pay for each release.
    fn release(&mut self) {}
}

impl Input for Decoder {
    #[inline]
    fn spare(&mut self) -> &mut [u8] {
        Decoder::spare(self)
    }

    #[inline]
    fn filled(&mut self, count: usize) {
        Decoder::advance(self, count);
    }

    #[inline]
    fn buffered(&self) -> usize {
        Decoder::buffered(self)
    }

    #[inline]
    fn wanted(&self) -> usize {
        Decoder::required_capacity(self)
    }

    #[inline]
    fn release(&mut self) {
        Decoder::release(self);
    }
}

/// A receive buffer for requests of bounded length, for protocols whose parser has no buffer.
#[derive(Debug)]
pub struct ReceiveBuffer {
    bytes: Vec<u8>,
    filled: usize,
    longest: usize,
}

impl ReceiveBuffer {
    /// Makes an empty buffer for requests of up to `longest` bytes. It holds no memory before the
    /// first read.
    pub fn new(longest: usize) -> Self {
        ReceiveBuffer { bytes: Vec::new(), filled: 0, longest }
    }

    /// Bytes received and not handled.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// Removes the first `count` bytes, or all if there are fewer.
    pub fn consume(&mut self, count: usize) {
        let count = count.min(self.filled);
        self.bytes.copy_within(count..self.filled, 0);
        self.filled -= count;
    }
}

impl Input for ReceiveBuffer {
    fn spare(&mut self) -> &mut [u8] {
        self.bytes.resize(self.longest, 0);
        &mut self.bytes[self.filled..]
    }

    fn filled(&mut self, count: usize) {
        self.filled = (self.filled + count).min(self.bytes.len());
    }

    fn buffered(&self) -> usize {
        self.filled
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_in_order_and_within_the_bound() {
        let mut buffer = ReceiveBuffer::new(8);
        assert!(buffer.bytes().is_empty() && buffer.wanted() == 0);
        buffer.spare()[..5].copy_from_slice(b"GET a");
        buffer.filled(5);
        assert_eq!(buffer.spare().len(), 3);
        buffer.consume(4);
        assert_eq!(buffer.bytes(), b"a");
        assert_eq!(buffer.spare().len(), 7);
        buffer.filled(100);
        assert_eq!((buffer.buffered(), buffer.spare().len()), (8, 0), "no more than there was room for");
        buffer.consume(100);
        assert_eq!((buffer.buffered(), buffer.spare().len()), (0, 8));
    }
}
