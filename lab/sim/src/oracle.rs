//! The oracle: a bound that admits exactly the requests that will be in time, at no cost.
//!
//! No real algorithm can do this: when a client issues a request, the oracle knows its service
//! time, its path through the locks, and all requests in flight. The gap between another
//! algorithm's goodput and the oracle's is the possible improvement.
//!
//! - **Cores**: if all cores are taken, a request waits for the work admitted before it, which all
//!   cores share.
//! - **Locks**: a request waits at each of its locks for the holds admitted before it.
//! - **Disks and downstream servers** are locks whose holders wait without a core; the oracle knows
//!   when they are slow.
//! - **Margin**: the oracle learns, per path, a margin for effects outside its model (stealing
//!   order, a holder that waits for a core). One late response weighs as much as a thousand in
//!   time.
//! - **Hindsight**: one run uses the learnt margin, further runs use fixed margins, and the best
//!   run counts. Where lateness has another cause than requests (parked cores), a margin only
//!   reduces goodput.
//!
//! Requests of equal objectives are served in the order of their deadlines, so first come, first
//! served is earliest deadline first.

use crate::SimError;
use crate::config::{Pauses, ServerModel, SimConfig, SlowPeriod};
use crate::requests::RequestId;
use crate::stalls::paused_end;
use leeward_core::none;
use leeward_core::registry::{Algorithm, Registry};
use leeward_core::units::{Nanos, Time};
use leeward_outcome::RunOutcome;
use leeward_workload::{Application, Step};

/// Registry entry. Its halves admit everything: the plant asks the oracle before a request leaves
/// its client.
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

/// The algorithms that can be simulated: those of `leeward-controllers`, and the oracle.
pub fn registry() -> Registry {
    let mut registry = leeward_controllers::builtin();
    registry.replace(ALGORITHM);
    registry
}

/// Growth of a path's margin per late response, as a part of the objective. Each response in time
/// shrinks the margin by a thousandth of that ([`LATE_ALLOWED`]).
const STEP: f64 = 0.02;
const LATE_ALLOWED: f64 = 0.001;
/// Maximum share of late responses; the objective is one of the 99th percentile.
const MAX_LATE_SHARE: f64 = 0.01;
/// Maximum margin, as a part of the objective. A larger margin would admit nothing, so the oracle
/// could never learn to reduce it.
const MAX_MARGIN: f64 = 0.9;

/// Margins of the other runs, as parts of the objective. The first one admits everything.
const FIXED: [f64; 7] = [f64::NEG_INFINITY, 0.0, 0.1, 0.2, 0.35, 0.5, 0.7];

/// Calls `play` with the learnt margin and with each fixed margin, and returns the run with most
/// responses in time per second: a run that settles lasts as long as it takes.
///
/// The rate of a run with a late 99th percentile is divided by 1.1.
///
/// # Errors
/// Those of `play`.
pub(crate) fn best(play: impl Fn(Option<f64>) -> Result<RunOutcome, SimError>) -> Result<RunOutcome, SimError> {
    let merit = |run: &RunOutcome| {
        let late = run.counts.completed - run.counts.good;
        let is_late = late as f64 > MAX_LATE_SHARE * run.counts.completed as f64;
        run.counts.good as f64 / run.measured.as_secs_f64() / if is_late { 1.1 } else { 1.0 }
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

/// An admitted request.
#[derive(Clone, Copy, Debug, Default)]
struct AdmittedRequest {
    path: usize,
    service: Nanos,
    /// Factor on each of its waits without a core.
    slowness: f64,
    objective: Nanos,
}

/// The oracle of one server.
pub(crate) struct Oracle {
    application: Application,
    /// Number of cores, less the share that stalls and quotas take.
    cores: f64,
    slow: Option<SlowPeriod>,
    pauses: Option<Pauses>,
    overhead: Nanos,
    round_trip: Nanos,
    slo: Nanos,
    /// Number of requests in flight.
    in_flight: u32,
    /// CPU time of the requests in flight, ns.
    work: u64,
    /// Sum of the holds in flight for each lock, ns.
    holds: Vec<u64>,
    /// Margin of each path, ns.
    margins: Vec<f64>,
    /// Whether the margins are fixed.
    is_fixed: bool,
    /// By slot.
    admitted: Vec<AdmittedRequest>,
}

impl Oracle {
    /// Creates the oracle of a run, if `algorithm` is the oracle.
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

    /// Fixes the margin of all paths to `part` of the objective.
    pub(crate) fn fix_margin(&mut self, part: f64) {
        self.margins.fill(self.slo.0 as f64 * part);
        self.is_fixed = true;
    }

    /// Whether a request issued now will be answered within `objective`. If so, the request counts
    /// as in flight.
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

    /// Predicts the time from issue to response.
    fn predict(&self, request: &AdmittedRequest, now: Time) -> Nanos {
        // The executing requests leave no more work to wait for than the cores can do at once.
        let queued = 1.0 - self.cores / f64::from(self.in_flight.max(1));
        let queue = Nanos((self.work as f64 * queued.max(0.0) / self.cores) as u64);
        // The holds in flight progress while the request is on its way to the lock.
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

    /// Time that a request spends in one of its steps.
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

    /// Removes an admitted request that ends at its client: its client throttles it, or has given
    /// up.
    pub(crate) fn on_client_end(&mut self, request: RequestId) {
        self.remove(request);
    }

    /// Removes a request whose response or rejection leaves the server, and adapts its path's
    /// margin.
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

    /// Removes a request from those in flight.
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

    /// Calls `change` with each of a request's locks' holds and the time for which the request
    /// holds the lock, ns.
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
