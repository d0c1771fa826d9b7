//! Properties after random histories, by seed: P2 to P8 and P10 of the design of admission at the
//! edge. `guard/gate` tests P1, P11 and P12.

use super::canaries;
use super::plant::{Plant, Request, Rng, Server, poisson};
use crate::support::run::{seed, sequences};
use leeward_controllers::edge;
use leeward_controllers::edge::deadline;
use leeward_core::registry::Algorithm;
use leeward_core::server::{RejectReason, Verdict};
use leeward_core::units::{Nanos, Time};

const MS: fn(u64) -> Nanos = Nanos::from_millis;
const SERVICE: Nanos = Nanos::from_micros(500);

/// A property of one seed's history; an error describes the violation.
type Property = fn(&Algorithm, u64) -> Result<(), String>;

fn check(property: Property) {
    let failed = (0..u64::from(sequences() / 4).max(1)).find_map(|index| {
        let seed = seed().wrapping_add(index);
        property(&edge::ALGORITHM, seed).err().map(|broken| format!("{broken}; LEEWARD_SEED={seed}"))
    });
    assert_eq!(failed, None);
}

fn check_canary(property: Property, defective: &Algorithm) {
    let is_detected = (0..16).any(|index| property(defective, seed().wrapping_add(index)).is_err());
    assert!(is_detected, "a planted mistake is not seen");
}

fn server(seed: u64) -> Server {
    Server { workers: 1 + (seed % 3) as u32, slo: MS(20), rejection_cost: Nanos::from_micros(20) }
}

/// Returns a plant after a random history of loads between zero and five times the capacity, and
/// the time.
fn history(algorithm: &Algorithm, seed: u64) -> (Plant, Nanos) {
    let (server, mut draw) = (server(seed), Rng(seed));
    let mut plant = Plant::new(algorithm, &[], server, seed);
    let mut from = Nanos::ZERO;
    for phase in 0..5 {
        let to = from + MS(50 + draw.bits() % 400);
        let load = if draw.bits().is_multiple_of(4) { 0.01 } else { draw.unit() * 5.0 };
        plant.run(&poisson(&server, SERVICE, load, from, to, seed ^ phase, |request, draw| {
            request.tenant = (draw.bits() % 3) as u32;
        }));
        from = to;
    }
    // All work in progress has ended by then.
    (plant, from + MS(40))
}

/// P2: a request less important than a rejected one of its tenant is rejected, too.
fn importance(algorithm: &Algorithm, seed: u64) -> Result<(), String> {
    let (mut plant, _) = history(algorithm, seed);
    let server = server(seed);
    let (from, to) = (MS(3_000), MS(3_600));
    plant.run(&poisson(&server, SERVICE, 3.0, from, to, seed, |_, _| {}));
    let now = Time::ZERO + to;
    let probe = |plant: &mut Plant, priority| {
        let at = Time(now.0 - MS(10).0);
        plant.probe(now, &Request { at, service: SERVICE, priority, tenant: 0, cost: 1, time_left: Nanos::MAX })
    };
    let rejected: Vec<u8> = (1..=128).filter(|priority| probe(&mut plant, *priority) != Verdict::Admit).collect();
    let whole = rejected.first().is_none_or(|first| rejected.iter().eq((*first..=128).collect::<Vec<_>>().iter()));
    // A request on the border itself may have been admitted by chance.
    let but_border = rejected.first().is_some_and(|first| rejected.len() + 1 >= (128 - *first) as usize);
    if whole || but_border { Ok(()) } else { Err(format!("P2: refused {rejected:?}")) }
}

/// P3: after any history, a pause and half a load, nothing is rejected.
fn reopens(algorithm: &Algorithm, seed: u64) -> Result<(), String> {
    let (mut plant, end) = history(algorithm, seed);
    let server = server(seed);
    let from = end + MS(40);
    plant.idle_until(Time::ZERO + from);
    // 100 / increase periods of half a load.
    let calm = from + MS(100);
    plant.run(&poisson(&server, SERVICE, 0.5, from, calm + MS(500), seed, |_, _| {}));
    match plant.outcomes_between(calm, calm + MS(500)).filter(|outcome| outcome.reject_reason.is_some()).count() {
        0 => Ok(()),
        rejected => Err(format!("P3: {rejected} refused")),
    }
}

/// P4: a request without a wait is rejected for its deadline alone.
fn free_workers(algorithm: &Algorithm, seed: u64) -> Result<(), String> {
    let (plant, _) = history(algorithm, seed);
    let rejected = plant
        .outcomes
        .iter()
        .find(|outcome| outcome.reject_reason.is_some() && outcome.decision_time == outcome.request.at);
    rejected.map_or(Ok(()), |outcome| Err(format!("P4: {:?} at {:?}", outcome.reject_reason, outcome.decision_time)))
}

