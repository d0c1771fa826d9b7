//! Parses a response's head and content, for clients that close the connection after it. Does not
//! interpret the content.

use crate::{Coding, Fault, Fields, Framing, Header, NO_FIELDS};
use std::borrow::Cow;

/// A response with a whole head.
#[derive(Clone, Copy, Debug)]
pub struct Response<'f, 'b> {
    /// Status code, 200 or more, or 101.
    pub status: u16,
    fields: &'f [Header<'b>],
    end: BodyEnd,
    rest: &'b [u8],
}

/// End of a response's content.
#[derive(Clone, Copy, Debug)]
enum BodyEnd {
    /// After so many bytes.
    Length(u64),
    /// With the last chunk and its trailers.
    Chunks,
    /// With the connection.
    Connection,
}

/// Received content of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content<'b> {
    /// The bytes without transfer coding.
    pub bytes: Cow<'b, [u8]>,
    /// Whether the content is complete; `None` if it ends with the connection.
    pub is_whole: Option<bool>,
}

impl<'b> Response<'_, 'b> {
    /// The first value of a field, if it is text.
    pub fn value(&self, name: &str) -> Option<&'b str> {
        let field = self.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
        str::from_utf8(field.value).ok()
    }

    /// The content received so far.
    pub fn content(&self) -> Content<'b> {
        match self.end {
            BodyEnd::Connection => Content { bytes: self.rest.into(), is_whole: None },
            BodyEnd::Chunks => {
                let (bytes, is_whole) = join_chunks(self.rest);
                Content { bytes: bytes.into(), is_whole: Some(is_whole) }
            }
            BodyEnd::Length(length) => {
                let found = usize::try_from(length).ok().and_then(|length| self.rest.get(..length));
                Content { bytes: found.unwrap_or(self.rest).into(), is_whole: Some(found.is_some()) }
            }
        }
    }
}

/// Parses the response to a request with content or a `GET` at the beginning of `bytes`; `None`
/// until the head is whole. Skips interim responses before it (RFC 9110 §15.2).
///
/// # Errors
/// The bytes are no response, or its end is ambiguous.
pub fn response<'f, 'b>(bytes: &'b [u8], fields: &'f mut Fields<'b>) -> Result<Option<Response<'f, 'b>>, Fault> {
    let mut bytes = bytes;
    while let Some(length) = interim(bytes) {
        bytes = bytes.get(length..).unwrap_or_default();
    }
    let mut head = httparse::Response::new(fields);
    let length = match head.parse(bytes).map_err(|_| Fault::Malformed)? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    let fields: &[Header<'b>] = head.headers;
    let status = head.code.ok_or(Fault::Malformed)?;
    let mut framing = Framing::default();
    fields.iter().try_for_each(|field| framing.add(field))?;
    // RFC 9112 §6.3, in its order.
    let end = match (framing.coding, framing.length) {
        _ if matches!(status, 101 | 204 | 304) => BodyEnd::Length(0),
        (Coding::Chunked | Coding::OthersThenChunked, _) => BodyEnd::Chunks,
        (Coding::None, Some(length)) => BodyEnd::Length(length),
        (Coding::None, None) | (Coding::NotChunked, _) => BodyEnd::Connection,
    };
    Ok(Some(Response { status, fields, end, rest: bytes.get(length..).unwrap_or_default() }))
}

/// Length of the interim response at the beginning of `bytes`, if there is a whole one.
fn interim(bytes: &[u8]) -> Option<usize> {
    let mut fields = NO_FIELDS;
    let mut head = httparse::Response::new(&mut fields);
    match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => matches!(head.code, Some(100 | 102..=199)).then_some(length),
        _ => None,
    }
}

/// Joins the data of all whole chunks. The flag tells whether the last chunk and its trailers have
/// arrived (RFC 9112 §7.1).
fn join_chunks(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    // The parser takes an empty size for 0.
    while rest.first().is_some_and(u8::is_ascii_hexdigit) {
        let Ok(httparse::Status::Complete((start, size))) = httparse::parse_chunk_size(rest) else { break };
        let chunk = rest.get(start..).unwrap_or_default();
        if size == 0 {
            let mut trailers = NO_FIELDS;
            let is_whole = matches!(httparse::parse_headers(chunk, &mut trailers), Ok(httparse::Status::Complete(_)));
            return (bytes, is_whole);
        }
        let Some((data, behind)) = usize::try_from(size).ok().and_then(|size| chunk.split_at_checked(size)) else {
            break;
        };
        let Some(behind) = behind.strip_prefix(b"\r\n") else { break };
        bytes.extend_from_slice(data);
        rest = behind;
    }
    (bytes, false)
}
