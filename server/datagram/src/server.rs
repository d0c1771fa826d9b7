//! The server's end of a link: every call is handed on once, and its answer is remembered until the client shows that it has
//! come, by using the call's lane again.
//!
//! # Why memory is bounded
//! A client has [`LANES`] lanes at most, and one call under way in each. A lane's next call says that the answer to the one
//! before has come. So the server keeps one answer per lane that was ever used, which is as many as the client ever had under
//! way at once: its window.

use crate::DatagramSize;
use crate::control::{ControlReceiver, ControlSender, OutgoingControl};
use crate::frame;
use crate::header::{Header, Kind, LEN};
use leeward_core::units::{Nanos, Time};
use leeward_wire::Kind as FrameKind;

/// Calls of a session that may be under way.
pub const LANES: usize = 256;
/// A word that was not heard is said again after this long, doubled each time.
const CONTROL_TIMEOUT: Nanos = Nanos::from_millis(4);
/// An answer is not said again sooner than this: whoever repeats a call without a pause is not repeated to.
const RESEND_INTERVAL: Nanos = Nanos::from_micros(400);
/// A client that hears no word for this long is gone.
const PEER_TIMEOUT: Nanos = Nanos::from_secs(3);

/// Names of a session on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionId {
    /// Its place on its core.
    pub slot: u32,
    /// Its key, which nobody can guess.
    pub key: u64,
    /// The client's nonce.
    pub nonce: u64,
}

/// Counts of a link, of everything so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Datagrams that were said again.
    pub retransmitted: u64,
    /// Calls and words that came again.
    pub duplicates: u64,
}

#[derive(Debug)]
enum State {
    /// Nothing has come in this lane.
    Empty,
    /// The call of this name is with the session.
    InProgress(u64),
    /// Answered: the lane's datagram is the answer.
    Answered(Time),
}

#[derive(Debug)]
struct Lane {
    /// Number of the newest call in this lane.
    sequence: u64,
    /// How often it had been sent before the copy that came first.
    tries: u32,
    state: State,
    answer: Vec<u8>,
}

/// The server's end of one session.
#[derive(Debug)]
pub struct Link {
    id: SessionId,
    size: DatagramSize,
    lanes: Vec<Lane>,
    control_sender: ControlSender,
    control_receiver: ControlReceiver,
    /// Datagrams with frames that were said so far.
    order: u64,
    /// The first datagram that was said, which answers the client's opening as often as that comes.
    welcome: Vec<u8>,
    is_closed: bool,
    scratch: Vec<u8>,
    counts: LinkCounts,
}

impl Link {
    /// A session that a client has opened with a good cookie. No datagram is longer than `size`.
    pub fn new(name: SessionId, size: DatagramSize) -> Self {
        Link {
            id: name,
            size,
            lanes: Vec::new(),
            control_sender: ControlSender::new(),
            control_receiver: ControlReceiver::default(),
            order: 0,
            welcome: Vec::new(),
            is_closed: false,
            scratch: Vec::new(),
            counts: LinkCounts::default(),
        }
    }

    /// The session's names.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Takes the counts since they were taken last.
    pub fn take_counts(&mut self) -> LinkCounts {
        std::mem::take(&mut self.counts)
    }

    /// The registration that opened the session, with its promise lowered to what fits. `None` if it is none.
    pub fn registration(open: &mut [u8], size: DatagramSize) -> Option<&[u8]> {
        let registers = frame::is_whole(open) && frame::kind(open) == Some(FrameKind::Register);
        registers.then(|| {
            frame::limit_payload(open, size.payload() as u32);
            &*open
        })
    }

