//! Line of waiters, in order of arrival: a list in a slab, so that waiting allocates nothing once it has room, leaving
//! from the middle is cheap, and no pointer is needed. Pure: the time is an argument, and no thread is woken here.

use leeward_core::units::Time;
use std::task::Waker;

/// A waiter's place, from [`List::push`] to [`List::remove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaiterId(usize);

/// How far a waiter has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaiterStage {
    /// In the line.
    Waiting,
    /// Still in the line, and on its way to try.
    Woken,
    /// Out of the line: it has what it waits for and does not know it yet.
    Granted,
    /// Out of the line: there will be nothing to wait for any more.
    Closed,
    /// Out of the line: its turn came after it could still be of use.
    Late,
}

/// Deadline of a waiter that is never too late.
pub(super) const NO_DEADLINE: Time = Time(u64::MAX);

struct Waiter {
    stage: WaiterStage,
    since: Time,
    /// After that it does not want it any more.
    deadline: Time,
    /// Number of permits that the waiter wants, in the unit of the list's owner.
    count: u64,
    /// Whether it has been woken before, and others were quicker.
    overtaken: bool,
    waker: Option<Waker>,
    before: Option<usize>,
    after: Option<usize>,
}

/// Content of a place.
enum Slot {
    Occupied(Waiter),
    /// The next free one.
    Free(Option<usize>),
}

/// The line, and the waiters that have left it and have not been told.
#[derive(Default)]
pub(super) struct WaitList {
    slots: Vec<Slot>,
    free: Option<usize>,
    first: Option<usize>,
    last: Option<usize>,
    len: usize,
}

/// The waiter at the head of the line: what it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FirstWaiter {
    pub(super) id: WaiterId,
    pub(super) since: Time,
    pub(super) deadline: Time,
    pub(super) count: u64,
    pub(super) overtaken: bool,
}

impl WaitList {
    /// Joins the line at its end.
    pub(super) fn push(&mut self, since: Time, until: Time, count: u64, waker: Option<Waker>) -> WaiterId {
        let waiter = Waiter {
            stage: WaiterStage::Waiting,
            since,
            deadline: until,
            count,
            overtaken: false,
            waker,
            before: self.last,
            after: None,
        };
        let index = match self.free {
            Some(index) => {
                if let Slot::Free(next) = self.slots[index] {
                    self.free = next;
                }
                self.slots[index] = Slot::Occupied(waiter);
                index
            }
            None => {
                self.slots.push(Slot::Occupied(waiter));
                self.slots.len() - 1
            }
        };
        match self.last {
            Some(last) => self.waiter(last).after = Some(index),
            None => self.first = Some(index),
        }
        self.last = Some(index);
        self.len += 1;
        WaiterId(index)
    }

    /// The first in the line.
    pub(super) fn first(&self) -> Option<FirstWaiter> {
        let place = self.first?;
        match &self.slots[place] {
            Slot::Occupied(Waiter { since, deadline: until, count, overtaken, .. }) => Some(FirstWaiter {
                id: WaiterId(place),
                since: *since,
                deadline: *until,
                count: *count,
                overtaken: *overtaken,
            }),
            Slot::Free(_) => None,
        }
    }

    /// How many are in the line.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn stage(&mut self, place: WaiterId) -> WaiterStage {
        self.waiter(place.0).stage
    }

    /// Replaces the waker of a waiter that goes on waiting. Returns the one before, for the caller to drop: that may run code
    /// of its task.
    #[must_use]
    pub(super) fn set_waker(&mut self, place: WaiterId, waker: &Waker) -> Option<Waker> {
        let known = &mut self.waiter(place.0).waker;
        match known {
            Some(known) if known.will_wake(waker) => None,
            _ => known.replace(waker.clone()),
        }
    }

    /// The waiter is on its way, keeping its place in the line. Returns its waker, for the caller to call.
    pub(super) fn mark_woken(&mut self, place: WaiterId) -> Option<Waker> {
        let waiter = self.waiter(place.0);
        waiter.stage = WaiterStage::Woken;
        waiter.waker.take()
    }

    /// The waiter was sent and came too late: it waits on where it was. As [`List::wait_on`].
    #[must_use]
    pub(super) fn mark_overtaken(&mut self, place: WaiterId, waker: &Waker) -> Option<Waker> {
        let waiter = self.waiter(place.0);
        waiter.stage = WaiterStage::Waiting;
        waiter.overtaken = true;
        self.set_waker(place, waker)
    }

    /// Takes the waiter out of the line with an outcome for it to find. Returns its waker, for the caller to call.
    pub(super) fn resolve(&mut self, place: WaiterId, outcome: WaiterStage) -> Option<Waker> {
        self.unlink(place);
        let waiter = self.waiter(place.0);
        waiter.stage = outcome;
        waiter.waker.take()
    }

    /// The waiter goes, wherever it is. Returns what it has not been told of, and its waker, for the caller to drop.
    pub(super) fn remove(&mut self, place: WaiterId) -> (WaiterStage, Option<Waker>) {
        let stage = self.stage(place);
        if matches!(stage, WaiterStage::Waiting | WaiterStage::Woken) {
            self.unlink(place);
        }
        let slot = std::mem::replace(&mut self.slots[place.0], Slot::Free(self.free));
        self.free = Some(place.0);
        let Slot::Occupied(waiter) = slot else { unreachable!("a place is removed once") };
        (stage, waiter.waker)
    }

    fn unlink(&mut self, place: WaiterId) {
        let waiter = self.waiter(place.0);
        let (before, after) = (waiter.before.take(), waiter.after.take());
        match before {
            Some(before) => self.waiter(before).after = after,
            None => self.first = after,
        }
        match after {
            Some(after) => self.waiter(after).before = before,
            None => self.last = before,
        }
        self.len -= 1;
    }

    fn waiter(&mut self, index: usize) -> &mut Waiter {
        match &mut self.slots[index] {
            Slot::Occupied(waiter) => waiter,
            Slot::Free(_) => unreachable!("a place is its waiter's until that removes it"),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Compares the list with a plain queue of numbers: the same order, whichever waiter leaves from wherever;
        /// places are used again.
        #[test]
        fn is_a_queue_that_one_can_leave(steps in prop::collection::vec((0u8..4, 0usize..8), 0..300)) {
            let mut list = WaitList::default();
            let mut line: VecDeque<(WaiterId, u64)> = VecDeque::new();
            let mut settled: Vec<WaiterId> = Vec::new();
            let mut most = 0;
            for (now, (step, which)) in steps.into_iter().enumerate() {
                let now = now as u64;
                match step {
                    0 | 1 => line.push_back((list.push(Time(now), NO_DEADLINE, now, None), now)),
                    2 if which < line.len() => {
                        let (place, _) = line.remove(which).unwrap();
                        prop_assert_eq!(list.remove(place).0, WaiterStage::Waiting);
                    }
                    2 => {
                        if let Some(place) = settled.pop() {
                            prop_assert_eq!(list.remove(place).0, WaiterStage::Granted);
                        }
                    }
                    _ => {
                        if let Some((place, _)) = line.pop_front() {
                            list.resolve(place, WaiterStage::Granted);
                            settled.push(place);
                        }
                    }
                }
                most = most.max(line.len() + settled.len());
                let first = list.first().map(|first| (first.id, first.count, first.since));
                prop_assert_eq!(first, line.front().map(|(place, count)| (*place, *count, Time(*count))));
                prop_assert_eq!(list.len(), line.len());
                prop_assert!(list.slots.len() <= most, "room for those there were at once");
            }
        }
    }
}
