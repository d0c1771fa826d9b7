//! A queue of waiters in order of arrival. It is a linked list in a slab. A new waiter allocates
//! nothing while a slot is free, leaving from the middle is cheap, and no pointer is needed. Pure:
//! time is an argument, and no thread is woken here.

use leeward_core::units::Time;
use std::task::Waker;

/// Slot of a waiter, valid from [`WaitList::push`] to [`WaitList::remove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaiterId(usize);

/// Stage of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaiterStage {
    /// In the queue.
    Waiting,
    /// Still in the queue, woken and about to try.
    Woken,
    /// Out of the queue, with its permits. The waiter has not seen this yet.
    Granted,
    /// Out of the queue, because the resource was closed.
    Closed,
    /// Out of the queue: its turn came after its deadline.
    Late,
}

/// Deadline of a waiter that is never too late.
pub(super) const NO_DEADLINE: Time = Time(u64::MAX);

struct Waiter {
    stage: WaiterStage,
    since: Time,
    /// Time after which the waiter no longer wants its permits.
    deadline: Time,
    /// Number of permits that the waiter wants, in the unit of the list's owner.
    count: u64,
    /// Whether it was woken before, and other threads were quicker.
    overtaken: bool,
    waker: Option<Waker>,
    before: Option<usize>,
    after: Option<usize>,
}

/// Content of a slot.
enum Slot {
    Occupied(Waiter),
    /// A free slot; holds the index of the next free one.
    Free(Option<usize>),
}

/// The queue, and waiters out of it that have not seen their outcome.
#[derive(Default)]
pub(super) struct WaitList {
    slots: Vec<Slot>,
    free: Option<usize>,
    first: Option<usize>,
    last: Option<usize>,
    len: usize,
}

/// The first waiter and its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FirstWaiter {
    pub(super) id: WaiterId,
    pub(super) since: Time,
    pub(super) deadline: Time,
    pub(super) count: u64,
    pub(super) overtaken: bool,
}

impl WaitList {
    /// Adds a waiter at the end of the queue.
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

    /// Returns the first waiter.
    pub(super) fn first(&self) -> Option<FirstWaiter> {
        let index = self.first?;
        match &self.slots[index] {
            Slot::Occupied(Waiter { since, deadline: until, count, overtaken, .. }) => Some(FirstWaiter {
                id: WaiterId(index),
                since: *since,
                deadline: *until,
                count: *count,
                overtaken: *overtaken,
            }),
            Slot::Free(_) => None,
        }
    }

    /// Number of waiters in the queue.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn stage(&mut self, id: WaiterId) -> WaiterStage {
        self.waiter(id.0).stage
    }

    /// Replaces the waker of a waiter that keeps waiting. Returns the previous one for the caller
    /// to drop, which may run code of its task.
    #[must_use]
    pub(super) fn set_waker(&mut self, id: WaiterId, waker: &Waker) -> Option<Waker> {
        let known = &mut self.waiter(id.0).waker;
        match known {
            Some(known) if known.will_wake(waker) => None,
            _ => known.replace(waker.clone()),
        }
    }

    /// Marks the waiter as woken; it keeps its position. Returns its waker, for the caller to call.
    pub(super) fn mark_woken(&mut self, id: WaiterId) -> Option<Waker> {
        let waiter = self.waiter(id.0);
        waiter.stage = WaiterStage::Woken;
        waiter.waker.take()
    }

    /// Marks a woken waiter as overtaken; it waits on at its position. Otherwise as
    /// [`WaitList::set_waker`].
    #[must_use]
    pub(super) fn mark_overtaken(&mut self, id: WaiterId, waker: &Waker) -> Option<Waker> {
        let waiter = self.waiter(id.0);
        waiter.stage = WaiterStage::Waiting;
        waiter.overtaken = true;
        self.set_waker(id, waker)
    }

    /// Takes the waiter out of the queue with an outcome. Returns its waker, for the caller to
    /// call.
    pub(super) fn resolve(&mut self, id: WaiterId, outcome: WaiterStage) -> Option<Waker> {
        self.unlink(id);
        let waiter = self.waiter(id.0);
        waiter.stage = outcome;
        waiter.waker.take()
    }

    /// Removes the waiter, in the queue or not. Returns its last stage, and its waker for the
    /// caller to drop.
    pub(super) fn remove(&mut self, id: WaiterId) -> (WaiterStage, Option<Waker>) {
        let stage = self.stage(id);
        if matches!(stage, WaiterStage::Waiting | WaiterStage::Woken) {
            self.unlink(id);
        }
        let slot = std::mem::replace(&mut self.slots[id.0], Slot::Free(self.free));
        self.free = Some(id.0);
        let Slot::Occupied(waiter) = slot else { unreachable!("a place is removed once") };
        (stage, waiter.waker)
    }

    fn unlink(&mut self, id: WaiterId) {
        let waiter = self.waiter(id.0);
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
        /// Compares the list with a plain queue of numbers: the order is the same, whichever waiter
        /// leaves from any position. Slots are reused.
        #[test]
        fn waiters_may_leave_from_any_position_and_keep_their_order(steps in prop::collection::vec((0u8..4, 0usize..8), 0..300)) {
            let mut list = WaitList::default();
            let mut expected: VecDeque<(WaiterId, u64)> = VecDeque::new();
            let mut resolved: Vec<WaiterId> = Vec::new();
            let mut most = 0;
            for (now, (step, which)) in steps.into_iter().enumerate() {
                let now = now as u64;
                match step {
                    0 | 1 => expected.push_back((list.push(Time(now), NO_DEADLINE, now, None), now)),
                    2 if which < expected.len() => {
                        let (id, _) = expected.remove(which).unwrap();
                        prop_assert_eq!(list.remove(id).0, WaiterStage::Waiting);
                    }
                    2 => {
                        if let Some(id) = resolved.pop() {
                            prop_assert_eq!(list.remove(id).0, WaiterStage::Granted);
                        }
                    }
                    _ => {
                        if let Some((id, _)) = expected.pop_front() {
                            list.resolve(id, WaiterStage::Granted);
                            resolved.push(id);
                        }
                    }
                }
                most = most.max(expected.len() + resolved.len());
                let first = list.first().map(|first| (first.id, first.count, first.since));
                prop_assert_eq!(first, expected.front().map(|(id, count)| (*id, *count, Time(*count))));
                prop_assert_eq!(list.len(), expected.len());
                prop_assert!(list.slots.len() <= most, "room for those there were at once");
            }
        }
    }
}
