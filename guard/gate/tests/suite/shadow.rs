//! Shadow mode in a simulated server: free workers read requests from one queue, and the gate is at
//! the queue's head. Shadow mode must predict the rejections of enforcement for the same requests,
//! although its own server is overloaded.

#![cfg(not(loom))]

use crate::random::TestRng;
use leeward_core::units::Time;
use leeward_gate::{Class, Gate, Mode, Outcome, Permit, RequestInfo, Tenant};
use leeward_observe::Source;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
const WORKERS: usize = 2;
/// Mean service time of a request on a worker.
const MEAN_NS: f64 = 500_000.0;
/// Cost for the worker of reading and rejecting a request.
const REFUSAL_NS: u64 = 20_000;

/// A request as its client sends it.
#[derive(Clone, Copy)]
struct Request {
    arrival: u64,
    service: u64,
    arriving: RequestInfo,
}

/// Requests of `seconds`, at a demand relative to the capacity that depends on the time.
///
/// `properties` draws a request's properties and its cost factor.
fn requests(seconds: f64, demand: fn(f64) -> f64, properties: fn(&mut TestRng) -> (RequestInfo, f64)) -> Vec<Request> {
    let (mut draw, mut now, mut all) = (TestRng(7), 0.0, Vec::new());
    while now < seconds * 1e9 {
        now += draw.exponential(MEAN_NS / WORKERS as f64 / demand(now / 1e9));
        let (arriving, factor) = properties(&mut draw);
        let service = draw.exponential(MEAN_NS * factor) as u64 + 1;
        all.push(Request { arrival: now as u64, service, arriving });
    }
    all
}

/// Shares of rejected and of would-be rejected requests, among those that arrived after the first
/// second.
struct Shares {
    refused: f64,
    foreseen: f64,
}

/// Runs the requests through a server whose gate is in this mode.
fn run(requests: &[Request], mode: Mode) -> Shares {
    let gate = Gate::builder(Duration::from_millis(20)).workers(WORKERS).mode(mode).build().unwrap();
    let mut free: BinaryHeap<Reverse<u64>> = (0..WORKERS).map(|_| Reverse(0)).collect();
    let mut running: Vec<(u64, Permit)> = Vec::new();
    let (mut rejected, mut after) = (0_u64, 0_u64);
    let mut before = None;
    for request in requests {
        let Reverse(worker) = free.pop().unwrap();
        let now = worker.max(request.arrival);
        // Ends the requests that are complete by then, in order.
        running.sort_by_key(|(ends, _)| Reverse(*ends));
        while running.last().is_some_and(|(ends, _)| *ends <= now) {
            let (ends, permit) = running.pop().unwrap();
            permit.finish_at(Time(ends), Outcome::Completed);
        }
        let is_counted = request.arrival > SECOND;
        if is_counted && before.is_none() {
            before = Some(gate.counts().shadowed);
        }
        after += u64::from(is_counted);
        let info = request.arriving.with_age(Duration::from_nanos(now - request.arrival));
        match gate.admit_at(Time(now), &info) {
            Ok(mut permit) => {
                permit.record_cpu_time(Duration::from_nanos(request.service));
                running.push((now + request.service, permit));
                free.push(Reverse(now + request.service));
            }
            Err(_) => {
                rejected += u64::from(is_counted);
                free.push(Reverse(now + REFUSAL_NS));
            }
        }
    }
    let foreseen = gate.counts().shadowed - before.unwrap_or(0);
    Shares { refused: rejected as f64 / after as f64, foreseen: foreseen as f64 / after as f64 }
}

fn plain(draw: &mut TestRng) -> (RequestInfo, f64) {
    (RequestInfo::default().with_user((draw.uniform() * 1e6) as u64), 1.0)
}

/// A tenth of the requests is critical, and half of them is sheddable.
fn classes(draw: &mut TestRng) -> (RequestInfo, f64) {
    let class = match draw.uniform() {
        ..0.1 => Class::CRITICAL,
        0.1..0.5 => Class::NORMAL,
        _ => Class::SHEDDABLE,
    };
    (RequestInfo::default().with_class(class), 1.0)
}

