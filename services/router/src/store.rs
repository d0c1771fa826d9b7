//! A leaf in front of a memcached server, or any program with its text protocol; the server keeps
//! the pairs.
//!
//! Does not contain the mapping of keys to leaves.

use crate::wire::{GET, Pair, SET, check};
use leeward_rpc::address;
use leeward_rpc::server::{Handler, HandlerError, Request};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Timeout for connecting and for each read; afterwards the caller gets an error.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Idle connections that the leaf keeps.
const IDLE_MAX: usize = 64;
/// Length of the longest accepted line, in bytes.
const LINE_MAX: u64 = 1_024;
/// Length of the longest accepted value, in bytes. memcached's own default limit is 1 MB.
const VALUE_MAX: usize = 64 << 20;

/// A leaf whose pairs are on a memcached server.
#[derive(Clone)]
pub struct StoreLeaf {
    shared: Arc<Shared>,
}

struct Shared {
    /// The configured address, for messages.
    name: String,
    addresses: Vec<SocketAddr>,
    idle: Mutex<Vec<BufReader<TcpStream>>>,
}

impl StoreLeaf {
    /// Creates a leaf in front of the server at `address`, such as `127.0.0.1:11211`.
    ///
    /// The server need not be running yet.
    ///
    /// # Errors
    /// The address is invalid; the message shows the accepted form.
    pub fn new(address: &str) -> Result<Self, String> {
        let accepted = || format!("{address:?}; accepted: HOST:PORT such as 127.0.0.1:11211");
        let addresses = address::resolve(address).map_err(|error| format!("{}: {error}", accepted()))?;
        Ok(StoreLeaf::at(address.into(), addresses))
    }

    fn at(name: String, addresses: Vec<SocketAddr>) -> Self {
        StoreLeaf { shared: Arc::new(Shared { name, addresses, idle: Mutex::default() }) }
    }

    fn connect(&self) -> io::Result<BufReader<TcpStream>> {
        let stream = address::connect(&self.shared.addresses, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(BufReader::new(stream))
    }

    /// Sends a command and reads the response.
    ///
    /// An idle connection may be closed by now: a command that did not reach the server is sent
    /// again over a new connection.
    fn execute<T>(
        &self,
        command: &[u8],
        read: impl Fn(&mut BufReader<TcpStream>) -> io::Result<T>,
    ) -> Result<T, HandlerError> {
        let idle = self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let was_idle = idle.is_some();
        let attempt = |mut stream: BufReader<TcpStream>| -> io::Result<T> {
            stream.get_mut().write_all(command)?;
            let result = read(&mut stream)?;
            // Excess bytes would be read as the next command's response.
            if stream.buffer().is_empty() {
                let mut idle = self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner);
                if idle.len() < IDLE_MAX {
                    idle.push(stream);
                }
            }
            Ok(result)
        };
        let mut result = idle.map_or_else(|| self.connect(), Ok).and_then(attempt);
        if was_idle && result.as_ref().is_err_and(is_over) {
            result = self.connect().and_then(attempt);
        }
        result.map_err(|error| HandlerError::Message(format!("memcached at {}: {error}", self.shared.name)))
    }

    fn get(&self, key: &[u8], reply: &mut Vec<u8>) -> Result<(), HandlerError> {
        let found = self.execute(&[b"get ", text(key)?, b"\r\n"].concat(), |stream| {
            let head = line(stream)?;
            if head == b"END" {
                return Ok(None);
            }
            let length = value_length(&head, key).ok_or_else(|| unexpected(&head))?;
            let mut value = vec![0; length];
            stream.read_exact(&mut value)?;
            match (line(stream)?.as_slice(), line(stream)?.as_slice()) {
                (b"", b"END") => Ok(Some(value)),
                (_, other) => Err(unexpected(other)),
            }
        })?;
        reply.push(u8::from(found.is_some()));
        reply.extend(found.unwrap_or_default());
        Ok(())
    }

