//! Datagrams of a core: each is one frame of one session, which is handled as if it had come over the session's stream.

use super::{Core, Fate, Local};
use crate::batch::messages::MESSAGES;
use crate::carrier::{Carrier, Far};
use crate::datagrams::Inbound;
use crate::input::Input;
use crate::job::ConnectionId;
use crate::peer::Peer;
use crate::protocol::Protocol;
use crate::receive::{age_at, wall_clock};
use crate::stream::Stream;
use leeward_core::units::{Nanos, Time};
use leeward_datagram::header::{Header, Kind, LEN};
use leeward_datagram::server::{Link, Name};
use leeward_host::add;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Strangers that one look at the door sees.
const STRANGERS: usize = MESSAGES;
/// A client that has been silent for so long is asked for a sign of life: nobody else tells that it is gone.
const SILENT: Nanos = Nanos::from_secs(5);

impl<P: Protocol> Local<P> {
    /// Sends the datagrams that wait.
    pub(super) fn send_datagrams(&mut self) {
        let Some(out) = &mut self.outbound else { return };
        if out.outgoing.is_empty() && out.sent.0 == 0 {
            return;
        }
        let began = self.handle.shared.clock.now();
        out.send();
        let (_, bytes, calls) = std::mem::take(&mut out.sent);
        self.count_writes(calls, bytes, began);
    }

    /// A frame of this session has come, and has been put where the next requests come from.
    fn frame_came<S: Stream>(&mut self, peer: &mut Peer<P, S>, protocol: &mut P, waited: Nanos, now: Time) -> Fate {
        peer.heard = now;
        peer.held_back = false;
        self.shares.count_read(&mut peer.share, 0);
        self.handle(peer, protocol, waited, now)
    }

    /// Looks whether a session's client is gone, and asks it if it has been silent. Whether it is.
    pub(super) fn is_far_and_gone<S: Stream>(&mut self, peer: &mut Peer<P, S>, now: Time) -> bool {
        let Carrier::Datagrams(far) = &mut peer.stream else { return false };
        let Some(out) = &mut self.outbound else { return true };
        let Far { link, address, .. } = &mut **far;
        if now.since(peer.heard) > SILENT {
            link.probe(now, &mut |datagram: &[u8]| out.push(datagram, address));
        }
        let counts = link.take_counts();
        let is_gone = link.is_gone(now);
        self.remember(peer);
        add(&self.counters().retransmitted, counts.retransmitted);
        add(&self.counters().duplicates, counts.duplicates);
        is_gone
    }

    /// A session that has something to say again is looked at in time.
    pub(super) fn remember<S: Stream>(&mut self, peer: &mut Peer<P, S>) {
        let id = peer.id;
        if let Carrier::Datagrams(far) = &mut peer.stream {
            let due = far.link.next_timeout();
            if due < Time::NEVER {
                self.far_due = self.far_due.min(due);
                if !std::mem::replace(&mut far.is_timed, true) {
                    self.timed.push(id);
                }
            }
        }
    }
}

impl<P: Protocol, S: Stream> Core<P, S> {
    /// Takes the datagrams that are there, up to a bound.
    pub(super) fn receive_datagrams(&mut self, now: Time) -> bool {
        let Some(mut inbound) = self.inbound.take() else { return false };
        if inbound.door_has_more {
            self.open_door(&mut inbound, now);
        }
        let count = match &self.local.outbound {
            Some(out) => inbound.incoming.receive(out.socket.as_fd()).unwrap_or(0),
            None => 0,
        };
        inbound.has_more = count == MESSAGES;
        let wall = wall_clock();
        let unseen = self.local.waits.unseen();
        let mut waits = [unseen; MESSAGES];
        for (place, wait) in waits.iter_mut().enumerate().take(count) {
            let Some(message) = inbound.incoming.message(place) else { continue };
            if let Some(stamp) = message.stamp {
                *wait = age_at(stamp, wall);
            }
            if let Some(lost) = message.lost {
                let counters = self.local.counters();
                add(&counters.overflowed, u64::from(lost.wrapping_sub(inbound.lost)));
                inbound.lost = lost;
            }
        }
        // Known before the first decision that it bears on.
        if let Some(longest) = waits[..count].iter().max() {
            self.local.find(*longest, now);
        }
        for (place, wait) in waits.into_iter().enumerate().take(count) {
            self.take_datagram(&mut inbound, place, wait, now);
        }
        self.inbound = Some(inbound);
        count > 0
    }

