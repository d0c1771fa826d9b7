//! Calls that are made again at another copy, because the first takes long or was dropped, and what they cost. When that is allowed is
//! decided by the rules in `hedges`.

use super::crew::{Doing, Next};
use super::event::{Event, JobId, Leg, News, Reply, Route, Turn};
use super::jobs::Draw;
use super::run::Run;
use leeward_core::units::Nanos;
use leeward_threading::Fanout;

/// Calls that a leaf allows here: any number. Credits of leaves are not simulated, their drops are.
const ALLOWED: u32 = u32::MAX;

/// Effect of a call's news on its request.
pub(super) enum Heard {
    /// None.
    Nothing,
    /// The call has ended.
    Ended,
    /// The call is made again: CPU time of sending, and what follows.
    Again(Nanos, Doing),
}

impl Run<'_> {
    /// A call is on its way to its leaf.
    pub(super) fn leaves(&mut self, job: JobId, call: u16, to: Route) {
        // A thread knows the calls of its own connections, and its request is the only one there.
        let is_alone = self.jobs[job].fanout == Fanout::Sync && self.tier.leaves.tails.copies > 1;
        let stations = &self.stations;
        let (leg, draw) = self.jobs.first_leg(job, call, |leaf| if is_alone { 0 } else { stations.out(leaf) });
        self.seconds.counts.calls += 1;
        self.leg_leaves(leg, draw, to);
        let Some(rules) = self.seconds.rules(to) else { return };
        rules.called();
        if let Some(span) = rules.patience(usize::from(leg.leaf)) {
            let reply = Reply { leg, left: self.now, to, news: News::TakesLong };
            self.agenda.schedule(self.now + span, Event::Reply(reply));
        }
    }

    fn leg_leaves(&mut self, leg: Leg, draw: Draw, to: Route) {
        let (at, news) = self.stations.call(leg.leaf, self.now, draw);
        self.agenda.schedule(at, Event::Reply(Reply { leg, left: self.now, to, news }));
    }

    /// The thread that receives a call's news sees what it means.
    pub(super) fn heard(&mut self, reply: &Reply) -> Heard {
        let leg = reply.leg;
        if !self.jobs.waits_for(&leg) {
            return Heard::Nothing;
        }
        let (leaf, now) = (usize::from(leg.leaf), self.now);
        if reply.news == News::TakesLong {
            return if self.jobs.is_twice(&leg) { Heard::Nothing } else { self.again(reply).unwrap_or(Heard::Nothing) };
        }
        if let Some(rules) = self.seconds.rules(reply.to) {
            match reply.news {
                News::Dropped => rules.dropped(now, leaf),
                _ => rules.answered(leaf, now.since(reply.left)),
            }
        }
        let out = self.jobs.leg_ended(&leg);
        if reply.news == News::Dropped {
            if out > 0 {
                // Its twin may have a result yet.
                return Heard::Nothing;
            }
            if leg.turn == Turn::First
                && let Some(again) = self.again(reply)
            {
                return again;
            }
            self.jobs[leg.job].is_partial = true;
        }
        self.jobs.call_ended(&leg);
        Heard::Ended
    }

    /// Makes the call of `reply` again, if the rules allow it.
    fn again(&mut self, reply: &Reply) -> Option<Heard> {
        let other = usize::from(self.jobs.other(&reply.leg)?);
        let (first, now) = (usize::from(reply.leg.leaf), self.now);
        let rules = self.seconds.rules(reply.to)?;
        let takes_long = reply.news == News::TakesLong;
        let may = if takes_long {
            rules.may_hedge(now, (first, ALLOWED), (other, ALLOWED))
        } else {
            rules.may_retry(now, (other, ALLOWED))
        };
        if !may {
            return None;
        }
        let (leg, draw) = self.jobs.second_leg(&reply.leg)?;
        let counts = &mut self.seconds.counts;
        *(if takes_long { &mut counts.hedged } else { &mut counts.retried }) += 1;
        if let Route::Links(_) = reply.to {
            self.async_calls += 1;
        }
        Some(Heard::Again(self.send_cost(reply.leg.job), Doing::Resent(leg, draw, reply.to)))
    }

    /// A call has been sent again.
    pub(super) fn resent(&mut self, leg: Leg, draw: Draw, to: Route) -> Next {
        self.leg_leaves(leg, draw, to);
        match to {
            Route::Own(_) => Next::Compute(Nanos::ZERO, Doing::Gathers(leg.job)),
            Route::Links(_) | Route::Helper(_) => Next::Compute(Nanos::ZERO, Doing::Turn),
        }
    }
}
