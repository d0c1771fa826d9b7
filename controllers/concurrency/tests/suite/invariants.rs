//! Invariants of all limits after any history: within bounds, deterministic, no lock-out.

use crate::backend::{Proxy, build};
use leeward_concurrency::{ConcurrencyLimit, Outcome, Response, TICK, Tick, UNLIMITED, registry};
use leeward_core::units::{Nanos, Time};
use proptest::prelude::*;

const OBJECTIVE: Nanos = Nanos::from_millis(50);

/// What happens between two ticks: answers of one sojourn, and the state of the proxy.
#[derive(Clone, Debug)]
struct Step {
    answers: u32,
    sojourn_us: u64,
    has_failed: bool,
    in_flight: u32,
    has_starved: bool,
    unread_ms: Option<u64>,
    /// Time from the tick before, ms: none for a clock that stands still.
    gap_ms: u64,
}

fn gap() -> impl Strategy<Value = u64> {
    prop_oneof![8 => Just(10u64), 1 => Just(0u64), 1 => 0u64..100_000]
}

/// What a history lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    Nothing,
    Successes,
    Responses,
    Time,
}

fn want() -> impl Strategy<Value = Want> {
    prop::sample::select(vec![Want::Nothing, Want::Successes, Want::Responses, Want::Time])
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step =
        (0u32..80, 0u64..2_000_000, any::<bool>(), 0u32..3_000, any::<bool>(), prop::option::of(0u64..100), gap());
    let step = step.prop_map(|(answers, sojourn_us, has_failed, in_flight, has_starved, unread_ms, gap_ms)| Step {
        answers,
        sojourn_us,
        has_failed,
        in_flight,
        has_starved,
        unread_ms,
        gap_ms,
    });
    prop::collection::vec(step, 0..200)
}

/// Plays a history; returns the time of its end and the limit at each tick.
fn play(limit: &mut dyn ConcurrencyLimit, steps: &[Step]) -> (Time, Vec<u32>) {
    let mut now = Time::ZERO + Nanos::from_secs(10);
    let mut limits = Vec::new();
    for step in steps {
        let Step { in_flight, has_starved, .. } = *step;
        let dispatched = Time(now.0.saturating_sub(step.sojourn_us * 1_000));
        let outcome = if step.has_failed { Outcome::Failed } else { Outcome::Completed };
        for _ in 0..step.answers {
            limit.on_dispatch(now, in_flight + 1);
            limit.on_response(&Response { now, dispatched, outcome, in_flight });
        }
        now += Nanos::from_millis(step.gap_ms);
        let oldest_unread = step.unread_ms.map(Nanos::from_millis);
        let queued = u32::from(!has_starved);
        limit.on_tick(&Tick { now, in_flight, queued, has_starved, oldest_unread });
        limits.push(limit.limit());
    }
    (now, limits)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_limit_stays_within_bounds_and_is_deterministic(mut steps in steps(), want in want()) {
        for step in &mut steps {
            match want {
                Want::Nothing => {}
                Want::Successes => step.has_failed = true,
                Want::Responses => step.answers = 0,
                Want::Time => step.gap_ms = 0,
            }
        }
        for name in registry::names() {
            let (mut limit, mut same) = (build(name, OBJECTIVE), build(name, OBJECTIVE));
            let (_, limits) = play(limit.as_mut(), &steps);
            prop_assert!(limits.iter().all(|limit| (1..=UNLIMITED).contains(limit)), "{}: {:?}", name, limits);
            prop_assert_eq!(limits, play(same.as_mut(), &steps).1);
        }
    }

    /// After any history, five seconds under twice the capacity bring back all cores, and no more
    /// requests than are in time: 160 take 40 of 50 ms.
    #[test]
    fn knee_recovers_from_any_history(steps in steps()) {
        let mut limit = build("knee", OBJECTIVE);
        let (now, _) = play(limit.as_mut(), &steps);
        let mut proxy = Proxy::new(limit, 4, Nanos::from_millis(1));
        proxy.now = now;
        proxy.run(Nanos::from_secs(5), Nanos::from_micros(125));
        // The last limit may be a dip's.
        let recent: Vec<u32> = proxy.limits.iter().rev().take(3).copied().collect();
        prop_assert!(recent.iter().any(|limit| (4..=160).contains(limit)), "{:?}", proxy.limits);
    }

    /// Without requests the limit does not move, once the answers of before have been used: the
    /// longest measurement takes 2 s.
    #[test]
    fn an_idle_proxy_teaches_knee_nothing(steps in steps()) {
        let mut limit = build("knee", OBJECTIVE);
        let (mut now, _) = play(limit.as_mut(), &steps);
        let mut limits = Vec::new();
        for _ in 0..500 {
            now += TICK;
            limit.on_tick(&Tick { now, in_flight: 0, queued: 0, has_starved: true, oldest_unread: None });
            limits.push(limit.limit());
        }
        prop_assert!(limits[200..].iter().all(|limit| *limit == limits[200]), "{:?}", limits);
    }
}
