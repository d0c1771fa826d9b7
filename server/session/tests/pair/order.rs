//! Within one connection nothing overtakes: a controller sees a session's requests, and the demand that each tells, in
//! the order in which the client sent them, although connections overtake each other and answers leave in any order.

use crate::support::{Waits, calm, choppy, register};
use leeward_core::params::Params;
use leeward_core::units::Nanos;
use leeward_pair::order::{CALLS, WATCH, check, frames};
use leeward_pair::{Pair, PairConfig, Work};

#[test]
fn nothing_overtakes_within_a_connection() {
    const PEERS: usize = 4;
    let config = PairConfig { wire: choppy(), workers: 3, ..PairConfig::default() };
    // Uneven, so that answers leave in any order.
    let handler = |payload: &[u8], _: &mut _| Work::Result(Nanos(u64::from(payload[0]) * 4_000), Vec::new());
    let mut pair = Pair::new(&WATCH, &Params::default(), calm(), config, Box::new(handler)).unwrap();
    let peers: Vec<_> = (1..=PEERS as u64)
        .map(|seed| {
            let peer = pair.connect_raw();
            pair.say(peer, &register());
            frames(seed).for_each(|frame| pair.say_bytes(peer, &frame));
            peer
        })
        .collect();
    for peer in peers {
        assert!(pair.hear(peer).unwrap().starts_with("Welcome"));
        let mut requests = Vec::new();
        for _ in 0..CALLS {
            let answer = pair.answer(peer).unwrap();
            assert!(answer.starts_with("Response"));
            let number = answer.split("RequestId(").nth(1).unwrap().split(')').next().unwrap();
            requests.push(number.parse::<u32>().unwrap());
        }
        assert!(!requests.is_sorted(), "answers left in the order of the calls: the test tests nothing");
        pair.close(peer);
    }
    pair.is_settled();
    check(PEERS);
}
