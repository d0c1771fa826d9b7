//! Parts of a protocol that the load needs to know.

use anyhow::Result;

/// Result of a look at the beginning of some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Bytes of whole messages, which are dealt with.
    pub(crate) bytes: usize,
    /// Requests that they answer.
    pub(crate) answers: u32,
}

/// Client side of a connection in a protocol.
pub(crate) trait Speak {
    /// Appends what opens the connection.
    fn greet(&mut self, out: &mut Vec<u8>);

    /// Whether requests may be sent; from the beginning where nothing has to be awaited.
    fn is_open(&self) -> bool;

    /// Appends one request.
    fn ask(&mut self, out: &mut Vec<u8>);

    /// Takes whole messages from the beginning of `bytes`, and appends what they oblige to say.
    ///
    /// # Errors
    /// What came is no answer to what was asked.
    fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Taken>;
}
