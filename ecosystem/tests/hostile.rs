//! Bad input over real sockets: nothing panics, nothing stays in flight, memory is bounded, and
//! honest requests are answered.
//!
//! Each test has a service of its own, and runs alone, because memory and panics are counted per
//! process.
//!
//! - `target`: the service, and the conditions that must hold afterwards. `vanish`: clients that
//!   disconnect. `flood`: too much of something.
//! - `http2`: streams and frames. This file: headers, the application's own functions, clocks, and
//!   sockets without stamps.

#[path = "hostile/flood.rs"]
mod flood;
#[path = "hostile/http2.rs"]
mod http2;
#[path = "hostile/target.rs"]
mod target;
#[path = "hostile/vanish.rs"]
mod vanish;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use leeward_testkit::allocator::CountingAllocator;
use leeward_tower::{Gate, Slo, Stamp, connection, ms, slo};
use std::convert::Infallible;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use target::{against, layer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tower::{Layer, service_fn};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Header lines, the number of malformed values in them, and the status of the response.
const LINES: &[(&[u8], u64, u16)] = &[
    // Invalid deadlines.
    (b"leeward: b=-1\r\n", 1, 200),
    (b"leeward: b=99999999999999999999\r\n", 1, 200),
    (b"leeward: b=\r\n", 1, 200),
    (b"leeward: b=NaN, b=1e9, b=0x10\r\n", 3, 200),
    (b"leeward: b=\xff\xfe\r\n", 1, 200),
    (b"grpc-timeout: -1S\r\n", 1, 200),
    (b"grpc-timeout: 1\r\n", 1, 200),
    (b"grpc-timeout: 123456789m\r\n", 1, 200),
    (b"grpc-timeout: \xb5\r\n", 1, 200),
    (b"x-envoy-expected-rq-timeout-ms: 1.5\r\nx-envoy-expected-rq-timeout-ms: inf\r\n", 2, 200),
    // Expired deadlines, alone and among later ones.
    (b"leeward: b=0\r\n", 0, 503),
    (b"grpc-timeout: 0n\r\n", 0, 503),
    (b"leeward: b=99999999\r\nleeward: b=0\r\nleeward: b=99999999\r\n", 0, 503),
    (b"grpc-timeout: 99999999H\r\nleeward: b=0, b=-1\r\n", 1, 503),
    // Deadlines far in the future.
    (b"grpc-timeout: 99999999H\r\n", 0, 200),
    (b"leeward: b=999999999999999999\r\n", 0, 200),
    // Priorities.
    (b"leeward: p=0\r\nleeward: p=129\r\nleeward: p=-1\r\nleeward: p=NaN\r\n", 4, 200),
    (b"leeward: p=128, p=1, p=64\r\n", 0, 200),
    // Attempts.
    (b"x-envoy-attempt-count: -1\r\ngrpc-previous-rpc-attempts: many\r\nleeward: a=\r\n", 3, 200),
    (b"x-envoy-attempt-count: 999999999999999999\r\n", 0, 200),
    // Invalid dictionaries, and unknown members.
    (b"leeward: ,,=,==,;\r\nleeward:\r\nleeward: \"\r\n", 0, 200),
    (b"leeward: id=\xff, d=NaN, c=-1, w=1e400\r\n", 0, 200),
    // Headers that the application reads: costs, classes and tenants.
    (b"x-cost: NaN\r\nx-class: 255\r\nx-tenant:\r\n", 0, 200),
    (b"x-cost: -inf\r\nx-class: 256\r\nx-tenant: \xff\r\n", 0, 200),
    (b"x-cost: 1e308\r\nx-class: -1\r\nx-tenant: a\r\nx-tenant: b\r\n", 0, 200),
];

#[test]
fn malformed_headers_are_ignored_and_counted() {
    against(layer(), async |target| {
        for (lines, malformed, status) in LINES {
            let (before, shown) = (target.counts(), String::from_utf8_lossy(lines));
            let answer = target.get_response("/", lines).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{shown}{answer}");
            assert_eq!(answer.contains("leeward-reason: deadline"), *status == 503, "{shown}{answer}");
            let after = target.counts();
            assert_eq!(
                (after.malformed - before.malformed, after.arrived - before.arrived),
                (*malformed, 1),
                "{shown}"
            );
        }
    });
}

#[test]
fn large_and_repeated_headers_are_read_up_to_the_servers_limit() {
    against(layer(), async |target| {
        let long = |name: &str, length: usize| format!("{name}: {}\r\n", "1".repeat(length));
        let cases = [
            (long("leeward", 300_000), 1),
            (long("grpc-timeout", 300_000), 1),
            (long("x-tenant", 300_000), 0),
            ("leeward: p=129\r\n".repeat(90), 90),
            // A value may have at most 64 members.
            (format!("leeward: {}b=9\r\n", "p=0,".repeat(63)), 63),
        ];
        for (lines, malformed) in cases {
            let before = target.counts().malformed;
            let answer = target.get_response("/", &lines).await;
            // The last member leaves 9 us, which the server may or may not meet.
            let is_soon = lines.contains("b=9\r\n");
            assert!(answer.starts_with("HTTP/1.1 200") || is_soon && answer.starts_with("HTTP/1.1 503"), "{answer}");
            assert_eq!(target.counts().malformed - before, malformed, "{lines:.60}");
        }
        let arrived = target.counts().arrived;
        for lines in [long("leeward", 1 << 20), long("x-tenant", 1 << 20), "leeward: p=1\r\n".repeat(1_000)] {
            let answer = target.get_response("/", &lines).await;
            // The response may be lost, because the client was still sending.
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
        }
        assert_eq!(target.counts().arrived, arrived, "hyper takes none of them");
    });
}

/// Application functions that panic: the request is served without a description.
#[test]
fn a_panicking_description_is_ignored() {
    against(layer(), async |target| {
        for round in 1..=20 {
            assert!(target.get_response("/", "x-panics: yes\r\n").await.ends_with("hello"));
            assert_eq!(target.counts().malformed, round);
        }
    });
    let exempts = slo(ms(30_000)).exempt(|request| {
        assert!(!request.headers.contains_key("x-panics"), "as asked");
        false
    });
    against(exempts, async |target| {
        assert!(target.get_response("/", "x-panics: yes\r\n").await.ends_with("hello"));
        assert_eq!(target.counts().arrived, 1, "it is not exempt");
    });
}

#[test]
fn a_zero_objective_becomes_1_ms_and_the_longest_is_an_hour() {
    assert!(Gate::builder(Duration::ZERO).build().is_err());
    for (configured, objective) in [(Duration::ZERO, ms(1)), (Duration::MAX, ms(3_600_000))] {
        against(slo(configured), async |target| {
            assert_eq!(target.layer.gate().slo(), objective);
            for _ in 0..100 {
                target.check_honest_client().await;
            }
        });
    }
}

/// Sends one request over `near` to a service behind `layer` on `far`, received at `received`;
/// returns the response.
async fn over<S>(layer: &Slo, (mut near, far): (S, S), received: Option<SystemTime>) -> String
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let hello = |_: http::Request<Incoming>| async {
        Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from("hello"))))
    };
    let stamp = Stamp::default();
    if let Some(received) = received {
        stamp.record(received);
    }
    let service = TowerToHyperService::new(connection(layer.layer(service_fn(hello)), stamp));
    let server = tokio::spawn(async move {
        let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(far), service).await;
    });
    near.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    near.read_to_string(&mut answer).await.unwrap();
    server.await.unwrap();
    answer
}

