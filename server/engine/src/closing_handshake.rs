//! Reading bytes that are thrown away: closing a connection with unread bytes would reset it, and its last words could
//! be lost with it.

use std::io::{ErrorKind, Read};

/// State of a connection that is ending, after a look at its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosingHandshake {
    /// More may come.
    Pending,
    /// The peer has ended its half.
    Done,
    /// The peer goes on and on, or the connection is broken.
    Abandoned,
}

/// Reads what is there and throws it away, as long as not more than `most` bytes have come since the connection began to end,
/// which `discarded` counts.
pub(crate) fn discard(mut stream: impl Read, discarded: &mut usize, most: usize) -> ClosingHandshake {
    let mut bytes = [0; 16 * 1024];
    while *discarded <= most {
        match stream.read(&mut bytes) {
            Ok(0) => return ClosingHandshake::Done,
            Ok(count) => *discarded += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return ClosingHandshake::Pending,
            Err(_) => return ClosingHandshake::Abandoned,
        }
    }
    ClosingHandshake::Abandoned
}
