//! Sessions over datagrams and real sockets: both ends meet, oversized payloads, a faulty network,
//! restarts of either end, and foreign datagrams. No test asserts a time.

use crate::relay::Relay;
use crate::serve::Serve;
use leeward_core::params::Params;
use leeward_core::units::Nanos;
use leeward_rpc::client::{CallError, CallOptions, Client, DatagramSize, Effect};
use leeward_rpc::server::{HandlerError, Request, Server};
use leeward_rpc::wire::Method;
use leeward_runtime::IdlePolicy;
use leeward_testkit::greetings::GREETINGS;
use leeward_testkit::wait::until;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ECHO: Method = Method(1);
const LONG: Method = Method(4);
const SLOW: Method = Method(5);
const LOST: Nanos = Nanos::from_secs(30);

/// Executions per argument.
type Executed = Arc<Mutex<HashMap<Vec<u8>, u32>>>;

fn serve_at(address: &str, cores: usize, admission: &str, executed: &Executed) -> Server {
    let registry = leeward_controllers::builtin();
    let algorithm = registry.find(admission).unwrap();
    let executed = Arc::clone(executed);
    Server::builder()
        .admission(algorithm, Params::default())
        .objective(Nanos::from_micros(10), Nanos::from_secs(30))
        .idle(IdlePolicy::Block)
        .cores(cores)
        .udp(address)
        .serve(move |request: &Request<'_>, reply: &mut Vec<u8>| {
            *executed.lock().unwrap().entry(request.payload.to_vec()).or_default() += 1;
            match request.method {
                LONG => reply.resize(5_000, 7),
                // Longer than a client waits before it retransmits.
                SLOW => std::thread::sleep(Duration::from_millis(60)),
                _ => reply.extend_from_slice(request.payload),
            }
            Ok::<_, HandlerError>(())
        })
        .unwrap()
}

fn serve(cores: usize, admission: &str) -> (Server, Executed) {
    let executed = Executed::default();
    (serve_at("127.0.0.1:0", cores, admission, &executed), executed)
}

fn client(admission: &str, address: impl ToString, connections: usize) -> Client {
    let registry = leeward_controllers::builtin();
    let builder = Client::builder().admission(registry.find(admission).unwrap(), Params::default());
    let builder =
        builder.objective(Nanos::from_micros(10), LOST).connection_wait(LOST).timeout(LOST).retries(0, 0).seed(1);
    builder.connections(connections).udp(address.to_string()).build().unwrap()
}

fn udp_address(server: &Server) -> std::net::SocketAddr {
    server.datagram_address().unwrap()
}

