//! The memcached port from outside, over real sockets: the behaviour for normal and for malicious
//! clients.

use crate::support::{Client, builder, serve, store, until};
use leeward_core::units::Nanos;
use leeward_kv::store::RequestContext;
use leeward_testkit::greetings::GREETINGS;
use leeward_testkit::require::retry_if_busy;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn a_set_value_is_returned_by_get() {
    let server = serve(&store());
    let mut client = Client::new(server.address());
    assert_eq!(client.ask(b"set a 7 0 5\r\nhello\r\n"), "STORED\r\n");
    client.send(b"get a b\r\n");
    assert_eq!(client.until(b"END\r\n"), b"VALUE a 7 5\r\nhello\r\nEND\r\n");
    assert_eq!(client.ask(b"delete a\r\n"), "DELETED\r\n");
    assert_eq!(client.ask(b"get a\r\n"), "END\r\n");
    let counts = server.stop().unwrap();
    assert_eq!((counts.received, counts.completed), (4, 4));
}

#[test]
fn requests_in_a_row_are_answered_in_their_order() {
    let server = serve(&store());
    let mut clients: Vec<Client> = (0..8).map(|_| Client::new(server.address())).collect();
    let rounds = 200;
    for (number, client) in clients.iter_mut().enumerate() {
        let request = |round| format!("set k{number} 0 0 4\r\n{round:04}\r\nget k{number}\r\n");
        client.send((0..rounds).map(request).collect::<String>().as_bytes());
    }
    for (number, client) in clients.iter_mut().enumerate() {
        for round in 0..rounds {
            let expected = format!("STORED\r\nVALUE k{number} 0 4\r\n{round:04}\r\nEND\r\n");
            let mut taken = vec![0; expected.len()];
            client.0.read_exact(&mut taken).unwrap();
            assert_eq!(String::from_utf8(taken).unwrap(), expected);
        }
    }
    server.stop().unwrap();
}

#[test]
fn requests_that_were_sent_at_once_share_a_write_beside_other_clients() {
    retry_if_busy(|| {
        let server = serve(&store());
        let mut clients: Vec<Client> = (0..32).map(|_| Client::new(server.address())).collect();
        for _ in 0..50 {
            clients.iter_mut().for_each(|client| client.send(b"get a\r\nget b\r\nget c\r\nget d\r\n"));
            for client in &mut clients {
                client.0.read_exact(&mut [0; 4 * b"END\r\n".len()]).unwrap();
            }
        }
        let counts = server.stop().unwrap();
        assert_eq!(counts.completed, 32 * 50 * 4);
        let enough = counts.writes * 2 <= counts.completed;
        if enough { Ok(()) } else { Err(format!("{} writes for {} answers", counts.writes, counts.completed)) }
    });
}

#[test]
fn a_large_value_comes_back_whole() {
    let server = serve(&store());
    let mut client = Client::new(server.address());
    let value: Vec<u8> = (0..1_000_000u32).map(|number| (number % 251) as u8).collect();
    let (reply, closed) = client.exchange(&[b"set big 0 0 1000000\r\n", &value[..], b"\r\nget big\r\n"].concat());
    assert!(!closed);
    let expected = [b"STORED\r\nVALUE big 0 1000000\r\n", &value[..], b"\r\nEND\r\nERROR\r\nEN kthe-mark\r\n"].concat();
    assert!(reply == expected);
    server.stop().unwrap();
}

