//! Floods: tenants, bytes of a body, connections that never finish a head. The memory for them must
//! be bounded.

use super::target::{Target, against, layer};
use leeward_testkit::allocator::{peak_bytes, reset_peak_bytes};
use leeward_testkit::wait::until;
use std::fmt::Write;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const TENANTS: usize = 10_000;

/// Bytes that the program has allocated now.
fn allocated() -> usize {
    reset_peak_bytes();
    peak_bytes()
}

/// Sends `TENANTS` requests of as many tenants over one connection; all are answered.
async fn tenants(target: &Target, round: usize) {
    const BATCH: usize = 100;
    let mut stream = target.connect().await;
    for first in (0..TENANTS).step_by(BATCH) {
        let mut requests = String::new();
        for tenant in first..first + BATCH {
            let name = round * TENANTS + tenant;
            let _ =
                write!(requests, "GET / HTTP/1.1\r\nhost: a\r\nx-tenant: made-up-{name}\r\nx-cost: {tenant}\r\n\r\n");
        }
        stream.write_all(requests.as_bytes()).await.unwrap();
        let mut answers = Vec::new();
        while answers.windows(5).filter(|bytes| bytes == b"hello").count() < BATCH {
            assert!(stream.read_buf(&mut answers).await.unwrap() > 0, "{}", String::from_utf8_lossy(&answers));
        }
    }
}

#[test]
fn new_tenants_do_not_grow_memory() {
    const ROUNDS: usize = 3;
    // Less than eight bytes per tenant.
    const BOUND: usize = TENANTS * ROUNDS * 4;
    against(layer(), async |target| {
        // The first round fills all tables with a fixed number of slots for tenants.
        tenants(target, 0).await;
        target.wait_until_idle();
        let before = allocated();
        for round in 1..=ROUNDS {
            tenants(target, round).await;
            target.check_honest_client().await;
        }
        assert_eq!(target.counts().rejections(), 0, "nobody had to wait");
        // The server closes connections shortly after their clients.
        until("memory of the tenants", || allocated() < before + BOUND);
        let names = std::hint::black_box(vec![0u64; TENANTS * ROUNDS]);
        assert!(allocated() > before + BOUND, "a number for each would be seen");
        drop(names);
    });
}

/// A client that sends a body until the server stops reading: the request is rejected, or its
/// handler has a limit.
#[test]
fn an_endless_body_is_not_buffered() {
    const MOST: usize = 16 << 20;
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x1_0000));
    against(layer(), async |target| {
        for (lines, status) in [("leeward: b=0\r\n", "503"), ("", "413")] {
            let before = allocated();
            let mut stream = target.connect().await;
            let head = format!("POST /body HTTP/1.1\r\nhost: a\r\n{lines}transfer-encoding: chunked\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut sent = 0;
            while stream.write_all(chunk.as_bytes()).await.is_ok() {
                sent += chunk.len();
                assert!(sent < 1 << 30, "{status}: the server reads a gigabyte");
            }
            let grown = peak_bytes().saturating_sub(before);
            assert!(grown < MOST, "{status}: {grown} bytes");
        }
        let counts = target.counts();
        assert_eq!((counts.arrived, counts.rejections()), (2, 1), "{counts:?}");
    });
}

#[test]
fn incomplete_heads_do_not_count_as_requests() {
    // This process has both ends of each connection, and may have 1,000 files open.
    const CLIENTS: usize = 300;
    const EACH: usize = 64 << 10;
    against(layer(), async |target| {
        let before = allocated();
        let mut streams = Vec::new();
        for _ in 0..CLIENTS {
            let mut stream = target.connect().await;
            stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx-slow: ").await.unwrap();
            streams.push(stream);
        }
        for _ in 0..3 {
            for stream in &mut streams {
                stream.write_all(b"z").await.unwrap();
            }
            target.check_honest_client().await;
        }
        assert_eq!(target.counts().arrived, 3, "only the honest ones");
        let grown = peak_bytes().saturating_sub(before);
        assert!(grown < CLIENTS * EACH, "{grown} bytes for {CLIENTS} connections");
        // Clients that finish their heads are served.
        for stream in &mut streams {
            stream.write_all(b"\r\n\r\n").await.unwrap();
        }
        until("all of them", || target.counts().completed == 3 + CLIENTS as u64);
    });
}
