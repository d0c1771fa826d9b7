//! Due times of all requests, drawn before the run, so that the server cannot change them.

use leeward_core::units::{Nanos, Priority, Time};
use leeward_workload::rng::{Purpose, Rng};
use leeward_workload::{ArrivalStream, Workload};

pub use crate::trace::REQUESTS_MAX;
use crate::trace::Trace;

/// A request to be issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedRequest {
    /// Due time, from the start of the run.
    pub at: Time,
    /// Number of the client, from 0. Each client has its own connection.
    pub client: u32,
    /// Time for which the request keeps the server busy.
    pub service: Nanos,
    /// Importance of the request.
    pub priority: Priority,
    /// 64 random bits for the client's algorithm.
    pub random: u64,
}

/// All requests of a run, in the order of their times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    requests: Vec<PlannedRequest>,
    clients: u32,
    duration: Nanos,
}

/// Error of an impossible schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The schedule would not fit into memory.
    #[error("more than {REQUESTS_MAX} requests: lower the rate or shorten the run")]
    TooLong,
}

impl Schedule {
    /// Draws the requests of `workload` within `duration`. A simulation with the same workload and
    /// seed has the same requests, clients, service times and priorities.
    ///
    /// # Errors
    /// [`ScheduleError::TooLong`].
    pub fn draw(workload: &Workload, seed: u64, duration: Nanos) -> Result<Self, ScheduleError> {
        let mut service = Rng::new(seed, Purpose::Service);
        let mut clients = Rng::new(seed, Purpose::Clients);
        let end = Time::ZERO + duration;
        let mut requests = Vec::new();
        // A schedule that is far too long is rejected at once, before it fills the memory.
        let starts = workload.demand.iter().map(|segment| segment.from);
        let ends = starts.skip(1).chain([duration]);
        let spans = workload.demand.iter().zip(ends);
        let expected = spans.map(|(segment, to)| segment.rate.events_in(to.min(duration).saturating_sub(segment.from)));
        if expected.sum::<f64>() > 1.1 * REQUESTS_MAX as f64 {
            return Err(ScheduleError::TooLong);
        }
        // The simulator draws in this order, too: per request one service time, one priority, 64
        // bits.
        for (at, client) in ArrivalStream::new(workload, seed).take_while(|(at, _)| *at < end) {
            if requests.len() >= REQUESTS_MAX {
                return Err(ScheduleError::TooLong);
            }
            let service = workload.service.draw(&mut service);
            let priority = Priority::from_random(clients.bits());
            requests.push(PlannedRequest { at, client, service, priority, random: clients.bits() });
        }
        Ok(Schedule { requests, clients: workload.clients.max(1), duration })
    }

    /// Takes the requests of a trace, with priorities drawn from `seed`. Lasts until just after its
    /// last request.
    pub fn replay(trace: &Trace, seed: u64) -> Self {
        let mut clients = Rng::new(seed, Purpose::Clients);
        let requests: Vec<PlannedRequest> = trace
            .entries()
            .iter()
            .map(|entry| {
                let priority = Priority::from_random(clients.bits());
                PlannedRequest {
                    at: entry.at,
                    client: entry.client,
                    service: entry.service,
                    priority,
                    random: clients.bits(),
                }
            })
            .collect();
        let duration = requests.last().map_or(Nanos::ZERO, |last| Nanos(last.at.0.saturating_add(1)));
        Schedule { requests, clients: trace.clients(), duration }
    }

    /// The part that generator `index` of `of` issues: the requests of every `of`-th client, with
    /// new client numbers.
    ///
    /// The parts together are the whole schedule, so the requests don't depend on the number of
    /// generators.
    ///
    /// # Panics
    /// If `index` is not less than `of`.
    pub fn share(&self, index: u32, of: u32) -> Self {
        assert!(index < of, "generator {index} of {of}");
        let own = self.requests.iter().filter(|request| request.client % of == index);
        let requests = own.map(|request| PlannedRequest { client: request.client / of, ..*request }).collect();
        let clients = (self.clients.saturating_sub(index)).div_ceil(of).max(1);
        Schedule { requests, clients, duration: self.duration }
    }

    /// The requests, by time.
    pub fn requests(&self) -> &[PlannedRequest] {
        &self.requests
    }