    fn take_datagram(&mut self, inbound: &mut Inbound, place: usize, waited: Nanos, now: Time) {
        let size = self.local.limits.datagram;
        let Inbound { incoming, secrets, .. } = &mut *inbound;
        let Some(message) = incoming.message(place) else { return };
        let (from, bytes) = (message.from, message.bytes);
        let Some((header, _)) = Header::read(bytes) else { return };
        add(&self.local.counters().bytes_read, bytes.len() as u64);
        let frame = &mut bytes[LEN..];
        match header.kind {
            Kind::Open => {
                if !secrets.admits(now, from, &header) {
                    return;
                }
                match self.places.get(&(from, header.key)).copied() {
                    Some(id) => self.hand_on(id, &header, frame, from, waited, now),
                    None => {
                        let Some(register) = Link::registration(frame, size).map(<[u8]>::to_vec) else { return };
                        let secrets = Arc::clone(secrets);
                        let key = secrets.key(from, header.key, inbound.draw());
                        if let Some(id) = self.open_far(key, header.key, from, &register, waited, now) {
                            self.places.insert((from, header.key), id);
                        }
                    }
                }
            }
            Kind::Call | Kind::Word | Kind::Heard | Kind::Over => {
                let id = self.peers.look(header.slot as usize).and_then(|peer| {
                    let Carrier::Datagrams(far) = &peer.stream else { return None };
                    (far.link.name().key == header.key && far.address == from).then_some(peer.id)
                });
                match id {
                    // Its client has gone.
                    Some(id) if header.kind == Kind::Over => self.follow(id.slot, Fate::Goes, now),
                    Some(id) => self.hand_on(id, &header, frame, from, waited, now),
                    None => {
                        if let (Some(over), Some(out)) = (Link::over(&header), &mut self.local.outbound) {
                            out.push(&over, &from);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// Gives a datagram to its session.
    fn hand_on(&mut self, id: ConnectionId, header: &Header, frame: &[u8], from: SocketAddr, waited: Nanos, now: Time) {
        let Core { peers, local, protocol, .. } = self;
        let Some(peer) = peers.get(id) else { return };
        let has_room = P::input(&mut peer.connection).spare().len() >= frame.len();
        let may = has_room && peer.may_be_read(&local.limits);
        let (Carrier::Datagrams(far), Some(out)) = (&mut peer.stream, &mut local.outbound) else { return };
        let mut push = |datagram: &[u8]| out.push(datagram, &from);
        let Some(frame) = far.link.receive(now, header, frame, may, &mut push) else {
            peer.heard = now;
            far.link.finish(now, &mut push);
            return local.remember(peer);
        };
        P::input(&mut peer.connection).spare()[..frame.len()].copy_from_slice(frame);
        P::input(&mut peer.connection).filled(frame.len());
        let fate = local.frame_came(peer, protocol, waited, now);
        if fate == Fate::Stays && header.kind == Kind::Word && peer.out.unsent() == 0 {
            // Nothing else tells the client that its word has come.
            let fate = local.flush_far(peer, now);
            return self.follow(id.slot, fate, now);
        }
        self.follow(id.slot, fate, now);
    }

    /// A client has shown a good cookie: it gets a session.
    fn open_far(
        &mut self,
        key: u64,
        nonce: u64,
        address: SocketAddr,
        register: &[u8],
        waited: Nanos,
        now: Time,
    ) -> Option<ConnectionId> {
        let id = self.peers.reserve();
        let link = Link::new(Name { slot: id.slot, key, nonce }, self.local.limits.datagram);
        let carrier = Carrier::Datagrams(Box::new(Far { link, address, is_timed: false }));
        self.take_in(id, carrier, now);
        let Core { peers, local, protocol, .. } = self;
        let peer = peers.get(id)?;
        if peer.ending_since.is_some() || P::input(&mut peer.connection).spare().len() < register.len() {
            return Some(id);
        }
        P::input(&mut peer.connection).spare()[..register.len()].copy_from_slice(register);
        P::input(&mut peer.connection).filled(register.len());
        let fate = local.frame_came(peer, protocol, waited, now);
        self.follow(id.slot, fate, now);
        (fate == Fate::Stays).then_some(id)
    }

    /// Greets strangers, for a share of the core's time.
    pub(super) fn open_door(&mut self, inbound: &mut Inbound, now: Time) {
        inbound.door_has_more = false;
        if !self.local.shares.may_connect(now) {
            // The sweep looks again.
            return;
        }
        let began = self.local.clock_now();
        let Inbound { incoming, secrets, door, .. } = inbound;
        let (Some((socket, ports, turn)), Some(out)) = (door, &mut self.local.outbound) else { return };
        // What waits for sessions leaves by the core's own socket, before the cookies take its place.
        out.send();
        let count = incoming.receive(socket.as_fd()).unwrap_or(0);
        for place in 0..count.min(STRANGERS) {
            let Some(message) = incoming.message(place) else { continue };
            let port = ports[*turn % ports.len()];
            if let Some(cookie) = secrets.greet(now, message.from, message.bytes, port) {
                *turn += 1;
                out.push(&cookie, &message.from);
            }
        }
        // Clients take what comes from the door alone.
        let (sent, bytes) = out.outgoing.send(socket.as_fd());
        out.sent = (out.sent.0 + sent, out.sent.1 + bytes, out.sent.2 + 1);
        inbound.door_has_more = count == MESSAGES;
        let spent = self.local.clock_now().since(began);
        self.local.shares.charge_validation(spent);
    }

    /// Says again what was not heard in time.
    pub(super) fn say_again(&mut self, now: Time) {
        if now < self.local.far_due {
            return;
        }
        self.local.far_due = Time::NEVER;
        let mut timed = std::mem::take(&mut self.local.timed);
        for id in timed.drain(..) {
            let Some(peer) = self.peers.get(id) else { continue };
            if let Some(far) = peer.stream.far() {
                far.is_timed = false;
            }
            let fate = self.local.flush_far(peer, now);
            self.follow(id.slot, fate, now);
        }
        timed.append(&mut self.local.timed);
        self.local.timed = timed;
        self.local.send_datagrams();
    }

    /// Tells the client of a session that it has ended, and forgets it.
    pub(super) fn forget_far(&mut self, far: &Far) {
        let Name { slot, key, nonce } = *far.link.name();
        self.places.remove(&(far.address, nonce));
        if let Some(out) = &mut self.local.outbound {
            out.push(&Header { slot, key, ..Header::of(Kind::Over) }.bytes(), &far.address);
        }
    }
}

impl<P: Protocol> Local<P> {
    /// Sends what a session has to say besides its frames.
    pub(super) fn flush_far<S: Stream>(&mut self, peer: &mut Peer<P, S>, now: Time) -> Fate {
        if let (Carrier::Datagrams(far), Some(out)) = (&mut peer.stream, &mut self.outbound) {
            far.send(&[], now, out);
        }
        self.remember(peer);
        Fate::Stays
    }
}
