//! The server from outside, over real sockets: answers, rejections, and peers that misbehave. No time is asserted; reads
//! give up after a long while only so that a defect fails instead of hanging.

use leeward_control::params::Raw;
use leeward_control::registry::Registry;
use leeward_control::units::{Nanos, Priority};
use leeward_rpc::server::{Failed, Request, Server};
use leeward_rpc::wire::{
    Budget, Call, CreditId, Decoder, Encoder, ErrorCode, FailureCode, Frame, Method, PayloadLimit, Register, RequestId,
    Side, Timestamp,
};
use leeward_runtime::Idle;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// A client that says exactly what it is told to.
struct Peer {
    stream: TcpStream,
    decoder: Decoder,
}

impl Peer {
    fn connect(server: &Server) -> Peer {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Peer { stream, decoder: Decoder::new(Side::Server, PayloadLimit::DEFAULT) }
    }

    fn registered(server: &Server) -> Peer {
        let mut peer = Peer::connect(server);
        peer.say(&register());
        assert!(peer.hear().unwrap().starts_with("Welcome"));
        peer
    }

    fn say(&mut self, frame: &Frame<'_>) {
        self.stream.write_all(&bytes(frame)).unwrap();
    }

    /// The next frame as text; `None` at the end of the stream.
    fn hear(&mut self) -> Option<String> {
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                return Some(format!("{frame:?}"));
            }
            match self.stream.read(self.decoder.spare()) {
                Ok(0) => return None,
                Ok(count) => self.decoder.filled(count),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The next answer, credits skipped.
    fn answer(&mut self) -> Option<String> {
        loop {
            let heard = self.hear()?;
            if !heard.starts_with("Credit") {
                return Some(heard);
            }
        }
    }
}

fn register() -> Frame<'static> {
    Frame::Register(Register { timestamp: Timestamp(1), demand: 0, payload_max: PayloadLimit::DEFAULT })
}

