//! The queue in front of backends: which request is sent next, and to which backend. Pure: the
//! owner passes the time, and carries out the [`Dispatch`]es that it gets back.
//!
//! - [`Dispatcher`]: the queue, the backends and their limits.
//! - `order`: the order of the waiting requests. `pool`: places at backends that share one limit.
//! - `failures`: backends that get no requests. `hang`: requests that give their places up.
//! - `reconfigure`: changes of settings, limits and backends while requests are there.
//! - `wait_bound`: how long the queue needs to be. [`shadow`]: the queue as it would be, for a
//!   proxy that holds nothing back.
//!
//! Does not contain sockets, threads or wakers.

mod failures;
mod hang;
mod order;
mod pool;
mod reconfigure;
pub mod shadow;
mod wait_bound;

use crate::{ConcurrencyLimit, Outcome, Response};
use failures::{Failures, State};
use leeward_core::units::{Nanos, Tenant, Time};
pub use order::QueueKey;
use order::WaitQueue;
use pool::Pool;
use wait_bound::WaitBound;

/// Settings of a dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatchSettings {
    /// Latency objective, from a request's arrival to its answer.
    pub objective: Nanos,
    /// Most requests that wait.
    pub capacity: usize,
    /// Most bytes that waiting requests hold.
    pub capacity_bytes: usize,
}

/// A request that arrives at the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedRequest {
    /// Time of its arrival.
    pub arrived: Time,
    /// Time that its client allows, from its arrival; `Nanos::MAX` if the client set no limit.
    pub timeout: Nanos,
    /// Importance, 0 (most important) to 7.
    pub class: u8,
    /// Tenant that it is charged to.
    pub tenant: Tenant,
    /// Bytes that it holds while it waits.
    pub bytes: usize,
}

/// Reason for which a request is not sent to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has waited so long that its answer would miss the objective.
    Late,
    /// Its answer would miss the deadline that its client set, which is before the objective.
    Deadline,
    /// It would wait too long behind the requests that are in the queue.
    Wait,
    /// The queue is full of requests that are as important or more.
    Full,
}

/// What becomes of a request on arrival. `usize`: the number of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It takes a place at this backend.
    Sent(usize),
    /// It waits.
    Queued(QueueKey),
    /// It is rejected.
    Rejected(Refusal),
}

/// What becomes of a request that has waited: the number of the backend where it takes a place, or
/// the reason for its rejection.
#[derive(Debug)]
pub struct Dispatch<T> {
    /// The owner's token of the request.
    pub token: T,
    /// The result.
    pub result: Result<usize, Refusal>,
}

/// An answer, as the limits see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Now.
    pub now: Time,
    /// Time at which the request was sent to the backend.
    pub dispatched: Time,
    /// End of the request.
    pub outcome: Outcome,
}

/// A backend: the pool of places that it belongs to, and its requests.
#[derive(Clone, Copy, Debug)]
struct Backend {
    pool: usize,
    in_flight: u32,
    state: State,
    failures: Failures,
    /// Whether it gets no more requests. Its place in the list is used again.
    is_removed: bool,
}

impl Backend {
    fn new(pool: usize) -> Self {
        Backend { pool, in_flight: 0, state: State::Up, failures: Failures::default(), is_removed: false }
    }

    /// Place among backends for a request that waits for none: 0 is the best.
    fn rank(&self) -> u8 {
        match self.state {
            State::Up => 0,
            _ if self.is_open() => 1,
            _ => 2,
        }
    }

    /// Whether it gets requests, if it is not removed.
    fn is_open(&self) -> bool {
        match self.state {
            State::Up => true,
            State::Probed(most) => self.in_flight <= most,
            State::Down | State::Ejected => false,
        }
    }

    /// Whether it gets no requests: it is removed, or others are better.
    fn is_aside(&self, any_up: bool) -> bool {
        self.is_removed || (any_up && !self.is_open())
    }
}

/// Waiting requests, and the places at backends. `T` is the owner's token of a waiting request.
pub struct Dispatcher<T> {
    settings: DispatchSettings,
    queue: WaitQueue<T>,
    pools: Vec<Pool>,
    backends: Vec<Backend>,
    /// Whether all backends are in the first pool; else each is in the one of its number.
    is_shared: bool,
    wait_bound: WaitBound,
    /// Successes of all backends.
    successes: u64,
    /// Whether a request was rejected since the last tick: then places are not free for want of
    /// requests, even if the queue is empty at times.
    has_rejected: bool,
    /// Backend from which the search for a place begins, so that equal ones take turns.
    next: usize,
}

