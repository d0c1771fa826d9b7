//! Changes of a dispatcher while requests wait and are at backends: its settings, its limits, and
//! which backends there are. Does not contain the choice of a backend ([`super`]).

use super::pool::Pool;
use super::{Backend, Dispatch, DispatchSettings, Dispatcher, Refusal};
use crate::ConcurrencyLimit;
use leeward_core::units::Time;

impl<T> Dispatcher<T> {
    /// Adds a backend under `limit`, which is not used where all share one; returns its number. The
    /// number of a removed backend is used again once its last request has ended.
    pub fn add_backend(&mut self, now: Time, limit: Box<dyn ConcurrencyLimit>) -> usize {
        let is_vacant = |backend: &Backend| backend.is_removed && backend.in_flight == 0;
        let index = self.backends.iter().position(is_vacant).unwrap_or(self.backends.len());
        let pool = if self.is_shared { 0 } else { index };
        let backend = Backend::new(pool);
        match self.backends.get_mut(index) {
            Some(vacant) => *vacant = backend,
            None => self.backends.push(backend),
        }
        if !self.is_shared {
            match self.pools.get_mut(index) {
                Some(vacant) => *vacant = Pool::begin(now, limit, 0),
                None => self.pools.push(Pool::begin(now, limit, 0)),
            }
        }
        index
    }

    /// Removes a backend: it gets no more requests, and those in flight end.
    pub fn remove_backend(&mut self, backend: usize) {
        self.backends[backend].is_removed = true;
        if !self.is_shared {
            self.pools[self.backends[backend].pool].retire();
        }
    }

    /// Takes a removed backend back, some of whose requests may be in flight.
    pub fn restore_backend(&mut self, now: Time, backend: usize, limit: Box<dyn ConcurrencyLimit>) {
        let of = &mut self.backends[backend];
        *of = Backend { in_flight: of.in_flight, ..Backend::new(of.pool) };
        if !self.is_shared {
            self.pools[of.pool] = Pool::begin(now, limit, of.in_flight);
        }
    }

    /// Whether a backend is removed.
    pub fn is_removed(&self, backend: usize) -> bool {
        self.backends[backend].is_removed
    }

    /// Replaces all limits: one for the sum of all backends, or one for each by its number.
    pub fn set_limits(
        &mut self,
        now: Time,
        is_shared: bool,
        mut limit: impl FnMut(usize) -> Box<dyn ConcurrencyLimit>,
    ) {
        if is_shared == self.is_shared {
            self.pools.iter_mut().enumerate().for_each(|(index, pool)| pool.set_limit(now, limit(index)));
            return;
        }
        self.is_shared = is_shared;
        if is_shared {
            let in_flight = self.backends.iter().map(|backend| backend.in_flight).sum();
            self.pools = vec![Pool::begin(now, limit(0), in_flight)];
            self.backends.iter_mut().for_each(|backend| backend.pool = 0);
            return;
        }
        self.pools.clear();
        for (index, backend) in self.backends.iter_mut().enumerate() {
            let mut pool = Pool::begin(now, limit(index), backend.in_flight);
            if backend.is_removed {
                pool.retire();
            }
            self.pools.push(pool);
            backend.pool = index;
        }
    }

    /// Changes objective and capacity; call this after the other changes. Requests that wait keep
    /// their deadlines, and limits what they have learnt.
    pub fn set_settings(&mut self, now: Time, settings: DispatchSettings, done: &mut Vec<Dispatch<T>>) {
        if settings.objective != self.settings.objective {
            self.pools.iter_mut().for_each(|pool| pool.set_objective(settings.objective));
        }
        self.settings = settings;
        while self.is_over_capacity() {
            let Some((_, token)) = self.queue.pop_least_important() else { break };
            done.push(Dispatch { token, result: Err(Refusal::Full) });
        }
        self.fill(now, done);
    }

    /// Sends all waiting requests without regard to limits: nothing is to be held back any more.
    pub fn send_all(&mut self, now: Time, done: &mut Vec<Dispatch<T>>) {
        while let Some((_, token)) = self.queue.pop_first(now) {
            let backend = self.least_loaded(None);
            self.begin(now, backend);
            done.push(Dispatch { token, result: Ok(backend) });
        }
    }
}
