//! Heads and framing of HTTP/1.1 messages (RFC 9112): a message's end, its target, and the
//! persistence of its connection.
//!
//! For ports that answer `GET`, and for load generators. Entry points: [`request`](fn@request)
//! and [`response`](fn@response).
//!
//! - [`request`]: a request's head, for the ports that answer `GET`.
//! - [`response`]: a response's head and content, for clients.
//!
//! If a server and its proxy disagree on a message's end, the server executes requests that no
//! client sent (request smuggling). So a request with doubtful framing is rejected, never repaired.
//!
//! # Example
//! ```
//! use leeward_http1::{Fault, NO_FIELDS, request};
//!
//! let mut fields = NO_FIELDS;
//! let head = b"GET /hello?name=you HTTP/1.1\r\nhost: localhost\r\n\r\n";
//! let parsed = request(head, &mut fields)?.unwrap();
//! assert_eq!((parsed.path, parsed.query), ("/hello", "name=you"));
//!
//! // Two lengths: which bytes are the next request is in doubt.
//! let head = b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n";
//! let mut fields = NO_FIELDS;
//! assert_eq!(request(head, &mut fields).err(), Some(Fault::Malformed));
//! # Ok::<(), Fault>(())
//! ```
//!
//! Contains no sockets, time or routes.

mod request;
mod response;

pub use httparse::Header;
pub use request::{Request, request};
pub use response::{Content, Response, response};

/// Longest head of a request, in bytes.
pub const HEAD_MAX: usize = 8 * 1024;

/// Memory for the fields of a head.
pub type Fields<'b> = [Header<'b>; 64];

/// Empty fields, before a head is parsed into them.
pub const NO_FIELDS: Fields<'static> = [httparse::EMPTY_HEADER; 64];

/// Reason for which a message is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The message is no HTTP/1.1, or its framing is doubtful: the connection ends.
    Malformed,
    /// The method is known, but only `GET` is supported.
    Method,
    /// The request has content, which the server does not read: the connection ends.
    Content,
    /// The head is longer than [`HEAD_MAX`], or has more fields than [`Fields`]: the connection
    /// ends.
    TooLarge,
    /// The method or the transfer coding is unknown.
    Unimplemented,
    /// The message is of another version than 1.0 and 1.1: the connection ends.
    Version,
}

impl Fault {
    /// Status of the answer.
    pub fn status(self) -> u16 {
        match self {
            Fault::Malformed => 400,
            Fault::Method => 405,
            Fault::Content => 413,
            Fault::TooLarge => 431,
            Fault::Unimplemented => 501,
            Fault::Version => 505,
        }
    }
}

/// Status code and reason phrase of a status line.
pub fn status_line(status: u16) -> &'static str {
    match status {
        200 => "200 OK",
        400 => "400 Bad Request",
        403 => "403 Forbidden",
        404 => "404 Not Found",
        405 => "405 Method Not Allowed",
        408 => "408 Request Timeout",
        413 => "413 Content Too Large",
        421 => "421 Misdirected Request",
        426 => "426 Upgrade Required",
        431 => "431 Request Header Fields Too Large",
        500 => "500 Internal Server Error",
        501 => "501 Not Implemented",
        505 => "505 HTTP Version Not Supported",
        _ => "503 Service Unavailable",
    }
}

/// Elements of a comma-separated list, without the empty ones (RFC 9110 §5.6.1.2).
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// Framing that the fields of a message declare.
#[derive(Default)]
struct Framing {
    length: Option<u64>,
    coding: Coding,
}

/// Transfer codings of a message.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Coding {
    #[default]
    None,
    /// `chunked` alone.
    Chunked,
    /// Others before `chunked`.
    OthersThenChunked,
    /// Some, without `chunked` as the last one: the length is unknown.
    NotChunked,
}

impl Framing {
    /// Adds a field. `Err`: the length is unknown (RFC 9112 §6.3).
    fn add(&mut self, field: &Header<'_>) -> Result<(), Fault> {
        if field.name.eq_ignore_ascii_case("content-length") {
            // A proxy that joins two fields writes a list. Even with equal values, one of the two
            // fields came from another sender.
            let is_first = self.length.replace(length(field.value).ok_or(Fault::Malformed)?).is_none();
            return if is_first { Ok(()) } else { Err(Fault::Malformed) };
        }
        if field.name.eq_ignore_ascii_case("transfer-encoding") {
            for coding in elements(field.value) {
                self.coding = match self.coding {
                    // A coding after `chunked` is invalid.
                    Coding::Chunked | Coding::OthersThenChunked => return Err(Fault::Malformed),
                    Coding::None if coding.eq_ignore_ascii_case(b"chunked") => Coding::Chunked,
                    Coding::NotChunked if coding.eq_ignore_ascii_case(b"chunked") => Coding::OthersThenChunked,
                    Coding::None | Coding::NotChunked => Coding::NotChunked,
                };
            }
            // A field without a coding hides the message's end, like a wrong coding.
            return if self.coding == Coding::None { Err(Fault::Malformed) } else { Ok(()) };
        }
        Ok(())
    }
}

/// Parses digits only, of a number below 10¹⁹.
fn length(digits: &[u8]) -> Option<u64> {
    let is_number = (1..=19).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits.iter().fold(0, |length, digit| length * 10 + u64::from(digit - b'0')))
}