/// A tenth of the requests takes twenty times as long as the others and has its own route.
fn costs(draw: &mut TestRng) -> (RequestInfo, f64) {
    let mean = 0.9 + 0.1 * 20.0;
    if draw.uniform() < 0.1 {
        (RequestInfo::default().with_route(1), 20.0 / mean)
    } else {
        (RequestInfo::default().with_route(2), 1.0 / mean)
    }
}

/// Ten tenants; one sends half of the requests.
fn tenants(draw: &mut TestRng) -> (RequestInfo, f64) {
    let tenant = if draw.uniform() < 0.5 { 1 } else { 2 + (draw.uniform() * 9.0) as u32 };
    (RequestInfo::default().with_tenant(Tenant(tenant)), 1.0)
}

type Scenario = (&'static str, f64, fn(f64) -> f64, fn(&mut TestRng) -> (RequestInfo, f64));

/// Scenarios in which enforcement rejects requests.
const SCENARIOS: [Scenario; 5] = [
    ("twice the capacity", 6.0, |_| 2.0, plain),
    ("a burst of two seconds in four", 9.0, |now| if now % 4.0 < 2.0 { 2.5 } else { 0.5 }, plain),
    ("classes", 6.0, |_| 1.5, classes),
    ("costs", 8.0, |_| 1.8, costs),
    ("tenants", 6.0, |_| 1.4, tenants),
];

#[test]
fn shadow_mode_foresees_what_enforcement_rejects() {
    for (name, seconds, demand, properties) in SCENARIOS {
        let requests = requests(seconds, demand, properties);
        let (enforced, shadow) = (run(&requests, Mode::Enforce), run(&requests, Mode::Shadow));
        assert_eq!((shadow.refused, enforced.foreseen), (0.0, 0.0), "{name}");
        println!("{name}: enforced {:.3}, foreseen {:.3}", enforced.refused, shadow.foreseen);
        assert!(enforced.refused > 0.1, "{name}: nothing to foresee: {:.3}", enforced.refused);
        let ratio = shadow.foreseen / enforced.refused;
        assert!((0.8..=1.2).contains(&ratio), "{name}: {:.3} of {:.3}", shadow.foreseen, enforced.refused);
    }
}

#[test]
fn shadow_mode_foresees_no_rejections_below_the_capacity() {
    let requests = requests(6.0, |_| 0.5, plain);
    let shadow = run(&requests, Mode::Shadow);
    assert!(shadow.foreseen <= 0.001, "{:.4}", shadow.foreseen);
}

/// Nobody is rejected at twice the capacity, so nearly everybody is late, and the counters say so.
#[test]
fn answers_in_shadow_mode_are_counted_as_they_were() {
    let requests = requests(6.0, |_| 2.0, plain);
    let gate = Gate::builder(Duration::from_millis(20)).workers(WORKERS).mode(Mode::Shadow).build().unwrap();
    let (mut free, mut in_time) = ([0_u64; WORKERS], 0_u64);
    let mut last = 0;
    for request in &requests {
        let worker = free.iter_mut().min().unwrap();
        let now = request.arrival.max(*worker);
        let info = request.arriving.with_age(Duration::from_nanos(now - request.arrival));
        let mut permit = gate.admit_at(Time(now), &info).unwrap();
        *worker = now + request.service;
        in_time += u64::from(*worker - request.arrival <= 20_000_000);
        last = last.max(*worker - request.arrival);
        permit.record_cpu_time(Duration::from_nanos(request.service));
        permit.finish_at(Time(*worker), Outcome::Completed);
    }
    let (counts, snapshot) = (gate.counts(), gate.snapshot());
    assert_eq!((counts.completed, counts.in_time), (requests.len() as u64, in_time));
    assert!(in_time < counts.completed / 10 && counts.shadowed > counts.completed / 3, "{counts:?}");
    assert_eq!((counts.in_flight(), snapshot.in_flight), (0, 0));
    assert_eq!(snapshot.in_flight_by_class.iter().sum::<u64>(), 0);
    let longest = snapshot.latencies.percentiles().unwrap().p999_ns;
    assert!(longest as f64 >= 0.9 * last as f64, "{longest} of {last}");
}

#[test]
fn what_decides_at_clients_only_has_no_shadow_mode() {
    let build = |name: &str, mode| {
        let algorithm = leeward_controllers::builtin().find(name).unwrap().clone();
        Gate::builder(Duration::from_millis(20)).algorithm(&algorithm, &[]).mode(mode).build().map(drop)
    };
    for name in ["none", "seda", "window"] {
        for mode in [Mode::Shadow, Mode::Share(5)] {
            let error = build(name, mode).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("no shadow mode"), "{error}");
        }
        assert!(build(name, Mode::Enforce).is_ok());
    }
    assert!(build("auto", Mode::Shadow).is_ok());
}

