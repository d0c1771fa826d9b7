//! Cores that come and go, over real sockets: under any allocator, each request has one outcome,
//! none is lost on a parked core, and a server can stop at any time. No test asserts a time; time
//! limits are long, and only turn a hang into a failure.

use crate::peer::{Peer, allocated, builder, call, encode, eventually, is_settled, is_well};
use crate::serve::Serve;
use leeward_allocation::registry;
use leeward_core::params::RawParam;
use leeward_core::units::Nanos;
use leeward_rpc::server::{AsyncHandler, HandlerError, OwnedRequest, Request, Server, ServerError};
use leeward_runtime::IdlePolicy;
use leeward_runtime::tasks::yield_now;
use leeward_runtime::timers::sleep;
use std::io::Write;
use std::time::Duration;

/// Policies that a real server can follow, with parameters that make them change often.
const POLICIES: [(&str, &[(&str, &str)]); 6] = [
    ("delay", &[("threshold", "1us"), ("search", "20us")]),
    ("delay-range", &[]),
    ("buffer", &[]),
    ("utilization", &[]),
    ("per-request", &[("search", "0ns")]),
    ("static", &[("cores", "2")]),
];
const IDLES: [IdlePolicy; 3] = [IdlePolicy::Spin, IdlePolicy::Adaptive(Nanos::from_micros(50)), IdlePolicy::Block];

/// Keeps the core busy for as many microseconds as the argument has bytes, and returns that time.
fn work(request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), HandlerError> {
    let until = std::time::Instant::now() + Duration::from_micros(request.payload.len() as u64);
    while std::time::Instant::now() < until {
        std::hint::spin_loop();
    }
    reply.extend_from_slice(request.payload);
    Ok(())
}

/// Grants of the allocator so far.
fn grants(server: &Server) -> u64 {
    server.core_usage().unwrap().grants
}

