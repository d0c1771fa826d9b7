//! Recovery of `knee` from an overload, a slow-down and a stop of the backend, and its beginning
//! under an overload, in virtual time. Does not contain random histories (`swarm`).

use crate::support::{case, fixed, knee, numbered, slots};
use leeward_core::units::Nanos;
use leeward_proxy_sim::case::{Case, Demand, Discipline, Feature};
use leeward_proxy_sim::proxy::Slot;
use leeward_workload::ServiceTime;

const MS: Nanos = Nanos::from_millis(1);
/// Virtual time after which the goodput is back.
const BACK: Nanos = Nanos::from_millis(1_000);
/// The same after a slow-down, where the time of the requests at the backend is learnt anew.
const SLOW_BACK: Nanos = Nanos::from_millis(2_000);

/// Twice the capacity of 4 cores for 20 s, with one feature.
fn overloaded(feature: Feature, discipline: Discipline, service: ServiceTime) -> Case {
    let demand = Demand::Steps(vec![(Nanos::ZERO, 2.0), (MS * 20_000, 0.0)]);
    Case { features: vec![feature], discipline, demand, ..case(4, service) }
}

/// Goodput in `span` from each of `times`, relative to the best of three static numbers.
fn shares<const N: usize>(case: &Case, times: [Nanos; N], span: Nanos) -> [f64; N] {
    let good = |all: &[Slot], from| slots(all, from, from + span).iter().map(|slot| slot.good).sum::<u64>();
    let (own, others) = (knee(case, 1), fixed(case, 1));
    times.map(|from| {
        let best = others.iter().map(|all| good(all, from)).max().unwrap_or(0);
        good(&own, from) as f64 / best as f64
    })
}

fn backends() -> impl Iterator<Item = (Discipline, ServiceTime)> {
    let services =
        [ServiceTime::Constant(MS), ServiceTime::Exponential(MS), ServiceTime::Lognormal { mean: MS, sigma: 1.0 }];
    services.into_iter().flat_map(|service| {
        [Discipline::Fifo, Discipline::ProcessorSharing].map(|discipline| (discipline, service.clone()))
    })
}

#[test]
fn a_start_at_twice_the_capacity_takes_a_second() {
    for cores in [1, 2, 8] {
        for (discipline, service) in backends() {
            let demand = Demand::Steps(vec![(Nanos::ZERO, 2.0), (MS * 3_000, 0.0)]);
            let case = Case { discipline, demand, ..case(cores, service) };
            let [share] = shares(&case, [BACK], MS * 2_000);
            assert!(share >= 0.95, "{case}: {share}");
        }
    }
}

#[test]
fn a_stop_is_recovered_from_within_a_second() {
    for (discipline, service) in backends() {
        let silence = Feature::Silence { from: MS * 5_000, to: MS * 8_000 };
        let [share] = shares(&overloaded(silence, discipline, service.clone()), [MS * 8_000 + BACK], MS * 2_000);
        assert!(share >= 0.95, "{service:?}, {discipline:?}: {share}");
    }
}

#[test]
fn a_slow_down_is_recovered_from_within_two_seconds() {
    for (discipline, service) in backends() {
        let slower = Feature::Slower { from: MS * 4_000, to: MS * 12_000, factor: 3.0 };
        let times = [MS * 4_000, MS * 12_000].map(|from| from + SLOW_BACK);
        // In two seconds, the few answers of a slow backend differ by 3 % by chance.
        let shares = shares(&overloaded(slower, discipline, service.clone()), times, MS * 6_000);
        assert!(shares.iter().all(|share| *share >= 0.95), "{service:?}, {discipline:?}: {shares:?}");
    }
}

#[test]
fn half_the_capacity_is_not_refused_after_an_overload() {
    for cores in [1, 4] {
        for (discipline, service) in backends() {
            let demand = Demand::Steps(vec![(Nanos::ZERO, 3.0), (MS * 4_000, 0.5), (MS * 12_000, 0.0)]);
            let case = Case { discipline, demand, ..case(cores, service) };
            let all = knee(&case, 1);
            let rejected: u64 = slots(&all, MS * 4_000 + BACK, MS * 12_000).iter().map(|slot| slot.rejected).sum();
            assert_eq!(rejected, 0, "{case}");
        }
    }
}

/// A service whose requests move in a bunch needs many more of them than others, and may not be
/// held at the few with which its queue begins.
#[test]
fn a_service_that_reads_late_gets_what_it_needs() {
    for (awaiting, objective) in [(MS * 20, MS * 100), (MS * 60, MS * 300)] {
        let demand = Demand::Steps(vec![(Nanos::ZERO, 2.0), (MS * 16_000, 0.0)]);
        let features = vec![Feature::Awaiting(awaiting), Feature::LateReads];
        let case = Case { features, objective, demand, ..case(1, ServiceTime::Constant(MS)) };
        let good = |all: &[Slot]| slots(all, MS * 4_000, MS * 16_000).iter().map(|slot| slot.good).sum::<u64>();
        let best = [32, 48, 54, 128, 160, 192].map(|number| good(&numbered(&case, number, 1)));
        let share = good(&knee(&case, 1)) as f64 / *best.iter().max().unwrap() as f64;
        assert!(share >= 0.9, "{case}: {share} of {best:?}");
    }
}

/// Bursts of some ten requests that the backend answers in time, and one pause of it. The limit
/// binds for a part of each burst only, and must come back all the same.
#[test]
fn bursts_are_answered_as_before_after_a_pause() {
    for (length, period, pause) in [(25, 500, 1_000), (25, 500, 300), (75, 500, 1_000), (20, 2_000, 1_000)] {
        let bursts = (0..40_000 / period).flat_map(|index| {
            let begin = MS * (index * period);
            [(begin, 1.0), (begin + MS * length, 1e-9)]
        });
        let demand = Demand::Steps(bursts.chain([(MS * 40_000, 0.0)]).collect());
        let silence = Feature::Silence { from: MS * 6_000, to: MS * (6_000 + pause) };
        let objective = MS * 100;
        let case = Case { features: vec![silence], objective, demand, ..case(8, ServiceTime::Constant(MS * 20)) };
        let all = knee(&case, 1);
        let lost = |from: u64, to: u64| -> (u64, u64) {
            let slots = slots(&all, MS * from, MS * to);
            (slots.iter().map(|slot| slot.rejected).sum(), slots.iter().map(|slot| slot.good).sum())
        };
        let (before, after) = (lost(2_000, 6_000), lost(30_000, 40_000));
        assert_eq!(
            (before.0, after.0),
            (0, 0),
            "rejected of bursts of {length} ms each {period} ms, a pause of {pause} ms"
        );
        assert!(after.1 * 4 >= before.1 * 9, "{before:?} {after:?}");
    }
}
