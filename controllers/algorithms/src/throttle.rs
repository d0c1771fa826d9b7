//! Adaptive client throttling: a client rejects locally with a probability that grows with the
//! share of its requests that the server did not accept (Beyer et al., Site Reliability
//! Engineering, ch. 21). The server rejects while its queueing delay is over a threshold; otherwise
//! there would be nothing to count. Does not contain the choice of that threshold, which is tuned
//! like any AQM's.
//!
//! Recovery is exponential in windows. Local rejections count as requests, so after a long outage
//! one request out of a window's requests is sent. In the next window it is K times that share.

use leeward_core::client::params::{CLIENT_DELAY, CLIENT_QUEUE, MAX_OUTSTANDING, client_config};
use leeward_core::client::{ClientHalf, ClientParts, ClientVerdict, Gate, Reply, Submission};
use leeward_core::none::NoLoop;
use leeward_core::params::{ParamKind, ParamSpec, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{Admission, Arrival, Outcome, RejectReason, ServerHalves, Session, Verdict};
use leeward_core::units::{Nanos, Time};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "throttle",
    summary: "clients reject locally by their recent share of accepted requests; the server rejects by delay",
    source: "Site Reliability Engineering (O'Reilly 2016), ch. 21",
    params: &[
        ParamSpec {
            name: "k",
            kind: ParamKind::Number { min: 1.0, max: 1000.0 },
            default: "2",
            doc: "requests a client tries per accepted one before it throttles itself",
            tuning_values: &["1.1", "1.5", "2"],
        },
        ParamSpec {
            name: "window",
            kind: ParamKind::Duration { min: Nanos(BUCKETS as u64), max: Nanos::from_secs(3_600) },
            default: "2s",
            doc: "requests and accepts of this long count (two minutes in the original)",
            tuning_values: &["20ms", "200ms", "2s"],
        },
        ParamSpec {
            name: "threshold",
            kind: ParamKind::ANY_DURATION,
            default: "40 % of the SLO",
            doc: "queueing delay from which the server rejects",
            tuning_values: &["40us", "80us", "120us", "160us", "500us"],
        },
        CLIENT_QUEUE,
        ParamSpec { default: "none", ..CLIENT_DELAY },
        MAX_OUTSTANDING,
    ],
    build_server: |params, environment| Ok(halves(params, environment)),
    build_client: |params, _| {
        Ok(ClientParts { half: Box::new(Client::new(params)), config: client_config(params, Nanos::MAX) })
    },
};

fn halves(params: &Params, environment: &Environment) -> ServerHalves {
    let threshold = params.duration("threshold", environment.slo.scale(0.4));
    ServerHalves {
        cores: (0..environment.cores).map(|_| Box::new(Core { threshold }) as Box<dyn Admission>).collect(),
        control: Box::new(NoLoop),
    }
}

struct Core {
    threshold: Nanos,
}

impl Admission for Core {
    fn request(&mut self, _: &mut Session, event: &Arrival) -> Verdict {
        if event.delay >= self.threshold { Verdict::Reject(RejectReason::Delay) } else { Verdict::Admit }
    }
}

struct Client {
    k: f64,
    history: History,
}

impl Client {
    fn new(params: &Params) -> Self {
        Client { k: params.number("k", 2.0), history: History::new(params.duration("window", Nanos::from_secs(2))) }
    }

    /// The book's equation for the probability of a local rejection.
    fn reject_probability(&self) -> f64 {
        let Counts { requests, accepts } = self.history.total;
        ((requests as f64 - self.k * accepts as f64) / (requests as f64 + 1.0)).max(0.0)
    }
}

impl ClientHalf for Client {
    fn submit(&mut self, event: &Submission) -> ClientVerdict {
        self.history.advance(event.now);
        let reject = unit_interval(event.random) < self.reject_probability();
        // Local rejections count as requests: they stand for load that still exists, and more of
        // them mean fewer sent requests. The probability stays below one, so that some requests are
        // always sent.
        self.history.count(Counts { requests: 1, accepts: 0 });
        if reject { ClientVerdict::Reject } else { ClientVerdict::Accept }
    }

    fn gate(&mut self, _: Time, _: u32) -> Gate {
        Gate::Open
    }

    fn reply(&mut self, event: &Reply) {
        self.history.advance(event.now);
        if event.outcome == Outcome::Completed {
            self.history.count(Counts { requests: 0, accepts: 1 });
        }
    }
}

/// Converts the top 53 bits to a number in [0, 1).
fn unit_interval(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// Buckets in the window, which slides in steps of a tenth.
const BUCKETS: usize = 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    requests: u64,
    accepts: u64,
}

