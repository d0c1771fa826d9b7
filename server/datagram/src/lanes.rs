//! A client's calls in flight: at most one per lane. A lane's next call implies that the answer to
//! the previous one has arrived.

use crate::frame;
use crate::header::LEN;
use crate::server::LANES;
use leeward_core::units::{Nanos, Time};

#[derive(Debug)]
struct Lane {
    /// Number of the newest call in this lane, from 1.
    sequence: u64,
    is_busy: bool,
    datagram: Vec<u8>,
    first_sent: Time,
    last_sent: Time,
    due: Time,
    tries: u32,
}

/// Lanes of a session.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    /// The lane that was used last is reused first, so that few lanes exist.
    free: Vec<u16>,
    busy: u32,
    /// No call is due before this time.
    due: Option<Time>,
}

impl Lanes {
    /// Allocates a free lane for a call that is sent now. Returns the call's number and the buffer
    /// of its datagram.
    pub(crate) fn allocate(&mut self, now: Time, due: Time) -> Option<(u64, &mut Vec<u8>)> {
        let index = match self.free.pop() {
            Some(index) => usize::from(index),
            None if self.lanes.len() == LANES => return None,
            None => {
                let (first, last, due) = (now, now, Time::NEVER);
                self.lanes.push(Lane {
                    sequence: 0,
                    is_busy: false,
                    datagram: Vec::new(),
                    first_sent: first,
                    last_sent: last,
                    due,
                    tries: 0,
                });
                self.lanes.len() - 1
            }
        };
        self.busy += 1;
        self.due = Some(self.due().min(due));
        let lane = &mut self.lanes[index];
        lane.sequence += 1;
        (lane.is_busy, lane.first_sent, lane.last_sent, lane.due, lane.tries) = (true, now, now, due, 0);
        Some((lane.sequence << 16 | index as u64, &mut lane.datagram))
    }

    fn busy_lane(&mut self, number: u64) -> Option<(u16, &mut Lane)> {
        let index = (number & 0xFFFF) as u16;
        let lane = self.lanes.get_mut(usize::from(index))?;
        (lane.is_busy && lane.sequence == number >> 16).then_some((index, lane))
    }

    /// Handles an answer to the copy of the call that was sent after so many `tries`. Returns
    /// `None` if no call waits for the answer; otherwise the send time of that copy, if it is
    /// known.
    pub(crate) fn complete(&mut self, number: u64, tries: u32, is_answer: bool) -> Option<Option<Time>> {
        let (index, lane) = self.busy_lane(number).filter(|_| is_answer)?;
        lane.is_busy = false;
        let sent = if tries == 0 { Some(lane.first_sent) } else { (tries == lane.tries).then_some(lane.last_sent) };
        self.free.push(index);
        self.busy -= 1;
        if self.busy == 0 {
            self.due = None;
        }
        Some(sent)
    }

    /// The server is executing the call: the call is sent again after `wait` at the earliest.
    pub(crate) fn on_in_progress(&mut self, now: Time, number: u64, wait: Nanos) -> bool {
        if let Some((_, lane)) = self.busy_lane(number) {
            lane.due = lane.due.max(now + wait);
        }
        false
    }

    /// Sends calls again that are due. `timeout` is the wait after so many tries.
    pub(crate) fn retransmit(
        &mut self,
        now: Time,
        timeout: impl Fn(u32) -> Nanos,
        send: &mut impl FnMut(&mut Vec<u8>, u64, u32),
    ) {
        if now < self.due() {
            return;
        }
        let mut next = None;
        for (index, lane) in self.lanes.iter_mut().enumerate().filter(|(_, lane)| lane.is_busy) {
            if lane.due <= now {
                lane.tries += 1;
                lane.due = now + timeout(lane.tries);
                frame::charge(&mut lane.datagram[LEN..], now.since(lane.last_sent));
                lane.last_sent = now;
                send(&mut lane.datagram, lane.sequence << 16 | index as u64, lane.tries);
            }
            next = Some(next.unwrap_or(Time::NEVER).min(lane.due));
        }
        self.due = next;
    }

    /// No call is due before this time; `NEVER` without calls in flight.
    pub(crate) fn due(&self) -> Time {
        self.due.unwrap_or(Time::NEVER)
    }

    /// Calls in flight.
    pub(crate) fn busy(&self) -> u32 {
        self.busy
    }

    /// Longest time for which a call in flight has waited for its answer.
    pub(crate) fn oldest_wait(&self, now: Time) -> Nanos {
        let busy = self.lanes.iter().filter(|lane| lane.is_busy);
        busy.map(|lane| now.since(lane.first_sent)).max().unwrap_or(Nanos::ZERO)
    }
}
