//! The parts of a protocol that the load needs.

use anyhow::Result;

/// Result of parsing received bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parsed {
    /// Bytes of whole messages, which can be discarded.
    pub(crate) bytes: usize,
    /// Requests that these messages answer.
    pub(crate) answers: u32,
}

/// Client side of a connection in one protocol.
pub(crate) trait Protocol {
    /// Appends the bytes that open the connection.
    fn append_opening(&mut self, out: &mut Vec<u8>);

    /// Returns true if requests may be sent; always true for protocols without a handshake.
    fn is_open(&self) -> bool;

    /// Appends one request.
    fn append_request(&mut self, out: &mut Vec<u8>);

    /// Parses whole messages at the beginning of `bytes`, and appends the bytes that must
    /// follow.
    ///
    /// # Errors
    /// A message answers no request.
    fn parse(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Parsed>;
}