fn call(request: u64, payload: &[u8]) -> Frame<'_> {
    Frame::Call(Call {
        request: RequestId::new(request).unwrap(),
        timestamp: Timestamp(7),
        credit: CreditId::NONE,
        method: Method(1),
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

fn echo(request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), Failed> {
    match request.payload {
        b"no" => Err(Failed::Because("no".into())),
        b"panic" => panic!("as asked"),
        payload => {
            reply.extend_from_slice(payload);
            Ok(())
        }
    }
}

fn start(controller: &str, cores: usize) -> Server {
    let algorithm = Registry::builtin().find(controller).unwrap().clone();
    let params = algorithm.params(&[]).unwrap();
    // An objective so long that a busy machine is no overload.
    let (rtt, slo) = (Nanos::from_micros(10), Nanos::from_secs(10));
    let builder = Server::builder().admission(&algorithm, params).objective(rtt, slo);
    builder.cores(cores).idle(Idle::Block).start("127.0.0.1:0", echo).unwrap()
}

/// Waits until `holds`, as long as it takes.
fn eventually(server: &Server, holds: impl Fn(&Server) -> bool) {
    for _ in 0..20_000 {
        if holds(server) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("never: {:?} {:?}", server.counts(), server.gauges());
}

/// The server still serves.
fn is_well(server: &Server) {
    let mut peer = Peer::registered(server);
    peer.say(&call(1, b"are you well"));
    assert!(peer.answer().unwrap().starts_with("Response"));
}

#[test]
fn every_controller_answers() {
    for algorithm in Registry::builtin().algorithms() {
        for cores in [1, 3] {
            let server = start(algorithm.name, cores);
            let mut peers: Vec<Peer> = (0..5).map(|_| Peer::registered(&server)).collect();
            for request in 1..=20 {
                for peer in &mut peers {
                    peer.say(&call(request, b"hello"));
                    let answer = peer.answer().unwrap();
                    assert!(answer.starts_with("Response") && answer.contains("104, 101"), "{answer}");
                }
            }
            let counts = server.counts();
            assert_eq!((counts.received, counts.completed, counts.dropped), (100, 100, 0), "{}", algorithm.name);
            server.stop().unwrap();
        }
    }
}

#[test]
fn a_call_on_trust_rides_on_the_registration() {
    let server = start("breakwater", 1);
    let mut peer = Peer::connect(&server);
    peer.stream.write_all(&[bytes(&register()), bytes(&call(1, b"x"))].concat()).unwrap();
    assert!(peer.hear().unwrap().starts_with("Welcome"));
    assert!(peer.answer().unwrap().starts_with("Response"));
}

#[test]
fn failures_end_one_request_only() {
    let server = start("none", 1);
    let mut peer = Peer::registered(&server);
    for (payload, code) in [(b"no".as_slice(), FailureCode::Failed), (b"panic", FailureCode::Failed)] {
        peer.say(&call(1, payload));
        let answer = peer.answer().unwrap();
        assert!(answer.starts_with("Failure") && answer.contains(&format!("{code:?}")), "{answer}");
    }
    is_well(&server);
}

#[test]
fn a_byte_at_a_time_is_as_good() {
    let server = start("breakwater", 1);
    let mut peer = Peer::connect(&server);
    for byte in [bytes(&register()), bytes(&call(1, b"slow"))].concat() {
        peer.stream.write_all(&[byte]).unwrap();
    }
    assert!(peer.hear().unwrap().starts_with("Welcome"));
    assert!(peer.answer().unwrap().starts_with("Response"));
}

#[test]
fn nonsense_ends_the_connection_with_the_reason() {
    let server = start("breakwater", 1);
    let mut version = bytes(&register());
    version[2] = 9;
    let mut oversized = bytes(&call(1, b""));
    oversized[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    let twice = [bytes(&call(1, b"a")), bytes(&call(1, b"a"))].concat();
    for (saying, expected) in [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), ErrorCode::Malformed),
        (version, ErrorCode::Version),
        (bytes(&call(1, b"unregistered")), ErrorCode::Unexpected),
        ([bytes(&register()), oversized].concat(), ErrorCode::TooLarge),
        ([bytes(&register()), bytes(&register())].concat(), ErrorCode::Unexpected),
        ([bytes(&register()), twice].concat(), ErrorCode::DuplicateRequest),
    ] {
        let mut peer = Peer::connect(&server);
        peer.stream.write_all(&saying).unwrap();
        let heard: Vec<String> = std::iter::from_fn(|| peer.hear()).collect();
        let last = heard.last().unwrap();
        assert!(last.starts_with("Error") && last.contains(&format!("{expected:?}")), "{expected:?}: {heard:?}");
    }
    eventually(&server, |server| server.counts().connections == 0 && server.gauges().credits_issued == Some(0));
    is_well(&server);
}

#[test]
fn credit_comes_back_from_every_end() {
    let server = start("breakwater", 2);
    let mut peers: Vec<Peer> = (0..40).map(|_| Peer::registered(&server)).collect();
    for (index, peer) in peers.iter_mut().enumerate() {
        peer.say(&call(1, b"x"));
        match index % 4 {
            0 => assert!(peer.answer().is_some()),
            1 => peer.stream.shutdown(Shutdown::Write).unwrap(),
            2 => peer.say(&Frame::Deregister),
            // Ends in the middle of a frame.
            _ => peer.stream.write_all(&bytes(&call(2, b"half"))[..30]).unwrap(),
        }
    }
    drop(peers);
    eventually(&server, |server| server.counts().connections == 0);
    let gauges = server.gauges();
    assert_eq!((gauges.credits_issued, gauges.sessions), (Some(0), Some(0)));
    let counts = server.counts();
    assert_eq!(counts.received, counts.completed + counts.dropped + counts.abandoned, "{counts:?}");
    is_well(&server);
}

#[test]
fn a_peer_that_never_reads_costs_no_one_else() {
    let server = Server::builder()
        .idle(Idle::Block)
        .patience(Nanos::from_secs(300), Nanos::from_millis(200))
        .start("127.0.0.1:0", |_: &Request<'_>, reply: &mut Vec<u8>| {
            reply.resize(100_000, 1);
            Ok(())
        })
        .unwrap();
    let mut deaf = Peer::registered(&server);
    deaf.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    for request in 1..=2_000 {
        // At some point the server stops reading it, and then ends it.
        if deaf.stream.write_all(&bytes(&call(request, b""))).is_err() {
            break;
        }
    }
    is_well(&server);
    eventually(&server, |server| server.counts().connections <= 1);
    is_well(&server);
}

#[test]
fn more_connections_than_the_limit_are_told_so() {
    let server = Server::builder().idle(Idle::Block).connection_limit(2).start("127.0.0.1:0", echo).unwrap();
    let _first = Peer::registered(&server);
    let _second = Peer::registered(&server);
    let mut third = Peer::connect(&server);
    let heard = third.hear().unwrap();
    assert!(heard.contains("ConnectionLimit"), "{heard}");
    assert_eq!(third.hear(), None);
}

#[test]
fn a_stop_answers_what_is_owed_and_says_goodbye() {
    let server = Server::builder()
        .idle(Idle::Block)
        .start("127.0.0.1:0", |_: &Request<'_>, reply: &mut Vec<u8>| {
            std::thread::sleep(Duration::from_millis(200));
            reply.push(1);
            Ok(())
        })
        .unwrap();
    let mut peer = Peer::registered(&server);
    peer.say(&call(1, b""));
    eventually(&server, |server| server.counts().received == 1);
    server.stop().unwrap();
    assert!(peer.answer().unwrap().starts_with("Response"));
    assert!(peer.answer().unwrap().contains("ShuttingDown"));
    assert_eq!(peer.answer(), None);
}

