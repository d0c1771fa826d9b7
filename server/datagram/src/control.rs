//! Control frames, which are neither call nor answer, are sent one after another; the next one is
//! sent when the previous one is acknowledged. Both ends use this module.

use crate::rtt::{TIMEOUT_MAX, TIMEOUT_MIN};
use leeward_core::units::{Nanos, Time};
use leeward_wire::{HEADER_LEN, Kind};
use std::collections::VecDeque;

/// Control frames that may wait. Frames beyond the limit are lost: they are the least important
/// ones, and the peer closes no session for a lost one.
const QUEUE_MAX: usize = 64;

/// A control frame without a payload, or an empty one as a probe.
#[derive(Clone, Copy, Debug)]
struct ControlFrame {
    frame: Option<[u8; HEADER_LEN]>,
    /// Position of the frame in the order in which its side produced frames.
    order: u64,
}

impl ControlFrame {
    fn frame(&self) -> &[u8] {
        self.frame.as_ref().map_or(&[], |frame| frame)
    }
}

/// A control frame that is to be sent now.
pub(crate) struct OutgoingControl<'a> {
    pub(crate) number: u32,
    pub(crate) frame: &'a [u8],
    pub(crate) order: u64,
    /// Whether the frame was sent before.
    pub(crate) is_retransmit: bool,
}

/// Sending half of the control channel.
#[derive(Debug)]
pub(crate) struct ControlSender {
    waiting: VecDeque<ControlFrame>,
    /// Number of the frame in flight, or of the last one.
    number: u32,
    /// The frame in flight.
    in_flight: Option<ControlFrame>,
    /// Time of the first transmission.
    first_sent: Time,
    /// Time of the next transmission.
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

    /// Queues a frame. Only the newest demand or credit counts, so it replaces a waiting one.
    pub(crate) fn push(&mut self, frame: &[u8], order: u64) {
        let Ok(frame) = <[u8; HEADER_LEN]>::try_from(frame) else { return };
        let kind = crate::frame::kind(&frame);
        let new = ControlFrame { frame: Some(frame), order };
        if matches!(kind, Some(Kind::Demand | Kind::Credit)) {
            let same = |queued: &&mut ControlFrame| crate::frame::kind(queued.frame()) == kind;
            if let Some(queued) = self.waiting.iter_mut().find(same) {
                *queued = new;
                return;
            }
        }
        if self.waiting.len() < QUEUE_MAX {
            self.waiting.push_back(new);
        }
    }

    /// Queues a probe, unless another control frame is in flight or waits.
    pub(crate) fn probe(&mut self) {
        if self.is_idle() {
            self.waiting.push_back(ControlFrame { frame: None, order: 0 });
        }
    }

    /// Handles an acknowledgement of the frames up to this number. Returns whether it is new.
    pub(crate) fn on_ack(&mut self, number: u32) -> bool {
        let is_new = self.in_flight.is_some() && number == self.number;
        if is_new {
            self.in_flight = None;
            self.due = Time::NEVER;
        }
        is_new
    }

    /// The frame to be sent now.
    pub(crate) fn next(&mut self, now: Time, timeout: Nanos) -> Option<OutgoingControl<'_>> {
        let sent_before = self.in_flight.is_some();
        if !sent_before {
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
        self.in_flight.as_ref().map(|control| OutgoingControl {
            number,
            frame: control.frame(),
            order: control.order,
            is_retransmit: sent_before,
        })
    }

    /// Time at which [`ControlSender::next`] has a frame to send.
    pub(crate) fn due(&self) -> Time {
        if self.in_flight.is_none() && !self.waiting.is_empty() { Time::ZERO } else { self.due }
    }

    /// Whether no frame waits or is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.waiting.is_empty()
    }

    /// Time for which the frame in flight has been unacknowledged.
    pub(crate) fn unacked_time(&self, now: Time) -> Nanos {
        if self.in_flight.is_some() { now.since(self.first_sent) } else { Nanos::ZERO }
    }
}

/// Receiving half of the control channel.
#[derive(Debug, Default)]
pub(crate) struct ControlReceiver {
    /// Number of the newest frame.
    pub(crate) last_received: u32,
    /// An acknowledgement is pending.
    pub(crate) ack_pending: bool,
}

impl ControlReceiver {
    /// Handles a frame with this number. Returns whether it is the next one, to be passed on.
    pub(crate) fn receive(&mut self, number: u64) -> bool {
        self.ack_pending = true;
        let is_next = number == u64::from(self.last_received.wrapping_add(1));
        if is_next {
            self.last_received = self.last_received.wrapping_add(1);
        }
        is_next
    }

    /// Whether a frame with this number would be the next one.
    pub(crate) fn is_next(&self, number: u64) -> bool {
        number == u64::from(self.last_received.wrapping_add(1))
    }
}
