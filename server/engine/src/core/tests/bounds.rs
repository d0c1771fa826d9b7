//! Bounds of one connection, and how connections end.

use super::support::*;
use crate::limits::Limits;
use leeward_core::units::Nanos;

#[test]
fn calls_are_answered() {
    let mut world = TestServer::new(Limits::default());
    let client = world.connect();
    client.send("cm(one call in");
    assert_eq!(world.settle(), 1);
    client.send(" pieces)cr");
    assert_eq!(world.settle(), 2);
    assert_eq!(client.take().iter().filter(|byte| **byte == b'a').count(), 3);
    let counts = world.handle.counts();
    assert_eq!((counts.received, counts.connections), (3, 1));
}

#[test]
fn a_connection_with_as_much_unanswered_as_it_may_have_is_not_read() {
    let mut world = TestServer::new(Limits::default());
    let client = world.connect();
    client.send("ss");
    world.poll();
    client.send("cc");
    world.poll();
    assert_eq!((client.unread(), world.handle.shared.queues.waiting()), (2, UNANSWERED as u64));
    assert_eq!(world.run(), UNANSWERED);
    world.poll();
    world.poll();
    // The calls have waited 10 ms for their own client's calls: no queueing delay of the server.
    assert_eq!(world.handle.shared.packets.found(0), Nanos::ZERO);
    assert_eq!((client.unread(), world.settle()), (0, 2));
}

#[test]
fn a_client_that_takes_nothing_has_64_kib_waiting_and_ends_when_it_is_stuck() {
    let limits = Limits { write_timeout: Nanos::from_secs(2), ..Limits::default() };
    let mut world = TestServer::new(limits);
    let (slow, stuck) = (world.connect(), world.connect());
    for client in [&slow, &stuck] {
        client.has_room(10);
        client.send("llllll");
    }
    // As many as may be unanswered at once. The core finds the socket full when it answers them.
    assert_eq!(world.settle(), 2 * UNANSWERED);
    world.pass(Nanos::from_secs(1));
    assert_eq!(slow.take().len(), 10);
    world.settle();
    assert!(!slow.is_closed() && !stuck.is_closed());
    world.pass(Nanos::from_millis(1_500));
    assert!(!slow.is_closed() && stuck.is_closed(), "one of them has taken something");
    slow.has_room(usize::MAX);
    assert_eq!(world.settle(), 4);
    assert_eq!(slow.take().len() + 10, 6 * LONG);
}

#[test]
fn short_answers_may_wait_up_to_the_limit() {
    let mut world = TestServer::new(Limits { unsent: 100, ..Limits::default() });
    let client = world.connect();
    client.has_room(0);
    client.send("c".repeat(300));
    let executed = (0..20).map(|_| world.settle()).sum::<usize>();
    assert!((100..=101).contains(&executed), "{executed}");
    client.has_room(usize::MAX);
    let executed = executed
        + (0..20)
            .map(|_| {
                client.take();
                world.settle()
            })
            .sum::<usize>();
    assert_eq!(executed, 300);
}

#[test]
fn an_end_is_told_before_the_connection_closes() {
    let mut world = TestServer::new(Limits::default());
    let (polite, endless) = (world.connect(), world.connect());
    for client in [&polite, &endless] {
        client.send("q");
        world.settle();
        assert_eq!(client.take(), b"Protocol");
        assert!(client.is_shut() && !client.is_closed(), "unread bytes would reset the connection");
        client.send("ccc");
        assert_eq!(world.settle(), 0);
        assert_eq!(client.unread(), 0, "read and thrown away");
    }
    polite.end();
    world.settle();
    assert!(polite.is_closed() && !endless.is_closed());
    world.pass(Nanos::from_millis(1_200));
    assert!(endless.is_closed());
    assert_eq!(world.handle.counts().connections, 0);
}

#[test]
fn a_client_that_has_ended_its_half_is_still_answered() {
    let mut world = TestServer::new(Limits::default());
    let client = world.connect();
    client.send("sc");
    client.end();
    world.settle();
    assert_eq!(client.take(), b"aa");
    world.settle();
    assert!(client.is_closed());
}

#[test]
fn silent_clients_and_slow_requests_end() {
    let limits =
        Limits { idle_timeout: Some(Nanos::from_secs(2)), request_timeout: Nanos::from_secs(1), ..Limits::default() };
    let mut world = TestServer::new(limits);
    let (silent, slow, busy) = (world.connect(), world.connect(), world.connect());
    slow.send("(");
    for _ in 0..25 {
        busy.send("c");
        world.pass(Nanos::from_millis(100));
    }
    assert_eq!((silent.take().as_slice(), slow.take().as_slice()), (&b"Silence"[..], &b"SlowRequest"[..]));
    assert_eq!(busy.take().len(), 25);
}

#[test]
fn a_connection_beyond_the_limit_is_told_so() {
    let mut world = TestServer::new(Limits { connections: 2, ..Limits::default() });
    let clients: Vec<_> = (0..3).map(|_| world.connect()).collect();
    clients.iter().for_each(|client| client.send("c"));
    world.settle();
    let responses: Vec<_> = clients.iter().map(|client| String::from_utf8(client.take()).unwrap()).collect();
    assert_eq!(responses, ["a", "a", "ConnectionLimit"]);
    // A closed connection leaves space for a new one.
    clients[0].end();
    clients[2].end();
    world.settle();
    let next = world.connect();
    next.send("c");
    world.settle();
    assert_eq!(next.take(), b"a");
}
