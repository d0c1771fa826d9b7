//! Arrivals: when requests are issued, and by which client (open loop).
//!
//! The schedule depends only on the workload and the seed, so every controller meets the same one.

use crate::demand::{Arrivals, Segment, Shares, Workload};
use crate::rng::{Purpose, Rng};
use leeward_core::units::{Nanos, Rate, Time};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The stream of requests, in order of time.
pub struct ArrivalStream {
    rng: Rng,
    segments: Vec<Segment>,
    segment: usize,
    process: Process,
}

enum Process {
    /// The clients' Poisson processes together are one Poisson process; each of its points draws a
    /// client.
    Poisson { at: f64, clients: ClientSampler, bursts: Option<BurstModulation> },
    /// Each client has its own period.
    Constant(PeriodicArrivals),
}

impl ArrivalStream {
    /// Creates the stream that `seed` draws for `workload`.
    ///
    /// It is empty without any segment of demand, and for a closed loop, where
    /// [`ThinkTimes`](crate::ThinkTimes) issues the requests.
    pub fn new(workload: &Workload, seed: u64) -> Self {
        let mut rng = Rng::new(seed, Purpose::Arrivals);
        let mut segments = workload.demand.clone();
        if segments.is_empty() || workload.arrivals == Arrivals::Closed {
            segments.clear();
            segments.push(Segment { from: Nanos::ZERO, rate: Rate(0.0) });
        }
        let shares = shares(workload);
        let process = match workload.arrivals {
            Arrivals::Poisson | Arrivals::Bursts { .. } | Arrivals::Closed => Process::Poisson {
                at: 0.0,
                clients: match workload.shares {
                    Shares::Equal => ClientSampler::Even(u64::from(workload.clients)),
                    Shares::Zipf(_) => ClientSampler::alias(&shares),
                },
                bursts: match workload.arrivals {
                    Arrivals::Bursts { peak_permille, mean_length: mean } => {
                        Some(BurstModulation::new(peak_permille, mean, &mut rng))
                    }
                    _ => None,
                },
            },
            Arrivals::Constant => {
                let phases = shares.iter().map(|_| rng.unit()).collect();
                Process::Constant(PeriodicArrivals::new(shares, phases, segments[0].rate.0))
            }
        };
        ArrivalStream { rng, segments, segment: 0, process }
    }

    /// Enters the next segment of demand.
    fn advance(&mut self) -> Option<()> {
        let next = self.segments.get(self.segment + 1)?;
        self.segment += 1;
        if let Process::Constant(periodic) = &mut self.process {
            periodic.change_rate(next.from.0 as f64, next.rate.0);
        }
        Some(())
    }
}

impl Iterator for ArrivalStream {
    type Item = (Time, u32);

    /// Returns the time and client of the next request; `None` if there is none.
    fn next(&mut self) -> Option<(Time, u32)> {
        loop {
            let rate = self.segments[self.segment].rate.0;
            let end = self.segments.get(self.segment + 1).map_or(f64::INFINITY, |next| next.from.0 as f64);
            match &mut self.process {
                Process::Poisson { at, clients, bursts } => {
                    // Nothing arrives in a pause, in either state of the chain.
                    let (rate, change) = match bursts.as_mut().filter(|_| rate > 0.0) {
                        Some(bursts) => bursts.at(*at, rate, &mut self.rng),
                        None => (rate, f64::INFINITY),
                    };
                    if change < end && rate <= 0.0 {
                        *at = change;
                        continue;
                    }
                    let next = if rate > 0.0 { *at + self.rng.exponential() / rate * 1e9 } else { f64::INFINITY };
                    if next >= change && change < end {
                        // Memoryless: the rest of a gap is distributed like a new gap of the new
                        // rate.
                        *at = change;
                        continue;
                    }
                    if next < end {
                        *at = next;
                        let client = clients.draw(&mut self.rng);
                        return Some((Time(next as u64), client));
                    }
                    // Memoryless: the rest of a gap at a change of rate is distributed like a new
                    // gap.
                    *at = end;
                }
                Process::Constant(periodic) => {
                    if let Some((at, client)) = periodic.next(end) {
                        return Some((Time(at), client));
                    }
                }
            }
            self.advance()?;
        }
    }
}

/// The Markov chain of peaks and valleys.
struct BurstModulation {
    /// Factor on the rate in this state, and in the next one.
    factor: f64,
    next_factor: f64,
    /// Mean length of a state, and end of this state, ns.
    mean_length: f64,
    state_end: f64,
}

