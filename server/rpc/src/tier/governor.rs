//! A threading policy inside a running tier: what it is told, when it is asked, and what becomes of its answer. The policies are
//! those of [`leeward_threading`]; none is here.

use leeward_core::units::{Nanos, Rate, Time};
use leeward_threading::{
    ArrivalRing, ArrivalWindow, LatencyWindow, PollSchedule, Setup, ThreadGauges, ThreadSignals, ThreadingPolicy,
    ThreadingSetup,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Requests of a window of latencies, as [`Latencies`] says.
const WINDOW: usize = 500;

/// A policy and its senses.
pub(super) struct Governor {
    ring: Arc<ArrivalRing>,
    pace: PollSchedule,
    window: usize,
    cpus: u16,
    slo: Nanos,
    policy: Mutex<PolicyState>,
    /// Arrivals when the policy was last asked.
    last_arrivals: AtomicU64,
    /// When it is to be asked though nothing comes.
    next: AtomicU64,
    /// A window of latencies that fills up. Its lock is tried, not waited for: a sample more or less is no matter.
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

/// State of the tier that the policy asks for.
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
        let brain = PolicyState { policy, since: Time::ZERO, seen: LatencyWindow::default(), rejected: 0 };
        Governor {
            ring,
            pace,
            window,
            cpus,
            slo,
            policy: Mutex::new(brain),
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

    /// When the policy is to be asked though nothing comes.
    pub(super) fn next_timeout(&self) -> Time {
        Time(self.next.load(Ordering::Relaxed))
    }

    /// Whether it is to be asked whenever a thread blocks or goes on.
    pub(super) fn wants_blocking(&self) -> bool {
        self.pace == PollSchedule::Blocking
    }

    /// Asks the policy if that is due and no other thread is at it. The setup it wants instead of the one that holds.
    pub(super) fn decide_if_due(&self, now: Time, view: impl FnOnce() -> TierView) -> Option<Setup> {
        let has_come = match self.pace {
            PollSchedule::Arrivals(every) => {
                self.ring.total().saturating_sub(self.last_arrivals.load(Ordering::Relaxed)) >= u64::from(every)
            }
            PollSchedule::Periodic(_) | PollSchedule::Blocking | PollSchedule::Never => false,
        };
        if has_come || now >= self.next_timeout() { self.decide(now, view) } else { None }
    }

    /// Asks the policy unless another thread is at it.
    pub(super) fn decide(&self, now: Time, view: impl FnOnce() -> TierView) -> Option<Setup> {
        let mut brain = self.policy.try_lock().ok()?;
        self.last_arrivals.store(self.ring.total(), Ordering::Relaxed);
        let view = view();
        let signals = self.signals(now, &view, &brain);
        brain.rejected = view.rejected;
        let wish = brain.policy.decide(&signals).and_then(|threading| threading.setup());
        self.next.store(Governor::next_decision(self.pace, &*brain.policy, now).0, Ordering::Relaxed);
        let wish = wish.filter(|setup| *setup != view.current)?;
        brain.since = now;
        self.is_stale.store(true, Ordering::Relaxed);
        Some(wish)
    }

    fn signals(&self, now: Time, view: &TierView, brain: &PolicyState) -> ThreadSignals {
        let mut signals = ThreadSignals::idle(now, ThreadingSetup::Setup(view.current));
        let is_blind = self.pace == PollSchedule::Blocking;
        signals.arrivals = if is_blind { ArrivalWindow::EMPTY } else { self.ring.window(self.window) };
        // What was dropped arrived, too. What clients hold back for want of credit is not seen.
        signals.offered = signals.arrivals.rate(self.window, now).unwrap_or(Rate(0.0));
        signals.rejected = view.rejected.saturating_sub(brain.rejected);
        signals.oldest_wait = view.oldest;
        signals.waiting = u32::try_from(view.waiting).unwrap_or(u32::MAX);
        signals.completions = self.ended.load(Ordering::Relaxed);
        signals.late = self.late.load(Ordering::Relaxed);
        let owed = view.received.saturating_sub(view.rejected + signals.completions + view.waiting);
        signals.in_flight = u32::try_from(owed).unwrap_or(u32::MAX);
        signals.blocked = u16::try_from(view.blocked).unwrap_or(u16::MAX);
        signals.runnable = (view.current.threads() as u16).saturating_sub(signals.blocked);
        signals.cpus = self.cpus;
        signals.latencies = brain.seen;
        signals.current_since = brain.since;
        signals
    }

    /// A request has ended after so long.
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
        // The policy's lock is tried, too: a window that finds it taken is lost.
        if let Ok(mut brain) = self.policy.try_lock() {
            let mut quantile = |permille: usize| {
                let place = (WINDOW * permille / 1_000).min(WINDOW - 1);
                Nanos(*latencies.select_nth_unstable(place).1)
            };
            let (p50, p99) = (quantile(500), quantile(990));
            brain.seen = LatencyWindow { window: brain.seen.window + 1, samples: WINDOW as u32, p50, p99 };
        }
        latencies.clear();
    }

    fn lock(&self) -> MutexGuard<'_, PolicyState> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The policy's state.
    pub(super) fn gauges(&self) -> ThreadGauges {
        self.lock().policy.gauges()
    }
}
