//! memcached's text and meta protocol: bytes to requests ([`Decoder`]), requests to replies
//! ([`Executor`]).
//!
//! It has no sockets, threads or clocks. Its reference is the behaviour of memcached 1.6, errors
//! included.
//!
//! - `decoder`: finds the end of a request, with bounded memory.
//! - `tokens`: the tokens of a line and the numbers in them.
//! - `update`: lines of commands with a data block. `text`: the text commands. `meta`, `flags`: the
//!   meta commands. `stats`: the command `stats`. `replies`: shared replies. `base64`: binary keys.
//!
//! Does not contain memcached's binary protocol, which is deprecated.

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

/// Reply to a request that is rejected under overload.
pub const BUSY: &[u8] = b"SERVER_ERROR busy\r\n";
/// Reply to a request without memory for its answer; memcached 1.6 has the same text.
pub const TOO_LONG: &[u8] = b"SERVER_ERROR out of memory writing get response\r\n";
