//! The order of a wait room: which request begins next, which is refused, and how many are begun at once. Pure: time is an argument, and
//! what is to be woken is handed back. Never here: locks, wakers, why a request may not wait longer.

use leeward_core::units::Time;
use std::collections::BTreeMap;

/// A request's place: the most important class first, in it the one that must begin earliest, of equal ones the first that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    class: u8,
    /// From then on it is too late to begin.
    pub(crate) until: Time,
    number: u64,
}

impl Place {
    /// A place of somebody who never waits.
    pub(crate) fn of(class: u8, until: Time) -> Self {
        Place { class, until, number: 0 }
    }
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    /// In the queue.
    Waits,
    /// Called from the queue: the next poll may begin it.
    Called,
    /// Neither: its time is over, or a more important one has its place.
    Out,
}

/// No place is left for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// The end of a poll of a request that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// With a slot, which is kept until the request ends.
    Begins,
    /// All slots are taken: it waits again.
    Waits,
    /// Not called, or too late.
    Out,
}

/// The queue, those that were called from it, and the slots of those that have begun. `T` is what wakes a request.
#[derive(Debug)]
pub(crate) struct Order<T> {
    /// Most that have begun and not ended.
    slots: usize,
    begun: usize,
    /// So many more than there are slots may be called at a time.
    ahead: usize,
    /// Most that wait, but for those that were called and have to wait again.
    places: usize,
    queue: BTreeMap<Place, T>,
    /// Called, and not begun yet.
    called: Vec<Place>,
    numbers: u64,
    /// The latest time that anybody has told.
    now: Time,
}

impl<T: Default> Order<T> {
    pub(crate) fn new(slots: usize, places: usize) -> Self {
        let (queue, called) = (BTreeMap::new(), Vec::new());
        Order { slots: slots.max(1), begun: 0, ahead: 0, places, queue, called, numbers: 0, now: Time::ZERO }
    }

    /// So many more than there are slots may be called at a time: they are executed between two looks at the sockets.
    pub(crate) fn call_ahead(&mut self, ahead: usize) {
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
    pub(crate) fn enter(&mut self, now: Time, (class, until): (u8, Time), wakes: &mut Vec<T>) -> Result<Place, Full> {
        self.now = self.now.max(now);
        self.numbers += 1;
        let place = Place { class, until, number: self.numbers };
        self.queue.insert(place, T::default());
        self.pass(wakes);
        if self.queue.len() <= self.places {
            return Ok(place);
        }
        // The least important one has to go, be it the one that comes.
        match self.queue.pop_last() {
            Some((last, _)) if last == place => Err(Full),
            Some((_, wake)) => {
                wakes.push(wake);
                Ok(place)
            }
            None => Ok(place),
        }
    }

    /// A request comes and begins at once, if there is a slot: nobody waits then.
    pub(crate) fn start(&mut self) -> bool {
        let begins = self.free() > 0 && self.queue.is_empty();
        self.begun += usize::from(begins);
        begins
    }

    /// Where it stands, and what wakes it while it waits.
    pub(crate) fn look(&mut self, now: Time, place: Place) -> (Stand, Option<&mut T>) {
        self.now = self.now.max(now);
        match self.queue.get_mut(&place) {
            Some(wake) => (Stand::Waits, Some(wake)),
            None if self.called.contains(&place) => (Stand::Called, None),
            None => (Stand::Out, None),
        }
    }

    /// A request that was called begins, unless it is too late. Whoever has begun keeps the slot.
    pub(crate) fn begin(&mut self, now: Time, place: Place, wakes: &mut Vec<T>) -> Begin {
        self.now = self.now.max(now);
        let Some(at) = self.called.iter().position(|called| *called == place) else { return Begin::Out };
        self.called.swap_remove(at);
        if now >= place.until {
            self.pass(wakes);
            return Begin::Out;
        }
        if self.begun >= self.slots {
            self.queue.insert(place, T::default());
            return Begin::Waits;
        }
        self.begun += 1;
        Begin::Begins
    }

    /// A request that has begun gives its slot back.
    pub(crate) fn end(&mut self, wakes: &mut Vec<T>) {
        self.begun -= 1;
        self.pass(wakes);
    }

    /// A request that has not begun goes, wherever it stands. What would have woken it is handed back.
    pub(crate) fn leave(&mut self, place: Place, wakes: &mut Vec<T>) -> Option<T> {
        let wake = self.queue.remove(&place);
        if let Some(at) = self.called.iter().position(|called| *called == place) {
            self.called.swap_remove(at);
            self.pass(wakes);
        }
        wake
    }

    /// Calls those whose turn it is. Who is too late by then is sent out without.
    fn pass(&mut self, wakes: &mut Vec<T>) {
        if self.free() == 0 {
            // Somebody may hold a future and never poll it. It was called until its time is over, and not for ever.
            self.called.retain(|called| self.now < called.until);
        }
        while self.free() > 0
            && let Some((place, wake)) = self.queue.pop_first()
        {
            if self.now < place.until {
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
mod history;
