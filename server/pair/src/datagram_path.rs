//! A connection's datagrams in virtual time: both ends' links, and a network that loses, duplicates
//! and delays datagrams. A link's frames are appended to the connection's streams, from which both
//! ends read them as usual.

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

/// A pair's server has one port.
const PORT: u16 = 7;

/// Both ends' links and the network between them.
pub(super) struct DatagramPath {
    link: usize,
    pub(super) client: client::Link,
    server: Option<server::Link>,
    /// Whether the server has had a session with this client. There is at most one.
    had_session: bool,
    address_validation: AddressValidation,
    model: WireModel,
    faults: Faults,
    /// Datagrams in flight to the server and to the client, with their arrival times.
    up: Vec<(Time, Vec<u8>)>,
    down: Vec<(Time, Vec<u8>)>,
    /// Time of the next timer event of the server's link.
    timer: Time,
    pub(super) is_cut: bool,
    /// The client has closed its end. Without a session, the server closes its end at the next
    /// scan.
    client_closed: bool,
    /// The server forgets its answers once in so many calls: a canary. 0: never.
    pub(super) forget_one_in: u64,
}

/// Outcome of a datagram at the server.
pub(super) enum DatagramOutcome {
    /// Nothing for the session.
    Ignored,
    /// A frame for the session.
    Frame(Vec<u8>),
    /// The client has gone.
    ClientGone,
}

