//! SEDA's adaptive rate limit: a token bucket per client, whose rate follows a percentile of the
//! client's response times (Welsh and Culler, USITS'03; with µs services: Breakwater §5.1). The
//! server takes no part and rejects nothing.
//!
//! Rates are requests per second of one client, as published (8/s at first, never below 2/s, bursts
//! of 4). `adj_i` has the same unit: 40 means that a client with short response times may send 40/s
//! more after each adjustment. The published scheme ignores the number of clients, so `adj_i` has
//! to be tuned to it by hand: 120/40/10 were tuned for 1,000 clients at 1/10/100 µs mean service.
//!
//! A client has no tick. An interval ends at the response that completes it, or, if responses were
//! counted, one `interval` after the last adjustment. The next call makes the adjustment for that
//! moment, as if a timer had fired. An interval without responses changes nothing.

use super::published::{AS_PUBLISHED, Version};
use leeward_core::client::params::{CLIENT_DELAY, CLIENT_QUEUE, MAX_OUTSTANDING, client_config};
use leeward_core::client::{ClientHalf, ClientParts, Gate, Reply};
use leeward_core::none::uncontrolled_server;
use leeward_core::params::{ParamError, ParamKind, ParamSpec, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::Outcome;
use leeward_core::units::{Nanos, Rate, Time};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "seda",
    summary: "client token bucket whose rate follows a percentile of response times",
    source: "Welsh and Culler, USITS'03, as tuned in Breakwater §5.1",
    params: &[
        ParamSpec {
            name: "target",
            kind: ParamKind::ANY_DURATION,
            default: "40 % of the SLO",
            doc: "response time (from departure) aimed at",
            tuning_values: &["40us", "50us", "60us", "80us", "100us", "500us", "720us"],
        },
        ParamSpec {
            name: "adj_i",
            kind: ParamKind::POSITIVE,
            default: "40",
            doc: "additive increase in requests per second and client; to be scaled with the number of clients",
            tuning_values: &["1", "4", "10", "40", "120", "400"],
        },
        ParamSpec {
            name: "adj_d",
            kind: ParamKind::Number { min: 1.0001, max: 1000.0 },
            default: "1.04",
            doc: "the rate is divided by this when responses are late",
            tuning_values: &["1.02", "1.04", "1.1", "1.3"],
        },
        ParamSpec {
            name: "percentile",
            kind: ParamKind::Number { min: 0.0, max: 1.0 },
            default: "99%",
            doc: "which response time of an interval counts (90 % in the original)",
            tuning_values: &[],
        },
        ParamSpec {
            name: "interval",
            kind: ParamKind::ANY_DURATION,
            default: "1ms",
            doc: "the rate is adjusted when this long has passed",
            tuning_values: &[],
        },
        ParamSpec {
            name: "responses",
            kind: ParamKind::Count { min: 1, max: MAX_SAMPLES as u64 },
            default: "100",
            doc: "or after this many responses, whichever comes first",
            tuning_values: &[],
        },
        ParamSpec {
            name: "initial_rate",
            kind: ParamKind::Number { min: 0.001, max: 1e9 },
            default: "8; as_published: 4",
            doc: "requests per second of a new client",
            tuning_values: &[],
        },
        ParamSpec {
            name: "min_rate",
            kind: ParamKind::Number { min: 0.001, max: 1e9 },
            default: "2",
            doc: "requests per second that a client may always send",
            tuning_values: &[],
        },
        ParamSpec {
            name: "max_rate",
            kind: ParamKind::Number { min: 0.001, max: 1e9 },
            default: "1000000",
            doc: "requests per second that no client exceeds",
            tuning_values: &[],
        },
        ParamSpec {
            name: "burst",
            kind: ParamKind::Number { min: 1.0, max: 1e6 },
            default: "4",
            doc: "tokens that an idle client collects",
            tuning_values: &[],
        },
        AS_PUBLISHED,
        CLIENT_QUEUE,
        ParamSpec { default: "100us", tuning_values: &["10us", "100us"], ..CLIENT_DELAY },
        MAX_OUTSTANDING,
    ],
    build_server: |_, environment| Ok(uncontrolled_server(environment.cores)),
    build_client: |params, environment| {
        let half = Client::new(params, environment)?;
        // 100 µs: the testbed's expiry for SEDA, for every service time.
        Ok(ClientParts { half: Box::new(half), config: client_config(params, Nanos::from_micros(100)) })
    },
};

