//! Frames of one connection stay in order: a controller sees a session's requests and demands in
//! the client's order. Connections overtake each other, and answers leave in any order.

use crate::support::{PairExt, fragmenting_wire, register, relaxed_slo};
use leeward_core::params::Params;
use leeward_core::units::Nanos;
use leeward_pair::order::{CALLS, ORDER_OBSERVER, check, frames};
use leeward_pair::{Pair, PairConfig, Work};

#[test]
fn nothing_overtakes_within_a_connection() {
    const PEERS: usize = 4;
    let config = PairConfig { wire: fragmenting_wire(), workers: 3, ..PairConfig::default() };
    // Uneven service times, so that answers leave in any order.
    let handler = |payload: &[u8], _: &mut _| Work::Result(Nanos(u64::from(payload[0]) * 4_000), Vec::new());
    let mut pair = Pair::new(&ORDER_OBSERVER, &Params::default(), relaxed_slo(), config, Box::new(handler)).unwrap();
    let peers: Vec<_> = (1..=PEERS as u64)
        .map(|seed| {
            let peer = pair.connect_raw();
            pair.send_frame(peer, &register());
            frames(seed).for_each(|frame| pair.send_bytes(peer, &frame));
            peer
        })
        .collect();
    for peer in peers {
        assert!(pair.receive(peer).unwrap().starts_with("Welcome"));
        let mut requests = Vec::new();
        for _ in 0..CALLS {
            let answer = pair.receive_answer(peer).unwrap();
            assert!(answer.starts_with("Response"));
            let number = answer.split("RequestId(").nth(1).unwrap().split(')').next().unwrap();
            requests.push(number.parse::<u32>().unwrap());
        }
        assert!(!requests.is_sorted(), "answers left in the order of the calls: the test tests nothing");
        pair.close(peer);
    }
    pair.assert_settled();
    check(PEERS);
}
