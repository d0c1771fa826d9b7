//! Misbehaving leaves: they accept and send nothing, send nonsense, or stop in the middle. No
//! request waits longer than its timeout, the response contains the other leaf's part, and the tier
//! calls a recovered leaf again.

use crate::fanout_service::{echo, leaves, server, start, threading};
use crate::pipelined_client::{CallResult, PipelinedClient};
use leeward_core::units::Nanos;
use leeward_rpc::tier::{Leaves, Options};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const MODELS: [&str; 3] = ["SDB1-2", "ADB1-1-1", "CORE1"];
const TIMEOUT: Nanos = Nanos::from_millis(100);

/// Misbehaviour of a listener that is no leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeafMisbehavior {
    /// Accepts connections and never sends anything, like a stopped process.
    Mute,
    /// Responds to any input with bytes of another protocol.
    Nonsense,
    /// Responds with a whole frame that is invalid here, and closes the connection.
    WrongFrame,
}

/// Listens at an address with this misbehaviour until the flag is set.
pub(crate) fn impostor(
    at: &str,
    misbehavior: LeafMisbehavior,
) -> (SocketAddr, Arc<AtomicBool>, thread::JoinHandle<()>) {
    let listener = TcpListener::bind(at).unwrap();
    let (address, ends) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
    listener.set_nonblocking(true).unwrap();
    let is_ended = Arc::clone(&ends);
    let run = move || {
        let mut kept = Vec::new();
        while !is_ended.load(Ordering::SeqCst) {
            let Ok((mut socket, _)) = listener.accept() else {
                // A blocking `accept` would not see the end.
                thread::sleep(Duration::from_millis(1));
                continue;
            };
            socket.set_nonblocking(false).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            match misbehavior {
                LeafMisbehavior::Mute => {}
                LeafMisbehavior::Nonsense => {
                    let _ = socket.read(&mut [0; 64]);
                    let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
                }
                LeafMisbehavior::WrongFrame => {
                    let _ = socket.read(&mut [0; 64]);
                    let mut frame = [0; 64];
                    frame[..4].copy_from_slice(b"LW\x02\x04");
                    let _ = socket.write_all(&frame);
                    continue;
                }
            }
            kept.push(socket);
        }
    };
    (address, ends, thread::spawn(run))
}

fn answered(result: &CallResult) -> u8 {
    let CallResult::Result(bytes) = result else { panic!("{result:?}") };
    bytes[0]
}

#[test]
fn a_misbehaving_leaf_costs_its_part_and_at_most_the_timeout() {
    for (index, misbehavior) in
        [LeafMisbehavior::Mute, LeafMisbehavior::Nonsense, LeafMisbehavior::WrongFrame].into_iter().enumerate()
    {
        let setup = MODELS[index % MODELS.len()];
        for setup in [setup, MODELS[(index + 1) % MODELS.len()]] {
            let well = echo();
            let (address, ends, thread) = impostor("127.0.0.1:0", misbehavior);
            let backoff = Nanos::from_millis(1);
            let leaves = Leaves::resolve([well.address().to_string(), address.to_string()]).unwrap();
            let leaves = leaves.backoff(backoff, backoff).timeout(TIMEOUT);
            let tier = start(Options::new(leaves, threading(setup)));
            let mut client = PipelinedClient::new(&tier);
            while answered(&client.ask(1, 1, b"until the link is up")) == 0 {}
            for request in 2..8 {
                let started = Instant::now();
                assert_eq!(answered(&client.ask(request, 1, b"one of two")), 1, "{setup} {misbehavior:?}");
                // Ten times its timeout: the machine may be busy.
                assert!(started.elapsed() < Duration::from_nanos(TIMEOUT.0 * 10), "{setup} {misbehavior:?}");
            }
            tier.stop().unwrap();
            ends.store(true, Ordering::SeqCst);
            thread.join().unwrap();
            well.stop().unwrap();
        }
    }
}

#[test]
fn a_recovered_leaf_is_called_within_two_seconds() {
    for setup in MODELS {
        let (well, other) = (echo(), echo());
        let address = other.address().to_string();
        let servers = [well, other];
        // The default backoff of a tier.
        let leaves = leaves(&servers).backoff(Nanos::from_millis(10), Nanos::from_secs(1)).timeout(TIMEOUT);
        let tier = start(Options::new(leaves, threading(setup)));
        let mut client = PipelinedClient::new(&tier);
        while answered(&client.ask(1, 1, b"both")) < 2 {}
        let [well, other] = servers;
        other.stop().unwrap();
        for request in 2..40 {
            assert!(answered(&client.ask(request, 1, b"at least one")) >= 1, "{setup}");
        }
        // The tier keeps trying the unreachable leaf, and waits longer each time.
        thread::sleep(Duration::from_millis(500));
        let back = server();
        let back = back.start(&address, |request: &leeward_rpc::server::Request<'_>, reply: &mut Vec<u8>| {
            reply.extend_from_slice(request.payload);
            Ok(())
        });
        let back = back.unwrap();
        let started = Instant::now();
        while answered(&client.ask(40, 1, b"both again")) < 2 {
            assert!(started.elapsed() < Duration::from_secs(2), "{setup}");
            // Wait for the next connection attempt.
            thread::sleep(Duration::from_millis(5));
        }
        tier.stop().unwrap();
        well.stop().unwrap();
        back.stop().unwrap();
    }
}
