//! Bounds of one connection, and how connections end.

use super::support::*;
use crate::limits::Limits;
use leeward_core::units::Nanos;

#[test]
fn calls_are_answered() {
    let mut server = TestServer::new(Limits::default());
    let client = server.connect();
    client.send("cm(one call in");
    assert_eq!(server.settle(), 1);
    client.send(" pieces)cr");
    assert_eq!(server.settle(), 2);
    assert_eq!(client.take().iter().filter(|byte| **byte == b'a').count(), 3);
    let counts = server.handle.counts();
    assert_eq!((counts.received, counts.connections), (3, 1));
}

#[test]
fn a_connection_at_its_limit_of_unanswered_calls_is_not_read() {
    let mut server = TestServer::new(Limits::default());
    let client = server.connect();
    client.send("ss");
    server.poll();
    client.send("cc");
    server.poll();
    assert_eq!((client.unread(), server.handle.shared.queues.waiting()), (2, UNANSWERED as u64));
    assert_eq!(server.run(), UNANSWERED);
    server.poll();
    server.poll();
    // The calls have waited 10 ms for their own client's calls: no queueing delay of the server.
    assert_eq!(server.handle.shared.packets.found(0), Nanos::ZERO);
    assert_eq!((client.unread(), server.settle()), (0, 2));
}

#[test]
fn a_client_that_reads_nothing_has_64_kib_buffered_and_is_closed_when_stuck() {
    let limits = Limits { write_timeout: Nanos::from_secs(2), ..Limits::default() };
    let mut server = TestServer::new(limits);
    let (slow, stuck) = (server.connect(), server.connect());
    for client in [&slow, &stuck] {
        client.has_room(10);
        client.send("llllll");
    }
    // As many as may be unanswered at once. The core finds the socket full when it answers them.
    assert_eq!(server.settle(), 2 * UNANSWERED);
    server.pass(Nanos::from_secs(1));
    assert_eq!(slow.take().len(), 10);
    server.settle();
    assert!(!slow.is_closed() && !stuck.is_closed());
    server.pass(Nanos::from_millis(1_500));
    assert!(!slow.is_closed() && stuck.is_closed(), "one of them has taken something");
    slow.has_room(usize::MAX);
    assert_eq!(server.settle(), 4);
    assert_eq!(slow.take().len() + 10, 6 * LONG);
}

#[test]
fn short_answers_may_wait_up_to_the_limit() {
    let mut server = TestServer::new(Limits { unsent: 100, ..Limits::default() });
    let client = server.connect();
    client.has_room(0);
    client.send("c".repeat(300));
    let executed = (0..20).map(|_| server.settle()).sum::<usize>();
    assert!((100..=101).contains(&executed), "{executed}");
    client.has_room(usize::MAX);
    let executed = executed
        + (0..20)
            .map(|_| {
                client.take();
                server.settle()
            })
            .sum::<usize>();
    assert_eq!(executed, 300);
}

#[test]
fn the_final_message_is_sent_before_the_connection_closes() {
    let mut server = TestServer::new(Limits::default());
    let (polite, endless) = (server.connect(), server.connect());
    for client in [&polite, &endless] {
        client.send("q");
        server.settle();
        assert_eq!(client.take(), b"Protocol");
        assert!(client.is_shut() && !client.is_closed(), "unread bytes would reset the connection");
        client.send("ccc");
        assert_eq!(server.settle(), 0);
        assert_eq!(client.unread(), 0, "read and thrown away");
    }
    polite.end();
    server.settle();
    assert!(polite.is_closed() && !endless.is_closed());
    server.pass(Nanos::from_millis(1_200));
    assert!(endless.is_closed());
    assert_eq!(server.handle.counts().connections, 0);
}

#[test]
fn a_client_that_has_ended_its_half_is_still_answered() {
    let mut server = TestServer::new(Limits::default());
    let client = server.connect();
    client.send("sc");
    client.end();
    server.settle();
    assert_eq!(client.take(), b"aa");
    server.settle();
    assert!(client.is_closed());
}

#[test]
fn silent_clients_and_slow_requests_end() {
    let limits =
        Limits { idle_timeout: Some(Nanos::from_secs(2)), request_timeout: Nanos::from_secs(1), ..Limits::default() };
    let mut server = TestServer::new(limits);
    let (silent, slow, busy) = (server.connect(), server.connect(), server.connect());
    slow.send("(");
    for _ in 0..25 {
        busy.send("c");
        server.pass(Nanos::from_millis(100));
    }
    assert_eq!((silent.take().as_slice(), slow.take().as_slice()), (&b"Silence"[..], &b"SlowRequest"[..]));
    assert_eq!(busy.take().len(), 25);
}

#[test]
fn a_connection_over_the_limit_gets_an_error() {
    let mut server = TestServer::new(Limits { connections: 2, ..Limits::default() });
    let clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
    clients.iter().for_each(|client| client.send("c"));
    server.settle();
    let responses: Vec<_> = clients.iter().map(|client| String::from_utf8(client.take()).unwrap()).collect();
    assert_eq!(responses, ["a", "a", "ConnectionLimit"]);
    // A closed connection leaves space for a new one.
    clients[0].end();
    clients[2].end();
    server.settle();
    let next = server.connect();
    next.send("c");
    server.settle();
    assert_eq!(next.take(), b"a");
}
