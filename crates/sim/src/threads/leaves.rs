//! Leaves as stations: a call's reply is known when the call leaves, because calls reach a leaf in the order in which they left. What a
//! leaf computes is not here.

use super::model::Leaves;
use leeward_control::units::{Nanos, Time};

/// A leaf: its servers and when each is free.
#[derive(Debug)]
struct Station {
    free: Vec<Time>,
    out: u32,
}

/// All leaves of a tier.
#[derive(Debug)]
pub(super) struct Stations {
    stations: Vec<Station>,
    there: Nanos,
    back: Nanos,
    per_call: Nanos,
}

impl Stations {
    pub(super) fn new(leaves: &Leaves) -> Self {
        let servers = usize::from(leaves.servers);
        let station = || Station { free: vec![Time::ZERO; servers], out: 0 };
        let there = leaves.rtt / 2;
        Stations {
            stations: (0..leaves.count).map(|_| station()).collect(),
            there,
            back: leaves.rtt.saturating_sub(there),
            per_call: leaves.per_call,
        }
    }

    /// A call of `service` leaves for `leaf` at `now`. When its reply arrives.
    pub(super) fn call(&mut self, leaf: usize, now: Time, service: Nanos) -> Time {
        let station = &mut self.stations[leaf];
        station.out += 1;
        let arrives = now + self.there;
        // The first that is free, by number among equals: no order of a map or of memory.
        let server = station.free.iter_mut().min().expect("a leaf has a server");
        *server = arrives.max(*server) + service + self.per_call;
        *server + self.back
    }

    /// A reply of `leaf` has arrived.
    pub(super) fn replied(&mut self, leaf: usize) {
        self.stations[leaf].out -= 1;
    }

    /// Calls whose replies have not come.
    pub(super) fn out(&self, leaf: usize) -> u32 {
        self.stations[leaf].out
    }
}