/// Counts of the last window, in a ring of buckets.
struct History {
    /// Length of one bucket.
    step: Nanos,
    buckets: [Counts; BUCKETS],
    /// Number of the current bucket since time zero; its index is this modulo `BUCKETS`.
    current: u64,
    total: Counts,
}

impl History {
    fn new(window: Nanos) -> Self {
        let step = Nanos((window.0 / BUCKETS as u64).max(1));
        History { step, buckets: [Counts::default(); BUCKETS], current: 0, total: Counts::default() }
    }

    fn advance(&mut self, now: Time) {
        let current = now.0 / self.step.0;
        let passed = current.saturating_sub(self.current).min(BUCKETS as u64);
        for step in 1..=passed {
            let index = ((self.current + step) % BUCKETS as u64) as usize;
            let old = std::mem::take(&mut self.buckets[index]);
            self.total.requests -= old.requests;
            self.total.accepts -= old.accepts;
        }
        self.current = self.current.max(current);
    }

    fn count(&mut self, counts: Counts) {
        let bucket = &mut self.buckets[(self.current % BUCKETS as u64) as usize];
        bucket.requests += counts.requests;
        bucket.accepts += counts.accepts;
        self.total.requests += counts.requests;
        self.total.accepts += counts.accepts;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use leeward_core::server::Feedback;
    use leeward_core::units::Priority;

    fn client() -> Client {
        Client::new(&Params::default())
    }

    fn at_ms(ms: u64) -> Time {
        Time::ZERO + Nanos::from_millis(ms)
    }

    fn submit(client: &mut Client, now: Time, random: u64) -> ClientVerdict {
        client.submit(&Submission { now, priority: Priority::LOWEST, random })
    }

    fn reply(client: &mut Client, now: Time, outcome: Outcome) {
        client.reply(&Reply { now, outcome, round_trip: Nanos::from_micros(20), feedback: Feedback::NONE });
    }

    /// Even over the 64 bits, the same in every run.
    fn spread(step: u64) -> u64 {
        step.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// Issues a request per ms; the server answers each sent one with `outcome`. Returns the number
    /// sent.
    fn run(client: &mut Client, from_ms: u64, ms: u64, outcome: Outcome) -> u64 {
        let mut sent = 0;
        for step in from_ms..from_ms + ms {
            if submit(client, at_ms(step), spread(step)) == ClientVerdict::Accept {
                sent += 1;
                reply(client, at_ms(step), outcome);
            }
        }
        sent
    }

    #[test]
    fn nothing_is_rejected_while_half_is_accepted() {
        let mut client = client();
        for step in 0..1_000 {
            assert_eq!(submit(&mut client, at_ms(step), 0), ClientVerdict::Accept);
            let outcome = if step % 2 == 0 { Outcome::Completed } else { Outcome::Rejected };
            reply(&mut client, at_ms(step), outcome);
        }
        assert_eq!(client.reject_probability(), 0.0);
    }

    #[test]
    fn the_reject_probability_is_the_sre_books_formula() {
        let mut client = client();
        run(&mut client, 0, 99, Outcome::Completed);
        client.history.count(Counts { requests: 201, accepts: 0 });
        assert!((client.reject_probability() - (300.0 - 198.0) / 301.0).abs() < 1e-12);
    }

    #[test]
    fn counts_older_than_the_window_expire() {
        let mut client = client();
        client.history.count(Counts { requests: 1_000, accepts: 3 });
        client.history.advance(at_ms(1_999));
        assert_eq!(client.history.total, Counts { requests: 1_000, accepts: 3 });
        client.history.advance(at_ms(2_000));
        assert_eq!(client.history.total, Counts::default());
        client.history.count(Counts { requests: 1, accepts: 1 });
        client.history.advance(at_ms(1_000_000));
        assert_eq!(client.history.total, Counts::default());
    }

    #[test]
    fn recovers_after_heavy_overload() {
        let mut client = client();
        let sent = run(&mut client, 0, 60_000, Outcome::Rejected);
        assert!((1..6_000).contains(&sent), "{sent} requests sent into the overload");
        // All sent requests are accepted; with K = 2 their share doubles per window. From one in
        // 2,000 to all takes eleven windows.
        run(&mut client, 60_000, 22_000, Outcome::Completed);
        assert_eq!(run(&mut client, 82_000, 10_000, Outcome::Completed), 10_000);
        assert_eq!(client.reject_probability(), 0.0);
    }
}
