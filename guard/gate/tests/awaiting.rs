//! A worker of an executor in virtual time, whose requests await something before they work. All that was woken stands in one queue with what was
//! read, so that a request waits twice for its turn, and what it has waited when it comes is not all that it will.

#![cfg(not(loom))]

use leeward_core::units::Time;
use leeward_gate::{Gate, Outcome, Permit, RequestInfo};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const SLO_NS: u64 = 20_000_000;
/// Costs in ns: to read a request, to work and answer, to answer a refusal, to look at sockets and timers.
const READ: u64 = 12_000;
const WORK: u64 = 212_000;
const REFUSE: u64 = 10_000;
const LOOK: u64 = 2_000;
/// Tasks that Tokio polls between two looks, at most.
const LAP: usize = 61;
/// The count begins after this: the gate knows by then how long requests take.
const WARM_NS: u64 = 1_000_000_000;
const ALL_NS: u64 = 4_000_000_000;

enum Task {
    Read(u64),
    Resume(u64, Permit),
}

/// Answers in time over what one worker could give, at this demand over that; the requests await `awaits` ns first.
fn goodput(builder: leeward_gate::Builder, demand: f64, awaits: u64) -> f64 {
    let gate: Gate = builder.build().unwrap();
    let mut random = 0x1EE_3A2Du64;
    let mut gap = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let unit = (random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64;
        (-(1.0 - unit).ln() * (READ + WORK) as f64 / demand) as u64
    };
    let (mut now, mut comes, mut in_time) = (0, gap(), 0);
    let mut queue: VecDeque<Task> = VecDeque::new();
    let mut timers: BTreeMap<u64, Vec<(u64, Permit)>> = BTreeMap::new();
    let mut since_look = 0;
    while now < ALL_NS {
        if queue.is_empty() || since_look == LAP {
            since_look = 0;
            now += LOOK;
            while comes <= now {
                queue.push_back(Task::Read(comes));
                comes += gap();
            }
            while timers.first_key_value().is_some_and(|(at, _)| *at <= now) {
                let (_, due) = timers.pop_first().unwrap();
                queue.extend(due.into_iter().map(|(came, ticket)| Task::Resume(came, ticket)));
            }
            if queue.is_empty() {
                now = comes.min(timers.first_key_value().map_or(u64::MAX, |(at, _)| *at));
            }
            continue;
        }
        since_look += 1;
        let (came, mut ticket) = match queue.pop_front().unwrap() {
            Task::Resume(came, ticket) => (came, ticket),
            Task::Read(came) => {
                let arriving = RequestInfo::default().with_age(Duration::from_nanos(now - came));
                now += READ;
                match gate.admit_at(Time(now), &arriving) {
                    Ok(ticket) if awaits == 0 => (came, ticket),
                    Ok(ticket) => {
                        timers.entry(now + awaits).or_default().push((came, ticket));
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
        ticket.record_cpu_time(Duration::from_nanos(WORK));
        ticket.finish_at(Time(now), Outcome::Completed);
        in_time += u64::from(now > WARM_NS && now - came <= SLO_NS);
    }
    in_time as f64 * (READ + WORK) as f64 / (ALL_NS - WARM_NS) as f64
}

fn builder() -> leeward_gate::Builder {
    Gate::builder(Duration::from_nanos(SLO_NS)).workers(1)
}

#[test]
fn who_awaits_waits_twice_and_is_in_time_all_the_same() {
    // Refusals at twice the capacity leave 0.89 of it. Of an objective of which a half goes by in any case, each of two waits has a quarter.
    for (awaits, by_level, by_lateness) in
        [(0, 0.88, 0.88), (1_000_000, 0.87, 0.8), (5_000_000, 0.86, 0.5), (10_000_000, 0.7, 0.1)]
    {
        let level = goodput(builder(), 2.0, awaits);
        assert!(level > by_level, "{awaits} ns: {level} by level");
        let late = goodput(builder().set("level", "off"), 2.0, awaits);
        assert!(late > by_lateness, "{awaits} ns: {late} by lateness alone");
    }
}

/// A cold start, or a client that was slow to send, is no news for long; and those that have waited while others keep the queue long are not refused for
/// ever by it.
#[test]
fn a_slow_spell_of_a_route_is_forgotten() {
    let gate = builder().set("level", "off").build().unwrap();
    let one = |now: u64, waited: u64, span: u64| {
        let arriving = RequestInfo::default().with_age(Duration::from_nanos(waited));
        let Ok(mut ticket) = gate.admit_at(Time(now), &arriving) else { return false };
        ticket.record_cpu_time(Duration::from_nanos(WORK));
        ticket.finish_at(Time(now + span), Outcome::Completed);
        true
    };
    (0..64).for_each(|step| assert!(one(step * 31_000_000_000, 0, 30_000_000_000)));
    let after = 64 * 31_000_000_000;
    // 8 ms are within the bound of lateness, 18 ms, and beyond a quarter of it.
    let first = (0..40_000).position(|step| one(after + step as u64 * 1_000_000, 8_000_000, WORK));
    let last = (40_000..80_000).filter(|step| one(after + step * 1_000_000, 8_000_000, WORK)).count();
    assert!(first.is_some_and(|first| (1..1_000).contains(&first)), "{first:?}");
    assert!(last > 37_000, "{last}");
}

#[test]
fn a_demand_that_fits_is_served() {
    for awaits in [0, 5_000_000, 10_000_000] {
        let served = goodput(builder(), 0.8, awaits);
        assert!(served > 0.78, "{awaits} ns: {served}");
    }
}

/// A service that takes longer than the objective by nature is never in time, and not locked out either.
#[test]
fn a_service_that_is_always_late_goes_on() {
    let gate = builder().build().unwrap();
    let mut now = 0;
    for _ in 0..2_000 {
        let mut ticket =
            gate.admit_at(Time(now), &RequestInfo::default().with_age(Duration::ZERO)).expect("nothing waits");
        now += 50_000_000;
        ticket.record_cpu_time(Duration::from_micros(200));
        ticket.finish_at(Time(now), Outcome::Completed);
    }
}