#[test]
fn rejections_are_enforced_for_a_fixed_share_of_the_tenants() {
    let gate = Gate::builder(Duration::from_millis(20)).workers(1).mode(Mode::Share(5)).build().unwrap();
    let (mut rejected, mut admitted) = (vec![0_u64; 2_001], vec![0_u64; 2_001]);
    let mut now = 0;
    for _ in 0..50 {
        for tenant in 1..=2_000_u32 {
            now += 100_000;
            let info = RequestInfo::default().with_tenant(Tenant(tenant)).with_age(Duration::from_micros(10));
            match gate.admit_at(Time(now), &info) {
                Ok(mut permit) => {
                    // Twice the capacity.
                    permit.record_cpu_time(Duration::from_micros(200));
                    permit.finish_at(Time(now), Outcome::Completed);
                    admitted[tenant as usize] += 1;
                }
                Err(_) => rejected[tenant as usize] += 1,
            }
        }
    }
    let counts = gate.counts();
    let affected = rejected.iter().filter(|count| **count > 0).count();
    assert!((60..=140).contains(&affected), "{affected} of 2,000 tenants");
    let share = counts.rejections() as f64 / (counts.rejections() + counts.shadowed) as f64;
    assert!((0.03..=0.07).contains(&share), "{share} of the verdicts were felt: {counts:?}");
    // A tenant without rejections may be lucky. A tenant with one is rejected about as often as the
    // verdicts say.
    let sums = rejected.iter().zip(&admitted).filter(|(rejected, _)| **rejected > 0);
    let (rejected, admitted) = sums.fold((0, 0), |sum, (rejected, admitted)| (sum.0 + rejected, sum.1 + admitted));
    assert!(rejected * 2 > admitted / 2, "{rejected} refused, {admitted} let in of the tenants that feel it");
}

#[test]
fn the_counts_of_shadow_mode_balance() {
    let requests = requests(3.0, |_| 2.0, plain);
    for mode in [Mode::Shadow, Mode::Share(30)] {
        let gate = Gate::builder(Duration::from_millis(20)).workers(WORKERS).mode(mode).build().unwrap();
        for request in &requests {
            if let Ok(mut permit) = gate.admit_at(Time(request.arrival), &request.arriving) {
                permit.record_cpu_time(Duration::from_nanos(request.service));
                drop(permit);
            }
            let counts = gate.counts();
            assert_eq!(counts.arrived, counts.admitted + counts.rejections() + counts.shadowed, "{mode:?}: {counts:?}");
            assert!(counts.completed <= counts.admitted, "{mode:?}: {counts:?}");
        }
        let counts = gate.counts();
        assert!(counts.shadowed > 0 && (counts.rejections() > 0) == (mode != Mode::Shadow), "{mode:?}: {counts:?}");
        // Shadow requests end in the shadow queue.
        let after = Time(requests.last().unwrap().arrival + SECOND);
        for step in 0..100 {
            let _ = gate.admit_at(Time(after.0 + step), &RequestInfo::default()).map(drop);
        }
        assert!(gate.counts().in_flight() <= 100, "{:?}", gate.counts());
    }
}
