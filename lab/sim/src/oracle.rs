//! The oracle: admits exactly what will be in time, at no cost. It is no algorithm that anybody could run: it knows each request's
//! service time, its path through the locks and all that is under way, at the moment at which the client issues it. What others
//! reach of its goodput says how much is left to win.
//!
//! - **Cores**: a request waits for the work that was admitted before it, shared by all cores, if they are all taken.
//! - **Locks**: a request waits at each of its locks for the holds that were admitted before it.
//! - **Disks and servers further down** are locks under which nobody works, and waits; the oracle knows when they are slow.
//! - **Margin**: what these leave out (who steals what, a holder that waits for a core) is learnt from what was late after all,
//!   for each path: one late response weighs as much as a thousand that were in time.
//! - **Hindsight**: a run is played with the margin learnt, and again with margins that are fixed. The best of these runs counts: where
//!   lateness has another cause than requests (parked cores), a margin only makes it worse.
//!
//! Requests of equal objectives are served in the order of their deadlines as they come, so first come, first served is
//! earliest deadline first.

use crate::SimError;
use crate::config::{Pauses, ServerModel, SimConfig, SlowPeriod};
use crate::requests::RequestId;
use crate::stalls::paused_end;
use leeward_core::none;
use leeward_core::registry::{Algorithm, Registry};
use leeward_core::units::{Nanos, Time};
use leeward_outcome::RunOutcome;
use leeward_workload::{Application, Step};

/// Registry's entry. Its halves admit everything: the plant asks the oracle before a request leaves its client.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "oracle",
    summary: "knows every service time and admits exactly what will be in time (simulator only)",
    source: "Leeward: the bound that others are measured against",
    params: &[],
    build_server: none::ALGORITHM.build_server,
    build_client: |_, environment| {
        let none = none::ALGORITHM;
        (none.build_client)(&none.params(&[])?, environment)
    },
};

/// The algorithms that can be simulated: all of `leeward-controllers`, and the oracle.
pub fn registry() -> Registry {
    let mut registry = leeward_controllers::builtin();
    registry.replace(ALGORITHM);
    registry
}

/// A path's margin grows by this part of the objective with each late response, and shrinks by a thousandth of that with each other.
const STEP: f64 = 0.02;
const LATE_ALLOWED: f64 = 0.001;
/// The objective is one of the 99th percentile.
const MAX_LATE_SHARE: f64 = 0.01;
/// A margin leaves at least this part of the objective to requests: it would else never learn that it is too large.
const MAX_MARGIN: f64 = 0.9;

/// Margins of the other runs, as parts of the objective. The first admits everything.
const FIXED: [f64; 7] = [f64::NEG_INFINITY, 0.0, 0.1, 0.2, 0.35, 0.5, 0.7];

/// The best of the runs that `play` plays, each with its margin: the one with most responses in time. A run whose 99th percentile is
/// late must have a tenth more of them.
///
/// # Errors
/// Those of `play`.
pub(crate) fn best(play: impl Fn(Option<f64>) -> Result<RunOutcome, SimError>) -> Result<RunOutcome, SimError> {
    let merit = |run: &RunOutcome| {
        let late = run.counts.completed - run.counts.good;
        let is_late = late as f64 > MAX_LATE_SHARE * run.counts.completed as f64;
        run.counts.good as f64 / if is_late { 1.1 } else { 1.0 }
    };
    let mut best = play(None)?;
    for margin in FIXED {
        let other = play(Some(margin))?;
        if merit(&other) > merit(&best) {
            best = other;
        }
    }
    Ok(best)
}

/// A request that was admitted.
#[derive(Clone, Copy, Debug, Default)]
struct AdmittedRequest {
    path: usize,
    service: Nanos,
    /// Each of its waits without a core takes so many times as long.
    slowness: f64,
    objective: Nanos,
}

/// The oracle of one server.
pub(crate) struct Oracle {
    application: Application,
    /// Cores, less what stalls and quotas take.
    cores: f64,
    slow: Option<SlowPeriod>,
    pauses: Option<Pauses>,
    overhead: Nanos,
    round_trip: Nanos,
    slo: Nanos,
    /// Requests under way.
    in_flight: u32,
    /// CPU time of what is under way, ns.
    work: u64,
    /// The holds of each lock that are under way, ns.
    holds: Vec<u64>,
    /// By path.
    margins: Vec<f64>,
    /// Whether they stay as they are.
    is_fixed: bool,
    /// By slot.
    admitted: Vec<AdmittedRequest>,
}

impl Oracle {
    /// The oracle of a run with `algorithm`, if that is what it is.
    pub(crate) fn from_config(config: &SimConfig, algorithm: &Algorithm) -> Option<Box<Self>> {
        (algorithm.name == ALGORITHM.name).then(|| {
            Box::new(Oracle {
                application: config.application.clone(),
                cores: f64::from(config.server.cores)
                    * ServerModel { pauses: None, ..config.server.clone() }.available(),
                slow: config.server.slow,
                pauses: config.server.pauses,
                overhead: config.server.costs.per_request(),
                round_trip: config.network.rtt + config.network.jitter * 2,
                slo: config.slo,
                in_flight: 0,
                work: 0,
                holds: vec![0; config.application.locks.len()],
                margins: vec![0.0; config.application.paths.len().max(1)],
                is_fixed: false,
                admitted: Vec::new(),
            })
        })
    }

