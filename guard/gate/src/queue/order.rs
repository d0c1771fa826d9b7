//! The order of a wait room: which request begins next, which is refused, and how many are begun at once. Pure: time is an argument, and
//! what is to be woken is handed back. Never here: locks, wakers, why a request may not wait longer.

use leeward_core::units::Time;
use std::collections::BTreeMap;

/// A request's place: the most important class first, in it the one that must begin earliest, of equal ones the first that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueKey {
    class: u8,
    /// From then on it is too late to begin.
    pub(crate) start_deadline: Time,
    number: u64,
}

impl QueueKey {
    /// A place of somebody who never waits.
    pub(crate) fn of(class: u8, until: Time) -> Self {
        QueueKey { class, start_deadline: until, number: 0 }
    }
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaiterState {
    /// In the queue.
    Queued,
    /// Called from the queue: the next poll may begin it.
    Called,
    /// Neither: its time is over, or a more important one has its place.
    Removed,
}

/// No place is left for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// The end of a poll of a request that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BeginOutcome {
    /// With a slot, which is kept until the request ends.
    Started,
    /// All slots are taken: it waits again.
    Requeued,
    /// Not called, or too late.
    Removed,
}

/// The queue, those that were called from it, and the slots of those that have begun. `T` is what wakes a request.
#[derive(Debug)]
pub(crate) struct QueueState<T> {
    /// Most that have begun and not ended.
    slots: usize,
    begun: usize,
    /// So many more than there are slots may be called at a time.
    ahead: usize,
    /// Most that wait, but for those that were called and have to wait again.
    capacity: usize,
    queue: BTreeMap<QueueKey, T>,
    /// Called, and not begun yet.
    called: Vec<QueueKey>,
    numbers: u64,
    /// The latest time that anybody has told.
    now: Time,
}

impl<T: Default> QueueState<T> {
    pub(crate) fn new(slots: usize, places: usize) -> Self {
        let (queue, called) = (BTreeMap::new(), Vec::new());
        QueueState {
            slots: slots.max(1),
            begun: 0,
            ahead: 0,
            capacity: places,
            queue,
            called,
            numbers: 0,
            now: Time::ZERO,
        }
    }

    /// So many more than there are slots may be called at a time: they are executed between two looks at the sockets.
    pub(crate) fn set_ahead(&mut self, ahead: usize) {
        self.ahead = ahead;
    }

    /// Requests that may be called now.
    fn free(&self) -> usize {
        // Nobody is called while all slots are taken: there would be nothing to do but to wait again.
        if self.begun >= self.slots {
            return 0;
        }
        (self.slots + self.ahead).saturating_sub(self.begun + self.called.len())
    }

    /// A request comes. Whoever is handed back in `wakes` stands elsewhere now.
    pub(crate) fn enqueue(
        &mut self,
        now: Time,
        (class, until): (u8, Time),
        wakes: &mut Vec<T>,
    ) -> Result<QueueKey, QueueFull> {
        self.now = self.now.max(now);
        self.numbers += 1;
        let place = QueueKey { class, start_deadline: until, number: self.numbers };
        self.queue.insert(place, T::default());
        self.call_next(wakes);
        if self.queue.len() <= self.capacity {
            return Ok(place);
        }
        // The least important one has to go, be it the one that comes.
        match self.queue.pop_last() {
            Some((last, _)) if last == place => Err(QueueFull),
            Some((_, wake)) => {
                wakes.push(wake);
                Ok(place)
            }
            None => Ok(place),
        }
    }

    /// A request comes and begins at once, if there is a slot: nobody waits then.
    pub(crate) fn try_start(&mut self) -> bool {
        let begins = self.free() > 0 && self.queue.is_empty();
        self.begun += usize::from(begins);
        begins
    }

    /// Where it stands, and what wakes it while it waits.
    pub(crate) fn poll(&mut self, now: Time, place: QueueKey) -> (WaiterState, Option<&mut T>) {
        self.now = self.now.max(now);
        match self.queue.get_mut(&place) {
            Some(wake) => (WaiterState::Queued, Some(wake)),
            None if self.called.contains(&place) => (WaiterState::Called, None),
            None => (WaiterState::Removed, None),
        }
    }

    /// A request that was called begins, unless it is too late. Whoever has begun keeps the slot.
    pub(crate) fn begin(&mut self, now: Time, place: QueueKey, wakes: &mut Vec<T>) -> BeginOutcome {
        self.now = self.now.max(now);
        let Some(at) = self.called.iter().position(|called| *called == place) else { return BeginOutcome::Removed };
        self.called.swap_remove(at);
        if now >= place.start_deadline {
            self.call_next(wakes);
            return BeginOutcome::Removed;
        }
        if self.begun >= self.slots {
            self.queue.insert(place, T::default());
            return BeginOutcome::Requeued;
        }
        self.begun += 1;
        BeginOutcome::Started
    }

    /// A request that has begun gives its slot back.
    pub(crate) fn end(&mut self, wakes: &mut Vec<T>) {
        self.begun -= 1;
        self.call_next(wakes);
    }

    /// A request that has not begun goes, wherever it stands. What would have woken it is handed back.
    pub(crate) fn leave(&mut self, place: QueueKey, wakes: &mut Vec<T>) -> Option<T> {
        let wake = self.queue.remove(&place);
        if let Some(at) = self.called.iter().position(|called| *called == place) {
            self.called.swap_remove(at);
            self.call_next(wakes);
        }
        wake
    }

    /// Calls those whose turn it is. Who is too late by then is sent out without.
    fn call_next(&mut self, wakes: &mut Vec<T>) {
        if self.free() == 0 {
            // Somebody may hold a future and never poll it. It was called until its time is over, and not for ever.
            self.called.retain(|called| self.now < called.start_deadline);
        }
        while self.free() > 0
            && let Some((place, wake)) = self.queue.pop_first()
        {
            if self.now < place.start_deadline {
                self.called.push(place);
            }
            wakes.push(wake);
        }
    }

    /// Requests that wait.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(all(test, not(loom)))]
mod random_histories;
