//! Second calls (mt-hedge): their benefit with an occasionally slow leaf, their cost, and their end
//! when all leaves are overloaded. The tests assert counts, not latencies. The simulator applies
//! the same rules to tails: `leeward run mt-hedge`.

use crate::fanout_service::{echo, leaves, server, start, threading};
use crate::pipelined_client::{CallResult, PipelinedClient};
use leeward_core::units::Nanos;
use leeward_rpc::server::{OwnedRequest, Request, Server};
use leeward_rpc::tier::{Options, Tier};
use leeward_runtime::timers::sleep;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Parts of the data; each has two copies.
const PARTS: usize = 4;
/// Delay of a slow response: longer than any delay of a busy machine.
const SLOW: Duration = Duration::from_millis(400);
/// Every nth response of the slow leaf is slow.
const ONE_OF: u64 = 20;
/// Method with repeatable calls; `ONCE` has calls that may not repeat.
const REPEATABLE: u32 = 8;
const ONCE: u32 = 1;
/// Maximum number of saved-up second calls.
const SAVED: u64 = 10;

/// State of the slow leaf.
#[derive(Default)]
struct SlowLeaf {
    may_be_slow: AtomicBool,
    /// Slow responses so far.
    slow: AtomicU64,
}

/// A leaf that is occasionally slow, while allowed.
fn unsteady_leaf(slow_leaf: &Arc<SlowLeaf>) -> Server {
    let (count, slow_leaf) = (AtomicU64::new(0), Arc::clone(slow_leaf));
    let handler = move |request: OwnedRequest| {
        let may_be = slow_leaf.may_be_slow.load(Ordering::SeqCst);
        let is_slow = may_be && count.fetch_add(1, Ordering::Relaxed).is_multiple_of(ONE_OF);
        slow_leaf.slow.fetch_add(u64::from(is_slow), Ordering::SeqCst);
        async move {
            if is_slow {
                sleep(Nanos(SLOW.as_nanos() as u64)).await;
            }
            Ok(request.payload)
        }
    };
    server().start_async("127.0.0.1:0", handler).unwrap()
}

/// Requests a whole response. Returns the time that it took.
fn ask(client: &mut PipelinedClient, request: u64, method: u32) -> Duration {
    let started = Instant::now();
    let CallResult::Result(answer) = client.ask(request, method, b"all parts") else { panic!("no result") };
    assert_eq!(usize::from(answer[0]), PARTS, "a whole answer");
    started.elapsed()
}

/// Second calls and calls so far.
fn call_counts(tier: &Tier) -> (u64, u64) {
    let counts = tier.switch().counts();
    (counts.hedged, counts.calls)
}

#[test]
fn hedging_rescues_most_requests_from_a_slow_leaf_for_a_twentieth_more() {
    for setup in ["SDB1-1", "ADB1-1-1"] {
        let slow_leaf = Arc::new(SlowLeaf::default());
        let mut servers: Vec<Server> = (0..PARTS * 2).map(|_| echo()).collect();
        servers[0] = unsteady_leaf(&slow_leaf);
        let tier = start(Options::new(leaves(&servers).copies(2).unwrap(), threading(setup)));
        let mut client = PipelinedClient::new(&tier);
        // Until every leaf's tail is known.
        (1..=300).for_each(|request| _ = ask(&mut client, request, REPEATABLE));
        let mut waited = 0;
        for request in 1_000..1_600 {
            slow_leaf.may_be_slow.store(true, Ordering::SeqCst);
            waited += u64::from(ask(&mut client, request, REPEATABLE) >= SLOW);
            // Calls that are not repeated pay for those that are: 5 % of a leaf's calls take longer
            // than 95 %, and each wants a second call.
            slow_leaf.may_be_slow.store(false, Ordering::SeqCst);
            ask(&mut client, request + 10_000, ONCE);
        }
        let slow = slow_leaf.slow.load(Ordering::SeqCst);
        let (hedged, calls) = call_counts(&tier);
        assert!(slow > 0 && waited * 2 <= slow, "{setup}: {slow} slow answers, and {waited} requests waited for one");
        assert!(hedged * 20 <= calls + 20 * SAVED, "{setup}: {hedged} of {calls}");
        tier.stop().unwrap();
        servers.into_iter().for_each(|server| _ = server.stop().unwrap());
    }
}

#[test]
fn hedging_stops_when_all_leaves_are_overloaded() {
    let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    let params = breakwater.params(&[]).unwrap();
    let (rtt, slo) = (Nanos::from_micros(50), Nanos::from_millis(10));
    for setup in ["SDB1-32", "ADB1-1-1"] {
        // A leaf's only thread sleeps in a request, so its capacity needs no CPU.
        let leaf = || {
            let handler = |request: &Request<'_>, reply: &mut Vec<u8>| {
                std::thread::sleep(Duration::from_millis(1));
                reply.extend_from_slice(request.payload);
                Ok(())
            };
            server().admission(&breakwater, params.clone()).objective(rtt, slo).start("127.0.0.1:0", handler).unwrap()
        };
        let servers: Vec<Server> = (0..4).map(|_| leaf()).collect();
        let settings = leaves(&servers).admission(&breakwater, params.clone(), rtt, slo).copies(2).unwrap();
        let tier = start(Options::new(settings, threading(setup)));
        let mut client = PipelinedClient::new(&tier);
        let mut load = |first: u64, ahead: u64, requests: u64| {
            let (mut next, mut open) = (first, 0);
            while next < first + requests {
                while open < ahead {
                    client.call(next, REPEATABLE, b"both parts");
                    (next, open) = (next + 1, open + 1);
                }
                client.send();
                client.answer();
                open -= 1;
            }
            (0..open).for_each(|_| _ = client.answer());
        };
        // First the leaves' tails become known; then 64 requests at a time make 128 calls to leaves
        // that run four at once.
        load(1, 1, 400);
        load(1 << 32, 64, 1_000);
        let before = call_counts(&tier);
        load(1 << 33, 64, 3_000);
        let after = call_counts(&tier);
        let (hedged, calls) = (after.0 - before.0, after.1 - before.1);
        assert!(hedged * 200 <= calls, "{setup}: {hedged} of {calls}");
        tier.stop().unwrap();
        servers.into_iter().for_each(|server| _ = server.stop().unwrap());
    }
}