impl BurstModulation {
    fn new(peak_permille: u16, mean_length_ns: Nanos, rng: &mut Rng) -> Self {
        let peak = f64::from(peak_permille) / 1e3;
        let mean_length_ns = (mean_length_ns.0 as f64).max(1.0);
        let until = rng.exponential() * mean_length_ns;
        let (now, then) = if rng.unit() < 0.5 { (peak, 2.0 - peak) } else { (2.0 - peak, peak) };
        BurstModulation { factor: now, next_factor: then, mean_length: mean_length_ns, state_end: until }
    }

    /// Rate at `at`, and the time of its next change.
    fn at(&mut self, at: f64, rate: f64, rng: &mut Rng) -> (f64, f64) {
        while self.state_end <= at {
            std::mem::swap(&mut self.factor, &mut self.next_factor);
            self.state_end += rng.exponential() * self.mean_length;
        }
        ((rate * self.factor).max(0.0), self.state_end)
    }
}

/// Periodic arrivals of the clients, each with its own period.
///
/// Times keep fractions of a nanosecond, so that short periods neither drift nor become zero.
struct PeriodicArrivals {
    /// Rate of all clients together, per second.
    rate: f64,
    shares: Vec<f64>,
    /// Time of each client's next request, ns; infinite while the rate is zero.
    due: Vec<f64>,
    /// Rest of each client's period at the last change of rate, in units of the period, so that a
    /// pause keeps the phases.
    remaining: Vec<f64>,
    /// Due time, order of drawing among equal times, client.
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    drawn: u64,
}

impl PeriodicArrivals {
    fn new(shares: Vec<f64>, phases: Vec<f64>, rate: f64) -> Self {
        let due = vec![f64::INFINITY; shares.len()];
        let mut arrivals =
            PeriodicArrivals { rate: 0.0, shares, due, remaining: phases, heap: BinaryHeap::new(), drawn: 0 };
        arrivals.change_rate(0.0, rate);
        arrivals
    }

    /// Returns the time (ns) and client of the next request before `end` (ns).
    fn next(&mut self, end: f64) -> Option<(u64, u32)> {
        let Reverse((at, _, client)) = *self.heap.peek().filter(|Reverse((at, ..))| (*at as f64) < end)?;
        self.heap.pop();
        self.due[client as usize] += self.period(client as usize);
        self.push(client);
        Some((at, client))
    }

    /// Changes the total rate of all clients to `rate` from `from` (ns) on. The rest of each period
    /// is scaled to the new rate.
    fn change_rate(&mut self, from: f64, rate: f64) {
        if self.rate > 0.0 {
            for client in 0..self.due.len() {
                self.remaining[client] = (self.due[client] - from) / self.period(client);
            }
        }
        self.rate = rate;
        self.heap.clear();
        for client in 0..self.due.len() {
            let wait = if rate > 0.0 { self.remaining[client] * self.period(client) } else { f64::INFINITY };
            self.due[client] = from + wait;
            self.push(client as u32);
        }
    }

    /// Period of this client, ns.
    fn period(&self, client: usize) -> f64 {
        1e9 / (self.rate * self.shares[client])
    }

    fn push(&mut self, client: u32) {
        let at = self.due[client as usize] as u64;
        if at != u64::MAX {
            self.drawn += 1;
            self.heap.push(Reverse((at, self.drawn, client)));
        }
    }
}

