//! A single export: connects, sends, and reads the response, all before a deadline. Does not
//! contain the schedule of exports.

use super::endpoint::OtlpEndpoint;
use leeward_http1::{Content, NO_FIELDS, response};
use serde_json::Value;
use std::fmt::{self, Display, Formatter};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Longest response that is read, in bytes. The rest is not needed.
const RESPONSE_MAX: usize = 64 << 10;
/// Maximum of addresses per host name that are tried.
const ADDRESSES_MAX: usize = 8;
/// Longest message of a receiver that is reported, in characters.
const MESSAGE_MAX: usize = 200;

/// Response to an accepted export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExportReply {
    /// Points that the receiver rejected nevertheless.
    pub(super) rejected: u64,
    /// The receiver's message about the rejected points.
    pub(super) message: String,
}

/// Failure of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExportError {
    /// Nothing was sent.
    Unreachable(String),
    /// There was no response, or none in HTTP.
    Unanswered(String),
    /// The receiver answered with an error.
    Refused {
        status: u16,
        message: String,
        /// Delay that the receiver asks for before the next export.
        retry_after: Option<Duration>,
    },
}

impl ExportError {
    /// Delay that the receiver asks for before the next export.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        if let ExportError::Refused { retry_after: rest, .. } = self { *rest } else { None }
    }

    /// Kind of the failure; consecutive failures of one kind are reported once.
    pub(super) fn kind(&self) -> String {
        match self {
            ExportError::Unreachable(_) => "unreachable".into(),
            ExportError::Unanswered(_) => "unanswered".into(),
            ExportError::Refused { status, .. } => status.to_string(),
        }
    }
}

impl Display for ExportError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ExportError::Unreachable(cause) => write!(f, "can't be reached: {cause}"),
            ExportError::Unanswered(cause) => write!(f, "no answer: {cause}"),
            ExportError::Refused { status, message: text, .. } if text.is_empty() => write!(f, "answers {status}"),
            ExportError::Refused { status, message: text, .. } => write!(f, "answers {status}: {text}"),
        }
    }
}

/// Sends `body` and reads the receiver's response, both before `limit`.
pub(super) fn post(receiver: &OtlpEndpoint, body: &str, limit: Instant) -> Result<ExportReply, ExportError> {
    let mut stream = connect(receiver, limit)?;
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: {}\r\nuser-agent: Leeward-OTLP-Exporter/{}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        receiver.path(),
        receiver.authority(),
        env!("CARGO_PKG_VERSION"),
        body.len()
    );
    // A receiver may reject an export before it has read all of it, so its response counts more
    // than the send error.
    let sent = send(&mut stream, head.as_bytes(), limit).and_then(|()| send(&mut stream, body.as_bytes(), limit));
    let received = read(&mut stream, limit);
    match (parse(&received), sent) {
        (Some(answer), _) => answer,
        (None, Err(error)) => Err(ExportError::Unanswered(error_message(&error))),
        (None, Ok(())) if received.is_empty() && time_left(limit).is_err() => {
            Err(ExportError::Unanswered("timed out".into()))
        }
        (None, Ok(())) if received.is_empty() => Err(ExportError::Unanswered("the connection ended".into())),
        (None, Ok(())) => Err(ExportError::Unanswered("it does not speak HTTP".into())),
    }
}

fn time_left(limit: Instant) -> std::io::Result<Duration> {
    let left = limit.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn error_message(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "timed out".into(),
        _ => error.to_string(),
    }
}