    fn set(&self, key: &[u8], value: &[u8], reply: &mut Vec<u8>) -> Result<(), HandlerError> {
        let head = format!(" 0 0 {}\r\n", value.len());
        self.execute(&[b"set ", text(key)?, head.as_bytes(), value, b"\r\n"].concat(), |stream| {
            let reply = line(stream)?;
            if reply == b"STORED" { Ok(()) } else { Err(unexpected(&reply)) }
        })?;
        reply.push(1);
        Ok(())
    }
}

impl Handler for StoreLeaf {
    fn call(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), HandlerError> {
        match request.method {
            GET => self.get(check(request.payload)?, reply),
            SET => {
                let Pair { key, value } = Pair::read(request.payload)?;
                self.set(key, value, reply)
            }
            _ => Err(HandlerError::UnknownMethod),
        }
    }
}

/// Returns whether the server closed the connection without seeing the command.
fn is_over(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// Checks that the text protocol can carry a key.
fn text(key: &[u8]) -> Result<&[u8], HandlerError> {
    if key.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
        return Err(HandlerError::Message("a key with spaces or control characters; memcached accepts none".into()));
    }
    Ok(key)
}

/// Reads a line, without its end.
fn line(stream: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    stream.take(LINE_MAX).read_until(b'\n', &mut line)?;
    match line.strip_suffix(b"\r\n") {
        Some(rest) => Ok(rest.to_vec()),
        None if line.is_empty() => Err(ErrorKind::UnexpectedEof.into()),
        None => Err(unexpected(&line)),
    }
}

/// Returns the length of the value that `VALUE key flags bytes` announces.
fn value_length(head: &[u8], key: &[u8]) -> Option<usize> {
    let rest = head.strip_prefix(b"VALUE ")?.strip_prefix(key)?.strip_prefix(b" ")?;
    let (_, bytes) = std::str::from_utf8(rest).ok()?.split_once(' ')?;
    bytes.parse().ok().filter(|length| *length <= VALUE_MAX)
}

fn unexpected(reply: &[u8]) -> io::Error {
    let shown: String = String::from_utf8_lossy(reply).chars().filter(|letter| !letter.is_control()).take(60).collect();
    io::Error::new(ErrorKind::InvalidData, format!("it says `{shown}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn only_the_header_of_the_requested_value_is_accepted() {
        assert_eq!(value_length(b"VALUE a 0 5", b"a"), Some(5));
        assert_eq!(value_length(b"VALUE a 17 0", b"a"), Some(0));
        for wrong in ["VALUE b 0 5", "VALUE ab 0 5", "VALUE a 5", "VALUE a 0 -1", "VALUE a 0 99999999999", "ERROR", ""]
        {
            assert_eq!(value_length(wrong.as_bytes(), b"a"), None, "{wrong}");
        }
    }

    #[test]
    fn every_address_of_a_store_name_is_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let vacant = TcpListener::bind("127.0.0.1:0").and_then(|taken| taken.local_addr()).unwrap();
        let there = listener.local_addr().unwrap();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"STORED\r\n").unwrap();
        });
        let leaf = StoreLeaf::at("store:11211".into(), vec![vacant, there]);
        assert_eq!(leaf.set(b"a", b"b", &mut Vec::new()), Ok(()));
        answering.join().unwrap();
        let nowhere = StoreLeaf::at("store:11211".into(), vec![vacant]);
        let Err(HandlerError::Message(why)) = nowhere.set(b"a", b"b", &mut Vec::new()) else {
            panic!("nobody listens")
        };
        assert!(why.starts_with("memcached at store:11211: "), "{why}");
    }

    #[test]
    fn keys_invalid_in_the_text_protocol_are_rejected() {
        assert_eq!(text(b"key-1"), Ok(&b"key-1"[..]));
        for wrong in [&b"a b"[..], b"a\r\nflush_all", b"\x7f", b"a\0"] {
            assert!(text(wrong).is_err(), "{wrong:?}");
        }
    }
}