    /// Takes a datagram of this session. Returns the frame to be handed on, if there is one that has not been before and the
    /// session `may` take one; `None` otherwise. What was not taken may come again.
    pub fn receive<'a>(
        &mut self,
        now: Time,
        header: &Header,
        frame: &'a [u8],
        may: bool,
        out: &mut impl FnMut(&[u8]),
    ) -> Option<&'a [u8]> {
        self.control_sender.on_ack(header.ack);
        match header.kind {
            Kind::Open => self.resend_welcome(out),
            Kind::Call => self.call(now, header, frame, may, out).then_some(frame),
            Kind::Control => {
                self.accept_control(header.number, frame, may).then_some(frame).filter(|frame| !frame.is_empty())
            }
            _ => None,
        }
    }

    fn resend_welcome(&mut self, out: &mut impl FnMut(&[u8])) -> Option<&'static [u8]> {
        self.counts.duplicates += 1;
        if !self.welcome.is_empty() {
            self.counts.retransmitted += 1;
            out(&self.welcome);
        }
        None
    }

    /// Whether this is a call that has not come before.
    fn call(&mut self, now: Time, header: &Header, frame: &[u8], may: bool, out: &mut impl FnMut(&[u8])) -> bool {
        let number = header.number;
        let (place, sequence) = ((number & 0xFFFF) as usize, number >> 16);
        if place >= LANES || !frame::is_whole(frame) || frame::kind(frame) != Some(FrameKind::Call) {
            return false;
        }
        let newest = self.lanes.get(place).map_or(0, |lane| lane.sequence);
        if sequence > newest {
            let is_taken = self.lanes.get(place).is_some_and(|lane| matches!(lane.state, State::InProgress(_)));
            // No client of ours uses a lane whose call is unanswered.
            if is_taken || !may || self.is_closed {
                return false;
            }
            while self.lanes.len() <= place {
                self.lanes.push(Lane { sequence: 0, tries: 0, state: State::Empty, answer: Vec::new() });
            }
            let lane = &mut self.lanes[place];
            (lane.sequence, lane.state) = (sequence, State::InProgress(frame::request(frame)));
            lane.tries = header.order as u32;
            return true;
        }
        self.counts.duplicates += 1;
        if sequence < newest {
            return false;
        }
        let Some(lane) = self.lanes.get_mut(place) else { return false };
        match &mut lane.state {
            State::Empty => {}
            State::InProgress(_) => {
                let SessionId { slot, key, .. } = self.id;
                out(&Header {
                    slot,
                    key,
                    number,
                    ack: self.control_receiver.last_received,
                    ..Header::of(Kind::InProgress)
                }
                .bytes());
            }
            State::Answered(said) if now.since(*said) >= RESEND_INTERVAL => {
                *said = now;
                self.counts.retransmitted += 1;
                out(&lane.answer);
            }
            State::Answered(_) => {}
        }
        false
    }

    /// Whether this is the next word.
    fn accept_control(&mut self, number: u64, frame: &[u8], may: bool) -> bool {
        let is_call = frame::kind(frame).is_none_or(|kind| matches!(kind, FrameKind::Call | FrameKind::Register));
        let is_word = frame.is_empty() || (frame::is_whole(frame) && !is_call);
        if !is_word || (self.control_receiver.is_next(number) && (!may || self.is_closed)) {
            return false;
        }
        let is_next = self.control_receiver.receive(number);
        self.counts.duplicates += u64::from(!is_next);
        is_next
    }

    /// Takes the whole frames at the beginning of `frames`, which the session says, and sends them. Returns their length.
    pub fn send(&mut self, now: Time, frames: &[u8], out: &mut impl FnMut(&[u8])) -> usize {
        let mut taken = 0;
        while let Some(length) = frame::length(&frames[taken..]) {
            self.send_one(now, &frames[taken..taken + length], out);
            taken += length;
        }
        self.send_control(now, out);
        taken
    }

    fn send_one(&mut self, now: Time, frame: &[u8], out: &mut impl FnMut(&[u8])) {
        let Some(kind) = frame::kind(frame) else { return };
        self.order += 1;
        let SessionId { slot, key, nonce } = self.id;
        let header = Header {
            slot,
            key,
            ack: self.control_receiver.last_received,
            order: self.order,
            ..Header::of(Kind::Close)
        };
        // Longer is only what the session was told not to say; the client's time-out ends it.
        let is_short = frame.len() + LEN <= self.size.bytes();
        match kind {
            FrameKind::Error => {
                self.is_closed = true;
                let header = if self.welcome.is_empty() {
                    Header { kind: Kind::Welcome, number: nonce, ..header }
                } else {
                    header
                };
                header.write(frame, &mut self.scratch);
                self.scratch.truncate(self.size.bytes());
                out(&self.scratch);
            }
            FrameKind::Welcome => {
                Header { kind: Kind::Welcome, number: nonce, ..header }.write(frame, &mut self.welcome);
                frame::limit_payload(&mut self.welcome[LEN..], self.size.payload() as u32);
                out(&self.welcome);
            }
            kind if frame::is_answer(kind) => {
                let request = frame::request(frame);
                let is_it = |lane: &Lane| matches!(lane.state, State::InProgress(taken) if taken == request);
                let Some(place) = self.lanes.iter().position(is_it).filter(|_| is_short) else { return };
                let lane = &mut self.lanes[place];
                lane.state = State::Answered(now);
                let number = lane.sequence << 16 | place as u64;
                let mark = lane.tries.to_le_bytes();
                Header { kind: Kind::Answer, mark, number, ..header }.write(frame, &mut lane.answer);
                self.control_receiver.ack_pending = false;
                out(&lane.answer);
            }
            // Told later, it is as old as now.
            _ => self.control_sender.push(frame, self.order),
        }
    }

    /// Says the word that is due, if one is.
    fn send_control(&mut self, now: Time, out: &mut impl FnMut(&[u8])) {
        let SessionId { slot, key, .. } = self.id;
        let Some(OutgoingControl { number, frame, order, is_retransmit: again }) =
            self.control_sender.next(now, CONTROL_TIMEOUT)
        else {
            return;
        };
        let header = Header { slot, key, ack: self.control_receiver.last_received, order, ..Header::of(Kind::Control) };
        Header { number: u64::from(number), ..header }.write(frame, &mut self.scratch);
        self.control_receiver.ack_pending = false;
        self.counts.retransmitted += u64::from(again);
        out(&self.scratch);
    }

    /// Ends a turn: what came is acknowledged, unless something that was sent has done so.
    pub fn flush(&mut self, now: Time, out: &mut impl FnMut(&[u8])) {
        self.send_control(now, out);
        if std::mem::take(&mut self.control_receiver.ack_pending) {
            let SessionId { slot, key, .. } = self.id;
            out(&Header { slot, key, ack: self.control_receiver.last_received, ..Header::of(Kind::Ack) }.bytes());
        }
    }

    /// Asks the client for a sign of life.
    pub fn probe(&mut self, now: Time, out: &mut impl FnMut(&[u8])) {
        self.control_sender.probe();
        self.send_control(now, out);
    }

    /// When [`Link::finish`] has something to say by itself.
    pub fn next_timeout(&self) -> Time {
        self.control_sender.due()
    }

    /// Whether the client has not heard the server for so long that it is gone.
    pub fn is_timed_out(&self, now: Time) -> bool {
        self.control_sender.unacked_time(now) > PEER_TIMEOUT
    }

    /// The answer to a datagram of a session that there is not, or not any more. `None` where none is due: only somebody who
    /// knows a session's key is told, and never more than what was said.
    pub fn close_reply(header: &Header) -> Option<[u8; LEN]> {
        let asks = matches!(header.kind, Kind::Call | Kind::Control | Kind::Ack);
        asks.then(|| Header { slot: header.slot, key: header.key, ..Header::of(Kind::Close) }.bytes())
    }
}
