//! Thousands of connections under overload: all are served, memory per connection is bounded, and when they have gone
//! nothing is left of them. The clients live in a process of their own, so that what this one holds is the server's.
//!
//! 500 connections run with the other tests; `cargo test --release -p leeward-rpc --test crowd -- --ignored
//! ten_thousand` opens as many as the hard limit of descriptors allows, up to 10,000.

#[path = "it/peer.rs"]
mod peer;
#[path = "it/serve.rs"]
mod serve;

use leeward_core::registry::Environment;
use leeward_core::units::{Nanos, Priority};
use leeward_rpc::client::{Connection, ConnectionConfig, Event, Request as Asked};
use leeward_rpc::server::{Request, Server};
use leeward_rpc::wire::Method;
use leeward_runtime::{Clock, IdlePolicy};
use leeward_testkit::wait::until;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use peer::{eventually, is_settled};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const RTT: Nanos = Nanos::from_micros(100);
const SLO: Nanos = Nanos::from_millis(5);

/// Where the clients' process finds the server, how many clients it is, and for how many milliseconds they ask.
const TASK: &str = "LEEWARD_CROWD";

/// Raises the soft limit to the hard one; descriptors that one process may have.
fn descriptors() -> usize {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    hard as usize
}

/// Bytes of memory that this process holds.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn crowd(clients: usize, span: Duration) {
    let clients = clients.min(descriptors() - 200);
    let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    let params = breakwater.params(&[]).unwrap();
    let server = Server::builder().admission(&breakwater, params).objective(RTT, SLO).cores(2).idle(IdlePolicy::Block);
    // Asleep for each request: a capacity of some thousand per second, of which the clients want several times as much.
    let server = server
        .start("127.0.0.1:0", |request: &Request<'_>, reply: &mut Vec<u8>| {
            std::thread::sleep(Duration::from_micros(200));
            peer::echo(request, reply)
        })
        .unwrap();
    peer::is_well(&server);
    let before = resident();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "clients", "--nocapture"])
        .env(TASK, format!("{} {clients} {}", server.address(), span.as_millis()))
        .spawn()
        .unwrap();
    eventually(&server, |server| server.counts().connections == clients as u64);
    let mut most = 0;
    let ended = loop {
        most = most.max(resident());
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        // The memory is sampled until the clients' process ends.
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(ended.success());
    is_settled(&server);
    let counts = server.counts();
    assert!(counts.received > clients as u64, "{counts:?}");
    assert_eq!(counts.without_credit, 0, "{counts:?}");
    // A decoder's first buffer is 16 KiB, and answers wait in another.
    let each = most.saturating_sub(before) / clients;
    println!("{clients} connections, {each} bytes each; {counts:?}");
    assert!(each < 64 * 1024, "{each} bytes per connection");
    // What they held is used again: a second crowd of sessions finds the server as the first did.
    peer::is_well(&server);
    server.stop().unwrap();
}

#[test]
fn five_hundred() {
    crowd(500, Duration::from_millis(500));
}

#[test]
#[ignore = "takes a while, and more descriptors than some systems give"]
fn ten_thousand() {
    crowd(10_000, Duration::from_secs(10));
}