impl DatagramPath {
    pub(super) fn new(link: usize, model: WireModel, faults: Faults, now: Time, random: &mut Rng) -> Self {
        DatagramPath {
            link,
            client: client::Link::new(random.bits(), DatagramSize::DEFAULT, now),
            server: None,
            had_session: false,
            address_validation: AddressValidation::new(std::array::from_fn(|_| random.bits())),
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

    /// Sends datagrams, some of them twice, late, or never.
    fn transmit(&mut self, to: Endpoint, sent: Vec<Vec<u8>>, now: Time, queue: &mut EventQueue, random: &mut Rng) {
        for datagram in sent {
            debug_assert!(datagram.len() <= DatagramSize::DEFAULT.bytes());
            let copies = 1 + u64::from(random.below(1000) < self.faults.duplication);
            for _ in 0..copies {
                if self.is_cut || random.below(1000) < self.faults.loss {
                    continue;
                }
                let extra = if random.below(1000) < self.faults.reordering {
                    random.below(self.faults.extra_delay_max.0 + 1)
                } else {
                    0
                };
                let at = Time((now + self.model.delay).0 + random.below(self.model.jitter.0 + 1) + extra);
                let way = if to == Endpoint::Server { &mut self.up } else { &mut self.down };
                way.push((at, datagram.clone()));
                queue.schedule(at, SimEvent::Arrive(self.link, to));
            }
        }
    }

    /// Takes the datagrams that have arrived by now, in the order of their arrival.
    fn deliver_due(&mut self, to: Endpoint, now: Time, queue: &mut EventQueue) -> Vec<Vec<u8>> {
        let way = if to == Endpoint::Server { &mut self.up } else { &mut self.down };
        let (mut here, there): (Vec<_>, Vec<_>) = way.drain(..).partition(|(at, _)| *at <= now);
        *way = there;
        here.sort_by_key(|(at, _)| *at);
        here.iter().for_each(|(_, datagram)| queue.trace().bytes(datagram));
        here.into_iter().map(|(_, datagram)| datagram).collect()
    }

    // ---- the client's end ----

    /// The client sends these bytes. Returns how many were sent.
    pub(super) fn client_send(&mut self, bytes: &[u8], now: Time, queue: &mut EventQueue, random: &mut Rng) -> usize {
        let mut sent = Vec::new();
        let taken = self.client.send(now, bytes, &mut |datagram: &[u8]| sent.push(datagram.to_vec()));
        self.transmit(Endpoint::Server, sent, now, queue, random);
        taken
    }

    /// Ends the client's poll.
    ///
    /// # Errors
    /// The server is gone.
    pub(super) fn client_flush(
        &mut self,
        now: Time,
        queue: &mut EventQueue,
        random: &mut Rng,
    ) -> Result<(), LinkError> {
        let mut sent = Vec::new();
        let mut out = |datagram: &[u8]| sent.push(datagram.to_vec());
        let done = if self.client.next_timeout() <= now { self.client.on_timer(now, &mut out) } else { Ok(()) };
        self.client.flush(&mut out);
        self.transmit(Endpoint::Server, sent, now, queue, random);
        done
    }

    /// The client closes its end.
    pub(super) fn client_close(&mut self, now: Time, queue: &mut EventQueue, random: &mut Rng) {
        self.client_closed = true;
        let mut sent = Vec::new();
        self.client.close(&mut |datagram: &[u8]| sent.push(datagram.to_vec()));
        self.transmit(Endpoint::Server, sent, now, queue, random);
    }

    /// Takes the frames that have arrived at the client.
    ///
    /// # Errors
    /// The server has ended the session.
    pub(super) fn client_receive(&mut self, now: Time, queue: &mut EventQueue) -> (Vec<u8>, Result<(), LinkError>) {
        let mut frames = Vec::new();
        for mut datagram in self.deliver_due(Endpoint::Client, now, queue) {
            match self.client.receive(now, &mut datagram) {
                Ok(frame) => frames.extend_from_slice(frame.unwrap_or_default()),
                Err(lost) => return (frames, Err(lost)),
            }
        }
        (frames, Ok(()))
    }

    // ---- the server's end ----

    /// Takes the datagrams that have arrived at the server.
    pub(super) fn arrivals_at_server(&mut self, now: Time, queue: &mut EventQueue) -> Vec<Vec<u8>> {
        self.deliver_due(Endpoint::Server, now, queue)
    }

    /// Handles a datagram at the server. The server has the session if it `is_open`, and takes a
    /// frame if it `may`.
    pub(super) fn server_receive(
        &mut self,
        datagram: &mut [u8],
        (is_open, may): (bool, bool),
        now: Time,
        queue: &mut EventQueue,
        random: &mut Rng,
    ) -> DatagramOutcome {
        let mut sent = Vec::new();
        let outcome = self.handle_datagram(datagram, (is_open, may), now, random, &mut sent);
        self.transmit(Endpoint::Client, sent, now, queue, random);
        outcome
    }

    fn handle_datagram(
        &mut self,
        datagram: &mut [u8],
        (is_open, may): (bool, bool),
        now: Time,
        random: &mut Rng,
        sent: &mut Vec<Vec<u8>>,
    ) -> DatagramOutcome {
        let from = self.address();
        let Some((header, _)) = Header::read(datagram) else { return DatagramOutcome::Ignored };
        if let Some(cookie) = self.address_validation.answer_hello(now, from, datagram, PORT) {
            sent.push(cookie.to_vec());
            return DatagramOutcome::Ignored;
        }
        let frame = &mut datagram[LEN..];
        if header.kind == Kind::Open && !self.had_session && is_open {
            let is_valid = self.address_validation.validate(now, from, &header)
                && server::Link::registration(frame, DatagramSize::DEFAULT).is_some();
            if !is_valid {
                return DatagramOutcome::Ignored;
            }
            self.had_session = true;
            let key = self.address_validation.key(from, header.key, random.bits());
            self.server = Some(server::Link::new(
                SessionId { slot: self.link as u32, key, nonce: header.key },
                DatagramSize::DEFAULT,
            ));
            return if may { DatagramOutcome::Frame(frame.to_vec()) } else { DatagramOutcome::Ignored };
        }
        let Some(link) = &mut self.server else {
            sent.extend(server::Link::close_reply(&header).map(|close| close.to_vec()));
            return DatagramOutcome::Ignored;
        };
        if header.kind != Kind::Open && header.key != link.id().key {
            return DatagramOutcome::Ignored;
        }
        if header.kind == Kind::Close {
            return DatagramOutcome::ClientGone;
        }
        if self.forget_one_in > 0 && header.kind == Kind::Call && random.one_in(self.forget_one_in) {
            *link = server::Link::new(*link.id(), DatagramSize::DEFAULT);
        }
        let mut out = |datagram: &[u8]| sent.push(datagram.to_vec());
        link.receive(now, &header, frame, may, &mut out)
            .map_or(DatagramOutcome::Ignored, |frame| DatagramOutcome::Frame(frame.to_vec()))
    }

    /// Sends these bytes of the server's session, and everything that the link has due. Returns how
    /// many bytes were sent: all, once a session exists.
    pub(super) fn server_send(&mut self, bytes: &[u8], now: Time, queue: &mut EventQueue, random: &mut Rng) -> usize {
        let Some(link) = &mut self.server else { return if self.had_session { bytes.len() } else { 0 } };
        let mut sent = Vec::new();
        let mut out = |datagram: &[u8]| sent.push(datagram.to_vec());
        let taken = link.send(now, bytes, &mut out);
        link.flush(now, &mut out);
        let due = link.next_timeout();
        self.transmit(Endpoint::Client, sent, now, queue, random);
        if due < self.timer {
            self.timer = due;
            queue.schedule(due.max(Time(now.0 + 1)), SimEvent::DatagramTimer(self.link));
        }
        taken
    }

    /// Handles the server's timer.
    pub(super) fn on_timer(&mut self, now: Time, queue: &mut EventQueue, random: &mut Rng) {
        self.timer = Time::NEVER;
        self.server_send(&[], now, queue, random);
    }

    /// Returns whether the client is gone; probes the client after a `silence` of more than 5 s.
    pub(super) fn scan(&mut self, silence: Nanos, now: Time, queue: &mut EventQueue, random: &mut Rng) -> bool {
        let Some(link) = &mut self.server else { return self.client_closed };
        let mut sent = Vec::new();
        if silence > Nanos::from_secs(5) {
            link.probe(now, &mut |datagram: &[u8]| sent.push(datagram.to_vec()));
        }
        let is_gone = link.is_timed_out(now);
        self.transmit(Endpoint::Client, sent, now, queue, random);
        self.server_send(&[], now, queue, random);
        is_gone
    }

    /// Ends the server's session: the client gets a close now, and again for each later datagram.
    pub(super) fn server_close(&mut self, now: Time, queue: &mut EventQueue, random: &mut Rng) {
        self.had_session = true;
        if let Some(link) = self.server.take() {
            let SessionId { slot, key, .. } = *link.id();
            let close = Header { slot, key, ..Header::of(Kind::Close) }.bytes().to_vec();
            self.transmit(Endpoint::Client, vec![close], now, queue, random);
        }
    }
}
