//! The client's end of a link: a handshake that proves the client's address, calls that are sent again until they are answered,
//! and answers that are handed on once.

use crate::DatagramSize;
use crate::bound::Bound;
use crate::frame::{self, Feedback};
use crate::header::{HELLO_LEN, Header, Kind, LEN};
use crate::lanes::Lanes;
use crate::round_trip::RoundTrip;
use crate::server::LANES;
use crate::words::{Listener, Speaker, Told};
use leeward_core::units::{Nanos, Time};
use leeward_wire::Kind as FrameKind;

/// A server that owes something and from which nothing has come for this long is gone.
const GONE: Nanos = Nanos::from_secs(5);

/// Why a link carries nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The server does not know the session, or has ended it.
    #[error("the server has ended the session, or was started again")]
    Over,
    /// Nothing has come for seconds, though it was asked for again and again.
    #[error("the server does not answer")]
    Silent,
}

/// Counts of a link, of everything so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams that were sent again.
    pub retransmitted: u64,
    /// Answers and words that came again.
    pub duplicates: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.retransmitted += other.retransmitted;
        self.duplicates += other.duplicates;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Asks for a cookie.
    Greeting,
    /// Has a cookie and asks for a session.
    Opening,
    Open,
    Over,
}

/// The client's end of one session.
#[derive(Debug)]
pub struct Link {
    size: DatagramSize,
    stage: Stage,
    nonce: u64,
    /// Header with what names the session: after the cookie its cookie, after the welcome its slot and key.
    name: Header,
    port: Option<u16>,
    register: Vec<u8>,
    lanes: Lanes,
    words: Speaker,
    listener: Listener,
    /// The newest window that was told, and its place in the order.
    newest: (u64, Feedback),
    trip: RoundTrip,
    bound: Bound,
    /// When the link was made.
    begun: Time,
    /// When anything came last.
    heard: Time,
    /// The handshake's next datagram, how often it was sent, and when first.
    due: Time,
    tries: u32,
    asked: Time,
    scratch: Vec<u8>,
    counts: Counts,
}

