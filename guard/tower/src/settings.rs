//! The layer and all that can be said about it. Never here: what happens to a request.

use http::request::Parts;
use leeward_gate::{Builder, Class, Gate, Mode, RequestInfo};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Places of a wait room: more than can be executed within an objective of 20 ms where each takes 10 us, on eight workers.
const PLACES: usize = 16_384;

/// When a request counts as ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndOfRequest {
    /// When its response's body ends, except for streams of events and upgrades.
    #[default]
    Body,
    /// When its response's headers are there.
    Headers,
}

/// Knowledge about a request that its headers do not tell.
type Describe = Arc<dyn Fn(&Parts, RequestInfo) -> RequestInfo + Send + Sync>;
type Exempt = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;

/// A layer that keeps a service inside a latency objective. Services that it makes, and its clones, share one gate.
#[derive(Clone)]
pub struct Slo {
    builder: Builder,
    pub(crate) describe: Option<Describe>,
    pub(crate) exempt: Option<Exempt>,
    pub(crate) ends_at: EndOfRequest,
    pub(crate) reports_load: bool,
    gate: Arc<OnceLock<Gate>>,
}

/// A layer for services that answer within `objective`, counted from when the kernel received the request. Less than a millisecond is
/// taken for a millisecond, and more than an hour for an hour: queues of this size are what it sees.
pub fn slo(objective: Duration) -> Slo {
    let objective = objective.clamp(Duration::from_millis(1), Duration::from_secs(3_600));
    Slo {
        builder: Gate::builder(objective),
        describe: None,
        exempt: None,
        ends_at: EndOfRequest::Body,
        reports_load: false,
        gate: Arc::default(),
    }
}

impl Slo {
    /// Sets what only the application knows of a request: class, user, tenant, route. It gets what the headers said.
    ///
    /// ```
    /// use leeward_tower::{Class, ms, slo};
    ///
    /// let layer = slo(ms(20)).describe(|request, arriving| {
    ///     if request.uri.path().starts_with("/batch") { arriving.with_class(Class::BATCH) } else { arriving }
    /// });
    /// # drop(layer);
    /// ```
    pub fn describe(mut self, describe: impl Fn(&Parts, RequestInfo) -> RequestInfo + Send + Sync + 'static) -> Self {
        self.describe = Some(Arc::new(describe));
        self
    }

    /// Sets the class of a request.
    pub fn class(self, class: impl Fn(&Parts) -> Class + Send + Sync + 'static) -> Self {
        let before = self.describe.clone();
        self.describe(move |request, arriving| {
            let arriving = before.as_ref().map_or(arriving, |describe| describe(request, arriving));
            arriving.with_class(class(request))
        })
    }

    /// Names the tenant of a request, by which shares are kept; the same name is the same tenant.
    pub fn tenant(self, tenant: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        let before = self.describe.clone();
        self.describe(move |request, arriving| {
            let arriving = before.as_ref().map_or(arriving, |describe| describe(request, arriving));
            match tenant(request) {
                Some(name) => arriving.with_tenant(leeward_gate::Tenant(hash(name.as_bytes()) as u32)),
                None => arriving,
            }
        })
    }

    /// Requests that pass by the gate. gRPC's health service and preflights of browsers (CORS)
    /// always do.
    pub fn exempt(mut self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.exempt = Some(Arc::new(exempt));
        self
    }

    /// Whether the application says nothing of its requests.
    pub(crate) fn is_plain(&self) -> bool {
        self.describe.is_none() && self.exempt.is_none()
    }

    /// When a request counts as ended.
    pub fn ends_at(mut self, until: EndOfRequest) -> Self {
        self.ends_at = until;
        self
    }

    /// Says the replica's load in each response, for balancers that weigh replicas: `endpoint-load-metrics` (ORCA).
    pub fn report_load(mut self) -> Self {
        self.reports_load = true;
        self
    }

    /// Refuses nothing, and counts what would have been refused.
    pub fn shadow(self) -> Self {
        self.build(|builder| builder.mode(Mode::Shadow))
    }

    /// Refuses requests of so many in a hundred tenants, users or requests, and counts what the others' refusals would have been.
    pub fn enforce(self, percent: u8) -> Self {
        self.build(|builder| builder.mode(Mode::Share(percent)))
    }

    /// Threads that execute requests: Tokio's workers; as many CPUs as the process has if it is not said.
    pub fn workers(self, workers: usize) -> Self {
        self.build(|builder| builder.workers(workers))
    }

    /// Refuses late requests alone: the most goodput, and answers near the end of the objective.
    pub fn lateness_only(self) -> Self {
        self.build(|builder| builder.set("level", "off"))
    }

    /// Lets admitted requests wait for their turn, the most important first and in a class the one that must begin earliest, while what
    /// has come is read. At most one more than [`Slo::workers`] are executed at once; a request that awaits something is not
    /// counted. Off if it is not said: `docs/middleware.md` tells where it helps, and what it costs.
    ///
    /// The service is called when a request is let in, and its future polled when it is its turn: what a service does in
    /// `call` itself does not wait.
    ///
    /// ```
    /// use leeward_tower::{ms, slo};
    ///
    /// let layer = slo(ms(20)).room();
    /// let small = slo(ms(20)).build(|builder| builder.room(100));
    /// # drop((layer, small));
    /// ```
    pub fn queue(self) -> Self {
        self.build(|builder| builder.queue(PLACES))
    }

    /// Changes the gate itself.
    pub fn build(mut self, change: impl FnOnce(Builder) -> Builder) -> Self {
        self.builder = change(self.builder);
        self.gate = Arc::default();
        self
    }

    /// The gate, with its counters and decisions. Made at the first call.
    ///
    /// # Panics
    /// If [`Slo::build`] has set a parameter that its controller does not take.
    pub fn gate(&self) -> &Gate {
        self.gate.get_or_init(|| match self.builder.clone().build() {
            Ok(gate) => gate,
            Err(error) => panic!("a layer's gate: {error}"),
        })
    }
}

/// FNV-1a, the upper half folded in: the same name is the same number in every process.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    hash ^ hash >> 32
}

impl std::fmt::Debug for Slo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slo").field("builder", &self.builder).finish_non_exhaustive()
    }
}
