//! The gate as a caller sees it: P1 (nothing leaks), P11 (shadow mode changes nothing), P12 (every
//! rejection can be explained). Each property has a test that breaks it.

#![cfg(not(loom))]

use crate::random::TestRng;
use leeward_core::units::{Nanos, Time};
use leeward_gate::{Builder, Class, DecisionReason, Gate, GateCounts, Mode, Outcome, Permit, RequestInfo, Tenant};
use leeward_observe::{Snapshot, Source, TENANTS_MAX};
use std::time::Duration;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn arriving(draw: &mut TestRng) -> RequestInfo {
    RequestInfo::default()
        .with_age(Duration::from_micros(draw.bits() % 22_000))
        .with_class(Class::new(draw.bits() as u8))
        .with_tenant(Tenant((draw.bits() % 5) as u32))
        .with_timeout(Duration::from_micros(draw.bits() % 100_000))
        .with_route(draw.bits() as u8)
        .with_attempt((draw.bits() % 3) as u8)
}

/// P1: each admitted request has ended in one of three ways or is in flight; the requests in flight
/// equal the held permits.
fn adds_up(counts: &GateCounts, permits: usize) -> Result<(), String> {
    let ended = counts.completed + counts.rejected_inside + counts.abandoned;
    let whole = counts.arrived == counts.admitted + counts.rejections();
    if whole && counts.admitted - ended == permits as u64 { Ok(()) } else { Err(format!("{counts:?}, {permits} out")) }
}

/// Plays a random history in which permits end in every way.
fn play(gate: &Gate, seed: u64, forget: bool) -> Result<(), String> {
    let (mut draw, mut held, mut now) = (TestRng(seed), Vec::<Permit>::new(), 1_000_000u64);
    for _ in 0..20_000 {
        now += draw.bits() % 400_000;
        if let Ok(permit) = gate.admit_at(Time(now), &arriving(&mut draw)) {
            held.push(permit);
        }
        while !held.is_empty() && draw.bits() % 10 < 6 {
            let mut permit = held.swap_remove((draw.bits() % held.len() as u64) as usize);
            permit.record_cpu_time(Duration::from_micros(draw.bits() % 900));
            match draw.bits() % 4 {
                0 if forget => std::mem::forget(permit),
                0 => drop(permit),
                1 => permit.finish(Outcome::Rejected),
                2 => permit.finish(Outcome::Abandoned),
                _ => permit.finish(Outcome::Completed),
            }
        }
        adds_up(&gate.counts(), held.len())?;
    }
    held.clear();
    adds_up(&gate.counts(), 0)
}

/// Plays a random history, with each permit used `again` for a later request, or with new ones.
/// Returns which requests were admitted.
fn play_permits(gate: &Gate, seed: u64, again: bool) -> Result<Vec<bool>, String> {
    let (mut draw, mut now) = (TestRng(seed), 1_000_000u64);
    let (mut held, mut ended, mut admitted) = (Vec::<Permit>::new(), Vec::<Permit>::new(), Vec::new());
    for _ in 0..5_000 {
        now += draw.bits() % 400_000;
        let request = arriving(&mut draw);
        let permit = match ended.pop().filter(|_| again) {
            Some(mut permit) => permit.readmit_at(Time(now), &request).ok().map(|()| permit),
            None => gate.admit_at(Time(now), &request).ok(),
        };
        admitted.push(permit.is_some());
        held.extend(permit);
        while !held.is_empty() && draw.bits() % 10 < 6 {
            let mut permit = held.swap_remove((draw.bits() % held.len() as u64) as usize);
            permit.record_cpu_time(Nanos(draw.bits() % 900_000));
            permit.suspend();
            permit.end_at(Time(now), if draw.bits() % 4 == 0 { Outcome::Rejected } else { Outcome::Completed });
            ended.push(permit);
        }
        if gate.counts().in_flight() != held.len() as u64 || held.iter().any(Permit::has_ended) {
            return Err(format!("{:?}, {} out", gate.counts(), held.len()));
        }
    }
    Ok(admitted)
}

