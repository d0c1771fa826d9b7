//! A connection's datagrams in virtual time: both ends' links, and a network between them that loses, doubles and delays. The
//! frames that a link hands on land in the connection's streams, from where both ends read them as ever.

use super::agenda::{Agenda, End, Happening};
use super::chance::Chance;
use super::config::{Faults, WireModel};
use leeward_core::units::{Nanos, Time};
use leeward_datagram::DatagramSize;
use leeward_datagram::client::{self, Lost};
use leeward_datagram::door::Door;
use leeward_datagram::header::{Header, Kind, LEN};
use leeward_datagram::server::{self, Name};
use std::net::{Ipv4Addr, SocketAddr};

/// A server of a pair has one port.
const PORT: u16 = 7;

/// Both ends' links and what is between them.
pub(super) struct Far {
    link: usize,
    pub(super) client: client::Link,
    server: Option<server::Link>,
    /// Whether the server has had a session with this client; it has no other.
    had_session: bool,
    door: Door,
    model: WireModel,
    faults: Faults,
    /// Datagrams on their way to the server and to the client, with the moments of their arrival.
    up: Vec<(Time, Vec<u8>)>,
    down: Vec<(Time, Vec<u8>)>,
    /// When the server's link is looked at by itself.
    timer: Time,
    pub(super) is_cut: bool,
    /// The client has closed its end: one that never had a session is heard of no more.
    is_left: bool,
    /// How often the server forgets, now and then, what it has answered: a canary.
    pub(super) forgets: u64,
}

/// Fate of a datagram at the server.
pub(super) enum Came {
    /// Nothing that the session hears of.
    Nothing,
    /// A frame for the session.
    Frame(Vec<u8>),
    /// The client has gone.
    Gone,
}