/// Objectives without an answer, with all places taken, after which a backend has stopped.
const SILENT: u64 = 4;
/// Requests that may always wait, if there are as many places.
const MOST_SPARE: usize = 8;

impl<T> Dispatcher<T> {
    /// Creates a dispatcher in front of backends with a limit each.
    pub fn new(settings: DispatchSettings, limits: Vec<Box<dyn ConcurrencyLimit>>) -> Self {
        let backends = (0..limits.len()).map(Backend::new).collect();
        Self::with_backends(settings, limits, backends, false)
    }

    /// Creates a dispatcher in front of `backends` backends which share one resource, so that one
    /// limit holds for their sum.
    pub fn shared(settings: DispatchSettings, limit: Box<dyn ConcurrencyLimit>, backends: usize) -> Self {
        Self::with_backends(settings, vec![limit], vec![Backend::new(0); backends], true)
    }

    fn with_backends(
        settings: DispatchSettings,
        limits: Vec<Box<dyn ConcurrencyLimit>>,
        backends: Vec<Backend>,
        is_shared: bool,
    ) -> Self {
        assert!(!backends.is_empty(), "there is at least one backend");
        let pools = limits.into_iter().map(Pool::new).collect();
        let (queue, wait_bound) = (WaitQueue::default(), WaitBound::default());
        Dispatcher {
            settings,
            queue,
            pools,
            backends,
            is_shared,
            wait_bound,
            successes: 0,
            has_rejected: false,
            next: 0,
        }
    }

    /// Takes a request: sends it, queues it under the token, or rejects it. A full queue may reject
    /// a less important request in its place (`done`).
    pub fn arrive(
        &mut self,
        now: Time,
        request: &QueuedRequest,
        token: impl FnOnce() -> T,
        done: &mut Vec<Dispatch<T>>,
    ) -> Arrival {
        let deadline = request.arrived + request.timeout.min(self.settings.objective);
        if now >= deadline {
            return Arrival::Rejected(self.late(request));
        }
        if self.queue.is_empty()
            && let Some(backend) = self.free_backend()
        {
            self.begin(now, backend);
            self.note_starvation();
            return Arrival::Sent(backend);
        }
        if self.is_hopeless(now, request, deadline) {
            self.has_rejected = true;
            return Arrival::Rejected(Refusal::Wait);
        }
        let key = self.queue.push(request, deadline, token());
        let mut displaced_itself = false;
        while self.is_over_capacity() {
            let Some((least, token)) = self.queue.pop_least_important() else { break };
            displaced_itself |= least == key;
            if least != key {
                done.push(Dispatch { token, result: Err(Refusal::Full) });
            }
        }
        // Places may be free while late requests wait.
        self.fill(now, done);
        if displaced_itself { Arrival::Rejected(Refusal::Full) } else { Arrival::Queued(key) }
    }

    /// Takes note of an answer. The request keeps its place until [`Dispatcher::release`].
    pub fn answer(&mut self, backend: usize, answer: &Answer) {
        let Answer { now, dispatched, outcome } = *answer;
        let pool = &mut self.pools[self.backends[backend].pool];
        pool.answer(&Response { now, dispatched, outcome, in_flight: pool.in_flight().saturating_sub(1) });
    }

    /// Charges a request to its tenant: the time that it has kept the backend busy, which may go on
    /// after the place is free.
    pub fn charge(&mut self, class: u8, tenant: Tenant, time: Nanos) {
        self.queue.note_cost(class, tenant, time);
    }

    /// Frees a place; the next request takes it.
    pub fn release(&mut self, now: Time, backend: usize, done: &mut Vec<Dispatch<T>>) {
        let of = &mut self.backends[backend];
        of.in_flight = of.in_flight.saturating_sub(1);
        self.pools[of.pool].release();
        self.fill(now, done);
    }

    /// Removes a request whose client has gone; returns its token, if it still waited.
    pub fn leave(&mut self, key: &QueueKey) -> Option<T> {
        self.queue.remove(key)
    }