impl Link {
    /// A link about to be made. The nonce is random: it names the session until it has a key. No datagram is longer than `size`,
    /// and the server is told to send none.
    pub fn new(nonce: u64, size: DatagramSize, now: Time) -> Self {
        Link {
            size,
            stage: Stage::Greeting,
            nonce,
            name: Header::of(Kind::Hello),
            port: None,
            register: Vec::new(),
            lanes: Lanes::default(),
            words: Speaker::new(),
            listener: Listener::default(),
            newest: (0, Feedback::default()),
            trip: RoundTrip::default(),
            bound: Bound::new(LANES as u32),
            begun: now,
            heard: now,
            due: now,
            tries: 0,
            asked: now,
            scratch: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// The port to which everything goes from now on, told once: the core that has the session.
    pub fn take_port(&mut self) -> Option<u16> {
        self.port.take()
    }

    /// Calls that may be under way: fewer after a loss.
    pub fn bound(&self) -> u32 {
        self.bound.calls()
    }

    /// Counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The smoothed round trip; zero before anything was measured.
    pub fn round_trip(&self) -> Nanos {
        self.trip.smoothed()
    }

    /// Takes whole frames at the beginning of `frames`, which the connection says, and sends them. Returns the length of those
    /// taken; the others have to wait, until the session is open or for a lane.
    pub fn send(&mut self, now: Time, frames: &[u8], out: &mut impl FnMut(&[u8])) -> usize {
        let mut taken = 0;
        while let Some(length) = frame::length(&frames[taken..]) {
            let frame = &frames[taken..taken + length];
            let is_taken = match (frame::kind(frame), self.stage) {
                (Some(FrameKind::Register), _) => self.register(now, frame),
                (_, Stage::Over) => true,
                (_, Stage::Greeting | Stage::Opening) => false,
                (Some(FrameKind::Call), Stage::Open) => self.call(now, frame, out),
                // A call that has to be sent again must not come after it.
                (Some(FrameKind::Deregister), Stage::Open) if self.lanes.busy() > 0 => false,
                (_, Stage::Open) => {
                    self.words.push(frame, 0);
                    true
                }
            };
            if !is_taken {
                break;
            }
            taken += length;
        }
        self.speak(now, out);
        taken
    }

    fn register(&mut self, now: Time, frame: &[u8]) -> bool {
        self.register.clear();
        self.register.extend_from_slice(frame);
        frame::limit_payload(&mut self.register, self.size.payload() as u32);
        if self.stage == Stage::Opening {
            self.due = now;
        }
        true
    }

    fn call(&mut self, now: Time, frame: &[u8], out: &mut impl FnMut(&[u8])) -> bool {
        if frame.len() + LEN > self.size.bytes() {
            // The welcome has said what fits, and the connection keeps to it.
            debug_assert!(false, "a call that is too long for a datagram");
            return true;
        }
        let Some((number, datagram)) = self.lanes.take(now, now + self.trip.timeout(0)) else { return false };
        Header { kind: Kind::Call, number, heard: self.listener.heard, ..self.name }.write(frame, datagram);
        self.listener.owes = false;
        out(datagram);
        true
    }

    /// Takes a datagram. Returns the frame to be handed on, if there is one that has not been before.
    ///
    /// # Errors
    /// Why the link is over.
    pub fn receive<'a>(&mut self, now: Time, datagram: &'a mut [u8]) -> Result<Option<&'a [u8]>, Lost> {
        let Some((header, _)) = Header::read(datagram) else { return Ok(None) };
        let frame = &mut datagram[LEN..];
        let is_known = match header.kind {
            Kind::Cookie => self.stage == Stage::Greeting && header.key == self.nonce,
            Kind::Welcome => self.stage == Stage::Opening && header.number == self.nonce,
            _ => self.stage == Stage::Open && header.key == self.name.key && header.slot == self.name.slot,
        };
        if !is_known || !(frame.is_empty() || frame::is_whole(frame)) {
            return Ok(None);
        }
        self.heard = now;
        if matches!(header.kind, Kind::Answer | Kind::Taken | Kind::Word | Kind::Heard) {
            self.words.heard(header.heard);
        }
        let is_news = match header.kind {
            Kind::Cookie => self.greeted(now, &header),
            Kind::Welcome => self.welcomed(now, &header, frame),
            Kind::Answer => self.answered(now, &header, frame),
            Kind::Taken => self.lanes.taken(now, header.number, self.trip.timeout(3)),
            Kind::Word => self.hears(&header, frame),
            Kind::Over if frame.is_empty() => {
                self.stage = Stage::Over;
                return Err(Lost::Over);
            }
            Kind::Over => {
                self.stage = Stage::Over;
                true
            }
            _ => false,
        };
        if !is_news || frame.is_empty() {
            return Ok(None);
        }
        self.bring_up_to_date(header.order, frame);
        Ok(Some(frame))
    }

    fn greeted(&mut self, now: Time, cookie: &Header) -> bool {
        if self.tries == 1 {
            self.trip.sample(now.since(self.asked));
        }
        self.port = Some(cookie.slot as u16);
        self.name = Header { slot: 0, ..*cookie };
        (self.stage, self.due, self.tries) = (Stage::Opening, now, 0);
        false
    }

    fn welcomed(&mut self, now: Time, welcome: &Header, frame: &mut [u8]) -> bool {
        if frame::kind(frame) == Some(FrameKind::Welcome) {
            // The server may take longer ones than this end may send.
            frame::limit_payload(frame, self.size.payload() as u32);
        }
        if self.tries == 1 {
            self.trip.sample(now.since(self.asked));
        }
        self.name = Header { slot: welcome.slot, key: welcome.key, number: 0, order: 0, ..self.name };
        (self.stage, self.due) = (Stage::Open, Time::NEVER);
        true
    }

    /// Whether this is the first answer to a call that waits for one.
    fn answered(&mut self, now: Time, header: &Header, frame: &[u8]) -> bool {
        let is_answer = frame::kind(frame).is_some_and(frame::is_answer);
        let Some(sent) = self.lanes.answered(header.number, u32::from_le_bytes(header.mark), is_answer) else {
            self.counts.duplicates += 1;
            return false;
        };
        if let Some(sent) = sent {
            self.trip.sample(now.since(sent));
        }
        self.bound.answered();
        true
    }

    fn hears(&mut self, header: &Header, frame: &[u8]) -> bool {
        let is_word = frame.is_empty()
            || frame::kind(frame)
                .is_some_and(|kind| matches!(kind, FrameKind::Credit | FrameKind::Pong | FrameKind::Ping));
        let is_next = is_word && self.listener.hears(header.number);
        self.counts.duplicates += u64::from(!is_next);
        is_next
    }

