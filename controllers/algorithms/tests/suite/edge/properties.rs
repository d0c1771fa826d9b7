//! Properties after random histories, by seed: P2 to P8 and P10 of the design of admission at the edge. P1, P11 and P12 are
//! the gate's (`guard/gate`).

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

/// A property of one seed's history; an error says how it was broken.
type Property = fn(&Algorithm, u64) -> Result<(), String>;

fn check(property: Property) {
    let failed = (0..u64::from(sequences() / 4).max(1)).find_map(|index| {
        let seed = seed().wrapping_add(index);
        property(&edge::ALGORITHM, seed).err().map(|broken| format!("{broken}; LEEWARD_SEED={seed}"))
    });
    assert_eq!(failed, None);
}

fn check_canary(property: Property, spoilt: &Algorithm) {
    let seen = (0..16).any(|index| property(spoilt, seed().wrapping_add(index)).is_err());
    assert!(seen, "a planted mistake is not seen");
}

fn server(seed: u64) -> Server {
    Server { workers: 1 + (seed % 3) as u32, slo: MS(20), rejection_cost: Nanos::from_micros(20) }
}

/// A plant after a random history of loads between none and five times the capacity; returns the time, too.
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
    // Work that is under way has ended.
    (plant, from + MS(40))
}

/// P2: whoever is less important than a refused request of its tenant is refused, too.
fn importance(algorithm: &Algorithm, seed: u64) -> Result<(), String> {
    let (mut plant, _) = history(algorithm, seed);
    let server = server(seed);
    let (from, to) = (MS(3_000), MS(3_600));
    plant.run(&poisson(&server, SERVICE, 3.0, from, to, seed, |_, _| {}));
    let now = Time::ZERO + to;
    let ask = |plant: &mut Plant, priority| {
        let at = Time(now.0 - MS(10).0);
        plant.probe(now, &Request { at, service: SERVICE, priority, tenant: 0, cost: 1, time_left: Nanos::MAX })
    };
    let refused: Vec<u8> = (1..=128).filter(|priority| ask(&mut plant, *priority) != Verdict::Admit).collect();
    let whole = refused.first().is_none_or(|first| refused.iter().eq((*first..=128).collect::<Vec<_>>().iter()));
    // The border itself may have admitted by chance.
    let but_border = refused.first().is_some_and(|first| refused.len() + 1 >= (128 - *first) as usize);
    if whole || but_border { Ok(()) } else { Err(format!("P2: refused {refused:?}")) }
}

/// P3: after any history, a pause and half a load, nothing is refused.
fn reopens(algorithm: &Algorithm, seed: u64) -> Result<(), String> {
    let (mut plant, end) = history(algorithm, seed);
    let server = server(seed);
    let from = end + MS(40);
    plant.idle_until(Time::ZERO + from);
    // 100 / increase periods of half a load.
    let calm = from + MS(100);
    plant.run(&poisson(&server, SERVICE, 0.5, from, calm + MS(500), seed, |_, _| {}));
    match plant.outcomes_between(calm, calm + MS(500)).filter(|fate| fate.reject_reason.is_some()).count() {
        0 => Ok(()),
        refused => Err(format!("P3: {refused} refused")),
    }
}

/// P4: a request that waited for nothing is refused for its deadline alone.
fn free_workers(algorithm: &Algorithm, seed: u64) -> Result<(), String> {
    let (plant, _) = history(algorithm, seed);
    let refused =
        plant.outcomes.iter().find(|fate| fate.reject_reason.is_some() && fate.decision_time == fate.request.at);
    refused.map_or(Ok(()), |fate| Err(format!("P4: {:?} at {:?}", fate.reject_reason, fate.decision_time)))
}

/// P5: two tenants that always ask for more than there is get the same cost.
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
        let served = plant.outcomes_between(MS(1_000), MS(4_000)).filter(|fate| fate.reject_reason.is_none());
        served.filter(|fate| fate.request.tenant == tenant).map(|fate| f64::from(fate.request.cost)).sum::<f64>()
    };
    let (one, other) = (cost(0), cost(1));
    // Levels are averages over 100 ms: the shares are equal to the tenth.
    if (one / other - 1.0).abs() <= 0.15 { Ok(()) } else { Err(format!("P5: {one} against {other}")) }
}

