//! Sockets of an attacker: many that write and read as fast as they can, on one thread.

use crate::target::Target;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Receive buffer of those that don't read, in bytes.
const SMALL: usize = 4096;

/// How an attacker treats its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadBehaviour {
    All,
    /// So many bytes per millisecond.
    Slowly(usize),
    Nothing,
}

/// A connection, or nothing where there is no room for one.
pub(crate) fn connect(target: &Target) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&target.address, Duration::from_secs(2)).ok()?;
    stream.set_nodelay(true).ok()?;
    stream.set_write_timeout(Some(Duration::from_secs(2))).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    Some(stream)
}

/// Ends a connection by a reset.
pub(crate) fn reset(stream: TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
}

/// So many connections that have said `first`.
pub(crate) fn connect_many(target: &Target, count: usize, first: &[u8]) -> Vec<TcpStream> {
    let greeted = |mut stream: TcpStream| stream.write_all(first).ok().map(|()| stream);
    (0..count).filter_map(|_| connect(target)).filter_map(greeted).collect()
}

/// Holds connections until the attack is over.
pub(crate) fn hold(target: &Target, held: &[TcpStream]) -> String {
    while target.is_active() {
        std::thread::sleep(Duration::from_millis(20));
    }
    format!("{} connections held", held.len())
}

/// Has each of `count` connections say `bytes` once, as fast as the server takes them, and then nothing more.
pub(crate) fn send_once(target: &Target, count: usize, bytes: &[u8]) -> String {
    let mut pumps: Vec<Flooder> = (0..count).filter_map(|_| Flooder::new(target, b"", ReadBehaviour::All)).collect();
    while target.is_active() {
        pumps.retain_mut(|pump| match pump.stream.write(&bytes[pump.at..]) {
            Ok(sent) => {
                pump.at += sent;
                true
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        });
        std::thread::sleep(Duration::from_millis(1));
    }
    let sent: usize = pumps.iter().map(|pump| pump.at).sum();
    format!("{} connections left, {sent} bytes taken from them", pumps.len())
}

/// Has each of `count` connections say `first` once and `again` for ever, as fast as the server takes it.
pub(crate) fn flood(target: &Target, count: usize, first: &[u8], again: &[u8], reads: ReadBehaviour) -> String {
    let mut pumps: Vec<Flooder> = (0..count).filter_map(|_| Flooder::new(target, first, reads)).collect();
    let (mut sent, mut came, mut ended) = (0, 0, 0);
    let mut into = vec![0; 1 << 16];
    while target.is_active() {
        let mut moved = 0;
        for pump in &mut pumps {
            let (out, back, goes_on) = pump.poll(again, &mut into, reads);
            (sent, came, moved) = (sent + out, came + back, moved + out + back);
            if !goes_on {
                // Sent away: it comes back.
                ended += 1;
                if let Some(fresh) = Flooder::new(target, first, reads) {
                    *pump = fresh;
                }
            }
        }
        if moved == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    format!("{} bytes sent, {} received, sent away {} times", sent, came, ended)
}

struct Flooder {
    stream: TcpStream,
    /// Bytes of what is said for ever that have gone out.
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

    /// Writes and reads once: how many bytes each, and whether the connection goes on.
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
            Ok(came) => (sent, came, true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => (sent, 0, true),
            Err(_) => (sent, 0, false),
        }
    }
}

/// Has `count` connections send a byte of `bytes` each per second.
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

/// Bytes at random, on one connection after the other.
pub(crate) fn random(target: &Target) -> String {
    let mut chance = target.rng();
    let mut rounds = 0;
    while target.is_active() {
        if let Some(mut stream) = connect(target) {
            let _ = stream.write_all(&chance.bytes(65_536));
            rounds += 1;
        }
    }
    format!("{rounds} connections")
}

/// Connections that say nothing.
pub(crate) fn idle(target: &Target) -> String {
    hold(target, &connect_many(target, 2_000, b""))
}

/// Connections that say `said` and are reset, one after the other.
pub(crate) fn connect_and_reset(target: &Target, said: &[u8]) -> String {
    let mut rounds = 0;
    while target.is_active() {
        if let Some(mut stream) = connect(target) {
            let _ = stream.write_all(said);
            reset(stream);
            rounds += 1;
        }
    }
    format!("{rounds} connections")
}
