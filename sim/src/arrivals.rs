//! When requests are issued and by which client: open loop, whatever the server does. The schedule depends on the
//! workload and the seed only, so every controller meets the same one.

use crate::config::{Arrivals, Segment, Shares, Workload};
use crate::heap::Heap;
use crate::rng::{Purpose, Rng};
use leeward_control::units::Time;

/// The stream of requests: ask for the next one, in order of time.
pub(crate) struct ArrivalStream {
    rng: Rng,
    segments: Vec<Segment>,
    segment: usize,
    process: Process,
}

enum Process {
    /// All clients' Poisson processes are one Poisson process whose points choose their client.
    Poisson { at: f64, clients: Draw },
    /// Every client counts its own period. `left` of each is in units of its period, so that a new rate rescales it.
    Constant { heap: Heap<u32>, shares: Vec<f64>, drawn: u64 },
}

impl ArrivalStream {
    pub(crate) fn new(workload: &Workload, seed: u64) -> Self {
        let mut rng = Rng::new(seed, Purpose::Arrivals);
        let shares = shares(workload);
        let process = match workload.arrivals {
            Arrivals::Poisson => Process::Poisson {
                at: 0.0,
                clients: match workload.shares {
                    Shares::Equal => Draw::Even(u64::from(workload.clients)),
                    Shares::Zipf(_) => Draw::alias(&shares),
                },
            },
            Arrivals::Constant => {
                let mut heap = Heap::new();
                let rate = workload.demand[0].rate.0;
                for (client, share) in shares.iter().enumerate() {
                    let phase = rng.unit();
                    heap.push((after(0.0, phase, rate * share), client as u64), client as u32);
                }
                Process::Constant { heap, shares, drawn: u64::from(workload.clients) }
            }
        };
        ArrivalStream { rng, segments: workload.demand.clone(), segment: 0, process }
    }

    /// The next request: when, and by whom. `None` when no more will come.
    pub(crate) fn next(&mut self) -> Option<(Time, u32)> {
        loop {
            let rate = self.segments[self.segment].rate.0;
            let end = self.segments.get(self.segment + 1).map_or(f64::INFINITY, |next| next.from.0 as f64);
            match &mut self.process {
                Process::Poisson { at, clients } => {
                    let next = if rate > 0.0 { *at + self.rng.exponential() / rate * 1e9 } else { f64::INFINITY };
                    if next < end {
                        *at = next;
                        let client = clients.draw(&mut self.rng);
                        return Some((Time(next as u64), client));
                    }
                    // Memoryless: what is left of a gap at a change of rate is as good as a new gap.
                    *at = end;
                }
                Process::Constant { heap, shares, drawn } => {
                    let next = heap.head().map_or(u64::MAX, |key| key.0);
                    if (next as f64) < end && next != u64::MAX {
                        let client = heap.pop()?;
                        *drawn += 1;
                        heap.push((after(next as f64, 1.0, rate * shares[client as usize]), *drawn), client);
                        return Some((Time(next), client));
                    }
                }
            }
            self.advance()?;
        }
    }

    /// Enters the next segment.
    fn advance(&mut self) -> Option<()> {
        let old = self.segments[self.segment].rate.0;
        let next = *self.segments.get(self.segment + 1)?;
        self.segment += 1;
        if let Process::Constant { heap, shares, drawn } = &mut self.process {
            let from = next.from.0 as f64;
            let mut rescaled = Heap::new();
            while let Some((at, _)) = heap.head() {
                let client = heap.pop()?;
                let share = shares[client as usize];
                // The part of the period that was still to come takes as long as the new rate says.
                let left = if old > 0.0 && at != u64::MAX { (at as f64 - from) * 1e-9 * old * share } else { 0.0 };
                *drawn += 1;
                rescaled.push((after(from, left, next.rate.0 * share), *drawn), client);
            }
            *heap = rescaled;
        }
        Some(())
    }
}

