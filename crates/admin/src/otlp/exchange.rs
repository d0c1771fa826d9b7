//! A single export: connect, send, read the answer, all before a limit. Never here: when, and how often.

use super::receiver::Receiver;
use serde_json::Value;
use std::fmt::{self, Display, Formatter};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Longest answer that is read, in bytes. Whatever is behind says nothing that is needed.
const LONGEST: usize = 64 << 10;
/// Addresses of one name that are tried.
const ADDRESSES: usize = 8;
/// Longest words of a receiver that are told, in characters.
const WORDS: usize = 200;

/// An export that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// Points that were not, nevertheless.
    pub(super) rejected: u64,
    /// The receiver's words about them.
    pub(super) words: String,
}

/// An export that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// Nothing was sent.
    Unreachable(String),
    /// No answer, or none in HTTP.
    Unanswered(String),
    /// Answered otherwise.
    Refused {
        status: u16,
        words: String,
        /// Time that the receiver asks for.
        rest: Option<Duration>,
    },
}

impl Failed {
    /// The rest that the receiver asks for.
    pub(super) fn rest(&self) -> Option<Duration> {
        if let Failed::Refused { rest, .. } = self { *rest } else { None }
    }

    /// Failures of one kind are told once.
    pub(super) fn kind(&self) -> String {
        match self {
            Failed::Unreachable(_) => "unreachable".into(),
            Failed::Unanswered(_) => "unanswered".into(),
            Failed::Refused { status, .. } => status.to_string(),
        }
    }
}

impl Display for Failed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Unreachable(why) => write!(f, "can't be reached: {why}"),
            Failed::Unanswered(why) => write!(f, "no answer: {why}"),
            Failed::Refused { status, words, .. } if words.is_empty() => write!(f, "answers {status}"),
            Failed::Refused { status, words, .. } => write!(f, "answers {status}: {words}"),
        }
    }
}

/// Sends `body`, and reads what the receiver says to it before `limit`.
pub(super) fn post(receiver: &Receiver, body: &str, limit: Instant) -> Result<Taken, Failed> {
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
        (None, Err(error)) => Err(Failed::Unanswered(words_of(&error))),
        (None, Ok(())) if heard.is_empty() && left(limit).is_err() => Err(Failed::Unanswered("time is up".into())),
        (None, Ok(())) if heard.is_empty() => Err(Failed::Unanswered("the connection ended".into())),
        (None, Ok(())) => Err(Failed::Unanswered("it does not speak HTTP".into())),
    }
}

fn left(limit: Instant) -> std::io::Result<Duration> {
    let left = limit.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn words_of(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "time is up".into(),
        _ => error.to_string(),
    }
}

fn connect(receiver: &Receiver, limit: Instant) -> Result<TcpStream, Failed> {
    let unreachable = |error: std::io::Error| Failed::Unreachable(words_of(&error));
    let mut last = ErrorKind::AddrNotAvailable.into();
    let found: Vec<_> = receiver.place().to_socket_addrs().map_err(unreachable)?.take(ADDRESSES).collect();
    for (tried, address) in found.iter().enumerate() {
        // One that swallows what is sent leaves time to the others.
        let part = left(limit).map_err(unreachable)? / (found.len() - tried) as u32;
        match TcpStream::connect_timeout(address, part.max(Duration::from_millis(1))) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(unreachable(last))
}

fn send(stream: &mut TcpStream, mut bytes: &[u8], limit: Instant) -> std::io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(limit)?))?;
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
    while heard.len() < LONGEST && !is_whole(&heard) {
        let Ok(left) = left(limit) else { break };
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

/// Head of an answer, and where its body begins.
struct Head {
    status: u16,
    length: Option<usize>,
    rest: Option<Duration>,
    is_chunked: bool,
    body: usize,
}

fn head(heard: &[u8]) -> Option<Head> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut fields);
    let body = match response.parse(heard) {
        Ok(httparse::Status::Complete(body)) => body,
        _ => return None,
    };
    let field = |name: &str| {
        let found = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
        Some(std::str::from_utf8(found.value).ok()?.trim())
    };
    Some(Head {
        status: response.code?,
        length: field("content-length").and_then(|value| value.parse().ok()),
        // Seconds; a date is none.
        rest: field("retry-after").and_then(|value| value.parse().ok()).map(Duration::from_secs),
        is_chunked: field("transfer-encoding").is_some_and(|value| value.to_ascii_lowercase().contains("chunked")),
        body,
    })
}

/// Whether nothing more needs to come. An answer without a length ends with its connection.
fn is_whole(heard: &[u8]) -> bool {
    let Some(head) = head(heard) else { return false };
    let body = heard.get(head.body..).unwrap_or_default();
    match head.length {
        Some(length) => body.len() >= length,
        None => head.is_chunked && body.ends_with(b"\r\n0\r\n\r\n") || body == b"0\r\n\r\n",
    }
}

fn parse(heard: &[u8]) -> Option<Result<Taken, Failed>> {
    let head = head(heard)?;
    let body = heard.get(head.body..).unwrap_or_default();
    let body = if head.is_chunked { dechunked(body) } else { body.to_vec() };
    let told: Value = serde_json::from_slice(&body).unwrap_or_default();
    if !(200..300).contains(&head.status) {
        // google.rpc.Status, if it is in JSON.
        let words = told["message"].as_str().map_or_else(|| String::from_utf8_lossy(&body).into_owned(), Into::into);
        return Some(Err(Failed::Refused { status: head.status, words: plain(&words), rest: head.rest }));
    }
    let partial = &told["partialSuccess"];
    let rejected = &partial["rejectedDataPoints"];
    let rejected = rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok()).unwrap_or(0);
    Some(Ok(Taken { rejected, words: plain(partial["errorMessage"].as_str().unwrap_or("it does not say why")) }))
}

/// The bytes of a body that came in chunks, as far as they can be read.
fn dechunked(mut body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(end) = body.windows(2).position(|pair| pair == b"\r\n") {
        let line = body.get(..end).and_then(|line| std::str::from_utf8(line).ok()).unwrap_or_default();
        let size = line.split(';').next().and_then(|size| usize::from_str_radix(size.trim(), 16).ok()).unwrap_or(0);
        let Some(chunk) = body.get(end + 2..).and_then(|rest| rest.get(..size)).filter(|_| size > 0) else { break };
        bytes.extend_from_slice(chunk);
        body = body.get(end + 2 + size + 2..).unwrap_or_default();
    }
    bytes
}

/// A line that can be printed.
fn plain(words: &str) -> String {
    let line = words.trim().chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    line.take(WORDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_are_told_apart() {
        let taken = |rejected, words: &str| Some(Ok(Taken { rejected, words: words.into() }));
        let refused = |status, words: &str, rest: Option<u64>| {
            Some(Err(Failed::Refused { status, words: words.into(), rest: rest.map(Duration::from_secs) }))
        };
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
            ("SSH-2.0\r\n\r\n", None),
            ("HTTP/1.1 200 OK\r\n", None),
        ] {
            assert_eq!(parse(answer.as_bytes()), meaning, "{answer}");
        }
    }

    proptest! {
        #[test]
        fn no_answer_breaks_it(answer in proptest::collection::vec(any::<u8>(), 0..300), body in ".{0,100}") {
            let _ = (parse(&answer), is_whole(&answer), dechunked(&answer));
            let chunked = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{body}");
            let _ = (parse(chunked.as_bytes()), is_whole(chunked.as_bytes()));
        }
    }
}