#[test]
fn a_too_long_line_gets_an_error_and_is_skipped() {
    let server = serve(&store());
    let message = "CLIENT_ERROR line too long\r\n";
    let lines = [("x".repeat(3000), 1), (format!("get {}", "k ".repeat(1500)), 0), ("get ".repeat(20_000), 1)];
    for (line, times) in lines {
        let (reply, was_closed) = Client::new(server.address()).exchange(line.as_bytes());
        assert!(!was_closed, "{} bytes", line.len());
        assert_eq!(String::from_utf8_lossy(&reply).matches(message).count(), times, "{} bytes", line.len());
    }
    // A line without an end is answered once, and costs nothing.
    let mut endless = Client::new(server.address());
    for _ in 0..50 {
        endless.send("x".repeat(100_000).as_bytes());
    }
    endless.send(b"\r\nmn\r\nquit\r\n");
    assert_eq!(String::from_utf8_lossy(&endless.rest()), format!("{message}MN\r\n"));
    // A client of the binary protocol.
    let mut binary = Client::new(server.address());
    binary.send(b"\x80\x0b");
    assert_eq!(binary.rest(), b"");
    server.stop().unwrap();
}

#[test]
fn connections_over_the_limit_get_an_error() {
    let server = builder().cores(1).connection_limit(2).start("127.0.0.1:0", &store()).unwrap();
    let mut first = Client::new(server.address());
    let second = Client::new(server.address());
    assert_eq!(first.ask(b"mn\r\n"), "MN\r\n");
    until("two connections", || server.counts().connections == 2);
    assert_eq!(Client::new(server.address()).rest(), b"ERROR Too many open connections\r\n");
    drop(second);
    until("room", || {
        let mut third = Client::new(server.address());
        third.send(b"mn\r\nquit\r\n");
        third.rest() == b"MN\r\n"
    });
    server.stop().unwrap();
}

#[test]
fn a_client_that_does_not_read_is_bounded_and_closed() {
    let timeouts = (None, Nanos::from_secs(60), Nanos::from_millis(200));
    let server =
        builder().timeouts(timeouts.0, timeouts.1, timeouts.2).unsent_limit(1 << 16).start("127.0.0.1:0", &store());
    let server = server.unwrap();
    let mut client = Client::new(server.address());
    let value = vec![b'x'; 500_000];
    let _ = client.exchange(&[b"set big 0 0 500000\r\n", &value[..], b"\r\n"].concat());
    let before = server.counts();
    // Half a gigabyte, if all requests were answered.
    client.send("get big\r\n".repeat(1000).as_bytes());
    until("the end of a client that takes nothing", || server.counts().connections == 0);
    let since = server.counts().completed - before.completed;
    // As many as the socket's buffers hold, and two more.
    assert!(since < 100, "{since} answers for a client that does not read");
    server.stop().unwrap();
}

#[test]
fn a_client_that_sends_all_its_requests_before_it_reads_is_answered() {
    let timeout = Nanos::from_secs(60);
    let server = builder().timeouts(None, timeout, timeout).start("127.0.0.1:0", &store()).unwrap();
    let mut client = Client::new(server.address());
    // Requests exceed all buffers on the way, and answers stay within the limit of pending output.
    let (rounds, sets) = (120, 1_000);
    let requests = format!("set a 0 0 400\r\n{}\r\n", "x".repeat(400)).repeat(sets);
    for _ in 0..rounds {
        client.send(requests.as_bytes());
    }
    let expected = b"STORED\r\n".repeat(sets);
    for _ in 0..rounds {
        let mut taken = vec![0; expected.len()];
        client.0.read_exact(&mut taken).unwrap();
        assert!(taken == expected);
    }
    server.stop().unwrap();
}

#[test]
fn idle_connections_and_incomplete_requests_time_out() {
    let silent = builder().timeouts(Some(Nanos::from_millis(100)), Nanos::from_secs(60), Nanos::from_secs(60));
    let server = silent.start("127.0.0.1:0", &store()).unwrap();
    assert_eq!(Client::new(server.address()).rest(), b"");
    server.stop().unwrap();
    let slow = builder().timeouts(None, Nanos::from_millis(100), Nanos::from_secs(60));
    let server = slow.start("127.0.0.1:0", &store()).unwrap();
    let mut half = Client::new(server.address());
    half.send(b"set a 0 0 10\r\nabc");
    assert_eq!(half.rest(), b"CLIENT_ERROR the request has taken too long\r\n");
    let mut quiet = Client::new(server.address());
    // Three times as long as a request may take.
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(quiet.ask(b"mn\r\n"), "MN\r\n", "one that has begun nothing may be silent");
    server.stop().unwrap();
}

