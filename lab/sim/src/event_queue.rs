//! The event queue of a run. Events at equal times leave it in the order of scheduling.
//!
//! Most events follow their cause after a constant delay (the wire, a client's expiry), so they are
//! scheduled in time order.
//!
//! Each such delay has a *lane*, a plain queue; all other events go to a small heap. The next event
//! is the earliest head. This makes the simulator fast: the heap holds a few dozen entries, not
//! thousands.

use crate::heap::Heap;
use leeward_core::units::Time;
use std::collections::VecDeque;

/// A lane: a queue of events that are scheduled in time order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// The wire from clients to the server.
    ToServer,
    /// The wire from the server to clients.
    ToClient,
    /// Timers of clients.
    Timers,
    /// The next request of a stream.
    Arrivals,
}

const LANES: usize = 4;

/// Sort key: time, then order of scheduling.
type Key = (u64, u64);

const NEVER: Key = (u64::MAX, u64::MAX);

/// Future events of type `E`.
pub(crate) struct EventQueue<E> {
    lanes: [VecDeque<(Key, E)>; LANES],
    heads: [Key; LANES],
    heap: Heap<E>,
    scheduled: u64,
}

impl<E> EventQueue<E> {
    pub(crate) fn new() -> Self {
        EventQueue {
            lanes: std::array::from_fn(|_| VecDeque::new()),
            heads: [NEVER; LANES],
            heap: Heap::new(),
            scheduled: 0,
        }
    }

    /// Schedules `event` at any time. An event at [`Time::NEVER`] is discarded.
    pub(crate) fn schedule(&mut self, at: Time, event: E) {
        if at != Time::NEVER {
            let key = self.key(at);
            self.heap.push(key, event);
        }
    }

    /// Schedules `event` on `lane`, or on the heap if the lane already holds a later event.
    pub(crate) fn schedule_on(&mut self, lane: Lane, at: Time, event: E) {
        if at == Time::NEVER {
            return;
        }
        let key = self.key(at);
        let index = lane as usize;
        let queue = &mut self.lanes[index];
        match queue.back() {
            Some((last, _)) if last.0 > at.0 => self.heap.push(key, event),
            Some(_) => queue.push_back((key, event)),
            None => {
                queue.push_back((key, event));
                self.heads[index] = key;
            }
        }
    }

    /// Schedules the next request of a stream of arrivals, if any, from its time and client.
    pub(crate) fn schedule_arrival(&mut self, next: Option<(Time, u32)>, issue: impl FnOnce(u32) -> E) {
        if let Some((at, client)) = next {
            self.schedule_on(Lane::Arrivals, at, issue(client));
        }
    }

    /// Time of the next event; [`Time::NEVER`] if there is none.
    pub(crate) fn next_time(&self) -> Time {
        let heap = self.heap.head().unwrap_or(NEVER);
        Time(self.heads.iter().fold(heap, |first, head| first.min(*head)).0)
    }

    /// Removes and returns the next event if it is not after `end`.
    pub(crate) fn pop(&mut self, end: Time) -> Option<(Time, E)> {
        let mut first = self.heap.head().unwrap_or(NEVER);
        let mut lane = None;
        for (index, head) in self.heads.iter().enumerate() {
            if *head < first {
                first = *head;
                lane = Some(index);
            }
        }
        if first.0 > end.0 || first == NEVER {
            return None;
        }
        let event = match lane {
            Some(index) => {
                let queue = &mut self.lanes[index];
                let (_, event) = queue.pop_front()?;
                self.heads[index] = queue.front().map_or(NEVER, |(key, _)| *key);
                event
            }
            None => self.heap.pop()?,
        };
        Some((Time(first.0), event))
    }

    fn key(&mut self, at: Time) -> Key {
        self.scheduled += 1;
        (at.0, self.scheduled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a sorted list: events leave by time, then by order of scheduling, in all
        /// lanes.
        #[test]
        fn events_leave_in_order(steps in prop::collection::vec((0u8..6, 0u64..8), 0..300)) {
            let mut queue = EventQueue::new();
            let mut model: Vec<(u64, usize)> = Vec::new();
            let mut now = 0;
            for (index, (step, delay)) in steps.iter().enumerate() {
                let at = Time(now + delay);
                match step {
                    0 => queue.schedule(at, index),
                    1 => queue.schedule_on(Lane::ToServer, at, index),
                    2 => queue.schedule_on(Lane::ToClient, at, index),
                    3 => queue.schedule_on(Lane::Timers, at, index),
                    _ => {
                        let expected = model.iter().min().copied();
                        if let Some(first) = expected {
                            model.retain(|entry| *entry != first);
                            now = first.0;
                        }
                        prop_assert_eq!(queue.next_time(), expected.map_or(Time::NEVER, |(at, _)| Time(at)));
                        prop_assert_eq!(queue.pop(Time(u64::MAX - 1)), expected.map(|(at, index)| (Time(at), index)));
                        continue;
                    }
                }
                model.push((at.0, index));
            }
        }
    }

    #[test]
    fn no_event_after_the_deadline_is_popped() {
        let mut queue = EventQueue::new();
        queue.schedule(Time(5), 'a');
        queue.schedule(Time::NEVER, 'b');
        assert_eq!(queue.pop(Time(4)), None);
        assert_eq!(queue.pop(Time(5)), Some((Time(5), 'a')));
        assert_eq!(queue.pop(Time::NEVER), None);
    }
}
