//! Links: a caller's client for one server, and that server's session of it. A caller is a client of the graph or a server.

use super::jobs::JobId;
use crate::timer::Timer;
use leeward_core::client::{Client, ClientSink, Header, LocalOutcome};
use leeward_core::units::{Credits, Nanos, Priority, Time};

/// A link.
pub(super) struct Link {
    /// Client at the caller.
    pub(super) client: Client<JobId>,
    /// Server that calls; `None` for a client of the graph.
    pub(super) from: Option<u32>,
    /// Group of its caller that it is in.
    pub(super) group: u16,
    /// Server that is called.
    pub(super) to: u32,
    /// Its session there.
    pub(super) session: u32,
    /// Window that the caller was last told.
    pub(super) window: Credits,
    /// Threshold that the caller was last told.
    pub(super) threshold: Priority,
    /// The client's timer.
    pub(super) timer: Timer,
    /// Network delay each way.
    pub(super) one_way_delay: Nanos,
}

impl Link {
    /// When the client's timer must be set anew; `None` if it need not be.
    pub(super) fn rearm(&mut self, now: Time) -> Option<Time> {
        let wanted = self.client.next_timeout(now);
        self.timer.set(now, wanted)
    }
}

/// Decisions of a client, until the run carries them out.
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
