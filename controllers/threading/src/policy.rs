//! Interface between a plant and a threading policy: calls and signals. Does not contain policies,
//! or their list ([`super::registry`]).

use std::sync::Arc;

use super::curves::Curves;
use super::setup::ThreadingSetup;
use super::window::ArrivalWindow;
use leeward_core::params::{ParamError, ParamSpec, Params, RawParam};
use leeward_core::units::{Nanos, Rate, Time};

/// Times at which a plant calls a policy, besides [`ThreadingPolicy::next_timeout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollSchedule {
    /// After this number of arrivals, by the thread that recorded the last of them. If another
    /// thread is in the policy, the call is skipped.
    Arrivals(u16),
    /// Every period.
    Periodic(Nanos),
    /// Each time a thread blocks or resumes.
    Blocking,
    /// Never: the policy has nothing to decide.
    Never,
}

/// Latencies of a window of requests that began and ended under one setup. The plant closes a
/// window at 500 requests, and discards an open one when the setup changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyWindow {
    /// Windows closed so far; with 0 the other fields have no meaning.
    pub window: u64,
    /// Requests in the last closed window.
    pub samples: u32,
    /// Median of these requests' latencies.
    pub p50: Nanos,
    /// 99th percentile of these requests' latencies.
    pub p99: Nanos,
}

/// Input of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThreadSignals {
    /// Now.
    pub now: Time,
    /// The latest arrivals, [`ThreadingPolicy::window`] of them, including rejected requests.
    pub arrivals: ArrivalWindow,
    /// Demand per second: arrivals including rejected requests, and the demand that clients report
    /// as held back, to be served within a tenth of a second. The plant may not know all of it.
    /// Arrivals alone are limited by admission. A policy that knew only these would stay at a small
    /// setup for ever.
    pub offered: Rate,
    /// The true demand, in a simulator. Only `oracle` reads it.
    pub demand: Option<Rate>,
    /// Requests rejected since the last decision.
    pub rejected: u64,
    /// Age of the oldest request that waits for a thread.
    pub oldest_wait: Nanos,
    /// Requests that wait for a thread.
    pub waiting: u32,
    /// Requests that have begun and not ended.
    pub in_flight: u32,
    /// Threads with a role that are blocked, in a queue, the network or a gather.
    pub blocked: u16,
    /// Threads with a role that are running, ready or polling.
    pub runnable: u16,
    /// CPUs that the server may use.
    pub cpus: u16,
    /// Latencies of the last closed window.
    pub latencies: LatencyWindow,
    /// Requests that have ended since the plant started.
    pub completions: u64,
    /// Ended requests that took longer than the objective or were rejected.
    pub late: u64,
    /// CPU time of the server's threads since the last decision, in thousandths of one CPU.
    pub cpu_permille: u32,
    /// The planned setup.
    pub current: ThreadingSetup,
    /// Time at which it was planned.
    pub current_since: Time,
}

impl ThreadSignals {
    /// Signals without arrivals, under a setup planned at the start.
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

/// Reason for a change of the setup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SwitchReason {
    /// None: the policy has not changed the setup.
    #[default]
    None,
    /// The estimated load is on the other side of a threshold.
    Estimate,
    /// The load surely exceeds the setup's maximum.
    OverCapacity,
    /// The load is surely in a range where another setup is better.
    Better,
    /// Requests wait for too long, in spite of the curves' prediction.
    Backlog,
    /// The number of active threads has crossed the number of CPUs.
    Threads,
    /// A trial of a neighbouring setup, or the return from it.
    Exploration,
}

impl SwitchReason {
    /// Returns the name for people.
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
    /// The preferred setup.
    pub current: ThreadingSetup,
    /// Estimated load, if the policy estimates it.
    pub rate: Option<Rate>,
    /// Tail latency that the curves predict at this load, if they do.
    pub predicted: Option<Nanos>,
    /// Changes of the preferred setup so far.
    pub switches: u64,
    /// Reason for the last change.
    pub reason: SwitchReason,
    /// Whether measured latencies have differed from the curves for long.
    pub stale: bool,
    /// The setup that the policy would try now, if it learns in shadow mode.
    pub shadow: Option<ThreadingSetup>,
}