#[test]
fn a_permit_that_is_used_again_is_as_a_new_one() {
    for (seed, mode) in [(1, Mode::Enforce), (2, Mode::Enforce), (3, Mode::Shadow), (4, Mode::Share(50))] {
        let gate = || Gate::builder(MS(20)).workers(2).seed(seed).mode(mode).decisions(16).build().unwrap();
        let (new, again) = (gate(), gate());
        let admitted = play_permits(&new, seed, false).unwrap();
        assert_eq!(play_permits(&again, seed, true).unwrap(), admitted);
        assert_eq!(again.counts(), new.counts());
        assert!(mode != Mode::Enforce || admitted.contains(&false), "something was rejected");
    }
}

#[test]
fn a_permit_that_is_used_again_before_its_end_abandons_its_request() {
    let gate = Gate::builder(MS(20)).workers(1).decisions(16).build().unwrap();
    let mut permit = gate.admit(&RequestInfo::default()).unwrap();
    permit.readmit_at(gate.now(), &RequestInfo::default()).unwrap();
    assert_eq!((gate.counts().abandoned, gate.counts().in_flight()), (1, 1));
    let _ = permit.readmit_at(gate.now(), &RequestInfo::default().with_age(MS(40))).unwrap_err();
    assert!(permit.has_ended());
    drop(permit);
    assert_eq!((gate.counts().abandoned, gate.counts().in_flight()), (2, 0));
}

#[test]
fn random_histories_leak_no_permit() {
    for seed in 1..=8 {
        let gate = Gate::builder(MS(20)).workers(1 + seed as usize % 4).seed(seed).build().unwrap();
        play(&gate, seed, false).unwrap();
        let counts = gate.counts();
        assert!(counts.completed > 0 && counts.abandoned > 0 && counts.rejections() > 0, "{counts:?}");
    }
}

/// Requests that waited behind each other's lock took longer than the objective. Alone, they take a
/// millisecond.
#[test]
fn a_route_that_took_longer_than_the_objective_is_tried_again() {
    let gate = Gate::builder(MS(20)).workers(60).build().unwrap();
    let end = |mut permit: Permit, now: u64, time: Duration| {
        permit.record_cpu_time(time);
        permit.finish_at(Time(now), Outcome::Completed);
    };
    let mut now = 1_000_000u64;
    for _ in 0..3 {
        let inside: Vec<Permit> =
            (0..60).filter_map(|_| gate.admit_at(Time(now), &RequestInfo::default()).ok()).collect();
        now += 60_000_000;
        inside.into_iter().for_each(|permit| end(permit, now, MS(60)));
    }
    let mut admitted = 0;
    for request in 0..10_000 {
        now += 1_100_000;
        if let Ok(permit) = gate.admit_at(Time(now), &RequestInfo::default()) {
            end(permit, now + 1_000_000, MS(1));
            admitted += u32::from(request >= 5_000);
        }
    }
    assert_eq!(admitted, 5_000, "{:?}", gate.counts());
}

#[test]
fn a_route_that_takes_longer_than_the_objective_is_served_where_nobody_else_is() {
    let gate = Gate::builder(MS(20)).workers(4).build().unwrap();
    let slow = RequestInfo::default().with_route(1);
    let mut now = 1_000_000u64;
    for _ in 0..1_000 {
        let mut permit = gate.admit_at(Time(now), &slow).expect("an idle machine");
        now += 30_000_000;
        permit.record_cpu_time(MS(30));
        permit.finish_at(Time(now), Outcome::Completed);
        now += 1_000_000;
    }
    let _inside = gate.admit_at(Time(now), &RequestInfo::default()).unwrap();
    let admitted = (0..1_000).filter(|_| gate.admit_at(Time(now), &slow).is_ok()).count();
    assert!((20..200).contains(&admitted), "one in 16 beside others: {admitted}");
    let hurried = slow.with_timeout(MS(10));
    let admitted = (0..1_000).filter(|_| gate.admit_at(Time(now), &hurried).is_ok()).count();
    assert!((20..200).contains(&admitted), "one in 16, while nobody waits: {admitted}");
    let delayed = hurried.with_age(MS(7));
    let admitted = (0..4_000).filter(|_| gate.admit_at(Time(now), &delayed).is_ok()).count();
    assert!(admitted < 50, "fewer behind a queue: {admitted}");
}

