//! Tests that clients without requests don't take the time of clients with requests.

use super::support::*;
use crate::limits::Limits;
use leeward_core::units::Nanos;

/// Returns the longest time of a call beside `others`, once the core knows these. Each of them
/// sends `bytes` whenever it has fewer unread.
fn longest_call(others: usize, bytes: &str) -> Nanos {
    let mut server = TestServer::new(Limits::default());
    let others: Vec<_> = (0..others).map(|_| server.connect()).collect();
    let caller = server.connect();
    let (start, mut longest) = (server.now(), Nanos::ZERO);
    while server.now().since(start) < Nanos::from_millis(120) {
        let began = server.now();
        caller.send("c");
        while caller.take().is_empty() {
            assert!(server.now().since(began) < Nanos::from_millis(5), "no answer");
            for client in &others {
                if client.unread() < bytes.len() {
                    client.send(bytes);
                }
            }
            server.poll();
            server.run();
            server.time.advance(Nanos(1_000));
        }
        if began.since(start) > Nanos::from_millis(2) {
            longest = longest.max(server.now().since(began));
        }
    }
    longest
}

#[test]
fn idle_clients_delay_a_call_by_at_most_one_quantum() {
    let alone = longest_call(0, "");
    assert!(alone < Nanos::from_micros(6), "{alone}");
    // One quantum takes 33 us, and 16 of them half a millisecond.
    let longest = longest_call(16, &"m".repeat(512));
    assert!(longest < Nanos::from_micros(100), "{longest}");
}

#[test]
fn many_idle_clients_are_paused() {
    let mut server = TestServer::new(Limits::default());
    let crowd: Vec<_> = (0..200).map(|_| server.connect()).collect();
    let mut reads = 0;
    let began = server.now();
    while server.now().since(began) < Nanos::from_millis(90) {
        for client in crowd.iter().filter(|client| client.unread() == 0) {
            client.send("m");
            reads += 1;
        }
        server.poll();
        server.time.advance(Nanos(1_000));
    }
    // A thousand for all, and the minimum quota of each.
    assert!((1_000..=200 * 18).contains(&reads), "{reads}");
    assert!(crowd.iter().all(|client| client.unread() == 1), "none is read before the next sweep");
    server.pass(Nanos::from_millis(100));
    assert!(crowd.iter().all(|client| client.unread() == 0));
}

#[test]
fn violations_pause_their_client_until_the_sweep() {
    let mut server = TestServer::new(Limits::default());
    let (abusive, caller) = (server.connect(), server.connect());
    server.poll();
    abusive.send("v".repeat(4_000));
    let mut calls = 0;
    for _ in 0..400 {
        caller.send("c");
        server.poll();
        calls += server.run();
    }
    assert_eq!(calls, 400, "each poll answers a call besides 8 violations");
    abusive.send("c");
    assert_eq!(server.settle(), 0, "paused");
    server.pass(Nanos::from_secs(4));
    assert_eq!(abusive.take(), b"a", "a sweep lets it go on");
}

#[test]
fn the_first_request_of_a_deferred_client_counts_its_wait() {
    let mut server = TestServer::new(Limits::default());
    let (abusive, new_client, caller) = (server.connect(), server.connect(), server.connect());
    // Both have sent a message and no request, as a registering client does.
    abusive.send("m");
    new_client.send("m");
    server.settle();
    abusive.send("m".repeat(64));
    new_client.send("c");
    caller.send("s");
    server.poll();
    assert_eq!((new_client.unread(), server.handle.shared.queues.waiting()), (1, 1), "put off to the next poll");
    assert_eq!(server.run(), 1);
    server.poll();
    assert_eq!(new_client.unread(), 0);
    let found = server.handle.shared.packets.found(0);
    assert!(found >= SLOW_CALL, "waited for the slow call, and {found} are counted");
}
