//! A connection's datagrams in virtual time: both ends' links, and a network between them that loses, doubles and delays. The
//! frames that a link hands on land in the connection's streams, from where both ends read them as ever.

use super::config::{Faults, WireModel};
use super::event_queue::{Endpoint, EventQueue, SimEvent};
use super::rng::Rng;
use leeward_core::units::{Nanos, Time};
use leeward_datagram::DatagramSize;
use leeward_datagram::address_validation::AddressValidation;
use leeward_datagram::client::{self, LinkError};
use leeward_datagram::header::{Header, Kind, LEN};
use leeward_datagram::server::{self, SessionId};
use std::net::{Ipv4Addr, SocketAddr};

/// A server of a pair has one port.
const PORT: u16 = 7;

/// Both ends' links and what is between them.
pub(super) struct DatagramPath {
    link: usize,
    pub(super) client: client::Link,
    server: Option<server::Link>,
    /// Whether the server has had a session with this client; it has no other.
    had_session: bool,
    address_validation: AddressValidation,
    model: WireModel,
    faults: Faults,
    /// Datagrams on their way to the server and to the client, with the moments of their arrival.
    up: Vec<(Time, Vec<u8>)>,
    down: Vec<(Time, Vec<u8>)>,
    /// When the server's link is looked at by itself.
    timer: Time,
    pub(super) is_cut: bool,
    /// The client has closed its end: one that never had a session is heard of no more.
    client_closed: bool,
    /// How often the server forgets, now and then, what it has answered: a canary.
    pub(super) forget_one_in: u64,
}

/// Fate of a datagram at the server.
pub(super) enum DatagramOutcome {
    /// Nothing that the session hears of.
    Ignored,
    /// A frame for the session.
    Frame(Vec<u8>),
    /// The client has gone.
    ClientGone,
}

