//! The layer and its settings. Does not contain the handling of requests.

use crate::probe::SocketProbes;
use http::request::Parts;
use leeward_gate::{Builder, Class, Gate, Mode, RequestInfo};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Capacity of a wait queue. Eight workers at 10 us per request execute fewer within an objective
/// of 20 ms.
const PLACES: usize = 16_384;

/// Moment at which a request counts as ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndOfRequest {
    /// The end of its response's body, except for event streams and upgrades.
    #[default]
    Body,
    /// Its response's headers.
    Headers,
}

/// The application's function that adds knowledge to a request.
type Describe = Arc<dyn Fn(&Parts, RequestInfo) -> RequestInfo + Send + Sync>;
type Exempt = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;

/// A layer that keeps a service within a latency objective. Services that it makes, and its clones,
/// share one gate.
///
/// A request should pass one of them: the gate counts each passage as a request.
#[derive(Clone)]
pub struct Slo {
    builder: Builder,
    pub(crate) describe: Option<Describe>,
    pub(crate) exempt: Option<Exempt>,
    pub(crate) ends_at: EndOfRequest,
    pub(crate) reports_load: bool,
    gate: Arc<OnceLock<Gate>>,
    pub(crate) probes: Arc<SocketProbes>,
}

/// Makes a layer for services that answer within `objective`, counted from the kernel's receipt of
/// the request.
///
/// The objective is clamped to 1 ms to 1 h.
pub fn slo(objective: Duration) -> Slo {
    let objective = objective.clamp(Duration::from_millis(1), Duration::from_secs(3_600));
    Slo {
        builder: Gate::builder(objective),
        describe: None,
        exempt: None,
        ends_at: EndOfRequest::Body,
        reports_load: false,
        gate: Arc::default(),
        probes: Arc::default(),
    }
}

impl Slo {
    /// Adds the application's knowledge of a request: class, user, tenant, route. The function gets
    /// the headers' data, and what earlier calls have added, those of [`Slo::class`] and
    /// [`Slo::tenant`] too.
    ///
    /// ```
    /// use leeward_tower::{Class, ms, slo};
    ///
    /// let layer = slo(ms(20)).describe(|request, info| {
    ///     let is_batch = request.uri.path().starts_with("/batch");
    ///     if is_batch { info.with_class(Class::BATCH) } else { info }
    /// });
    /// # drop(layer);
    /// ```
    pub fn describe(mut self, describe: impl Fn(&Parts, RequestInfo) -> RequestInfo + Send + Sync + 'static) -> Self {
        self.describe = Some(match self.describe.take() {
            Some(earlier) => Arc::new(move |request, info| describe(request, earlier(request, info))),
            None => Arc::new(describe),
        });
        self
    }

    /// Sets the class of a request.
    pub fn class(self, class: impl Fn(&Parts) -> Class + Send + Sync + 'static) -> Self {
        self.describe(move |request, info| info.with_class(class(request)))
    }

    /// Names the tenant of a request, for fair shares. The same name is the same tenant.
    pub fn tenant(self, tenant: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        self.describe(move |request, info| match tenant(request) {
            Some(name) => info.with_tenant(leeward_gate::Tenant(hash(name.as_bytes()) as u32)),
            None => info,
        })
    }

    /// Sets which requests bypass the gate. gRPC's health service and CORS preflights always do.
    pub fn exempt(mut self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.exempt = Some(Arc::new(exempt));
        self
    }

    /// Whether requests of HTTP/1 wait in the queue, too.
    pub(crate) fn queues_all(&self) -> bool {
        self.builder.has_queue()
    }

    /// Whether the application describes no requests.
    pub(crate) fn is_plain(&self) -> bool {
        self.describe.is_none() && self.exempt.is_none()
    }

    /// Sets when a request counts as ended.
    pub fn ends_at(mut self, end: EndOfRequest) -> Self {
        self.ends_at = end;
        self
    }

    /// Reports the replica's load in each response, for load balancers: `endpoint-load-metrics`
    /// (ORCA).
    pub fn report_load(mut self) -> Self {
        self.reports_load = true;
        self
    }

    /// Sets shadow mode: every request is admitted, and would-be rejections are counted.
    pub fn shadow(self) -> Self {
        self.build(|builder| builder.mode(Mode::Shadow))
    }

    /// Enforces rejections for this percentage of tenants, users or requests, and counts the
    /// would-be rejections of the others.
    pub fn enforce(self, percent: u8) -> Self {
        self.build(|builder| builder.mode(Mode::Share(percent)))
    }

    /// Sets the number of threads that execute requests: Tokio's workers. Default: the CPUs of this
    /// process.
    pub fn workers(self, workers: usize) -> Self {
        self.build(|builder| builder.workers(workers))
    }

    /// Queues admitted requests by class, then by start deadline, while new requests are read.
    /// Default: only those of HTTP/2.
    ///
    /// At most one request more than [`Slo::workers`] executes at once; a request that awaits is
    /// not counted. `docs/middleware.md` describes benefits and costs.
    ///
    /// The layer calls the service at admission and polls its future at dequeue. Work inside `call`
    /// itself doesn't wait.
    ///
    /// ```
    /// use leeward_tower::{ms, slo};
    ///
    /// let layer = slo(ms(20)).queue();
    /// let small = slo(ms(20)).build(|builder| builder.queue(100));
    /// # drop((layer, small));
    /// ```
    pub fn queue(self) -> Self {
        self.build(|builder| builder.queue(PLACES))
    }

    /// Changes the settings of the gate.
    pub fn build(mut self, change: impl FnOnce(Builder) -> Builder) -> Self {
        self.builder = change(self.builder);
        self.gate = Arc::default();
        self
    }

    /// The gate, with its counters and decisions. Made at the first call.
    ///
    /// # Panics
    ///
    /// If [`Slo::build`] has set a parameter that the controller rejects.
    pub fn gate(&self) -> &Gate {
        self.gate.get_or_init(|| {
            let builder = self.builder.clone();
            match if self.queues_all() { builder } else { builder.queue(PLACES) }.build() {
                Ok(gate) => gate,
                Err(error) => panic!("a layer's gate: {error}"),
            }
        })
    }
}

/// FNV-1a with the upper half folded in. A name has the same number in every process.
pub fn hash(bytes: &[u8]) -> u64 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ms;

    #[test]
    fn what_an_application_says_of_a_request_adds_up() {
        let layer = slo(ms(20))
            .class(|_| Class::CRITICAL)
            .tenant(|_| Some("a".to_owned()))
            .describe(|_, info| info.with_user(7))
            .describe(|_, info| info.with_route(9));
        let (parts, ()) = http::Request::new(()).into_parts();
        let info = layer.describe.unwrap()(&parts, RequestInfo::default());
        assert_eq!((info.class, info.route, info.user), (Class::CRITICAL, 9, Some(7)));
        assert_eq!(info.tenant, leeward_gate::Tenant(hash(b"a") as u32));
    }
}
