//! Goodput, latency, shares and recovery under load, as fractions of the plant's capacity.

use super::plant::{Plant, Server, poisson};
use leeward_controllers::edge;
use leeward_core::units::Nanos;

const MS: fn(u64) -> Nanos = Nanos::from_millis;

fn server(workers: u32) -> Server {
    Server { workers, slo: MS(20), rejection_cost: Nanos::from_micros(20) }
}

/// Responses in time per second, over the requests of `service` that the workers can complete.
fn goodput(plant: &Plant, server: &Server, service: Nanos, from: Nanos, to: Nanos) -> f64 {
    let capacity = f64::from(server.workers) * (to - from).0 as f64 / (service + server.rejection_cost).0 as f64;
    plant.timely_responses(from, to) as f64 / capacity
}

#[test]
fn twice_the_capacity_is_served_at_capacity_with_half_the_objective_to_spare() {
    for workers in [1, 2, 10] {
        let (server, service) = (server(workers), Nanos::from_micros(500));
        for load in [2.0, 5.0] {
            let mut plant = Plant::new(&edge::ALGORITHM, &[], server, 1);
            plant.run(&poisson(&server, service, load, MS(0), MS(4_000), 7, |_, _| {}));
            let good = goodput(&plant, &server, service, MS(1_000), MS(4_000));
            let (p50, p99) = (plant.quantile(MS(1_000), MS(4_000), 0.5), plant.quantile(MS(1_000), MS(4_000), 0.99));
            println!("{workers} workers, {load} x: goodput {good:.3}, p50 {p50}, p99 {p99}");
            // A rejection costs 20 of 520 us: at 2 x that is 0.04 of the capacity, at 5 x 0.16.
            let rejections = (load - 1.0) * 20.0 / 520.0;
            assert!(good >= 0.96 - rejections, "{workers} workers, {load} x: {good}");
            assert!(p50 <= MS(10) && p99 <= MS(20), "{workers} workers, {load} x: {p50}, {p99}");
        }
    }
}

#[test]
fn bursts_within_the_capacity_are_served_in_time() {
    let (server, service) = (server(1), Nanos::from_micros(500));
    // 30 requests at once every 20 ms: 0.78 of the capacity, and each burst is over within the
    // objective.
    let bursts: Vec<_> = poisson(&server, service, 0.78, MS(0), MS(4_000), 3, |_, _| {})
        .into_iter()
        .enumerate()
        .map(|(index, mut request)| {
            request.at = leeward_core::units::Time::ZERO + MS(20) * (index as u64 / 30);
            request
        })
        .collect();
    let mut plant = Plant::new(&edge::ALGORITHM, &[], server, 1);
    plant.run(&bursts);
    let served = plant.timely_responses(MS(0), MS(4_000)) as f64 / bursts.len() as f64;
    assert!(served >= 0.97, "{served}");
}

#[test]
fn a_threefold_change_of_the_service_time_is_followed_both_ways() {
    let server = server(1);
    let (fast, slow) = (Nanos::from_micros(400), Nanos::from_micros(1_200));
    let mut requests = Vec::new();
    for (index, service) in [fast, slow, fast].into_iter().enumerate() {
        let (from, to) = (MS(4_000 * index as u64), MS(4_000 * (index as u64 + 1)));
        requests.extend(poisson(&server, fast, 1.6, from, to, index as u64, |request, _| request.service = service));
    }
    let mut plant = Plant::new(&edge::ALGORITHM, &[], server, 1);
    plant.run(&requests);
    for (index, service) in [fast, slow, fast].into_iter().enumerate() {
        let (from, to) = (MS(4_000 * index as u64 + 1_000), MS(4_000 * (index as u64 + 1)));
        let good = goodput(&plant, &server, service, from, to);
        println!("phase {index}: {good:.3}");
        assert!(good >= 0.8, "phase {index}: {good}");
    }
}

