//! A core's datagrams. Each is one frame of one session, and is handled like a frame of a stream.

use super::{Core, CoreState, PeerOutcome};
use crate::batch::messages::MESSAGES;
use crate::connection_io::{ConnectionIo, DatagramSession};
use crate::datagrams::InboundDatagrams;
use crate::input::Input;
use crate::job::ConnectionId;
use crate::peer::Peer;
use crate::protocol::Protocol;
use crate::receive::{age_at, wall_clock};
use crate::stream::Stream;
use leeward_core::units::{Nanos, Time};
use leeward_datagram::header::{Header, Kind, LEN};
use leeward_datagram::server::{Link, SessionId};
use leeward_host::add;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Greetings of unvalidated clients that one poll handles.
const VALIDATIONS: usize = MESSAGES;
/// A client that was silent for this long is probed. No other event shows that it is gone.
const SILENT: Nanos = Nanos::from_secs(5);

impl<P: Protocol> CoreState<P> {
    /// Sends the pending datagrams.
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

    /// Handles a frame of this session, which is already in the protocol's buffer.
    fn handle_frame<S: Stream>(
        &mut self,
        peer: &mut Peer<P, S>,
        protocol: &mut P,
        waited: Nanos,
        now: Time,
    ) -> PeerOutcome {
        peer.last_received = now;
        peer.held_back = false;
        self.shares.count_read(&mut peer.share, 0);
        self.handle_requests(peer, protocol, waited, now)
    }

    /// Returns whether a session's client is gone. Probes a client that was silent.
    pub(super) fn is_session_gone<S: Stream>(&mut self, peer: &mut Peer<P, S>, now: Time) -> bool {
        let ConnectionIo::Datagrams(session) = &mut peer.stream else { return false };
        let Some(out) = &mut self.outbound else { return true };
        let DatagramSession { link, address, .. } = &mut **session;
        if now.since(peer.last_received) > SILENT {
            link.probe(now, &mut |datagram: &[u8]| out.push(datagram, address));
        }
        let counts = link.take_counts();
        let is_gone = link.is_timed_out(now);
        self.queue_retransmit(peer);
        add(&self.counters().retransmitted, counts.retransmitted);
        add(&self.counters().duplicates, counts.duplicates);
        is_gone
    }

    /// Lists a session that has to retransmit, so that the core returns to it in time.
    pub(super) fn queue_retransmit<S: Stream>(&mut self, peer: &mut Peer<P, S>) {
        let id = peer.id;
        if let ConnectionIo::Datagrams(session) = &mut peer.stream {
            let due = session.link.next_timeout();
            if due < Time::NEVER {
                self.retransmit_due = self.retransmit_due.min(due);
                if !std::mem::replace(&mut session.is_timed, true) {
                    self.timed.push(id);
                }
            }
        }
    }
}

impl<P: Protocol, S: Stream> Core<P, S> {
    /// Receives the datagrams that are there, up to a bound.
    pub(super) fn receive_datagrams(&mut self, now: Time) -> bool {
        let Some(mut inbound) = self.inbound.take() else { return false };
        if inbound.validation_has_more {
            self.validate_addresses(&mut inbound, now);
        }
        let count = match &self.state.outbound {
            Some(out) => inbound.incoming.receive(out.socket.as_fd()).unwrap_or(0),
            None => 0,
        };
        inbound.has_more = count == MESSAGES;
        let wall = wall_clock();
        let unseen = self.state.waits.unseen();
        let mut waits = [unseen; MESSAGES];
        for (index, wait) in waits.iter_mut().enumerate().take(count) {
            let Some(message) = inbound.incoming.message(index) else { continue };
            if let Some(stamp) = message.stamp {
                *wait = age_at(stamp, wall);
            }
            if let Some(lost) = message.lost {
                let counters = self.state.counters();
                add(&counters.overflowed, u64::from(lost.wrapping_sub(inbound.lost)));
                inbound.lost = lost;
            }
        }
        // Published before the first decision that the wait affects.
        if let Some(longest) = waits[..count].iter().max() {
            self.state.note_wait(*longest, now);
        }
        for (index, wait) in waits.into_iter().enumerate().take(count) {
            self.take_datagram(&mut inbound, index, wait, now);
        }
        self.inbound = Some(inbound);
        count > 0
    }