/// Connections of a core that takes no messages wait in the listener's queue, not at the server.
#[test]
fn a_crowd_for_a_core_that_is_stuck() {
    const CROWD: usize = 600;
    assert!(descriptors() > 3 * CROWD, "more descriptors than this system gives");
    let (stuck, let_go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (begun, end) = (Arc::clone(&stuck), Arc::clone(&let_go));
    let handler = move |_: &Request<'_>, _: &mut Vec<u8>| {
        // The other core than the one that accepts.
        if std::thread::current().name() == Some("leeward-core-1") {
            begun.store(true, Ordering::SeqCst);
            until("the core is let go", || end.load(Ordering::SeqCst));
        }
        Ok(())
    };
    let server = peer::builder("none", 2).start("127.0.0.1:0", handler).unwrap();
    let mut asking = [peer::Peer::registered(&server), peer::Peer::registered(&server)];
    let mut request = 0;
    until("the core is stuck", || {
        // Whose turn it is decides which core executes it, so that takes some.
        request += 1;
        asking[1].send(&peer::call(request, b""));
        stuck.load(Ordering::SeqCst)
    });
    let crowd: Vec<TcpStream> = (0..CROWD).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    // Dealt out in turn, so the core that is not stuck has about as many as wait for the other.
    eventually(&server, |server| server.counts().connections >= 200);
    // No event tells that no more are taken: within this time a server would take all of them.
    std::thread::sleep(Duration::from_millis(300));
    let taken = server.counts().connections;
    assert!(taken < 300, "{taken} of {CROWD} taken, and as many for a core that is stuck");
    let_go.store(true, Ordering::SeqCst);
    eventually(&server, |server| server.counts().connections == CROWD as u64 + 2);
    drop((crowd, asking));
    is_settled(&server);
}

struct CrowdClient {
    stream: TcpStream,
    connection: Connection<()>,
    submitted: u64,
    ended: u64,
}

impl CrowdClient {
    fn turn(&mut self, clock: &Clock, ask: bool) {
        let ended = &mut self.ended;
        let mut note = |_: Event<'_, ()>| *ended += 1;
        let now = clock.now();
        while let Ok(count) = self.stream.read(self.connection.spare()) {
            assert!(count > 0, "an honest client was sent away: {:?}", self.connection.error());
            self.connection.on_received(now, count, &mut note).unwrap();
        }
        self.connection.on_timer(now, &mut note);
        if ask && self.connection.waiting() + self.connection.in_flight() < 2 {
            self.submitted += 1;
            let request = Asked { method: Method(1), payload: b"x", priority: Priority::HIGHEST, random: 0 };
            self.connection.submit(now, (), &request, &mut note);
        }
        while !self.connection.output(now).is_empty() {
            match self.stream.write(self.connection.output(now)) {
                Ok(count) => self.connection.consume(now, count, &mut note),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("an honest client was cut off: {error}"),
            }
        }
    }
}

#[test]
#[ignore = "the clients' process of the other tests"]
fn clients() {
    let Ok(task) = std::env::var(TASK) else { return };
    let words: Vec<&str> = task.split(' ').collect();
    let (clients, span) = (words[1].parse::<usize>().unwrap(), Duration::from_millis(words[2].parse().unwrap()));
    descriptors();
    let clock = Clock::start();
    let registry = leeward_controllers::builtin();
    let algorithm = registry.find("breakwater").unwrap();
    let params = algorithm.params(&[]).unwrap();
    let environment = Environment::new(1, RTT, SLO);
    let mut all: Vec<CrowdClient> = (0..clients)
        .map(|_| {
            let stream = TcpStream::connect(words[0]).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_nonblocking(true).unwrap();
            let parts = (algorithm.build_client)(&params, &environment).unwrap();
            let connection = Connection::new(parts, ConnectionConfig::default());
            CrowdClient { stream, connection, submitted: 0, ended: 0 }
        })
        .collect();
    let began = Instant::now();
    // At least some turns of all, however slow this machine is.
    let mut turns = 0;
    while began.elapsed() < span || turns < 5 {
        all.iter_mut().for_each(|one| one.turn(&clock, true));
        turns += 1;
    }
    let patience = Instant::now() + Duration::from_secs(120);
    for one in &mut all {
        // What waits for a credit ends when its patience does; what was sent is answered.
        while one.ended < one.submitted {
            assert!(Instant::now() < patience, "requests without an end");
            one.turn(&clock, false);
            // Answers arrive and timers run out.
            std::thread::sleep(Duration::from_micros(50));
        }
        assert_eq!(one.ended, one.submitted);
    }
}
