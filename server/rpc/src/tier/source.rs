//! Observation of a tier: its server, and the leaves downstream.
//!
//! Does not contain the progress of a request.

use super::server::Switch;
use leeward_engine::observe::explain::DecisionContext;
use leeward_engine::observe::snapshot::{Leaf, Tier};
use leeward_engine::observe::{Decision, DecisionId, Snapshot, Source};
use std::sync::Arc;

/// Observation source of a tier's server and its leaves.
pub(super) struct TierSource {
    server: Arc<dyn Source>,
    switch: Switch,
}

impl TierSource {
    /// Adds the leaves to the server's source.
    pub(super) fn around(server: Arc<dyn Source>, tier: Switch) -> Arc<dyn Source> {
        Arc::new(TierSource { server, switch: tier })
    }
}

impl Source for TierSource {
    fn snapshot(&self) -> Snapshot {
        let counts = self.switch.counts();
        let leaf = |(address, of): (std::net::SocketAddr, super::LeafCounts)| Leaf {
            address: address.to_string(),
            calls: of.calls,
            connections: of.connections,
            credits: of.credits,
        };
        let tier = Tier {
            threading: self.switch.threading().to_string(),
            gathers: counts.gathers,
            calls: counts.calls,
            waiting: counts.waiting,
            late: counts.late,
            hedged: counts.hedged,
            retried: counts.retried,
            cancelled: counts.cancelled,
            partial: counts.partial,
            switches: counts.switches,
            leaves: self.switch.leaves().into_iter().map(leaf).collect(),
        };
        Snapshot { tier: Some(tier), ..self.server.snapshot() }
    }

    fn decision(&self, id: DecisionId) -> Option<Decision> {
        self.server.decision(id)
    }

    fn decisions(&self, count: usize) -> Vec<Decision> {
        self.server.decisions(count)
    }

    fn context(&self) -> DecisionContext {
        self.server.context()
    }
}
