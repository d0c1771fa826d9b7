//! Leaves as stations: the end of a call is known when the call leaves, because calls reach a leaf in the order in which they left. What a
//! leaf computes is not here.

use super::event::News;
use super::jobs::Draw;
use super::model::{Leaves, SlowLeaf};
use leeward_core::units::{Nanos, Time};

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
    host_call: Nanos,
    /// When the CPU that all leaves have in common is free.
    host: Time,
    slow: Option<SlowLeaf>,
    drops_after: Option<Nanos>,
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
            host_call: leaves.host_call,
            host: Time::ZERO,
            slow: leaves.tails.slow,
            drops_after: leaves.tails.drops_after,
        }
    }

    /// A call leaves for `leaf` at `now`. When its reply arrives, and which.
    pub(super) fn call(&mut self, leaf: u16, now: Time, draw: Draw) -> (Time, News) {
        let arrives = self.hosted(now + self.there);
        let station = &mut self.stations[usize::from(leaf)];
        station.out += 1;
        // The first that is free, by number among equals: no order of a map or of memory.
        let server = station.free.iter_mut().min().expect("a leaf has a server");
        let begins = arrives.max(*server);
        if self.drops_after.is_some_and(|most| begins.since(arrives) > most) {
            return (arrives + self.back, News::Dropped);
        }
        *server = begins + draw.time + self.per_call;
        let late = self.slow.filter(|slow| slow.leaf == leaf && draw.is_late).map_or(Nanos::ZERO, |slow| slow.by);
        (*server + self.back + late, News::Result)
    }

    /// When a call that has come at `at` has had its time on the common CPU.
    fn hosted(&mut self, at: Time) -> Time {
        if self.host_call == Nanos::ZERO {
            return at;
        }
        self.host = self.host.max(at) + self.host_call;
        self.host
    }

    /// A reply of `leaf` has arrived.
    pub(super) fn replied(&mut self, leaf: u16) {
        self.stations[usize::from(leaf)].out -= 1;
    }

    /// Calls whose replies have not come.
    pub(super) fn out(&self, leaf: u16) -> u32 {
        self.stations[usize::from(leaf)].out
    }
}