#[test]
fn an_address_in_use_is_an_error() {
    let server = start("none", 1);
    let again = Server::builder().start(&server.address().to_string(), echo);
    let error = again.err().unwrap().to_string();
    assert!(error.contains(&server.address().to_string()), "{error}");
    for nonsense in ["", "nowhere", "127.0.0.1", "127.0.0.1:99999"] {
        assert!(Server::builder().start(nonsense, echo).is_err(), "{nonsense}");
    }
}

#[test]
fn drops_are_answered_too() {
    let algorithm = Registry::builtin().find("gradient").unwrap().clone();
    let params = algorithm.params(&[("min_limit", Raw::Integer(1)), ("max_limit", Raw::Integer(1))]).unwrap();
    let server = Server::builder()
        .admission(&algorithm, params)
        .idle(Idle::Block)
        .start("127.0.0.1:0", |_: &Request<'_>, _: &mut Vec<u8>| {
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        })
        .unwrap();
    let mut peer = Peer::registered(&server);
    let burst: Vec<u8> = (1..=30).flat_map(|request| bytes(&call(request, b""))).collect();
    peer.stream.write_all(&burst).unwrap();
    let answers: Vec<String> = (0..30).filter_map(|_| peer.answer()).collect();
    let dropped = answers.iter().filter(|answer| answer.starts_with("Drop") && answer.contains("Concurrency")).count();
    assert!(dropped > 0 && answers.iter().any(|answer| answer.starts_with("Response")), "{answers:?}");
    assert_eq!(server.counts().dropped, dropped as u64);
}

#[test]
fn sleeping_cores_still_hand_out_credit() {
    let algorithm = Registry::builtin().find("breakwater").unwrap().clone();
    let params = algorithm.params(&[]).unwrap();
    let server = Server::builder().admission(&algorithm, params).idle(Idle::Block).start("127.0.0.1:0", echo).unwrap();
    // More sessions than the pool begins with, and none of them says anything.
    let mut peers: Vec<Peer> = (0..30).map(|_| Peer::registered(&server)).collect();
    for peer in &mut peers {
        assert!(peer.hear().unwrap().starts_with("Credit"));
    }
}