    /// Number of clients, and so of connections (≥ 1).
    pub fn clients(&self) -> u32 {
        self.clients
    }

    /// Time for which requests are issued.
    pub fn duration(&self) -> Nanos {
        self.duration
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_core::units::Rate;
    use leeward_workload::{Arrivals, Segment, ServiceTime, Shares};

    fn workload() -> Workload {
        Workload {
            clients: 10,
            arrivals: Arrivals::Poisson,
            shares: Shares::Equal,
            demand: vec![Segment { from: Nanos::ZERO, rate: Rate(100_000.0) }],
            service: ServiceTime::Exponential(Nanos::from_micros(10)),
        }
    }

    #[test]
    fn a_seed_draws_one_schedule() {
        let draw = |seed| Schedule::draw(&workload(), seed, Nanos::from_millis(100)).unwrap();
        let schedule = draw(1);
        assert_eq!(schedule, draw(1));
        assert_ne!(schedule, draw(2));
        let count = schedule.requests().len() as f64;
        assert!((count / 10_000.0 - 1.0).abs() < 0.05, "{count}");
        assert!(schedule.requests().is_sorted_by_key(|request| request.at));
        assert!(schedule.requests().iter().all(|request| request.client < 10 && request.at.0 < 100_000_000));
    }

    #[test]
    fn the_shares_of_all_generators_are_the_whole_schedule() {
        let schedule = Schedule::draw(&workload(), 1, Nanos::from_millis(20)).unwrap();
        for of in [1, 3, 10] {
            let shares: Vec<Schedule> = (0..of).map(|index| schedule.share(index, of)).collect();
            assert_eq!(shares.iter().map(Schedule::clients).sum::<u32>(), schedule.clients());
            let numbered = |(index, share): (usize, &Schedule)| {
                let client = move |client: u32| client * of + index as u32;
                share
                    .requests()
                    .iter()
                    .map(|one| PlannedRequest { client: client(one.client), ..*one })
                    .collect::<Vec<_>>()
            };
            let mut all: Vec<PlannedRequest> = shares.iter().enumerate().flat_map(numbered).collect();
            all.sort_by_key(|request| (request.at, request.client));
            let mut whole = schedule.requests().to_vec();
            whole.sort_by_key(|request| (request.at, request.client));
            assert_eq!(all, whole);
        }
    }

    #[test]
    fn a_schedule_too_large_for_memory_is_rejected_at_once() {
        let steady = |rate| Workload { demand: vec![Segment { from: Nanos::ZERO, rate: Rate(rate) }], ..workload() };
        let endless = Schedule::draw(&steady(1e15), 1, Nanos::from_secs(3_600));
        assert_eq!(endless.unwrap_err(), ScheduleError::TooLong);
        // A step after the end has no effect.
        let behind = Segment { from: Nanos::from_secs(1), rate: Rate(1e15) };
        let mut stepped = workload();
        stepped.demand.push(behind);
        assert!(Schedule::draw(&stepped, 1, Nanos::from_millis(10)).is_ok());
    }

    #[test]
    fn random_streams_equal_the_simulators() {
        // One draw per request and stream, in this order; `lab/sim/src/run.rs` does the same.
        let schedule = Schedule::draw(&workload(), 5, Nanos::from_millis(1)).unwrap();
        let mut arrivals = ArrivalStream::new(&workload(), 5);
        let (mut service, mut clients) = (Rng::new(5, Purpose::Service), Rng::new(5, Purpose::Clients));
        for planned in schedule.requests() {
            assert_eq!(arrivals.next(), Some((planned.at, planned.client)));
            assert_eq!(workload().service.draw(&mut service), planned.service);
            assert_eq!(Priority::from_random(clients.bits()), planned.priority);
            assert_eq!(clients.bits(), planned.random);
        }
    }

    #[test]
    fn a_trace_is_replayed_as_it_stands() {
        let trace = Trace::parse("0 3 10\n2.5 0 1.001\n").unwrap();
        let schedule = Schedule::replay(&trace, 1);
        assert_eq!(schedule.clients(), 4);
        assert_eq!(schedule.duration(), Nanos(2_501));
        let last = schedule.requests()[1];
        assert_eq!((last.at, last.client, last.service), (Time(2_500), 0, Nanos(1_001)));
    }
}