/// A worker serves short requests of 1 ms at 150/s for some seconds, and those of 50 ms at 30/s, in
/// the order of arrival. After that only slow ones come, at 10/s.
///
/// Returns the share of short requests that are answered in time, and the share of the later slow
/// ones that are answered.
fn shares_beside_slow_requests(seconds: u64) -> (f64, f64) {
    let gate = Gate::builder(MS(20)).workers(1).build().unwrap();
    let (mut draw, mut free, mut arrival) = (TestRng(5), 0u64, 0.0);
    let (mut short, mut slow) = ((0u32, 0u32), (0u32, 0u32));
    while arrival < (seconds + 20) as f64 * 1e9 {
        let has_short = arrival < seconds as f64 * 1e9;
        arrival += draw.exponential(if has_short { 1e9 / 180.0 } else { 1e9 / 10.0 });
        let is_slow = !has_short || draw.uniform() < 30.0 / 180.0;
        let (arrived, now) = (arrival as u64, free.max(arrival as u64));
        let request = RequestInfo::default().with_route(1 + u8::from(is_slow));
        let work = if is_slow { 50_000_000 } else { 1_000_000 };
        let admitted = gate.admit_at(Time(now), &request.with_age(Duration::from_nanos(now - arrived)));
        free = now + 20_000;
        let is_admitted = admitted.is_ok();
        if let Ok(mut permit) = admitted {
            free = now + work;
            permit.record_cpu_time(Duration::from_nanos(work));
            permit.finish_at(Time(free), Outcome::Completed);
        }
        if !is_slow && arrived > 1_000_000_000 {
            short = (short.0 + 1, short.1 + u32::from(is_admitted && free - arrived <= 20_000_000));
        }
        // Those that have waited for long are late in any case.
        if is_slow && arrived > (seconds + 1) * 1_000_000_000 && now - arrived < 15_000_000 {
            slow = (slow.0 + 1, slow.1 + u32::from(is_admitted));
        }
    }
    (f64::from(short.1) / f64::from(short.0), f64::from(slow.1) / f64::from(slow.0))
}

#[test]
fn slow_requests_do_not_make_short_ones_late() {
    let (short, slow) = shares_beside_slow_requests(60);
    assert!(short > 0.85, "{short} of the short ones in time");
    assert_eq!(slow, 1.0, "of those that are alone later");
}

/// Short requests that are late without a slow one, as after a pause of the process.
#[test]
fn a_hiccup_does_not_lock_slow_requests_out() {
    let gate = Gate::builder(MS(20)).workers(1).build().unwrap();
    let mut now = 1_000_000u64;
    let mut ask = |route: u8, age: u64| {
        let work = if route == 1 { 1_000_000 } else { 50_000_000 };
        let request = RequestInfo::default().with_route(route).with_age(Duration::from_nanos(age));
        let admitted = gate.admit_at(Time(now), &request);
        let is_admitted = admitted.is_ok();
        if let Ok(mut permit) = admitted {
            now += work;
            permit.record_cpu_time(Duration::from_nanos(work));
            permit.finish_at(Time(now), Outcome::Completed);
        }
        now += 100_000_000;
        is_admitted
    };
    for turn in 0..200 {
        ask(1, 20_000);
        assert!(ask(2, 20_000), "turn {turn}");
        ask(1, 19_500_000);
    }
}

