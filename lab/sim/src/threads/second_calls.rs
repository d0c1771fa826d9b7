//! Second attempts of slow or rejected calls at another copy, and their costs.
//!
//! The policies in `second_call_state` decide on second attempts.

use super::event::{AttemptNumber, CallAttempt, Event, JobId, Reply, ReplyKind, ReplyReceiver};
use super::jobs::CallTiming;
use super::run::Run;
use super::thread_pool::{ThreadAction, ThreadStep};
use leeward_core::units::Nanos;
use leeward_threading::Fanout;

/// Number of calls that a leaf accepts: unlimited. Credits of leaves are not simulated, but their
/// rejections are.
const ALLOWED: u32 = u32::MAX;

/// Effect of a reply on its request.
pub(super) enum ReplyEffect {
    /// No effect.
    Nothing,
    /// The call has ended.
    Ended,
    /// The call gets a second attempt: CPU time of sending, and the step after it.
    Resend(Nanos, ThreadStep),
}

impl Run<'_> {
    /// Sends a call to its leaf.
    pub(super) fn send_call(&mut self, job: JobId, call: u16, to: ReplyReceiver) {
        // A thread knows only the calls on its own connections, and its own request is the only one
        // there.
        let is_alone = self.jobs[job].fanout == Fanout::Sync && self.tier.leaves.tails.copies > 1;
        let stations = &self.stations;
        let (call_attempt, timing) =
            self.jobs.first_attempt(job, call, |leaf| if is_alone { 0 } else { stations.outstanding(leaf) });
        self.second_calls.counts.calls += 1;
        self.send_attempt(call_attempt, timing, to);
        let Some(rules) = self.second_calls.rules(to) else { return };
        rules.record_call();
        if let Some(span) = rules.hedge_delay(usize::from(call_attempt.leaf)) {
            let reply = Reply { attempt: call_attempt, sent_at: self.now, receiver: to, kind: ReplyKind::HedgeTimeout };
            self.event_queue.schedule(self.now + span, Event::Reply(reply));
        }
    }

    fn send_attempt(&mut self, call: CallAttempt, timing: CallTiming, to: ReplyReceiver) {
        let (at, reply) = self.stations.call(call.leaf, self.now, timing);
        self.event_queue
            .schedule(at, Event::Reply(Reply { attempt: call, sent_at: self.now, receiver: to, kind: reply }));
    }

    /// Applies a reply that a thread has received.
    pub(super) fn apply_reply(&mut self, reply: &Reply) -> ReplyEffect {
        let attempt = reply.attempt;
        if !self.jobs.waits_for(&attempt) {
            return ReplyEffect::Nothing;
        }
        let (leaf, now) = (usize::from(attempt.leaf), self.now);
        if reply.kind == ReplyKind::HedgeTimeout {
            return if self.jobs.is_resent(&attempt) {
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
        let unfinished = self.jobs.end_attempt(&attempt);
        if reply.kind == ReplyKind::Rejected {
            if unfinished > 0 {
                // The call's other attempt may still have a result.
                return ReplyEffect::Nothing;
            }
            if attempt.number == AttemptNumber::First
                && let Some(resend) = self.try_resend(reply)
            {
                return resend;
            }
            self.jobs[attempt.job].is_partial = true;
        }
        self.jobs.end_call(&attempt);
        ReplyEffect::Ended
    }

    /// Begins a second attempt of the call of `reply`, if the policy allows it.
    fn try_resend(&mut self, reply: &Reply) -> Option<ReplyEffect> {
        let other = usize::from(self.jobs.other_leaf(&reply.attempt)?);
        let (first, now) = (usize::from(reply.attempt.leaf), self.now);
        let rules = self.second_calls.rules(reply.receiver)?;
        let takes_long = reply.kind == ReplyKind::HedgeTimeout;
        let is_allowed = if takes_long {
            rules.try_hedge(now, (first, ALLOWED), (other, ALLOWED))
        } else {
            rules.try_retry(now, (other, ALLOWED))
        };
        if !is_allowed {
            return None;
        }
        let (call, timing) = self.jobs.second_attempt(&reply.attempt)?;
        let counts = &mut self.second_calls.counts;
        *(if takes_long { &mut counts.hedged } else { &mut counts.retried }) += 1;
        if let ReplyReceiver::Links(_) = reply.receiver {
            self.async_calls += 1;
        }
        Some(ReplyEffect::Resend(self.send_cost(reply.attempt.job), ThreadStep::Resent(call, timing, reply.receiver)))
    }

    /// Sends the second attempt of a call.
    pub(super) fn on_resent(&mut self, attempt: CallAttempt, timing: CallTiming, to: ReplyReceiver) -> ThreadAction {
        self.send_attempt(attempt, timing, to);
        match to {
            ReplyReceiver::Own(_) => ThreadAction::Compute(Nanos::ZERO, ThreadStep::Gather(attempt.job)),
            ReplyReceiver::Links(_) | ReplyReceiver::Helper(_) => ThreadAction::Compute(Nanos::ZERO, ThreadStep::Poll),
        }
    }
}
