//! Credits bind: a client that sends without is refused, then read more and more rarely, then sent away, and costs the
//! others nothing; one that keeps to its windows never notices. Real sockets; the rule itself is tested in the library.

mod peer;

use leeward_control::params::Raw;
use leeward_control::registry::{Environment, Registry};
use leeward_control::units::{Nanos, Priority, Time};
use leeward_rpc::client::{Connection, ConnectionConfig, Event, Phase, Request as Asked};
use leeward_rpc::server::{Request, Server};
use leeward_rpc::wire::Method;
use leeward_runtime::{Clock, Idle};
use peer::{Peer, builder, bytes, call, echo, eventually, is_settled, register, start};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const RTT: Nanos = Nanos::from_millis(1);
/// Short enough that the pool stays small beside what a cheater sends.
const SLO: Nanos = Nanos::from_millis(20);

/// A client of this crate on a real socket, driven by turns.
struct Honest {
    stream: TcpStream,
    connection: Connection<u64>,
    submitted: u64,
    ended: u64,
    completed: u64,
    random: u64,
}

impl Honest {
    fn connect(server: &Server, pairs: &[(&str, Raw)], seed: u64) -> Honest {
        let registry = Registry::builtin();
        let algorithm = registry.find("breakwater").unwrap();
        let environment = Environment::new(1, RTT, SLO);
        let parts = (algorithm.build_client)(&algorithm.params(pairs).unwrap(), &environment).unwrap();
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
        let connection = Connection::new(parts, ConnectionConfig::default());
        Honest { stream, connection, submitted: 0, ended: 0, completed: 0, random: seed | 1 }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % below
    }

    fn submit(&mut self, now: Time) {
        self.submitted += 1;
        let request = Asked { method: Method(1), payload: b"x", priority: Priority::HIGHEST, random: 0 };
        let ended = &mut self.ended;
        self.connection.submit(now, self.submitted, &request, &mut |_| *ended += 1);
    }

    /// Sends and receives what is possible now.
    fn turn(&mut self, now: Time) {
        let (ended, completed) = (&mut self.ended, &mut self.completed);
        let mut note = |event: Event<'_, u64>| {
            *ended += 1;
            *completed += u64::from(matches!(event, Event::Completed { .. }));
        };
        self.connection.on_timer(now, &mut note);
        loop {
            let output = self.connection.output(now);
            if output.is_empty() {
                break;
            }
            match self.stream.write(output) {
                Ok(count) => self.connection.consumed(now, count, &mut note),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("an honest client was cut off: {error}"),
            }
        }
        while let Ok(count) = self.stream.read(self.connection.spare()) {
            assert!(count > 0 || self.connection.phase() == Phase::Draining, "an honest client was sent away");
            if count == 0 {
                break;
            }
            self.connection.received(now, count, &mut note).unwrap();
        }
    }
}

#[test]
fn honest_clients_are_never_refused() {
    for demand in ["speculation", "synchronization"] {
        let pairs = [("demand", Raw::Text(demand.into()))];
        let algorithm = Registry::builtin().find("breakwater").unwrap().clone();
        // So that windows swing: an objective that a busy machine misses now and then, and a pool that grows fast.
        let mut params = pairs.to_vec();
        params.push(("alpha", Raw::Number(1.0)));
        params.push(("beta", Raw::Number(0.5)));
        let params = algorithm.params(&params).unwrap();
        let (rtt, slo) = (Nanos::from_micros(100), Nanos::from_millis(1));
        let handler = |request: &Request<'_>, reply: &mut Vec<u8>| {
            let until = std::time::Instant::now() + Duration::from_micros(30);
            while std::time::Instant::now() < until {}
            echo(request, reply)
        };
        let server = Server::builder().admission(&algorithm, params).objective(rtt, slo).cores(2).idle(Idle::Block);
        let server = server.start("127.0.0.1:0", handler).unwrap();
        let clock = Clock::start();
        let mut clients: Vec<Honest> = (1..=20).map(|seed| Honest::connect(&server, &pairs, seed * 7919)).collect();
        // Bursts and pauses at random, and clients that come and go.
        for round in 0..3_000_u64 {
            for (index, client) in clients.iter_mut().enumerate() {
                let now = clock.now();
                if client.draw(4) == 0 {
                    for _ in 0..client.draw(12) {
                        client.submit(now);
                    }
                }
                if client.draw(3) > 0 {
                    client.turn(now);
                }
                if client.draw(2_000) == 0 {
                    let seed = round * 104_729 + index as u64;
                    *client = Honest::connect(&server, &pairs, seed);
                }
            }
        }
        // What is under way has its end.
        for client in &mut clients {
            for _ in 0..100_000 {
                client.turn(clock.now());
                if client.ended == client.submitted {
                    break;
                }
                std::thread::sleep(Duration::from_micros(100));
            }
            assert_eq!(client.ended, client.submitted);
        }
        assert!(clients.iter().map(|client| client.completed).sum::<u64>() > 100);
        drop(clients);
        is_settled(&server);
        let counts = server.counts();
        assert_eq!(counts.without_credit, 0, "{counts:?}");
        server.stop().unwrap();
    }
}

