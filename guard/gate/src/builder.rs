//! Settings of a gate: everything follows from the objective unless it is said. Never here: the gate.

use leeward_controllers::edge;
use leeward_core::params::{ParamError, RawParam};
use leeward_core::registry::Algorithm;
use leeward_core::shadow::is_enforced;
use leeward_observe::RING_CAPACITY;
use std::time::Duration;

/// Whether refusals happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A refused request is refused.
    #[default]
    Enforce,
    /// Everything is let in. Decisions are made on the queue that would be if they were enforced, and counted.
    Shadow,
    /// Decisions are made as in a rehearsal, and enforced for so many of a hundred tenants (users, where there are no tenants; requests,
    /// where there are neither). 0 is a rehearsal, 100 and more is the whole.
    Share(u8),
}

impl Mode {
    /// The same under its plainest name.
    pub(crate) fn plain(self) -> Mode {
        match self {
            Mode::Share(0) => Mode::Shadow,
            Mode::Share(100..) => Mode::Enforce,
            other => other,
        }
    }

    /// As metrics name it.
    pub(crate) fn name(self) -> &'static str {
        match self.plain() {
            Mode::Enforce => "enforce",
            Mode::Shadow => "shadow",
            Mode::Share(_) => "share",
        }
    }

    /// Whether a refusal of whoever has this number is one.
    pub(crate) fn enforces(self, number: u64) -> bool {
        match self {
            Mode::Enforce => true,
            Mode::Shadow => false,
            Mode::Share(percent) => is_enforced(percent, number),
        }
    }
}

/// A gate that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No request is answered in no time, and an hour is no objective.
    #[error("the objective must be from 1us to 1h")]
    Objective,
    /// The controller does not take these parameters.
    #[error(transparent)]
    Params(#[from] ParamError),
}

/// Settings of a gate.
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) slo: Duration,
    pub(crate) workers: usize,
    pub(crate) algorithm: Algorithm,
    pub(crate) params: Vec<(&'static str, RawParam)>,
    pub(crate) mode: Mode,
    pub(crate) max_in_flight: u32,
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
            max_in_flight: 65_536,
            queue_capacity: None,
            decisions: RING_CAPACITY,
            seed: 0,
        }
    }

    /// Threads that execute requests; as many CPUs as this process has if it is not said. At most 128.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.clamp(1, 128);
        self
    }

    /// Another controller than `edge`, with its parameters.
    pub fn algorithm(mut self, algorithm: &Algorithm, params: &[(&'static str, RawParam)]) -> Self {
        self.algorithm = algorithm.clone();
        self.params = params.to_vec();
        self
    }

    /// A parameter of the controller, as scenario files write it.
    pub fn set(mut self, name: &'static str, value: &str) -> Self {
        self.params.retain(|(set, _)| *set != name);
        self.params.push((name, RawParam::Text(value.into())));
        self
    }

    /// Whether refusals happen.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode.plain();
        self
    }

    /// Admitted requests that may be under way at once, whatever the controller says; 65,536 if it is not said.
    pub fn max_in_flight(mut self, requests: u32) -> Self {
        self.max_in_flight = requests.max(1);
        self
    }

    /// A wait room with so many places: admitted requests wait there for their turn ([`Ticket::seat`](crate::Ticket::seat)), the most
    /// important first. No more than there are workers, and one, have begun and not ended. None if it is not said, and none in a rehearsal.
    pub fn queue(mut self, places: usize) -> Self {
        self.queue_capacity = Some(places);
        self
    }

    /// Decisions that are kept, 64 bytes each; 65,536 if it is not said.
    pub fn decisions(mut self, decisions: usize) -> Self {
        self.decisions = decisions.clamp(16, 1 << 20);
        self
    }

    /// Seed of the choices among equally important requests.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Whether a parameter was set.
    pub fn is_set(&self, name: &str) -> bool {
        self.params.iter().any(|(set, _)| *set == name)
    }
}
