//! gRPC's unary calls over HTTP/2 (RFC 9113), reduced to the needs of a load.
//!
//! Requests are built once; only the stream number changes. Frames are counted by type. Header
//! fields of responses are not decoded: a call has succeeded when the echo of its message arrived
//! and its stream ended.
//!
//! A real gRPC client costs more CPU time than the server. On two CPUs the measurement would show
//! the client instead of tonic's server.

use anyhow::{Result, bail, ensure};
use prost::Message;

use super::speak::{Parsed, Protocol};
use crate::servers::tonic::{Echo, PATH};

const FRAME_HEADER: usize = 9;

/// Frame types (RFC 9113, section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;

/// Flags.
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// Initial size of a connection's flow-control window, and the largest (RFC 9113, section 6.9).
const FIRST_WINDOW: u32 = 65_535;
const LARGEST_WINDOW: u32 = i32::MAX as u32;

/// HEADERS and DATA of a request.
struct Request {
    bytes: Vec<u8>,
    /// Offset of the DATA frame.
    data: usize,
}

impl Request {
    fn new(fields: &[u8], message: &[u8]) -> Self {
        let mut bytes = Vec::new();
        frame(&mut bytes, HEADERS, END_HEADERS, 0, fields);
        let data = bytes.len();
        frame(&mut bytes, DATA, END_STREAM, 0, message);
        Request { bytes, data }
    }

    fn append(&mut self, stream: u32, out: &mut Vec<u8>) {
        for begin in [0, self.data] {
            self.bytes[begin + 5..begin + FRAME_HEADER].copy_from_slice(&stream.to_be_bytes());
        }
        out.extend_from_slice(&self.bytes);
    }
}

/// Client side of a connection.
pub(crate) struct Grpc {
    /// The message with gRPC's prefix, the same in both directions.
    message: Vec<u8>,
    /// The first request, with literal header fields.
    first: Request,
    /// All later requests, whose header fields refer to HPACK's dynamic table, as in every client.
    next: Request,
    next_stream: u32,
    is_open: bool,
    requests_sent: u64,
    echoes: u64,
    answered: u64,
    /// Bytes of DATA that the server's window allows now.
    window: i64,
    /// Bytes of DATA received since the last window update.
    received: u32,
}

impl Grpc {
    /// Client side with messages of `payload` bytes.
    pub(crate) fn new(payload: usize) -> Self {
        let echo = Echo { payload: vec![0; payload].into() }.encode_to_vec();
        // Flag "not compressed" and length (gRPC over HTTP/2, "Length-Prefixed-Message").
        let message = [&[0][..], &(echo.len() as u32).to_be_bytes(), &echo].concat();
        // Static entries 3 and 6: POST, http. Then the dynamic ones, newest is 62: path, authority,
        // te, content-type, user-agent.
        let referred = [0x83, 0x86, 0xC2, 0xC1, 0xC0, 0xBF, 0xBE];
        Grpc {
            first: Request::new(&named_fields(), &message),
            next: Request::new(&referred, &message),
            message,
            next_stream: 1,
            is_open: false,
            requests_sent: 0,
            echoes: 0,
            answered: 0,
            window: FIRST_WINDOW.into(),
            received: 0,
        }
    }

    /// Handles one whole frame.
    fn take_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        match kind {
            DATA => {
                ensure!(flags & PADDED == 0 && payload == self.message, "a result is not what was sent");
                self.echoes += 1;
                self.received += payload.len() as u32;
                if self.received > LARGEST_WINDOW / 2 {
                    frame(out, WINDOW_UPDATE, 0, 0, &self.received.to_be_bytes());
                    self.received = 0;
                }
            }
            HEADERS if flags & END_STREAM != 0 => {
                self.answered += 1;
                ensure!(self.answered <= self.echoes && self.echoes <= self.requests_sent, "a call has failed");
                return Ok(true);
            }
            HEADERS => {}
            SETTINGS if flags & ACK == 0 => {
                self.is_open = true;
                frame(out, SETTINGS, ACK, 0, &[]);
            }
            PING if flags & ACK == 0 => frame(out, PING, ACK, 0, payload),
            SETTINGS | PING => {}
            WINDOW_UPDATE => {
                let increment = payload.try_into().map(u32::from_be_bytes).unwrap_or_default();
                if stream == 0 {
                    self.window += i64::from(increment);
                }
            }
            other => bail!("the server sent an HTTP/2 frame of type {other}, which ends a stream or the connection"),
        }
        Ok(false)
    }
}

impl Protocol for Grpc {
    fn append_opening(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        frame(out, SETTINGS, 0, 0, &[]);
        frame(out, WINDOW_UPDATE, 0, 0, &(LARGEST_WINDOW - FIRST_WINDOW).to_be_bytes());
    }

