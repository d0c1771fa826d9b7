//! Frames that are neither call nor answer, told one after another: the next leaves when the one before has been heard. Both
//! ends use it.

use crate::rtt::{TIMEOUT_MAX, TIMEOUT_MIN};
use leeward_core::units::{Nanos, Time};
use leeward_wire::{HEADER_LEN, Kind};
use std::collections::VecDeque;

/// Words that may wait. Those beyond it are lost: the least important ones are, and the peer ends nobody for that.
const QUEUE_MAX: usize = 64;

/// A word: a frame without a payload, or nothing, which asks for a sign of life.
#[derive(Clone, Copy, Debug)]
struct ControlFrame {
    frame: Option<[u8; HEADER_LEN]>,
    /// Place of the frame in the order in which its side said frames.
    order: u64,
}

impl ControlFrame {
    fn frame(&self) -> &[u8] {
        self.frame.as_ref().map_or(&[], |frame| frame)
    }
}

/// A word that is to be told now.
pub(crate) struct OutgoingControl<'a> {
    pub(crate) number: u32,
    pub(crate) frame: &'a [u8],
    pub(crate) order: u64,
    /// Whether it was told before.
    pub(crate) is_retransmit: bool,
}

/// The speaking half.
#[derive(Debug)]
pub(crate) struct ControlSender {
    waiting: VecDeque<ControlFrame>,
    /// Number of the word under way, or of the last one.
    number: u32,
    /// The word under way.
    in_flight: Option<ControlFrame>,
    /// When that was said first.
    first_sent: Time,
    /// When it is said again.
    due: Time,
    tries: u32,
}

impl ControlSender {
    pub(crate) fn new() -> Self {
        let (number, tries) = (0, 0);
        ControlSender {
            waiting: VecDeque::new(),
            number,
            in_flight: None,
            first_sent: Time::ZERO,
            due: Time::NEVER,
            tries,
        }
    }

    /// Has a frame told. Of demands and credits only the newest counts, so it takes the place of one that waits.
    pub(crate) fn push(&mut self, frame: &[u8], order: u64) {
        let Ok(frame) = <[u8; HEADER_LEN]>::try_from(frame) else { return };
        let kind = crate::frame::kind(&frame);
        let new = ControlFrame { frame: Some(frame), order };
        if matches!(kind, Some(Kind::Demand | Kind::Credit)) {
            let same = |word: &&mut ControlFrame| crate::frame::kind(word.frame()) == kind;
            if let Some(word) = self.waiting.iter_mut().find(same) {
                *word = new;
                return;
            }
        }
        if self.waiting.len() < QUEUE_MAX {
            self.waiting.push_back(new);
        }
    }

    /// Asks for a sign of life, unless something is being said anyway.
    pub(crate) fn probe(&mut self) {
        if self.is_idle() {
            self.waiting.push_back(ControlFrame { frame: None, order: 0 });
        }
    }

    /// The other side has heard words up to this number. Whether that is news.
    pub(crate) fn on_ack(&mut self, number: u32) -> bool {
        let is_new = self.in_flight.is_some() && number == self.number;
        if is_new {
            self.in_flight = None;
            self.due = Time::NEVER;
        }
        is_new
    }

    /// The word to be told now.
    pub(crate) fn next(&mut self, now: Time, timeout: Nanos) -> Option<OutgoingControl<'_>> {
        let again = self.in_flight.is_some();
        if !again {
            self.in_flight = Some(self.waiting.pop_front()?);
            self.number = self.number.wrapping_add(1);
            (self.first_sent, self.tries) = (now, 0);
        } else if now < self.due {
            return None;
        } else {
            self.tries += 1;
        }
        let wait = timeout.max(TIMEOUT_MIN).0.saturating_mul(1 << self.tries.min(10)).min(TIMEOUT_MAX.0);
        self.due = now + Nanos(wait);
        let number = self.number;
        self.in_flight.as_ref().map(|word| OutgoingControl {
            number,
            frame: word.frame(),
            order: word.order,
            is_retransmit: again,
        })
    }

    /// When [`Speaker::next`] has something to say.
    pub(crate) fn due(&self) -> Time {
        if self.in_flight.is_none() && !self.waiting.is_empty() { Time::ZERO } else { self.due }
    }

    /// Whether nothing is being said.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.waiting.is_empty()
    }

    /// How long the word under way has been said without being heard.
    pub(crate) fn unacked_time(&self, now: Time) -> Nanos {
        if self.in_flight.is_some() { now.since(self.first_sent) } else { Nanos::ZERO }
    }
}

/// The listening half.
#[derive(Debug, Default)]
pub(crate) struct ControlReceiver {
    /// Number of the newest word.
    pub(crate) last_received: u32,
    /// The other side is owed a sign that words have come.
    pub(crate) ack_pending: bool,
}

impl ControlReceiver {
    /// A word of this number has come. Whether it is the next one, to be handed on.
    pub(crate) fn receive(&mut self, number: u64) -> bool {
        self.ack_pending = true;
        let is_next = number == u64::from(self.last_received.wrapping_add(1));
        if is_next {
            self.last_received = self.last_received.wrapping_add(1);
        }
        is_next
    }

    /// Whether a word of this number would be the next one.
    pub(crate) fn is_next(&self, number: u64) -> bool {
        number == u64::from(self.last_received.wrapping_add(1))
    }
}