/// P5: two tenants whose demand always exceeds the capacity get the same cost.
fn shares(algorithm: &Algorithm, seed: u64) -> Result<(), String> {
    let server = server(seed);
    let mut plant = Plant::new(algorithm, &[], server, seed);
    plant.run(&poisson(&server, SERVICE, 4.0, MS(0), MS(4_000), seed, |request, draw| {
        request.tenant = u32::from(draw.bits().is_multiple_of(4));
        if request.tenant == 0 {
            (request.service, request.cost) = (SERVICE * 2, 2);
        }
    }));
    let cost = |tenant: u32| {
        let served = plant.outcomes_between(MS(1_000), MS(4_000)).filter(|outcome| outcome.reject_reason.is_none());
        served
            .filter(|outcome| outcome.request.tenant == tenant)
            .map(|outcome| f64::from(outcome.request.cost))
            .sum::<f64>()
    };
    let (one, other) = (cost(0), cost(1));
    // Levels are averages over 100 ms: the shares are equal to within 15 %.
    if (one / other - 1.0).abs() <= 0.15 { Ok(()) } else { Err(format!("P5: {one} against {other}")) }
}

/// P6: no request is admitted that is late by its estimate, and none is rejected as late that is in
/// time at twice the estimate.
fn deadlines(algorithm: &Algorithm, seed: u64) -> Result<(), String> {
    let server = server(seed);
    let mut plant = Plant::new(algorithm, &[("level", "off")], server, seed);
    plant.run(&poisson(&server, SERVICE, 3.0, MS(0), MS(1_000), seed, |request, draw| {
        request.time_left = MS(1 + draw.bits() % 30);
    }));
    for outcome in &plant.outcomes {
        let (left, waited) =
            (outcome.request.time_left.min(server.slo), outcome.decision_time.since(outcome.request.at));
        if outcome.reject_reason.is_none() && waited + SERVICE > left {
            return Err(format!("P6: admitted after {waited} of {left}"));
        }
        // The general limit leaves a tenth of the objective.
        let late = waited + SERVICE * 2 > left || waited > server.slo.scale(0.9);
        if outcome.reject_reason == Some(RejectReason::Delay) && !late {
            return Err(format!("P6: refused after {waited} of {left}"));
        }
    }
    Ok(())
}

/// P7, without windows at the clients: a tenant's admitted requests are at most its share of all
/// admitted ones, with unused shares divided among the others (max-min); and all shares together
/// are the workers' capacity.
fn divided(algorithm: &Algorithm, seed: u64) -> Result<(), String> {
    let (server, mut draw) = (server(seed), Rng(seed ^ 0x7));
    let weights: Vec<u64> = (0..2 + draw.bits() % 5).map(|_| 1 + draw.bits() % 20).collect();
    let all = weights.iter().sum::<u64>();
    let mut plant = Plant::new(algorithm, &[], server, seed);
    plant.run(&poisson(&server, SERVICE, 3.0, MS(0), MS(5_000), seed, |request, draw| {
        let mut left = draw.bits() % all;
        let drawn = weights.iter().position(|weight| {
            left < *weight || {
                left -= weight;
                false
            }
        });
        request.tenant = drawn.unwrap_or(0) as u32;
    }));
    let outcomes: Vec<_> = plant.outcomes_between(MS(1_000), MS(5_000)).collect();
    let count = |tenant: u32, admitted: bool| {
        let counted = outcomes
            .iter()
            .filter(|outcome| outcome.request.tenant == tenant && (!admitted || outcome.reject_reason.is_none()));
        counted.count() as f64
    };
    let tenants = 0..weights.len() as u32;
    let admitted: f64 = tenants.clone().map(|tenant| count(tenant, true)).sum();
    let capacity = 4e9 / (SERVICE + server.rejection_cost).0 as f64 * f64::from(server.workers);
    if admitted < capacity * 0.85 {
        return Err(format!("P7: {admitted} admitted where {capacity} could be"));
    }
    let share = max_min(tenants.clone().map(|tenant| count(tenant, false)).collect(), admitted);
    // Levels are averages over 100 ms: shares are kept to within a tenth, and small ones to a few
    // requests.
    let above = |tenant: &u32| count(*tenant, true) > share * 1.1 + 30.0;
    match tenants.clone().find(above) {
        None => Ok(()),
        Some(tenant) => Err(format!("P7: {} admitted of tenant {tenant}, whose share is {share}", count(tenant, true))),
    }
}

