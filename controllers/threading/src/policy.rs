//! Questions that a plant puts to a threading policy, and the signals it gives. Never here: any policy, or their list
//! ([`super::registry`]).

use std::sync::Arc;

use super::curves::Curves;
use super::setup::ThreadingSetup;
use super::window::ArrivalWindow;
use leeward_core::params::{ParamError, ParamSpec, Params, RawParam};
use leeward_core::units::{Nanos, Rate, Time};

/// When a policy wants to be asked. Beside that, at [`ThreadingPolicy::next_timeout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollSchedule {
    /// After every so many arrivals, by the thread that recorded the last of them. If another thread is in the policy, nobody waits.
    Arrivals(u16),
    /// Every period.
    Periodic(Nanos),
    /// Whenever a thread has blocked or gone on.
    Blocking,
    /// Never: it has nothing to decide.
    Never,
}

/// Latencies of some hundred requests that began and ended under one setup. The plant closes a window when it has 500 of them, and throws
/// away what it has when the setup changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyWindow {
    /// Windows closed so far; 0: none yet, and nothing here means anything.
    pub window: u64,
    /// Requests in the last of them.
    pub samples: u32,
    /// Their median.
    pub p50: Nanos,
    /// Their 99th percentile.
    pub p99: Nanos,
}

/// Signals that a policy receives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThreadSignals {
    /// Now.
    pub now: Time,
    /// The latest arrivals, [`ThreadingPolicy::window`] of them, requests that were dropped included.
    pub arrivals: ArrivalWindow,
    /// Demand per second: arrivals, drops, and what clients have told that they hold back, as far as the plant knows it, to be served within a
    /// tenth of a second. Arrivals alone are what admission has let come; a policy that knew only these would stay small for ever.
    pub offered: Rate,
    /// The true demand, where a simulator tells. Only `oracle` looks at it.
    pub demand: Option<Rate>,
    /// Requests dropped since the last decision.
    pub rejected: u64,
    /// Age of the oldest request that waits for a thread.
    pub oldest_wait: Nanos,
    /// Requests that wait for a thread.
    pub waiting: u32,
    /// Requests that were begun and have not ended.
    pub in_flight: u32,
    /// Threads with a duty that are blocked, in a queue, the network or a gather.
    pub blocked: u16,
    /// Threads with a duty that are not: running, ready or polling.
    pub runnable: u16,
    /// CPUs that the server may use.
    pub cpus: u16,
    /// Latencies of the last window that was closed.
    pub latencies: LatencyWindow,
    /// Requests that have ended since the plant started.
    pub completions: u64,
    /// Requests of these that took longer than the objective, or were dropped.
    pub late: u64,
    /// CPU time of the server's threads since the last decision, in thousandths of one CPU.
    pub cpu_permille: u32,
    /// The setup that is planned now.
    pub current: ThreadingSetup,
    /// When it was planned.
    pub current_since: Time,
}

impl ThreadSignals {
    /// Nothing has arrived under this setup, which was planned at the start.
    pub fn idle(now: Time, current: ThreadingSetup) -> Self {
        ThreadSignals {
            now,
            arrivals: ArrivalWindow::EMPTY,
            offered: Rate(0.0),
            demand: None,
            rejected: 0,
            oldest_wait: Nanos::ZERO,
            waiting: 0,
            in_flight: 0,
            blocked: 0,
            runnable: 0,
            cpus: 1,
            latencies: LatencyWindow::default(),
            completions: 0,
            late: 0,
            cpu_permille: 0,
            current,
            current_since: Time::ZERO,
        }
    }
}

/// Why a policy wants another setup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SwitchReason {
    /// None: it has never wanted another.
    #[default]
    None,
    /// The estimate of the load is on the other side of a threshold.
    Estimate,
    /// The load is surely more than the setup sustains.
    OverCapacity,
    /// The load is surely where another setup is better.
    Better,
    /// Requests wait for too long, whatever the curves say.
    Backlog,
    /// The number of active threads has crossed the number of CPUs.
    Threads,
    /// To learn how good a neighbour is, or back from there.
    Exploration,
}

impl SwitchReason {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            SwitchReason::None => "none",
            SwitchReason::Estimate => "estimate",
            SwitchReason::OverCapacity => "unsustained",
            SwitchReason::Better => "better",
            SwitchReason::Backlog => "backlog",
            SwitchReason::Threads => "threads",
            SwitchReason::Exploration => "exploring",
        }
    }
}

