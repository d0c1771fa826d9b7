//! The order of a wait room: which request begins next, which is refused, and how many are begun at once. Pure: time is an argument, and
//! what is to be woken is handed back. Never here: locks, wakers, why a request may not wait longer.

use leeward_control::units::Time;
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
    /// It has a slot, and may begin.
    Called,
    /// Neither: its time is over, or a more important one has its place.
    Out,
}

/// No place is left for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// The queue, and the slots of those that were called from it. `T` is what wakes a request.
#[derive(Debug)]
pub(crate) struct Order<T> {
    /// Slots that nobody has.
    free: usize,
    /// Most that wait.
    places: usize,
    queue: BTreeMap<Place, T>,
    /// Called, and not begun yet: never more than there are slots.
    called: Vec<Place>,
    numbers: u64,
    /// The latest time that anybody has told.
    now: Time,
}

impl<T: Default> Order<T> {
    pub(crate) fn new(slots: usize, places: usize) -> Self {
        let (queue, called) = (BTreeMap::new(), Vec::new());
        Order { free: slots.max(1), places, queue, called, numbers: 0, now: Time::ZERO }
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
        let begins = self.free > 0;
        self.free -= usize::from(begins);
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
    pub(crate) fn begin(&mut self, now: Time, place: Place, wakes: &mut Vec<T>) -> bool {
        self.now = self.now.max(now);
        let Some(at) = self.called.iter().position(|called| *called == place) else { return false };
        self.called.swap_remove(at);
        let begins = now < place.until;
        if !begins {
            self.free += 1;
            self.pass(wakes);
        }
        begins
    }

    /// A request that has begun gives its slot back.
    pub(crate) fn end(&mut self, wakes: &mut Vec<T>) {
        self.free += 1;
        self.pass(wakes);
    }

    /// A request that has not begun goes, wherever it stands. What would have woken it is handed back.
    pub(crate) fn leave(&mut self, place: Place, wakes: &mut Vec<T>) -> Option<T> {
        let wake = self.queue.remove(&place);
        if let Some(at) = self.called.iter().position(|called| *called == place) {
            self.called.swap_remove(at);
            self.free += 1;
            self.pass(wakes);
        }
        wake
    }

    /// Gives free slots to those whose turn it is. Who is too late by then is sent out without one.
    fn pass(&mut self, wakes: &mut Vec<T>) {
        if self.free == 0 && !self.called.is_empty() {
            // Somebody may hold a future and never poll it. A slot is its own until its time is over, and not for ever.
            let before = self.called.len();
            self.called.retain(|called| self.now < called.until);
            self.free += before - self.called.len();
        }
        while self.free > 0
            && let Some((place, wake)) = self.queue.pop_first()
        {
            if self.now < place.until {
                self.free -= 1;
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
