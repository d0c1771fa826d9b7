//! A client with scripted messages over a real socket: by datagrams, if the server accepts them.

#![allow(dead_code, reason = "each test file uses a part of it")]

use leeward_pair::frames::{call_of, encode, register};
use leeward_rpc::client::{DatagramSize, DatagramStream};
use leeward_rpc::server::Server;
use leeward_rpc::wire::{Decoder, Frame, Method, PayloadLimit, Side};
use leeward_runtime::Clock;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A registered connection.
pub(crate) struct RawClient {
    carrier: RawTransport,
    decoder: Decoder,
}

enum RawTransport {
    Tcp(TcpStream),
    Datagrams(Box<DatagramStream>, Clock),
}

impl RawTransport {
    fn to(server: &Server) -> RawTransport {
        if let Some(udp_address) = server.datagram_address() {
            let clock = Clock::start();
            let nonce = u64::from(std::process::id()) << 32 | u64::from(udp_address.port());
            let stream = DatagramStream::connect(udp_address, nonce, DatagramSize::DEFAULT, clock.now()).unwrap();
            return RawTransport::Datagrams(Box::new(stream), clock);
        }
        let stream = TcpStream::connect(server.address()).unwrap();
        // Only turns a hang into a failure.
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.set_nodelay(true).unwrap();
        RawTransport::Tcp(stream)
    }

    /// Reads available bytes; 0 is the end.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            RawTransport::Tcp(stream) => stream.read(into),
            RawTransport::Datagrams(stream, clock) => match stream.read(|| clock.now(), into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    stream.finish();
                    stream.on_timer(clock.now());
                    // Wait for datagrams.
                    std::thread::sleep(Duration::from_micros(50));
                    Err(ErrorKind::Interrupted.into())
                }
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(0),
                read => read,
            },
        }
    }

    /// Writes as much of `bytes` as may leave now.
    fn write(&mut self, bytes: &[u8]) -> usize {
        match self {
            RawTransport::Tcp(stream) => {
                stream.write_all(bytes).unwrap();
                bytes.len()
            }
            // The window is full, or the handshake continues: the caller tries again after the next
            // input.
            RawTransport::Datagrams(stream, clock) => stream.write(clock.now(), bytes).unwrap_or(0),
        }
    }
}

impl RawClient {
    pub(crate) fn registered(server: &Server) -> RawClient {
        let mut peer =
            RawClient { carrier: RawTransport::to(server), decoder: Decoder::new(Side::Server, PayloadLimit::DEFAULT) };
        peer.send(&encode(&register()));
        assert!(peer.answer().unwrap().starts_with("Welcome"));
        peer
    }

    /// Sends these calls at once, numbered from `first`.
    pub(crate) fn call(&mut self, first: u64, method: u32, payloads: &[&[u8]]) {
        let calls = (first..).zip(payloads).map(|(request, payload)| call_of(Method(method), request, payload));
        self.send(&calls.flat_map(|call| encode(&call)).collect::<Vec<u8>>());
    }

    /// Sends all of `bytes`, and keeps the input that arrives meanwhile.
    fn send(&mut self, bytes: &[u8]) {
        let mut sent = 0;
        while sent < bytes.len() {
            sent += self.carrier.write(&bytes[sent..]);
            if sent < bytes.len() {
                self.read();
            }
        }
    }

    /// Reads once. Returns whether the stream continues.
    fn read(&mut self) -> bool {
        match self.carrier.read(self.decoder.spare()) {
            Ok(0) => return false,
            Ok(count) => self.decoder.advance(count),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return false,
            // A read with a timeout ends like this after the process was suspended.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("{error}"),
        }
        true
    }

    /// The next frame that is no credit, as text; `None` at the end of the stream.
    pub(crate) fn answer(&mut self) -> Option<String> {
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                if matches!(frame, Frame::Credit(_)) {
                    continue;
                }
                return Some(format!("{frame:?}"));
            }
            if !self.read() {
                return None;
            }
        }
    }
}