    fn is_open(&self) -> bool {
        self.is_open
    }

    fn append_request(&mut self, out: &mut Vec<u8>) {
        let request = if self.requests_sent == 0 { &mut self.first } else { &mut self.next };
        self.requests_sent += 1;
        request.append(self.next_stream, out);
        // Stream numbers run out after 2^30 requests; no measurement is that long.
        self.next_stream += 2;
        self.window -= self.message.len() as i64;
    }

    fn parse(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Parsed> {
        let mut parsed = Parsed::default();
        while let Some(header) = bytes[parsed.bytes..].first_chunk::<FRAME_HEADER>() {
            let [a, b, c, kind, flags, stream @ ..] = *header;
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            let begin = parsed.bytes + FRAME_HEADER;
            let Some(payload) = bytes.get(begin..begin + length) else { break };
            let is_answer = self.take_frame(kind, flags, u32::from_be_bytes(stream), payload, out)?;
            parsed.answers += u32::from(is_answer);
            parsed.bytes = begin + length;
        }
        // The next request must fit into the server's window; it never comes near.
        ensure!(self.window > 0, "more bytes under way than the server takes: a smaller payload helps");
        Ok(parsed)
    }
}

/// Appends a frame.
fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Header fields of a request as literals with indexing (RFC 7541, section 6.2.1).
///
/// In this order they become the dynamic entries 66 to 62.
fn named_fields() -> Vec<u8> {
    let mut fields = vec![0x83, 0x86];
    let mut remember = |name: Result<u8, &str>, value: &str| {
        match name {
            // The name is in the static table.
            Ok(index) => fields.push(0x40 | index),
            Err(name) => {
                fields.extend_from_slice(&[0x40, name.len() as u8]);
                fields.extend_from_slice(name.as_bytes());
            }
        }
        fields.push(value.len() as u8);
        fields.extend_from_slice(value.as_bytes());
    };
    remember(Ok(4), PATH);
    remember(Ok(1), "localhost");
    remember(Err("te"), "trailers");
    remember(Ok(31), "application/grpc");
    remember(Ok(58), "leeward-compare");
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> (Grpc, Vec<u8>) {
        let mut grpc = Grpc::new(8);
        let mut out = Vec::new();
        grpc.append_opening(&mut out);
        let mut settings = Vec::new();
        frame(&mut settings, SETTINGS, 0, 0, &[]);
        out.clear();
        assert_eq!(grpc.parse(&settings, &mut out).unwrap(), Parsed { bytes: 9, answers: 0 });
        assert!(grpc.is_open());
        (grpc, out)
    }

    #[test]
    fn settings_are_acknowledged() {
        assert_eq!(open().1, [0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0]);
    }

    #[test]
    fn requests_have_streams_of_their_own() {
        let (mut grpc, mut out) = open();
        out.clear();
        grpc.append_request(&mut out);
        let first = out.len();
        grpc.append_request(&mut out);
        // HEADERS by reference, and DATA: prefix, field number, length, 8 bytes.
        assert_eq!(out.len() - first, 9 + 7 + 9 + 5 + 2 + 8);
        assert_eq!((&out[5..9], &out[first + 5..first + 9]), (&[0, 0, 0, 1][..], &[0, 0, 0, 3][..]));
        assert_eq!(out[first + 16 + 5..first + 16 + 9], [0, 0, 0, 3]);
    }

    #[test]
    fn an_answer_is_an_echo_and_the_end_of_its_stream() {
        let (mut grpc, mut out) = open();
        grpc.append_request(&mut out);
        let mut answer = Vec::new();
        frame(&mut answer, HEADERS, END_HEADERS, 1, &[0x88]);
        frame(&mut answer, DATA, 0, 1, &grpc.message.clone());
        let end_at = answer.len();
        frame(&mut answer, HEADERS, END_HEADERS | END_STREAM, 1, &[0x88]);
        let mut pieces = Grpc { message: grpc.message.clone(), requests_sent: 1, ..Grpc::new(8) };
        assert_eq!(grpc.parse(&answer[..answer.len() - 1], &mut out).unwrap(), Parsed { bytes: end_at, answers: 0 });
        assert_eq!(pieces.parse(&answer, &mut out).unwrap(), Parsed { bytes: answer.len(), answers: 1 });
    }

    #[test]
    fn a_failed_call_is_found() {
        let (mut grpc, mut out) = open();
        grpc.append_request(&mut out);
        let mut trailers_only = Vec::new();
        frame(&mut trailers_only, HEADERS, END_HEADERS | END_STREAM, 1, &[0x88]);
        assert!(grpc.parse(&trailers_only, &mut out).is_err());
        let mut reset = Vec::new();
        frame(&mut reset, 3, 0, 1, &[0; 4]);
        assert!(open().0.parse(&reset, &mut out).is_err());
    }
}
