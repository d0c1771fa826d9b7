//! Thousands of connections under overload: the server serves all, memory per connection is
//! bounded, and nothing remains of them at the end. The clients run in a separate process, so this
//! process holds only the server's memory.
//!
//! 500 connections run with the other tests; `cargo test --release -p leeward-rpc --test crowd --
//! --ignored ten_thousand` opens as many as the hard limit of descriptors allows, up to 10,000.

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

/// Task of the clients' process: the server's address, the number of clients, and the run time in
/// milliseconds.
const TASK: &str = "LEEWARD_CROWD";

/// Raises the soft limit to the hard limit. Returns the number of descriptors that a process may
/// have.
fn descriptors() -> usize {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    hard as usize
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn crowd(clients: usize, span: Duration) {
    let clients = clients.min(descriptors() - 200);
    let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    let params = breakwater.params(&[]).unwrap();
    let server = Server::builder().admission(&breakwater, params).objective(RTT, SLO).cores(2).idle(IdlePolicy::Block);
    // Each request sleeps: the capacity is some thousand per second, and the clients want several
    // times as much.
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
    let mut peak = 0;
    let ended = loop {
        peak = peak.max(resident());
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        // Sample the memory until the clients' process ends.
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(ended.success());
    is_settled(&server);
    let counts = server.counts();
    assert!(counts.received > clients as u64, "{counts:?}");
    assert_eq!(counts.without_credit, 0, "{counts:?}");
    // A decoder's first buffer is 16 KiB, and responses wait in another.
    let per_connection = peak.saturating_sub(before) / clients;
    println!("{clients} connections, {per_connection} bytes each; {counts:?}");
    assert!(per_connection < 64 * 1024, "{per_connection} bytes per connection");
    // The server reuses their memory: a second crowd of sessions finds the server as the first did.
    peer::is_well(&server);
    server.stop().unwrap();
}

#[test]
fn five_hundred_clients() {
    crowd(500, Duration::from_millis(500));
}

#[test]
#[ignore = "takes a while, and more descriptors than some systems give"]
fn ten_thousand() {
    crowd(10_000, Duration::from_secs(10));
}

/// Connections of a stuck core wait in the listener's queue, not at the server.
#[test]
fn connections_to_a_stuck_core_wait_in_the_listeners_queue() {
    const CROWD: usize = 600;
    assert!(descriptors() > 3 * CROWD, "more descriptors than this system gives");
    let (stuck, let_go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (is_stuck, is_let_go) = (Arc::clone(&stuck), Arc::clone(&let_go));
    let handler = move |_: &Request<'_>, _: &mut Vec<u8>| {
        // The core that does not accept.
        if std::thread::current().name() == Some("leeward-core-1") {
            is_stuck.store(true, Ordering::SeqCst);
            until("the core is let go", || is_let_go.load(Ordering::SeqCst));
        }
        Ok(())
    };
    let server = peer::builder("none", 2).start("127.0.0.1:0", handler).unwrap();
    let mut clients = [peer::Peer::registered(&server), peer::Peer::registered(&server)];
    let mut request = 0;
    until("the core is stuck", || {
        // Scheduling decides which core executes a request, so this takes several requests.
        request += 1;
        clients[1].send(&peer::call(request, b""));
        stuck.load(Ordering::SeqCst)
    });
    let crowd: Vec<TcpStream> = (0..CROWD).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    // Connections go to the cores in turn: the other core has about as many as wait for the stuck
    // one.
    eventually(&server, |server| server.counts().connections >= 200);
    // No event shows the end of accepting: within this time a server would accept all of them.
    std::thread::sleep(Duration::from_millis(300));
    let taken = server.counts().connections;
    assert!(taken < 300, "{taken} of {CROWD} taken, and as many for a core that is stuck");
    let_go.store(true, Ordering::SeqCst);
    eventually(&server, |server| server.counts().connections == CROWD as u64 + 2);
    drop((crowd, clients));
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
        let mut on_event = |_: Event<'_, ()>| *ended += 1;
        let now = clock.now();
        while let Ok(count) = self.stream.read(self.connection.spare()) {
            assert!(count > 0, "an honest client was sent away: {:?}", self.connection.error());
            self.connection.on_received(now, count, &mut on_event).unwrap();
        }
        self.connection.on_timer(now, &mut on_event);
        if ask && self.connection.waiting() + self.connection.in_flight() < 2 {
            self.submitted += 1;
            let request = Asked { method: Method(1), payload: b"x", priority: Priority::HIGHEST, random: 0 };
            self.connection.submit(now, (), &request, &mut on_event);
        }
        while !self.connection.output(now).is_empty() {
            match self.stream.write(self.connection.output(now)) {
                Ok(count) => self.connection.consume(now, count, &mut on_event),
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
    let fields: Vec<&str> = task.split(' ').collect();
    let (clients, span) = (fields[1].parse::<usize>().unwrap(), Duration::from_millis(fields[2].parse().unwrap()));
    descriptors();
    let clock = Clock::start();
    let registry = leeward_controllers::builtin();
    let algorithm = registry.find("breakwater").unwrap();
    let params = algorithm.params(&[]).unwrap();
    let environment = Environment::new(1, RTT, SLO);
    let mut all: Vec<CrowdClient> = (0..clients)
        .map(|_| {
            let stream = TcpStream::connect(fields[0]).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_nonblocking(true).unwrap();
            let parts = (algorithm.build_client)(&params, &environment).unwrap();
            let connection = Connection::new(parts, ConnectionConfig::default());
            CrowdClient { stream, connection, submitted: 0, ended: 0 }
        })
        .collect();
    let started = Instant::now();
    // At least some rounds of all, however slow this machine is.
    let mut rounds = 0;
    while started.elapsed() < span || rounds < 5 {
        all.iter_mut().for_each(|client| client.turn(&clock, true));
        rounds += 1;
    }
    let deadline = Instant::now() + Duration::from_secs(120);
    for client in &mut all {
        // Requests that wait for credit end by expiry; sent requests get a response.
        while client.ended < client.submitted {
            assert!(Instant::now() < deadline, "requests without an end");
            client.turn(&clock, false);
            // Wait for responses and timers.
            std::thread::sleep(Duration::from_micros(50));
        }
        assert_eq!(client.ended, client.submitted);
    }
}
