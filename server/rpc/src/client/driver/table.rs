//! Calls in flight, with their deadlines.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use futures_channel::oneshot;
use leeward_core::units::{Nanos, Priority, Time};

use crate::client::call::{CallOptions, Outcome};
use crate::client::shared::NewCall;
use crate::wire::{Method, RequestId};

/// Location of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallLocation {
    /// In none of the others for the moment, on its way to one.
    InTransit,
    /// Waits for a connection.
    Unassigned,
    /// At a connection: waits there for credit, or is sent.
    OnLink { link: usize, request: RequestId },
}

/// A call in flight. The table keeps its argument until it ends, because it may have to go to
/// another connection.
pub(super) struct PendingCall {
    pub(super) method: Method,
    pub(super) payload: Vec<u8>,
    pub(super) priority: Priority,
    /// Total queueing delay that the call may cause.
    pub(super) budget: Option<Nanos>,
    pub(super) made: Time,
    pub(super) deadline: Time,
    pub(super) location: CallLocation,
    /// Replicas that the call skips, one bit each.
    pub(super) excluded: u64,
    pub(super) retries: u32,
    /// Whether the call goes over TCP: it does not fit a datagram, or its caller wants that.
    pub(super) over_tcp: bool,
    pub(super) answer: oneshot::Sender<Outcome>,
}

impl PendingCall {
    pub(super) fn new(call: NewCall, random: u64) -> Self {
        let NewCall { method, payload, options, made, deadline, answer } = call;
        let priority = options.priority.unwrap_or_else(|| Priority::from_random(random));
        let CallOptions { budget, over_tcp: tcp, .. } = options;
        let start = CallLocation::InTransit;
        PendingCall {
            method,
            payload,
            priority,
            budget,
            made,
            deadline,
            location: start,
            excluded: 0,
            retries: 0,
            over_tcp: tcp,
            answer,
        }
    }
}

/// Deadlines of ended calls are removed once their number exceeds that of the calls by this.
const STALE_MAX: usize = 64;

#[derive(Default)]
pub(super) struct CallTable {
    calls: BTreeMap<u64, PendingCall>,
    deadlines: BinaryHeap<Reverse<(Time, u64)>>,
}

impl CallTable {
    pub(super) fn insert(&mut self, number: u64, call: PendingCall) {
        self.deadlines.push(Reverse((call.deadline, number)));
        self.calls.insert(number, call);
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

    /// Removes and returns a call whose deadline has passed; returns each call once.
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

    /// The next deadline, possibly of an ended call.
    pub(super) fn next_deadline(&self) -> Time {
        self.deadlines.peek().map_or(Time::NEVER, |Reverse((deadline, _))| *deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::call::CallOptions;

    fn call(deadline: Time) -> PendingCall {
        let made = Time(1);
        let (options, answer) = (CallOptions::new(), oneshot::channel().0);
        let new = NewCall { method: Method(1), payload: Vec::new(), options, made, deadline, answer };
        PendingCall::new(new, 0)
    }

    #[test]
    fn deadlines_expire_once_in_order_and_only_for_open_calls() {
        let mut table = CallTable::default();
        for (number, deadline) in [(1, 30), (2, 10), (3, 20)] {
            table.insert(number, call(Time(deadline)));
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
    fn deadlines_of_ended_calls_are_removed() {
        let mut table = CallTable::default();
        for number in 0..100_000 {
            table.insert(number, call(Time(u64::MAX - number)));
            if number >= 10 {
                table.remove(number - 10);
            }
        }
        assert!(table.deadlines.len() <= 2 * 11 + STALE_MAX + 1, "{}", table.deadlines.len());
    }
}