/// A worker at 40 % of its capacity is stopped for seconds, again and again.
#[test]
fn a_pause_of_the_process_is_no_overload() {
    let gate = Gate::builder(MS(100)).workers(1).build().unwrap();
    let (mut draw, mut free, mut arrival) = (TestRng(5), 0u64, 0.0);
    for _ in 0..10_000 {
        arrival += draw.exponential(5e6);
        let mut now = free.max(arrival as u64);
        // Ten seconds of work, four of pause.
        let passed = now % 14_000_000_000;
        if passed > 10_000_000_000 {
            now += 14_000_000_000 - passed;
        }
        let age = Duration::from_nanos(now - arrival as u64);
        free = now + 20_000;
        match gate.admit_at(Time(now), &RequestInfo::default().with_route(1).with_age(age)) {
            Ok(mut permit) => {
                let work = draw.exponential(2e6) as u64;
                free = now + work;
                permit.record_cpu_time(Duration::from_nanos(work));
                permit.finish_at(Time(free), Outcome::Completed);
            }
            Err(rejection) => assert_eq!(rejection.reason, DecisionReason::Late, "{age:?} old, at {now} ns"),
        }
    }
    assert!(gate.counts().rejections() > 1_000, "{:?}", gate.counts());
}

/// One client asks for a short answer and for a slow one, by turns.
#[test]
fn a_slow_request_after_a_short_one_is_served() {
    let gate = Gate::builder(MS(20)).workers(1).build().unwrap();
    let mut now = 1_000_000u64;
    for turn in 0..1_000 {
        let route = 1 + (turn % 2) as u8;
        let work = if route == 1 { 1 } else { 50 };
        let info = RequestInfo::default().with_route(route).with_age(Duration::from_micros(20));
        let mut permit = gate.admit_at(Time(now), &info).expect("nobody waits");
        now += work * 1_000_000;
        permit.record_cpu_time(MS(work));
        permit.finish_at(Time(now), Outcome::Completed);
    }
}

/// Beside one request that is open and occupies no worker, 200 of another route come, one after
/// the other, that take a little longer than the objective.
fn rejected_beside(open: impl Fn(Permit) -> Permit) -> u32 {
    let gate = Gate::builder(MS(20)).workers(2).build().unwrap();
    let (mut now, mut rejected) = (1_000_000u64, 0);
    let _open = open(gate.admit_at(Time(now), &RequestInfo::default().with_route(1)).unwrap());
    for _ in 0..200 {
        match gate.admit_at(Time(now), &RequestInfo::default()) {
            Ok(mut permit) => {
                now += 22_000_000;
                permit.record_cpu_time(MS(22));
                permit.finish_at(Time(now), Outcome::Completed);
            }
            Err(_) => {
                now += 5_000_000;
                rejected += 1;
            }
        }
    }
    rejected
}

#[test]
fn an_open_request_that_occupies_no_worker_rejects_nobody() {
    let suspended = rejected_beside(|mut permit| {
        permit.suspend();
        permit
    });
    assert_eq!(suspended, 0);
    let resumed = rejected_beside(|mut permit| {
        permit.suspend();
        permit.resume();
        permit
    });
    // 160 ms, in which a rejection takes 5 ms. Then it is forgotten.
    assert!((5..80).contains(&resumed), "{resumed}");
    assert_eq!(rejected_beside(|permit| permit), resumed);
}

/// Sixteen threads are mostly idle, and requests take 2 ms; a few take fifty objectives.
#[test]
fn a_few_long_requests_do_not_reject_the_others() {
    let gate = Gate::builder(MS(20)).workers(16).build().unwrap();
    let (mut now, mut rejected) = (1_000_000u64, 0);
    for request in 0..2_000 {
        now += 10_000_000;
        let other = gate.admit_at(Time(now), &RequestInfo::default());
        match gate.admit_at(Time(now), &RequestInfo::default()) {
            Ok(mut permit) => {
                permit.record_cpu_time(if request % 20 == 7 { MS(1_000) } else { MS(2) });
                permit.finish_at(Time(now + 2_000_000), Outcome::Completed);
            }
            Err(_) => rejected += 1,
        }
        other.into_iter().for_each(|permit| permit.finish_at(Time(now + 2_000_000), Outcome::Completed));
    }
    assert_eq!(rejected, 0, "{:?}", gate.counts());
}

