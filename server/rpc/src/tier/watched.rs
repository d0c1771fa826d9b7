//! A tier as those who watch it see it: its server, and the leaves behind. Never here: what a request does.

use super::server::Switch;
use leeward_engine::observe::snapshot::{Leaf, Tier};
use leeward_engine::observe::why::Context;
use leeward_engine::observe::{Decision, DecisionId, Snapshot, Source};
use std::sync::Arc;

/// The server of a tier, with its leaves.
pub(super) struct Tiered {
    server: Arc<dyn Source>,
    tier: Switch,
}

impl Tiered {
    /// Everything that is known of the server, and its leaves.
    pub(super) fn around(server: Arc<dyn Source>, tier: Switch) -> Arc<dyn Source> {
        Arc::new(Tiered { server, tier })
    }
}

impl Source for Tiered {
    fn snapshot(&self) -> Snapshot {
        let counts = self.tier.counts();
        let leaf = |(address, of): (std::net::SocketAddr, super::LeafCounts)| Leaf {
            address: address.to_string(),
            calls: of.calls,
            connections: of.connections,
            credits: of.credits,
        };
        let tier = Tier {
            threading: self.tier.threading().to_string(),
            gathers: counts.gathers,
            calls: counts.calls,
            waiting: counts.waiting,
            late: counts.late,
            hedged: counts.hedged,
            retried: counts.retried,
            cancelled: counts.cancelled,
            switches: counts.switches,
            leaves: self.tier.leaves().into_iter().map(leaf).collect(),
        };
        Snapshot { tier: Some(tier), ..self.server.snapshot() }
    }

    fn decision(&self, id: DecisionId) -> Option<Decision> {
        self.server.decision(id)
    }

    fn decisions(&self, count: usize) -> Vec<Decision> {
        self.server.decisions(count)
    }

    fn context(&self) -> Context {
        self.server.context()
    }
}
