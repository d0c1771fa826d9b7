//! Threading policy inside a running tier: collects its inputs, schedules its decisions and returns
//! the setup that it wants.
//!
//! Does not contain policies (see [`leeward_threading`]).

use leeward_core::units::{Nanos, Rate, Time};
use leeward_threading::{
    ArrivalRing, ArrivalWindow, LatencyWindow, PollSchedule, Setup, ThreadGauges, ThreadSignals, ThreadingPolicy,
    ThreadingSetup,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Requests per latency window, as [`LatencyWindow`] describes.
const WINDOW: usize = 500;

/// A policy and its inputs.
pub(super) struct Governor {
    ring: Arc<ArrivalRing>,
    pace: PollSchedule,
    window: usize,
    cpus: u16,
    slo: Nanos,
    policy: Mutex<PolicyState>,
    /// Arrivals at the policy's last decision.
    last_arrivals: AtomicU64,
    /// Time of the next decision if no request arrives.
    next: AtomicU64,
    /// Latencies of the current window.
    ///
    /// Threads only try the lock: a lost sample does not matter.
    latencies: Mutex<Vec<u64>>,
    /// Whether the setup has changed since the window began.
    is_stale: AtomicBool,
    ended: AtomicU64,
    late: AtomicU64,
}

struct PolicyState {
    policy: Box<dyn ThreadingPolicy>,
    since: Time,
    seen: LatencyWindow,
    rejected: u64,
}

/// State of the tier that the policy reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct TierView {
    pub(super) current: Setup,
    pub(super) oldest: Nanos,
    pub(super) waiting: u64,
    pub(super) received: u64,
    pub(super) rejected: u64,
    pub(super) blocked: usize,
}

impl Governor {
    pub(super) fn new(policy: Box<dyn ThreadingPolicy>, ring: Arc<ArrivalRing>, cpus: u16, slo: Nanos) -> Self {
        let (pace, window) = (policy.poll_schedule(), policy.window());
        let next = Governor::next_decision(pace, &*policy, Time::ZERO);
        let state = PolicyState { policy, since: Time::ZERO, seen: LatencyWindow::default(), rejected: 0 };
        Governor {
            ring,
            pace,
            window,
            cpus,
            slo,
            policy: Mutex::new(state),
            last_arrivals: AtomicU64::new(0),
            next: AtomicU64::new(next.0),
            latencies: Mutex::new(Vec::with_capacity(WINDOW)),
            is_stale: AtomicBool::new(false),
            ended: AtomicU64::new(0),
            late: AtomicU64::new(0),
        }
    }

    fn next_decision(pace: PollSchedule, policy: &dyn ThreadingPolicy, now: Time) -> Time {
        let tick = if let PollSchedule::Periodic(period) = pace { now + period.max(Nanos(1)) } else { Time::NEVER };
        policy.next_timeout().min(tick)
    }

    /// Time of the next decision if no request arrives.
    pub(super) fn next_timeout(&self) -> Time {
        Time(self.next.load(Ordering::Relaxed))
    }

    /// Whether the policy decides whenever a thread blocks or continues.
    pub(super) fn wants_blocking(&self) -> bool {
        self.pace == PollSchedule::Blocking
    }

    /// Runs the policy if a decision is due and no other thread runs it.
    ///
    /// Returns the new setup, or `None` to keep the current one.
    pub(super) fn decide_if_due(&self, now: Time, view: impl FnOnce() -> TierView) -> Option<Setup> {
        let enough_arrivals = match self.pace {
            PollSchedule::Arrivals(every) => {
                self.ring.total().saturating_sub(self.last_arrivals.load(Ordering::Relaxed)) >= u64::from(every)
            }
            PollSchedule::Periodic(_) | PollSchedule::Blocking | PollSchedule::Never => false,
        };
        if enough_arrivals || now >= self.next_timeout() { self.decide(now, view) } else { None }
    }

    /// Runs the policy unless another thread runs it.
    pub(super) fn decide(&self, now: Time, view: impl FnOnce() -> TierView) -> Option<Setup> {
        let mut state = self.policy.try_lock().ok()?;
        self.last_arrivals.store(self.ring.total(), Ordering::Relaxed);
        let view = view();
        let signals = self.signals(now, &view, &state);
        state.rejected = view.rejected;
        let wanted = state.policy.decide(&signals).and_then(|threading| threading.setup());
        self.next.store(Governor::next_decision(self.pace, &*state.policy, now).0, Ordering::Relaxed);
        let wanted = wanted.filter(|setup| *setup != view.current)?;
        state.since = now;
        self.is_stale.store(true, Ordering::Relaxed);
        Some(wanted)
    }

    fn signals(&self, now: Time, view: &TierView, state: &PolicyState) -> ThreadSignals {
        let mut signals = ThreadSignals::idle(now, ThreadingSetup::Setup(view.current));
        let is_blind = self.pace == PollSchedule::Blocking;
        signals.arrivals = if is_blind { ArrivalWindow::EMPTY } else { self.ring.window(self.window) };
        // Rejected requests count as arrivals. Requests that clients hold back for lack of credit
        // are not seen.
        signals.offered = signals.arrivals.rate(self.window, now).unwrap_or(Rate(0.0));
        signals.rejected = view.rejected.saturating_sub(state.rejected);
        signals.oldest_wait = view.oldest;
        signals.waiting = u32::try_from(view.waiting).unwrap_or(u32::MAX);
        signals.completions = self.ended.load(Ordering::Relaxed);
        signals.late = self.late.load(Ordering::Relaxed);
        let in_flight = view.received.saturating_sub(view.rejected + signals.completions + view.waiting);
        signals.in_flight = u32::try_from(in_flight).unwrap_or(u32::MAX);
        signals.blocked = u16::try_from(view.blocked).unwrap_or(u16::MAX);
        signals.runnable = (view.current.threads() as u16).saturating_sub(signals.blocked);
        signals.cpus = self.cpus;
        signals.latencies = state.seen;
        signals.current_since = state.since;
        signals
    }

    /// Records the latency of a request that has ended.
    pub(super) fn record_latency(&self, latency: Nanos) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.late.fetch_add(u64::from(latency > self.slo), Ordering::Relaxed);
        let Ok(mut latencies) = self.latencies.try_lock() else { return };
        if self.is_stale.swap(false, Ordering::Relaxed) {
            latencies.clear();
        }
        latencies.push(latency.0);
        if latencies.len() < WINDOW {
            return;
        }
        // Threads only try the policy's lock, too: a window that finds the lock taken is lost.
        if let Ok(mut state) = self.policy.try_lock() {
            let mut quantile = |permille: usize| {
                let index = (WINDOW * permille / 1_000).min(WINDOW - 1);
                Nanos(*latencies.select_nth_unstable(index).1)
            };
            let (p50, p99) = (quantile(500), quantile(990));
            state.seen = LatencyWindow { window: state.seen.window + 1, samples: WINDOW as u32, p50, p99 };
        }
        latencies.clear();
    }

    fn lock(&self) -> MutexGuard<'_, PolicyState> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The policy's gauges.
    pub(super) fn gauges(&self) -> ThreadGauges {
        self.lock().policy.gauges()
    }
}