/// A pool of four threads behind the gate works 10 ms on each request, or on none.
#[test]
fn a_flash_is_rejected_before_the_oldest_that_waits_is_old() {
    let gate = Gate::builder(MS(100)).workers(4).build().unwrap();
    let admit = |now: u64| {
        let mut permit = gate.admit_at(Time(now), &RequestInfo::default()).ok()?;
        permit.record_wait(Time(now));
        Some(permit)
    };
    let serve = |mut permit: Permit, now: u64| {
        permit.record_start(Time(now));
        permit.record_cpu_time(MS(10));
        permit.finish_at(Time(now + 10_000_000), Outcome::Completed);
    };
    let mut now = 1_000_000u64;
    for _ in 0..100 {
        serve(admit(now).unwrap(), now);
        now += 20_000_000;
    }
    let mut running: Vec<Permit> = (0..4).filter_map(|_| admit(now)).collect();
    for permit in &mut running {
        permit.record_start(Time(now));
    }
    let waiting: Vec<Permit> = (0..400).filter_map(|_| admit(now)).collect();
    // 100 ms of work for four threads, less the last request's own, which one in 16 is spared.
    assert!((30..=40).contains(&waiting.len()), "{}", waiting.len());
    drop(running);
    // What waits now does not wait for a thread.
    for step in 1..40 {
        let now = now + step * 110_000_000;
        serve(admit(now).unwrap_or_else(|| panic!("{step}: {:?}", gate.delay_at(Time(now)))), now);
    }
    drop(waiting);
}

/// A server that was away finds only requests that are late. The clients send others then.
#[test]
fn no_controller_admits_what_is_late_already() {
    for algorithm in leeward_controllers::builtin().algorithms() {
        let gate = Gate::builder(MS(20)).workers(1).algorithm(algorithm, &[]).build().unwrap();
        let (mut now, mut admitted, mut next) = (2_000_000_000u64, 0, 0);
        for _ in 0..50 {
            now += 1_000_000;
            match gate.admit_at(Time(now), &RequestInfo::default().with_age(MS(1_000))) {
                Ok(permit) => {
                    admitted += 1;
                    permit.finish_at(Time(now + 500_000), Outcome::Completed);
                }
                Err(rejection) => {
                    assert_eq!(rejection.reason, DecisionReason::Late, "{}", algorithm.name);
                    let explanation = gate.explain(rejection.decision).unwrap();
                    assert!(explanation.contains("had waited 1"), "{explanation}");
                }
            }
        }
        for request in 0..200 {
            now += 1_000_000;
            if let Ok(permit) = gate.admit_at(Time(now), &RequestInfo::default().with_age(Duration::from_micros(10))) {
                next += u32::from(request >= 100);
                permit.finish_at(Time(now + 500_000), Outcome::Completed);
            }
        }
        let expected = if algorithm.name == "none" { 50 } else { 0 };
        assert_eq!(admitted, expected, "{}", algorithm.name);
        assert_eq!(next, 100, "{}: of the last hundred that are in time", algorithm.name);
    }
}

#[test]
fn routes_with_one_hash_have_numbers_of_their_own() {
    let gate = Gate::builder(MS(20)).build().unwrap();
    let names: Vec<String> = (0..20).map(|number| format!("/route/{number}/{}", "x".repeat(200))).collect();
    let numbers: std::collections::BTreeSet<u8> = names
        .iter()
        .map(|name| {
            let number = gate.route_number(name, 254);
            gate.name_route(number, name);
            assert_eq!(gate.route_number(name, 254), number);
            number
        })
        .collect();
    assert!(numbers.len() == 20 && !numbers.contains(&0), "{numbers:?}");
}

