//! Every threading model gives the same responses.

use crate::fanout_service::{SETUPS, echo, leaves, start, threading};
use crate::pipelined_client::{CallResult, PipelinedClient};
use leeward_rpc::tier::{Links, Options};
use std::collections::BTreeSet;

/// Right response of `count` leaves.
fn right(count: u8, argument: &[u8]) -> CallResult {
    CallResult::Result([&[count], argument].concat())
}

fn serves(setup: &str, links: Links) {
    let servers = [echo(), echo()];
    let tier = start(Options::new(leaves(&servers).links(links), threading(setup)));
    assert_eq!(tier.switch().threading().to_string(), setup);
    let mut client = PipelinedClient::new(&tier);
    assert_eq!(client.ask(1, 1, b"one"), right(2, b"one"), "{setup}");
    assert_eq!(client.ask(2, 2, b"twice"), right(4, b"twice"), "{setup}: two gathers");
    assert_eq!(client.ask(3, 3, b""), CallResult::Failure("as asked".into()), "{setup}");
    assert_eq!(client.ask(4, 4, b""), CallResult::Failure("the handler has panicked".into()), "{setup}");
    assert_eq!(client.ask(5, 5, b"nobody"), right(0, b"nobody"), "{setup}");
    let CallResult::Result(some) = client.ask(6, 6, b"quorum") else { panic!("{setup}") };
    assert!(some[0] >= 1 && &some[1..] == b"quorum", "{setup}");
    // As many at once as a connection may have unanswered.
    let mut open: BTreeSet<u64> = (10..200).collect();
    for request in &open {
        client.call(*request, 1, &request.to_le_bytes());
    }
    client.send();
    while !open.is_empty() {
        let (request, result) = client.answer();
        assert!(open.remove(&request), "{setup}: {request} is answered twice");
        assert_eq!(result, right(2, &request.to_le_bytes()), "{setup}");
    }
    drop(client);
    let counts = tier.switch().counts();
    assert_eq!((counts.waiting, counts.system_errors), (0, 0), "{setup}");
    assert_eq!(tier.stop().unwrap().completed, 196, "{setup}");
    servers.into_iter().for_each(|server| _ = server.stop().unwrap());
}

#[test]
fn every_model_serves() {
    for setup in SETUPS {
        serves(setup, Links::Sharded);
    }
}

#[test]
fn response_threads_may_share_their_connections() {
    for setup in SETUPS.iter().filter(|setup| setup.starts_with('A')) {
        serves(setup, Links::Shared);
    }
}

#[test]
fn a_first_call_may_exceed_the_payload_limit_before_a_welcome() {
    for setup in ["SIP1", "SDB1-2", "AIB1-0-1", "ADB1-2-1", "CORE1"] {
        let servers = [echo(), echo()];
        let tier = start(Options::new(leaves(&servers), threading(setup)));
        let mut client = PipelinedClient::new(&tier);
        let argument = vec![7; 4_000];
        // Rejected until the leaves have sent their limits; that must not need a shorter call.
        let is_whole = |result: CallResult| matches!(result, CallResult::Result(result) if result[0] == 2);
        let mut request_ids = 1..;
        while !is_whole(client.ask(request_ids.next().unwrap(), 1, &argument)) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
