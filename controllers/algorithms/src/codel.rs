//! CoDel as admission control: a server rejects requests on arrival while its queueing delay has
//! been over a target for a whole interval (Nichols and Jacobson, RFC 8289; as a baseline:
//! Breakwater §2.2). Clients send at will, so that every rejection is real work for both sides.
//! Does not contain a limit that clients know.

use super::published::{AS_PUBLISHED, Version};
use leeward_core::client::ClientParts;
use leeward_core::client::params::{CLIENT_DELAY, CLIENT_QUEUE, MAX_OUTSTANDING, client_config};
use leeward_core::none::{NoLoop, SendAll};
use leeward_core::params::{ParamKind, ParamSpec, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{Admission, Arrival, RejectReason, ServerHalves, Session, Verdict};
use leeward_core::units::{Nanos, Time};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "codel",
    summary: "server-side drops while the queueing delay stays over a target",
    source: "Nichols and Jacobson, RFC 8289",
    params: &[
        ParamSpec {
            name: "law",
            kind: ParamKind::Choice(&["threshold", "sqrt"]),
            default: "threshold",
            doc: "drop everything while congested, or at intervals that shrink with the square root of the drops",
            tuning_values: &[],
        },
        ParamSpec {
            name: "target",
            kind: ParamKind::ANY_DURATION,
            default: "40 % of the SLO",
            doc: "queueing delay that may stand",
            tuning_values: &["10us", "20us", "40us", "60us", "80us", "120us", "160us", "500us"],
        },
        ParamSpec {
            name: "interval",
            kind: ParamKind::ANY_DURATION,
            default: "the SLO, at most 1ms",
            doc: "how long the delay has to exceed the target before drops begin",
            tuning_values: &["10us", "50us", "200us", "1ms"],
        },
        AS_PUBLISHED,
        CLIENT_QUEUE,
        ParamSpec { default: "none", ..CLIENT_DELAY },
        MAX_OUTSTANDING,
    ],
    build_server: |params, environment| Ok(halves(params, environment)),
    build_client: |params, _| Ok(ClientParts { half: Box::new(SendAll), config: client_config(params, Nanos::MAX) }),
};