/// State of a policy, for people.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThreadGauges {
    /// The setup it wants.
    pub current: ThreadingSetup,
    /// Its estimate of the load, where it has one.
    pub rate: Option<Rate>,
    /// The tail latency that its curves predict for that, where they do.
    pub predicted: Option<Nanos>,
    /// Setups it has wanted so far, the first not counted.
    pub switches: u64,
    /// Reason for the last of them.
    pub reason: SwitchReason,
    /// Whether what it sees has been unlike its curves for long.
    pub stale: bool,
    /// The setup that it would explore now, where it learns in the shadow.
    pub shadow: Option<ThreadingSetup>,
}

impl ThreadGauges {
    /// Of a policy that has decided nothing yet.
    pub fn new(current: ThreadingSetup) -> Self {
        ThreadGauges {
            current,
            rate: None,
            predicted: None,
            switches: 0,
            reason: SwitchReason::None,
            stale: false,
            shadow: None,
        }
    }
}

/// A policy of threading. A server has one value of it, which never blocks and never fails.
pub trait ThreadingPolicy: Send {
    /// The setup to begin with.
    fn initial(&self) -> ThreadingSetup;

    /// All setups that it may ever want: the plant has threads for the largest.
    fn choices(&self) -> Vec<ThreadingSetup>;

    /// Times at which the policy wants to be asked.
    fn poll_schedule(&self) -> PollSchedule;

    /// Arrivals that it wants to see, up to [`super::WINDOW_MAX`].
    fn window(&self) -> usize {
        0
    }

    /// The setup that the policy wants now, if it is another than `signals.current`. A late or spurious call does no harm.
    fn decide(&mut self, signals: &ThreadSignals) -> Option<ThreadingSetup>;

    /// When it wants to be asked though nothing happens: silence is news, too. A plant that is late does no harm.
    fn next_timeout(&self) -> Time {
        Time::NEVER
    }

    /// Its state.
    fn gauges(&self) -> ThreadGauges;
}

/// Surroundings of a policy: everything that it can't know by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadEnvironment {
    /// Curves of the setups that it may choose; `None` where nobody has trained any.
    pub curves: Option<Arc<Curves>>,
    /// The setup that `static` is, and with which the others begin where they have no curves.
    pub initial: ThreadingSetup,
    /// CPUs that the server may use.
    pub cpus: u16,
    /// Tail latency that requests may have.
    pub slo: Option<Nanos>,
    /// Queueing delay above which no policy steps down.
    pub target: Nanos,
    /// Time that a switch costs; see `dwell`.
    pub switch_cost: Nanos,
}

impl ThreadEnvironment {
    /// With these curves and nothing else known: 1 ms is a delay.
    pub fn new(curves: Option<Arc<Curves>>, first: ThreadingSetup, cpus: u16) -> Self {
        let (target, switch) = (Nanos::from_millis(1), Nanos::ZERO);
        ThreadEnvironment { curves, initial: first, cpus, slo: None, target, switch_cost: switch }
    }

    /// With an objective: a queueing delay of two fifths of it is too much (Breakwater §5: the default target).
    pub fn with_slo(mut self, slo: Nanos) -> Self {
        self.slo = Some(slo);
        self.target = slo.scale(0.4);
        self
    }
}

/// Makes a policy for these surroundings.
pub type Build = fn(&Params, &ThreadEnvironment) -> Result<Box<dyn ThreadingPolicy>, ParamError>;

/// A policy: its name, what it may be told, and how it is made.
#[derive(Clone, Copy, Debug)]
pub struct PolicySpec {
    /// The name in scenario files and on command lines.
    pub name: &'static str,
    /// Summary of the policy in one line.
    pub summary: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// The parameters it takes.
    pub params: &'static [ParamSpec],
    /// Makes one.
    pub build: Build,
}

impl PolicySpec {
    /// Reads parameters for this policy.
    ///
    /// # Errors
    /// The first that is unknown, of the wrong kind or out of range.
    pub fn params(&self, pairs: &[(&str, RawParam)]) -> Result<Params, ParamError> {
        Params::read(self.params, pairs)
    }

    /// The policy for these surroundings.
    ///
    /// # Errors
    /// Parameters that can't stand together, or curves that are missing.
    pub fn build(
        &self,
        params: &Params,
        environment: &ThreadEnvironment,
    ) -> Result<Box<dyn ThreadingPolicy>, ParamError> {
        (self.build)(params, environment)
    }
}