/// Share of each client in the demand.
pub(crate) fn shares(workload: &Workload) -> Vec<f64> {
    let weights: Vec<f64> = (1..=workload.clients)
        .map(|rank| match workload.shares {
            Shares::Equal => 1.0,
            Shares::Zipf(exponent) => libm::pow(f64::from(rank), -exponent),
        })
        .collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// Draws a client by its share, in constant time.
enum ClientSampler {
    Even(u64),
    /// Vose's alias method: a slot yields its own client with its probability, else its alias.
    Alias {
        keep: Vec<f64>,
        alias: Vec<u32>,
    },
}

impl ClientSampler {
    fn alias(shares: &[f64]) -> Self {
        let count = shares.len();
        let mut scaled: Vec<f64> = shares.iter().map(|share| share * count as f64).collect();
        let mut keep = vec![1.0; count];
        let mut alias: Vec<u32> = (0..count as u32).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..count).partition(|slot| scaled[*slot] < 1.0);
        while let (Some(below), Some(above)) = (small.pop(), large.pop()) {
            keep[below] = scaled[below];
            alias[below] = above as u32;
            scaled[above] -= 1.0 - scaled[below];
            if scaled[above] < 1.0 { small.push(above) } else { large.push(above) }
        }
        ClientSampler::Alias { keep, alias }
    }

    fn draw(&self, rng: &mut Rng) -> u32 {
        match self {
            ClientSampler::Even(clients) => rng.below(*clients) as u32,
            ClientSampler::Alias { keep, alias } => {
                let slot = rng.below(keep.len() as u64) as usize;
                if rng.unit() < keep[slot] { slot as u32 } else { alias[slot] }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service_time::ServiceTime;

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
            service: ServiceTime::Constant(Nanos(1)),
        }
    }

    /// Counts requests per second of the run, and per client.
    fn count(arrivals: Arrivals, shares: Shares) -> ([u64; 3], Vec<u64>) {
        let stream = ArrivalStream::new(&workload(arrivals, shares), 7);
        let (mut seconds, mut clients) = ([0; 3], vec![0; 100]);
        let mut last = Time::ZERO;
        for (at, client) in stream {
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
    fn bursts_keep_the_mean_and_spread_the_counts() {
        let bursts = Arrivals::Bursts { peak_permille: 1_800, mean_length: Nanos::from_millis(1) };
        let (seconds, _) = count(bursts, Shares::Equal);
        assert_eq!(seconds[1], 0);
        assert!((seconds[0] as f64 / 1e5 - 1.0).abs() < 0.1, "{seconds:?}");
        assert!((seconds[2] as f64 / 3e5 - 1.0).abs() < 0.1, "{seconds:?}");
        // Variance over mean of the counts per 10 ms: 1 for a Poisson process; for this chain 1 + 2
        // (0.8)^2 rate tau (1 - ...), tau half a state's length: some 60 at 100 per ms.
        let dispersion = |arrivals| {
            let mut counts = vec![0.0; 100];
            for (at, _) in ArrivalStream::new(&workload(arrivals, Shares::Equal), 7) {
                let Some(count) = counts.get_mut((at.0 / 10_000_000) as usize) else { break };
                *count += 1.0;
            }
            let mean = counts.iter().sum::<f64>() / 100.0;
            counts.iter().map(|count| (count - mean) * (count - mean)).sum::<f64>() / 100.0 / mean
        };
        let (bursty, even) = (dispersion(bursts), dispersion(Arrivals::Poisson));
        assert!((0.6..1.6).contains(&even) && (30.0..120.0).contains(&bursty), "{bursty} and {even}");
    }

    #[test]
    fn a_pause_keeps_the_clients_phases() {
        // A pause before the first request, and one in the middle of a run.
        for pause_from in [0, 1] {
            let mut paused = workload(Arrivals::Constant, Shares::Equal);
            paused.demand.drain(..1 - pause_from);
            paused.demand[0].from = Nanos::ZERO;
            let resumes = paused.demand.last().unwrap().from;
            let mut stream = ArrivalStream::new(&paused, 7);
            let after: Vec<u64> = std::iter::from_fn(|| stream.next())
                .map(|(at, _)| at.0)
                .skip_while(|at| *at < resumes.0)
                .take(100)
                .collect();
            let distinct: std::collections::BTreeSet<u64> = after.iter().copied().collect();
            assert!(distinct.len() > 90, "100 clients come at {} moments", distinct.len());
            // 100 clients at 3,000/s each: all within one period of a third of a millisecond.
            assert!(after.iter().all(|at| at - resumes.0 <= 333_334), "{after:?}");
        }
    }

    #[test]
    fn subnanosecond_intervals_neither_drift_nor_stop() {
        for (rate, expected) in [(600_000_001.0, 600_000.0), (5e9, 5e6)] {
            let alone = Workload {
                clients: 1,
                demand: vec![Segment { from: Nanos::ZERO, rate: Rate(rate) }],
                ..workload(Arrivals::Constant, Shares::Equal)
            };
            let mut stream = ArrivalStream::new(&alone, 7);
            let in_a_millisecond = std::iter::from_fn(|| stream.next()).take_while(|(at, _)| at.0 < 1_000_000);
            let counted = in_a_millisecond.take(10_000_000).count() as f64;
            assert!((counted - expected).abs() <= 2.0, "{counted} of {expected}");
        }
    }

    #[test]
    fn client_shares_follow_the_zipf_law() {
        for arrivals in [Arrivals::Poisson, Arrivals::Constant] {
            let (_, clients) = count(arrivals, Shares::Zipf(1.0));
            let first_over_tenth = clients[0] as f64 / clients[9] as f64;
            assert!((first_over_tenth / 10.0 - 1.0).abs() < 0.06, "{arrivals:?}: {first_over_tenth}");
        }
    }
}
