//! The rules of `knee`, each against a backend whose best number is known.

use crate::backend::{Proxy, build};
use leeward_concurrency::{Outcome, Response, TICK, Tick};
use leeward_core::units::{Nanos, Time};

const MS: Nanos = Nanos::from_millis(1);
/// Limit at the beginning.
const FIRST_LIMIT: u32 = 64;

fn knee(objective: Nanos, cores: usize) -> Proxy {
    Proxy::new(build("knee", objective), cores, MS)
}

/// Twice the capacity of `cores` cores.
fn twice(cores: u64) -> Nanos {
    MS / (2 * cores)
}

#[test]
fn the_limit_binds_nobody_until_there_is_an_overload() {
    let mut proxy = knee(MS * 50, 8);
    proxy.run(MS * 3_000, MS / 6);
    assert_eq!(proxy.limit.limit(), FIRST_LIMIT, "6 of 8 cores are busy");
    assert_eq!(proxy.queued_ticks, 0);
    // 180 requests await 30 ms.
    let mut proxy = knee(MS * 100, 8);
    proxy.awaiting = MS * 30;
    proxy.run(MS * 3_000, MS / 6);
    proxy.queued_ticks = 0;
    proxy.run(MS * 3_000, MS / 6);
    assert_eq!(proxy.queued_ticks, 0);
}

#[test]
fn a_flood_reaches_the_backend_by_doublings() {
    let mut proxy = knee(MS * 1_000, 1);
    proxy.awaiting = MS * 350;
    proxy.run(MS * 340, MS / 50);
    assert_eq!(proxy.limits, [64, 128, 256, 512], "without an answer");
}

#[test]
fn a_request_per_core_and_a_short_queue_remain_of_an_overload() {
    for cores in [1, 2, 8] {
        let mut proxy = knee(MS * 50, cores as usize);
        proxy.run(MS * 3_000, twice(cores));
        let limit = u64::from(proxy.limit.limit());
        assert!((cores..=3 * cores + 2).contains(&limit), "{limit} for {cores} cores");
    }
}

#[test]
fn the_descent_falls_by_halves_within_a_second() {
    let mut proxy = knee(MS * 400, 8);
    proxy.run(MS * 1_000, twice(8));
    let first = proxy.limits.windows(2).position(|pair| pair[1] < pair[0]).unwrap();
    for pair in proxy.limits[first + 1..].windows(2).take(2) {
        assert_eq!(pair[1], pair[0] / 2, "{:?}", proxy.limits);
    }
    assert!(proxy.limit.limit() < 40, "{:?}", proxy.limits);
}

#[test]
fn requests_that_wait_without_a_core_are_more_in_flight() {
    let mut proxy = knee(MS * 100, 1);
    proxy.awaiting = MS * 20;
    proxy.run(MS * 10_000, twice(1));
    let limit = proxy.limit.steady_limit();
    assert!((21..=42).contains(&limit), "{limit}: 20 wait while one is executed");
}

#[test]
fn the_tail_of_the_sojourn_stays_within_the_objective() {
    // Without the bound, eight cores have a limit of 14, which takes nearly 2 ms.
    let mut proxy = knee(Nanos::from_micros(1_500), 8);
    proxy.run(MS * 5_000, twice(8));
    let limit = proxy.limit.steady_limit();
    assert!((4..=11).contains(&limit), "{limit}");
}

#[test]
fn an_objective_that_no_limit_reaches_does_not_close_the_backend() {
    let mut proxy = knee(MS * 20, 4);
    proxy.awaiting = MS * 30;
    proxy.run(MS * 20_000, twice(4));
    let limit = proxy.limit.limit();
    assert!(limit >= 60, "{limit}: 124 use all cores, and a low limit makes nothing faster");
}

#[test]
fn a_slower_backend_keeps_its_cores_busy() {
    let mut proxy = knee(MS * 100, 8);
    for work in [MS, MS * 3, MS] {
        proxy.work = work;
        proxy.run(MS * 4_000, twice(8));
        let limit = proxy.limit.steady_limit();
        assert!((8..=28).contains(&limit), "{limit} at {work}");
    }
}

#[test]
fn a_limit_after_an_overload_refuses_nothing() {
    let mut proxy = knee(MS * 50, 8);
    proxy.run(MS * 3_000, twice(8));
    proxy.run(MS * 500, MS / 6);
    proxy.queued_ticks = 0;
    proxy.run(MS * 5_000, MS / 6);
    assert_eq!(proxy.queued_ticks, 0, "6 of 8 cores are busy, and no request need wait");
}

#[test]
fn an_idle_proxy_keeps_its_limit() {
    let mut proxy = knee(MS * 50, 8);
    proxy.run(MS * 3_000, twice(8));
    // A dip ends with the load.
    proxy.run(MS * 50, MS * 1_000);
    let limit = proxy.limit.steady_limit();
    proxy.run(MS * 60_000, MS * 20);
    assert_eq!(proxy.limit.steady_limit(), limit);
}

