//! An algorithm that records the order of each session's frames, and a client's frames that show
//! this order. Does not contain the frames' transport.

use crate::frames::{call, encode};
use leeward_core::client::{ClientConfig, ClientHalf, ClientParts, Gate};
use leeward_core::registry::Algorithm;
use leeward_core::server::{
    Admission, Arrival, ControlLoop, Feedback, Registration, ServerHalves, Session, Signals, Verdict,
};
use leeward_core::units::{Nanos, Time};
use leeward_wire::{Call, Demand, Frame};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Frames that a client sends after its first.
const FRAMES: u32 = 1_000;

/// Calls among them: each seventh frame is a demand alone.
pub const CALLS: u32 = FRAMES - FRAMES / 7;

/// Demands of each session as the controller saw them, by core and slot. Builders of algorithms are
/// plain functions, so a static connects them with the test.
static OBSERVED: Mutex<BTreeMap<(u32, u32), Vec<u32>>> = Mutex::new(BTreeMap::new());

/// A client's frames in order. The demand increases by one with each frame. The seed varies the
/// first byte of the arguments, from 0 to 49.
pub fn frames(seed: u64) -> impl Iterator<Item = Vec<u8>> {
    (1..=FRAMES).map(move |number| {
        let payload = [(u64::from(number) * seed % 50) as u8];
        match call(number.into(), &payload) {
            Frame::Call(plain) if number % 7 != 0 => encode(&Frame::Call(Call { demand: number, ..plain })),
            _ => encode(&Frame::Demand(Demand { demand: number })),
        }
    })
}

/// Checks that the controller saw so many sessions, and each session's frames in order.
///
/// # Panics
/// If it did not.
pub fn check(sessions: usize) {
    let seen = OBSERVED.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(seen.len(), sessions);
    for demands in seen.values() {
        assert_eq!(*demands, (0..=FRAMES).collect::<Vec<u32>>());
    }
}

/// Admits every request and records each demand, for [`check`]. One test of a process may use it.
pub const ORDER_OBSERVER: Algorithm = Algorithm {
    name: "watch",
    summary: "admits everything and notes it",
    source: "a test",
    params: &[],
    build_server: |_, environment| {
        let cores = (0..environment.cores).map(|_| Box::new(OrderObserver) as Box<dyn Admission>).collect();
        Ok(ServerHalves { cores, control: Box::new(OrderObserver) })
    },
    build_client: |_, _| Ok(ClientParts { half: Box::new(OrderObserver), config: ClientConfig::default() }),
};

struct OrderObserver;

impl OrderObserver {
    fn note(session: &Session, demand: u32) {
        let mut seen = OBSERVED.lock().unwrap_or_else(PoisonError::into_inner);
        seen.entry((session.core.0, session.slot.0)).or_default().push(demand);
    }
}

impl Admission for OrderObserver {
    fn open(&mut self, session: &mut Session, event: &Registration) {
        OrderObserver::note(session, event.demand);
    }

    fn request(&mut self, session: &mut Session, event: &Arrival) -> Verdict {
        assert_eq!(session.demand, event.demand);
        OrderObserver::note(session, event.demand);
        Verdict::Admit
    }

    fn demand(&mut self, session: &mut Session, _: Time) -> Option<Feedback> {
        OrderObserver::note(session, session.demand);
        None
    }
}

impl ControlLoop for OrderObserver {
    fn period(&self) -> Nanos {
        Nanos::from_millis(1)
    }

    fn tick(&mut self, _: &Signals) {}
}

impl ClientHalf for OrderObserver {
    fn gate(&mut self, _: Time, _: u32) -> Gate {
        Gate::Open
    }
}