/// All clients give up after less than the objective, and the route was slow once.
#[test]
fn a_route_that_took_longer_than_a_deadline_is_tried_again() {
    let gate = Gate::builder(MS(20)).workers(4).build().unwrap();
    let hurried = RequestInfo::default().with_route(1).with_timeout(MS(15));
    let (mut now, mut admitted) = (1_000_000u64, 0);
    for request in 0..4_000 {
        let work = if request < 60 { 30 } else { 1 };
        now += 40_000_000;
        if let Ok(mut permit) = gate.admit_at(Time(now), &hurried) {
            now += work * 1_000_000;
            permit.record_cpu_time(MS(work));
            permit.finish_at(Time(now), Outcome::Completed);
            admitted += u32::from(request >= 500);
        }
    }
    assert_eq!(admitted, 3_500, "{:?}", gate.counts());
}

#[test]
fn canary_a_leaked_permit_is_caught() {
    let gate = Gate::builder(MS(20)).build().unwrap();
    assert!(play(&gate, 1, true).is_err());
}

/// P11: no request is rejected, and would-be rejections are counted.
fn refuses_nothing(mode: Mode) -> Result<u64, String> {
    let gate = Gate::builder(MS(20)).workers(1).mode(mode).build().unwrap();
    let (mut draw, mut now) = (TestRng(3), 0u64);
    for _ in 0..20_000 {
        now += draw.bits() % 500_000;
        // Twice the capacity: 500 us of work every 250 us.
        let mut permit = gate
            .admit_at(Time(now), &RequestInfo::default().with_age(MS(draw.bits() % 30)))
            .map_err(|rejection| format!("P11: {rejection:?}"))?;
        permit.record_cpu_time(Duration::from_micros(500));
        permit.finish(Outcome::Completed);
    }
    Ok(gate.counts().shadowed)
}

#[test]
fn shadow_mode_rejects_nothing_and_counts_would_be_rejections() {
    let shadowed = refuses_nothing(Mode::Shadow).unwrap();
    // Half of the requests exceed the capacity.
    assert!((8_000..12_000).contains(&shadowed), "{shadowed}");
    assert!(refuses_nothing(Mode::Enforce).is_err(), "a mode that refuses is seen");
}

#[test]
fn every_rejection_can_be_explained() {
    let gate = Gate::builder(MS(20)).decisions(32).build().unwrap();
    let late_rejection = gate.admit(&RequestInfo::default().with_age(MS(19))).unwrap_err();
    let expired_rejection = gate.admit(&RequestInfo::default().with_age(MS(3)).with_timeout(MS(2))).unwrap_err();
    assert_eq!((late_rejection.reason, expired_rejection.reason), (DecisionReason::Late, DecisionReason::Deadline));
    for rejection in [late_rejection, expired_rejection] {
        let decision = gate.decision(rejection.decision).unwrap();
        assert_eq!(decision.reject_reason, Some(rejection.reason));
        assert!((MS(40)..=MS(120)).contains(&rejection.retry_after));
        let explanation = gate.explain(rejection.decision).unwrap();
        assert!(
            explanation.contains(&format!(": {}. ", rejection.reason.name())) && explanation.contains("had waited"),
            "{explanation}"
        );
    }
    for _ in 0..100 {
        let _ = gate.admit(&RequestInfo::default().with_age(MS(19)));
    }
    assert_eq!(gate.decision(late_rejection.decision), None, "the ring has gone round");
    assert_eq!(gate.decisions(1_000).len(), 32);
}

#[test]
fn requests_in_flight_stay_within_the_limit() {
    // One thread may admit them all, for many workers.
    for workers in [1, 16] {
        let gate = Gate::builder(MS(20)).workers(workers).max_in_flight(3).build().unwrap();
        for _ in 0..3 {
            let permits: Vec<_> = (0..3).map(|_| gate.admit(&RequestInfo::default()).unwrap()).collect();
            for _ in 0..2 {
                assert_eq!(gate.admit(&RequestInfo::default()).unwrap_err().reason, DecisionReason::Concurrency);
            }
            // A rejection for another reason takes no place.
            let _ = gate.admit(&RequestInfo::default().with_age(MS(30)));
            drop(permits);
        }
        gate.admit(&RequestInfo::default()).unwrap().finish(Outcome::Completed);
    }
}