impl ThreadGauges {
    /// State of a policy that has decided nothing yet.
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

/// A threading policy. A server has one, which never blocks and never fails.
pub trait ThreadingPolicy: Send {
    /// Returns the initial setup.
    fn initial(&self) -> ThreadingSetup;

    /// Returns all setups that the policy may choose; the plant has threads for the largest.
    fn choices(&self) -> Vec<ThreadingSetup>;

    /// Returns the times at which the plant calls [`ThreadingPolicy::decide`].
    fn poll_schedule(&self) -> PollSchedule;

    /// Number of arrivals in the policy's input, up to [`super::WINDOW_MAX`].
    fn window(&self) -> usize {
        0
    }

    /// Returns the preferred setup if it differs from `signals.current`. A late or spurious call
    /// does no harm.
    fn decide(&mut self, signals: &ThreadSignals) -> Option<ThreadingSetup>;

    /// Time of the next call without arrivals: a silence also changes the estimate. A late call
    /// does no harm.
    fn next_timeout(&self) -> Time {
        Time::NEVER
    }

    /// Returns the policy's state.
    fn gauges(&self) -> ThreadGauges;
}

/// Given conditions of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadEnvironment {
    /// Curves of the setups to choose from; `None` without training.
    pub curves: Option<Arc<Curves>>,
    /// The setup of `static`, and the initial one of policies without curves.
    pub initial: ThreadingSetup,
    /// CPUs that the server may use.
    pub cpus: u16,
    /// Objective for the tail latency of requests.
    pub slo: Option<Nanos>,
    /// Queueing delay above which no policy steps down.
    pub target: Nanos,
    /// Time that a switch costs; see the parameter `dwell`.
    pub switch_cost: Nanos,
}

impl ThreadEnvironment {
    /// Creates an environment of these curves, with a delay target of 1 ms and no objective.
    pub fn new(curves: Option<Arc<Curves>>, first: ThreadingSetup, cpus: u16) -> Self {
        let (target, switch) = (Nanos::from_millis(1), Nanos::ZERO);
        ThreadEnvironment { curves, initial: first, cpus, slo: None, target, switch_cost: switch }
    }

    /// Sets the objective, and the delay target to two fifths of it (Breakwater §5: the default
    /// target).
    pub fn with_slo(mut self, slo: Nanos) -> Self {
        self.slo = Some(slo);
        self.target = slo.scale(0.4);
        self
    }
}

/// Function that builds a policy for an environment.
pub type Build = fn(&Params, &ThreadEnvironment) -> Result<Box<dyn ThreadingPolicy>, ParamError>;

/// A policy: its name, its parameters, and the function that builds it.
#[derive(Clone, Copy, Debug)]
pub struct PolicySpec {
    /// The name in scenario files and on command lines.
    pub name: &'static str,
    /// Summary of the policy in one line.
    pub summary: &'static str,
    /// Publication of the policy.
    pub source: &'static str,
    /// The parameters it takes.
    pub params: &'static [ParamSpec],
    /// Builds the policy.
    pub build: Build,
}

impl PolicySpec {
    /// Reads parameters for this policy.
    ///
    /// # Errors
    /// The first parameter that is unknown, of the wrong kind or out of range.
    pub fn params(&self, pairs: &[(&str, RawParam)]) -> Result<Params, ParamError> {
        Params::read(self.params, pairs)
    }

    /// Builds the policy for this environment.
    ///
    /// # Errors
    /// Parameters that conflict with each other, or missing curves.
    pub fn build(
        &self,
        params: &Params,
        environment: &ThreadEnvironment,
    ) -> Result<Box<dyn ThreadingPolicy>, ParamError> {
        (self.build)(params, environment)
    }
}
