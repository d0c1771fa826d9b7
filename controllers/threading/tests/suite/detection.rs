//! Speed at which policies detect a step of the load, and their changes at a steady load
//! (`mt-detect` of the design, without a server): Poisson arrivals around the crossing of two
//! curves. `-- --nocapture detection` prints the numbers.

use super::plant::{Plant, SECOND, environment};
use leeward_core::params::RawParam;
use leeward_threading::curves::{Curve, CurvePoint, Curves};
use leeward_threading::registry::PolicyChoice;
use leeward_threading::{ThreadEnvironment, ThreadingSetup};
use std::sync::Arc;

/// Load at which the curves of the two setups cross; one is steep, the other flat.
const CROSSING: f64 = 1_000.0;

fn crossing() -> ThreadEnvironment {
    let point = |load: f64, us: f64| CurvePoint {
        load,
        p50_us: us,
        p99_us: us,
        p999_us: us,
        cpu: 1.0,
        samples: 2_000,
        spread: 0.02,
    };
    let steep = |setup: &str, low: f64, high: f64, limit: f64| Curve {
        setup: setup.parse().unwrap(),
        points: vec![point(CROSSING / 10.0, low), point(CROSSING, 300.0), point(CROSSING * 4.0, high)],
        max_load: limit,
    };
    let all = vec![steep("SIP1", 100.0, 900.0, CROSSING * 4.0), steep("SDB1-16", 250.0, 350.0, CROSSING * 20.0)];
    ThreadEnvironment { curves: Some(Arc::new(Curves::new(all).unwrap())), ..environment() }
}

struct Stream(u64);

impl Stream {
    /// Draws a gap of a Poisson stream.
    fn gap(&mut self, rate: f64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        let unit = ((self.0 >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        (-unit.ln() * SECOND as f64 / rate) as u64 + 1
    }
}

/// Builds the policy, whose name may be followed by an `error`.
fn plant(policy: &str) -> Plant {
    let (name, error) = policy.split_once(' ').unwrap_or((policy, "0.01"));
    let choice: PolicyChoice = name.parse().unwrap();
    let pairs = [("error", RawParam::Text(error.into()))];
    let pairs = if policy.contains(' ') { &pairs[..] } else { &[] };
    Plant::new(choice.policy.build(&choice.policy.params(pairs).unwrap(), &crossing()).unwrap())
}

/// The default, and errors that are a tenth and a hundredth as likely.
const POLICIES: [&str; 4] = ["utune", "leeward", "leeward 0.001", "leeward 0.0001"];

/// Changes per second at a steady load.
fn changes(policy: &str, load: f64) -> f64 {
    let (mut plant, mut stream) = (plant(policy), Stream(1));
    while plant.now() < 30 * SECOND {
        let gap = stream.gap(load);
        plant.arrive(gap);
    }
    assert_eq!(plant.violations, []);
    plant.switches.len() as f64 / 30.0
}

/// Arrivals from a step of the load to the change that it should cause: median of many runs.
fn lag(policy: &str, from: f64, to: f64) -> u64 {
    let upper: ThreadingSetup = "SDB1-16".parse().unwrap();
    let mut lags: Vec<u64> = (0..51)
        .map(|seed| {
            let (mut plant, mut stream) = (plant(policy), Stream(seed * 77 + 3));
            for _ in 0..2_000 {
                plant.arrive(stream.gap(from));
            }
            let until_it_is_there = |lag: &u64| *lag < 2_000;
            let mut lag = 0;
            while until_it_is_there(&lag) && plant.signals.current != upper {
                plant.arrive(stream.gap(to));
                lag += 1;
            }
            lag
        })
        .collect();
    lags.sort_unstable();
    lags[lags.len() / 2]
}

#[test]
fn leeward_rarely_switches_near_a_crossing() {
    for times in [0.8, 0.9, 1.0, 1.1, 1.25] {
        let counts = POLICIES.map(|policy| changes(policy, CROSSING * times));
        println!("changes per second at {times} x the crossing: {POLICIES:?} {counts:.2?}");
        assert!(counts[0] >= 10.0, "five arrivals are wide of the mark: {counts:?}");
        assert!(counts[1..].iter().all(|count| *count <= 1.0), "{times}: {counts:?}");
    }
}

#[test]
fn a_load_step_is_detected_within_80_arrivals() {
    for (from, to, max) in [(0.5, 2.0, 80), (0.9, 3.6, 40), (0.25, 4.5, 24)] {
        let lags = POLICIES.map(|policy| lag(policy, CROSSING * from, CROSSING * to));
        println!("arrivals until a step from {from} to {to} x the crossing is seen: {POLICIES:?} {lags:?}");
        assert!(lags[1..].iter().all(|lag| *lag <= max), "{from} to {to}: {lags:?}");
    }
}
