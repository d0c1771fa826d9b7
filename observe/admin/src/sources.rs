//! Servers and gates that an admin port observes, by name. They may be added and removed. Does not
//! contain responses.

use crate::otlp::ExportCounters;
use leeward_observe::exposition::ProcessMetrics;
use leeward_observe::{Decision, DecisionId, Snapshot, Source};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// List of observed servers and gates. Clones share the list.
#[derive(Clone, Default)]
pub struct Sources(Arc<Inner>);

#[derive(Default)]
struct Inner {
    sources: Mutex<Vec<NamedSource>>,
    /// Further metrics, as text.
    further: OnceLock<FurtherMetrics>,
    /// Counts of exports, once an exporter runs.
    export_counters: OnceLock<Arc<ExportCounters>>,
    /// Counts of the admin port's handshakes, if it uses TLS.
    #[cfg(feature = "tls")]
    handshake_counters: OnceLock<Arc<crate::tls::HandshakeCounters>>,
}

/// Returns metrics as Prometheus text.
type FurtherMetrics = Box<dyn Fn() -> String + Send + Sync>;

type NamedSource = (String, Arc<dyn Source>);

impl Sources {
    /// Adds a source under a name; replaces the source that has the name.
    pub fn insert(&self, name: &str, source: Arc<dyn Source>) {
        let mut named = self.lock();
        match named.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = source,
            None => named.push((name.into(), source)),
        }
    }

    /// Appends metrics to the page `/metrics`: gauges and counters as Prometheus text, without an
    /// end mark. A second call has no effect.
    pub fn append_metrics(&self, further: Box<dyn Fn() -> String + Send + Sync>) {
        let _ = self.0.further.set(further);
    }

    /// Appends the further metrics to the rendered ones, in front of OpenMetrics's end mark.
    pub(crate) fn with_further_metrics(&self, rendered: String) -> String {
        const END: &str = "# EOF\n";
        let Some(further) = self.0.further.get() else { return rendered };
        match rendered.strip_suffix(END) {
            Some(open) => format!("{open}{}{END}", further()),
            None => rendered + &further(),
        }
    }

    /// Backends that a proxy has set aside, by the further metrics: no source's snapshot has them.
    pub(crate) fn backends_down(&self) -> Vec<String> {
        let text = self.0.further.get().map(|further| further()).unwrap_or_default();
        let down = |line: &str| {
            let backend = line.strip_prefix("leeward_proxy_backend_up{backend=\"")?.strip_suffix("\"} 0")?;
            Some(backend.to_string())
        };
        text.lines().filter_map(down).collect()
    }

    /// Removes a source.
    pub fn remove(&self, name: &str) {
        self.lock().retain(|(known, _)| known != name);
    }

    /// Current snapshots of all sources, with exemplars.
    pub(crate) fn snapshots_with_exemplars(&self) -> Vec<Snapshot> {
        let named =
            |(name, source): NamedSource| Snapshot { port: name, exemplars: source.exemplars(), ..source.snapshot() };
        self.all().into_iter().map(named).collect()
    }

    /// Current snapshots of all sources.
    pub(crate) fn snapshots(&self) -> Vec<Snapshot> {
        let named = |(name, source): NamedSource| Snapshot { port: name, ..source.snapshot() };
        self.all().into_iter().map(named).collect()
    }

    /// Metrics of the process that belong to no source.
    pub(crate) fn process(&self) -> ProcessMetrics {
        ProcessMetrics {
            exports: self.0.export_counters.get().map(|counters| counters.counts()),
            #[cfg(feature = "tls")]
            admin_tls: self.0.handshake_counters.get().map(|counters| counters.counts()),
            #[cfg(not(feature = "tls"))]
            admin_tls: None,
        }
    }

    /// Counts of exports, shared by all exporters of these sources.
    pub(crate) fn export_counters(&self) -> Arc<ExportCounters> {
        Arc::clone(self.0.export_counters.get_or_init(Arc::default))
    }

    /// Counts of the admin port's handshakes.
    #[cfg(feature = "tls")]
    pub(crate) fn handshake_counters(&self) -> Arc<crate::tls::HandshakeCounters> {
        Arc::clone(self.0.handshake_counters.get_or_init(Arc::default))
    }

    /// Copies the list, so that the lock is not held while the sources are queried.
    pub(crate) fn all(&self) -> Vec<NamedSource> {
        self.lock().clone()
    }

    /// Finds the decision with this number, and its source.
    ///
    /// Each source numbers its own decisions; if several have the number, the newest decision is
    /// returned.
    pub(crate) fn decision(&self, id: DecisionId, name: Option<&str>) -> Option<(NamedSource, Decision)> {
        let of = |named: NamedSource| named.1.decision(id).map(|decision| (named, decision));
        let matching = self.all().into_iter().filter(|(known, _)| name.is_none_or(|name| name == known));
        matching.filter_map(of).max_by_key(|((_, source), decision)| source.context().unix_ns_of(decision))
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