impl DatagramPath {
    pub(super) fn new(link: usize, model: WireModel, faults: Faults, now: Time, chance: &mut Rng) -> Self {
        DatagramPath {
            link,
            client: client::Link::new(chance.bits(), DatagramSize::DEFAULT, now),
            server: None,
            had_session: false,
            address_validation: AddressValidation::new(std::array::from_fn(|_| chance.bits())),
            model,
            faults,
            up: Vec::new(),
            down: Vec::new(),
            timer: Time::NEVER,
            is_cut: false,
            client_closed: false,
            forget_one_in: 0,
        }
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 1024 + self.link as u16))
    }

    /// Lets datagrams fly, some of them twice, late, or never.
    fn transmit(&mut self, to: Endpoint, sent: Vec<Vec<u8>>, now: Time, agenda: &mut EventQueue, chance: &mut Rng) {
        for datagram in sent {
            debug_assert!(datagram.len() <= DatagramSize::DEFAULT.bytes());
            let copies = 1 + u64::from(chance.below(1000) < self.faults.duplication);
            for _ in 0..copies {
                if self.is_cut || chance.below(1000) < self.faults.loss {
                    continue;
                }
                let late = if chance.below(1000) < self.faults.reordering {
                    chance.below(self.faults.extra_delay_max.0 + 1)
                } else {
                    0
                };
                let at = Time((now + self.model.delay).0 + chance.below(self.model.jitter.0 + 1) + late);
                let way = if to == Endpoint::Server { &mut self.up } else { &mut self.down };
                way.push((at, datagram.clone()));
                agenda.schedule(at, SimEvent::Arrive(self.link, to));
            }
        }
    }

    /// The datagrams that have arrived by now, in the order of their arrival.
    fn deliver_due(&mut self, to: Endpoint, now: Time, agenda: &mut EventQueue) -> Vec<Vec<u8>> {
        let way = if to == Endpoint::Server { &mut self.up } else { &mut self.down };
        let (mut here, there): (Vec<_>, Vec<_>) = way.drain(..).partition(|(at, _)| *at <= now);
        *way = there;
        here.sort_by_key(|(at, _)| *at);
        here.iter().for_each(|(_, datagram)| agenda.trace().bytes(datagram));
        here.into_iter().map(|(_, datagram)| datagram).collect()
    }

    // ---- the client's end ----

    /// The client says these bytes. How many of them have left.
    pub(super) fn client_send(&mut self, bytes: &[u8], now: Time, agenda: &mut EventQueue, chance: &mut Rng) -> usize {
        let mut sent = Vec::new();
        let taken = self.client.send(now, bytes, &mut |datagram: &[u8]| sent.push(datagram.to_vec()));
        self.transmit(Endpoint::Server, sent, now, agenda, chance);
        taken
    }

    /// Ends the client's turn.
    ///
    /// # Errors
    /// The server is gone.
    pub(super) fn client_flush(
        &mut self,
        now: Time,
        agenda: &mut EventQueue,
        chance: &mut Rng,
    ) -> Result<(), LinkError> {
        let mut sent = Vec::new();
        let mut out = |datagram: &[u8]| sent.push(datagram.to_vec());
        let done = if self.client.next_timeout() <= now { self.client.on_timer(now, &mut out) } else { Ok(()) };
        self.client.flush(&mut out);
        self.transmit(Endpoint::Server, sent, now, agenda, chance);
        done
    }

    /// The client has closed its end.
    pub(super) fn client_close(&mut self, now: Time, agenda: &mut EventQueue, chance: &mut Rng) {
        self.client_closed = true;
        let mut sent = Vec::new();
        self.client.close(&mut |datagram: &[u8]| sent.push(datagram.to_vec()));
        self.transmit(Endpoint::Server, sent, now, agenda, chance);
    }

    /// The frames that have come to the client.
    ///
    /// # Errors
    /// The server has ended the session.
    pub(super) fn client_receive(&mut self, now: Time, agenda: &mut EventQueue) -> (Vec<u8>, Result<(), LinkError>) {
        let mut frames = Vec::new();
        for mut datagram in self.deliver_due(Endpoint::Client, now, agenda) {
            match self.client.receive(now, &mut datagram) {
                Ok(frame) => frames.extend_from_slice(frame.unwrap_or_default()),
                Err(lost) => return (frames, Err(lost)),
            }
        }
        (frames, Ok(()))
    }

    // ---- the server's end ----

    /// Datagrams that have come to the server, one by one.
    pub(super) fn arrivals_at_server(&mut self, now: Time, agenda: &mut EventQueue) -> Vec<Vec<u8>> {
        self.deliver_due(Endpoint::Server, now, agenda)
    }

    /// The server takes a datagram. It has the session if it `is_open`, which `may` take a frame.
    pub(super) fn server_receive(
        &mut self,
        datagram: &mut [u8],
        (is_open, may): (bool, bool),
        now: Time,
        agenda: &mut EventQueue,
        chance: &mut Rng,
    ) -> DatagramOutcome {
        let mut sent = Vec::new();
        let came = self.handle_datagram(datagram, (is_open, may), now, chance, &mut sent);
        self.transmit(Endpoint::Client, sent, now, agenda, chance);
        came
    }

    fn handle_datagram(
        &mut self,
        datagram: &mut [u8],
        (is_open, may): (bool, bool),
        now: Time,
        chance: &mut Rng,
        sent: &mut Vec<Vec<u8>>,
    ) -> DatagramOutcome {
        let from = self.address();
        let Some((header, _)) = Header::read(datagram) else { return DatagramOutcome::Ignored };
        if let Some(cookie) = self.address_validation.answer_hello(now, from, datagram, PORT) {
            sent.push(cookie.to_vec());
            return DatagramOutcome::Ignored;
        }
        let said = &mut datagram[LEN..];
        if header.kind == Kind::Open && !self.had_session && is_open {
            let registers = self.address_validation.validate(now, from, &header)
                && server::Link::registration(said, DatagramSize::DEFAULT).is_some();
            if !registers {
                return DatagramOutcome::Ignored;
            }
            self.had_session = true;
            let key = self.address_validation.key(from, header.key, chance.bits());
            self.server = Some(server::Link::new(
                SessionId { slot: self.link as u32, key, nonce: header.key },
                DatagramSize::DEFAULT,
            ));
            return if may { DatagramOutcome::Frame(said.to_vec()) } else { DatagramOutcome::Ignored };
        }
        let Some(link) = &mut self.server else {
            sent.extend(server::Link::close_reply(&header).map(|over| over.to_vec()));
            return DatagramOutcome::Ignored;
        };
        if header.kind != Kind::Open && header.key != link.id().key {
            return DatagramOutcome::Ignored;
        }
        if header.kind == Kind::Close {
            return DatagramOutcome::ClientGone;
        }
        if self.forget_one_in > 0 && header.kind == Kind::Call && chance.one_in(self.forget_one_in) {
            *link = server::Link::new(*link.id(), DatagramSize::DEFAULT);
        }
        let mut out = |datagram: &[u8]| sent.push(datagram.to_vec());
        link.receive(now, &header, said, may, &mut out)
            .map_or(DatagramOutcome::Ignored, |frame| DatagramOutcome::Frame(frame.to_vec()))
    }

    /// The server's session says these bytes, and the link all that is due. How many have left: all, once there is a session.
    pub(super) fn server_send(&mut self, bytes: &[u8], now: Time, agenda: &mut EventQueue, chance: &mut Rng) -> usize {
        let Some(link) = &mut self.server else { return if self.had_session { bytes.len() } else { 0 } };
        let mut sent = Vec::new();
        let mut out = |datagram: &[u8]| sent.push(datagram.to_vec());
        let taken = link.send(now, bytes, &mut out);
        link.flush(now, &mut out);
        let due = link.next_timeout();
        self.transmit(Endpoint::Client, sent, now, agenda, chance);
        if due < self.timer {
            self.timer = due;
            agenda.schedule(due.max(Time(now.0 + 1)), SimEvent::DatagramTimer(self.link));
        }
        taken
    }

    /// The server's timer goes off.
    pub(super) fn on_timer(&mut self, now: Time, agenda: &mut EventQueue, chance: &mut Rng) {
        self.timer = Time::NEVER;
        self.server_send(&[], now, agenda, chance);
    }

    /// Looks whether the client is gone, and asks it for a sign of life if it has been silent for `silence`.
    pub(super) fn scan(&mut self, silence: Nanos, now: Time, agenda: &mut EventQueue, chance: &mut Rng) -> bool {
        let Some(link) = &mut self.server else { return self.client_closed };
        let mut sent = Vec::new();
        if silence > Nanos::from_secs(5) {
            link.probe(now, &mut |datagram: &[u8]| sent.push(datagram.to_vec()));
        }
        let is_gone = link.is_timed_out(now);
        self.transmit(Endpoint::Client, sent, now, agenda, chance);
        self.server_send(&[], now, agenda, chance);
        is_gone
    }

    /// The server's session has ended: its client is told, now and whenever it asks.
    pub(super) fn server_close(&mut self, now: Time, agenda: &mut EventQueue, chance: &mut Rng) {
        self.had_session = true;
        if let Some(link) = self.server.take() {
            let SessionId { slot, key, .. } = *link.id();
            let over = Header { slot, key, ..Header::of(Kind::Close) }.bytes().to_vec();
            self.transmit(Endpoint::Client, vec![over], now, agenda, chance);
        }
    }
}