/// Stamps come from the wall clock, which may be changed: stamps in the future, or more than a
/// minute old, make no request late.
#[test]
fn clock_changes_make_no_request_late() {
    against(layer(), async |target| {
        let (now, hour) = (SystemTime::now(), Duration::from_secs(3_600));
        let set = [now + hour, now - hour, now + hour * 1_000_000, UNIX_EPOCH, UNIX_EPOCH - hour];
        for received in set {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let near = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (far, _) = listener.accept().await.unwrap();
            let answer = over(&target.layer, (near, far), Some(received)).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{received:?}: {answer}");
        }
        assert_eq!(target.counts().completed, set.len() as u64);
        // A plausible stamp is used.
        let (near, far) = tokio::net::UnixStream::pair().unwrap();
        let late = over(&target.layer, (near, far), Some(now - Duration::from_secs(45))).await;
        assert!(late.contains("leeward-reason: late"), "{late}");
    });
}

#[test]
fn sockets_without_timestamps_are_served() {
    against(layer(), async |target| {
        for _ in 0..20 {
            let (near, far) = tokio::net::UnixStream::pair().unwrap();
            let answer = over(&target.layer, (near, far), None).await;
            assert!(answer.ends_with("hello"), "{answer}");
        }
        assert_eq!(target.counts().completed, 20);
    });
}