    fn take_datagram(&mut self, inbound: &mut InboundDatagrams, place: usize, waited: Nanos, now: Time) {
        let size = self.state.limits.datagram;
        let InboundDatagrams { incoming, validation: validator, .. } = &mut *inbound;
        let Some(message) = incoming.message(place) else { return };
        let (from, bytes) = (message.from, message.bytes);
        let Some((header, _)) = Header::read(bytes) else { return };
        add(&self.state.counters().bytes_read, bytes.len() as u64);
        let frame = &mut bytes[LEN..];
        match header.kind {
            Kind::Open => {
                if !validator.validate(now, from, &header) {
                    return;
                }
                match self.datagram_sessions.get(&(from, header.key)).copied() {
                    Some(id) => self.forward_datagram(id, &header, frame, from, waited, now),
                    None => {
                        let Some(register) = Link::registration(frame, size).map(<[u8]>::to_vec) else { return };
                        let validator = Arc::clone(validator);
                        let key = validator.key(from, header.key, inbound.draw());
                        if let Some(id) = self.open_datagram_session(key, header.key, from, &register, waited, now) {
                            self.datagram_sessions.insert((from, header.key), id);
                        }
                    }
                }
            }
            Kind::Call | Kind::Control | Kind::Ack | Kind::Close => {
                let id = self.peers.peek(header.slot as usize).and_then(|peer| {
                    let ConnectionIo::Datagrams(session) = &peer.stream else { return None };
                    (session.link.id().key == header.key && session.address == from).then_some(peer.id)
                });
                match id {
                    // The client has closed the session.
                    Some(id) if header.kind == Kind::Close => self.apply_outcome(id.slot, PeerOutcome::Close, now),
                    Some(id) => self.forward_datagram(id, &header, frame, from, waited, now),
                    None => {
                        if let (Some(close), Some(out)) = (Link::close_reply(&header), &mut self.state.outbound) {
                            out.push(&close, &from);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// Gives a datagram to its session.
    fn forward_datagram(
        &mut self,
        id: ConnectionId,
        header: &Header,
        frame: &[u8],
        from: SocketAddr,
        waited: Nanos,
        now: Time,
    ) {
        let Core { peers, state: local, protocol, .. } = self;
        let Some(peer) = peers.get(id) else { return };
        let has_room = P::input(&mut peer.connection).spare().len() >= frame.len();
        let may = has_room && peer.may_be_read(&local.limits);
        let (ConnectionIo::Datagrams(session), Some(out)) = (&mut peer.stream, &mut local.outbound) else { return };
        let mut push = |datagram: &[u8]| out.push(datagram, &from);
        let Some(frame) = session.link.receive(now, header, frame, may, &mut push) else {
            peer.last_received = now;
            session.link.flush(now, &mut push);
            return local.queue_retransmit(peer);
        };
        P::input(&mut peer.connection).spare()[..frame.len()].copy_from_slice(frame);
        P::input(&mut peer.connection).filled(frame.len());
        let outcome = local.handle_frame(peer, protocol, waited, now);
        if outcome == PeerOutcome::Keep && header.kind == Kind::Control && peer.out.unsent() == 0 {
            // Nothing else acknowledges the client's control frame.
            let outcome = local.flush_session(peer, now);
            return self.apply_outcome(id.slot, outcome, now);
        }
        self.apply_outcome(id.slot, outcome, now);
    }

    /// Opens a session for a client that has shown a valid cookie.
    fn open_datagram_session(
        &mut self,
        key: u64,
        nonce: u64,
        address: SocketAddr,
        register: &[u8],
        waited: Nanos,
        now: Time,
    ) -> Option<ConnectionId> {
        let id = self.peers.reserve();
        let link = Link::new(SessionId { slot: id.slot, key, nonce }, self.state.limits.datagram);
        let stream = ConnectionIo::Datagrams(Box::new(DatagramSession { link, address, is_timed: false }));
        self.open_connection(id, stream, now);
        let Core { peers, state: local, protocol, .. } = self;
        let peer = peers.get(id)?;
        if peer.closing_since.is_some() || P::input(&mut peer.connection).spare().len() < register.len() {
            return Some(id);
        }
        P::input(&mut peer.connection).spare()[..register.len()].copy_from_slice(register);
        P::input(&mut peer.connection).filled(register.len());
        let outcome = local.handle_frame(peer, protocol, waited, now);
        self.apply_outcome(id.slot, outcome, now);
        (outcome == PeerOutcome::Keep).then_some(id)
    }

    /// Answers greetings of unvalidated clients, within a share of the core's time.
    pub(super) fn validate_addresses(&mut self, inbound: &mut InboundDatagrams, now: Time) {
        inbound.validation_has_more = false;
        if !self.state.shares.may_connect(now) {
            // The next scan tries again.
            return;
        }
        let began = self.state.clock_now();
        let InboundDatagrams { incoming, validation: validator, validation_socket: entry, .. } = inbound;
        let (Some((socket, ports, next)), Some(out)) = (entry, &mut self.state.outbound) else { return };
        // The sessions' pending datagrams leave by the core's own socket, before cookies use the
        // slots.
        out.send();
        let count = incoming.receive(socket.as_fd()).unwrap_or(0);
        for index in 0..count.min(VALIDATIONS) {
            let Some(message) = incoming.message(index) else { continue };
            let port = ports[*next % ports.len()];
            if let Some(cookie) = validator.answer_hello(now, message.from, message.bytes, port) {
                *next += 1;
                out.push(&cookie, &message.from);
            }
        }
        // Clients accept cookies only from the validation socket's address.
        let (sent, bytes) = out.outgoing.send(socket.as_fd());
        out.sent = (out.sent.0 + sent, out.sent.1 + bytes, out.sent.2 + 1);
        inbound.validation_has_more = count == MESSAGES;
        let spent = self.state.clock_now().since(began);
        self.state.shares.charge_validation(spent);
    }

    /// Retransmits frames that were not acknowledged in time.
    pub(super) fn retransmit(&mut self, now: Time) {
        if now < self.state.retransmit_due {
            return;
        }
        self.state.retransmit_due = Time::NEVER;
        let mut timed = std::mem::take(&mut self.state.timed);
        for id in timed.drain(..) {
            let Some(peer) = self.peers.get(id) else { continue };
            if let Some(session) = peer.stream.datagram_session() {
                session.is_timed = false;
            }
            let outcome = self.state.flush_session(peer, now);
            self.apply_outcome(id.slot, outcome, now);
        }
        timed.append(&mut self.state.timed);
        self.state.timed = timed;
        self.state.send_datagrams();
    }

    /// Tells a session's client that the session has ended, and forgets the session.
    pub(super) fn end_datagram_session(&mut self, session: &DatagramSession) {
        let SessionId { slot, key, nonce } = *session.link.id();
        self.datagram_sessions.remove(&(session.address, nonce));
        if let Some(out) = &mut self.state.outbound {
            out.push(&Header { slot, key, ..Header::of(Kind::Close) }.bytes(), &session.address);
        }
    }
}

impl<P: Protocol> CoreState<P> {
    /// Sends a session's pending control datagrams.
    pub(super) fn flush_session<S: Stream>(&mut self, peer: &mut Peer<P, S>, now: Time) -> PeerOutcome {
        if let (ConnectionIo::Datagrams(session), Some(out)) = (&mut peer.stream, &mut self.outbound) {
            session.send(&[], now, out);
        }
        self.queue_retransmit(peer);
        PeerOutcome::Keep
    }
}
