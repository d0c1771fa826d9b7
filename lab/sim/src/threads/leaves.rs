//! Leaves as stations: the end of a call is known when the call leaves, because calls reach a leaf in the order in which they left. What a
//! leaf computes is not here.

use super::event::ReplyKind;
use super::jobs::CallTiming;
use super::model::{Leaves, SlowLeaf};
use leeward_core::units::{Nanos, Time};

/// A leaf: its servers and when each is free.
#[derive(Debug)]
struct Station {
    free: Vec<Time>,
    outstanding: u32,
}

/// All leaves of a tier.
#[derive(Debug)]
pub(super) struct Stations {
    stations: Vec<Station>,
    to_leaf: Nanos,
    from_leaf: Nanos,
    per_call: Nanos,
    host_call: Nanos,
    /// When the CPU that all leaves have in common is free.
    host: Time,
    slow: Option<SlowLeaf>,
    reject_after: Option<Nanos>,
}

impl Stations {
    pub(super) fn new(leaves: &Leaves) -> Self {
        let servers = usize::from(leaves.servers);
        let station = || Station { free: vec![Time::ZERO; servers], outstanding: 0 };
        let there = leaves.rtt / 2;
        Stations {
            stations: (0..leaves.count).map(|_| station()).collect(),
            to_leaf: there,
            from_leaf: leaves.rtt.saturating_sub(there),
            per_call: leaves.per_call,
            host_call: leaves.host_call,
            host: Time::ZERO,
            slow: leaves.tails.slow,
            reject_after: leaves.tails.reject_after,
        }
    }

    /// A call leaves for `leaf` at `now`. When its reply arrives, and which.
    pub(super) fn call(&mut self, leaf: u16, now: Time, draw: CallTiming) -> (Time, ReplyKind) {
        let arrives = self.after_host(now + self.to_leaf);
        let station = &mut self.stations[usize::from(leaf)];
        station.outstanding += 1;
        // The first that is free, by number among equals: no order of a map or of memory.
        let server = station.free.iter_mut().min().expect("a leaf has a server");
        let begins = arrives.max(*server);
        if self.reject_after.is_some_and(|most| begins.since(arrives) > most) {
            return (arrives + self.from_leaf, ReplyKind::Rejected);
        }
        *server = begins + draw.time + self.per_call;
        let late = self.slow.filter(|slow| slow.leaf == leaf && draw.is_late).map_or(Nanos::ZERO, |slow| slow.delay);
        (*server + self.from_leaf + late, ReplyKind::Result)
    }

    /// When a call that has come at `at` has had its time on the common CPU.
    fn after_host(&mut self, at: Time) -> Time {
        if self.host_call == Nanos::ZERO {
            return at;
        }
        self.host = self.host.max(at) + self.host_call;
        self.host
    }

    /// A reply of `leaf` has arrived.
    pub(super) fn on_reply(&mut self, leaf: u16) {
        self.stations[usize::from(leaf)].outstanding -= 1;
    }

    /// Calls whose replies have not come.
    pub(super) fn outstanding(&self, leaf: u16) -> u32 {
        self.stations[usize::from(leaf)].outstanding
    }
}
