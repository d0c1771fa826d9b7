//! Tests that clients without requests don't take the time of clients with requests.

use super::support::*;
use crate::limits::Limits;
use leeward_core::units::Nanos;

/// Returns the longest time of a call beside `others`, once the core knows these. Each of them
/// sends `bytes` whenever it has fewer unread.
fn longest_call(others: usize, bytes: &str) -> Nanos {
    let mut world = TestServer::new(Limits::default());
    let others: Vec<_> = (0..others).map(|_| world.connect()).collect();
    let caller = world.connect();
    let (start, mut longest) = (world.now(), Nanos::ZERO);
    while world.now().since(start) < Nanos::from_millis(120) {
        let began = world.now();
        caller.send("c");
        while caller.take().is_empty() {
            assert!(world.now().since(began) < Nanos::from_millis(5), "no answer");
            for client in &others {
                if client.unread() < bytes.len() {
                    client.send(bytes);
                }
            }
            world.poll();
            world.run();
            world.time.advance(Nanos(1_000));
        }
        if began.since(start) > Nanos::from_millis(2) {
            longest = longest.max(world.now().since(began));
        }
    }
    longest
}

#[test]
fn idle_clients_delay_a_call_by_one_of_their_turns() {
    let alone = longest_call(0, "");
    assert!(alone < Nanos::from_micros(6), "{alone}");
    // One quantum takes 33 us, and 16 of them half a millisecond.
    let longest = longest_call(16, &"m".repeat(512));
    assert!(longest < Nanos::from_micros(100), "{longest}");
}

#[test]
fn a_crowd_of_idle_clients_is_paused() {
    let mut world = TestServer::new(Limits::default());
    let crowd: Vec<_> = (0..200).map(|_| world.connect()).collect();
    let mut reads = 0;
    let began = world.now();
    while world.now().since(began) < Nanos::from_millis(90) {
        for client in crowd.iter().filter(|client| client.unread() == 0) {
            client.send("m");
            reads += 1;
        }
        world.poll();
        world.time.advance(Nanos(1_000));
    }
    // A thousand for all, and the minimum quota of each.
    assert!((1_000..=200 * 18).contains(&reads), "{reads}");
    assert!(crowd.iter().all(|client| client.unread() == 1), "none is read before the next sweep");
    world.pass(Nanos::from_millis(100));
    assert!(crowd.iter().all(|client| client.unread() == 0));
}

#[test]
fn violations_pause_their_client_until_the_sweep() {
    let mut world = TestServer::new(Limits::default());
    let (abusive, caller) = (world.connect(), world.connect());
    world.poll();
    abusive.send("v".repeat(4_000));
    let mut calls = 0;
    for _ in 0..400 {
        caller.send("c");
        world.poll();
        calls += world.run();
    }
    assert_eq!(calls, 400, "each poll answers a call besides 8 violations");
    abusive.send("c");
    assert_eq!(world.settle(), 0, "paused");
    world.pass(Nanos::from_secs(4));
    assert_eq!(abusive.take(), b"a", "a sweep lets it go on");
}

#[test]
fn a_first_request_of_a_client_that_is_put_off_has_waited() {
    let mut world = TestServer::new(Limits::default());
    let (abusive, new_client, caller) = (world.connect(), world.connect(), world.connect());
    // Both have sent a message and no request, as a registering client does.
    abusive.send("m");
    new_client.send("m");
    world.settle();
    abusive.send("m".repeat(64));
    new_client.send("c");
    caller.send("s");
    world.poll();
    assert_eq!((new_client.unread(), world.handle.shared.queues.waiting()), (1, 1), "put off to the next poll");
    assert_eq!(world.run(), 1);
    world.poll();
    assert_eq!(new_client.unread(), 0);
    let found = world.handle.shared.packets.found(0);
    assert!(found >= SLOW_CALL, "waited for the slow call, and {found} are counted");
}