    /// Updates the limits, rejects requests that are too late, and fills new places; every
    /// [`crate::TICK`]. `oldest_unread`: age of the oldest byte that the backend has not read,
    /// where it is known.
    pub fn tick(&mut self, now: Time, oldest_unread: Option<Nanos>, done: &mut Vec<Dispatch<T>>) {
        let queued = self.queue.len() as u32;
        let has_rejected = std::mem::take(&mut self.has_rejected);
        for pool in self.pools.iter_mut().filter(|pool| !pool.is_retired()) {
            pool.tick(now, queued, (has_rejected, oldest_unread), self.settings.objective);
        }
        self.wait_bound.tick(now, self.settings.objective, self.rate());
        let margin = self.least_margin();
        for (key, token) in self.queue.take_late(now + margin) {
            self.has_rejected = true;
            done.push(Dispatch { token, result: Err(self.late_by(&key)) });
        }
        self.fill(now, done);
    }

    /// The reachable backend with the fewest requests, without regard to limits; not `except`, if
    /// there is another. One on probation is the last choice: only requests with a place judge it.
    pub fn least_loaded(&self, except: Option<usize>) -> usize {
        let any_up = self.any_up();
        let key = |index: &usize| {
            let backend = &self.backends[*index];
            (backend.is_removed, Some(*index) == except, any_up.then(|| backend.rank()), backend.in_flight)
        };
        let count = self.backends.len();
        (0..count).map(|step| (self.next + step) % count).min_by_key(key).unwrap_or(0)
    }

    /// Gives a place at a backend to a request, without regard to the limit.
    pub fn begin(&mut self, now: Time, backend: usize) {
        let of = &mut self.backends[backend];
        of.in_flight += 1;
        self.pools[of.pool].send(now);
        self.next = (backend + 1) % self.backends.len();
    }

    /// Time that a new request of this class and tenant would wait, as far as it is known.
    pub fn expected_wait(&self, class: u8, tenant: Tenant) -> Nanos {
        time_of(self.ahead(class, tenant), self.rate())
    }

    /// The settings.
    pub fn settings(&self) -> &DispatchSettings {
        &self.settings
    }

    /// Number of backends, with those that are removed.
    pub fn backends(&self) -> usize {
        self.backends.len()
    }

    /// Requests that wait.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Longest expected wait with which a request is taken that may take `time` in all.
    pub fn wait_limit(&self, time: Nanos) -> Nanos {
        self.wait_bound.bound(time.saturating_sub(self.least_margin()), self.rate())
    }

    /// Longest time that a request has waited which still waits.
    pub fn oldest_wait(&self, now: Time) -> Nanos {
        self.queue.oldest().map_or(Nanos::ZERO, |arrived| now.since(arrived))
    }

    /// Requests that would be sent before a new one of this class and tenant.
    pub fn ahead(&self, class: u8, tenant: Tenant) -> usize {
        self.queue.ahead(class, tenant)
    }

    /// Requests at a backend.
    pub fn in_flight(&self, backend: usize) -> u32 {
        self.backends[backend].in_flight
    }

    /// The limit that holds for a backend, without short trials of another one.
    pub fn limit(&self, backend: usize) -> u32 {
        self.pools[self.backends[backend].pool].steady_limit()
    }

    /// Time that a request must have left when it is sent: most answers take no longer.
    pub fn margin(&self, backend: usize) -> Nanos {
        self.pools[self.backends[backend].pool].margin()
    }

    /// Mean time from sending a request to its answer; zero before the first.
    pub fn mean_sojourn(&self, backend: usize) -> Nanos {
        self.pools[self.backends[backend].pool].mean_sojourn()
    }

    /// Pools whose backends get requests.
    fn active_pools(&self) -> impl Iterator<Item = &Pool> {
        self.pools.iter().filter(|pool| !pool.is_retired())
    }

    fn is_over_capacity(&self) -> bool {
        self.queue.len() > self.settings.capacity || self.queue.bytes() > self.settings.capacity_bytes
    }

    fn any_up(&self) -> bool {
        self.backends.iter().any(|backend| backend.is_open() && !backend.is_removed)
    }