#[test]
fn dips_are_rare_and_return_to_the_limit_before() {
    let mut proxy = knee(MS * 50, 8);
    proxy.run(MS * 3_000, twice(8));
    proxy.limits.clear();
    proxy.run(MS * 60_000, twice(8));
    let dips: Vec<_> = proxy.limits.windows(3).filter(|limits| limits[1] * 3 < limits[0]).collect();
    assert!((2..=12).contains(&dips.len()), "{}", dips.len());
    // A dip begins with a step of the limit.
    assert!(dips.iter().all(|limits| limits[2] / 4 == limits[1] && limits[2].abs_diff(limits[0]) <= 2), "{dips:?}");
}

#[test]
fn failures_in_no_time_teach_nothing() {
    let mut proxy = knee(MS * 50, 8);
    proxy.run(MS * 3_000, twice(8));
    let mut now = proxy.now;
    let mut limits = Vec::new();
    for _ in 0..1_000 {
        let in_flight = proxy.limit.limit();
        for _ in 0..100 {
            proxy.limit.on_response(&Response { now, dispatched: now, outcome: Outcome::Failed, in_flight });
        }
        now += TICK;
        proxy.limit.on_tick(&Tick { now, in_flight, queued: 9, has_starved: false, oldest_unread: None });
        limits.push(proxy.limit.limit());
    }
    // The answers of before end the measurement that they began.
    assert!(limits[10..].iter().all(|limit| *limit == limits[10]), "{:?}", &limits[..20]);
}

#[test]
fn a_burst_after_a_quiet_time_is_no_overload() {
    let mut proxy = knee(MS * 50, 8);
    proxy.run(MS * 60_000, MS * 1_000);
    proxy.run(MS * 30, MS / 12);
    proxy.run(MS * 1_000, MS * 10);
    assert_eq!(proxy.limit.limit(), FIRST_LIMIT);
}

#[test]
fn old_unread_bytes_end_the_opening_without_an_answer() {
    let mut limit = build("knee", MS * 50);
    let tick =
        |oldest_unread| Tick { now: Time::ZERO + TICK, in_flight: 100, queued: 0, has_starved: true, oldest_unread };
    limit.on_tick(&tick(Some(MS * 10)));
    assert_eq!(limit.limit(), FIRST_LIMIT);
    limit.on_tick(&tick(Some(MS * 45)));
    assert_eq!(limit.limit(), 50);
}

#[test]
fn old_unread_bytes_halve_the_limit_at_the_next_tick() {
    let mut proxy = knee(MS * 50, 8);
    proxy.run(MS * 3_000, twice(8));
    let mut now = proxy.now;
    let mut tick = |in_flight, unread| {
        now += TICK;
        let oldest_unread = Some(unread);
        proxy.limit.on_tick(&Tick { now, in_flight, queued: 9, has_starved: false, oldest_unread });
        (proxy.limit.limit(), proxy.limit.steady_limit())
    };
    // The answers of before may end a level, and the next one begins at its first tick.
    tick(12, MS * 10);
    let before = tick(12, MS * 10);
    assert_eq!(tick(before.0, MS * 20), before);
    assert_eq!(tick(before.0, MS * 30), before, "in time");
    let halved = (before.1 / 2, before.1 / 2);
    assert_eq!(tick(before.0, MS * 45), halved, "without an answer, and of the limit before a lift");
    assert_eq!(tick(before.0, MS * 55), halved, "the cut has had no effect yet");
    assert_eq!(tick(halved.0, MS * 45).0, before.1 / 4, "it has, and was not enough");
}

#[test]
fn a_stop_of_the_backend_is_recovered_from() {
    for is_told in [false, true] {
        let mut proxy = knee(MS * 50, 8);
        proxy.run(MS * 3_000, twice(8));
        let before = proxy.limit.limit();
        proxy.limits.clear();
        proxy.stop(proxy.now + MS * 3_000, twice(8), is_told);
        let least = proxy.limits.iter().min().copied().unwrap_or(before);
        assert!(least >= before / 2 - 1, "{:?}, told: {is_told}", proxy.limits);
        proxy.run(MS * 1_000, twice(8));
        let limit = proxy.limit.steady_limit();
        assert!((8..=28).contains(&limit), "{limit} from {before}: {:?}, told: {is_told}", proxy.limits);
    }
}

/// A tenth or a third of the requests hang without work. The others are as quick as ever.
#[test]
fn requests_that_hang_are_no_overload() {
    for (hanging, objective) in [(2, MS * 200), (9, MS * 200), (9, MS * 100)] {
        let mut limit = build("knee", objective);
        for tick in 3..6_000_u64 {
            let now = Time(tick * TICK.0);
            let hung = if tick < 500 { 0 } else { hanging };
            // One answer a tick after 20 ms, and for each place that is given up another one hangs.
            let response =
                Response { now, dispatched: Time(now.0 - 20_000_000), outcome: Outcome::Completed, in_flight: 2 };
            limit.on_response(&response);
            if hung > 0 && tick % (20 / hanging) == 0 {
                limit.on_hang(now, objective);
            }
            let in_flight = 2 + hung as u32;
            limit.on_tick(&Tick { now, in_flight, queued: 0, has_starved: true, oldest_unread: None });
            assert!(limit.limit() >= 64, "{} at {now:?} with {hanging} that hang", limit.limit());
        }
    }
}
