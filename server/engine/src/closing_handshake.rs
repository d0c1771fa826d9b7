//! Reads and discards bytes of a closing connection. Closing it with unread bytes would reset it,
//! and its final response could be lost.

use std::io::{ErrorKind, Read};

/// State of a closing connection after its bytes were discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosingHandshake {
    /// More bytes may arrive.
    Pending,
    /// The peer has ended its half.
    Done,
    /// The peer has sent more than the bound, or the connection is broken.
    Abandoned,
}

/// Reads and discards the bytes that are there. `discarded` counts them since the connection began
/// to close; above `most` the connection is abandoned.
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