/// Sends bursts of calls on all connections at once, with pauses; every call gets a response.
fn bursts(server: &Server, rounds: u64) -> u64 {
    let mut peers: Vec<Peer> = (0..6).map(|_| Peer::registered(server)).collect();
    let per_peer = 4;
    for round in 0..rounds {
        for peer in &mut peers {
            let calls: Vec<u8> =
                (0..per_peer).flat_map(|n| encode(&call(1 + round * per_peer + n, &[0; 100]))).collect();
            peer.stream.write_all(&calls).unwrap();
        }
        for peer in &mut peers {
            for _ in 0..per_peer {
                let answer = peer.answer().unwrap();
                assert!(answer.starts_with("Response"), "{answer}");
            }
        }
        if round % 4 == 0 {
            // The allocator parks idle cores.
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    rounds * per_peer * peers.len() as u64
}

/// Three of four cores are parked, so the server is idle for longer than its first core alone can
/// be.
#[test]
fn parked_cores_count_as_idle() {
    let server = allocated(builder("none", 4).idle(IdlePolicy::Block), "delay", &[]).serve(work).unwrap();
    let parked = || server.core_usage().unwrap().parked.iter().map(|span| span.0).sum::<u64>();
    eventually(&server, |server| parked() > 2 * server.statistics().uptime_ns);
    let least = parked();
    assert!(server.statistics().idle_ns >= least);
    server.stop().unwrap();
}

#[test]
fn every_policy_serves_every_connection() {
    for (policy, params) in POLICIES {
        for idle in IDLES {
            let server = allocated(builder("none", 4).idle(idle), policy, params).serve(work).unwrap();
            let sent = bursts(&server, 40);
            let usage = server.core_usage().unwrap();
            assert!(usage.cores >= 1 && usage.cores <= 4 && usage.parks <= usage.grants, "{policy}: {usage:?}");
            assert_eq!(usage.parked[0], Nanos::ZERO, "the first core stays");
            assert!(policy != "static" || (usage.cores, usage.grants, usage.parks) == (2, 1, 0), "{usage:?}");
            let counts = server.stop().unwrap();
            assert_eq!((counts.received, counts.completed, counts.rejected), (sent, sent, 0), "{policy}");
        }
    }
}

#[test]
fn cores_are_granted_under_load_and_revoked_without_it() {
    for idle in IDLES {
        let policy = [("threshold", "1us"), ("search", "100us")];
        let server = allocated(builder("breakwater", 3).idle(idle), "delay", &policy).serve(work).unwrap();
        let mut peers: Vec<Peer> = (0..6).map(|_| Peer::registered(&server)).collect();
        let mut request = 0;
        // As many rounds as it takes until a request had to wait.
        while grants(&server) == 0 {
            request += 1;
            for peer in &mut peers {
                while !peer.may_call() {
                    peer.receive().unwrap();
                }
                peer.send(&call(request, &[0; 2_000]));
            }
            for peer in &mut peers {
                peer.answer().unwrap();
            }
        }
        eventually(&server, |server| {
            let usage = server.core_usage().unwrap();
            usage.cores == 1 && usage.grants == usage.parks
        });
        // The remaining core serves all connections, including those of parked cores.
        for peer in &mut peers {
            assert!(peer.ask(request + 1, b"still there").starts_with("Response"));
        }
        drop(peers);
        is_settled(&server);
        is_well(&server);
        server.stop().unwrap();
    }
}

#[test]
fn a_server_with_parked_cores_stops_cleanly() {
    for stopped_after_ms in [0, 1, 5, 20] {
        let server = allocated(builder("none", 4), "per-request", &[("search", "0ns")]).serve(work).unwrap();
        let mut peers: Vec<Peer> = (0..8).map(|_| Peer::registered(&server)).collect();
        for peer in &mut peers {
            let calls: Vec<u8> = (1..=8).flat_map(|n| encode(&call(n, &[0; 300]))).collect();
            peer.stream.write_all(&calls).unwrap();
        }
        // The stop meets the cores in a different state each time.
        std::thread::sleep(Duration::from_millis(stopped_after_ms));
        let counts = server.stop().unwrap();
        assert_eq!(counts.connections, 0);
        assert_eq!(counts.received, counts.completed + counts.rejected + counts.abandoned, "{counts:?}");
        assert_eq!(counts.abandoned, 0, "{counts:?}");
        // Each received call has a response, and then the stream ends.
        let mut answers = 0;
        for peer in &mut peers {
            while let Some(answer) = peer.answer() {
                answers += u64::from(answer.starts_with("Response") || answer.starts_with("Drop"));
            }
        }
        assert_eq!(answers, counts.received, "{counts:?}");
    }
}

/// Sleeps, yields and responds: timers of cores that may have been parked wake its tasks.
struct SleepyHandler;

impl AsyncHandler for SleepyHandler {
    async fn call(&self, request: OwnedRequest) -> Result<Vec<u8>, HandlerError> {
        sleep(Nanos::from_micros(request.payload.len() as u64)).await;
        yield_now().await;
        sleep(Nanos::from_micros(50)).await;
        Ok(request.payload)
    }
}

#[test]
fn tasks_continue_when_their_core_is_revoked() {
    for (policy, params) in POLICIES {
        let server = allocated(builder("none", 3), policy, params).serve_async(SleepyHandler).unwrap();
        let sent = bursts(&server, 30);
        let counts = server.stop().unwrap();
        assert_eq!((counts.received, counts.completed), (sent, sent), "{policy}");
    }
}

#[test]
fn the_first_core_alone_serves_short_connections() {
    let server = allocated(builder("breakwater", 4), "delay", &[("threshold", "1s")]);
    let server = server.serve(work).unwrap();
    for round in 0..50 {
        let mut peer = Peer::registered(&server);
        assert!(peer.ask(1, b"hello").starts_with("Response"), "{round}");
    }
    is_settled(&server);
    let usage = server.core_usage().unwrap();
    assert_eq!((usage.cores, usage.grants), (1, 0));
    assert!(usage.mean_cores() < 1.001, "{usage:?}");
    server.stop().unwrap();
}

#[test]
fn simulator_only_policies_and_parameters_are_rejected() {
    let result = allocated(builder("none", 2), "ideal", &[]).serve(work);
    assert!(matches!(result, Err(ServerError::Params(_))));
    let policy = registry::find("delay").unwrap();
    assert!(policy.params(&[("min", RawParam::Integer(1))]).is_err());
    assert!(
        builder("none", 2).serve(work).unwrap().core_usage().is_none()
            || std::env::var_os("LEEWARD_TEST_ALLOCATOR").is_some()
    );
}