fn connect(receiver: &OtlpEndpoint, limit: Instant) -> Result<TcpStream, ExportError> {
    let unreachable = |error: std::io::Error| ExportError::Unreachable(error_message(&error));
    let mut last = ErrorKind::AddrNotAvailable.into();
    let found: Vec<_> = receiver.host_port().to_socket_addrs().map_err(unreachable)?.take(ADDRESSES_MAX).collect();
    for (tried, address) in found.iter().enumerate() {
        // An address that does not respond leaves time for the others.
        let part = time_left(limit).map_err(unreachable)? / (found.len() - tried) as u32;
        match TcpStream::connect_timeout(address, part.max(Duration::from_millis(1))) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(unreachable(last))
}

fn send(stream: &mut TcpStream, mut bytes: &[u8], limit: Instant) -> std::io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(time_left(limit)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until the response is complete, too long, or late.
fn read(stream: &mut TcpStream, limit: Instant) -> Vec<u8> {
    let (mut received, mut piece) = (Vec::new(), [0; 4096]);
    while received.len() < RESPONSE_MAX && !is_whole(&received) {
        let Ok(left) = time_left(limit) else { break };
        if stream.set_read_timeout(Some(left)).is_err() {
            break;
        }
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => received.extend_from_slice(piece.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    received
}

/// True if nothing more needs to be read. A response without a length ends with its connection;
/// malformed bytes are complete at once.
fn is_whole(received: &[u8]) -> bool {
    let mut fields = NO_FIELDS;
    match response(received, &mut fields) {
        Ok(None) => false,
        Ok(Some(answer)) => answer.content().is_whole == Some(true),
        Err(_) => true,
    }
}

fn parse(received: &[u8]) -> Option<Result<ExportReply, ExportError>> {
    let mut fields = NO_FIELDS;
    let answer = response(received, &mut fields).ok()??;
    let (status, Content { bytes, is_whole }) = (answer.status, answer.content());
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if !(200..300).contains(&status) {
        // A google.rpc.Status, if it is in JSON.
        let message = body["message"].as_str().map_or_else(|| String::from_utf8_lossy(&bytes).into_owned(), Into::into);
        // Only seconds are accepted, not a date.
        let rest = answer.value("retry-after").and_then(|value| value.parse().ok()).map(Duration::from_secs);
        return Some(Err(ExportError::Refused { status, message: sanitize(&message), retry_after: rest }));
    }
    // The missing part may contain the rejected points, unless the response exceeds the limit.
    if is_whole == Some(false) && received.len() < RESPONSE_MAX {
        return Some(Err(ExportError::Unanswered("the connection ended within the response".into())));
    }
    let partial = &body["partialSuccess"];
    let rejected = &partial["rejectedDataPoints"];
    let rejected = rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok()).unwrap_or(0);
    Some(Ok(ExportReply { rejected, message: sanitize(partial["errorMessage"].as_str().unwrap_or("no reason given")) }))
}

/// Makes the message one printable line.
fn sanitize(message: &str) -> String {
    let line = message.trim().chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    line.take(MESSAGE_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn responses_are_classified() {
        let accepted = |rejected, message: &str| Some(Ok(ExportReply { rejected, message: message.into() }));
        let refused = |status, message: &str, rest: Option<u64>| {
            Some(Err(ExportError::Refused {
                status,
                message: message.into(),
                retry_after: rest.map(Duration::from_secs),
            }))
        };
        let cut = || Some(Err(ExportError::Unanswered("the connection ended within the response".into())));
        for (answer, meaning) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", accepted(0, "no reason given")),
            (
                "HTTP/1.1 200 OK\r\n\r\n{\"partialSuccess\":{\"rejectedDataPoints\":\"3\",\"errorMessage\":\"too\\nold\"}}",
                accepted(3, "too old"),
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2b\r\n{\"partialSuccess\":{\"rejectedDataPoints\":4}}\
                 \r\n0\r\n\r\n",
                accepted(4, "no reason given"),
            ),
            ("HTTP/1.1 503 Busy\r\nretry-after: 7\r\n\r\n{\"message\":\"full\"}", refused(503, "full", Some(7))),
            ("HTTP/1.1 429 No\r\nRetry-After: Fri, 31 Dec\r\n\r\nlater", refused(429, "later", None)),
            ("HTTP/1.1 301 Moved\r\nlocation: x\r\n\r\n", refused(301, "", None)),
            ("HTTP/1.1 204 No Content\r\n\r\n", accepted(0, "no reason given")),
            // Interim responses come before the final one.
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
                accepted(0, "no reason given"),
            ),
            // A transfer coding overrides the length, and chunks end with their trailers.
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n\
                 2B ;x=y\r\n{\"partialSuccess\":{\"rejectedDataPoints\":4}}\r\n00\r\na: b\r\n\r\n",
                accepted(4, "no reason given"),
            ),
            ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}", cut()),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n", cut()),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n", cut()),
            ("HTTP/1.1 503 Busy\r\ncontent-length: 9\r\n\r\nfull", refused(503, "full", None)),
            // The end of these responses is undefined.
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}", None),
            ("HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\n{}", None),
            ("SSH-2.0\r\n\r\n", None),
            ("HTTP/1.1 200 OK\r\n", None),
            ("HTTP/1.1 100 Continue\r\n\r\n", None),
        ] {
            assert_eq!(parse(answer.as_bytes()), meaning, "{answer}");
        }
    }

    #[test]
    fn the_end_of_a_response_is_detected() {
        for (answer, whole) in [
            ("HTTP/1.1 204 No Content\r\n\r\n", true),
            ("HTTP/1.1 100 Continue\r\n\r\n", false),
            ("HTTP/1.1 200 OK\r\n\r\n0\r\n\r\n", false),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\na\r\n0\r\n\r\n", false),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\na: b\r\n", false),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\na: b\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n2\r\n", false),
        ] {
            assert_eq!(is_whole(answer.as_bytes()), whole, "{answer}");
        }
    }

    proptest! {
        #[test]
        fn any_response_is_parsed(answer in proptest::collection::vec(any::<u8>(), 0..300), body in ".{0,100}") {
            let _ = (parse(&answer), is_whole(&answer));
            let chunked = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{body}");
            let _ = (parse(chunked.as_bytes()), is_whole(chunked.as_bytes()));
        }
    }
}