/// Sends as if it had a window of `outstanding`, until it is sent away. What it was told last.
fn cheat(server: &Server, outstanding: u64, going_on: &AtomicBool) -> Option<String> {
    let mut peer = Peer::connect(server);
    peer.say(&register());
    let mut next = 0;
    let mut ask = |peer: &mut Peer| {
        next += 1;
        // Once it has been sent away, writing fails; what it was told can still be read.
        let _ = peer.stream.write_all(&bytes(&call(next, b"")));
    };
    for _ in 0..outstanding {
        ask(&mut peer);
    }
    let mut last = None;
    while going_on.load(Ordering::SeqCst) {
        let Some(heard) = peer.hear() else { break };
        if heard.starts_with("Response") || heard.starts_with("Drop") {
            ask(&mut peer);
        }
        last = Some(heard);
    }
    last
}

#[test]
fn a_cheater_is_refused_then_slowed_then_sent_away() {
    let server = start("breakwater", 1);
    let last = cheat(&server, 100, &AtomicBool::new(true)).unwrap();
    assert!(last.starts_with("Error") && last.contains("Unexpected") && last.contains("without credit"), "{last}");
    is_settled(&server);
    let counts = server.counts();
    assert!(counts.without_credit > 0 && counts.without_credit <= counts.dropped, "{counts:?}");
    // What it had no credit for did not get as far as the controller, and at most one window of the rest at a time.
    assert!(counts.completed > 0, "{counts:?}");
    peer::is_well(&server);
}

#[test]
fn a_paused_client_is_not_read() {
    // The pool as it is where cores stay: where they come and go, an unused one grows until a window of sixty is lawful, and
    // each answer to one of those calls makes more of the burst lawful.
    let algorithm = Registry::builtin().find("breakwater").unwrap().clone();
    let params = algorithm.params(&[("allocator_aware", Raw::Switch(false))]).unwrap();
    let server = builder("breakwater", 1).admission(&algorithm, params).start("127.0.0.1:0", echo).unwrap();
    let mut peer = Peer::connect(&server);
    peer.say(&register());
    let burst: Vec<u8> = (1..=2_000).flat_map(|request| bytes(&call(request, b""))).collect();
    let mut writer = peer.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        let _ = writer.write_all(&burst);
    });
    eventually(&server, |server| server.counts().without_credit >= 65);
    // Its pause began inside what had been read already, and the rest of that waits too. Each pause lets one call
    // through and becomes longer, so that of two thousand nearly none is ever looked at.
    let heard: Vec<String> = std::iter::from_fn(|| peer.hear()).collect();
    assert!(heard.last().unwrap().starts_with("Error"), "{:?}", heard.last());
    is_settled(&server);
    assert!(server.counts().received < 200, "{:?}", server.counts());
    sending.join().unwrap();
}

