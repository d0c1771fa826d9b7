//! A connection keeps its order: a controller sees a session's requests and their demand in the
//! order of sending. Cores steal work from each other meanwhile, and responses leave in any order.

use crate::peer::{Peer, is_settled};
use crate::serve::Serve;
use leeward_core::params::Params;
use leeward_pair::order::{CALLS, ORDER_OBSERVER, check, frames};
use leeward_rpc::server::{Request, Server};
use leeward_runtime::IdlePolicy;
use std::io::Write;
use std::time::Duration;

#[test]
fn nothing_overtakes_within_a_connection() {
    const PEERS: usize = 4;
    let server = Server::builder()
        .admission(&ORDER_OBSERVER, Params::default())
        .cores(3)
        .idle(IdlePolicy::Block)
        .serve(|request: &Request<'_>, _: &mut Vec<u8>| {
            // Uneven, so that cores run dry at different times and steal.
            std::thread::sleep(Duration::from_micros(u64::from(request.payload[0]) * 4));
            Ok(())
        })
        .unwrap();
    std::thread::scope(|scope| {
        for seed in 1..=PEERS as u64 {
            let server = &server;
            scope.spawn(move || {
                let mut peer = Peer::registered(server);
                let all: Vec<u8> = frames(seed).flatten().collect();
                let mut writer = peer.stream.try_clone().unwrap();
                scope.spawn(move || {
                    let mut random = seed;
                    let mut rest = &all[..];
                    while !rest.is_empty() {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let count = ((random >> 33) as usize % 900 + 1).min(rest.len());
                        writer.write_all(&rest[..count]).unwrap();
                        rest = &rest[count..];
                    }
                });
                for _ in 0..CALLS {
                    assert!(peer.answer().unwrap().starts_with("Response"));
                }
            });
        }
    });
    is_settled(&server);
    check(PEERS);
}
