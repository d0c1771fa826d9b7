//! A threshold of priorities. Servers reject less important requests and report the threshold with
//! every reply, so that clients reject locally what their server would reject. DAGOR and Rajomon
//! differ in the rule that moves it. Does not contain that rule.
//!
//! The published client of DAGOR has a gap: while all its requests are above the last known
//! threshold it sends nothing, so it never learns that the threshold has risen again. The threshold
//! never falls below 1, so clients with occasional requests of the highest priority recover. For
//! the others, a client that has been quiet for `probe` sends one request. Its reply (most likely a
//! rejection) carries the current threshold.

use super::published::Version;
use leeward_core::client::params::client_config;
use leeward_core::client::{ClientHalf, ClientParts, ClientVerdict, Gate, Reply, Submission};
use leeward_core::params::{ParamKind, ParamSpec, Params};
use leeward_core::server::{
    Admission, Arrival, ControlLoop, Departure, Feedback, RejectReason, ServerHalves, Session, Verdict,
};
use leeward_core::sync::{Arc, AtomicU64, CachePadded, Ordering};
use leeward_core::units::{Nanos, Priority, Time};

/// Interval between samples of the queueing delay.
pub(super) const SAMPLE: ParamSpec = ParamSpec {
    name: "sample",
    kind: ParamKind::ANY_DURATION,
    default: "10us",
    doc: "how often the queueing delay is sampled",
    tuning_values: &[],
};

/// Time for which a client stays silent above its threshold.
pub(super) const PROBE: ParamSpec = ParamSpec {
    name: "probe",
    kind: ParamKind::ANY_DURATION,
    default: "100ms",
    doc: "a client that has sent and heard nothing for this long sends one request of any priority",
    tuning_values: &[],
};

/// Returns [`SAMPLE`] as set, or its default.
pub(super) fn sample(params: &Params) -> Nanos {
    params.duration(SAMPLE.name, Nanos::from_micros(10))
}

/// Builds the client of a server that reports its threshold.
pub(super) fn client(params: &Params, version: Version) -> ClientParts {
    let half = Client::new(params.duration(PROBE.name, Nanos::from_millis(100)), version);
    ClientParts { half: Box::new(half), config: client_config(params, Nanos::MAX) }
}

/// Builds halves that reject requests less important than `level`, which `control` moves.
pub(super) fn threshold_halves(
    cores: u32,
    level: &Arc<SharedThreshold>,
    control: Box<dyn ControlLoop>,
) -> ServerHalves {
    let core = || Box::new(Core { level: Arc::clone(level) }) as Box<dyn Admission>;
    ServerHalves { cores: (0..cores).map(|_| core()).collect(), control }
}

/// The threshold as all cores read it: a whole level, written by the slow half only.
pub(super) struct SharedThreshold(CachePadded<AtomicU64>);

impl SharedThreshold {
    pub(super) fn new(threshold: f64) -> Self {
        SharedThreshold(CachePadded(AtomicU64::new(threshold as u64)))
    }

    pub(super) fn store(&self, threshold: f64) {
        self.0.0.store(threshold as u64, Ordering::Relaxed);
    }

    fn load(&self) -> Priority {
        Priority::new(self.0.0.load(Ordering::Relaxed) as u8)
    }
}

struct Core {
    level: Arc<SharedThreshold>,
}

impl Admission for Core {
    fn request(&mut self, _: &mut Session, event: &Arrival) -> Verdict {
        if event.priority > self.level.load() { Verdict::Reject(RejectReason::Priority) } else { Verdict::Admit }
    }

    fn reply(&mut self, _: &mut Session, _: &Departure) -> Feedback {
        Feedback { threshold: self.level.load(), ..Feedback::NONE }
    }
}

/// Client half that rejects locally what its server would reject.
pub(super) struct Client {
    /// `None` until a server reports one or, as published, until the client draws one.
    threshold: Option<Priority>,
    version: Version,
    /// Time of the last sent request or received reply.
    quiet_since: Time,
    probe: Nanos,
}

impl Client {
    /// Creates a client without a threshold; it probes after `probe` without a message.
    pub(super) fn new(probe: Nanos, version: Version) -> Self {
        Client { threshold: None, version, quiet_since: Time::ZERO, probe }
    }
}

impl ClientHalf for Client {
    fn submit(&mut self, event: &Submission) -> ClientVerdict {
        let threshold = *self.threshold.get_or_insert(match self.version {
            Version::Extended => Priority::LOWEST,
            Version::Published => Priority::new(1 + (event.random >> 57) as u8), // the published client's `rand() % 128`
        });
        let probes = event.now.since(self.quiet_since) >= self.probe && !self.version.is_published();
        if event.priority > threshold && !probes { ClientVerdict::Reject } else { ClientVerdict::Accept }
    }

    fn gate(&mut self, _: Time, _: u32) -> Gate {
        Gate::Open
    }

    fn on_sent(&mut self, now: Time) {
        self.quiet_since = now;
    }

    fn reply(&mut self, event: &Reply) {
        self.quiet_since = event.now;
        self.threshold = Some(event.feedback.threshold);
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::thread;

    use super::*;

    /// A core reads the old threshold or the new one, never another value, and never the old one
    /// after the new.
    #[test]
    fn threshold_reads_are_atomic_and_ordered() {
        loom::model(|| {
            let level = Arc::new(SharedThreshold::new(32.0));
            let writer = Arc::clone(&level);
            let thread = thread::spawn(move || {
                writer.store(30.4);
                writer.store(28.88);
            });
            let seen = [level.load(), level.load()].map(Priority::level);
            thread.join().unwrap();
            assert!(seen.iter().all(|level| [32, 30, 28].contains(level)), "{seen:?}");
            assert!(seen[0] >= seen[1], "{seen:?}");
            assert_eq!(level.load(), Priority::new(28));
        });
    }
}
