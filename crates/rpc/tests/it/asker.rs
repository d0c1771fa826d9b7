//! A client over a real socket that says exactly what it is told to.

#![allow(dead_code, reason = "each test file uses a part of it")]

use leeward_control::units::Priority;
use leeward_rpc::server::Server;
use leeward_rpc::wire::{
    Budget, Call, CreditId, Decoder, Encoder, Frame, Method, PayloadLimit, Register, RequestId, Side, Timestamp,
};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A registered connection.
pub(crate) struct Peer {
    stream: TcpStream,
    decoder: Decoder,
}

impl Peer {
    pub(crate) fn registered(server: &Server) -> Peer {
        let stream = TcpStream::connect(server.address()).unwrap();
        // Only so that a defect fails instead of hanging.
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut peer = Peer { stream, decoder: Decoder::new(Side::Server, PayloadLimit::DEFAULT) };
        let register = Register { timestamp: Timestamp(1), demand: 0, payload_max: PayloadLimit::DEFAULT };
        peer.stream.write_all(&bytes(&Frame::Register(register))).unwrap();
        assert!(peer.answer().unwrap().starts_with("Welcome"));
        peer
    }

    /// Sends these calls at once, numbered from `first`.
    pub(crate) fn call(&mut self, first: u64, method: u32, payloads: &[&[u8]]) {
        let calls = (first..).zip(payloads).flat_map(|(request, payload)| bytes(&call(request, method, payload)));
        self.stream.write_all(&calls.collect::<Vec<u8>>()).unwrap();
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
            match self.stream.read(self.decoder.spare()) {
                Ok(0) => return None,
                Ok(count) => self.decoder.filled(count),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                // A read with a time-out ends so when the process was stopped and goes on.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn call(request: u64, method: u32, payload: &[u8]) -> Frame<'_> {
    Frame::Call(Call {
        request: RequestId::new(request).unwrap(),
        timestamp: Timestamp(7),
        credit: CreditId::NONE,
        method: Method(method),
        demand: 0,
        budget: Budget::UNLIMITED,
        priority: Priority::HIGHEST,
        payload,
    })
}

fn bytes(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Encoder::new(PayloadLimit::DEFAULT).append(frame, &mut bytes).unwrap();
    bytes
}

/// Waits until `holds`, as long as it takes.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..30_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("never: {what}");
}
