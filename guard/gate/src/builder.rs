//! Settings of a gate; the objective determines every setting that the caller leaves out. Does not
//! contain the gate.

use leeward_controllers::edge;
use leeward_core::params::{ParamError, RawParam};
use leeward_core::registry::Algorithm;
use leeward_core::shadow::is_enforced;
use leeward_observe::RING_CAPACITY;
use std::time::Duration;

/// Whether the gate enforces rejections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Rejections are enforced.
    #[default]
    Enforce,
    /// Every request is admitted. The gate makes and counts decisions for a shadow queue, as if
    /// they were enforced.
    Shadow,
    /// Decisions are made as in shadow mode and enforced for this percentage of tenants.
    ///
    /// Without tenants, the percentage is of users; without users, of requests. 0 is shadow mode,
    /// 100 and more enforces every rejection.
    Share(u8),
}

impl Mode {
    /// Replaces a share of 0 or 100 by the mode with the same effect.
    pub(crate) fn plain(self) -> Mode {
        match self {
            Mode::Share(0) => Mode::Shadow,
            Mode::Share(100..) => Mode::Enforce,
            other => other,
        }
    }

    /// Name of the mode in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self.plain() {
            Mode::Enforce => "enforce",
            Mode::Shadow => "shadow",
            Mode::Share(_) => "share",
        }
    }

    /// Whether rejections are enforced for the caller with this number.
    pub fn enforces(self, number: u64) -> bool {
        match self {
            Mode::Enforce => true,
            Mode::Shadow => false,
            Mode::Share(percent) => is_enforced(percent, number),
        }
    }
}

/// Reason for which a gate cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The objective is below 1 us or above 1 h.
    #[error("the objective must be from 1us to 1h")]
    Objective,
    /// The controller decides at the clients, so that shadow mode would show nothing.
    #[error("`{0}` decides at the clients only, and has no shadow mode")]
    ShadowMode(&'static str),
    /// The controller rejects these parameters.
    #[error(transparent)]
    Params(#[from] ParamError),
}

/// Controllers without decisions at the server.
pub(crate) const CLIENT_ONLY: [&str; 3] = ["none", "seda", "window"];

/// Largest number of threads that execute requests ([`Builder::workers`]).
pub const WORKERS_MAX: usize = 128;

/// Default of [`Builder::max_in_flight`].
pub(crate) const MAX_IN_FLIGHT: u32 = 65_536;

/// Settings of a gate.
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) slo: Duration,
    pub(crate) workers: usize,
    pub(crate) algorithm: Algorithm,
    pub(crate) params: Vec<(&'static str, RawParam)>,
    pub(crate) mode: Mode,
    /// `None`: the default, for each shard.
    pub(crate) max_in_flight: Option<u32>,
    pub(crate) queue_capacity: Option<usize>,
    pub(crate) decisions: usize,
    pub(crate) seed: u64,
}

impl Builder {
    pub(crate) fn new(slo: Duration) -> Self {
        Builder {
            slo,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            algorithm: edge::ALGORITHM,
            params: Vec::new(),
            mode: Mode::Enforce,
            max_in_flight: None,
            queue_capacity: None,
            decisions: RING_CAPACITY,
            seed: 0,
        }
    }

    /// Sets the number of threads that execute requests, at most [`WORKERS_MAX`]. Default: the CPUs
    /// of this process.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.clamp(1, WORKERS_MAX);
        self
    }

    /// Selects a controller other than `edge`, with its parameters; replaces parameters set before.
    ///
    /// An unknown name or a wrong value is an error of [`Builder::build`] only.
    pub fn algorithm(mut self, algorithm: &Algorithm, params: &[(&'static str, RawParam)]) -> Self {
        self.algorithm = algorithm.clone();
        self.params = params.to_vec();
        self
    }

    /// Sets a parameter of the controller, written as in scenario files.
    ///
    /// An unknown name or a wrong value is an error of [`Builder::build`] only.
    pub fn set(mut self, name: &'static str, value: &str) -> Self {
        self.params.retain(|(set, _)| *set != name);
        self.params.push((name, RawParam::Text(value.into())));
        self
    }

    /// Sets whether rejections are enforced.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode.plain();
        self
    }

    /// Limits the admitted requests in progress, for any controller. Default: 65,536 for each
    /// worker's share; a thread that asks the gate has one of these shares.
    pub fn max_in_flight(mut self, requests: u32) -> Self {
        self.max_in_flight = Some(requests.max(1));
        self
    }

    /// Adds a wait queue in which `capacity` admitted requests wait for a slot
    /// ([`Permit::enqueue`](crate::Permit::enqueue)).
    ///
    /// The most important request leaves first. There is one slot more than there are workers.
    /// Default: no queue. A gate has a queue in [`Mode::Enforce`] only.
    pub fn queue(mut self, capacity: usize) -> Self {
        self.queue_capacity = Some(capacity);
        self
    }

    /// Whether the gate has a wait queue.
    pub fn has_queue(&self) -> bool {
        self.queue_capacity.is_some()
    }

    /// Sets the number of decisions that the gate keeps, 64 bytes each. Default: 65,536.
    pub fn decisions(mut self, decisions: usize) -> Self {
        self.decisions = decisions.clamp(16, 1 << 20);
        self
    }

    /// Sets the seed of the random choices among equally important requests.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Whether this parameter was set.
    pub fn is_set(&self, name: &str) -> bool {
        self.params.iter().any(|(set, _)| *set == name)
    }
}
