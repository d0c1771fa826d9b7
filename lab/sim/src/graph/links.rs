//! Links: a caller's client shell for one server, and the server's session of that caller.
//!
//! A caller is a client of the graph or a server.

use super::jobs::JobId;
use crate::timer::Timer;
use leeward_core::client::{Client, ClientSink, Header, LocalOutcome};
use leeward_core::units::{Credits, Nanos, Priority, Time};

/// A link.
pub(super) struct Link {
    /// Client shell at the caller.
    pub(super) client: Client<JobId>,
    /// Server that calls; `None` for a client of the graph.
    pub(super) from: Option<u32>,
    /// Index of its callee group at the caller.
    pub(super) group: u16,
    /// Server that is called.
    pub(super) to: u32,
    /// Its session number at the called server.
    pub(super) session: u32,
    /// Last window that the caller received.
    pub(super) window: Credits,
    /// Last threshold that the caller received.
    pub(super) threshold: Priority,
    /// The client's timer.
    pub(super) timer: Timer,
    /// Network delay each way.
    pub(super) one_way_delay: Nanos,
}

impl Link {
    /// Time at which the client's timer must be set again; `None` if it stays as it is.
    pub(super) fn rearm(&mut self, now: Time) -> Option<Time> {
        let timeout = self.client.next_timeout(now);
        self.timer.set(now, timeout)
    }
}

/// Decisions of a client that the run has not carried out yet.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) sent: Vec<(JobId, Header)>,
    pub(super) ended: Vec<(JobId, LocalOutcome)>,
    pub(super) demand: Option<u32>,
}

impl ClientSink<JobId> for Effects {
    fn send(&mut self, request: JobId, header: Header) {
        self.sent.push((request, header));
    }

    fn end(&mut self, request: JobId, end: LocalOutcome) {
        self.ended.push((request, end));
    }

    fn send_demand(&mut self, demand: u32) {
        self.demand = Some(demand);
    }
}
