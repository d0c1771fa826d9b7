//! Leaves that are missing, that stop, and that are slow.

use crate::fanout_service::{delayed_leaf, echo, echo_at, leaves, server, start, threading};
use crate::pipelined_client::{CallResult, PipelinedClient};
use leeward_core::units::Nanos;
use leeward_rpc::server::Request;
use leeward_rpc::tier::{Leaves, Options};
use leeward_testkit::wait::until;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Requests within which a recovered leaf takes part again.
const TRIES: usize = 10_000;

/// A sync and an async model: the others differ only in the thread that waits.
const MODELS: [&str; 2] = ["SDB1-2", "ADB1-1-1"];

fn answered(result: &CallResult) -> u8 {
    let CallResult::Result(bytes) = result else { panic!("{result:?}") };
    bytes[0]
}

#[test]
fn a_lost_leaf_costs_only_its_part_of_the_response() {
    for setup in MODELS {
        let mut servers = vec![echo(), echo()];
        let tier = start(Options::new(leaves(&servers), threading(setup)));
        let mut client = PipelinedClient::new(&tier);
        assert_eq!(answered(&client.ask(1, 1, b"both")), 2, "{setup}");
        servers.pop().unwrap().stop().unwrap();
        for request in 2..100 {
            assert!(answered(&client.ask(request, 1, b"one")) >= 1, "{setup}: the other is there");
        }
        assert_eq!(answered(&client.ask(100, 1, b"one")), 1, "{setup}");
        tier.stop().unwrap();
        servers.into_iter().for_each(|server| _ = server.stop().unwrap());
    }
}

#[test]
fn lost_leaves_and_partial_responses_are_reported() {
    for setup in ["SDB1-2", "SIP2", "ADB1-1-1", "CORE1"] {
        let mut servers = vec![echo(), echo()];
        let address = servers[1].address().to_string();
        let tier = start(Options::new(leaves(&servers), threading(setup)));
        let statistics = || tier.statistics().tier.unwrap();
        until("the leaves are seen without a request", || statistics().away.is_empty());
        let mut client = PipelinedClient::new(&tier);
        assert_eq!(answered(&client.ask(1, 1, b"both")), 2, "{setup}");
        assert_eq!((statistics().leaves, statistics().partial), (2, 0), "{setup}");
        servers.pop().unwrap().stop().unwrap();
        until("one is away", || {
            let _ = client.ask(2, 1, b"one");
            statistics().away == [address.clone()]
        });
        let before = statistics().partial;
        assert_eq!(answered(&client.ask(3, 6, b"one is enough")), 1, "{setup}");
        assert_eq!(statistics().partial, before, "{setup}: nothing is missing");
        assert_eq!(answered(&client.ask(4, 1, b"both")), 1, "{setup}");
        assert_eq!(statistics().partial, before + 1, "{setup}");
        servers.push(echo_at(&address));
        until("it is back, and nobody has asked", || statistics().away.is_empty());
        tier.stop().unwrap();
        servers.into_iter().for_each(|server| _ = server.stop().unwrap());
    }
}

#[test]
fn a_silent_leaf_is_away_also_for_threads_without_calls() {
    for setup in MODELS {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let handler = {
            let is_stopped = Arc::clone(&is_stopped);
            move |request: &Request<'_>, reply: &mut Vec<u8>| {
                // The leaf's only core stands still.
                while is_stopped.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                reply.extend_from_slice(request.payload);
                Ok(())
            }
        };
        let servers = [server().start("127.0.0.1:0", handler).unwrap()];
        let leaves = leaves(&servers).timeout(Nanos::from_millis(50));
        // Connections of setups to which the tier may change carry no calls.
        let tier = start(Options::new(leaves, threading(setup)).max_threads(6));
        let away = || tier.statistics().tier.unwrap().away.len();
        let mut client = PipelinedClient::new(&tier);
        until("it is there", || answered(&client.ask(1, 1, b"all")) == 1 && away() == 0);
        is_stopped.store(true, Ordering::Relaxed);
        // Long before the connections without calls end for their silence.
        let is_away = (0..1_000).any(|_| {
            let _ = client.ask(2, 1, b"all");
            std::thread::sleep(Duration::from_millis(1));
            away() == 1
        });
        assert!(is_away, "{setup}");
        for request in 3..100 {
            let _ = client.ask(request, 1, b"all");
            assert_eq!(away(), 1, "{setup}: {request}");
            std::thread::sleep(Duration::from_millis(2));
        }
        is_stopped.store(false, Ordering::Relaxed);
        until("it is back", || {
            let _ = client.ask(100, 1, b"all");
            away() == 0
        });
        tier.stop().unwrap();
        servers.into_iter().for_each(|server| _ = server.stop().unwrap());
    }
}