/// `periods` of `1 / rate` seconds after `from` (ns); never for a rate of zero.
fn after(from: f64, periods: f64, rate: f64) -> u64 {
    if rate > 0.0 { (from + periods / rate * 1e9) as u64 } else { u64::MAX }
}

fn shares(workload: &Workload) -> Vec<f64> {
    let weights: Vec<f64> = (1..=workload.clients)
        .map(|rank| match workload.shares {
            Shares::Equal => 1.0,
            Shares::Zipf(exponent) => libm::pow(f64::from(rank), -exponent),
        })
        .collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// Draws a client by its share in constant time.
enum Draw {
    Even(u64),
    /// Vose's alias method: a slot keeps its own client with its probability, else gives its alias.
    Alias {
        keep: Vec<f64>,
        alias: Vec<u32>,
    },
}

impl Draw {
    fn alias(shares: &[f64]) -> Self {
        let count = shares.len();
        let mut scaled: Vec<f64> = shares.iter().map(|share| share * count as f64).collect();
        let mut keep = vec![1.0; count];
        let mut alias: Vec<u32> = (0..count as u32).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..count).partition(|slot| scaled[*slot] < 1.0);
        while let (Some(poor), Some(rich)) = (small.pop(), large.pop()) {
            keep[poor] = scaled[poor];
            alias[poor] = rich as u32;
            scaled[rich] -= 1.0 - scaled[poor];
            if scaled[rich] < 1.0 { small.push(rich) } else { large.push(rich) }
        }
        Draw::Alias { keep, alias }
    }

    fn draw(&self, rng: &mut Rng) -> u32 {
        match self {
            Draw::Even(clients) => rng.below(*clients) as u32,
            Draw::Alias { keep, alias } => {
                let slot = rng.below(keep.len() as u64) as usize;
                if rng.unit() < keep[slot] { slot as u32 } else { alias[slot] }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Service;
    use leeward_control::units::{Nanos, Rate};

    fn workload(arrivals: Arrivals, shares: Shares) -> Workload {
        Workload {
            clients: 100,
            arrivals,
            shares,
            demand: vec![
                Segment { from: Nanos::ZERO, rate: Rate(100_000.0) },
                Segment { from: Nanos::from_secs(1), rate: Rate(0.0) },
                Segment { from: Nanos::from_secs(2), rate: Rate(300_000.0) },
            ],
            service: Service::Constant(Nanos(1)),
        }
    }

    /// Requests per second of the run, and per client.
    fn count(arrivals: Arrivals, shares: Shares) -> ([u64; 3], Vec<u64>) {
        let mut stream = ArrivalStream::new(&workload(arrivals, shares), 7);
        let (mut seconds, mut clients) = ([0; 3], vec![0; 100]);
        let mut last = Time::ZERO;
        while let Some((at, client)) = stream.next() {
            assert!(at >= last, "time runs backwards");
            last = at;
            let Some(second) = seconds.get_mut((at.0 / 1_000_000_000) as usize) else { break };
            *second += 1;
            clients[client as usize] += 1;
        }
        (seconds, clients)
    }

    #[test]
    fn rates_follow_the_segments() {
        for (arrivals, tolerance) in [(Arrivals::Poisson, 0.02), (Arrivals::Constant, 0.002)] {
            let (seconds, _) = count(arrivals, Shares::Equal);
            assert_eq!(seconds[1], 0, "{arrivals:?}");
            for (counted, expected) in [(seconds[0], 1e5), (seconds[2], 3e5)] {
                assert!((counted as f64 / expected - 1.0).abs() < tolerance, "{arrivals:?}: {counted} of {expected}");
            }
        }
    }

    #[test]
    fn shares_are_what_was_asked_for() {
        for arrivals in [Arrivals::Poisson, Arrivals::Constant] {
            let (_, clients) = count(arrivals, Shares::Zipf(1.0));
            let first_over_tenth = clients[0] as f64 / clients[9] as f64;
            assert!((first_over_tenth / 10.0 - 1.0).abs() < 0.06, "{arrivals:?}: {first_over_tenth}");
        }
    }
}