#[test]
fn a_stop_answers_requests_in_progress() {
    let server = serve(&store());
    let mut client = Client::new(server.address());
    client.send(b"set a 0 0 1\r\nb\r\n");
    assert_eq!(client.line(), "STORED\r\n");
    let counts = server.stop().unwrap();
    assert_eq!((counts.received, counts.completed, counts.abandoned), (1, 1, 0));
    assert_eq!(client.rest(), b"");
}

/// A controller that rejects every request that has waited, and clients that overload the server.
#[test]
fn under_overload_acknowledged_writes_are_stored_and_rejected_ones_are_not() {
    use leeward_core::budget::Budget;
    let registry = leeward_controllers::builtin();
    let algorithm = registry.find("breakwater").unwrap();
    let params = algorithm.params(&[]).unwrap();
    let store = store();
    let (rtt, slo) = (Nanos::from_micros(10), Nanos::from_micros(60));
    let limited =
        builder().admission(algorithm, params).objective(rtt, slo).budget(Budget::new(Nanos::from_micros(40)));
    let server = limited.start("127.0.0.1:0", &store).unwrap();
    let address = server.address();
    let busy: u64 = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|number| {
                scope.spawn(move || {
                    let mut client = Client::new(address);
                    let (mut busy, mut known) = (0u64, vec![None; 40]);
                    for round in 0..40u32 {
                        let requests: String =
                            (0..40).map(|key| format!("set c{number}k{key} 0 0 8\r\n{round:08}\r\n")).collect();
                        client.send(requests.as_bytes());
                        for stored_round in &mut known {
                            match client.until_line().as_str() {
                                "STORED\r\n" => *stored_round = Some(round),
                                "SERVER_ERROR busy\r\n" => busy += 1,
                                other => panic!("{other}"),
                            }
                        }
                    }
                    (busy, known)
                })
            })
            .collect();
        let results: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        for (number, (_, known)) in results.iter().enumerate() {
            for (key, round) in known.iter().enumerate() {
                let found = store.read(format!("c{number}k{key}").as_bytes(), &RequestContext::at(1), |found| {
                    found.map(|found| {
                        let mut value = Vec::new();
                        found.append_value(&mut value);
                        String::from_utf8(value).unwrap().parse::<u32>().unwrap()
                    })
                });
                assert_eq!(found.unwrap(), *round);
            }
        }
        results.iter().map(|(busy, _)| busy).sum()
    });
    let counts = server.stop().unwrap();
    assert_eq!(counts.received, 8 * 40 * 40);
    assert_eq!(counts.rejected, busy);
    assert!(busy > 0, "eight clients with forty requests each under way are more than 60 us of work");
    let usage = store.usage();
    assert_eq!(usage.items, usage.class_usage.iter().map(|class| class.used).sum::<usize>());
}

#[test]
fn receive_memory_of_a_silent_client_is_freed_for_others() {
    // Memory for either value, but not quite for both.
    let server = builder().cores(1).receiving_limit(1_850_000).start("127.0.0.1:0", &store()).unwrap();
    let set = |length: usize| [format!("set a 0 0 {length}\r\n").into_bytes(), vec![b'x'; length], b"\r\n".to_vec()];
    let mut silent = Client::new(server.address());
    assert_eq!(silent.ask(&set(900_000).concat()), "STORED\r\n");
    let mut other = Client::new(server.address());
    assert_eq!(other.ask(&set(1_000_000).concat()), "STORED\r\n");
    assert_eq!(silent.ask(b"mn\r\n"), "MN\r\n");
    server.stop().unwrap();
}