#[test]
fn a_recovered_leaf_is_called_by_the_first_request_of_each_thread() {
    // Each of the four threads has its own connections, and polls them when it has a request.
    let threads = 4;
    let mut servers = vec![echo(), echo(), delayed_leaf(Nanos::from_millis(30))];
    let addresses: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
    // Attempts soon after a loss, with a longer timeout.
    let leaves = leaves(&servers).timeout(Nanos::from_secs(10));
    let tier = start(Options::new(leaves, threading(&format!("SDB1-{threads}"))));
    let mut client = PipelinedClient::new(&tier);
    let mut all_at_once = |first: u64| {
        (first..first + threads).for_each(|request| client.call(request, 1, b"all"));
        client.send();
        (0..threads).map(|_| answered(&client.answer().1)).collect::<Vec<u8>>()
    };
    while all_at_once(1).iter().any(|right| *right < 3) {}
    servers.remove(1).stop().unwrap();
    servers.push(echo_at(&addresses[1]));
    // A thread that has just polled its connections does not poll again before its calls.
    std::thread::sleep(Duration::from_millis(200));
    let counts = all_at_once(100);
    // A busy machine may keep a thread from its leaf longer than the thread waits; without the wait
    // no thread would reach it.
    assert!(counts.iter().filter(|right| **right == 3).count() * 2 > counts.len(), "{counts:?}");
    tier.stop().unwrap();
    servers.into_iter().for_each(|server| _ = server.stop().unwrap());
}

#[test]
fn slow_leaves_are_awaited_up_to_the_timeout() {
    for setup in MODELS {
        let servers = [echo(), delayed_leaf(Nanos::from_millis(200))];
        let tier = start(Options::new(leaves(&servers), threading(setup)));
        let mut client = PipelinedClient::new(&tier);
        // Connect first: until then no leaf is fast.
        assert_eq!(answered(&client.ask(1, 1, b"all")), 2, "{setup}");
        // A busy machine may have no response within a millisecond.
        let within: Vec<u8> =
            (2..12).map(|request| answered(&client.ask(request, 7, b"within a millisecond"))).collect();
        assert!(within.contains(&1) && !within.contains(&2), "{setup}: {within:?}");
        assert_eq!(answered(&client.ask(12, 6, b"the first")), 1, "{setup}");
        assert_eq!(answered(&client.ask(13, 1, b"all")), 2, "{setup}: late replies are nobody else's");
        tier.stop().unwrap();
        servers.into_iter().for_each(|server| _ = server.stop().unwrap());
    }
}

#[test]
fn a_silent_leaf_is_not_called_until_it_responds() {
    let fixed: fn(Leaves) -> Leaves = |leaves| leaves.timeout(Nanos::from_millis(50));
    // If requests wait for less than the objective allows, a hundred are over before the leaf
    // counts as unreachable.
    let waits = [(fixed, 50), (Leaves::timeout_by_objective, 100)];
    for (setup, (wait, max)) in MODELS.into_iter().flat_map(|setup| waits.map(|wait| (setup, wait))) {
        let (is_stopped, executed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let stopped = {
            let (is_stopped, executed) = (Arc::clone(&is_stopped), Arc::clone(&executed));
            move |request: &Request<'_>, reply: &mut Vec<u8>| {
                // The leaf stands still until the test releases it.
                while is_stopped.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                executed.fetch_add(1, Ordering::Relaxed);
                reply.extend_from_slice(request.payload);
                Ok(())
            }
        };
        let servers = [echo(), server().start("127.0.0.1:0", stopped).unwrap()];
        let tier = start(Options::new(wait(leaves(&servers)), threading(setup)));
        let mut client = PipelinedClient::new(&tier);
        let mut is_whole = |request: u64| answered(&client.ask(request, 1, b"all")) == 2;
        assert!((0..TRIES).any(|_| is_whole(1)), "{setup}");
        is_stopped.store(true, Ordering::Relaxed);
        let before = executed.load(Ordering::Relaxed);
        assert!(!(2..100).any(&mut is_whole), "{setup}");
        is_stopped.store(false, Ordering::Relaxed);
        let tries = (0..TRIES).position(|_| is_whole(100)).expect("it has come back") + 1;
        let calls_made = (executed.load(Ordering::Relaxed) - before).saturating_sub(tries);
        // Each of the two threads of the sync model detects the fault itself.
        assert!(calls_made < max, "{setup}: {calls_made} of a hundred");
        tier.stop().unwrap();
        servers.into_iter().for_each(|server| _ = server.stop().unwrap());
    }
}

#[test]
fn a_tier_answers_after_the_timeout_without_its_leaf() {
    for setup in MODELS {
        let servers = [delayed_leaf(Nanos::from_secs(30))];
        let leaves = leaves(&servers).timeout(Nanos::from_millis(20));
        let tier = start(Options::new(leaves, threading(setup)));
        let mut client = PipelinedClient::new(&tier);
        assert_eq!(answered(&client.ask(1, 1, b"never")), 0, "{setup}");
        assert_eq!(answered(&client.ask(2, 2, b"never")), 0, "{setup}: two gathers");
        tier.stop().unwrap();
        drop(servers);
    }
}
