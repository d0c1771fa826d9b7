//! A client's and a server's link, and a network between them with faults by seed. The server
//! answers each call after a while; the client keeps a few calls in flight.

use leeward_core::units::{CreditId, Nanos, Priority, Time};
use leeward_datagram::header::{HELLO_LEN, Header, Kind, LEN};
use leeward_datagram::{DatagramSize, address_validation::AddressValidation, client, frame, server};
use leeward_testkit::random::Random;
use leeward_wire::{
    Answer, Budget, Call, Encoder, Frame, Kind as FrameKind, Method, Nanos32, PayloadLimit, Register, RequestId,
    Response, Timestamp, Welcome,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Faults of the network, per thousand datagrams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    pub(crate) loss: u64,
    pub(crate) duplication: u64,
    pub(crate) reordering: u64,
}

enum SimEvent {
    AtServer(Vec<u8>),
    AtClient(Vec<u8>),
    Done(u64),
}

/// Both ends, and all datagrams and calls in flight.
pub(crate) struct Harness {
    random: Random,
    faults: Faults,
    now: Time,
    event_queue: BTreeMap<(Time, u64), SimEvent>,
    scheduled: u64,
    address_validation: AddressValidation,
    pub(crate) client: client::Link,
    pub(crate) server: Option<server::Link>,
    /// The client's frames that its link has not taken.
    output: Vec<u8>,
    next: u64,
    /// Calls without an answer.
    pub(crate) open: Vec<u64>,
    pub(crate) answered: Vec<u64>,
    pub(crate) executed: Vec<u64>,
    /// Whether the server forgets an answer now and then: a canary.
    pub(crate) forgets: bool,
    /// Bytes that the server sent to an unvalidated address, minus bytes received from it.
    pub(crate) amplified: i64,
}

fn client_address() -> SocketAddr {
    "192.0.2.7:4000".parse().unwrap()
}

pub(crate) fn encode(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Encoder::new(PayloadLimit::DEFAULT).append(frame, &mut bytes).unwrap();
    bytes
}

pub(crate) fn call(request: u64, payload: &[u8]) -> Vec<u8> {
    encode(&Frame::Call(Call {
        request: RequestId::new(request).unwrap(),
        timestamp: Timestamp(7),
        credit: CreditId::NONE,
        method: Method(1),
        demand: 0,
        budget: Budget::UNLIMITED,
        priority: Priority::HIGHEST,
        payload,
    }))
}

pub(crate) fn register() -> Vec<u8> {
    let payload_max = PayloadLimit::DEFAULT;
    encode(&Frame::Register(Register { timestamp: Timestamp(1), demand: 0, payload_max }))
}

pub(crate) fn response(request: u64) -> Vec<u8> {
    let answer = Answer {
        request: RequestId::new(request).unwrap(),
        timestamp: Timestamp(7),
        feedback: leeward_core::server::Feedback::NONE,
        sojourn: Nanos32::default(),
    };
    encode(&Frame::Response(Response { answer, payload: b"done" }))
}

fn welcome() -> Vec<u8> {
    encode(&Frame::Welcome(Welcome {
        timestamp: Timestamp(1),
        feedback: leeward_core::server::Feedback::NONE,
        payload_max: PayloadLimit::DEFAULT,
        regime: leeward_wire::Regime::Open,
    }))
}

impl Harness {
    pub(crate) fn new(seed: u64, faults: Faults) -> Harness {
        Harness {
            random: Random::new(seed),
            faults,
            now: Time(1),
            event_queue: BTreeMap::new(),
            scheduled: 0,
            address_validation: AddressValidation::new([seed, 2, 3, 4]),
            client: client::Link::new(seed | 1, DatagramSize::DEFAULT, Time(1)),
            server: None,
            output: register(),
            next: 1,
            open: Vec::new(),
            answered: Vec::new(),
            executed: Vec::new(),
            forgets: false,
            amplified: 0,
        }
    }

    fn below(&mut self, below: u64) -> u64 {
        self.random.below(below as usize) as u64
    }

    fn schedule(&mut self, after: Nanos, event: SimEvent) {
        self.scheduled += 1;
        self.event_queue.insert((self.now + after, self.scheduled), event);
    }

    fn transmit(&mut self, sent: Vec<Vec<u8>>, to: fn(Vec<u8>) -> SimEvent) {
        for datagram in sent {
            let copies = 1 + u64::from(self.below(1000) < self.faults.duplication);
            for _ in 0..copies {
                if self.below(1000) < self.faults.loss {
                    continue;
                }
                let max = if self.below(1000) < self.faults.reordering { 3_000_000 } else { 2_000 };
                let after = Nanos(10_000 + self.below(max));
                self.schedule(after, to(datagram.clone()));
            }
        }
    }

