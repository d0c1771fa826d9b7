//! Within one connection nothing overtakes: a controller sees a session's requests, and the demand that each tells, in
//! the order in which the client sent them, although connections overtake each other and answers leave in any order.

use crate::support::{Waits, bytes, call, calm, choppy, register};
use leeward_core::client::{ClientConfig, ClientHalf, ClientParts, Gate};
use leeward_core::params::Params;
use leeward_core::registry::Algorithm;
use leeward_core::server::{
    Admission, Arrival, ControlLoop, Feedback, Opened, ServerHalves, Session, Signals, Verdict,
};
use leeward_core::units::{Nanos, Time};
use leeward_session::pair::{Pair, PairConfig, Work};
use leeward_wire::{Call, Demand, Frame};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Demand of each session as the controller was told, by slot. Builders of algorithms are plain functions, so this is
/// where they meet the test.
static SEEN: Mutex<BTreeMap<u32, Vec<u32>>> = Mutex::new(BTreeMap::new());

struct Watch;

impl Watch {
    fn note(session: &Session, demand: u32) {
        SEEN.lock().unwrap().entry(session.slot.0).or_default().push(demand);
    }
}

impl Admission for Watch {
    fn open(&mut self, session: &mut Session, event: &Opened) {
        Watch::note(session, event.demand);
    }

    fn request(&mut self, session: &mut Session, event: &Arrival) -> Verdict {
        assert_eq!(session.demand, event.demand);
        Watch::note(session, event.demand);
        Verdict::Admit
    }

    fn demand(&mut self, session: &mut Session, _: Time) -> Option<Feedback> {
        Watch::note(session, session.demand);
        None
    }
}

impl ControlLoop for Watch {
    fn period(&self) -> Nanos {
        Nanos::from_millis(1)
    }

    fn tick(&mut self, _: &Signals) {}
}

impl ClientHalf for Watch {
    fn gate(&mut self, _: Time, _: u32) -> Gate {
        Gate::Open
    }
}

const WATCH: Algorithm = Algorithm {
    name: "watch",
    summary: "admits everything and notes it",
    source: "a test",
    params: &[],
    build_server: |_, environment| {
        let cores = (0..environment.cores).map(|_| Box::new(Watch) as Box<dyn Admission>).collect();
        Ok(ServerHalves { cores, control: Box::new(Watch) })
    },
    build_client: |_, _| Ok(ClientParts { half: Box::new(Watch), config: ClientConfig::default() }),
};

#[test]
fn nothing_overtakes_within_a_connection() {
    const PEERS: usize = 4;
    const CALLS: u32 = 1_000;
    let config = PairConfig { wire: choppy(), workers: 3, ..PairConfig::default() };
    // Uneven, so that answers leave in any order.
    let handler = |payload: &[u8], _: &mut _| Work::Result(Nanos(u64::from(payload[0]) * 4_000), Vec::new());
    let mut pair = Pair::new(&WATCH, &Params::default(), calm(), config, Box::new(handler)).unwrap();
    let peers: Vec<_> = (1..=PEERS as u64)
        .map(|seed| {
            let peer = pair.connect_raw();
            pair.say(peer, &register());
            for number in 1..=CALLS {
                let Frame::Call(plain) = call(number.into(), b"") else { unreachable!() };
                let payload = [(u64::from(number) * seed % 50) as u8];
                pair.say_bytes(
                    peer,
                    &bytes(&if number % 7 == 0 {
                        Frame::Demand(Demand { demand: number })
                    } else {
                        Frame::Call(Call { demand: number, payload: &payload, ..plain })
                    }),
                );
            }
            peer
        })
        .collect();
    for peer in peers {
        assert!(pair.hear(peer).unwrap().starts_with("Welcome"));
        let mut requests = Vec::new();
        for _ in (1..=CALLS).filter(|number| number % 7 != 0) {
            let answer = pair.answer(peer).unwrap();
            assert!(answer.starts_with("Response"));
            let number = answer.split("RequestId(").nth(1).unwrap().split(')').next().unwrap();
            requests.push(number.parse::<u32>().unwrap());
        }
        assert!(!requests.is_sorted(), "answers left in the order of the calls: the test tests nothing");
        pair.close(peer);
    }
    pair.is_settled();
    let seen = SEEN.lock().unwrap();
    assert_eq!(seen.len(), PEERS);
    for demands in seen.values() {
        assert_eq!(*demands, (0..=CALLS).collect::<Vec<u32>>());
    }
}