/// Calls from several threads at once, each with its own argument. Returns the number of correct
/// responses.
fn ask_many(client: &Client, threads: usize, calls: usize) -> usize {
    std::thread::scope(|scope| {
        let callers = (0..threads).map(|thread| {
            scope.spawn(move || {
                let argument = |call: usize| format!("{thread} {call}").into_bytes();
                let right = |call: &usize| {
                    let answer = client.call_blocking(ECHO, argument(*call));
                    answer.is_ok_and(|answer| answer.payload == argument(*call))
                };
                (0..calls).filter(right).count()
            })
        });
        let callers: Vec<_> = callers.collect();
        callers.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

#[test]
fn calls_are_answered_under_every_controller() {
    for algorithm in leeward_controllers::builtin().algorithms() {
        let (server, executed) = serve(2, algorithm.name);
        let client = client(algorithm.name, udp_address(&server), 3);
        // Some controllers reject calls if other tests keep the machine busy.
        let answered = ask_many(&client, 4, 200) as u64;
        assert!(answered > 0, "{}", algorithm.name);
        drop(client);
        assert!(executed.lock().unwrap().values().all(|times| *times == 1));
        let counts = server.stop().unwrap();
        assert_eq!(counts.completed, answered, "{}", algorithm.name);
        assert_eq!(counts.received, counts.completed + counts.rejected, "{}", algorithm.name);
    }
}

#[test]
fn every_call_ends_once_over_a_network_with_faults() {
    for admission in ["none", "breakwater"] {
        let (server, executed) = serve(2, admission);
        let relay = Relay::to(udp_address(&server), 5);
        let client = client(admission, relay.address, 3);
        assert_eq!(ask_many(&client, 8, 300), 2_400);
        assert!(executed.lock().unwrap().values().all(|times| *times == 1), "executed twice");
        until("loss is counted", || {
            let statistics = server.statistics();
            statistics.duplicates > 0 && statistics.retransmitted > 0
        });
        drop(client);
        assert_eq!(server.stop().unwrap().completed, 2_400);
    }
}

#[test]
fn too_long_calls_and_responses_fail_with_an_error() {
    let (server, _) = serve(1, "none");
    let client = client("none", udp_address(&server), 1);
    let failed = client.call_blocking(LONG, b"").unwrap_err();
    assert!(matches!(failed, CallError::ResponseTooLarge), "{failed:?}");
    let failed = client.call_blocking(ECHO, [0; 1_297]).unwrap_err();
    assert!(matches!(failed, CallError::TooLarge { .. }), "{failed:?}");
    assert_eq!(client.call_blocking(ECHO, [1; 1_296]).unwrap().payload, [1; 1_296]);
    server.stop().unwrap();
}

fn builder(server: &Server) -> leeward_rpc::client::Builder {
    let builder = Client::builder().objective(Nanos::from_micros(10), LOST).connection_wait(LOST).timeout(LOST).seed(1);
    builder.udp(udp_address(server).to_string())
}

/// A fallback carries oversized payloads, and nothing else.
#[test]
fn a_fallback_carries_oversized_payloads() {
    let (server, executed) = serve(1, "none");
    let client = builder(&server).fallback(server.address().to_string()).build().unwrap();
    for round in 0..20_u8 {
        // The first calls are made before any connection is up.
        let long = client.call_blocking(ECHO, [round; 3_000]).unwrap();
        assert_eq!((long.payload, long.replica), (vec![round; 3_000], 1));
        let short = client.call_blocking(ECHO, [round; 30]).unwrap();
        assert_eq!((short.payload, short.replica), (vec![round; 30], 0));
    }
    let long = client.call_blocking_with(LONG, b"", CallOptions::new().over_tcp()).unwrap();
    assert_eq!((long.payload, long.replica), (vec![7; 5_000], 1));
    assert!(executed.lock().unwrap().values().all(|times| *times == 1));
    server.stop().unwrap();
}

/// If datagrams do not arrive, all calls go over the fallback.
#[test]
fn a_fallback_carries_all_calls_when_datagrams_are_lost() {
    let (server, _) = serve(1, "breakwater");
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap().to_string();
    let client = Client::builder().connection_wait(LOST).timeout(LOST).seed(1).udp(silent);
    let client = client.fallback(server.address().to_string()).build().unwrap();
    for _ in 0..20 {
        assert_eq!(client.call_blocking(ECHO, b"hello").unwrap().replica, 1);
    }
    server.stop().unwrap();
}

/// The smaller size of both ends holds, in both directions.
#[test]
fn the_smaller_datagram_size_of_both_ends_applies() {
    for (server_size, client_size) in [(8_972, 8_972), (8_972, 1_200), (1_200, 8_972)] {
        let size = |bytes| DatagramSize::new(bytes).unwrap();
        let server = Server::builder().datagram_size(size(server_size)).idle(IdlePolicy::Block).udp("127.0.0.1:0");
        let server = server.serve(|request: &Request<'_>, reply: &mut Vec<u8>| {
            reply.resize(u16::from_le_bytes([request.payload[0], request.payload[1]]).into(), 7);
            Ok::<_, HandlerError>(())
        });
        let server = server.unwrap();
        let client = builder(&server).datagram_size(size(client_size)).build().unwrap();
        let fits = size(server_size.min(client_size)).payload();
        let asks = |length: usize, answer: usize| {
            let mut argument = vec![0; length];
            argument[..2].copy_from_slice(&(answer as u16).to_le_bytes());
            client.call_blocking(ECHO, argument).map(|answer| answer.payload.len())
        };
        assert_eq!(asks(fits, 2), Ok(2), "{server_size} {client_size}");
        assert_eq!(asks(2, fits), Ok(fits), "{server_size} {client_size}");
        assert!(matches!(asks(fits + 1, 2), Err(CallError::TooLarge { .. })), "{server_size} {client_size}");
        assert_eq!(asks(2, fits + 1), Err(CallError::ResponseTooLarge), "{server_size} {client_size}");
        drop(client);
        server.stop().unwrap();
    }
}

#[test]
fn a_call_that_takes_long_is_executed_once() {
    let (server, executed) = serve(1, "none");
    let client = client("none", udp_address(&server), 1);
    for _ in 0..3 {
        client.call_blocking(ECHO, b"quick").unwrap();
    }
    client.call_blocking(SLOW, b"slow").unwrap();
    assert_eq!(executed.lock().unwrap()[&b"slow"[..]], 1);
    until("it was asked for again meanwhile", || server.statistics().duplicates > 0);
    server.stop().unwrap();
}

#[test]
fn a_server_restart_ends_calls_truthfully_and_the_client_reconnects() {
    let executed = Executed::default();
    let server = serve_at("127.0.0.1:0", 1, "none", &executed);
    let address = udp_address(&server);
    let client = client("none", address, 1);
    assert_eq!(ask_many(&client, 2, 20), 40);
    server.stop().unwrap();
    executed.lock().unwrap().clear();
    let server = serve_at(&address.to_string(), 1, "none", &executed);
    let mut ends = Vec::new();
    // Some calls fail with the old server; then the new one responds.
    for call in 0..2_000 {
        let argument = format!("again {call}").into_bytes();
        match client.call_blocking(ECHO, argument.clone()) {
            Ok(answer) => {
                assert_eq!(answer.payload, argument);
                ends.push(true);
            }
            Err(CallError::Disconnected { effect, .. }) => {
                let times = executed.lock().unwrap().get(&argument).copied().unwrap_or(0);
                assert!(effect != Effect::Excluded || times == 0, "{effect:?}, and executed {times} times");
                ends.push(false);
            }
            Err(other) => panic!("{other:?}"),
        }
        if ends.iter().filter(|end| **end).count() > 20 {
            break;
        }
    }
    assert!(ends.iter().filter(|end| **end).count() > 20, "{ends:?}");
    assert!(executed.lock().unwrap().values().all(|times| *times == 1));
    server.stop().unwrap();
}

#[test]
fn a_closed_client_frees_its_session() {
    let (server, _) = serve(1, "breakwater");
    for _ in 0..20 {
        let client = client("breakwater", udp_address(&server), 1);
        client.call_blocking(ECHO, b"hello").unwrap();
    }
    until("no session is left", || server.counts().connections == 0);
    assert_eq!(server.gauges().credits_issued, Some(0));
    server.stop().unwrap();
}

/// Replies to unvalidated clients are never longer than their datagrams, and valid calls continue.
#[test]
fn replies_to_unvalidated_clients_are_never_longer_than_their_datagrams() {
    let (server, _) = serve(1, "breakwater");
    let client = client("breakwater", udp_address(&server), 1);
    client.call_blocking(ECHO, b"hello").unwrap();
    let foreign = UdpSocket::bind("127.0.0.1:0").unwrap();
    foreign.set_nonblocking(true).unwrap();
    let (mut sent, mut received) = (0, 0);
    for number in 0_u32..20_000 {
        let mut bytes = vec![0; 40 + (number % 100) as usize];
        bytes[..4].copy_from_slice(&[b'L', b'U', 1, (number % 12) as u8]);
        bytes[16..20].copy_from_slice(&number.to_le_bytes());
        sent += foreign.send_to(&bytes, udp_address(&server)).unwrap_or(0);
        if number % 100 == 0 {
            assert_eq!(client.call_blocking(ECHO, b"hello").unwrap().payload, b"hello");
        }
        while let Ok(count) = foreign.recv(&mut bytes) {
            received += count;
        }
    }
    assert!(received <= sent, "{received} bytes for {sent}");
    assert_eq!(server.counts().connections, 1);
    server.stop().unwrap();
}

/// The server ignores datagrams of other protocols' clients, and executes nothing of theirs.
#[test]
fn datagrams_of_other_protocols_are_ignored() {
    let (server, executed) = serve(1, "breakwater");
    for (name, bytes) in GREETINGS.into_iter().filter(|(name, _)| *name != "Leeward's protocol over UDP") {
        let foreign = UdpSocket::bind("127.0.0.1:0").unwrap();
        foreign.send_to(bytes, udp_address(&server)).unwrap();
        // The server handles this call after the foreign datagram.
        let client = client("breakwater", udp_address(&server), 1);
        client.call_blocking(ECHO, b"hello").unwrap();
        foreign.set_nonblocking(true).unwrap();
        let received = foreign.recv(&mut [0; 2048]).map_err(|error| error.kind());
        assert_eq!(received, Err(ErrorKind::WouldBlock), "{name}");
    }
    assert_eq!(executed.lock().unwrap().len(), 1);
    server.stop().unwrap();
}
