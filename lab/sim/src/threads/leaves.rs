//! Leaves as queueing stations: calls reach a leaf in the order of sending, so a call's end is
//! known when it leaves.
//!
//! Does not contain the leaves' computation.

use super::event::ReplyKind;
use super::jobs::CallTiming;
use super::model::{Leaves, SlowLeaf};
use leeward_core::units::{Nanos, Time};

/// A leaf: the times at which its servers become free.
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
    /// Time at which the CPU shared by all leaves becomes free.
    host: Time,
    slow: Option<SlowLeaf>,
    reject_after: Option<Nanos>,
}

impl Stations {
    pub(super) fn new(leaves: &Leaves) -> Self {
        let servers = usize::from(leaves.servers);
        let station = || Station { free: vec![Time::ZERO; servers], outstanding: 0 };
        let one_way = leaves.rtt / 2;
        Stations {
            stations: (0..leaves.count).map(|_| station()).collect(),
            to_leaf: one_way,
            from_leaf: leaves.rtt.saturating_sub(one_way),
            per_call: leaves.per_call,
            host_call: leaves.host_call,
            host: Time::ZERO,
            slow: leaves.tails.slow,
            reject_after: leaves.tails.reject_after,
        }
    }

    /// Sends a call to `leaf` at `now`. Returns the arrival time and the kind of its reply.
    pub(super) fn call(&mut self, leaf: u16, now: Time, timing: CallTiming) -> (Time, ReplyKind) {
        let arrives = self.after_host(now + self.to_leaf);
        let station = &mut self.stations[usize::from(leaf)];
        station.outstanding += 1;
        // The server that is free first, by time alone, so that no order of memory matters.
        let server = station.free.iter_mut().min().expect("a leaf has a server");
        let begins = arrives.max(*server);
        if self.reject_after.is_some_and(|limit| begins.since(arrives) > limit) {
            return (arrives + self.from_leaf, ReplyKind::Rejected);
        }
        *server = begins + timing.time + self.per_call;
        let late = self.slow.filter(|slow| slow.leaf == leaf && timing.is_late).map_or(Nanos::ZERO, |slow| slow.delay);
        (*server + self.from_leaf + late, ReplyKind::Result)
    }

    /// Time at which a call that arrived at `at` leaves the shared CPU.
    fn after_host(&mut self, at: Time) -> Time {
        if self.host_call == Nanos::ZERO {
            return at;
        }
        self.host = self.host.max(at) + self.host_call;
        self.host
    }

    /// Counts a reply of `leaf`.
    pub(super) fn on_reply(&mut self, leaf: u16) {
        self.stations[usize::from(leaf)].outstanding -= 1;
    }

    /// Number of calls to `leaf` without a reply.
    pub(super) fn outstanding(&self, leaf: u16) -> u32 {
        self.stations[usize::from(leaf)].outstanding
    }
}
