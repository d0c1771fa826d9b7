//! Shared parts of tests over real sockets: a client with scripted messages, servers, and
//! invariants after all clients have left.
//!
//! No test asserts a time; time limits are long, and only turn a hang into a failure.

#![allow(dead_code, reason = "each test file uses a part of it")]

use crate::serve::Serve;
use leeward_allocation as allocation;
use leeward_core::params::RawParam;
use leeward_core::units::Nanos;
pub(crate) use leeward_pair::frames::{call, encode, register};
use leeward_rpc::server::{Builder, HandlerError, IoUring, Request, Server};
use leeward_rpc::wire::{Decoder, Frame, PayloadLimit, Regime, Side};
use leeward_runtime::IdlePolicy;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A client with scripted messages.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    decoder: Decoder,
    /// The server's last reported window.
    window: u32,
    binds: bool,
}

impl Peer {
    pub(crate) fn connect(server: &Server) -> Peer {
        Peer::over(TcpStream::connect(server.address()).unwrap())
    }

    pub(crate) fn over(stream: TcpStream) -> Peer {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Peer { stream, decoder: Decoder::new(Side::Server, PayloadLimit::DEFAULT), window: 1, binds: true }
    }

    pub(crate) fn registered(server: &Server) -> Peer {
        let mut peer = Peer::connect(server);
        peer.send(&register());
        assert!(peer.receive().unwrap().starts_with("Welcome"));
        peer
    }

    pub(crate) fn send(&mut self, frame: &Frame<'_>) {
        self.stream.write_all(&encode(frame)).unwrap();
    }

    /// Whether there is credit for a call, with no other call unanswered.
    pub(crate) fn may_call(&self) -> bool {
        !self.binds || self.window > 0
    }

    /// Sends a call as soon as there is credit for it, with no other call unanswered, and returns
    /// its response.
    pub(crate) fn ask(&mut self, request: u64, payload: &[u8]) -> String {
        while !self.may_call() {
            self.receive().unwrap();
        }
        self.send(&call(request, payload));
        self.answer().unwrap()
    }

    /// The next frame as text; `None` at the end of the stream.
    pub(crate) fn receive(&mut self) -> Option<String> {
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                match &frame {
                    Frame::Welcome(welcome) => {
                        self.binds = welcome.regime == Regime::Credits;
                        self.window = welcome.feedback.window.0;
                    }
                    Frame::Credit(credit) => self.window = credit.feedback.window.0,
                    Frame::Response(response) => self.window = response.answer.feedback.window.0,
                    Frame::Drop(dropped) => self.window = dropped.answer.feedback.window.0,
                    Frame::Failure(failure) => self.window = failure.answer.feedback.window.0,
                    _ => {}
                }
                return Some(format!("{frame:?}"));
            }
            match self.stream.read(self.decoder.spare()) {
                Ok(0) => return None,
                Ok(count) => self.decoder.advance(count),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                // A system that suspends this process for a while interrupts waits with a limit.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The next response, after skipped credits and pongs.
    pub(crate) fn answer(&mut self) -> Option<String> {
        loop {
            let received = self.receive()?;
            if !received.starts_with("Credit") && !received.starts_with("Pong") {
                return Some(received);
            }
        }
    }
}

pub(crate) fn echo(request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), HandlerError> {
    match request.payload {
        b"no" => Err(HandlerError::Message("no".into())),
        b"panic" => panic!("as asked"),
        payload => {
            reply.extend_from_slice(payload);
            Ok(())
        }
    }
}

pub(crate) fn start(controller: &str, cores: usize) -> Server {
    builder(controller, cores).serve(echo).unwrap()
}

/// Builder of a server, for further settings.
pub(crate) fn builder(controller: &str, cores: usize) -> Builder {
    let algorithm = leeward_controllers::builtin().find(controller).unwrap().clone();
    let params = algorithm.params(&[]).unwrap();
    // An objective so long that a busy machine is no overload.
    let (rtt, slo) = (Nanos::from_micros(10), Nanos::from_secs(10));
    // `make test` runs the same faults again with one system call per socket, as on a kernel
    // without io_uring.
    let is_off = std::env::var_os("LEEWARD_TEST_IO_URING").is_some_and(|value| value == "off");
    let io_uring = if is_off { IoUring::Off } else { IoUring::Auto };
    let builder = Server::builder().admission(&algorithm, params).objective(rtt, slo).io_uring(io_uring);
    let builder = builder.cores(cores).idle(IdlePolicy::Block);
    // `make test` also runs them with cores that come and go.
    match std::env::var("LEEWARD_TEST_ALLOCATOR") {
        Ok(name) => allocated(builder, &name, &[]),
        Err(_) => builder,
    }
}

/// Adds an allocator, so that cores come and go, at least one.
pub(crate) fn allocated(builder: Builder, policy: &str, params: &[(&str, &str)]) -> Builder {
    let policy = allocation::registry::find(policy).unwrap();
    let pairs: Vec<(&str, RawParam)> =
        params.iter().map(|(name, value)| (*name, RawParam::Text((*value).into()))).collect();
    builder.allocator(policy, policy.params(&pairs).unwrap(), 1)
}

/// Waits until nothing is left of the clients, and checks that each request has had one outcome.
pub(crate) fn is_settled(server: &Server) {
    eventually(server, |server| {
        let (counts, gauges) = (server.counts(), server.gauges());
        counts.connections == 0 && gauges.credits_issued.unwrap_or(0) == 0 && gauges.sessions.unwrap_or(0) == 0
    });
    let counts = server.counts();
    assert_eq!(counts.received, counts.completed + counts.rejected + counts.abandoned, "{counts:?}");
}

/// Waits until `holds`, as long as it takes.
pub(crate) fn eventually(server: &Server, holds: impl Fn(&Server) -> bool) {
    for _ in 0..20_000 {
        if holds(server) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("never: {:?} {:?}", server.counts(), server.gauges());
}

/// Checks that the server still serves. It may reject while other tests keep the machine busy: that
/// is a delay like any other.
pub(crate) fn is_well(server: &Server) {
    let mut peer = Peer::registered(server);
    let answers = (1..1_000).map(|request| {
        peer.send(&call(request, b"are you well"));
        let answer = peer.answer().unwrap();
        assert!(answer.starts_with("Response") || answer.starts_with("Drop"), "{answer}");
        answer
    });
    assert!(answers.into_iter().any(|answer| answer.starts_with("Response")), "it refuses everything");
}
