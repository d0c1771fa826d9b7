//! Think times of closed-loop clients: each client thinks after its request has ended, and then
//! issues the next.
//!
//! Does not contain the ends of requests, which the plant determines.

use crate::arrivals::shares;
use crate::demand::{Arrivals, Segment, Workload};
use crate::rng::{Purpose, Rng};
use leeward_core::units::Time;

/// Think times of the clients. They are the same for a seed as long as requests end in the same
/// order.
pub struct ThinkTimes {
    rng: Rng,
    segments: Vec<Segment>,
    shares: Vec<f64>,
}

impl ThinkTimes {
    /// Creates the think times of `workload`; `None` unless it is a closed loop.
    pub fn new(workload: &Workload, seed: u64) -> Option<Self> {
        let is_closed = workload.arrivals == Arrivals::Closed;
        is_closed.then(|| ThinkTimes {
            rng: Rng::new(seed, Purpose::Arrivals),
            segments: workload.demand.clone(),
            shares: shares(workload),
        })
    }

    /// Time at which `client`, which begins to think now, issues its next request; `None` if never.
    pub fn next(&mut self, client: u32, now: Time) -> Option<Time> {
        let share = self.shares[client as usize];
        let mut at = now.0 as f64;
        let first = self.segments.iter().rposition(|segment| segment.from.0 <= now.0)?;
        for index in first..self.segments.len() {
            let end = self.segments.get(index + 1).map_or(f64::INFINITY, |next| next.from.0 as f64);
            let rate = self.segments[index].rate.0 * share;
            let next = if rate > 0.0 { at + self.rng.exponential() / rate * 1e9 } else { f64::INFINITY };
            if next < end {
                return Some(Time(next as u64));
            }
            // Memoryless: the rest of a think time at a change of rate is distributed like a new
            // one.
            at = end;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::Shares;
    use crate::service_time::ServiceTime;
    use leeward_core::units::{Nanos, Rate};

    fn closed() -> Workload {
        Workload {
            clients: 10,
            arrivals: Arrivals::Closed,
            shares: Shares::Equal,
            demand: vec![
                Segment { from: Nanos::ZERO, rate: Rate(1_000.0) },
                Segment { from: Nanos::from_secs(1), rate: Rate(0.0) },
                Segment { from: Nanos::from_secs(2), rate: Rate(10_000.0) },
            ],
            service: ServiceTime::Constant(Nanos(1)),
        }
    }

    fn mean_ms(thinking: &mut ThinkTimes, from: Time) -> f64 {
        let thought = |_| thinking.next(3, from).unwrap().0 - from.0;
        (0..20_000).map(thought).sum::<u64>() as f64 / 20_000.0 / 1e6
    }

    #[test]
    fn think_times_follow_the_clients_share_of_the_demand() {
        let mut thinking = ThinkTimes::new(&closed(), 7).unwrap();
        // 100 requests/s per client, and later 1,000.
        let early = mean_ms(&mut thinking, Time::ZERO);
        let late = mean_ms(&mut thinking, Time(3_000_000_000));
        assert!((early / 10.0 - 1.0).abs() < 0.03 && (late / 1.0 - 1.0).abs() < 0.03, "{early} and {late} ms");
    }

    #[test]
    fn no_client_issues_during_a_pause_or_after_the_last_demand() {
        let mut thinking = ThinkTimes::new(&closed(), 7).unwrap();
        assert!((0..100).all(|_| thinking.next(0, Time(1_500_000_000)).unwrap().0 >= 2_000_000_000));
        let mut ends = closed();
        ends.demand.truncate(2);
        let mut thinking = ThinkTimes::new(&ends, 7).unwrap();
        assert_eq!(thinking.next(0, Time(1_500_000_000)), None);
        assert!(ThinkTimes::new(&Workload { arrivals: Arrivals::Poisson, ..closed() }, 7).is_none());
    }
}
