//! Calls that are made again at another copy, because the first takes long or was dropped, and what they cost. When that is allowed is
//! decided by the rules in `hedges`.

use super::event::{AttemptNumber, CallAttempt, Event, JobId, Reply, ReplyKind, ReplyReceiver};
use super::jobs::CallTiming;
use super::run::Run;
use super::thread_pool::{ThreadAction, ThreadStep};
use leeward_core::units::Nanos;
use leeward_threading::Fanout;

/// Calls that a leaf allows here: any number. Credits of leaves are not simulated, their drops are.
const ALLOWED: u32 = u32::MAX;

/// Effect of a call's news on its request.
pub(super) enum ReplyEffect {
    /// None.
    Nothing,
    /// The call has ended.
    Ended,
    /// The call is made again: CPU time of sending, and what follows.
    Resend(Nanos, ThreadStep),
}

impl Run<'_> {
    /// A call is on its way to its leaf.
    pub(super) fn send_call(&mut self, job: JobId, call: u16, to: ReplyReceiver) {
        // A thread knows the calls of its own connections, and its request is the only one there.
        let is_alone = self.jobs[job].fanout == Fanout::Sync && self.tier.leaves.tails.copies > 1;
        let stations = &self.stations;
        let (leg, draw) =
            self.jobs.first_attempt(job, call, |leaf| if is_alone { 0 } else { stations.outstanding(leaf) });
        self.second_calls.counts.calls += 1;
        self.send_attempt(leg, draw, to);
        let Some(rules) = self.second_calls.rules(to) else { return };
        rules.record_call();
        if let Some(span) = rules.hedge_delay(usize::from(leg.leaf)) {
            let reply = Reply { attempt: leg, sent_at: self.now, receiver: to, kind: ReplyKind::HedgeTimeout };
            self.event_queue.schedule(self.now + span, Event::Reply(reply));
        }
    }

    fn send_attempt(&mut self, leg: CallAttempt, draw: CallTiming, to: ReplyReceiver) {
        let (at, news) = self.stations.call(leg.leaf, self.now, draw);
        self.event_queue
            .schedule(at, Event::Reply(Reply { attempt: leg, sent_at: self.now, receiver: to, kind: news }));
    }

    /// The thread that receives a call's news sees what it means.
    pub(super) fn apply_reply(&mut self, reply: &Reply) -> ReplyEffect {
        let leg = reply.attempt;
        if !self.jobs.waits_for(&leg) {
            return ReplyEffect::Nothing;
        }
        let (leaf, now) = (usize::from(leg.leaf), self.now);
        if reply.kind == ReplyKind::HedgeTimeout {
            return if self.jobs.is_resent(&leg) {
                ReplyEffect::Nothing
            } else {
                self.try_resend(reply).unwrap_or(ReplyEffect::Nothing)
            };
        }
        if let Some(rules) = self.second_calls.rules(reply.receiver) {
            match reply.kind {
                ReplyKind::Rejected => rules.record_rejection(now, leaf),
                _ => rules.record_response(leaf, now.since(reply.sent_at)),
            }
        }
        let out = self.jobs.end_attempt(&leg);
        if reply.kind == ReplyKind::Rejected {
            if out > 0 {
                // Its twin may have a result yet.
                return ReplyEffect::Nothing;
            }
            if leg.number == AttemptNumber::First
                && let Some(again) = self.try_resend(reply)
            {
                return again;
            }
            self.jobs[leg.job].is_partial = true;
        }
        self.jobs.end_call(&leg);
        ReplyEffect::Ended
    }

    /// Makes the call of `reply` again, if the rules allow it.
    fn try_resend(&mut self, reply: &Reply) -> Option<ReplyEffect> {
        let other = usize::from(self.jobs.other_leaf(&reply.attempt)?);
        let (first, now) = (usize::from(reply.attempt.leaf), self.now);
        let rules = self.second_calls.rules(reply.receiver)?;
        let takes_long = reply.kind == ReplyKind::HedgeTimeout;
        let may = if takes_long {
            rules.try_hedge(now, (first, ALLOWED), (other, ALLOWED))
        } else {
            rules.try_retry(now, (other, ALLOWED))
        };
        if !may {
            return None;
        }
        let (leg, draw) = self.jobs.second_attempt(&reply.attempt)?;
        let counts = &mut self.second_calls.counts;
        *(if takes_long { &mut counts.hedged } else { &mut counts.retried }) += 1;
        if let ReplyReceiver::Links(_) = reply.receiver {
            self.async_calls += 1;
        }
        Some(ReplyEffect::Resend(self.send_cost(reply.attempt.job), ThreadStep::Resent(leg, draw, reply.receiver)))
    }

    /// A call has been sent again.
    pub(super) fn on_resent(&mut self, leg: CallAttempt, draw: CallTiming, to: ReplyReceiver) -> ThreadAction {
        self.send_attempt(leg, draw, to);
        match to {
            ReplyReceiver::Own(_) => ThreadAction::Compute(Nanos::ZERO, ThreadStep::Gather(leg.job)),
            ReplyReceiver::Links(_) | ReplyReceiver::Helper(_) => ThreadAction::Compute(Nanos::ZERO, ThreadStep::Poll),
        }
    }
}
