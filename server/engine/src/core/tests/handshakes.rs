//! Tests of handshakes beside requests, and of handshakes that fail.

use super::support::*;
use crate::encryption::{Encryption, EncryptionError, PeerIdentity, SecureChannel};
use crate::limits::Limits;
use leeward_core::units::Nanos;
use leeward_runtime::clock::ManualTime;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;

/// Time of one handshake step.
const STEP: Nanos = Nanos::from_micros(500);

/// A test encryption without a cipher. Its handshake is `hhh` from the client and `k` from the
/// server.
#[derive(Debug)]
struct PlainEncryption(ManualTime);

struct PlainChannel {
    time: ManualTime,
    left: usize,
    plaintext: VecDeque<u8>,
    sendable: Vec<u8>,
}

impl Encryption for PlainEncryption {
    fn recognises(&self, first: u8) -> bool {
        first == b'h'
    }

    fn accept(&self) -> Result<Box<dyn SecureChannel>, EncryptionError> {
        let (plaintext, sendable) = (VecDeque::new(), Vec::new());
        Ok(Box::new(PlainChannel { time: self.0.clone(), left: 3, plaintext, sendable }))
    }

    fn renewals(&self) -> (u64, Option<String>) {
        (0, None)
    }
}

impl SecureChannel for PlainChannel {
    fn absorb(&mut self, ciphertext: &[u8], into: &mut [u8]) -> Result<usize, EncryptionError> {
        if self.left > 0 {
            self.time.advance(STEP);
        }
        for byte in ciphertext {
            match (self.left, byte) {
                (0, byte) => self.plaintext.push_back(*byte),
                (left, b'h') => {
                    self.left = left - 1;
                    self.sendable.extend((left == 1).then_some(b'k'));
                }
                _ => return Err(EncryptionError { reason: "garbage", message: "no handshake".into() }),
            }
        }
        Ok(self.take(into))
    }

    fn take(&mut self, into: &mut [u8]) -> usize {
        let count = into.len().min(self.plaintext.len());
        self.plaintext.drain(..count).zip(into).for_each(|(byte, place)| *place = byte);
        count
    }

    fn holds_plaintext(&self) -> bool {
        !self.plaintext.is_empty()
    }

    fn has_ended(&self) -> bool {
        false
    }

    fn is_handshaking(&self) -> bool {
        self.left > 0
    }

    fn is_resumed(&self) -> bool {
        false
    }

    fn identity(&self) -> Option<PeerIdentity> {
        None
    }

    fn seal(&mut self, bytes: &[u8]) -> usize {
        self.sendable.extend_from_slice(bytes);
        bytes.len()
    }

    fn wants_send(&self) -> bool {
        !self.sendable.is_empty()
    }

    fn send(&mut self, to: &mut dyn Write) -> io::Result<()> {
        while !self.sendable.is_empty() {
            let count = to.write(&self.sendable)?;
            self.sendable.drain(..count);
        }
        Ok(())
    }

    fn close(&mut self) {}
}

fn encrypted(limits: Limits) -> TestServer {
    TestServer::build(limits, |time| Some(Arc::new(PlainEncryption(time.clone()))))
}

fn refused(server: &TestServer) -> Vec<(String, u64)> {
    server.handle.engine.handshakes.statistics(&PlainEncryption(server.time.clone())).refused.into_iter().collect()
}

#[test]
fn a_request_is_served_after_or_together_with_its_handshake() {
    let mut server = encrypted(Limits::default());
    let (fast, slow) = (server.connect(), server.connect());
    fast.send("hhhc");
    for _ in 0..3 {
        slow.send("h");
        server.settle();
    }
    slow.send("c");
    server.settle();
    assert_eq!((fast.take().as_slice(), slow.take().as_slice()), (&b"ka"[..], &b"ka"[..]));
    assert_eq!(server.handle.counts().connections, 2);
}

#[test]
fn one_handshake_advances_per_poll() {
    let mut server = encrypted(Limits::default());
    let clients: Vec<_> = (0..10).map(|_| server.connect()).collect();
    clients.iter().for_each(|client| client.send("hhh"));
    for done in 1..=10 {
        server.poll();
        assert_eq!(server.handle.counts().connections, done);
    }
}

#[test]
fn handshakes_have_a_sixteenth_of_the_time_while_calls_are_answered() {
    let mut server = encrypted(Limits { handshake_timeout: Nanos::from_secs(60), ..Limits::default() });
    let caller = server.connect();
    caller.send("hhh");
    server.settle();
    caller.take();
    let crowd: Vec<_> = (0..200).map(|_| server.connect()).collect();
    crowd.iter().for_each(|client| client.send("hhh"));
    let mut call = || {
        let sent = server.now();
        caller.send("c");
        while caller.take().is_empty() {
            assert!(server.now().since(sent) < Nanos::from_millis(50), "no answer");
            server.poll();
            server.run();
            server.time.advance(Nanos(1_000));
        }
        (server.now(), server.now().since(sent), server.handle.counts().connections)
    };
    // The core is quiet before its first response.
    let (began, _, before) = call();
    let mut longest = Nanos::ZERO;
    let steps = loop {
        let (now, waited, connections) = call();
        // Connections that arrive at once take 13 polls of 16 events, each with a step while saved
        // quota lasts.
        if now.since(began) > Nanos::from_millis(20) {
            longest = longest.max(waited);
        }
        if now.since(began) > Nanos::from_secs(1) {
            break connections - before;
        }
    };
    // About a sixteenth of a second and the 20 ms of saved quota. One step may exceed it.
    let most = Nanos::from_millis(1_000 / 16 + 20).0 / STEP.0;
    assert!(steps <= most + most / 16 && steps > most / 2, "{steps} of {most}");
    assert!(longest < STEP + STEP, "{longest}: a call waits for one step");
}

#[test]
fn incomplete_handshakes_are_abandoned() {
    let mut server = encrypted(Limits { handshake_timeout: Nanos::from_secs(1), ..Limits::default() });
    let [stalled, foreign, garbage, left] = std::array::from_fn(|_| server.connect());
    stalled.send("h");
    foreign.send("c");
    garbage.send("hx");
    left.end();
    server.pass(Nanos::from_millis(500));
    assert_eq!(foreign.take(), b"Unencrypted");
    assert!(garbage.is_shut() && left.is_closed() && !stalled.is_closed());
    server.pass(Nanos::from_millis(1_200));
    assert!([&stalled, &foreign, &garbage].iter().all(|client| client.is_closed()));
    let reasons = ["garbage", "left", "plaintext", "stalled"].map(|reason| (reason.to_string(), 1));
    assert_eq!(refused(&server), reasons);
    assert_eq!(server.handle.engine.handshakes.statistics(&PlainEncryption(server.time.clone())).waiting, 0);
}

#[test]
fn a_full_server_does_no_handshake() {
    let mut server = encrypted(Limits { connections: 1, ..Limits::default() });
    let first = server.connect();
    first.send("hhh");
    server.settle();
    let second = server.connect();
    assert!(second.is_closed());
    assert_eq!(refused(&server), [("full".to_string(), 1)]);
}