#[test]
fn clients_that_read_no_answers_do_not_exhaust_the_send_memory() {
    // Memory for two of the answers; a third exceeds it.
    let server = builder().cores(1).sending_limit(2_000_000).start("127.0.0.1:0", &store()).unwrap();
    let length = 1_000_000;
    let mut honest = Client::new(server.address());
    let set = [format!("set big 0 0 {length}\r\n").into_bytes(), vec![b'x'; length], b"\r\n".to_vec()].concat();
    assert_eq!(honest.ask(&set), "STORED\r\n");
    let mut unread: Vec<Client> = (0..40).map(|_| Client::new(server.address())).collect();
    for client in &mut unread {
        // More than the kernel's buffers hold.
        client.send(&b"get big\r\n".repeat(30));
    }
    // The honest client reads its answers and continues; it has no timeout of its own.
    for _ in 0..20 {
        assert_eq!(honest.ask(b"mn\r\n"), "MN\r\n");
        // Two seconds in all, in which the server closes the others' connections.
        std::thread::sleep(Duration::from_millis(100));
    }
    // Each of them was closed early, or rejected: it has got an answer or two, not all.
    for mut client in unread {
        let mut answers = Vec::new();
        let _ = client.0.write_all(b"quit\r\n");
        let _ = client.0.read_to_end(&mut answers);
        assert!(answers.len() < 29 * length, "{}", answers.len());
    }
    assert_eq!(honest.ask(b"mn\r\n"), "MN\r\n");
    server.stop().unwrap();
}

#[test]
fn small_requests_are_answered_while_other_clients_read_nothing() {
    let server = builder().cores(1).sending_limit(2_000_000).start("127.0.0.1:0", &store()).unwrap();
    let address = server.address();
    let set = [&b"set big 0 0 1000000\r\n"[..], &[b'x'; 1_000_000], b"\r\nset a 0 0 1\r\nb\r\n"].concat();
    let (stored, _) = Client::new(address).exchange(&set);
    assert!(stored.starts_with(b"STORED\r\nSTORED\r\n"));
    let (mut answered, mut rejected) = (0, 0);
    let rounds = 3;
    for _ in 0..rounds {
        let unread: Vec<Client> = (0..10).map(|_| Client::new(address)).collect();
        for client in &unread {
            (&client.0).write_all(&b"get big\r\n".repeat(30)).unwrap();
        }
        // Until their connections are closed.
        let open = || server.counts().connections;
        until("their answers", || open() >= unread.len() as u64);
        while open() >= unread.len() as u64 {
            let first_line = |request: &[u8]| {
                let mut client = Client::new(address);
                client.send(request);
                let first = client.until_line();
                (client, first)
            };
            assert_eq!(first_line(b"get a\r\n").1, "VALUE a 0 1\r\n");
            answered += 1;
            // Some of its parts are never begun, and the next request is answered.
            let many = format!("get big{}\r\nget a\r\n", " a".repeat(50));
            let (mut client, first) = first_line(many.as_bytes());
            if first == "SERVER_ERROR out of memory writing get response\r\n" {
                assert_eq!(client.until(b"END\r\n"), b"VALUE a 0 1\r\nb\r\nEND\r\n");
                rejected += 1;
            }
        }
    }
    // Each round takes half a second, which would be each new connection's wait.
    assert!(answered > rounds * 5, "{answered} newcomers were answered");
    assert!(rejected > 0);
    until("memory", || {
        let (reply, _) = Client::new(address).exchange(b"get big\r\n");
        reply.starts_with(b"VALUE big 0 1000000\r\n")
    });
    server.stop().unwrap();
}

