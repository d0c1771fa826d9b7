//! Client of the admin port: sends one request and reads the response, in HTTP/1.1 without a
//! library. Does not contain the paths.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::Context;
use leeward_rpc::tls::{ClientTls, Session};
use leeward_rpc::wire::ServerProtocol;

use super::peer;
use crate::failure::Failure;

/// Time limit for connecting, and again for the response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Start of a response in HTTP/1.0 or HTTP/1.1.
const HTTP_PREFIX: &[u8] = b"HTTP/1.";
const NOT_HTTP_MESSAGE: &str = "no admin port: its answer is no HTTP";
/// Longest response, in bytes.
const RESPONSE_MAX: u64 = 8 << 20;

/// Response of an admin port.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) body: String,
}

/// Requests `path` from `address`, over TLS if `tls` is given. The path must not need escapes.
pub(super) fn get(address: &str, path: &str, tls: Option<ClientTls>) -> Result<Response, Failure> {
    let addresses = peer::resolve(address)?;
    let name = tls.as_ref().map(|tls| tls.name_for(address)).transpose();
    let name = name.with_context(|| address.to_string()).map_err(Failure::Input)?;
    let session = tls.as_ref().zip(name).map(|(tls, name)| tls.connect(&name)).transpose();
    let session = session.with_context(|| address.to_string()).map_err(Failure::Input)?;
    let (stream, found) = peer::connect(address, &addresses, TIMEOUT)?;
    let expected = if session.is_some() { ServerProtocol::Tls } else { ServerProtocol::Http };
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    let limited = DeadlineStream { stream, deadline: Instant::now() + TIMEOUT };
    let received = match session {
        None => exchange_plain(limited, &request),
        Some(session) => exchange_tls(limited, session, &request),
    };
    let answer = received.and_then(|received| parse(&received)).with_context(|| address.to_string());
    answer.map_err(|error| peer::failure(error, found, expected))
}

/// A stream whose reads and writes fail after a deadline.
struct DeadlineStream {
    stream: TcpStream,
    deadline: Instant,
}

impl DeadlineStream {
    fn time_left(&self) -> std::io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(timeout_error()) } else { Ok(left) }
    }
}

fn timeout_error() -> std::io::Error {
    std::io::Error::new(ErrorKind::TimedOut, format!("no answer within {TIMEOUT:?}"))
}

/// Maps the system's error for an expired socket timeout, `WouldBlock`, to `TimedOut`.
fn map_timeout(error: std::io::Error) -> std::io::Error {
    if error.kind() == ErrorKind::WouldBlock { timeout_error() } else { error }
}

impl Read for DeadlineStream {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.stream.set_read_timeout(Some(self.time_left()?))?;
        self.stream.read(into).map_err(map_timeout)
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.set_write_timeout(Some(self.time_left()?))?;
        self.stream.write(bytes).map_err(map_timeout)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

/// Sends the request and reads until the connection ends.
fn exchange_plain(mut stream: DeadlineStream, request: &str) -> anyhow::Result<Vec<u8>> {
    stream.write_all(request.as_bytes())?;
    let (mut received, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut piece)? {
            0 => return Ok(received),
            count => received.extend_from_slice(&piece[..count]),
        }
        let begun = received.len().min(HTTP_PREFIX.len());
        anyhow::ensure!(received[..begun] == HTTP_PREFIX[..begun], NOT_HTTP_MESSAGE);
        anyhow::ensure!(received.len() as u64 <= RESPONSE_MAX, "an answer over {RESPONSE_MAX} bytes");
    }
}

/// Sends the request and reads the response over TLS. A truncated response is an error.
fn exchange_tls(mut stream: DeadlineStream, mut session: Session, request: &str) -> anyhow::Result<Vec<u8>> {
    let mut received = Vec::new();
    // The session keeps sealed bytes until the handshake has ended.
    session.seal(request.as_bytes());
    loop {
        session.send(&mut stream)?;
        if session.has_ended() {
            return Ok(received);
        }
        let read = session.receive(&mut stream);
        // Send the alert that reports why the handshake failed.
        if read.is_err() {
            let _ = session.send(&mut stream);
        }
        let count = read?;
        let mut piece = [0; 4096];
        while session.holds_plaintext() {
            let count = session.take(&mut piece);
            received.extend_from_slice(&piece[..count]);
        }
        anyhow::ensure!(received.len() as u64 <= RESPONSE_MAX, "an answer over {RESPONSE_MAX} bytes");
        anyhow::ensure!(count > 0 || session.has_ended(), "the connection ended within the answer");
    }
}

fn parse(received: &[u8]) -> anyhow::Result<Response> {
    let text = String::from_utf8_lossy(received);
    let (head, body) = text.split_once("\r\n\r\n").context(NOT_HTTP_MESSAGE)?;
    // A proxy before the admin port may answer in HTTP/1.0.
    let rest = head.strip_prefix("HTTP/1.0 ").or_else(|| head.strip_prefix("HTTP/1.1 "));
    let status = rest.and_then(|rest| rest.get(..3)).and_then(|status| status.parse().ok());
    Ok(Response { status: status.context(NOT_HTTP_MESSAGE)?, body: body.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_responses_are_parsed_and_others_rejected() {
        let answer = parse(b"HTTP/1.1 404 Not Found\r\na: b\r\n\r\nno\r\n\r\nmore").unwrap();
        assert_eq!(answer, Response { status: 404, body: "no\r\n\r\nmore".into() });
        let older = parse(b"HTTP/1.0 502 Bad Gateway\r\n\r\n").unwrap();
        assert_eq!(older, Response { status: 502, body: String::new() });
        for wrong in [
            &b""[..],
            b"SSH-2.0\r\n\r\n",
            b"HTTP/2 200\r\n\r\n",
            b"HTTP/1.1 x\r\n\r\n",
            b"HTTP/1.1",
            b"\xff\xff\r\n\r\n",
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