/// Response times that one interval can hold.
const MAX_SAMPLES: usize = 100;
/// Weight of the old value in the smoothed percentile.
const SMOOTHING: f64 = 0.7;
/// The rate grows when the response time is at least this share below its target.
const GROW_BELOW: f64 = -0.5;
/// Shifts the error, so that growth is gentle near `GROW_BELOW`: the original's c_i.
const GROW_OFFSET: f64 = 0.1;

struct Client {
    version: Version,
    target: Nanos,
    adj_i: f64,
    adj_d: f64,
    percentile: f64,
    interval: Nanos,
    min_rate: f64,
    max_rate: f64,
    bucket: Bucket,
    /// Response times of the current interval, unordered.
    samples: [Nanos; MAX_SAMPLES],
    sampled: usize,
    samples_max: usize,
    adjusted: Time,
    smoothed_ns: f64,
}

impl Client {
    fn new(params: &Params, environment: &Environment) -> Result<Self, ParamError> {
        let (min_rate, max_rate) = (params.number("min_rate", 2.0), params.number("max_rate", 1e6));
        let version = Version::read(params);
        let default_rate: f64 = if version.is_published() { 4.0 } else { 8.0 };
        let initial_rate = params.number("initial_rate", default_rate.clamp(min_rate, max_rate.max(min_rate)));
        if !(min_rate..=max_rate).contains(&initial_rate) {
            return Err(ParamError::Conflict(format!(
                "`initial_rate` ({initial_rate}) must lie between `min_rate` ({min_rate}) and `max_rate` ({max_rate})"
            )));
        }
        let burst = params.number("burst", 4.0);
        Ok(Client {
            version,
            target: params.duration("target", environment.slo.scale(0.4).max(Nanos(1))),
            adj_i: params.number("adj_i", 40.0),
            adj_d: params.number("adj_d", 1.04),
            percentile: params.number("percentile", 0.99),
            interval: params.duration("interval", Nanos::from_millis(1)),
            min_rate,
            max_rate,
            bucket: match version {
                Version::Extended => Bucket::full(Rate(initial_rate), burst),
                Version::Published => Bucket::unused(Rate(initial_rate), burst),
            },
            samples: [Nanos::ZERO; MAX_SAMPLES],
            sampled: 0,
            samples_max: params.count("responses", MAX_SAMPLES as u64) as usize,
            adjusted: Time::ZERO,
            smoothed_ns: 0.0,
        })
    }

    /// Makes the adjustment for an interval that has ended since the last call, at the time of its
    /// end.
    fn settle(&mut self, now: Time) {
        let end = self.adjusted + self.interval;
        if self.sampled > 0 && end <= now && !self.version.is_published() {
            self.adjust(end, self.percentile_index());
        }
    }

    /// Index of the percentile among the sorted samples.
    fn percentile_index(&self) -> usize {
        ((self.percentile * self.sampled as f64).ceil() as usize).saturating_sub(1)
    }

    /// Ends an interval of the published client: by its samples, or by its time.
    fn adjust_as_published(&mut self, now: Time) {
        let is_full = self.sampled == self.samples_max;
        if now.since(self.adjusted) <= self.interval {
            if is_full {
                self.adjust(now, (self.percentile * self.sampled as f64) as usize);
            }
        } else if is_full {
            // The published code takes none of the samples into account here but the first.
            let first = self.samples[0];
            self.samples[..self.sampled].fill(first);
            self.adjust(now, 0);
        } else {
            self.adjust(now, (self.percentile * (self.sampled - 1) as f64) as usize);
        }
    }

