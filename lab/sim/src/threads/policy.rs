//! A threading policy inside a simulated tier: what it is told, when it is asked, and what becomes of its answer.

use super::crew::Place;
use super::event::{Event, ThreadId};
use super::governor::Governor;
use super::run::Run;
use leeward_core::units::{Nanos, Rate, Time};
use leeward_threading::{ArrivalWindow, Pace, ThreadSignals, Threading};

impl Run<'_> {
    /// A thread has received a request. CPU time that recording, and perhaps deciding, take it.
    pub(super) fn arrival_is_recorded(&mut self) -> Nanos {
        let Some(governor) = &mut self.governor else { return Nanos::ZERO };
        governor.ring.record(self.now);
        let Pace::Arrivals(every) = governor.pace else { return self.costs.record };
        governor.counted += 1;
        if governor.counted < every {
            return self.costs.record;
        }
        governor.counted = 0;
        self.costs.record + self.costs.decide + self.ask_policy()
    }

    /// Asks the policy and does what it wants. CPU time of a change of setup.
    pub(super) fn ask_policy(&mut self) -> Nanos {
        let Some(mut governor) = self.governor.take() else { return Nanos::ZERO };
        let signals = self.signals(&mut governor);
        let wish = governor.policy.decide(&signals);
        (governor.asked, governor.busy_then, governor.stirred) = (self.now, self.cpus.books.busy, false);
        let at = governor.policy.next_timeout();
        governor.ask = governor.ask.wrapping_add(1);
        if at != Time::NEVER {
            self.agenda.schedule(at.max(self.now + Nanos(1)), Event::Ask(governor.ask));
        }
        let wish = wish.and_then(|threading| threading.setup()).filter(|setup| *setup != self.plan.setup);
        if wish.is_some() {
            governor.since = self.now;
            governor.latencies.clear();
        }
        self.governor = Some(governor);
        wish.map_or(Nanos::ZERO, |setup| {
            self.outcome.switches += 1;
            self.apply(setup)
        })
    }

    /// The policy wanted to be asked now.
    pub(super) fn ask_is_due(&mut self, ask: u32) {
        if self.governor.as_ref().is_some_and(|governor| governor.ask == ask) {
            // No thread is charged: which one looks at the clock is the real server's business.
            self.ask_policy();
        }
    }

    /// The policy's period is over.
    pub(super) fn policy_tick(&mut self) {
        self.ask_policy();
        if let Some(period) = self.governor.as_ref().and_then(Governor::period) {
            self.agenda.schedule(self.now + period, Event::Tick);
        }
    }

    fn signals(&mut self, governor: &mut Governor) -> ThreadSignals {
        let now = self.now;
        let mut signals = ThreadSignals::idle(now, Threading::Setup(self.plan.setup));
        signals.arrivals =
            if governor.pace == Pace::Blocking { ArrivalWindow::EMPTY } else { governor.ring.window(governor.window) };
        signals.offered = signals.arrivals.rate(governor.window, now).unwrap_or(Rate(0.0));
        if let Some(admission) = &mut self.admission {
            signals.offered.0 += admission.held_back().0;
            signals.dropped = admission.drops_since();
        }
        let started = self.config.workload.demand.iter().rev().find(|segment| segment.from.0 <= now.0);
        signals.demand = started.map(|segment| segment.rate);
        signals.oldest = self.oldest();
        let waiting = self.fronts.iter().map(|front| front.unread.len()).sum::<usize>() + self.queue.len();
        signals.waiting = waiting as u32;
        signals.in_flight = (self.jobs.len() - waiting) as u32;
        let crew = self.threads.iter().take(self.crew);
        let (mut blocked, mut runnable) = (0, 0);
        for thread in crew {
            match thread.place {
                Place::Parked => {}
                Place::Busy | Place::PollsFront | Place::PollsLinks => runnable += 1,
                Place::AtFront | Place::AtLinks | Place::AtQueue | Place::Held => blocked += 1,
            }
        }
        (signals.blocked, signals.runnable) = (blocked, runnable);
        signals.cpus = self.tier.cpus as u16;
        signals.seen = governor.seen;
        (signals.ended, signals.late) = (governor.ended, governor.late);
        let span = now.since(governor.asked).0.max(1);
        let busy = (self.cpus.books.busy - governor.busy_then) * 1_000 / u128::from(span);
        signals.cpu_permille = u32::try_from(busy).unwrap_or(u32::MAX);
        signals.since = governor.since;
        signals
    }

    /// A thread of the crew has gone to sleep or been woken.
    pub(super) fn stir(&mut self, thread: ThreadId) {
        if let Some(governor) = &mut self.governor
            && (thread as usize) < self.crew
        {
            governor.stirred = true;
        }
    }
}