#[test]
fn an_explanation_tells_a_limit_in_use_from_one_that_is_held() {
    // Each worker has its own limit, where none was set.
    for (limit, most) in [(Some(3), 3), (None, 65_536)] {
        let builder = Gate::builder(MS(20)).workers(2);
        let gate = limit.into_iter().fold(builder, Builder::max_in_flight).build().unwrap();
        let at = |ms: u64| Time(ms * 1_000_000);
        let admit = |ms| gate.admit_at(at(ms), &RequestInfo::default());
        let sentence = |ms| {
            let rejection = admit(ms).unwrap_err();
            assert_eq!(rejection.reason, DecisionReason::Concurrency);
            gate.explain(rejection.decision).unwrap()
        };
        let mut permits: Vec<_> = (0..most).map(|_| admit(1).unwrap()).collect();
        permits.pop().unwrap().finish_at(at(10), Outcome::Completed);
        permits.push(admit(10).unwrap());
        let busy = sentence(20);
        if limit.is_none() {
            // The other worker's requests end all the time. Two threads may have the same worker.
            let in_other_thread = || admit(3_000).map(|permit| permit.finish_at(at(3_000), Outcome::Completed)).is_ok();
            let has_ended = || std::thread::scope(|scope| scope.spawn(in_other_thread).join().unwrap());
            assert!((0..100).any(|_| has_ended()));
        }
        let held = sentence(3_010);
        let begin = format!("Rejected: {most} requests were in progress, as many as `max_in_flight` allows");
        assert!(busy.starts_with(&format!("{begin}. ")), "{busy}");
        assert!(held.starts_with(&format!("{begin}; none had ended for 3 s")), "{held}");
    }
}

#[test]
fn estimated_costs_add_up_to_measured_costs() {
    // P9: the estimated costs of 10,000 requests add up to the measured costs, within 1 %.
    let estimate = leeward_controllers::edge::cost::CostEstimate::default();
    let (mut draw, mut charged, mut measured) = (TestRng(9), 0u64, 0u64);
    for index in 0..10_032u64 {
        let span = 200_000 + draw.bits() % 600_000;
        if index >= 32 {
            charged += u64::from(estimate.cost(leeward_core::units::Cost::ONE).0) * 1_000;
            measured += span;
        }
        estimate.record(Nanos(span));
    }
    let ratio = charged as f64 / measured as f64;
    assert!((ratio - 1.0).abs() <= 0.01, "{ratio}");
}

/// The parts sum up to the whole, and the number of parts is bounded.
fn parts_are_the_whole(snapshot: &Snapshot) {
    let sum =
        |count: fn(&leeward_observe::snapshot::RouteAnswers) -> u64| snapshot.answers.iter().map(count).sum::<u64>();
    assert_eq!(
        (sum(|snapshot| snapshot.in_time), sum(|snapshot| snapshot.late), sum(|snapshot| snapshot.failed)),
        (snapshot.in_time, snapshot.late(), snapshot.failed)
    );
    assert_eq!(snapshot.in_flight_by_class.iter().sum::<u64>(), snapshot.in_flight);
    assert!(
        snapshot.answers.len() <= 8 * 21 && snapshot.costs.len() <= 21,
        "{}, {}",
        snapshot.answers.len(),
        snapshot.costs.len()
    );
    let labels: std::collections::BTreeSet<_> = snapshot.costs.iter().map(|cost| &cost.route).collect();
    assert_eq!(labels.len(), snapshot.costs.len(), "{labels:?}");
    assert!(snapshot.tenants.len() <= TENANTS_MAX + 1, "{:?}", snapshot.tenants);
}

