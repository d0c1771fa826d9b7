//! Fan-outs that tolerate tails: copies, second calls, cancelling, good-enough results.

use crate::fanout_service::{delayed_leaf, echo, leaves, server, start, threading};
use crate::pipelined_client::{CallResult, PipelinedClient};
use leeward_core::units::Nanos;
use leeward_rpc::server::{OwnedRequest, Server};
use leeward_rpc::tier::{Options, Tier};
use leeward_runtime::timers::sleep;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MODELS: [&str; 2] = ["SDB1-1", "ADB1-1-1"];
/// Longer than any quick call takes, even on a busy machine.
const SLOW: Nanos = Nanos::from_secs(2);

fn answered(result: &CallResult) -> u8 {
    let CallResult::Result(bytes) = result else { panic!("{result:?}") };
    bytes[0]
}

fn stop(tier: Tier, servers: impl IntoIterator<Item = Server>) {
    tier.stop().unwrap();
    servers.into_iter().for_each(|server| _ = server.stop().unwrap());
}

/// A leaf with an adjustable service time.
fn adjustable_leaf() -> (Server, Arc<AtomicU64>) {
    let takes = Arc::new(AtomicU64::new(0));
    let service_time = Arc::clone(&takes);
    let handler = move |request: OwnedRequest| {
        let service_time = Arc::clone(&service_time);
        async move {
            sleep(Nanos(service_time.load(Ordering::SeqCst))).await;
            Ok(request.payload)
        }
    };
    (server().start_async("127.0.0.1:0", handler).unwrap(), takes)
}

#[test]
fn a_slow_call_is_hedged_at_another_copy_and_the_first_is_cancelled() {
    for setup in MODELS {
        let (first, takes) = adjustable_leaf();
        let servers = [first, echo()];
        let tier = start(Options::new(leaves(&servers).copies(2).unwrap(), threading(setup)));
        let mut client = PipelinedClient::new(&tier);
        // Until both tails are known.
        for request in 1..=300 {
            assert_eq!(answered(&client.ask(request, 8, b"one of two")), 1, "{setup}");
        }
        // These may have cost second calls. The following ones earn what the next calls need, and
        // use none: they are not repeatable.
        for request in 1_001..=1_200 {
            assert_eq!(answered(&client.ask(request, 1, b"one of two")), 1, "{setup}");
        }
        let before = tier.switch().counts();
        takes.store(SLOW.0, Ordering::SeqCst);
        let started = Instant::now();
        for request in 301..=308 {
            assert_eq!(answered(&client.ask(request, 8, b"the other")), 1, "{setup}");
        }
        assert!(started.elapsed() < Duration::from_nanos(SLOW.0), "{setup}: {:?}", started.elapsed());
        let after = tier.switch().counts();
        let hedged = after.hedged - before.hedged;
        assert!(hedged > 0 && after.cancelled - before.cancelled >= hedged, "{setup}: {after:?}");
        // The leaf's tasks have ended with their calls: none waits there for two seconds.
        stop(tier, servers);
        assert!(started.elapsed() < Duration::from_nanos(SLOW.0), "{setup}: {:?}", started.elapsed());
    }
}

#[test]
fn unneeded_calls_are_cancelled_if_allowed() {
    for setup in MODELS {
        let servers = [echo(), delayed_leaf(Nanos::from_millis(300))];
        let tier = start(Options::new(leaves(&servers), threading(setup)));
        let mut client = PipelinedClient::new(&tier);
        assert_eq!(answered(&client.ask(1, 1, b"all")), 2, "{setup}");
        assert_eq!(answered(&client.ask(2, 10, b"one")), 1, "{setup}");
        assert_eq!(tier.switch().counts().cancelled, 1, "{setup}");
        assert_eq!(answered(&client.ask(3, 6, b"one, and the other is to take effect")), 1, "{setup}");
        assert_eq!(tier.switch().counts().cancelled, 1, "{setup}");
        assert_eq!(answered(&client.ask(4, 1, b"all")), 2, "{setup}");
        let counts = tier.switch().counts();
        assert_eq!((counts.late, counts.cancelled), (1, 1), "{setup}: {counts:?}");
        stop(tier, servers);
    }
}

#[test]
fn a_response_waits_for_half_of_the_leaves() {
    for setup in ["SDB1-1", "ADB1-1-1", "CORE1"] {
        let servers = [echo(), delayed_leaf(Nanos::from_millis(300)), delayed_leaf(Nanos::from_millis(100)), echo()];
        let tier = start(Options::new(leaves(&servers), threading(setup)));
        let mut client = PipelinedClient::new(&tier);
        assert_eq!(answered(&client.ask(1, 8, b"all")), 4, "{setup}");
        let half = answered(&client.ask(2, 9, b"half"));
        assert!((2..=3).contains(&half), "{setup}: {half}");
        stop(tier, servers);
        let servers = [delayed_leaf(Nanos::from_millis(300)), delayed_leaf(Nanos::from_millis(100))];
        let tier = start(Options::new(leaves(&servers), threading(setup)));
        let mut client = PipelinedClient::new(&tier);
        assert_eq!(answered(&client.ask(1, 8, b"all")), 2, "{setup}");
        assert_eq!(answered(&client.ask(2, 9, b"the first of two")), 1, "{setup}");
        stop(tier, servers);
    }
}

#[test]
fn losing_one_copy_costs_no_results() {
    for setup in ["SDB1-2", "ADB1-1-1", "CORE1"] {
        let mut servers = vec![echo(), echo(), echo(), echo()];
        let tier = start(Options::new(leaves(&servers).copies(2).unwrap(), threading(setup)));
        let mut client = PipelinedClient::new(&tier);
        assert_eq!(answered(&client.ask(1, 8, b"two parts")), 2, "{setup}");
        servers.pop().unwrap().stop().unwrap();
        for request in 2..60 {
            let right = answered(&client.ask(request, 8, b"two parts"));
            // A call that was in flight when its leaf stopped may be lost.
            assert!(right == 2 || request < 4, "{setup}: {right} for {request}");
        }
        stop(tier, servers);
    }
}

#[test]
fn the_number_of_copies_must_divide_the_leaves() {
    let servers = [echo(), echo(), echo()];
    let error = leaves(&servers).copies(2).map(|_| ()).unwrap_err().to_string();
    assert_eq!(error, "3 leaves can't have 2 copies of each part; accepted: a number that divides them");
    assert!(leaves(&servers).copies(0).is_err());
    assert_eq!(leaves(&servers).copies(3).unwrap().parts(), 1);
}
