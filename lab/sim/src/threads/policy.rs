//! The threading policy in a simulated tier: its inputs, the times of its decisions, and their
//! effects.

use super::event::{Event, ThreadId};
use super::governor::Governor;
use super::run::Run;
use super::thread_pool::ThreadState;
use leeward_core::units::{Nanos, Rate, Time};
use leeward_threading::{ArrivalWindow, PollSchedule, ThreadSignals, ThreadingSetup};

impl Run<'_> {
    /// Records the arrival of a received request. Returns the CPU time of recording, and of
    /// deciding if a decision is due.
    pub(super) fn record_arrival(&mut self) -> Nanos {
        let Some(governor) = &mut self.governor else { return Nanos::ZERO };
        governor.ring.record(self.now);
        let PollSchedule::Arrivals(every) = governor.pace else { return self.costs.record };
        governor.arrivals += 1;
        if governor.arrivals < every {
            return self.costs.record;
        }
        governor.arrivals = 0;
        self.costs.record + self.costs.decide + self.ask_policy()
    }

    /// Asks the policy for a setup and applies it. Returns the CPU time of a change of setup.
    pub(super) fn ask_policy(&mut self) -> Nanos {
        let Some(mut governor) = self.governor.take() else { return Nanos::ZERO };
        let signals = self.signals(&mut governor);
        let choice = governor.policy.decide(&signals);
        (governor.last_decision, governor.busy_at_decision, governor.blocking_changed) =
            (self.now, self.cpus.accounting.busy, false);
        let at = governor.policy.next_timeout();
        governor.timer_id = governor.timer_id.wrapping_add(1);
        if at != Time::NEVER {
            self.event_queue.schedule(at.max(self.now + Nanos(1)), Event::AskPolicy(governor.timer_id));
        }
        let choice = choice.and_then(|threading| threading.setup()).filter(|setup| *setup != self.plan.setup);
        if choice.is_some() {
            governor.setup_since = self.now;
            governor.latencies.clear();
        }
        self.governor = Some(governor);
        choice.map_or(Nanos::ZERO, |setup| {
            self.outcome.switches += 1;
            self.apply(setup)
        })
    }

    /// Handles the policy's timer.
    pub(super) fn on_policy_timer(&mut self, ask: u32) {
        if self.governor.as_ref().is_some_and(|governor| governor.timer_id == ask) {
            // No thread pays for it: the simulation leaves open which thread reads the clock.
            self.ask_policy();
        }
    }

    /// Handles the end of the policy's period.
    pub(super) fn policy_tick(&mut self) {
        self.ask_policy();
        if let Some(period) = self.governor.as_ref().and_then(Governor::period) {
            self.event_queue.schedule(self.now + period, Event::Tick);
        }
    }

    fn signals(&mut self, governor: &mut Governor) -> ThreadSignals {
        let now = self.now;
        let mut signals = ThreadSignals::idle(now, ThreadingSetup::Setup(self.plan.setup));
        signals.arrivals = if governor.pace == PollSchedule::Blocking {
            ArrivalWindow::EMPTY
        } else {
            governor.ring.window(governor.window)
        };
        signals.offered = signals.arrivals.rate(governor.window, now).unwrap_or(Rate(0.0));
        if let Some(admission) = &mut self.admission {
            signals.offered.0 += admission.held_back().0;
            signals.rejected = admission.take_rejected();
        }
        let started = self.config.workload.demand.iter().rev().find(|segment| segment.from.0 <= now.0);
        signals.demand = started.map(|segment| segment.rate);
        signals.oldest_wait = self.oldest_age();
        let waiting = self.fronts.iter().map(|front| front.unread.len()).sum::<usize>() + self.queue.len();
        signals.waiting = waiting as u32;
        signals.in_flight = (self.jobs.len() - waiting) as u32;
        let pool = self.threads.iter().take(self.pool_size);
        let (mut blocked, mut runnable) = (0, 0);
        for thread in pool {
            match thread.state {
                ThreadState::Parked => {}
                ThreadState::Busy | ThreadState::PollingFront | ThreadState::PollingLinks => runnable += 1,
                ThreadState::AsleepAtFront
                | ThreadState::AsleepAtLinks
                | ThreadState::AsleepAtQueue
                | ThreadState::Blocked => blocked += 1,
            }
        }
        (signals.blocked, signals.runnable) = (blocked, runnable);
        signals.cpus = self.tier.cpus as u16;
        signals.latencies = governor.window_latencies;
        (signals.completions, signals.late) = (governor.ended, governor.late);
        let span = now.since(governor.last_decision).0.max(1);
        let busy = (self.cpus.accounting.busy - governor.busy_at_decision) * 1_000 / u128::from(span);
        signals.cpu_permille = u32::try_from(busy).unwrap_or(u32::MAX);
        signals.current_since = governor.setup_since;
        signals
    }

    /// Records that a pool thread has gone to sleep or been woken.
    pub(super) fn mark_blocking_changed(&mut self, thread: ThreadId) {
        if let Some(governor) = &mut self.governor
            && (thread as usize) < self.pool_size
        {
            governor.blocking_changed = true;
        }
    }
}
