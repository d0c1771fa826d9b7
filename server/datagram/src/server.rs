//! The server's end of a link: every call is passed on once. Its answer is kept until the client
//! reuses the call's lane, which implies that the answer has arrived.
//!
//! # Why memory is bounded
//! A client has at most [`LANES`] lanes, and one call in flight in each. A lane's next call implies
//! that the answer to the previous one has arrived. So the server keeps one answer per lane that
//! was ever used. The number of used lanes is the greatest number of calls that the client ever had
//! in flight: its window.

use crate::DatagramSize;
use crate::control::{ControlReceiver, ControlSender, OutgoingControl};
use crate::frame;
use crate::header::{Header, Kind, LEN};
use leeward_core::units::{Nanos, Time};
use leeward_wire::Kind as FrameKind;

/// Calls of a session that may be in flight.
pub const LANES: usize = 256;
/// Time-out of a control frame without acknowledgement, doubled each time.
const CONTROL_TIMEOUT: Nanos = Nanos::from_millis(4);
/// Minimum interval between two transmissions of an answer. A client that repeats a call without a
/// pause gets no copy.
const RESEND_INTERVAL: Nanos = Nanos::from_micros(400);
/// Time without acknowledgement after which a client counts as gone.
const PEER_TIMEOUT: Nanos = Nanos::from_secs(3);

/// Identifiers of a session on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionId {
    /// The session's slot on its core.
    pub slot: u32,
    /// The session's unguessable key.
    pub key: u64,
    /// The client's nonce.
    pub nonce: u64,
}

/// Counters of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Datagrams that were sent again.
    pub retransmitted: u64,
    /// Duplicate calls and control frames.
    pub duplicates: u64,
}

#[derive(Debug)]
enum State {
    /// No call has arrived in this lane.
    Empty,
    /// The session executes the call with this identifier.
    InProgress(u64),
    /// Answered at this time: the lane's datagram is the answer.
    Answered(Time),
}

#[derive(Debug)]
struct Lane {
    /// Number of the newest call in this lane.
    sequence: u64,
    /// Transmissions of the call before the copy that arrived first.
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
    /// Datagrams with frames that were sent so far.
    order: u64,
    /// The first datagram sent, which answers each copy of the client's `Open`.
    welcome: Vec<u8>,
    is_closed: bool,
    scratch: Vec<u8>,
    counts: LinkCounts,
}