/// Clients that ask one thing at a time and think in between; how many answers they get while `span` lasts.
fn goodput(server: &Server, span: Duration) -> u64 {
    let going_on = AtomicBool::new(true);
    let answered = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut peer = Peer::registered(server);
                let mut request = 0;
                while going_on.load(Ordering::SeqCst) {
                    request += 1;
                    if peer.ask(request, b"").starts_with("Response") {
                        answered.fetch_add(1, Ordering::SeqCst);
                    }
                    std::thread::sleep(Duration::from_millis(6));
                }
            });
        }
        std::thread::sleep(span);
        going_on.store(false, Ordering::SeqCst);
    });
    answered.into_inner()
}

#[test]
fn a_cheater_costs_honest_clients_nothing() {
    // A core whose capacity does not depend on what else this machine does: it sleeps for each request. The clients need
    // about half of it, and a cheater's 200 unanswered calls, if they were admitted, would make each wait for 200 ms.
    let algorithm = Registry::builtin().find("breakwater").unwrap().clone();
    let params = algorithm.params(&[]).unwrap();
    let server = Server::builder().admission(&algorithm, params).objective(RTT, SLO).idle(Idle::Block);
    let server = server
        .start("127.0.0.1:0", |_: &Request<'_>, _: &mut Vec<u8>| {
            std::thread::sleep(Duration::from_millis(1));
            Ok(())
        })
        .unwrap();
    // This machine may be busy with something else just now: a defect would be there each time. On a single CPU the cheater's
    // own work takes its share of what the clients have.
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let asked = if cpus > 1 { 0.8 } else { 0.5 };
    let mut seen: Vec<(u64, u64)> = Vec::new();
    let costs_nothing = (0..6).any(|_| {
        let (alone, beside) = alone_and_beside_a_cheater(&server);
        seen.push((alone, beside));
        beside as f64 >= asked * alone as f64
    });
    assert!(costs_nothing, "answers without and beside a cheater: {seen:?}");
    is_settled(&server);
}

/// Answers that honest clients get without a cheater, then beside one.
fn alone_and_beside_a_cheater(server: &Server) -> (u64, u64) {
    let span = Duration::from_millis(500);
    let alone = goodput(server, span);
    let before = server.counts();
    let going_on = AtomicBool::new(true);
    let beside = std::thread::scope(|scope| {
        scope.spawn(|| {
            // It comes back each time that it is sent away.
            while going_on.load(Ordering::SeqCst) {
                cheat(server, 200, &going_on);
            }
        });
        // Whatever comes of it, the cheater ends.
        let goodput = catch_unwind(AssertUnwindSafe(|| goodput(server, span)));
        going_on.store(false, Ordering::SeqCst);
        goodput.unwrap_or_default()
    });
    let counts = server.counts();
    assert!(counts.without_credit - before.without_credit > 50, "{counts:?}");
    (alone, beside)
}

#[test]
fn without_credits_the_bound_on_unanswered_calls_remains() {
    let may_begin: &AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let server = builder("none", 1)
        .start("127.0.0.1:0", move |_: &Request<'_>, _: &mut Vec<u8>| {
            while !may_begin.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        })
        .unwrap();
    let mut peer = Peer::connect(&server);
    // One read brings more than a connection may have unanswered: a long call makes the server's buffer grow first.
    peer.say(&register());
    let mut burst = bytes(&call(1, &[0; 200_000]));
    burst.extend((2..=2_000).flat_map(|request| bytes(&call(request, b""))));
    let mut writer = peer.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || writer.write_all(&burst).unwrap());
    eventually(&server, |server| server.counts().received > 0);
    std::thread::sleep(Duration::from_millis(100));
    assert!(server.counts().received <= 256, "{:?}", server.counts());
    may_begin.store(true, Ordering::SeqCst);
    assert!(peer.hear().unwrap().starts_with("Welcome"));
    for _ in 0..2_000 {
        assert!(peer.hear().unwrap().starts_with("Response"));
    }
    sending.join().unwrap();
    assert_eq!(server.counts().without_credit, 0);
}