    /// Ends an interval: `index` is that of its percentile among the sorted samples.
    fn adjust(&mut self, now: Time, index: usize) {
        let samples = &mut self.samples[..self.sampled];
        let (_, sample, _) = samples.select_nth_unstable(index.min(samples.len() - 1));
        self.smoothed_ns = SMOOTHING * self.smoothed_ns + (1.0 - SMOOTHING) * sample.0 as f64;
        self.sampled = 0;
        self.adjusted = now;

        let target = self.target.0 as f64;
        let error = (self.smoothed_ns - target) / target;
        let rate = self.bucket.rate.0;
        let next = if error > 0.0 {
            rate / self.adj_d
        } else if error < GROW_BELOW {
            rate - (error + GROW_OFFSET) * self.adj_i
        } else {
            rate
        };
        self.bucket.set_rate(now, Rate(next.clamp(self.min_rate, self.max_rate)));
    }
}

impl ClientHalf for Client {
    fn gate(&mut self, now: Time, _: u32) -> Gate {
        self.settle(now);
        match self.bucket.next(now) {
            at if at <= now => Gate::Open,
            // The interval may end earlier and change the rate.
            at if self.sampled > 0 && !self.version.is_published() => {
                Gate::OpensAt(at.min(self.adjusted + self.interval))
            }
            at => Gate::OpensAt(at),
        }
    }

    fn on_sent(&mut self, now: Time) {
        self.settle(now);
        self.bucket.take(now);
    }

    fn reply(&mut self, event: &Reply) {
        self.settle(event.now);
        if event.outcome == Outcome::Rejected {
            return; // no response time; SEDA's own server never rejects
        }
        self.samples[self.sampled] = self.version.measured(event.round_trip);
        self.sampled += 1;
        if self.version.is_published() {
            self.adjust_as_published(event.now);
        } else if self.sampled == self.samples_max || event.now.since(self.adjusted) >= self.interval {
            self.adjust(event.now, self.percentile_index());
        }
    }
}

/// A bucket that fills with tokens at a rate, up to a maximum.
struct Bucket {
    rate: Rate,
    burst: f64,
    tokens: f64,
    /// Time up to which the tokens are counted; `None` before the first use of a bucket that is
    /// empty then.
    filled: Option<Time>,
}

impl Bucket {
    fn full(rate: Rate, burst: f64) -> Self {
        Bucket { rate, burst, tokens: burst, filled: Some(Time::ZERO) }
    }

    fn unused(rate: Rate, burst: f64) -> Self {
        Bucket { rate, burst, tokens: 0.0, filled: None }
    }

    fn fill(&mut self, now: Time) {
        // A late `now` (an interval adjusted afterwards) adds nothing: those tokens are already
        // counted.
        let filled = self.filled.unwrap_or(now);
        self.tokens = (self.tokens + self.rate.events_in(now.since(filled))).min(self.burst);
        self.filled = Some(filled.max(now));
    }

    fn set_rate(&mut self, now: Time, rate: Rate) {
        self.fill(now);
        self.rate = rate;
    }

    /// Time at which one token is available.
    fn next(&mut self, now: Time) -> Time {
        /// Far above the rounding of sums, far below any gain for a client.
        const ROUNDING: f64 = 1e-9;
        self.fill(now);
        let missing = 1.0 - self.tokens;
        if missing <= ROUNDING {
            return now;
        }
        // One nanosecond more, so that the token is available when the timer fires.
        now + Nanos::from_secs_f64(missing / self.rate.0) + Nanos(1)
    }

