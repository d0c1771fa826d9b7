//! Places at backends that share one limit. Does not contain the choice of a backend ([`super`]).

use crate::sojourn::DeadlineMargin;
use crate::{ConcurrencyLimit, Response, Tick};
use leeward_core::units::{Nanos, Time};

/// Weight of an answer in the running mean of the time at the backend.
const WEIGHT: f64 = 1.0 / 64.0;
/// Answers over which the rate is averaged, and the largest weight of a tick.
const RATE_ANSWERS: f64 = 32.0;
const MOST_WEIGHT: f64 = 0.1;
const LEAST_WEIGHT: f64 = 0.005;

/// Longest time between two trials, unless the objective is longer.
const LONGEST_TRIAL: Nanos = Nanos::from_secs(1);

/// A limit, and what is known of the requests under it.
pub(super) struct Pool {
    limit: Box<dyn ConcurrencyLimit>,
    margin: DeadlineMargin,
    in_flight: u32,
    /// Whether a place was free for want of requests since the last tick.
    has_starved: bool,
    /// Running mean of the time at the backend, ns; 0 before the first answer.
    mean_ns: f64,
    /// Running mean of the time between two answers, ns, and the time of the last one.
    gap_ns: f64,
    answered: Time,
    /// Time since which all places are taken without an answer, or were when one gave its place up.
    full_since: Option<Time>,
    /// Answers so far.
    all_answers: u64,
    /// Answers since the last tick, and their running mean per ns while all places were taken.
    answers: u32,
    rate: f64,
    ticked: Time,
    /// Answers at the last look at a request that may hang, the time since which there are no more,
    /// or of the last trial, and the time until the next one.
    trial: (u64, Time, Nanos),
    /// Whether its backend gets no more requests.
    is_retired: bool,
}

impl Pool {
    pub(super) fn new(limit: Box<dyn ConcurrencyLimit>) -> Self {
        Pool {
            limit,
            margin: DeadlineMargin::default(),
            in_flight: 0,
            has_starved: true,
            mean_ns: 0.0,
            gap_ns: 0.0,
            answered: Time::ZERO,
            full_since: None,
            all_answers: 0,
            answers: 0,
            rate: 0.0,
            ticked: Time::ZERO,
            trial: (u64::MAX, Time::ZERO, Nanos::ZERO),
            is_retired: false,
        }
    }

    /// A pool that begins at `now`, in which requests are already.
    pub(super) fn begin(now: Time, limit: Box<dyn ConcurrencyLimit>, in_flight: u32) -> Self {
        let mut pool = Pool { in_flight, ticked: now, ..Pool::new(limit) };
        pool.begin_limit(now);
        pool
    }

    /// Replaces the limit; what is known of the backend stays.
    pub(super) fn set_limit(&mut self, now: Time, limit: Box<dyn ConcurrencyLimit>) {
        self.limit = limit;
        self.begin_limit(now);
    }

    /// A new limit's time begins now: else its first interval would be as long as the proxy's life.
    fn begin_limit(&mut self, now: Time) {
        let idle = Tick { now, in_flight: 0, queued: 0, has_starved: true, oldest_unread: None };
        self.limit.on_tick(&idle);
    }

    pub(super) fn set_objective(&mut self, objective: Nanos) {
        self.limit.set_objective(objective);
    }

    /// Takes note that its backend gets no more requests.
    pub(super) fn retire(&mut self) {
        self.is_retired = true;
    }

    pub(super) fn is_retired(&self) -> bool {
        self.is_retired
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit.limit().max(1)
    }

