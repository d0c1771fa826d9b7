//! Requests that take longer than the objective by themselves, beside short ones, in virtual time.
//! Does not contain requests that never end.

use crate::support::{case, knee, slots};
use leeward_core::units::Nanos;
use leeward_proxy_sim::case::{Case, Demand, Feature};
use leeward_workload::ServiceTime;

const MS: Nanos = Nanos::from_millis(1);

/// So many times the capacity of 800 requests a second, of which a share takes 400 ms besides; the
/// seconds of a run: short requests that are in time, and their number.
fn play(share: f64, load: f64, seconds: u64, seed: u64) -> Vec<(u64, u64)> {
    let demand = Demand::Steps(vec![(Nanos::ZERO, load), (MS * seconds * 1_000, 0.0)]);
    let features = vec![Feature::Long { share, time: MS * 400 }];
    let case = Case { features, demand, objective: MS * 100, ..case(8, ServiceTime::Constant(MS * 10)) };
    let all = knee(&case, seed);
    let second = |from: u64| {
        let slots = slots(&all, MS * from * 1_000, MS * (from + 1) * 1_000);
        let good = slots.iter().map(|slot| slot.good).sum();
        let offered = slots.iter().map(|slot| slot.offered).sum::<u64>();
        (good, (offered as f64 * (1.0 - share)) as u64)
    };
    (0..seconds).map(second).collect()
}

/// Nothing waits at the backend, so a lower limit helps nobody: without overload all short requests
/// are in time, once the limit has learnt that.
#[test]
fn long_requests_do_not_lock_short_ones_out() {
    for (share, load) in [(0.5, 0.25), (0.2, 0.25), (0.5, 0.6)] {
        for seed in 1..=6 {
            let seconds = play(share, load, 120, seed);
            let (good, offered) = seconds[60..].iter().fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
            assert!(good as f64 >= 0.9 * offered as f64, "{share} of {load}, seed {seed}: {good} of {offered}");
        }
    }
}