impl Link {
    /// Creates a session that a client has opened with a valid cookie. No datagram is longer than
    /// `size`.
    pub fn new(session_id: SessionId, size: DatagramSize) -> Self {
        Link {
            id: session_id,
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

    /// The session's identifiers.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Takes the counters since the last call.
    pub fn take_counts(&mut self) -> LinkCounts {
        std::mem::take(&mut self.counts)
    }

    /// The registration in an `Open`, its payload limit lowered to what fits a datagram. `None` if
    /// there is none.
    pub fn registration(open: &mut [u8], size: DatagramSize) -> Option<&[u8]> {
        let registers = frame::is_whole(open) && frame::kind(open) == Some(FrameKind::Register);
        registers.then(|| {
            frame::limit_payload(open, size.payload() as u32);
            &*open
        })
    }

    /// Handles a datagram of this session. Returns its frame if it is new and the session `may`
    /// take one; otherwise `None`. The client sends a frame again that was not taken.
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

    /// Whether this is a new call.
    fn call(&mut self, now: Time, header: &Header, frame: &[u8], may: bool, out: &mut impl FnMut(&[u8])) -> bool {
        let number = header.number;
        let (index, sequence) = ((number & 0xFFFF) as usize, number >> 16);
        if index >= LANES || !frame::is_whole(frame) || frame::kind(frame) != Some(FrameKind::Call) {
            return false;
        }
        let newest = self.lanes.get(index).map_or(0, |lane| lane.sequence);
        if sequence > newest {
            let is_taken = self.lanes.get(index).is_some_and(|lane| matches!(lane.state, State::InProgress(_)));
            // No client of this crate reuses a lane whose call is unanswered.
            if is_taken || !may || self.is_closed {
                return false;
            }
            while self.lanes.len() <= index {
                self.lanes.push(Lane { sequence: 0, tries: 0, state: State::Empty, answer: Vec::new() });
            }
            let lane = &mut self.lanes[index];
            (lane.sequence, lane.state) = (sequence, State::InProgress(frame::request(frame)));
            lane.tries = header.order as u32;
            return true;
        }
        self.counts.duplicates += 1;
        if sequence < newest {
            return false;
        }
        let Some(lane) = self.lanes.get_mut(index) else { return false };
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
            State::Answered(sent_at) if now.since(*sent_at) >= RESEND_INTERVAL => {
                *sent_at = now;
                self.counts.retransmitted += 1;
                out(&lane.answer);
            }
            State::Answered(_) => {}
        }
        false
    }

    /// Whether this is the next control frame.
    fn accept_control(&mut self, number: u64, frame: &[u8], may: bool) -> bool {
        let is_call = frame::kind(frame).is_none_or(|kind| matches!(kind, FrameKind::Call | FrameKind::Register));
        let is_valid = frame.is_empty() || (frame::is_whole(frame) && !is_call);
        if !is_valid || (self.control_receiver.is_next(number) && (!may || self.is_closed)) {
            return false;
        }
        let is_next = self.control_receiver.receive(number);
        self.counts.duplicates += u64::from(!is_next);
        is_next
    }

    /// Sends the whole frames at the beginning of `frames`. Returns their length.
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
        // Only a session that ignores its limit sends a longer frame. The frame is dropped, and the
        // client times out.
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
                let matches_call = |lane: &Lane| matches!(lane.state, State::InProgress(call) if call == request);
                let Some(index) = self.lanes.iter().position(matches_call).filter(|_| is_short) else { return };
                let lane = &mut self.lanes[index];
                lane.state = State::Answered(now);
                let number = lane.sequence << 16 | index as u64;
                let mark = lane.tries.to_le_bytes();
                Header { kind: Kind::Answer, mark, number, ..header }.write(frame, &mut lane.answer);
                self.control_receiver.ack_pending = false;
                out(&lane.answer);
            }
            // A later transmission keeps the position in the order that the frame has now.
            _ => self.control_sender.push(frame, self.order),
        }
    }

    /// Sends the control frame that is due, if any.
    fn send_control(&mut self, now: Time, out: &mut impl FnMut(&[u8])) {
        let SessionId { slot, key, .. } = self.id;
        let Some(OutgoingControl { number, frame, order, is_retransmit: sent_before }) =
            self.control_sender.next(now, CONTROL_TIMEOUT)
        else {
            return;
        };
        let header = Header { slot, key, ack: self.control_receiver.last_received, order, ..Header::of(Kind::Control) };
        Header { number: u64::from(number), ..header }.write(frame, &mut self.scratch);
        self.control_receiver.ack_pending = false;
        self.counts.retransmitted += u64::from(sent_before);
        out(&self.scratch);
    }

    /// Ends a poll: acknowledges arrivals, unless another datagram has done so.
    pub fn flush(&mut self, now: Time, out: &mut impl FnMut(&[u8])) {
        self.send_control(now, out);
        if std::mem::take(&mut self.control_receiver.ack_pending) {
            let SessionId { slot, key, .. } = self.id;
            out(&Header { slot, key, ack: self.control_receiver.last_received, ..Header::of(Kind::Ack) }.bytes());
        }
    }

    /// Sends a probe to the client.
    pub fn probe(&mut self, now: Time, out: &mut impl FnMut(&[u8])) {
        self.control_sender.probe();
        self.send_control(now, out);
    }

    /// Time at which [`Link::flush`] has something to send by itself.
    pub fn next_timeout(&self) -> Time {
        self.control_sender.due()
    }

    /// Whether the client has acknowledged nothing for so long that it counts as gone.
    pub fn is_timed_out(&self, now: Time) -> bool {
        self.control_sender.unacked_time(now) > PEER_TIMEOUT
    }

    /// The reply to a datagram of an unknown or ended session; `None` if none is due. Only a sender
    /// that knows a session's key gets a reply, and it is never longer than the datagram.
    pub fn close_reply(header: &Header) -> Option<[u8; LEN]> {
        let is_due = matches!(header.kind, Kind::Call | Kind::Control | Kind::Ack);
        is_due.then(|| Header { slot: header.slot, key: header.key, ..Header::of(Kind::Close) }.bytes())
    }
}
