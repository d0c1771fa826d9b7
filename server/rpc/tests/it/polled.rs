//! A mid-tier over real sockets: a server whose cores poll the client of its handlers.

use crate::serve::Serve;
use leeward_core::units::Nanos;
use leeward_rpc::client::{Builder as ClientBuilder, CallError, Client};
use leeward_rpc::server::{HandlerError, OwnedRequest, Request, Server};
use leeward_rpc::wire::Method;
use leeward_runtime::IdlePolicy;
use std::sync::Arc;

const IDLES: [IdlePolicy; 3] = [IdlePolicy::Spin, IdlePolicy::Adaptive(Nanos::from_micros(20)), IdlePolicy::Block];

fn client(server: &Server) -> ClientBuilder {
    let none = leeward_controllers::builtin().find("none").unwrap().clone();
    Client::builder()
        .replica(server.address().to_string())
        .admission(&none, none.params(&[]).unwrap())
        .timeout(Nanos::from_secs(20))
        .expiry(Nanos::from_secs(20))
}

/// A leaf that reverses its argument.
fn leaf() -> Server {
    let handler = |request: &Request<'_>, reply: &mut Vec<u8>| {
        reply.extend(request.payload.iter().rev());
        Ok::<(), HandlerError>(())
    };
    Server::builder().idle(IdlePolicy::Block).serve(handler).unwrap()
}

#[test]
fn responses_arrive_through_the_polling_cores() {
    for idle in IDLES {
        let leaf = leaf();
        let (leaf_client, polled) = client(&leaf).build_polled().unwrap();
        let leaf_client = Arc::new(leaf_client);
        let middle = move |request: OwnedRequest| {
            let leaf_client = Arc::clone(&leaf_client);
            async move {
                let answer = leaf_client.call(request.method, request.payload).await;
                answer
                    .map(|response| response.payload.to_vec())
                    .map_err(|error| HandlerError::Message(error.to_string()))
            }
        };
        let builder = Server::builder().idle(idle).cores(2).poll_also(1, polled);
        let middle = builder.serve_async(middle).unwrap();
        let caller_client = client(&middle).build().unwrap();
        std::thread::scope(|scope| {
            for caller in 0..4u8 {
                let caller_client = &caller_client;
                scope.spawn(move || {
                    for round in 0..100u8 {
                        let answer = caller_client.call_blocking(Method(3), [caller, round, 7]).unwrap();
                        assert_eq!(&answer.payload[..], [7, round, caller], "{idle:?}");
                    }
                });
            }
        });
        drop(caller_client);
        assert_eq!(middle.stop().unwrap().completed, 400);
        assert_eq!(leaf.stop().unwrap().completed, 400);
    }
}

#[test]
fn calls_end_when_the_polling_server_stops() {
    let leaf = leaf();
    let (leaf_client, polled) = client(&leaf).build_polled().unwrap();
    let echo = |request: OwnedRequest| async move { Ok(request.payload) };
    let builder = Server::builder().idle(IdlePolicy::Block).poll_also(0, polled);
    let middle = builder.serve_async(echo).unwrap();
    assert_eq!(&leaf_client.call_blocking(Method(0), [1, 2]).unwrap().payload[..], [2, 1]);
    middle.stop().unwrap();
    assert!(matches!(leaf_client.call_blocking(Method(0), [1]), Err(CallError::ShutDown { .. })));
    leaf.stop().unwrap();
}

#[test]
fn a_server_that_never_starts_ends_the_calls() {
    let leaf = leaf();
    let (leaf_client, polled) = client(&leaf).build_polled().unwrap();
    let call = leaf_client.call(Method(0), [1]);
    drop(Server::builder().poll_also(0, polled));
    assert!(matches!(pollster::block_on(call), Err(CallError::ShutDown { .. })));
    leaf.stop().unwrap();
}