/// Returns the max-min share: the most that a tenant with larger demand gets of `all`.
fn max_min(mut demands: Vec<f64>, all: f64) -> f64 {
    demands.sort_unstable_by(f64::total_cmp);
    let (mut left, mut takers) = (all, demands.len() as f64);
    for demand in demands {
        if demand > left / takers {
            return left / takers;
        }
        (left, takers) = (left - demand, takers - 1.0);
    }
    f64::INFINITY
}

/// Returns the time to pass on, given the time left and the time passed.
type Remaining = fn(Nanos, Nanos) -> Nanos;

/// P8: along a path of servers, neither the time left nor its part for queueing grows.
fn budgets_shrink(passed_on: Remaining, seed: u64) -> Result<(), String> {
    let mut draw = Rng(seed);
    let span = |draw: &mut Rng| match draw.bits() % 8 {
        0 => Nanos::ZERO,
        1 => Nanos(1),
        _ => Nanos(draw.bits() % MS(30).0),
    };
    // A client without a deadline gets the first server's objective.
    let named = if draw.bits().is_multiple_of(4) { Nanos::MAX } else { span(&mut draw) };
    let (mut left, mut spendable) = (named, u64::MAX);
    for hop in 0..6 {
        let slo = MS(1 + draw.bits() % 40);
        let (waited, service) = (span(&mut draw), span(&mut draw));
        let here = left.min(slo);
        let budget = deadline::budget(here, waited, service).remaining().map_or(u64::MAX, |budget| budget.0);
        // The wait at one hop reduces the budgets of the later hops, so those are compared with
        // this hop's budget.
        let had = deadline::budget(here, Nanos::ZERO, Nanos::ZERO).remaining().map_or(u64::MAX, |budget| budget.0);
        let after = passed_on(here, waited);
        let shrinks =
            budget <= had && had <= spendable && after <= here && (after == Nanos::ZERO || after + waited <= here);
        if !shrinks {
            return Err(format!(
                "P8: hop {hop} had {spendable} of {left}, gets {budget} and {had} of {here}, passes {after} on"
            ));
        }
        (left, spendable) = (after, after.0);
    }
    Ok(())
}

/// P10: from the start, below capacity, no request is rejected that would be in time.
fn starts_open(algorithm: &Algorithm, seed: u64) -> Result<(), String> {
    let server = server(seed);
    let mut plant = Plant::new(algorithm, &[], server, seed);
    plant.run(&poisson(&server, SERVICE, 0.85, MS(0), MS(2_000), seed, |_, _| {}));
    let early = plant.outcomes.iter().filter(|outcome| {
        let waited = outcome.decision_time.since(outcome.request.at);
        outcome.reject_reason.is_some() && waited + SERVICE * 2 <= server.slo.scale(0.9)
    });
    let (early, all) = (early.count(), plant.outcomes.len());
    if early * 1_000 <= all { Ok(()) } else { Err(format!("P10: {early} of {all} refused")) }
}

#[test]
fn rejecting_a_priority_rejects_all_lower_priorities() {
    check(importance);
    check_canary(importance, &canaries::UPSIDE_DOWN);
}

#[test]
fn the_gate_reopens_after_an_overload() {
    check(reopens);
    check_canary(reopens, &canaries::LOCKS_OUT);
}

#[test]
fn no_request_is_rejected_while_a_worker_is_free() {
    check(free_workers);
    check_canary(free_workers, &canaries::REJECTS_WHEN_FREE);
}

#[test]
fn backlogged_tenants_get_equal_shares_of_cost() {
    check(shares);
    check_canary(shares, &canaries::NO_SHARES);
    check_canary(shares, &canaries::NO_COSTS);
}

#[test]
fn no_request_is_admitted_past_its_deadline() {
    check(deadlines);
    check_canary(deadlines, &canaries::ADMITS_LATE);
}

#[test]
fn a_tenant_is_admitted_up_to_its_share() {
    check(divided);
    check_canary(divided, &canaries::NO_SHARES);
    check_canary(divided, &canaries::LOCKS_OUT);
}

#[test]
fn a_budget_never_grows_along_a_path() {
    let failed = |law: Remaining| (0..2_000).find_map(|index| budgets_shrink(law, seed().wrapping_add(index)).err());
    assert_eq!(failed(deadline::remaining_after), None);
    let mistakes: [Remaining; 3] = [|left, _| left, |left, passed| left + passed, |_, _| MS(20)];
    for (index, mistake) in mistakes.into_iter().enumerate() {
        assert!(failed(mistake).is_some(), "planted mistake {index} is not seen");
    }
}

#[test]
fn everything_is_admitted_at_the_start() {
    check(starts_open);
    check_canary(starts_open, &canaries::STARTS_CLOSED);
}