    pub(super) fn steady_limit(&self) -> u32 {
        self.limit.steady_limit().max(1)
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(super) fn margin(&self) -> Nanos {
        self.margin.margin()
    }

    /// Begins a trial if it is due: one more request is sent although all places are taken. No
    /// answer has come for the objective, and the requests that are there may hang. The time until
    /// the next trial doubles up to a second, for the backend may have stopped.
    pub(super) fn begins_trial(&mut self, now: Time, objective: Nanos) -> bool {
        let limit = self.limit();
        let (answers, since, interval) = &mut self.trial;
        if *answers != self.all_answers || self.in_flight < limit {
            (*answers, *since, *interval) = (self.all_answers, now, objective);
            return false;
        }
        let is_due = now.since(*since) >= *interval;
        // Where the limit has fallen, several places must be free before a request is sent.
        if is_due && self.in_flight == limit {
            (*since, *interval) = (now, (*interval * 2).min(objective.max(LONGEST_TRIAL)));
        }
        is_due
    }

    /// Requests that are there and get answers, by Little's law: without those that hang.
    pub(super) fn answered_in_flight(&self) -> u64 {
        let by_little = self.mean_ns / self.gap_ns.max(1.0);
        (by_little as u64).min(u64::from(self.in_flight))
    }

    pub(super) fn answers(&self) -> u64 {
        self.all_answers
    }

    pub(super) fn mean_sojourn(&self) -> Nanos {
        Nanos(self.mean_ns as u64)
    }

    /// Share of the places that is free.
    pub(super) fn free_share(&self) -> f64 {
        let limit = f64::from(self.limit());
        (limit - f64::from(self.in_flight)) / limit
    }

    /// Answers per nanosecond while all places are taken; 0 before the first answer.
    pub(super) fn rate(&self) -> f64 {
        if self.rate > 0.0 {
            self.rate
        } else if self.mean_ns > 0.0 {
            // Little's law; it is late where the limit has just changed.
            f64::from(self.in_flight) / self.mean_ns
        } else {
            0.0
        }
    }

    /// Learns the rate of a tick. With free places, more answers would have been possible.
    fn update_rate(&mut self, now: Time, has_starved: bool) {
        let elapsed_ns = now.since(std::mem::replace(&mut self.ticked, now)).0 as f64;
        let answers = f64::from(std::mem::take(&mut self.answers));
        let rate = answers / elapsed_ns.max(1.0);
        if elapsed_ns <= 0.0 || (has_starved && rate < self.rate) {
            return;
        }
        let weight = (answers / RATE_ANSWERS).clamp(LEAST_WEIGHT, MOST_WEIGHT);
        self.rate = if self.rate == 0.0 { rate } else { self.rate + weight * (rate - self.rate) };
    }

    pub(super) fn send(&mut self, now: Time) {
        self.in_flight += 1;
        self.limit.on_dispatch(now, self.in_flight);
        self.note_full(now);
    }

    fn note_full(&mut self, now: Time) {
        if self.in_flight >= self.limit() && self.full_since.is_none() {
            self.full_since = Some(now);
        }
    }

    /// Time for which all places are taken without an answer; zero if one is free.
    pub(super) fn silence(&self, now: Time) -> Nanos {
        let since = self.full_since.filter(|_| self.in_flight >= self.limit());
        since.map_or(Nanos::ZERO, |since| now.since(since))
    }

    pub(super) fn note_hang(&mut self, now: Time, waited: Nanos) {
        self.limit.on_hang(now, waited);
    }

    pub(super) fn release(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        // Not with each: after a hang, requests that are given up leave places to be taken at once.
        if self.in_flight == 0 {
            self.full_since = None;
        }
    }

    pub(super) fn answer(&mut self, response: &Response) {
        let sojourn = response.sojourn();
        let weight = if self.mean_ns == 0.0 { 1.0 } else { WEIGHT };
        self.mean_ns += weight * (sojourn.0 as f64 - self.mean_ns);
        // Without requests there are no answers: that is no gap between them.
        let gap_ns = response.now.since(std::mem::replace(&mut self.answered, response.now)).0 as f64;
        self.gap_ns += weight * (gap_ns.min(self.mean_ns) - self.gap_ns);
        self.all_answers += 1;
        self.full_since = None;
        self.answers += 1;
        self.margin.push(sojourn);
        self.limit.on_response(response);
    }

    /// Takes note that nobody waits; returns whether a place is free.
    pub(super) fn note_starvation(&mut self) -> bool {
        let is_free = self.in_flight < self.limit();
        self.has_starved |= is_free;
        is_free
    }

    pub(super) fn tick(
        &mut self,
        now: Time,
        queued: u32,
        (has_rejected, oldest_unread): (bool, Option<Nanos>),
        objective: Nanos,
    ) {
        let (in_flight, has_starved) = (self.in_flight, std::mem::take(&mut self.has_starved) && !has_rejected);
        self.update_rate(now, has_starved);
        self.note_full(now);
        self.margin.update(objective);
        self.limit.on_tick(&Tick { now, in_flight, queued, has_starved, oldest_unread });
    }
}
