//! A single export: connect, send, read the answer, all before a limit. Never here: when, and how often.

use super::endpoint::OtlpEndpoint;
use leeward_http1::{Content, NO_FIELDS, response};
use serde_json::Value;
use std::fmt::{self, Display, Formatter};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Longest answer that is read, in bytes. Whatever is behind says nothing that is needed.
const RESPONSE_MAX: usize = 64 << 10;
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;
/// Longest words of a receiver that are told, in characters.
const MESSAGE_MAX: usize = 200;

/// An export that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExportReply {
    /// Points that were not, nevertheless.
    pub(super) rejected: u64,
    /// The receiver's words about them.
    pub(super) message: String,
}

/// An export that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExportError {
    /// Nothing was sent.
    Unreachable(String),
    /// No answer, or none in HTTP.
    Unanswered(String),
    /// Answered otherwise.
    Refused {
        status: u16,
        message: String,
        /// Time that the receiver asks for.
        retry_after: Option<Duration>,
    },
}

impl ExportError {
    /// The rest that the receiver asks for.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        if let ExportError::Refused { retry_after: rest, .. } = self { *rest } else { None }
    }

    /// Failures of one kind are told once.
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
            ExportError::Unreachable(why) => write!(f, "can't be reached: {why}"),
            ExportError::Unanswered(why) => write!(f, "no answer: {why}"),
            ExportError::Refused { status, message: words, .. } if words.is_empty() => write!(f, "answers {status}"),
            ExportError::Refused { status, message: words, .. } => write!(f, "answers {status}: {words}"),
        }
    }
}

/// Sends `body`, and reads what the receiver says to it before `limit`.
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
    // A receiver that refuses may answer before it has read all: what it says counts, not that it stopped reading.
    let sent = send(&mut stream, head.as_bytes(), limit).and_then(|()| send(&mut stream, body.as_bytes(), limit));
    let heard = read(&mut stream, limit);
    match (parse(&heard), sent) {
        (Some(answer), _) => answer,
        (None, Err(error)) => Err(ExportError::Unanswered(error_message(&error))),
        (None, Ok(())) if heard.is_empty() && time_left(limit).is_err() => {
            Err(ExportError::Unanswered("time is up".into()))
        }
        (None, Ok(())) if heard.is_empty() => Err(ExportError::Unanswered("the connection ended".into())),
        (None, Ok(())) => Err(ExportError::Unanswered("it does not speak HTTP".into())),
    }
}

fn time_left(limit: Instant) -> std::io::Result<Duration> {
    let left = limit.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn error_message(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "time is up".into(),
        _ => error.to_string(),
    }
}