fn halves(params: &Params, environment: &Environment) -> ServerHalves {
    ServerHalves {
        cores: (0..environment.cores).map(|_| Box::new(Core::new(params, environment)) as Box<dyn Admission>).collect(),
        control: Box::new(NoLoop),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Law {
    Threshold,
    Sqrt,
}

/// State of one core: cores share the measured delay, not the decisions.
struct Core {
    law: Law,
    target: Nanos,
    interval: Nanos,
    /// Time since which the delay has been at least the target, as far as this core knows.
    above_since: Option<Time>,
    /// Time of this core's last request.
    last_seen: Time,
    drops: SqrtDrops,
}

impl Core {
    fn new(params: &Params, environment: &Environment) -> Self {
        let interval = match Version::read(params) {
            Version::Extended => params.duration("interval", environment.slo.clamp(Nanos(1), Nanos::from_millis(1))),
            Version::Published => Nanos::ZERO, // the testbed's server rejects by the current delay
        };
        Core {
            law: if params.choice("law", "threshold") == "sqrt" { Law::Sqrt } else { Law::Threshold },
            target: params.duration("target", environment.slo.scale(0.4)),
            interval,
            above_since: None,
            last_seen: Time::ZERO,
            drops: SqrtDrops::default(),
        }
    }

    /// Whether the delay has stayed above the target for an interval.
    fn is_congested(&mut self, now: Time, delay: Nanos) -> bool {
        let last_seen = std::mem::replace(&mut self.last_seen, now);
        if delay < self.target {
            self.above_since = None;
            return false;
        }
        // A busy core may receive no request for longer than an interval. The waiting entries show
        // the delay of that time: x ago, the oldest packet and the oldest task were each younger by
        // x, so the delay then was at least delay − 2x.
        let proven_since = Time(now.0.saturating_sub(delay.saturating_sub(self.target).0 / 2));
        let gap_is_known = now.since(last_seen) <= self.interval || proven_since <= last_seen;
        let since = match self.above_since {
            Some(since) if gap_is_known => since,
            // The last request met a shorter delay, so the delay has stood since then at the
            // earliest. Otherwise nothing is known of the time before the proof.
            _ => proven_since.max(last_seen),
        };
        self.above_since = Some(since);
        now.since(since) >= self.interval
    }
}

impl Admission for Core {
    fn request(&mut self, _: &mut Session, event: &Arrival) -> Verdict {
        let congested = self.is_congested(event.now, event.delay);
        let rejects = match self.law {
            Law::Threshold => congested,
            Law::Sqrt => self.drops.decide(event.now, self.interval, self.above_since.is_some(), congested),
        };
        if rejects { Verdict::Reject(RejectReason::Delay) } else { Verdict::Admit }
    }
}

/// The control law of RFC 8289 §5: while congested, one rejection per interval / √rejections.
#[derive(Default)]
struct SqrtDrops {
    dropping: bool,
    next: Time,
    count: u32,
    /// `count` at the start of the last rejecting state.
    count_at_start: u32,
}

impl SqrtDrops {
    fn decide(&mut self, now: Time, interval: Nanos, above: bool, congested: bool) -> bool {
        if self.dropping {
            if !above {
                self.dropping = false;
                return false;
            }
            if now < self.next {
                return false;
            }
            self.count = self.count.saturating_add(1);
            self.next += self.gap(interval);
            return true;
        }
        if !congested {
            return false;
        }
        // RFC 8289 §5.4: a state that ended recently resumes near the rate of rejections that
        // controlled the queue.
        let since_start = self.count - self.count_at_start;
        let recent = now.since(self.next) < Nanos(interval.0.saturating_mul(16));
        self.count = if since_start > 1 && recent { since_start } else { 1 };
        self.count_at_start = self.count;
        self.dropping = true;
        self.next = now + self.gap(interval);
        true
    }

    fn gap(&self, interval: Nanos) -> Nanos {
        interval.scale(1.0 / f64::from(self.count).sqrt())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use leeward_core::params::RawParam;
    use leeward_core::server::{CoreId, SessionSlot};

    const TARGET_US: u64 = 80;
    const INTERVAL_US: u64 = 200;

    fn core(law: &str) -> Core {
        let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
        let params = Params::read(ALGORITHM.params, &[("law", RawParam::Text(law.into()))]).unwrap();
        Core::new(&params, &environment)
    }

    /// Sends a request each 10 µs for `us` at this delay; counts the rejected.
    fn run(core: &mut Core, from_us: u64, us: u64, delay_us: u64) -> usize {
        (0..us / 10).filter(|step| !admits(core, from_us + step * 10, delay_us)).count()
    }

    fn admits(core: &mut Core, at_us: u64, delay_us: u64) -> bool {
        let mut session = Session::new(SessionSlot(0), CoreId(0));
        let now = Time::ZERO + Nanos::from_micros(at_us);
        let arrival = Arrival::new(now).with_delay(Nanos::from_micros(delay_us));
        session.request(core, &arrival).0 == Verdict::Admit
    }

    #[test]
    fn rejection_begins_after_an_interval_and_ends_at_once() {
        let mut core = core("threshold");
        assert_eq!(run(&mut core, 0, INTERVAL_US, TARGET_US), 0);
        assert_eq!(run(&mut core, INTERVAL_US, 1_000, TARGET_US), 100);
        assert!(admits(&mut core, 1_200, TARGET_US - 1));
        assert!(admits(&mut core, 1_210, TARGET_US));
    }

    #[test]
    fn a_short_burst_is_let_through() {
        for law in ["threshold", "sqrt"] {
            let mut core = core(law);
            for burst in 0..50 {
                assert_eq!(run(&mut core, burst * 300, 190, 500), 0);
                assert_eq!(run(&mut core, burst * 300 + 190, 110, 10), 0);
            }
        }
    }

    #[test]
    fn an_idle_gap_restarts_the_interval() {
        let mut core = core("threshold");
        assert!(admits(&mut core, 0, 400));
        assert!(admits(&mut core, 5_000, 400), "little is known about the time between");
    }

    #[test]
    fn the_interval_starts_at_the_arrival_of_the_oldest_request() {
        let mut core = core("threshold");
        assert!(admits(&mut core, 0, 400));
        assert!(!admits(&mut core, 5_000, TARGET_US + 2 * INTERVAL_US));
        let mut core = self::core("threshold");
        assert!(admits(&mut core, 5_000, 10));
        assert!(admits(&mut core, 5_100, 5_000), "100 us ago the delay was short");
    }

    /// A core that executes a batch of requests between two polls of its packets, for longer than
    /// an interval.
    #[test]
    fn a_core_that_polls_rarely_still_rejects() {
        for law in ["threshold", "sqrt"] {
            let mut core = core(law);
            let rejected = (1..100).filter(|batch| !admits(&mut core, batch * (INTERVAL_US + 1), batch * 400)).count();
            assert!(rejected > 90, "{law}: {rejected} of 99 at up to 40 ms of delay");
        }
    }

    #[test]
    fn the_square_root_law_rejects_faster_over_time() {
        let mut core = core("sqrt");
        run(&mut core, 0, INTERVAL_US, 500);
        let first = run(&mut core, 200, 2_000, 500);
        let later = run(&mut core, 20_200, 2_000, 500);
        assert!((15..=45).contains(&first), "{first} drops at first");
        assert!(later > first, "{later} drops later, {first} at first");
    }

    #[test]
    fn recovers_after_heavy_overload() {
        for law in ["threshold", "sqrt"] {
            let mut core = core(law);
            assert!(run(&mut core, 0, 1_000_000, 50_000) > 1_000);
            assert_eq!(run(&mut core, 1_000_000, 1_000_000, 20), 0, "{law}");
        }
    }
}
