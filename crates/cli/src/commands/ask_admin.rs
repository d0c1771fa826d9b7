//! A question to an admin port, and its answer: HTTP/1.1 without a library, for the port is ours. Never here: which question.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};

use crate::failure::Failure;

/// How long connecting and answering may take, each.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer, bytes.
const LONGEST: u64 = 8 << 20;

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

/// Asks `address` for `path`, which needs no escapes.
pub(super) fn ask(address: &str, path: &str) -> Result<Answer, Failure> {
    exchange(address, path).with_context(|| address.to_string()).map_err(Failure::Input)
}

fn exchange(address: &str, path: &str) -> anyhow::Result<Answer> {
    let mut last = anyhow!("no such address");
    for found in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&found, PATIENCE) {
            Ok(mut stream) => {
                stream.set_write_timeout(Some(PATIENCE))?;
                write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
                return read(stream);
            }
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

/// Reads up to the connection's end.
fn read(mut stream: TcpStream) -> anyhow::Result<Answer> {
    let (began, mut heard, mut piece) = (Instant::now(), Vec::new(), [0; 4096]);
    loop {
        let left = PATIENCE.saturating_sub(began.elapsed());
        anyhow::ensure!(!left.is_zero(), "no answer within {PATIENCE:?}");
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece)? {
            0 => return parse(&heard),
            count => heard.extend_from_slice(&piece[..count]),
        }
        anyhow::ensure!(heard.len() as u64 <= LONGEST, "an answer over {LONGEST} bytes");
    }
}

fn parse(heard: &[u8]) -> anyhow::Result<Answer> {
    let text = String::from_utf8_lossy(heard);
    let (head, body) = text.split_once("\r\n\r\n").context("no admin port: its answer is no HTTP")?;
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|status| status.parse().ok());
    Ok(Answer { status: status.context("no admin port: its answer is no HTTP")?, body: body.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_others_are_refused() {
        let answer = parse(b"HTTP/1.1 404 Not Found\r\na: b\r\n\r\nno\r\n\r\nmore").unwrap();
        assert_eq!(answer, Answer { status: 404, body: "no\r\n\r\nmore".into() });
        for wrong in [&b""[..], b"SSH-2.0\r\n\r\n", b"HTTP/1.1 x\r\n\r\n", b"HTTP/1.1", b"\xff\xff\r\n\r\n"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
