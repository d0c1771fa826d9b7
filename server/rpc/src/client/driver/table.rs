//! The calls under way, and their deadlines.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use futures_channel::oneshot;
use leeward_core::units::{Nanos, Priority, Time};

use crate::client::call::{CallOptions, Outcome};
use crate::client::shared::NewCall;
use crate::wire::{Method, RequestId};

/// Where a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallLocation {
    /// Nowhere for the moment: on its way to one of the others.
    InTransit,
    /// Waits for a connection.
    Unassigned,
    /// At a connection: waits there for permission to leave, or is sent.
    OnLink { link: usize, request: RequestId },
}

/// A call under way. Its argument is kept until it ends, for it may have to go to another connection.
pub(super) struct PendingCall {
    pub(super) method: Method,
    pub(super) payload: Vec<u8>,
    pub(super) priority: Priority,
    /// Queueing that it may cause in all.
    pub(super) budget: Option<Nanos>,
    pub(super) made: Time,
    pub(super) location: CallLocation,
    /// Replicas that would not have it, a bit each.
    pub(super) excluded: u64,
    pub(super) retries: u32,
    /// Whether it goes over TCP: it does not fit a datagram, or its caller wants that.
    pub(super) over_tcp: bool,
    pub(super) answer: oneshot::Sender<Outcome>,
}

impl PendingCall {
    pub(super) fn new(call: NewCall, random: u64) -> Self {
        let NewCall { method, payload, options, made, answer, .. } = call;
        let priority = options.priority.unwrap_or_else(|| Priority::from_random(random));
        let CallOptions { budget, over_tcp: by_stream, .. } = options;
        let place = CallLocation::InTransit;
        PendingCall {
            method,
            payload,
            priority,
            budget,
            made,
            location: place,
            excluded: 0,
            retries: 0,
            over_tcp: by_stream,
            answer,
        }
    }
}

/// Deadlines of calls that have ended are forgotten when there are more of them than of the others, and these.
const STALE_MAX: usize = 64;

#[derive(Default)]
pub(super) struct CallTable {
    calls: BTreeMap<u64, PendingCall>,
    deadlines: BinaryHeap<Reverse<(Time, u64)>>,
}

impl CallTable {
    pub(super) fn insert(&mut self, number: u64, deadline: Time, call: PendingCall) {
        self.calls.insert(number, call);
        self.deadlines.push(Reverse((deadline, number)));
    }

    pub(super) fn get(&mut self, number: u64) -> Option<&mut PendingCall> {
        self.calls.get_mut(&number)
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<PendingCall> {
        let call = self.calls.remove(&number);
        if self.deadlines.len() > 2 * self.calls.len() + STALE_MAX {
            let calls = &self.calls;
            self.deadlines.retain(|Reverse((_, number))| calls.contains_key(number));
        }
        call
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The oldest call.
    pub(super) fn any(&self) -> Option<u64> {
        self.calls.first_key_value().map(|(number, _)| *number)
    }

    /// A call whose deadline has come. Each is given once.
    pub(super) fn take_overdue(&mut self, now: Time) -> Option<u64> {
        while let Some(Reverse((deadline, number))) = self.deadlines.peek().copied() {
            if deadline > now {
                return None;
            }
            self.deadlines.pop();
            if self.calls.contains_key(&number) {
                return Some(number);
            }
        }
        None
    }

    /// The next deadline, or that of a call which has ended.
    pub(super) fn next_deadline(&self) -> Time {
        self.deadlines.peek().map_or(Time::NEVER, |Reverse((deadline, _))| *deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::call::CallOptions;

    fn call() -> PendingCall {
        let (made, deadline) = (Time(1), Time(2));
        let (options, answer) = (CallOptions::new(), oneshot::channel().0);
        let new = NewCall { method: Method(1), payload: Vec::new(), options, made, deadline, answer };
        PendingCall::new(new, 0)
    }

    #[test]
    fn deadlines_come_in_order_once_and_only_for_the_living() {
        let mut table = CallTable::default();
        for (number, deadline) in [(1, 30), (2, 10), (3, 20)] {
            table.insert(number, Time(deadline), call());
        }
        assert_eq!(table.next_deadline(), Time(10));
        assert!(table.remove(3).is_some());
        assert_eq!(table.take_overdue(Time(9)), None);
        assert_eq!(table.take_overdue(Time(25)), Some(2));
        assert_eq!(table.take_overdue(Time(25)), None);
        assert_eq!(table.take_overdue(Time(30)), Some(1));
        assert_eq!(table.next_deadline(), Time::NEVER);
    }

    #[test]
    fn deadlines_of_the_dead_take_no_room() {
        let mut table = CallTable::default();
        for number in 0..100_000 {
            table.insert(number, Time(u64::MAX - number), call());
            if number >= 10 {
                table.remove(number - 10);
            }
        }
        assert!(table.deadlines.len() <= 2 * 11 + STALE_MAX + 1, "{}", table.deadlines.len());
    }
}