    fn take(&mut self, now: Time) {
        self.fill(now);
        self.tokens = (self.tokens - 1.0).max(0.0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use leeward_core::params::RawParam;
    use leeward_core::server::Feedback;

    fn client(pairs: &[(&str, RawParam)]) -> Client {
        let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
        Client::new(&Params::read(ALGORITHM.params, pairs).unwrap(), &environment).unwrap()
    }

    fn reply(client: &mut Client, now: Time, round_trip_us: u64) {
        let round_trip = Nanos::from_micros(round_trip_us);
        client.reply(&Reply { now, outcome: Outcome::Completed, round_trip, feedback: Feedback::NONE });
    }

    fn at_us(us: u64) -> Time {
        Time::ZERO + Nanos::from_micros(us)
    }

    #[test]
    fn the_gate_admits_a_burst_and_then_the_rate() {
        let mut client = client(&[]);
        for _ in 0..4 {
            assert_eq!(client.gate(at_us(0), 0), Gate::Open);
            client.on_sent(at_us(0));
        }
        // 8 per second: one each 125 ms.
        let Gate::OpensAt(at) = client.gate(at_us(0), 0) else { panic!("open without a token") };
        assert_eq!(at, at_us(125_000) + Nanos(1));
        assert_eq!(client.gate(at, 0), Gate::Open);
    }

    #[test]
    fn the_gate_opens_at_the_announced_time() {
        let mut now = Time::ZERO;
        for rate in 1..2_000 {
            let mut client = client(&[("initial_rate", RawParam::Number(f64::from(rate) * 3.7))]);
            for _ in 0..10 {
                if let Gate::OpensAt(at) = client.gate(now, 0) {
                    assert!(at > now);
                    assert_eq!(client.gate(at, 0), Gate::Open, "rate {rate}");
                    now = at;
                }
                client.on_sent(now);
            }
        }
    }

    #[test]
    fn the_rate_follows_the_smoothed_percentile() {
        let mut client = client(&[]);
        // First interval: cur = 0.3 x 20 us, err = -0.925: + 0.825 x 40.
        reply(&mut client, at_us(1_000), 20);
        assert!((client.bucket.rate.0 - (8.0 + 33.0)).abs() < 1e-9, "{}", client.bucket.rate.0);
        // 99 short response times and a very long one in less than 1 ms: the 99th percentile is the
        // second longest.
        (0..99).for_each(|_| reply(&mut client, at_us(1_500), 20));
        let before = client.bucket.rate.0;
        reply(&mut client, at_us(1_500), 1_000_000);
        assert!(client.bucket.rate.0 > before);
        // Late responses: cur rises over the target.
        reply(&mut client, at_us(9_000), 1_000);
        let before = client.bucket.rate.0;
        reply(&mut client, at_us(10_000), 1_000);
        assert!((client.bucket.rate.0 - before / 1.04).abs() < 1e-9);
    }

    #[test]
    fn missed_intervals_are_caught_up_at_the_next_call() {
        let mut asked = client(&[]);
        let mut not_asked = client(&[]);
        for client in [&mut asked, &mut not_asked] {
            (0..4).for_each(|_| client.on_sent(at_us(0)));
            reply(client, at_us(600), 20);
        }
        for us in (600..200_000).step_by(100) {
            let _ = asked.gate(at_us(us), 0);
        }
        assert_eq!(asked.gate(at_us(200_000), 0), not_asked.gate(at_us(200_000), 0));
        assert_eq!(asked.bucket.rate, not_asked.bucket.rate);
        assert_eq!(asked.adjusted, at_us(1_000));
        assert!((asked.bucket.tokens - not_asked.bucket.tokens).abs() < 1e-6);
    }

    #[test]
    fn recovers_after_heavy_overload() {
        let mut client = client(&[]);
        let mut now = Time::ZERO;
        for _ in 0..10_000 {
            now += Nanos::from_millis(1);
            reply(&mut client, now, 50_000);
        }
        assert_eq!(client.bucket.rate.0, 2.0);
        // The client sends at its rate, and every response arrives after 20 µs. At 2/s, one
        // interval takes half a second, and the smoothed 50 ms need 19 intervals to decay: slow, as
        // published. 850 per second are 1,000 clients' full load.
        let recovered = now + Nanos::from_secs(12);
        while now < recovered {
            match client.gate(now, 0) {
                Gate::Open => {
                    client.on_sent(now);
                    now += Nanos::from_micros(20);
                    reply(&mut client, now, 20);
                }
                Gate::OpensAt(at) => now = at,
                Gate::Closed => panic!("a rate limit never closes for good"),
            }
        }
        assert!(client.bucket.rate.0 > 850.0, "{}", client.bucket.rate.0);
    }

    #[test]
    fn an_initial_rate_out_of_bounds_is_refused() {
        let params = Params::read(ALGORITHM.params, &[("initial_rate", RawParam::Number(1.0))]).unwrap();
        let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
        assert!(Client::new(&params, &environment).is_err());
    }
}
