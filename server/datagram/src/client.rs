//! The client's end of a link: a handshake that validates the client's address, calls that are sent
//! again until they are answered, and answers that are passed on once.

use crate::DatagramSize;
use crate::congestion::CongestionWindow;
use crate::control::{ControlReceiver, ControlSender, OutgoingControl};
use crate::frame::{self, Feedback};
use crate::header::{HELLO_LEN, Header, Kind, LEN};
use crate::lanes::Lanes;
use crate::rtt::RttEstimator;
use crate::server::LANES;
use leeward_core::units::{Nanos, Time};
use leeward_wire::Kind as FrameKind;

/// Silence after which a server that still has something to answer counts as gone.
const PEER_TIMEOUT: Nanos = Nanos::from_secs(5);

/// Error that ended a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The server does not know the session, or has ended it.
    #[error("the server has ended the session, or has restarted")]
    SessionClosed,
    /// Nothing arrived for 5 s, although the client sent its datagrams again and again.
    #[error("the server does not answer")]
    TimedOut,
}

/// Counters of a link, since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Datagrams that were sent again.
    pub retransmitted: u64,
    /// Duplicate answers and control frames.
    pub duplicates: u64,
}

impl std::ops::AddAssign for LinkCounts {
    fn add_assign(&mut self, other: Self) {
        self.retransmitted += other.retransmitted;
        self.duplicates += other.duplicates;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Requests a cookie.
    AwaitingCookie,
    /// Has a cookie and requests a session.
    AwaitingWelcome,
    Open,
    Closed,
}

/// The client's end of one session.
#[derive(Debug)]
pub struct Link {
    size: DatagramSize,
    stage: Stage,
    nonce: u64,
    /// Header fields that identify the session: after the cookie the cookie, after the welcome slot
    /// and key.
    session_header: Header,
    port: Option<u16>,
    register: Vec<u8>,
    lanes: Lanes,
    control_sender: ControlSender,
    control_receiver: ControlReceiver,
    /// The newest window that arrived, and its position in the server's order.
    newest_feedback: (u64, Feedback),
    rtt: RttEstimator,
    congestion_window: CongestionWindow,
    /// Creation time of the link.
    created: Time,
    /// Arrival time of the last datagram.
    last_received: Time,
    /// Time of the handshake's next datagram, number of transmissions, and time of the first one.
    due: Time,
    tries: u32,
    first_sent: Time,
    scratch: Vec<u8>,
    counts: LinkCounts,
}

impl Link {
    /// Creates a link that has sent nothing. The random nonce identifies the session until it has a
    /// key.
    ///
    /// No datagram is longer than `size`, and the server learns this limit from the registration.
    pub fn new(nonce: u64, size: DatagramSize, now: Time) -> Self {
        Link {
            size,
            stage: Stage::AwaitingCookie,
            nonce,
            session_header: Header::of(Kind::Hello),
            port: None,
            register: Vec::new(),
            lanes: Lanes::default(),
            control_sender: ControlSender::new(),
            control_receiver: ControlReceiver::default(),
            newest_feedback: (0, Feedback::default()),
            rtt: RttEstimator::default(),
            congestion_window: CongestionWindow::new(LANES as u32),
            created: now,
            last_received: now,
            due: now,
            tries: 0,
            first_sent: now,
            scratch: Vec::new(),
            counts: LinkCounts::default(),
        }
    }

    /// The port of the core that holds the session, once. All later datagrams go to it.
    pub fn take_port(&mut self) -> Option<u16> {
        self.port.take()
    }

    /// Calls that may be in flight: fewer after a loss.
    pub fn congestion_window(&self) -> u32 {
        self.congestion_window.calls()
    }

    /// Counters so far.
    pub fn counts(&self) -> LinkCounts {
        self.counts
    }

    /// The smoothed round trip; zero before the first measurement.
    pub fn round_trip(&self) -> Nanos {
        self.rtt.smoothed()
    }

    /// Sends the whole frames at the beginning of `frames`. Returns the length of the frames that
    /// were taken; the others wait for the session or for a free lane.
    pub fn send(&mut self, now: Time, frames: &[u8], out: &mut impl FnMut(&[u8])) -> usize {
        let mut taken = 0;
        while let Some(length) = frame::length(&frames[taken..]) {
            let frame = &frames[taken..taken + length];
            let is_taken = match (frame::kind(frame), self.stage) {
                (Some(FrameKind::Register), _) => self.register(now, frame),
                (_, Stage::Closed) => true,
                (_, Stage::AwaitingCookie | Stage::AwaitingWelcome) => false,
                (Some(FrameKind::Call), Stage::Open) => self.call(now, frame, out),
                // A retransmitted call must not arrive after the deregistration.
                (Some(FrameKind::Deregister), Stage::Open) if self.lanes.busy() > 0 => false,
                (_, Stage::Open) => {
                    self.control_sender.push(frame, 0);
                    true
                }
            };
            if !is_taken {
                break;
            }
            taken += length;
        }
        self.send_control(now, out);
        taken
    }

