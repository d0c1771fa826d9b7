//! A question to an admin port, and its answer: HTTP/1.1 without a library, for the port is ours. Never here: which question.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::Context;
use leeward_rpc::tls::{ClientTls, Session};
use leeward_rpc::wire::ServerProtocol;

use super::peer;
use crate::failure::Failure;

/// How long connecting and answering may take, each.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Beginning of an answer.
const HTTP_PREFIX: &[u8] = b"HTTP/1.";
const NOT_HTTP_MESSAGE: &str = "no admin port: its answer is no HTTP";
/// The longest answer, bytes.
const RESPONSE_MAX: u64 = 8 << 20;

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) body: String,
}

/// Asks `address` for `path`, which needs no escapes; by TLS where there is some.
pub(super) fn get(address: &str, path: &str, tls: Option<ClientTls>) -> Result<Response, Failure> {
    let addresses = peer::resolve(address)?;
    let name = tls.as_ref().map(|tls| tls.name_for(address)).transpose();
    let name = name.with_context(|| address.to_string()).map_err(Failure::Input)?;
    let session = tls.as_ref().zip(name).map(|(tls, name)| tls.connect(&name)).transpose();
    let session = session.with_context(|| address.to_string()).map_err(Failure::Input)?;
    let (stream, found) = peer::connect(address, &addresses, TIMEOUT)?;
    let expected = if session.is_some() { ServerProtocol::Tls } else { ServerProtocol::Http };
    let question = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    let limited = DeadlineStream { stream, deadline: Instant::now() + TIMEOUT };
    let heard = match session {
        None => exchange_plain(limited, &question),
        Some(session) => exchange_tls(limited, session, &question),
    };
    let answer = heard.and_then(|heard| parse(&heard)).with_context(|| address.to_string());
    answer.map_err(|error| peer::failure(error, found, expected))
}

/// A stream that fails when its time is up.
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

/// The system says of a time that is up that the resource is unavailable.
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

/// Everything up to the connection's end.
fn exchange_plain(mut stream: DeadlineStream, question: &str) -> anyhow::Result<Vec<u8>> {
    stream.write_all(question.as_bytes())?;
    let (mut heard, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut piece)? {
            0 => return Ok(heard),
            count => heard.extend_from_slice(&piece[..count]),
        }
        let begun = heard.len().min(HTTP_PREFIX.len());
        anyhow::ensure!(heard[..begun] == HTTP_PREFIX[..begun], NOT_HTTP_MESSAGE);
        anyhow::ensure!(heard.len() as u64 <= RESPONSE_MAX, "an answer over {RESPONSE_MAX} bytes");
    }
}

/// The same by TLS. An answer whose end was cut off is none.
fn exchange_tls(mut stream: DeadlineStream, mut session: Session, question: &str) -> anyhow::Result<Vec<u8>> {
    let mut heard = Vec::new();
    // What is sealed before the handshake's end waits for that.
    session.seal(question.as_bytes());
    loop {
        session.send(&mut stream)?;
        if session.has_ended() {
            return Ok(heard);
        }
        let read = session.receive(&mut stream);
        // The alert that says why there is no session.
        if read.is_err() {
            let _ = session.send(&mut stream);
        }
        let count = read?;
        let mut piece = [0; 4096];
        while session.holds_plaintext() {
            let count = session.take(&mut piece);
            heard.extend_from_slice(&piece[..count]);
        }
        anyhow::ensure!(heard.len() as u64 <= RESPONSE_MAX, "an answer over {RESPONSE_MAX} bytes");
        anyhow::ensure!(count > 0 || session.has_ended(), "the connection ended within the answer");
    }
}

fn parse(heard: &[u8]) -> anyhow::Result<Response> {
    let text = String::from_utf8_lossy(heard);
    let (head, body) = text.split_once("\r\n\r\n").context(NOT_HTTP_MESSAGE)?;
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|status| status.parse().ok());
    Ok(Response { status: status.context(NOT_HTTP_MESSAGE)?, body: body.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_others_are_refused() {
        let answer = parse(b"HTTP/1.1 404 Not Found\r\na: b\r\n\r\nno\r\n\r\nmore").unwrap();
        assert_eq!(answer, Response { status: 404, body: "no\r\n\r\nmore".into() });
        for wrong in [&b""[..], b"SSH-2.0\r\n\r\n", b"HTTP/1.1 x\r\n\r\n", b"HTTP/1.1", b"\xff\xff\r\n\r\n"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
