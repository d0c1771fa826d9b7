//! Servers and gates that an admin port tells of, under their names. They may come and go. Never here: how they are told of.

use crate::otlp::ExportCounters;
use leeward_observe::exposition::ProcessMetrics;
use leeward_observe::{Decision, DecisionId, Snapshot, Source};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Servers and gates that are watched. Clones are the same list.
#[derive(Clone, Default)]
pub struct Sources(Arc<Inner>);

#[derive(Default)]
struct Inner {
    sources: Mutex<Vec<NamedSource>>,
    /// Exports, once somebody exports.
    export_counters: OnceLock<Arc<ExportCounters>>,
    /// Handshakes of the admin port, where it speaks TLS.
    #[cfg(feature = "tls")]
    handshake_counters: OnceLock<Arc<crate::tls::HandshakeCounters>>,
}

type NamedSource = (String, Arc<dyn Source>);

impl Sources {
    /// Adds one under a name, in place of another one of that name.
    pub fn insert(&self, name: &str, source: Arc<dyn Source>) {
        let mut named = self.lock();
        match named.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = source,
            None => named.push((name.into(), source)),
        }
    }

    /// Takes one away.
    pub fn remove(&self, name: &str) {
        self.lock().retain(|(known, _)| known != name);
    }

    /// The states of all at this moment, with examples of what the samples count.
    pub(crate) fn snapshots_with_exemplars(&self) -> Vec<Snapshot> {
        let named =
            |(name, source): NamedSource| Snapshot { port: name, exemplars: source.exemplars(), ..source.snapshot() };
        self.all().into_iter().map(named).collect()
    }

    /// The states of all at this moment.
    pub(crate) fn snapshots(&self) -> Vec<Snapshot> {
        let named = |(name, source): NamedSource| Snapshot { port: name, ..source.snapshot() };
        self.all().into_iter().map(named).collect()
    }

    /// State of what stands beside them.
    pub(crate) fn process(&self) -> ProcessMetrics {
        ProcessMetrics {
            exports: self.0.export_counters.get().map(|tally| tally.counts()),
            #[cfg(feature = "tls")]
            admin_tls: self.0.handshake_counters.get().map(|tally| tally.counts()),
            #[cfg(not(feature = "tls"))]
            admin_tls: None,
        }
    }

    /// The count of exports, the same for everybody who exports these.
    pub(crate) fn export_counters(&self) -> Arc<ExportCounters> {
        Arc::clone(self.0.export_counters.get_or_init(Arc::default))
    }

    /// The count of the admin port's handshakes.
    #[cfg(feature = "tls")]
    pub(crate) fn handshake_counters(&self) -> Arc<crate::tls::HandshakeCounters> {
        Arc::clone(self.0.handshake_counters.get_or_init(Arc::default))
    }

    /// All of them. The lock is not held while they are asked.
    pub(crate) fn all(&self) -> Vec<NamedSource> {
        self.lock().clone()
    }

    /// The decision of this number, and whose it is. Numbers are each source's own: the newest one is meant.
    pub(crate) fn decision(&self, id: DecisionId, name: Option<&str>) -> Option<(NamedSource, Decision)> {
        let of = |named: NamedSource| named.1.decision(id).map(|decision| (named, decision));
        let meant = self.all().into_iter().filter(|(known, _)| name.is_none_or(|name| name == known));
        meant.filter_map(of).max_by_key(|((_, source), decision)| source.context().unix_ns_of(decision))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<NamedSource>> {
        self.0.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.lock().iter().map(|(name, _)| name)).finish()
    }
}