impl Far {
    pub(super) fn new(link: usize, model: WireModel, faults: Faults, now: Time, chance: &mut Chance) -> Self {
        Far {
            link,
            client: client::Link::new(chance.bits(), DatagramSize::DEFAULT, now),
            server: None,
            had_session: false,
            door: Door::new(std::array::from_fn(|_| chance.bits())),
            model,
            faults,
            up: Vec::new(),
            down: Vec::new(),
            timer: Time::NEVER,
            is_cut: false,
            is_left: false,
            forgets: 0,
        }
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 1024 + self.link as u16))
    }

    /// Lets datagrams fly, some of them twice, late, or never.
    fn fly(&mut self, to: End, sent: Vec<Vec<u8>>, now: Time, agenda: &mut Agenda, chance: &mut Chance) {
        for datagram in sent {
            debug_assert!(datagram.len() <= DatagramSize::DEFAULT.bytes());
            let copies = 1 + u64::from(chance.below(1000) < self.faults.doubled);
            for _ in 0..copies {
                if self.is_cut || chance.below(1000) < self.faults.lost {
                    continue;
                }
                let late =
                    if chance.below(1000) < self.faults.late { chance.below(self.faults.lateness.0 + 1) } else { 0 };
                let at = Time((now + self.model.delay).0 + chance.below(self.model.jitter.0 + 1) + late);
                let way = if to == End::Server { &mut self.up } else { &mut self.down };
                way.push((at, datagram.clone()));
                agenda.schedule(at, Happening::Arrive(self.link, to));
            }
        }
    }

    /// The datagrams that have arrived by now, in the order of their arrival.
    fn land(&mut self, to: End, now: Time, agenda: &mut Agenda) -> Vec<Vec<u8>> {
        let way = if to == End::Server { &mut self.up } else { &mut self.down };
        let (mut here, there): (Vec<_>, Vec<_>) = way.drain(..).partition(|(at, _)| *at <= now);
        *way = there;
        here.sort_by_key(|(at, _)| *at);
        here.iter().for_each(|(_, datagram)| agenda.trace().bytes(datagram));
        here.into_iter().map(|(_, datagram)| datagram).collect()
    }

    // ---- the client's end ----

    /// The client says these bytes. How many of them have left.
    pub(super) fn client_says(&mut self, bytes: &[u8], now: Time, agenda: &mut Agenda, chance: &mut Chance) -> usize {
        let mut sent = Vec::new();
        let taken = self.client.send(now, bytes, &mut |datagram: &[u8]| sent.push(datagram.to_vec()));
        self.fly(End::Server, sent, now, agenda, chance);
        taken
    }

    /// Ends the client's turn.
    ///
    /// # Errors
    /// The server is gone.
    pub(super) fn client_turns(&mut self, now: Time, agenda: &mut Agenda, chance: &mut Chance) -> Result<(), Lost> {
        let mut sent = Vec::new();
        let mut out = |datagram: &[u8]| sent.push(datagram.to_vec());
        let done = if self.client.next_timeout() <= now { self.client.on_timer(now, &mut out) } else { Ok(()) };
        self.client.finish(&mut out);
        self.fly(End::Server, sent, now, agenda, chance);
        done
    }

    /// The client has closed its end.
    pub(super) fn client_leaves(&mut self, now: Time, agenda: &mut Agenda, chance: &mut Chance) {
        self.is_left = true;
        let mut sent = Vec::new();
        self.client.leave(&mut |datagram: &[u8]| sent.push(datagram.to_vec()));
        self.fly(End::Server, sent, now, agenda, chance);
    }

    /// The frames that have come to the client.
    ///
    /// # Errors
    /// The server has ended the session.
    pub(super) fn client_hears(&mut self, now: Time, agenda: &mut Agenda) -> (Vec<u8>, Result<(), Lost>) {
        let mut frames = Vec::new();
        for mut datagram in self.land(End::Client, now, agenda) {
            match self.client.receive(now, &mut datagram) {
                Ok(frame) => frames.extend_from_slice(frame.unwrap_or_default()),
                Err(lost) => return (frames, Err(lost)),
            }
        }
        (frames, Ok(()))
    }

    // ---- the server's end ----

    /// Datagrams that have come to the server, one by one.
    pub(super) fn land_at_server(&mut self, now: Time, agenda: &mut Agenda) -> Vec<Vec<u8>> {
        self.land(End::Server, now, agenda)
    }

    /// The server takes a datagram. It has the session if it `is_open`, which `may` take a frame.
    pub(super) fn server_takes(
        &mut self,
        datagram: &mut [u8],
        (is_open, may): (bool, bool),
        now: Time,
        agenda: &mut Agenda,
        chance: &mut Chance,
    ) -> Came {
        let mut sent = Vec::new();
        let came = self.take(datagram, (is_open, may), now, chance, &mut sent);
        self.fly(End::Client, sent, now, agenda, chance);
        came
    }

    fn take(
        &mut self,
        datagram: &mut [u8],
        (is_open, may): (bool, bool),
        now: Time,
        chance: &mut Chance,
        sent: &mut Vec<Vec<u8>>,
    ) -> Came {
        let from = self.address();
        let Some((header, _)) = Header::read(datagram) else { return Came::Nothing };
        if let Some(cookie) = self.door.greet(now, from, datagram, PORT) {
            sent.push(cookie.to_vec());
            return Came::Nothing;
        }
        let said = &mut datagram[LEN..];
        if header.kind == Kind::Open && !self.had_session && is_open {
            let registers = self.door.admits(now, from, &header)
                && server::Link::registration(said, DatagramSize::DEFAULT).is_some();
            if !registers {
                return Came::Nothing;
            }
            self.had_session = true;
            let key = self.door.key(from, header.key, chance.bits());
            self.server =
                Some(server::Link::new(Name { slot: self.link as u32, key, nonce: header.key }, DatagramSize::DEFAULT));
            return if may { Came::Frame(said.to_vec()) } else { Came::Nothing };
        }
        let Some(link) = &mut self.server else {
            sent.extend(server::Link::over(&header).map(|over| over.to_vec()));
            return Came::Nothing;
        };
        if header.kind != Kind::Open && header.key != link.name().key {
            return Came::Nothing;
        }
        if header.kind == Kind::Over {
            return Came::Gone;
        }
        if self.forgets > 0 && header.kind == Kind::Call && chance.one_in(self.forgets) {
            *link = server::Link::new(*link.name(), DatagramSize::DEFAULT);
        }
        let mut out = |datagram: &[u8]| sent.push(datagram.to_vec());
        link.receive(now, &header, said, may, &mut out).map_or(Came::Nothing, |frame| Came::Frame(frame.to_vec()))
    }

    /// The server's session says these bytes, and the link all that is due. How many have left: all, once there is a session.
    pub(super) fn server_says(&mut self, bytes: &[u8], now: Time, agenda: &mut Agenda, chance: &mut Chance) -> usize {
        let Some(link) = &mut self.server else { return if self.had_session { bytes.len() } else { 0 } };
        let mut sent = Vec::new();
        let mut out = |datagram: &[u8]| sent.push(datagram.to_vec());
        let taken = link.send(now, bytes, &mut out);
        link.finish(now, &mut out);
        let due = link.next_timeout();
        self.fly(End::Client, sent, now, agenda, chance);
        if due < self.timer {
            self.timer = due;
            agenda.schedule(due.max(Time(now.0 + 1)), Happening::FarTimer(self.link));
        }
        taken
    }

    /// The server's timer goes off.
    pub(super) fn on_timer(&mut self, now: Time, agenda: &mut Agenda, chance: &mut Chance) {
        self.timer = Time::NEVER;
        self.server_says(&[], now, agenda, chance);
    }

    /// Looks whether the client is gone, and asks it for a sign of life if it has been silent for `silence`.
    pub(super) fn sweep(&mut self, silence: Nanos, now: Time, agenda: &mut Agenda, chance: &mut Chance) -> bool {
        let Some(link) = &mut self.server else { return self.is_left };
        let mut sent = Vec::new();
        if silence > Nanos::from_secs(5) {
            link.probe(now, &mut |datagram: &[u8]| sent.push(datagram.to_vec()));
        }
        let is_gone = link.is_gone(now);
        self.fly(End::Client, sent, now, agenda, chance);
        self.server_says(&[], now, agenda, chance);
        is_gone
    }

    /// The server's session has ended: its client is told, now and whenever it asks.
    pub(super) fn server_ends(&mut self, now: Time, agenda: &mut Agenda, chance: &mut Chance) {
        self.had_session = true;
        if let Some(link) = self.server.take() {
            let Name { slot, key, .. } = *link.name();
            let over = Header { slot, key, ..Header::of(Kind::Over) }.bytes().to_vec();
            self.fly(End::Client, vec![over], now, agenda, chance);
        }
    }
}