    /// Runs until so many calls are answered, the link is lost, or a minute of virtual time has
    /// passed.
    pub(crate) fn run(&mut self, calls: u64, in_flight: usize) {
        while (self.answered.len() as u64) < calls && self.now < Time(60_000_000_000) {
            while self.open.len() < in_flight && self.next <= calls {
                self.output.extend(call(self.next, b"argument"));
                self.open.push(self.next);
                self.next += 1;
            }
            let mut sent = Vec::new();
            let mut out = |datagram: &[u8]| sent.push(datagram.to_vec());
            let taken = self.client.send(self.now, &self.output, &mut out);
            let lost = self.client.on_timer(self.now, &mut out);
            self.client.flush(&mut out);
            self.output.drain(..taken);
            self.transmit(sent, SimEvent::AtServer);
            if lost.is_err() {
                return;
            }
            let timer =
                self.client.next_timeout().min(self.server.as_ref().map_or(Time::NEVER, server::Link::next_timeout));
            let due = self.event_queue.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at);
            self.now = timer.min(due).max(Time(self.now.0 + 1));
            while self.event_queue.first_key_value().is_some_and(|((at, _), _)| *at <= self.now) {
                let Some((_, event)) = self.event_queue.pop_first() else { break };
                self.handle(event);
            }
            self.with_server(|link, now, out| link.flush(now, &mut |datagram: &[u8]| out.push(datagram.to_vec())));
        }
    }

    fn with_server(&mut self, act: impl FnOnce(&mut server::Link, Time, &mut Vec<Vec<u8>>)) {
        let mut sent = Vec::new();
        if let Some(link) = &mut self.server {
            act(link, self.now, &mut sent);
        }
        self.transmit(sent, SimEvent::AtClient);
    }

    fn handle(&mut self, event: SimEvent) {
        match event {
            SimEvent::AtServer(mut datagram) => self.at_server(&mut datagram),
            SimEvent::AtClient(mut datagram) => self.at_client(&mut datagram),
            SimEvent::Done(request) => {
                let answer = response(request);
                self.with_server(|link, now, out| {
                    link.send(now, &answer, &mut |datagram: &[u8]| out.push(datagram.to_vec()));
                });
            }
        }
    }

    fn at_server(&mut self, datagram: &mut [u8]) {
        self.amplified -= datagram.len() as i64;
        let Some((header, _)) = Header::read(datagram) else { return };
        if header.kind == Kind::Hello {
            assert_eq!(datagram.len(), HELLO_LEN);
            if let Some(cookie) = self.address_validation.answer_hello(self.now, client_address(), datagram, 9) {
                self.amplified += cookie.len() as i64;
                self.transmit(vec![cookie.to_vec()], SimEvent::AtClient);
            }
            return;
        }
        assert_eq!(
            header.mark,
            self.address_validation.mark().of(client_address()),
            "the filter would not have let it pass"
        );
        if header.kind == Kind::Open && self.server.is_none() {
            assert!(self.address_validation.validate(self.now, client_address(), &header));
            let key = self.address_validation.key(client_address(), header.key, 5);
            let registers = server::Link::registration(&mut datagram[LEN..], DatagramSize::DEFAULT).is_some();
            assert!(registers);
            self.server =
                Some(server::Link::new(server::SessionId { slot: 3, key, nonce: header.key }, DatagramSize::DEFAULT));
            let welcome = welcome();
            self.with_server(|link, now, out| {
                link.send(now, &welcome, &mut |datagram: &[u8]| out.push(datagram.to_vec()));
            });
            return;
        }
        let forgets = self.forgets && self.below(50) == 0;
        let mut passed_on = None;
        let frame = datagram[LEN..].to_vec();
        self.with_server(|link, now, out| {
            if forgets {
                // The canary: a new link has forgotten the client's calls.
                *link = server::Link::new(*link.id(), DatagramSize::DEFAULT);
            }
            let mut out = |datagram: &[u8]| out.push(datagram.to_vec());
            passed_on = link.receive(now, &header, &frame, true, &mut out).map(<[u8]>::to_vec);
        });
        if let Some(frame) = passed_on
            && frame::kind(&frame) == Some(FrameKind::Call)
        {
            self.executed.push(frame::request(&frame));
            let max = if self.below(50) == 0 { 20_000_000 } else { 20_000 };
            let service = Nanos(self.below(max));
            self.schedule(service, SimEvent::Done(frame::request(&frame)));
        }
    }

    fn at_client(&mut self, datagram: &mut [u8]) {
        let Ok(Some(frame)) = self.client.receive(self.now, datagram) else { return };
        if frame::kind(frame).is_some_and(frame::is_answer) {
            let request = frame::request(frame);
            self.answered.push(request);
            self.open.retain(|open| *open != request);
        }
    }

    /// Number of calls that were executed more than once.
    pub(crate) fn executed_twice(&self) -> usize {
        let mut executed = self.executed.clone();
        executed.sort_unstable();
        executed.windows(2).filter(|two| two[0] == two[1]).count()
    }
}
