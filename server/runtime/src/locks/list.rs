//! Line of waiters, in order of arrival: a list in a slab, so that waiting allocates nothing once it has room, leaving
//! from the middle is cheap, and no pointer is needed. Pure: the time is an argument, and no thread is woken here.

use leeward_core::units::Time;
use std::task::Waker;

/// A waiter's place, from [`List::push`] to [`List::remove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(usize);

/// How far a waiter has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
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
pub(super) const EVER: Time = Time(u64::MAX);

struct Waiter {
    stage: Stage,
    since: Time,
    /// After that it does not want it any more.
    until: Time,
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
    Taken(Waiter),
    /// The next free one.
    Free(Option<usize>),
}

/// The line, and the waiters that have left it and have not been told.
#[derive(Default)]
pub(super) struct List {
    slots: Vec<Slot>,
    free: Option<usize>,
    first: Option<usize>,
    last: Option<usize>,
    len: usize,
}

/// The waiter at the head of the line: what it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct First {
    pub(super) place: Place,
    pub(super) since: Time,
    pub(super) until: Time,
    pub(super) count: u64,
    pub(super) overtaken: bool,
}

impl List {
    /// Joins the line at its end.
    pub(super) fn push(&mut self, since: Time, until: Time, count: u64, waker: Option<Waker>) -> Place {
        let waiter = Waiter {
            stage: Stage::Waiting,
            since,
            until,
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
                self.slots[index] = Slot::Taken(waiter);
                index
            }
            None => {
                self.slots.push(Slot::Taken(waiter));
                self.slots.len() - 1
            }
        };
        match self.last {
            Some(last) => self.waiter(last).after = Some(index),
            None => self.first = Some(index),
        }
        self.last = Some(index);
        self.len += 1;
        Place(index)
    }

    /// The first in the line.
    pub(super) fn first(&self) -> Option<First> {
        let place = self.first?;
        match &self.slots[place] {
            Slot::Taken(Waiter { since, until, count, overtaken, .. }) => {
                Some(First { place: Place(place), since: *since, until: *until, count: *count, overtaken: *overtaken })
            }
            Slot::Free(_) => None,
        }
    }

    /// How many are in the line.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn stage(&mut self, place: Place) -> Stage {
        self.waiter(place.0).stage
    }

    /// Replaces the waker of a waiter that goes on waiting. Returns the one before, for the caller to drop: that may run code
    /// of its task.
    #[must_use]
    pub(super) fn wait_on(&mut self, place: Place, waker: &Waker) -> Option<Waker> {
        let known = &mut self.waiter(place.0).waker;
        match known {
            Some(known) if known.will_wake(waker) => None,
            _ => known.replace(waker.clone()),
        }
    }

    /// The waiter is on its way, keeping its place in the line. Returns its waker, for the caller to call.
    pub(super) fn send(&mut self, place: Place) -> Option<Waker> {
        let waiter = self.waiter(place.0);
        waiter.stage = Stage::Woken;
        waiter.waker.take()
    }

    /// The waiter was sent and came too late: it waits on where it was. As [`List::wait_on`].
    #[must_use]
    pub(super) fn overtake(&mut self, place: Place, waker: &Waker) -> Option<Waker> {
        let waiter = self.waiter(place.0);
        waiter.stage = Stage::Waiting;
        waiter.overtaken = true;
        self.wait_on(place, waker)
    }

    /// Takes the waiter out of the line with an outcome for it to find. Returns its waker, for the caller to call.
    pub(super) fn settle(&mut self, place: Place, outcome: Stage) -> Option<Waker> {
        self.unlink(place);
        let waiter = self.waiter(place.0);
        waiter.stage = outcome;
        waiter.waker.take()
    }

    /// The waiter goes, wherever it is. Returns what it has not been told of, and its waker, for the caller to drop.
    pub(super) fn remove(&mut self, place: Place) -> (Stage, Option<Waker>) {
        let stage = self.stage(place);
        if matches!(stage, Stage::Waiting | Stage::Woken) {
            self.unlink(place);
        }
        let slot = std::mem::replace(&mut self.slots[place.0], Slot::Free(self.free));
        self.free = Some(place.0);
        let Slot::Taken(waiter) = slot else { unreachable!("a place is removed once") };
        (stage, waiter.waker)
    }

    fn unlink(&mut self, place: Place) {
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
            Slot::Taken(waiter) => waiter,
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
            let mut list = List::default();
            let mut line: VecDeque<(Place, u64)> = VecDeque::new();
            let mut settled: Vec<Place> = Vec::new();
            let mut most = 0;
            for (now, (step, which)) in steps.into_iter().enumerate() {
                let now = now as u64;
                match step {
                    0 | 1 => line.push_back((list.push(Time(now), EVER, now, None), now)),
                    2 if which < line.len() => {
                        let (place, _) = line.remove(which).unwrap();
                        prop_assert_eq!(list.remove(place).0, Stage::Waiting);
                    }
                    2 => {
                        if let Some(place) = settled.pop() {
                            prop_assert_eq!(list.remove(place).0, Stage::Granted);
                        }
                    }
                    _ => {
                        if let Some((place, _)) = line.pop_front() {
                            list.settle(place, Stage::Granted);
                            settled.push(place);
                        }
                    }
                }
                most = most.max(line.len() + settled.len());
                let first = list.first().map(|first| (first.place, first.count, first.since));
                prop_assert_eq!(first, line.front().map(|(place, count)| (*place, *count, Time(*count))));
                prop_assert_eq!(list.len(), line.len());
                prop_assert!(list.slots.len() <= most, "room for those there were at once");
            }
        }
    }
}
