//! Second calls, and what they give and cost (mt-hedge): a leaf of sixteen that is slow now and then, and leaves that are all overloaded. Measured, and so not run
//! with the other tests: `cargo test --release -p leeward-rpc --test tier second_calls -- --ignored --nocapture`.

use crate::asking::{Asking, Told};
use crate::fan::{echo, leaves, server, start, threading};
use leeward_control::registry::Registry;
use leeward_control::units::Nanos;
use leeward_rpc::server::{OwnedRequest, Request, Server};
use leeward_rpc::tier::{Options, Tier};
use leeward_runtime::timers::sleep;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Parts of the data; each has two copies.
const PARTS: usize = 16;
/// Delay of some of the slow leaf's answers.
const SLOW: Nanos = Nanos::from_millis(10);
/// Of so many answers of the slow leaf one is slow. It has half of its part's calls, so that two requests in a hundred meet one.
const ONE_OF: u64 = 25;
const REQUESTS: u64 = 5_000;
/// Makes calls that may be repeated, and calls that may not.
const REPEATABLE: u32 = 8;
const ONCE: u32 = 1;

/// A leaf that is slow now and then.
fn moody() -> Server {
    let turn = AtomicU64::new(0);
    let handler = move |request: OwnedRequest| {
        let is_slow = turn.fetch_add(1, Ordering::Relaxed).is_multiple_of(ONE_OF);
        async move {
            if is_slow {
                sleep(SLOW).await;
            }
            Ok(request.payload)
        }
    };
    server().start_async("127.0.0.1:0", handler).unwrap()
}

/// Latencies of requests one after the other, the 99th percentile of them.
fn p99(asking: &mut Asking, first: u64, method: u32) -> Duration {
    let mut spans: Vec<Duration> = (first..first + REQUESTS)
        .map(|request| {
            let began = Instant::now();
            let Told::Result(answer) = asking.ask(request, method, b"all parts") else { panic!("no result") };
            assert_eq!(usize::from(answer[0]), PARTS, "a whole answer");
            began.elapsed()
        })
        .collect();
    spans.sort_unstable();
    spans[spans.len() * 99 / 100]
}

fn hedged_over_calls(tier: &Tier, before: (u64, u64)) -> f64 {
    let counts = tier.switch().counts();
    (counts.hedged - before.0) as f64 / (counts.calls - before.1).max(1) as f64
}

fn so_far(tier: &Tier) -> (u64, u64) {
    let counts = tier.switch().counts();
    (counts.hedged, counts.calls)
}

#[test]
#[ignore = "a measurement"]
fn second_calls_cut_the_tail_of_a_slow_leaf() {
    for setup in ["SDB1-2", "ADB1-1-1"] {
        let mut servers: Vec<Server> = (0..PARTS * 2).map(|_| echo()).collect();
        servers[0] = moody();
        let tier = start(Options::new(leaves(&servers).copies(2).unwrap(), threading(setup)));
        let mut asking = Asking::new(&tier);
        // Until every leaf's tail is known.
        (1..=300).for_each(|request| _ = asking.ask(request, REPEATABLE, b"all parts"));
        let before = so_far(&tier);
        let with = p99(&mut asking, 1_000, REPEATABLE);
        let extra = hedged_over_calls(&tier, before);
        // Calls that change something go to the first copy, where one answer in 25 is slow, and are never made again.
        let without = p99(&mut asking, 100_000, ONCE);
        println!(
            "{setup}: p99 {with:?} with second calls, {without:?} without: {:.2}; {:.2} % more calls",
            with.as_secs_f64() / without.as_secs_f64(),
            extra * 100.0
        );
        assert!(with * 2 <= without && extra <= 0.05, "{setup}");
        tier.stop().unwrap();
        servers.into_iter().for_each(|server| _ = server.stop().unwrap());
    }
}

#[test]
#[ignore = "a measurement"]
fn second_calls_end_where_all_leaves_are_overloaded() {
    let breakwater = Registry::builtin().find("breakwater").unwrap().clone();
    let params = breakwater.params(&[]).unwrap();
    let (rtt, slo) = (Nanos::from_micros(50), Nanos::from_millis(10));
    for setup in ["SDB1-32", "ADB1-1-1"] {
        // A leaf's only thread sleeps in a request, so that its capacity needs no CPU.
        let leaf = || {
            let handler = |request: &Request<'_>, reply: &mut Vec<u8>| {
                std::thread::sleep(Duration::from_millis(1));
                reply.extend_from_slice(request.payload);
                Ok(())
            };
            server().admission(&breakwater, params.clone()).objective(rtt, slo).start("127.0.0.1:0", handler).unwrap()
        };
        let servers: Vec<Server> = (0..4).map(|_| leaf()).collect();
        let asked = leaves(&servers).admission(&breakwater, params.clone(), rtt, slo).copies(2).unwrap();
        let tier = start(Options::new(asked, threading(setup)));
        let mut asking = Asking::new(&tier);
        let mut load = |first: u64, ahead: u64, span: Duration| {
            let began = Instant::now();
            let (mut next, mut open) = (first, 0);
            while began.elapsed() < span {
                while open < ahead {
                    asking.call(next, REPEATABLE, b"both parts");
                    (next, open) = (next + 1, open + 1);
                }
                asking.send();
                asking.answer();
                open -= 1;
            }
            (0..open).for_each(|_| _ = asking.answer());
        };
        // One request at a time, and then 32, which ask 64 times of leaves that do four at once.
        load(1, 1, Duration::from_secs(2));
        let calm = hedged_over_calls(&tier, (0, 0));
        let before = so_far(&tier);
        load(1 << 32, 32, Duration::from_secs(4));
        let extra = hedged_over_calls(&tier, before);
        println!(
            "{setup}: {:.2} % more calls at low load, {:.2} % where all leaves are overloaded",
            calm * 100.0,
            extra * 100.0
        );
        assert!(extra <= 0.005, "{setup}: {extra}");
        tier.stop().unwrap();
        servers.into_iter().for_each(|server| _ = server.stop().unwrap());
    }
}
