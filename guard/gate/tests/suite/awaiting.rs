//! An executor's worker in virtual time, whose requests await before they work. Woken tasks and
//! newly read requests share one queue. A request thus waits twice, and its age on arrival covers
//! only the first wait.

#![cfg(not(loom))]

use leeward_core::units::Time;
use leeward_gate::{Gate, Outcome, Permit, RequestInfo};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const SLO_NS: u64 = 20_000_000;
/// Costs in ns: read a request, work and answer, send a rejection, poll sockets and timers.
const READ: u64 = 12_000;
const WORK: u64 = 212_000;
const REFUSE: u64 = 10_000;
const LOOK: u64 = 2_000;
/// Most tasks that Tokio polls between two polls of the sockets.
const LAP: usize = 61;
/// Start of the measurement; the gate knows by then how long requests take.
const WARM_NS: u64 = 1_000_000_000;
const ALL_NS: u64 = 4_000_000_000;

enum Task {
    Read(u64),
    Resume(u64, Permit),
}

/// Simulates a worker at `demand` times its capacity; each request first awaits `await_ns` ns.
///
/// Returns answers in time, divided by the answers that the worker could give.
fn goodput(builder: leeward_gate::Builder, demand: f64, await_ns: u64) -> f64 {
    let gate: Gate = builder.build().unwrap();
    let mut random = 0x1EE_3A2Du64;
    let mut gap = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let unit = (random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64;
        (-(1.0 - unit).ln() * (READ + WORK) as f64 / demand) as u64
    };
    let (mut now, mut next_arrival, mut in_time) = (0, gap(), 0);
    let mut queue: VecDeque<Task> = VecDeque::new();
    let mut timers: BTreeMap<u64, Vec<(u64, Permit)>> = BTreeMap::new();
    let mut since_look = 0;
    while now < ALL_NS {
        if queue.is_empty() || since_look == LAP {
            since_look = 0;
            now += LOOK;
            while next_arrival <= now {
                queue.push_back(Task::Read(next_arrival));
                next_arrival += gap();
            }
            while timers.first_key_value().is_some_and(|(at, _)| *at <= now) {
                let (_, due) = timers.pop_first().unwrap();
                queue.extend(due.into_iter().map(|(arrival, permit)| Task::Resume(arrival, permit)));
            }
            if queue.is_empty() {
                now = next_arrival.min(timers.first_key_value().map_or(u64::MAX, |(at, _)| *at));
            }
            continue;
        }
        since_look += 1;
        let (arrival, mut permit) = match queue.pop_front().unwrap() {
            Task::Resume(arrival, permit) => (arrival, permit),
            Task::Read(arrival) => {
                let info = RequestInfo::default().with_age(Duration::from_nanos(now - arrival));
                now += READ;
                match gate.admit_at(Time(now), &info) {
                    Ok(permit) if await_ns == 0 => (arrival, permit),
                    Ok(permit) => {
                        timers.entry(now + await_ns).or_default().push((arrival, permit));
                        continue;
                    }
                    Err(_) => {
                        now += REFUSE;
                        continue;
                    }
                }
            }
        };
        now += WORK;
        permit.record_cpu_time(Duration::from_nanos(WORK));
        permit.finish_at(Time(now), Outcome::Completed);
        in_time += u64::from(now > WARM_NS && now - arrival <= SLO_NS);
    }
    in_time as f64 * (READ + WORK) as f64 / (ALL_NS - WARM_NS) as f64
}

fn builder() -> leeward_gate::Builder {
    Gate::builder(Duration::from_nanos(SLO_NS)).workers(1)
}

#[test]
fn awaiting_handlers_queue_twice_and_still_meet_the_objective() {
    // Rejections at twice the capacity leave 0.89 of it. If awaiting takes half of the objective,
    // each of the two waits has a quarter.
    for (await_ns, by_level, by_lateness) in
        [(0, 0.88, 0.88), (1_000_000, 0.87, 0.8), (5_000_000, 0.86, 0.5), (10_000_000, 0.7, 0.1)]
    {
        let level = goodput(builder(), 2.0, await_ns);
        assert!(level > by_level, "{await_ns} ns: {level} by level");
        let late = goodput(builder().set("level", "off"), 2.0, await_ns);
        assert!(late > by_lateness, "{await_ns} ns: {late} by lateness alone");
    }
}

/// A cold start or a slow client is forgotten soon. Requests that have waited are admitted again
/// even while the queue stays long.
#[test]
fn a_temporarily_slow_route_recovers() {
    let gate = builder().set("level", "off").build().unwrap();
    let is_admitted = |now: u64, waited: u64, span: u64| {
        let info = RequestInfo::default().with_age(Duration::from_nanos(waited));
        let Ok(mut permit) = gate.admit_at(Time(now), &info) else { return false };
        permit.record_cpu_time(Duration::from_nanos(WORK));
        permit.finish_at(Time(now + span), Outcome::Completed);
        true
    };
    (0..64).for_each(|step| assert!(is_admitted(step * 31_000_000_000, 0, 30_000_000_000)));
    let after = 64 * 31_000_000_000;
    // 8 ms are within the lateness bound of 18 ms, and exceed a quarter of it.
    let first = (0..40_000).position(|step| is_admitted(after + step as u64 * 1_000_000, 8_000_000, WORK));
    let last = (40_000..80_000).filter(|step| is_admitted(after + step * 1_000_000, 8_000_000, WORK)).count();
    assert!(first.is_some_and(|first| (1..1_000).contains(&first)), "{first:?}");
    assert!(last > 37_000, "{last}");
}

#[test]
fn demand_below_the_capacity_is_served() {
    for await_ns in [0, 5_000_000, 10_000_000] {
        let served = goodput(builder(), 0.8, await_ns);
        assert!(served > 0.78, "{await_ns} ns: {served}");
    }
}

/// A service that always takes longer than the objective is not locked out.
#[test]
fn an_always_late_service_is_not_locked_out() {
    let gate = builder().build().unwrap();
    let mut now = 0;
    for _ in 0..2_000 {
        let mut permit =
            gate.admit_at(Time(now), &RequestInfo::default().with_age(Duration::ZERO)).expect("nothing waits");
        now += 50_000_000;
        permit.record_cpu_time(Duration::from_micros(200));
        permit.finish_at(Time(now), Outcome::Completed);
    }
}