/// Sets a stop flag when the test ends, also after a panic.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Measures the time for ten requests that a client sends in small pieces.
fn time_bytewise_requests(client: &mut Client) -> Duration {
    let began = Instant::now();
    for _ in 0..10 {
        for piece in [&b"set"[..], b" p", b" 0", b" 0", b" 1", b"\r\n", b"x"] {
            client.send(piece);
            // Each piece arrives alone.
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(client.ask(b"\r\n"), "STORED\r\n");
    }
    began.elapsed()
}

#[test]
fn fragmented_requests_are_not_slowed_by_idle_clients() {
    let server = builder().cores(1).start("127.0.0.1:0", &store()).unwrap();
    let mut client = Client::new(server.address());
    let alone = time_bytewise_requests(&mut client);
    let is_over = AtomicBool::new(false);
    let beside = std::thread::scope(|scope| {
        let _end = StopOnDrop(&is_over);
        let address = server.address();
        for _ in 0..4 {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut flooder = Client::new(address);
                let mut answers = vec![0; 4 * 5_000];
                while !is_over.load(Ordering::Relaxed) {
                    flooder.send(&b"mn\r\n".repeat(5_000));
                    flooder.0.read_exact(&mut answers).unwrap();
                }
            });
        }
        // The flooding clients fill the core's queue, and no counter of the server shows when it is
        // full.
        std::thread::sleep(Duration::from_millis(300));
        time_bytewise_requests(&mut client)
    });
    assert!(beside < alone * 3, "{beside:?} beside them, {alone:?} alone");
    server.stop().unwrap();
}

#[test]
fn a_new_connection_with_a_fragmented_request_is_answered_beside_idle_clients() {
    let server = builder().cores(1).start("127.0.0.1:0", &store()).unwrap();
    let address = server.address();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = StopOnDrop(&is_over);
        for _ in 0..8 {
            let is_over = &is_over;
            scope.spawn(move || {
                let flooder = Client::new(address);
                flooder.0.set_nonblocking(true).unwrap();
                let (requests, mut answers) = (b"mn\r\n".repeat(5_000), vec![0; 1 << 16]);
                while !is_over.load(Ordering::Relaxed) {
                    let _ = (&flooder.0).write(&requests);
                    let _ = (&flooder.0).read(&mut answers);
                }
            });
        }
        // The flooding clients fill the core's queue, and no counter of the server shows when it is
        // full.
        std::thread::sleep(Duration::from_millis(300));
        // More pieces than the minimum quota of any connection.
        let request = format!("set {} 0 0 1\r\nx\r\n", "p".repeat(240));
        for _ in 0..3 {
            let mut client = Client::new(address);
            for piece in request.as_bytes().chunks(1) {
                client.send(piece);
                // Each piece arrives alone.
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(client.line(), "STORED\r\n");
        }
    });
    server.stop().unwrap();
}

/// A client of another protocol gets a message if it can understand it, and no part of its input is
/// executed.
#[test]
fn clients_of_other_protocols_are_turned_away() {
    let store = store();
    let server = serve(&store);
    for (name, bytes) in GREETINGS.iter().filter(|(name, _)| *name != "memcached's text protocol") {
        let mut client = Client::new(server.address());
        client.send(bytes);
        let reply = String::from_utf8(client.rest()).unwrap();
        // Like memcached, the port is silent to a browser; the binary protocol has no messages.
        let is_silent = name.starts_with("HTTP") || *name == "memcached's binary protocol";
        let expected = format!("CLIENT_ERROR this port speaks memcached's text protocol, not {name}\r\n");
        assert_eq!(reply, if is_silent { "" } else { &expected }, "{name}");
    }
    let mut client = Client::new(server.address());
    assert_eq!(client.ask(b"get smuggled\r\n"), "END\r\n");
    server.stop().unwrap();
}

/// Monitors find the fields that they read from memcached.
#[test]
fn statistics_contain_the_fields_that_monitors_read() {
    let server = serve(&store());
    let mut client = Client::new(server.address());
    client.send(b"stats\r\n");
    let text = String::from_utf8(client.until(b"END\r\n")).unwrap();
    for name in "rusage_user rusage_system rejected_connections max_connections accepting_conns listen_disabled_num \
        expired_unfetched evicted_unfetched hash_bytes curr_connections total_connections limit_maxbytes evictions"
        .split_ascii_whitespace()
    {
        assert!(text.contains(&format!("STAT {name} ")), "{name}: {text}");
    }
    assert_eq!(client.ask(b"stats sizes\r\n").lines().last(), Some("END"));
    server.stop().unwrap();
}
