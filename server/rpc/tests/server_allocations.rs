//! Allocations of a request on its server: none with a plain handler, only the task with an
//! asynchronous one. A counting allocator watches the core's thread, and the handler reads the
//! counter.

#[path = "it/raw_client.rs"]
mod raw_client;

use leeward_rpc::server::{Builder, OwnedRequest, Request, Server};
use leeward_runtime::IdlePolicy;
use leeward_runtime::tasks::yield_now;
use leeward_testkit::allocator::{CountingAllocator, allocations};
use raw_client::RawClient;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn so_far() -> [u8; 8] {
    allocations().to_le_bytes()
}

fn builder() -> Builder {
    Server::builder().idle(IdlePolicy::Block)
}

/// Maximum number of allocations on the core between two consecutive requests after the warm-up,
/// from the replies of `server`.
fn per_request(server: &Server) -> u64 {
    let mut peer = RawClient::registered(server);
    let mut counts = Vec::new();
    for request in 1..=300 {
        peer.call(request, 1, &[b"8 bytes."]);
        let answer = peer.answer().unwrap();
        let bytes = answer.split("payload: [").nth(1).unwrap().split(']').next().unwrap();
        let bytes: Vec<u8> = bytes.split(", ").map(|byte| byte.parse().unwrap()).collect();
        counts.push(u64::from_le_bytes(bytes.try_into().unwrap()));
    }
    counts.windows(2).skip(100).map(|pair| pair[1] - pair[0]).max().unwrap()
}

#[test]
fn a_plain_request_allocates_nothing() {
    let plain = |_: &Request<'_>, reply: &mut Vec<u8>| {
        reply.extend_from_slice(&so_far());
        Ok(())
    };
    let server = builder().start("127.0.0.1:0", plain).unwrap();
    assert_eq!(per_request(&server), 0);
    server.stop().unwrap();
}

#[test]
fn an_asynchronous_request_allocates_its_task() {
    let reusing = |mut request: OwnedRequest| async move {
        yield_now().await;
        request.payload.copy_from_slice(&so_far());
        Ok(request.payload)
    };
    let server = builder().start_async("127.0.0.1:0", reusing).unwrap();
    assert_eq!(per_request(&server), 1);
    server.stop().unwrap();
}

/// Checks that the counter counts.
#[test]
fn an_allocation_is_counted() {
    let wasteful = |_: &Request<'_>, reply: &mut Vec<u8>| {
        std::hint::black_box(vec![1]);
        reply.extend_from_slice(&so_far());
        Ok(())
    };
    let server = builder().start("127.0.0.1:0", wasteful).unwrap();
    assert_eq!(per_request(&server), 1);
    server.stop().unwrap();
}
