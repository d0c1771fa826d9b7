//! Within one connection nothing overtakes: a controller sees a session's requests, and the demand that each tells, in
//! the order in which the client sent them, although cores steal each other's work and answers leave in any order.

use crate::peer::{Peer, bytes, call, is_settled, register};
use crate::serving::Serve;
use leeward_core::client::{ClientConfig, ClientHalf, ClientParts, Gate};
use leeward_core::params::Params;
use leeward_core::registry::Algorithm;
use leeward_core::server::{Admission, Arrival, ControlLoop, Opened, ServerHalves, Session, Signals, Verdict};
use leeward_core::units::{Nanos, Time};
use leeward_rpc::server::{Request, Server};
use leeward_rpc::wire::{Call, Demand, Frame};
use leeward_runtime::Idle;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;
use std::time::Duration;

/// Demand of each session as the controller was told, by core and slot. Builders of algorithms are plain functions, so
/// this is where they meet the test.
static SEEN: Mutex<BTreeMap<(u32, u32), Vec<u32>>> = Mutex::new(BTreeMap::new());

struct Watch;

impl Watch {
    fn note(session: &Session, demand: u32) {
        SEEN.lock().unwrap().entry((session.core.0, session.slot.0)).or_default().push(demand);
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

    fn demand(&mut self, session: &mut Session, _: Time) -> Option<leeward_core::server::Feedback> {
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
    let server = Server::builder()
        .admission(&WATCH, Params::default())
        .cores(3)
        .idle(Idle::Block)
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
                let mut peer = Peer::connect(server);
                peer.say(&register());
                assert!(peer.hear().unwrap().starts_with("Welcome"));
                let mut all = Vec::new();
                for number in 1..=CALLS {
                    let Frame::Call(plain) = call(number.into(), b"") else { unreachable!() };
                    let payload = [(u64::from(number) * seed % 50) as u8];
                    all.extend(bytes(&if number % 7 == 0 {
                        Frame::Demand(Demand { demand: number })
                    } else {
                        Frame::Call(Call { demand: number, payload: &payload, ..plain })
                    }));
                }
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
                for _ in (1..=CALLS).filter(|number| number % 7 != 0) {
                    assert!(peer.answer().unwrap().starts_with("Response"));
                }
            });
        }
    });
    is_settled(&server);
    let seen = SEEN.lock().unwrap();
    assert_eq!(seen.len(), PEERS);
    for demands in seen.values() {
        assert_eq!(*demands, (0..=CALLS).collect::<Vec<u32>>());
    }
}