    /// The backend with the largest share of free places; of equal ones the one with the fewest
    /// requests.
    fn free_backend(&self) -> Option<usize> {
        let count = self.backends.len();
        let any_up = self.any_up();
        let mut best: Option<(usize, f64, u32)> = None;
        for step in 0..count {
            let index = (self.next + step) % count;
            let backend = &self.backends[index];
            let pool = &self.pools[backend.pool];
            if pool.in_flight() >= pool.limit() || backend.is_aside(any_up) {
                continue;
            }
            let share = pool.free_share();
            let is_better = best.is_none_or(|(_, most, fewest)| {
                share > most + 1e-9 || (share > most - 1e-9 && backend.in_flight < fewest)
            });
            if is_better {
                best = Some((index, share, backend.in_flight));
            }
        }
        best.map(|(index, ..)| index)
    }

    /// Sends waiting requests while places are free; rejects those that would be late.
    fn fill(&mut self, now: Time, done: &mut Vec<Dispatch<T>>) {
        while let Some(backend) = self.free_backend() {
            // The last request is sent while there is any hope: its place would idle.
            let margin = if self.queue.len() > 1 { self.margin(backend) } else { Nanos::ZERO };
            let Some((key, token)) = self.queue.pop_first(now + margin) else { break };
            if now + margin > key.deadline {
                self.has_rejected = true;
                done.push(Dispatch { token, result: Err(self.late_by(&key)) });
                continue;
            }
            self.begin(now, backend);
            if !self.is_lifted() {
                self.wait_bound.note(self.queue.len());
            }
            done.push(Dispatch { token, result: Ok(backend) });
        }
        self.note_starvation();
    }

    /// A place that is free while nobody waits: the limit does not bind.
    fn note_starvation(&mut self) {
        if self.queue.is_empty() {
            let mut has_starved = false;
            for pool in self.pools.iter_mut().filter(|pool| !pool.is_retired()) {
                has_starved |= pool.note_starvation();
            }
            if has_starved && !self.is_lifted() {
                self.wait_bound.note_starvation();
            }
        }
    }

    /// Whether a limit is lifted for a trial: its first requests empty the queue, which is long
    /// enough nevertheless.
    fn is_lifted(&self) -> bool {
        self.pools.iter().any(|pool| pool.limit() > pool.steady_limit())
    }

    fn least_margin(&self) -> Nanos {
        self.active_pools().map(Pool::margin).min().unwrap_or(Nanos::ZERO)
    }

    /// Answers per nanosecond while all places are taken.
    fn rate(&self) -> f64 {
        self.active_pools().map(Pool::rate).sum()
    }

    /// Whether the requests in front of this one will take longer than it may wait.
    fn is_hopeless(&self, now: Time, request: &QueuedRequest, deadline: Time) -> bool {
        let ahead = self.ahead(request.class, request.tenant);
        // Nothing has been answered for so long: what waits already is enough for the next place.
        if ahead > 0 && self.is_silent(now) {
            return true;
        }
        // Fewer than there are places are no queue: they keep the places from idling.
        if ahead < self.active_pools().map(|pool| pool.in_flight() as usize).sum::<usize>().min(MOST_SPARE) {
            return false;
        }
        let (rate, left) = (self.rate(), deadline.since(now + self.least_margin()));
        // With less important requests behind it, it is these that make the queue too long.
        let is_last = ahead == self.queue.len();
        time_of(ahead, rate) > if is_last { self.wait_bound.bound(left, rate) } else { left }
    }

    /// Whether all places of the backends that get requests are taken for long, without an answer.
    fn is_silent(&self, now: Time) -> bool {
        let any_up = self.any_up();
        let mut working = self.backends.iter().filter(|backend| !backend.is_aside(any_up));
        working.all(|backend| self.pools[backend.pool].silence(now) >= self.settings.objective * SILENT)
    }

    fn late(&self, request: &QueuedRequest) -> Refusal {
        if request.timeout < self.settings.objective { Refusal::Deadline } else { Refusal::Late }
    }

    fn late_by(&self, key: &QueueKey) -> Refusal {
        if key.deadline.since(key.arrived) < self.settings.objective { Refusal::Deadline } else { Refusal::Late }
    }
}

/// Time in which so many requests are answered at this rate; zero if the rate is not known.
fn time_of(requests: usize, rate: f64) -> Nanos {
    if rate > 0.0 { Nanos((requests as f64 / rate) as u64) } else { Nanos::ZERO }
}

impl<T> std::fmt::Debug for Dispatcher<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatcher")
            .field("queued", &self.queue.len())
            .field("backends", &self.backends)
            .finish_non_exhaustive()
    }
}
