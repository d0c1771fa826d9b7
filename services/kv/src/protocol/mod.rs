//! memcached's protocol, text and meta: bytes to requests ([`Decoder`]), requests to replies ([`Executor`]). No sockets,
//! threads or clocks. What memcached 1.6 answers, to errors too, is the measure.
//!
//! - `decoder`: finds where a request ends, with bounded memory.
//! - `words`: the words of a line and the numbers in them.
//! - `update`: the lines of commands with a data block. `text`: the text commands. `meta`, `flags`: the meta commands.
//!   `show`: `stats`. `replies`: what several of them answer. `base64`: binary keys.
//!
//! Never here: memcached's binary protocol, which is deprecated.

mod base64;
mod decoder;
mod execute;
mod flags;
mod meta;
mod replies;
mod stats;
mod text;
mod tokens;
mod update;

pub use decoder::{Decoder, DecoderOutput, LINE_MAX, Request};
pub use execute::{ConnectionAction, ExecuteError, Executor, RequestScope};

/// Answer to a request that is refused because the server has more to do than it can.
pub const BUSY: &[u8] = b"SERVER_ERROR busy\r\n";
/// Answer to a request that is refused because there is no memory for its answer; memcached 1.6 says so, too.
pub const TOO_LONG: &[u8] = b"SERVER_ERROR out of memory writing get response\r\n";
