//! Tests that a request of the example `http` allocates nothing besides its handler. A counting
//! allocator observes the single core's thread; the handler reads the count there.

#[path = "../examples/http/protocol.rs"]
mod protocol;

use leeward_runtime::IdlePolicy;
use leeward_testkit::allocator::{CountingAllocator, allocations};
use protocol::Http;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn a_request_allocates_nothing() {
    let (last, most) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
    let maximum = Arc::clone(&most);
    let handler = move |query: &str| {
        let (now, number) = (allocations(), query[2..].parse::<u32>().unwrap());
        let before = last.swap(now, Ordering::Relaxed);
        // Buffers have reached their sizes by now.
        if number > 100 {
            maximum.fetch_max(now - before, Ordering::Relaxed);
        }
        String::new()
    };
    let server = Http::default().idle(IdlePolicy::Block).start("127.0.0.1:0", "/hello", handler).unwrap();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    for number in 0..300 {
        let request = format!("GET http://a/hello?n={number:06} HTTP/1.1\r\nhost: a\r\nconnection: keep-alive\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let (mut received, mut piece) = (Vec::new(), [0; 1024]);
        while !received.ends_with(b"\r\n\r\n") {
            let count = stream.read(&mut piece).unwrap();
            assert!(count > 0, "the connection ends");
            received.extend_from_slice(&piece[..count]);
        }
        assert!(received.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&received));
    }
    assert_eq!((server.stop().unwrap().completed, most.load(Ordering::Relaxed)), (300, 0));
}
