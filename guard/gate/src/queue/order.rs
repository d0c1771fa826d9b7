//! Order of a wait queue: which request begins next, which is rejected, and how many begin at once.
//! Pure: the caller passes the time and wakes the returned requests. Does not contain locks, wakers
//! or the origin of start deadlines.

use leeward_core::units::Time;
use std::collections::BTreeMap;

/// Position of a request: by class, then by the earliest start deadline, then by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueKey {
    class: u8,
    /// Time from which it is too late to begin.
    pub(crate) start_deadline: Time,
    number: u64,
}

impl QueueKey {
    /// A key for a request that never waits.
    pub(crate) fn of(class: u8, until: Time) -> Self {
        QueueKey { class, start_deadline: until, number: 0 }
    }
}

/// State of a request in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaiterState {
    /// Waits in the queue.
    Queued,
    /// Called from the queue; its next poll may begin it.
    Called,
    /// Neither queued nor called: too late, or displaced by a more important request.
    Removed,
}

/// The queue has no position for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// Result of beginning a called request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BeginOutcome {
    /// It has a slot until it ends.
    Started,
    /// All slots are taken; the request waits again.
    Requeued,
    /// The request was not called, or is too late.
    Removed,
}

/// Queued requests, called requests, and slots of requests that have begun. `T` is a request's
/// waker.
#[derive(Debug)]
pub(crate) struct QueueState<T> {
    /// Most requests that have begun and not ended.
    slots: usize,
    begun: usize,
    /// Requests beyond the slots that may be called at a time.
    ahead: usize,
    /// Most requests that wait, except called requests that must wait again.
    capacity: usize,
    queue: BTreeMap<QueueKey, T>,
    /// Requests that were called and have not begun.
    called: Vec<QueueKey>,
    numbers: u64,
    /// Latest time that a caller has passed.
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

    /// Largest number of requests that wait.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Sets how many requests beyond the slots may be called at a time.
    ///
    /// The worker executes them between two polls of the sockets.
    pub(crate) fn set_ahead(&mut self, ahead: usize) {
        self.ahead = ahead;
    }

    /// Number of requests that may be called now.
    fn free(&self) -> usize {
        // While all slots are taken, a called request could only wait again.
        if self.begun >= self.slots {
            return 0;
        }
        (self.slots + self.ahead).saturating_sub(self.begun + self.called.len())
    }

    /// Queues a request. `wakes` gets the wakers of requests whose state has changed.
    pub(crate) fn enqueue(
        &mut self,
        now: Time,
        (class, until): (u8, Time),
        wakes: &mut Vec<T>,
    ) -> Result<QueueKey, QueueFull> {
        self.now = self.now.max(now);
        self.numbers += 1;
        let key = QueueKey { class, start_deadline: until, number: self.numbers };
        self.queue.insert(key, T::default());
        self.call_next(wakes);
        if self.queue.len() <= self.capacity {
            return Ok(key);
        }
        // The least important request is removed; it may be the new one.
        match self.queue.pop_last() {
            Some((last_key, _)) if last_key == key => Err(QueueFull),
            Some((_, wake)) => {
                wakes.push(wake);
                Ok(key)
            }
            None => Ok(key),
        }
    }

    /// Begins an arriving request at once if a slot is free and no request waits.
    pub(crate) fn try_start(&mut self) -> bool {
        let begins = self.free() > 0 && self.queue.is_empty();
        self.begun += usize::from(begins);
        begins
    }

    /// State of a request, and its waker while it waits.
    pub(crate) fn poll(&mut self, now: Time, key: QueueKey) -> (WaiterState, Option<&mut T>) {
        self.now = self.now.max(now);
        match self.queue.get_mut(&key) {
            Some(wake) => (WaiterState::Queued, Some(wake)),
            None if self.called.contains(&key) => (WaiterState::Called, None),
            None => (WaiterState::Removed, None),
        }
    }

    /// Begins a called request, unless it is too late. The request keeps its slot until
    /// [`Self::end`].
    pub(crate) fn begin(&mut self, now: Time, key: QueueKey, wakes: &mut Vec<T>) -> BeginOutcome {
        self.now = self.now.max(now);
        let Some(at) = self.called.iter().position(|called| *called == key) else { return BeginOutcome::Removed };
        self.called.swap_remove(at);
        if now >= key.start_deadline {
            self.call_next(wakes);
            return BeginOutcome::Removed;
        }
        if self.begun >= self.slots {
            self.queue.insert(key, T::default());
            return BeginOutcome::Requeued;
        }
        self.begun += 1;
        BeginOutcome::Started
    }

    /// Frees the slot of a request that has begun.
    pub(crate) fn end(&mut self, wakes: &mut Vec<T>) {
        self.begun -= 1;
        self.call_next(wakes);
    }

    /// Removes a request that has not begun. Returns its waker, if it was queued.
    pub(crate) fn leave(&mut self, key: QueueKey, wakes: &mut Vec<T>) -> Option<T> {
        let wake = self.queue.remove(&key);
        if let Some(at) = self.called.iter().position(|called| *called == key) {
            self.called.swap_remove(at);
            self.call_next(wakes);
        }
        wake
    }

    /// Calls the next requests while slots are free. A request that is too late is woken and
    /// removed.
    fn call_next(&mut self, wakes: &mut Vec<T>) {
        if self.free() == 0 {
            // A task may hold a called future and never poll it. Its call expires at its start
            // deadline.
            self.called.retain(|called| self.now < called.start_deadline);
        }
        while self.free() > 0
            && let Some((key, wake)) = self.queue.pop_first()
        {
            if self.now < key.start_deadline {
                self.called.push(key);
            }
            wakes.push(wake);
        }
    }

    /// Number of requests that wait.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(all(test, not(loom)))]
mod random_histories;
