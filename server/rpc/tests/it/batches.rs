//! Many connections at once, with several sockets per system call and with one: every response
//! reaches its caller, at any length.

use crate::serve::Serve;
use leeward_core::units::Nanos;
use leeward_rpc::client::Client;
use leeward_rpc::server::{HandlerError, IoUring, Request, Server};
use leeward_rpc::wire::Method;
use leeward_runtime::IdlePolicy;
use std::time::Duration;

const CONNECTIONS: usize = 24;
const ROUNDS: usize = 6;
/// Around the bytes that one call moves for one socket, and far from it.
const LENGTHS: [usize; 6] = [0, 7, 16 * 1024 - 64, 16 * 1024, 50_000, 400_000];

fn echo(request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), HandlerError> {
    reply.extend_from_slice(request.payload);
    Ok(())
}

#[test]
fn each_caller_gets_its_own_answer_with_and_without_io_uring() {
    let executor = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    for (io_uring, cores) in [(IoUring::Auto, 1), (IoUring::Off, 1), (IoUring::Auto, 2)] {
        let server = Server::builder().io_uring(io_uring).cores(cores).idle(IdlePolicy::Block);
        let server = server.serve(echo).unwrap();
        let limit = Nanos::from_secs(60);
        let client =
            Client::builder().connection_wait(limit).timeout(limit).connections(CONNECTIONS).queue(4096).seed(1);
        let client = client.replica(server.address().to_string()).build().unwrap();
        let tasks: Vec<_> = (0..2 * CONNECTIONS)
            .map(|task| {
                let client = client.clone();
                executor.spawn(async move {
                    for round in 0..ROUNDS {
                        let length = LENGTHS[(task + round) % LENGTHS.len()];
                        let argument: Vec<u8> = (0..length).map(|at| (at * 31 + task * 7 + round) as u8).collect();
                        let answer = client.call(Method(1), argument.clone()).await.unwrap();
                        assert!(answer.payload == argument, "{task} {round} {length}");
                    }
                })
            })
            .collect();
        for task in tasks {
            executor.block_on(task).unwrap();
        }
        drop(client);
        let counts = server.stop().unwrap();
        assert_eq!(counts.completed, (2 * CONNECTIONS * ROUNDS) as u64);
        assert_eq!(counts.connections, 0);
    }
    executor.shutdown_timeout(Duration::from_secs(1));
}
