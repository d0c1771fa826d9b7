//! Servers and gates that an admin port tells of, under their names. They may come and go. Never here: how they are told of.

use crate::otlp::Tally;
use leeward_observe::exposition::Process;
use leeward_observe::{Decision, DecisionId, Snapshot, Source};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Servers and gates that are watched. Clones are the same list.
#[derive(Clone, Default)]
pub struct Sources(Arc<Parts>);

#[derive(Default)]
struct Parts {
    named: Mutex<Vec<Named>>,
    /// Exports, once somebody exports.
    exports: OnceLock<Arc<Tally>>,
    /// Handshakes of the admin port, where it speaks TLS.
    #[cfg(feature = "tls")]
    handshakes: OnceLock<Arc<crate::tls::Tally>>,
}

type Named = (String, Arc<dyn Source>);

impl Sources {
    /// Adds one under a name, in place of another one of that name.
    pub fn put(&self, name: &str, source: Arc<dyn Source>) {
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
    pub(crate) fn exemplified(&self) -> Vec<Snapshot> {
        let named = |(name, source): Named| Snapshot { port: name, exemplars: source.exemplars(), ..source.snapshot() };
        self.all().into_iter().map(named).collect()
    }

    /// The states of all at this moment.
    pub(crate) fn snapshots(&self) -> Vec<Snapshot> {
        let named = |(name, source): Named| Snapshot { port: name, ..source.snapshot() };
        self.all().into_iter().map(named).collect()
    }

    /// State of what stands beside them.
    pub(crate) fn process(&self) -> Process {
        Process {
            exports: self.0.exports.get().map(|tally| tally.told()),
            #[cfg(feature = "tls")]
            admin_tls: self.0.handshakes.get().map(|tally| tally.told()),
            #[cfg(not(feature = "tls"))]
            admin_tls: None,
        }
    }

    /// The count of exports, the same for everybody who exports these.
    pub(crate) fn exports(&self) -> Arc<Tally> {
        Arc::clone(self.0.exports.get_or_init(Arc::default))
    }

    /// The count of the admin port's handshakes.
    #[cfg(feature = "tls")]
    pub(crate) fn handshakes(&self) -> Arc<crate::tls::Tally> {
        Arc::clone(self.0.handshakes.get_or_init(Arc::default))
    }

    /// All of them. The lock is not held while they are asked.
    pub(crate) fn all(&self) -> Vec<Named> {
        self.lock().clone()
    }

    /// The decision of this number, and whose it is. Numbers are each source's own: the newest one is meant.
    pub(crate) fn decision(&self, id: DecisionId, name: Option<&str>) -> Option<(Named, Decision)> {
        let of = |named: Named| named.1.decision(id).map(|decision| (named, decision));
        let meant = self.all().into_iter().filter(|(known, _)| name.is_none_or(|name| name == known));
        meant.filter_map(of).max_by_key(|((_, source), decision)| source.context().unix_ns_of(decision))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Named>> {
        self.0.named.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.lock().iter().map(|(name, _)| name)).finish()
    }
}