    /// From now on the margin of all paths is this part of the objective.
    pub(crate) fn fix_margin(&mut self, part: f64) {
        self.margins.fill(self.slo.0 as f64 * part);
        self.is_fixed = true;
    }

    /// Whether a request that is issued now will be answered within `objective`. If so, it counts as under way.
    pub(crate) fn admit(&mut self, request: RequestId, service: Nanos, path: u8, objective: Nanos, now: Time) -> bool {
        let path = usize::from(path);
        let admitted = AdmittedRequest { path, service, slowness: SlowPeriod::factor_at(self.slow, now), objective };
        if self.predict(&admitted, now).0 as f64 + self.margins[path] > objective.0 as f64 {
            return false;
        }
        if self.admitted.len() <= request.slot() {
            self.admitted.resize(request.slot() + 1, AdmittedRequest::default());
        }
        self.admitted[request.slot()] = admitted;
        self.in_flight += 1;
        self.work += self.work_of(&admitted);
        self.each_hold(&admitted, |holds, hold| *holds += hold);
        true
    }

    /// Span from the issue to the response.
    fn predict(&self, request: &AdmittedRequest, now: Time) -> Nanos {
        // Those that are executing leave no more work to wait for than the cores can do at once.
        let queued = 1.0 - self.cores / f64::from(self.in_flight.max(1));
        let queue = Nanos((self.work as f64 * queued.max(0.0) / self.cores) as u64);
        // Holds that are under way are worked off while the request is on its way to the lock.
        let mut at = queue + self.overhead;
        for (step, what) in self.steps(request.path).iter().enumerate() {
            match *what {
                Step::Work(_) | Step::Wait(_) => at += self.length(request, step, what),
                Step::Acquire(lock) => at = at.max(Nanos(self.holds[lock])),
                Step::Release(_) => {}
            }
        }
        if self.application.is_plain() {
            at += request.service;
        }
        let span = at + self.round_trip;
        self.pauses.map_or(span, |pauses| paused_end(pauses, now, now + span).since(now))
    }

    /// Span that a request spends at one of its steps.
    fn length(&self, request: &AdmittedRequest, step: usize, what: &Step) -> Nanos {
        let length = self.application.length(request.path, step, request.service);
        if let Step::Wait(_) = what { length.scale(request.slowness) } else { length }
    }

    /// CPU time of a request, ns.
    fn work_of(&self, request: &AdmittedRequest) -> u64 {
        let waits = |(step, what): (usize, &Step)| match what {
            Step::Wait(_) => self.application.length(request.path, step, request.service).0,
            _ => 0,
        };
        let waited: u64 = self.steps(request.path).iter().enumerate().map(waits).sum();
        (request.service + self.overhead).0 - waited
    }

    /// A request that was admitted ends at its client after all: its client sends no more for now, or has given up.
    pub(crate) fn on_client_end(&mut self, request: RequestId) {
        self.remove(request);
    }

    /// A response or a drop leaves the server.
    pub(crate) fn on_departure(&mut self, request: RequestId, issued: Time, now: Time) {
        let AdmittedRequest { path, objective, .. } = self.remove(request);
        if self.is_fixed {
            return;
        }
        let step = self.slo.0 as f64 * STEP;
        let is_late = now.since(issued) + self.round_trip / 2 > objective;
        let change = if is_late { step } else { -step * LATE_ALLOWED };
        self.margins[path] = (self.margins[path] + change).clamp(0.0, self.slo.0 as f64 * MAX_MARGIN);
    }

    /// A request is under way no longer.
    fn remove(&mut self, request: RequestId) -> AdmittedRequest {
        let admitted = self.admitted[request.slot()];
        self.in_flight -= 1;
        self.work -= self.work_of(&admitted);
        self.each_hold(&admitted, |holds, hold| *holds -= hold);
        admitted
    }

    fn steps(&self, path: usize) -> &[Step] {
        self.application.paths.get(path).map_or(&[], |path| &path.steps)
    }

    /// Tells `change` for how long a request has each of its locks.
    fn each_hold(&mut self, request: &AdmittedRequest, change: impl Fn(&mut u64, u64)) {
        let mut held = 0u64;
        for step in 0..self.steps(request.path).len() {
            let what = self.steps(request.path)[step];
            match what {
                Step::Acquire(lock) => held |= 1 << lock,
                Step::Release(lock) => held &= !(1 << lock),
                Step::Work(_) | Step::Wait(_) => {
                    let length = self.length(request, step, &what).0;
                    let is_held = |(lock, _): &(usize, &mut u64)| held >> lock & 1 == 1;
                    self.holds.iter_mut().enumerate().filter(is_held).for_each(|(_, holds)| change(holds, length));
                }
            }
        }
    }
}