    /// "The newest window replaces the last one as a whole", and the network may bring an older one later.
    fn bring_up_to_date(&mut self, order: u64, frame: &mut [u8]) {
        let Some(told) = Feedback::of(frame) else { return };
        let (newest, feedback) = self.newest;
        if order >= newest {
            self.newest = (order, told);
        } else {
            feedback.put(frame);
        }
    }

    fn speak(&mut self, now: Time, out: &mut impl FnMut(&[u8])) {
        if self.stage != Stage::Open {
            return;
        }
        let Some(Told { number, frame, again, .. }) = self.words.next(now, self.trip.timeout(0)) else { return };
        let header = Header { kind: Kind::Word, number: number.into(), heard: self.listener.heard, ..self.name };
        header.write(frame, &mut self.scratch);
        self.listener.owes = false;
        self.counts.retransmitted += u64::from(again);
        out(&self.scratch);
    }

    /// Ends a turn: words that came are acknowledged, unless something that was sent has done so.
    pub fn finish(&mut self, out: &mut impl FnMut(&[u8])) {
        if std::mem::take(&mut self.listener.owes) && self.stage == Stage::Open {
            out(&Header { kind: Kind::Heard, heard: self.listener.heard, ..self.name }.bytes());
        }
    }

    /// Says that this side has gone: as a reset of a stream, told once.
    pub fn leave(&mut self, out: &mut impl FnMut(&[u8])) {
        if self.stage == Stage::Open {
            out(&Header { kind: Kind::Over, ..self.name }.bytes());
        }
        self.stage = Stage::Over;
    }

    /// Sends what is due: the handshake, calls and words that were not answered in time. A spurious call does nothing.
    ///
    /// # Errors
    /// The server is gone.
    pub fn on_timer(&mut self, now: Time, out: &mut impl FnMut(&[u8])) -> Result<(), Lost> {
        match self.stage {
            Stage::Greeting | Stage::Opening if now.since(self.begun) > GONE => {
                self.stage = Stage::Over;
                return Err(Lost::Silent);
            }
            Stage::Greeting | Stage::Opening => self.shake_hands(now, out),
            Stage::Over => return Err(Lost::Over),
            Stage::Open => {
                let owed = self.lanes.waited(now).max(self.words.unheard_for(now));
                if owed.min(now.since(self.heard)) > GONE {
                    self.stage = Stage::Over;
                    return Err(Lost::Silent);
                }
                let Link { lanes, trip, bound, listener, name, counts, .. } = self;
                let (busy, timeout) = (lanes.busy(), trip.timeout(0));
                lanes.repeat(now, |tries| trip.timeout(tries), &mut |datagram, number, tries| {
                    bound.lost(now, busy, timeout);
                    counts.retransmitted += 1;
                    let order = u64::from(tries);
                    let header = Header { kind: Kind::Call, number, order, heard: listener.heard, ..*name };
                    datagram[..LEN].copy_from_slice(&header.bytes());
                    out(datagram);
                });
                self.speak(now, out);
            }
        }
        Ok(())
    }

    fn shake_hands(&mut self, now: Time, out: &mut impl FnMut(&[u8])) {
        if now < self.due {
            return;
        }
        let header = match self.stage {
            Stage::Greeting => Header { key: self.nonce, ..Header::of(Kind::Hello) },
            _ if self.register.is_empty() => {
                self.due = Time::NEVER;
                return;
            }
            _ => Header { kind: Kind::Open, ..self.name },
        };
        let padding = [0; HELLO_LEN - LEN];
        let frame = if self.stage == Stage::Greeting { &padding[..] } else { &self.register };
        header.write(frame, &mut self.scratch);
        if self.tries == 0 {
            self.asked = now;
        }
        self.counts.retransmitted += u64::from(self.tries > 0);
        self.due = now + self.trip.timeout(self.tries);
        self.tries = self.tries.saturating_add(1);
        out(&self.scratch);
    }

    /// When [`Link::on_timer`] has something to do; perhaps earlier.
    pub fn next_timeout(&self) -> Time {
        match self.stage {
            Stage::Greeting | Stage::Opening => self.due,
            Stage::Open => self.lanes.due().min(self.words.due()),
            Stage::Over => Time::NEVER,
        }
    }
}