/// P6: nothing is admitted that by its estimate is late, and nothing refused as late that at twice the estimate is not.
fn deadlines(algorithm: &Algorithm, seed: u64) -> Result<(), String> {
    let server = server(seed);
    let mut plant = Plant::new(algorithm, &[("level", "off")], server, seed);
    plant.run(&poisson(&server, SERVICE, 3.0, MS(0), MS(1_000), seed, |request, draw| {
        request.time_left = MS(1 + draw.bits() % 30);
    }));
    for fate in &plant.outcomes {
        let (left, waited) = (fate.request.time_left.min(server.slo), fate.decision_time.since(fate.request.at));
        if fate.reject_reason.is_none() && waited + SERVICE > left {
            return Err(format!("P6: admitted after {waited} of {left}"));
        }
        // The general limit leaves a tenth of the objective.
        let late = waited + SERVICE * 2 > left || waited > server.slo.scale(0.9);
        if fate.reject_reason == Some(RejectReason::Delay) && !late {
            return Err(format!("P6: refused after {waited} of {left}"));
        }
    }
    Ok(())
}

/// P7 where no client has a window: what is admitted of a tenant is no more than its share of all that is admitted, shares that
/// are not asked for divided among the others (max-min); and all shares together are what the workers can do.
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
    let fates: Vec<_> = plant.outcomes_between(MS(1_000), MS(5_000)).collect();
    let count = |tenant: u32, admitted: bool| {
        let counted =
            fates.iter().filter(|fate| fate.request.tenant == tenant && (!admitted || fate.reject_reason.is_none()));
        counted.count() as f64
    };
    let tenants = 0..weights.len() as u32;
    let admitted: f64 = tenants.clone().map(|tenant| count(tenant, true)).sum();
    let capacity = 4e9 / (SERVICE + server.rejection_cost).0 as f64 * f64::from(server.workers);
    if admitted < capacity * 0.85 {
        return Err(format!("P7: {admitted} admitted where {capacity} could be"));
    }
    let share = max_min(tenants.clone().map(|tenant| count(tenant, false)).collect(), admitted);
    // Levels are averages over 100 ms: shares are kept to the tenth, and of a few requests to a few.
    let above = |tenant: &u32| count(*tenant, true) > share * 1.1 + 30.0;
    match tenants.clone().find(above) {
        None => Ok(()),
        Some(tenant) => Err(format!("P7: {} admitted of tenant {tenant}, whose share is {share}", count(tenant, true))),
    }
}

/// The most that anybody gets who asks for more, if `all` are divided.
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

/// Time that is passed on of what was left, after some has passed.
type Remaining = fn(Nanos, Nanos) -> Nanos;

/// P8: along a path of servers neither the time that is left grows, nor what of it may be spent on queues.
fn budgets_shrink(passed_on: Remaining, seed: u64) -> Result<(), String> {
    let mut draw = Rng(seed);
    let span = |draw: &mut Rng| match draw.bits() % 8 {
        0 => Nanos::ZERO,
        1 => Nanos(1),
        _ => Nanos(draw.bits() % MS(30).0),
    };
    // A client that names no deadline meets the first server's objective.
    let named = if draw.bits().is_multiple_of(4) { Nanos::MAX } else { span(&mut draw) };
    let (mut left, mut spendable) = (named, u64::MAX);
    for hop in 0..6 {
        let slo = MS(1 + draw.bits() % 40);
        let (waited, service) = (span(&mut draw), span(&mut draw));
        let here = left.min(slo);
        let budget = deadline::budget(here, waited, service).remaining().map_or(u64::MAX, |budget| budget.0);
        // What a hop waits is gone for those behind it, so their budgets are compared with what this one had.
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

/// P10: from the start, below capacity, nothing is refused that would be in time.
fn starts_open(algorithm: &Algorithm, seed: u64) -> Result<(), String> {
    let server = server(seed);
    let mut plant = Plant::new(algorithm, &[], server, seed);
    plant.run(&poisson(&server, SERVICE, 0.85, MS(0), MS(2_000), seed, |_, _| {}));
    let early = plant.outcomes.iter().filter(|fate| {
        let waited = fate.decision_time.since(fate.request.at);
        fate.reject_reason.is_some() && waited + SERVICE * 2 <= server.slo.scale(0.9)
    });
    let (early, all) = (early.count(), plant.outcomes.len());
    if early * 1_000 <= all { Ok(()) } else { Err(format!("P10: {early} of {all} refused")) }
}

#[test]
fn whoever_is_less_important_is_refused_too() {
    check(importance);
    check_canary(importance, &canaries::UPSIDE_DOWN);
}

#[test]
fn nobody_is_locked_out() {
    check(reopens);
    check_canary(reopens, &canaries::LOCKS_OUT);
}

#[test]
fn nothing_is_refused_beside_a_free_worker() {
    check(free_workers);
    check_canary(free_workers, &canaries::REJECTS_WHEN_FREE);
}

#[test]
fn tenants_that_always_ask_get_equal_shares_of_cost() {
    check(shares);
    check_canary(shares, &canaries::NO_SHARES);
    check_canary(shares, &canaries::NO_COSTS);
}

#[test]
fn deadlines_are_kept() {
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
fn it_starts_open() {
    check(starts_open);
    check_canary(starts_open, &canaries::STARTS_CLOSED);
}
