//! Second calls (mt-hedge): what they give against a leaf that is slow now and then, what they cost, and that they end where all leaves
//! are overloaded. Counts decide, not latencies. How far they cut a tail is simulated by the same rules: `leeward run mt-hedge`.

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
/// Delay of some of the slow leaf's answers: longer than a busy machine makes anybody wait.
const SLOW: Duration = Duration::from_millis(400);
/// Of so many answers of the slow leaf one is slow.
const ONE_OF: u64 = 20;
/// Makes calls that may be repeated, and calls that may not.
const REPEATABLE: u32 = 8;
const ONCE: u32 = 1;
/// Second calls that may have been saved up.
const SAVED: u64 = 10;

/// Mood of a leaf.
#[derive(Default)]
struct SlowLeaf {
    may_be_slow: AtomicBool,
    /// Slow answers so far.
    slow: AtomicU64,
}

/// A leaf that is slow now and then, while it may be.
fn moody(mood: &Arc<SlowLeaf>) -> Server {
    let (turn, mood) = (AtomicU64::new(0), Arc::clone(mood));
    let handler = move |request: OwnedRequest| {
        let may_be = mood.may_be_slow.load(Ordering::SeqCst);
        let is_slow = may_be && turn.fetch_add(1, Ordering::Relaxed).is_multiple_of(ONE_OF);
        mood.slow.fetch_add(u64::from(is_slow), Ordering::SeqCst);
        async move {
            if is_slow {
                sleep(Nanos(SLOW.as_nanos() as u64)).await;
            }
            Ok(request.payload)
        }
    };
    server().start_async("127.0.0.1:0", handler).unwrap()
}

/// Asks for a whole answer. How long that took.
fn ask(asking: &mut PipelinedClient, request: u64, method: u32) -> Duration {
    let began = Instant::now();
    let CallResult::Result(answer) = asking.ask(request, method, b"all parts") else { panic!("no result") };
    assert_eq!(usize::from(answer[0]), PARTS, "a whole answer");
    began.elapsed()
}

/// Second calls and calls so far.
fn so_far(tier: &Tier) -> (u64, u64) {
    let counts = tier.switch().counts();
    (counts.hedged, counts.calls)
}

#[test]
fn second_calls_rescue_most_requests_from_a_slow_leaf_for_a_twentieth_more() {
    for setup in ["SDB1-1", "ADB1-1-1"] {
        let mood = Arc::new(SlowLeaf::default());
        let mut servers: Vec<Server> = (0..PARTS * 2).map(|_| echo()).collect();
        servers[0] = moody(&mood);
        let tier = start(Options::new(leaves(&servers).copies(2).unwrap(), threading(setup)));
        let mut asking = PipelinedClient::new(&tier);
        // Until every leaf's tail is known.
        (1..=300).for_each(|request| _ = ask(&mut asking, request, REPEATABLE));
        let mut waited = 0;
        for request in 1_000..1_600 {
            mood.may_be_slow.store(true, Ordering::SeqCst);
            waited += u64::from(ask(&mut asking, request, REPEATABLE) >= SLOW);
            // Calls that are not made again pay for those that are: 5 % of a leaf's calls take longer than 95 %, and each wants a second
            // one.
            mood.may_be_slow.store(false, Ordering::SeqCst);
            ask(&mut asking, request + 10_000, ONCE);
        }
        let slow = mood.slow.load(Ordering::SeqCst);
        let (hedged, calls) = so_far(&tier);
        assert!(slow > 0 && waited * 2 <= slow, "{setup}: {slow} slow answers, and {waited} requests waited for one");
        assert!(hedged * 20 <= calls + 20 * SAVED, "{setup}: {hedged} of {calls}");
        tier.stop().unwrap();
        servers.into_iter().for_each(|server| _ = server.stop().unwrap());
    }
}

#[test]
fn second_calls_end_where_all_leaves_are_overloaded() {
    let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
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
        let mut asking = PipelinedClient::new(&tier);
        let mut load = |first: u64, ahead: u64, requests: u64| {
            let (mut next, mut open) = (first, 0);
            while next < first + requests {
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
        // So that leaves' tails are known, and then 64 requests at a time, which ask 128 times of leaves that do four at once.
        load(1, 1, 400);
        load(1 << 32, 64, 1_000);
        let before = so_far(&tier);
        load(1 << 33, 64, 3_000);
        let after = so_far(&tier);
        let (hedged, calls) = (after.0 - before.0, after.1 - before.1);
        assert!(hedged * 200 <= calls, "{setup}: {hedged} of {calls}");
        tier.stop().unwrap();
        servers.into_iter().for_each(|server| _ = server.stop().unwrap());
    }
}