#[test]
fn rejections_end_within_a_second_after_an_overload() {
    let (server, service) = (server(1), Nanos::from_micros(500));
    let mut plant = Plant::new(&edge::ALGORITHM, &[], server, 1);
    plant.run(&poisson(&server, service, 5.0, MS(0), MS(10_000), 5, |_, _| {}));
    plant.run(&poisson(&server, service, 0.5, MS(10_000), MS(20_000), 6, |_, _| {}));
    let last = plant
        .outcomes
        .iter()
        .filter(|outcome| outcome.reject_reason.is_some())
        .map(|outcome| outcome.decision_time.0)
        .max()
        .unwrap();
    assert!(last <= MS(11_000).0, "{last}");
}

#[test]
fn the_highest_of_three_classes_is_rarely_rejected_at_twice_the_capacity() {
    let (server, service) = (server(2), Nanos::from_micros(500));
    let classes = [0u8, 3, 6];
    let requests = poisson(&server, service, 2.0, MS(0), MS(6_000), 11, |request, draw| {
        request.priority = classes[(draw.bits() % 3) as usize] * 16 + (draw.bits() % 16) as u8 + 1;
    });
    let mut plant = Plant::new(&edge::ALGORITHM, &[], server, 1);
    plant.run(&requests);
    let rejected = |class: u8| {
        let of_class = |priority: u8| (priority - 1) / 16 == class;
        let all: Vec<_> =
            plant.outcomes_between(MS(1_000), MS(6_000)).filter(|outcome| of_class(outcome.request.priority)).collect();
        all.iter().filter(|outcome| outcome.reject_reason.is_some()).count() as f64 / all.len() as f64
    };
    let rejected = classes.map(rejected);
    println!("{rejected:?}");
    assert!(rejected[0] <= 0.005, "{rejected:?}");
    assert!(rejected[2] >= 0.85, "{rejected:?}");
}

#[test]
fn nine_light_tenants_keep_their_goodput_beside_a_heavy_one() {
    let (server, service) = (server(1), Nanos::from_micros(500));
    let requests = poisson(&server, service, 2.0, MS(0), MS(6_000), 13, |request, draw| {
        request.tenant = if draw.bits() % 10 < 9 { 0 } else { 1 + (draw.bits() % 9) as u32 };
    });
    let mut plant = Plant::new(&edge::ALGORITHM, &[], server, 1);
    plant.run(&requests);
    let modest: Vec<_> =
        plant.outcomes_between(MS(1_000), MS(6_000)).filter(|outcome| outcome.request.tenant > 0).collect();
    let good = modest.iter().filter(|outcome| outcome.reject_reason.is_none() && outcome.latency <= MS(20)).count();
    let kept = good as f64 / modest.len() as f64;
    println!("{kept}");
    assert!(kept >= 0.95, "{kept}");
}

#[test]
fn cheap_requests_stay_in_time_beside_expensive_ones() {
    let server = server(2);
    let (cheap, expensive) = (Nanos::from_micros(100), Nanos::from_micros(5_000));
    // The same amount of work of each kind.
    let requests = poisson(&server, Nanos::from_micros(196), 2.0, MS(0), MS(8_000), 17, |request, draw| {
        let is_expensive = draw.bits() % 51 == 0;
        (request.service, request.cost) = if is_expensive { (expensive, 50) } else { (cheap, 1) };
    });
    let mut plant = Plant::new(&edge::ALGORITHM, &[], server, 1);
    plant.run(&requests);
    let cheap: Vec<_> =
        plant.outcomes_between(MS(1_000), MS(8_000)).filter(|outcome| outcome.request.cost == 1).collect();
    let served: Vec<_> = cheap.iter().filter(|outcome| outcome.reject_reason.is_none()).collect();
    let late = served.iter().filter(|outcome| outcome.latency > MS(20)).count() as f64 / served.len() as f64;
    assert!(late <= 0.01 && served.len() * 3 > cheap.len(), "{late} late of {} of {}", served.len(), cheap.len());
}