fn connect(receiver: &OtlpEndpoint, limit: Instant) -> Result<TcpStream, ExportError> {
    let unreachable = |error: std::io::Error| ExportError::Unreachable(error_message(&error));
    let mut last = ErrorKind::AddrNotAvailable.into();
    let found: Vec<_> = receiver.host_port().to_socket_addrs().map_err(unreachable)?.take(ADDRESSES_MAX).collect();
    for (tried, address) in found.iter().enumerate() {
        // One that swallows what is sent leaves time to the others.
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

/// Reads until the answer is whole, too long, or late.
fn read(stream: &mut TcpStream, limit: Instant) -> Vec<u8> {
    let (mut heard, mut piece) = (Vec::new(), [0; 4096]);
    while heard.len() < RESPONSE_MAX && !is_whole(&heard) {
        let Ok(left) = time_left(limit) else { break };
        if stream.set_read_timeout(Some(left)).is_err() {
            break;
        }
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => heard.extend_from_slice(piece.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    heard
}

/// Whether nothing more needs to come. An answer without a length ends with its connection, and one
/// that is none at once.
fn is_whole(heard: &[u8]) -> bool {
    let mut fields = NO_FIELDS;
    match response(heard, &mut fields) {
        Ok(None) => false,
        Ok(Some(answer)) => answer.content().is_whole == Some(true),
        Err(_) => true,
    }
}

fn parse(heard: &[u8]) -> Option<Result<ExportReply, ExportError>> {
    let mut fields = NO_FIELDS;
    let answer = response(heard, &mut fields).ok()??;
    let (status, Content { bytes, is_whole }) = (answer.status, answer.content());
    let told: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if !(200..300).contains(&status) {
        // google.rpc.Status, if it is in JSON.
        let words = told["message"].as_str().map_or_else(|| String::from_utf8_lossy(&bytes).into_owned(), Into::into);
        // Seconds; a date is none.
        let rest = answer.value("retry-after").and_then(|value| value.parse().ok()).map(Duration::from_secs);
        return Some(Err(ExportError::Refused { status, message: sanitize(&words), retry_after: rest }));
    }
    // What was not taken stands in the part that is missing, unless the answer is longer than
    // anybody needs.
    if is_whole == Some(false) && heard.len() < RESPONSE_MAX {
        return Some(Err(ExportError::Unanswered("it ended within its answer".into())));
    }
    let partial = &told["partialSuccess"];
    let rejected = &partial["rejectedDataPoints"];
    let rejected = rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok()).unwrap_or(0);
    Some(Ok(ExportReply {
        rejected,
        message: sanitize(partial["errorMessage"].as_str().unwrap_or("it does not say why")),
    }))
}

/// A line that can be printed.
fn sanitize(words: &str) -> String {
    let line = words.trim().chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    line.take(MESSAGE_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_are_told_apart() {
        let taken = |rejected, words: &str| Some(Ok(ExportReply { rejected, message: words.into() }));
        let refused = |status, words: &str, rest: Option<u64>| {
            Some(Err(ExportError::Refused {
                status,
                message: words.into(),
                retry_after: rest.map(Duration::from_secs),
            }))
        };
        let cut = || Some(Err(ExportError::Unanswered("it ended within its answer".into())));
        for (answer, meaning) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", taken(0, "it does not say why")),
            (
                "HTTP/1.1 200 OK\r\n\r\n{\"partialSuccess\":{\"rejectedDataPoints\":\"3\",\"errorMessage\":\"too\\nold\"}}",
                taken(3, "too old"),
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2b\r\n{\"partialSuccess\":{\"rejectedDataPoints\":4}}\
                 \r\n0\r\n\r\n",
                taken(4, "it does not say why"),
            ),
            ("HTTP/1.1 503 Busy\r\nretry-after: 7\r\n\r\n{\"message\":\"full\"}", refused(503, "full", Some(7))),
            ("HTTP/1.1 429 No\r\nRetry-After: Fri, 31 Dec\r\n\r\nlater", refused(429, "later", None)),
            ("HTTP/1.1 301 Moved\r\nlocation: x\r\n\r\n", refused(301, "", None)),
            ("HTTP/1.1 204 No Content\r\n\r\n", taken(0, "it does not say why")),
            // Answers before the answer.
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
                taken(0, "it does not say why"),
            ),
            // A coding overrules a length, and chunks end with their trailers.
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n\
                 2B ;x=y\r\n{\"partialSuccess\":{\"rejectedDataPoints\":4}}\r\n00\r\na: b\r\n\r\n",
                taken(4, "it does not say why"),
            ),
            ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}", cut()),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n", cut()),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n", cut()),
            ("HTTP/1.1 503 Busy\r\ncontent-length: 9\r\n\r\nfull", refused(503, "full", None)),
            // Nobody can say where these end.
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
    fn the_end_of_an_answer_is_known() {
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
        fn no_answer_breaks_it(answer in proptest::collection::vec(any::<u8>(), 0..300), body in ".{0,100}") {
            let _ = (parse(&answer), is_whole(&answer));
            let chunked = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{body}");
            let _ = (parse(chunked.as_bytes()), is_whole(chunked.as_bytes()));
        }
    }
}