#[test]
fn metrics_are_split_by_route_tenant_and_cost() {
    for mode in [Mode::Enforce, Mode::Share(50), Mode::Shadow] {
        let gate = Gate::builder(MS(20)).workers(2).mode(mode).build().unwrap();
        gate.name_route(7, "/search");
        gate.name_route(7, "/later");
        gate.name_route(8, "/search");
        gate.name_route(9, "other");
        for (index, route) in [7, 8, 9].into_iter().enumerate() {
            let request = RequestInfo::default().with_route(route).with_tenant(Tenant(u32::from(route)));
            for round in 0..50 {
                let now = (index as u64 * 50 + round) * 100_000_000;
                let mut permit = gate.admit_at(Time(now), &request).unwrap();
                permit.record_cpu_time(MS(1));
                permit.finish_at(Time(now + 2_000_000), Outcome::Completed);
            }
        }
        let snapshot = gate.snapshot();
        parts_are_the_whole(&snapshot);
        let costs: Vec<_> =
            snapshot.costs.iter().map(|of| (of.route.as_str(), of.costs.count(), of.costs.sum_ns)).collect();
        let each = (50, 50_000_000);
        assert_eq!(
            costs,
            ["/search", "/search (8)", "other (9)"].map(|label| (label, each.0, each.1)),
            "{mode:?}: a name stays, and labels are distinct"
        );
        // The cost of the first requests is unknown.
        let admitted: Vec<_> =
            snapshot.tenants.iter().map(|of| (of.tenant.as_str(), of.usage.admitted_ns > 0)).collect();
        assert_eq!(admitted.len(), 3, "{admitted:?}");
        assert!(admitted.iter().all(|(_, known)| *known), "{admitted:?}");
    }
}

#[test]
fn failures_are_no_goodput_and_create_no_series() {
    let gate = Gate::builder(MS(20)).workers(1).build().unwrap();
    let answer = |route: u8, outcome| gate.admit(&RequestInfo::default().with_route(route)).unwrap().finish(outcome);
    (1..=200).for_each(|route| answer(route, Outcome::Failed));
    answer(7, Outcome::Completed);
    answer(7, Outcome::Failed);
    let snapshot = gate.snapshot();
    parts_are_the_whole(&snapshot);
    assert_eq!((snapshot.completed, snapshot.in_time, snapshot.failed), (202, 1, 201));
    let failed = snapshot.answers.iter().map(|of| (of.route.as_str(), of.failed)).collect::<Vec<_>>();
    assert_eq!(failed, [("0", 0), ("7", 1), ("other", 200)]);
}

#[test]
fn a_request_without_a_route_does_not_affect_other_routes() {
    let gate = Gate::builder(MS(20)).workers(1).build().unwrap();
    let mut permit = gate.admit(&RequestInfo::default().with_route(7)).unwrap();
    permit.clear_route();
    permit.record_cpu_time(MS(3));
    permit.finish(Outcome::Completed);
    let snapshot = gate.snapshot();
    assert_eq!(snapshot.costs.iter().map(|of| of.route.as_str()).collect::<Vec<_>>(), ["0"]);
    assert!(!gate.is_named(7));
}

#[test]
fn a_flood_of_routes_and_tenants_creates_a_bounded_number_of_series() {
    for mode in [Mode::Enforce, Mode::Share(50)] {
        let gate = Gate::builder(MS(20)).workers(2).mode(mode).seed(3).build().unwrap();
        let mut draw = TestRng(11);
        for number in 0..20_000_u32 {
            let request = arriving(&mut draw).with_tenant(Tenant(number + 1));
            if let Ok(permit) = gate.admit_at(Time(u64::from(number) * 200_000), &request) {
                permit.finish_at(Time(u64::from(number) * 200_000 + 90_000), Outcome::Completed);
            }
        }
        let snapshot = gate.snapshot();
        parts_are_the_whole(&snapshot);
        assert!(
            snapshot.answers.iter().any(|of| of.route == "other") && snapshot.in_time > 0,
            "{:?}",
            snapshot.answers
        );
    }
}

#[test]
fn invalid_objectives_and_parameters_are_rejected() {
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
                    if let Ok(permit) = gate.admit(&arriving(&mut draw))
                        && draw.bits().is_multiple_of(2)
                    {
                        permit.finish(Outcome::Completed);
                    }
                }
            });
        }
    });
    let counts = gate.counts();
    assert_eq!((counts.arrived, counts.in_flight()), (80_000, 0), "{counts:?}");
}