    fn register(&mut self, now: Time, frame: &[u8]) -> bool {
        self.register.clear();
        self.register.extend_from_slice(frame);
        frame::limit_payload(&mut self.register, self.size.payload() as u32);
        if self.stage == Stage::AwaitingWelcome {
            self.due = now;
        }
        true
    }

    fn call(&mut self, now: Time, frame: &[u8], out: &mut impl FnMut(&[u8])) -> bool {
        if frame.len() + LEN > self.size.bytes() {
            // The welcome has announced the longest payload that fits, and the connection respects
            // it.
            debug_assert!(false, "a call that is too long for a datagram");
            return true;
        }
        let Some((number, datagram)) = self.lanes.allocate(now, now + self.rtt.timeout(0)) else { return false };
        Header { kind: Kind::Call, number, ack: self.control_receiver.last_received, ..self.session_header }
            .write(frame, datagram);
        self.control_receiver.ack_pending = false;
        out(datagram);
        true
    }

    /// Handles a datagram. Returns its frame if it is to be passed on, which happens once per
    /// frame.
    ///
    /// # Errors
    /// The reason for which the link has ended.
    pub fn receive<'a>(&mut self, now: Time, datagram: &'a mut [u8]) -> Result<Option<&'a [u8]>, LinkError> {
        let Some((header, _)) = Header::read(datagram) else { return Ok(None) };
        let frame = &mut datagram[LEN..];
        let is_known = match header.kind {
            Kind::Cookie => self.stage == Stage::AwaitingCookie && header.key == self.nonce,
            Kind::Welcome => self.stage == Stage::AwaitingWelcome && header.number == self.nonce,
            _ => {
                self.stage == Stage::Open
                    && header.key == self.session_header.key
                    && header.slot == self.session_header.slot
            }
        };
        if !is_known || !(frame.is_empty() || frame::is_whole(frame)) {
            return Ok(None);
        }
        self.last_received = now;
        if matches!(header.kind, Kind::Answer | Kind::InProgress | Kind::Control | Kind::Ack) {
            self.control_sender.on_ack(header.ack);
        }
        let is_news = match header.kind {
            Kind::Cookie => self.on_cookie(now, &header),
            Kind::Welcome => self.on_welcome(now, &header, frame),
            Kind::Answer => self.on_answer(now, &header, frame),
            Kind::InProgress => self.lanes.on_in_progress(now, header.number, self.rtt.timeout(3)),
            Kind::Control => self.on_control(&header, frame),
            Kind::Close if frame.is_empty() => {
                self.stage = Stage::Closed;
                return Err(LinkError::SessionClosed);
            }
            Kind::Close => {
                self.stage = Stage::Closed;
                true
            }
            _ => false,
        };
        if !is_news || frame.is_empty() {
            return Ok(None);
        }
        self.refresh_feedback(header.order, frame);
        Ok(Some(frame))
    }

    fn on_cookie(&mut self, now: Time, cookie: &Header) -> bool {
        if self.tries == 1 {
            self.rtt.sample(now.since(self.first_sent));
        }
        self.port = Some(cookie.slot as u16);
        self.session_header = Header { slot: 0, ..*cookie };
        (self.stage, self.due, self.tries) = (Stage::AwaitingWelcome, now, 0);
        false
    }

    fn on_welcome(&mut self, now: Time, welcome: &Header, frame: &mut [u8]) -> bool {
        if frame::kind(frame) == Some(FrameKind::Welcome) {
            // The server may accept longer payloads than this end may send.
            frame::limit_payload(frame, self.size.payload() as u32);
        }
        if self.tries == 1 {
            self.rtt.sample(now.since(self.first_sent));
        }
        self.session_header =
            Header { slot: welcome.slot, key: welcome.key, number: 0, order: 0, ..self.session_header };
        (self.stage, self.due) = (Stage::Open, Time::NEVER);
        true
    }

    /// Whether this is the first answer to a call that waits for one.
    fn on_answer(&mut self, now: Time, header: &Header, frame: &[u8]) -> bool {
        let is_answer = frame::kind(frame).is_some_and(frame::is_answer);
        let Some(sent) = self.lanes.complete(header.number, u32::from_le_bytes(header.mark), is_answer) else {
            self.counts.duplicates += 1;
            return false;
        };
        if let Some(sent) = sent {
            self.rtt.sample(now.since(sent));
        }
        self.congestion_window.on_answer();
        true
    }

    fn on_control(&mut self, header: &Header, frame: &[u8]) -> bool {
        let is_valid = frame.is_empty()
            || frame::kind(frame)
                .is_some_and(|kind| matches!(kind, FrameKind::Credit | FrameKind::Pong | FrameKind::Ping));
        let is_next = is_valid && self.control_receiver.receive(header.number);
        self.counts.duplicates += u64::from(!is_next);
        is_next
    }

    /// The protocol: "The newest window replaces the last one as a whole." The network may deliver
    /// an older window later.
    fn refresh_feedback(&mut self, order: u64, frame: &mut [u8]) {
        let Some(carried) = Feedback::of(frame) else { return };
        let (newest, feedback) = self.newest_feedback;
        if order >= newest {
            self.newest_feedback = (order, carried);
        } else {
            feedback.write_to(frame);
        }
    }

    fn send_control(&mut self, now: Time, out: &mut impl FnMut(&[u8])) {
        if self.stage != Stage::Open {
            return;
        }
        let Some(OutgoingControl { number, frame, is_retransmit: sent_before, .. }) =
            self.control_sender.next(now, self.rtt.timeout(0))
        else {
            return;
        };
        let header = Header {
            kind: Kind::Control,
            number: number.into(),
            ack: self.control_receiver.last_received,
            ..self.session_header
        };
        header.write(frame, &mut self.scratch);
        self.control_receiver.ack_pending = false;
        self.counts.retransmitted += u64::from(sent_before);
        out(&self.scratch);
    }

    /// Ends a poll: acknowledges control frames, unless another datagram has done so.
    pub fn flush(&mut self, out: &mut impl FnMut(&[u8])) {
        if std::mem::take(&mut self.control_receiver.ack_pending) && self.stage == Stage::Open {
            out(&Header { kind: Kind::Ack, ack: self.control_receiver.last_received, ..self.session_header }.bytes());
        }
    }

    /// Notifies the server, once, that this side has gone, like a stream's reset.
    pub fn close(&mut self, out: &mut impl FnMut(&[u8])) {
        if self.stage == Stage::Open {
            out(&Header { kind: Kind::Close, ..self.session_header }.bytes());
        }
        self.stage = Stage::Closed;
    }

    /// Sends due datagrams: the handshake, and calls and control frames that were not answered in
    /// time. A spurious call has no effect.
    ///
    /// # Errors
    /// The server is gone.
    pub fn on_timer(&mut self, now: Time, out: &mut impl FnMut(&[u8])) -> Result<(), LinkError> {
        match self.stage {
            Stage::AwaitingCookie | Stage::AwaitingWelcome if now.since(self.created) > PEER_TIMEOUT => {
                self.stage = Stage::Closed;
                return Err(LinkError::TimedOut);
            }
            Stage::AwaitingCookie | Stage::AwaitingWelcome => self.send_handshake(now, out),
            Stage::Closed => return Err(LinkError::SessionClosed),
            Stage::Open => {
                let unanswered = self.lanes.oldest_wait(now).max(self.control_sender.unacked_time(now));
                if unanswered.min(now.since(self.last_received)) > PEER_TIMEOUT {
                    self.stage = Stage::Closed;
                    return Err(LinkError::TimedOut);
                }
                let Link {
                    lanes,
                    rtt: estimator,
                    congestion_window: window,
                    control_receiver: receiver,
                    session_header: identity,
                    counts,
                    ..
                } = self;
                let (busy, timeout) = (lanes.busy(), estimator.timeout(0));
                lanes.retransmit(now, |tries| estimator.timeout(tries), &mut |datagram, number, tries| {
                    window.on_loss(now, busy, timeout);
                    counts.retransmitted += 1;
                    let order = u64::from(tries);
                    let header = Header { kind: Kind::Call, number, order, ack: receiver.last_received, ..*identity };
                    datagram[..LEN].copy_from_slice(&header.bytes());
                    out(datagram);
                });
                self.send_control(now, out);
            }
        }
        Ok(())
    }

    fn send_handshake(&mut self, now: Time, out: &mut impl FnMut(&[u8])) {
        if now < self.due {
            return;
        }
        let header = match self.stage {
            Stage::AwaitingCookie => Header { key: self.nonce, ..Header::of(Kind::Hello) },
            _ if self.register.is_empty() => {
                self.due = Time::NEVER;
                return;
            }
            _ => Header { kind: Kind::Open, ..self.session_header },
        };
        let padding = [0; HELLO_LEN - LEN];
        let frame = if self.stage == Stage::AwaitingCookie { &padding[..] } else { &self.register };
        header.write(frame, &mut self.scratch);
        if self.tries == 0 {
            self.first_sent = now;
        }
        self.counts.retransmitted += u64::from(self.tries > 0);
        self.due = now + self.rtt.timeout(self.tries);
        self.tries = self.tries.saturating_add(1);
        out(&self.scratch);
    }

    /// Time of the next [`Link::on_timer`] with something to do; perhaps too early.
    pub fn next_timeout(&self) -> Time {
        match self.stage {
            Stage::AwaitingCookie | Stage::AwaitingWelcome => self.due,
            Stage::Open => self.lanes.due().min(self.control_sender.due()),
            Stage::Closed => Time::NEVER,
        }
    }
}
