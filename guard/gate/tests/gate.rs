//! The gate from outside: P1 (nothing leaks), P11 (a rehearsal changes nothing) and P12 (every refusal can be explained), each
//! with something that breaks it.

#![cfg(not(loom))]

use leeward_core::units::{Nanos, Time};
use leeward_gate::{Class, DecisionReason, Gate, GateCounts, Mode, Outcome, Permit, RequestInfo, Tenant};
use leeward_observe::{Snapshot, Source, TENANTS_MAX};
use std::time::Duration;

const MS: fn(u64) -> Duration = Duration::from_millis;

struct TestRng(u64);

impl TestRng {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

fn arriving(draw: &mut TestRng) -> RequestInfo {
    RequestInfo::default()
        .with_age(Duration::from_micros(draw.bits() % 22_000))
        .with_class(Class::new(draw.bits() as u8))
        .with_tenant(Tenant((draw.bits() % 5) as u32))
        .with_timeout(Duration::from_micros(draw.bits() % 100_000))
        .with_route(draw.bits() as u8)
        .with_attempt((draw.bits() % 3) as u8)
}

/// P1: what was admitted has ended in one of three ways or is in flight, and the tickets that are out are what is in flight.
fn adds_up(counts: &GateCounts, tickets: usize) -> Result<(), String> {
    let ended = counts.completed + counts.rejected_inside + counts.abandoned;
    let whole = counts.arrived == counts.admitted + counts.rejections();
    if whole && counts.admitted - ended == tickets as u64 { Ok(()) } else { Err(format!("{counts:?}, {tickets} out")) }
}

/// A random history; tickets end in every way.
fn play(gate: &Gate, seed: u64, forget: bool) -> Result<(), String> {
    let (mut draw, mut out, mut now) = (TestRng(seed), Vec::<Permit>::new(), 1_000_000u64);
    for _ in 0..20_000 {
        now += draw.bits() % 400_000;
        if let Ok(ticket) = gate.admit_at(Time(now), &arriving(&mut draw)) {
            out.push(ticket);
        }
        while !out.is_empty() && draw.bits() % 10 < 6 {
            let mut ticket = out.swap_remove((draw.bits() % out.len() as u64) as usize);
            ticket.record_cpu_time(Duration::from_micros(draw.bits() % 900));
            match draw.bits() % 4 {
                0 if forget => std::mem::forget(ticket),
                0 => drop(ticket),
                1 => ticket.finish(Outcome::Rejected),
                2 => ticket.finish(Outcome::Abandoned),
                _ => ticket.finish(Outcome::Completed),
            }
        }
        adds_up(&gate.counts(), out.len())?;
    }
    out.clear();
    adds_up(&gate.counts(), 0)
}

#[test]
fn nothing_leaks() {
    for seed in 1..=8 {
        let gate = Gate::builder(MS(20)).workers(1 + seed as usize % 4).seed(seed).build().unwrap();
        play(&gate, seed, false).unwrap();
        let counts = gate.counts();
        assert!(counts.completed > 0 && counts.abandoned > 0 && counts.rejections() > 0, "{counts:?}");
    }
}

#[test]
fn canary_a_ticket_that_is_forgotten_is_seen() {
    let gate = Gate::builder(MS(20)).build().unwrap();
    assert!(play(&gate, 1, true).is_err());
}

/// P11: whatever comes, nothing is refused, and the numbers say what would have been.
fn refuses_nothing(mode: Mode) -> Result<u64, String> {
    let gate = Gate::builder(MS(20)).workers(1).mode(mode).build().unwrap();
    let (mut draw, mut now) = (TestRng(3), 0u64);
    for _ in 0..20_000 {
        now += draw.bits() % 500_000;
        // Twice the capacity: 500 us of work every 250 us.
        let mut ticket = gate
            .admit_at(Time(now), &RequestInfo::default().with_age(MS(draw.bits() % 30)))
            .map_err(|refusal| format!("P11: {refusal:?}"))?;
        ticket.record_cpu_time(Duration::from_micros(500));
        ticket.finish(Outcome::Completed);
    }
    Ok(gate.counts().shadowed)
}

#[test]
fn a_rehearsal_changes_nothing_and_tells_what_would_be() {
    let shadowed = refuses_nothing(Mode::Shadow).unwrap();
    // Half of what came is too much.
    assert!((8_000..12_000).contains(&shadowed), "{shadowed}");
    assert!(refuses_nothing(Mode::Enforce).is_err(), "a mode that refuses is seen");
}

#[test]
fn every_refusal_can_be_explained() {
    let gate = Gate::builder(MS(20)).decisions(32).build().unwrap();
    let late = gate.admit(&RequestInfo::default().with_age(MS(19))).unwrap_err();
    let gone = gate.admit(&RequestInfo::default().with_age(MS(3)).with_timeout(MS(2))).unwrap_err();
    assert_eq!((late.reason, gone.reason), (DecisionReason::Late, DecisionReason::Deadline));
    for refusal in [late, gone] {
        let decision = gate.decision(refusal.decision).unwrap();
        assert_eq!(decision.reject_reason, Some(refusal.reason));
        assert!((MS(40)..=MS(120)).contains(&refusal.retry_after));
        let why = gate.explain(refusal.decision).unwrap();
        assert!(why.contains(&format!(": {}. ", refusal.reason.name())) && why.contains("had waited"), "{why}");
    }
    for _ in 0..100 {
        let _ = gate.admit(&RequestInfo::default().with_age(MS(19)));
    }
    assert_eq!(gate.decision(late.decision), None, "the ring has gone round");
    assert_eq!(gate.decisions(1_000).len(), 32);
}

#[test]
fn no_more_are_under_way_than_may_be() {
    let gate = Gate::builder(MS(20)).workers(1).max_in_flight(3).build().unwrap();
    let tickets: Vec<_> = (0..3).map(|_| gate.admit(&RequestInfo::default()).unwrap()).collect();
    assert_eq!(gate.admit(&RequestInfo::default()).unwrap_err().reason, DecisionReason::Concurrency);
    drop(tickets);
    gate.admit(&RequestInfo::default()).unwrap().finish(Outcome::Completed);
}

#[test]
fn the_cost_of_requests_is_what_they_took() {
    // P9: estimates of 10,000 requests add up to what they took, within a hundredth.
    let estimate = leeward_controllers::edge::cost::CostEstimate::default();
    let (mut draw, mut charged, mut took) = (TestRng(9), 0u64, 0u64);
    for index in 0..10_032u64 {
        let span = 200_000 + draw.bits() % 600_000;
        if index >= 32 {
            charged += u64::from(estimate.cost(leeward_core::units::Cost::ONE).0) * 1_000;
            took += span;
        }
        estimate.record(Nanos(span));
    }
    let ratio = charged as f64 / took as f64;
    assert!((ratio - 1.0).abs() <= 0.01, "{ratio}");
}

/// Sums of the parts are the whole, and there are no more parts than bounds allow.
fn parts_are_the_whole(of: &Snapshot) {
    let sum = |count: fn(&leeward_observe::snapshot::RouteAnswers) -> u64| of.answers.iter().map(count).sum::<u64>();
    assert_eq!((sum(|of| of.in_time), sum(|of| of.late), sum(|of| of.failed)), (of.in_time, of.late(), of.failed));
    assert_eq!(of.in_flight_by_class.iter().sum::<u64>(), of.in_flight);
    assert!(of.answers.len() <= 8 * 21 && of.costs.len() <= 21, "{}, {}", of.answers.len(), of.costs.len());
    let labels: std::collections::BTreeSet<_> = of.costs.iter().map(|cost| &cost.route).collect();
    assert_eq!(labels.len(), of.costs.len(), "{labels:?}");
    assert!(of.tenants.len() <= TENANTS_MAX + 1, "{:?}", of.tenants);
}

#[test]
fn metrics_tell_routes_tenants_and_costs_apart() {
    for mode in [Mode::Enforce, Mode::Share(50), Mode::Shadow] {
        let gate = Gate::builder(MS(20)).workers(2).mode(mode).build().unwrap();
        gate.name_route(7, "/search");
        gate.name_route(7, "/later");
        gate.name_route(8, "/search");
        gate.name_route(9, "other");
        for (place, route) in [7, 8, 9].into_iter().enumerate() {
            let arriving = RequestInfo::default().with_route(route).with_tenant(Tenant(u32::from(route)));
            for round in 0..50 {
                let now = (place as u64 * 50 + round) * 100_000_000;
                let mut ticket = gate.admit_at(Time(now), &arriving).unwrap();
                ticket.record_cpu_time(MS(1));
                ticket.finish_at(Time(now + 2_000_000), Outcome::Completed);
            }
        }
        let told = gate.snapshot();
        parts_are_the_whole(&told);
        let costs: Vec<_> =
            told.costs.iter().map(|of| (of.route.as_str(), of.costs.count(), of.costs.sum_ns)).collect();
        let each = (50, 50_000_000);
        assert_eq!(
            costs,
            ["/search", "/search (8)", "other (9)"].map(|label| (label, each.0, each.1)),
            "{mode:?}: a name stays, and labels are distinct"
        );
        // Of the first requests no cost is known.
        let admitted: Vec<_> = told.tenants.iter().map(|of| (of.tenant.as_str(), of.usage.admitted_ns > 0)).collect();
        assert_eq!(admitted.len(), 3, "{admitted:?}");
        assert!(admitted.iter().all(|(_, known)| *known), "{admitted:?}");
    }
}

#[test]
fn failures_are_no_goodput_and_take_no_places() {
    let gate = Gate::builder(MS(20)).workers(1).build().unwrap();
    let answer = |route: u8, outcome| gate.admit(&RequestInfo::default().with_route(route)).unwrap().finish(outcome);
    (1..=200).for_each(|route| answer(route, Outcome::Failed));
    answer(7, Outcome::Completed);
    answer(7, Outcome::Failed);
    let told = gate.snapshot();
    parts_are_the_whole(&told);
    assert_eq!((told.completed, told.in_time, told.failed), (202, 1, 201));
    let failed = told.answers.iter().map(|of| (of.route.as_str(), of.failed)).collect::<Vec<_>>();
    assert_eq!(failed, [("0", 0), ("7", 1), ("other", 200)]);
}

#[test]
fn a_request_without_a_route_changes_nothing_of_others() {
    let gate = Gate::builder(MS(20)).workers(1).build().unwrap();
    let mut ticket = gate.admit(&RequestInfo::default().with_route(7)).unwrap();
    ticket.clear_route();
    ticket.record_cpu_time(MS(3));
    ticket.finish(Outcome::Completed);
    let told = gate.snapshot();
    assert_eq!(told.costs.iter().map(|of| of.route.as_str()).collect::<Vec<_>>(), ["0"]);
    assert!(!gate.is_named(7));
}

#[test]
fn a_flood_of_routes_and_tenants_makes_no_more_series() {
    for mode in [Mode::Enforce, Mode::Share(50)] {
        let gate = Gate::builder(MS(20)).workers(2).mode(mode).seed(3).build().unwrap();
        let mut draw = TestRng(11);
        for number in 0..20_000_u32 {
            let request = arriving(&mut draw).with_tenant(Tenant(number + 1));
            if let Ok(ticket) = gate.admit_at(Time(u64::from(number) * 200_000), &request) {
                ticket.finish_at(Time(u64::from(number) * 200_000 + 90_000), Outcome::Completed);
            }
        }
        let told = gate.snapshot();
        parts_are_the_whole(&told);
        assert!(told.answers.iter().any(|of| of.route == "other") && told.in_time > 0, "{:?}", told.answers);
    }
}

#[test]
fn an_objective_of_nothing_is_refused() {
    assert!(Gate::builder(Duration::ZERO).build().is_err());
    assert!(Gate::builder(Duration::MAX).build().is_err());
    assert!(Gate::builder(MS(20)).set("target", "soon").build().is_err());
}

#[test]
fn threads_share_a_gate() {
    let gate = Gate::builder(MS(20)).workers(2).build().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let gate = gate.clone();
            scope.spawn(move || {
                let mut draw = TestRng(thread + 1);
                for _ in 0..20_000 {
                    if let Ok(ticket) = gate.admit(&arriving(&mut draw))
                        && draw.bits().is_multiple_of(2)
                    {
                        ticket.finish(Outcome::Completed);
                    }
                }
            });
        }
    });
    let counts = gate.counts();
    assert_eq!((counts.arrived, counts.in_flight()), (80_000, 0), "{counts:?}");
}
