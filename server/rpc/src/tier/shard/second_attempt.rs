//! Second attempts: calls sent again to another leaf because the first attempt is slow or was
//! rejected.
//!
//! Does not contain the rules for second attempts (`leeward_core::hedging`).

use super::{Shard, Tag};
use crate::client::Request;
use crate::tier::gather::attempt::Attempt;
use crate::tier::service::LeafId;
use leeward_core::units::{Priority, Time};
use std::sync::atomic::Ordering;

/// Reason for a second attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SecondReason {
    Slow,
    Rejected,
}

impl<S> Shard<S> {
    /// Does the work that follows from events: cancels unwanted calls, and sends others again.
    pub(super) fn follow_up(&mut self, now: Time) {
        while let Some(tag) = self.requests.rejected.pop() {
            self.try_second(tag, SecondReason::Rejected, now);
        }
        while let Some((at, tag)) = self.hedge_deadlines.front().copied() {
            if at > now {
                break;
            }
            self.hedge_deadlines.pop_front();
            let takes_long = |attempt: &mut Attempt| !attempt.is_done;
            let gather = self.requests.gathers.get_mut(tag.gather);
            if gather.and_then(|gather| gather.attempts.get_mut(tag.attempt)).is_some_and(takes_long) {
                self.try_second(tag, SecondReason::Slow, now);
            }
        }
        while let Some((LeafId(leaf), request)) = self.requests.unwanted.pop() {
            let Shard { links, requests: waiting, .. } = self;
            let cancelled = links[usize::from(leaf)].cancel(now, request, &mut |event| waiting.take(&event));
            waiting.counts.cancelled.fetch_add(u64::from(cancelled), Ordering::Relaxed);
        }
    }

    fn try_second(&mut self, tag: Tag, reason: SecondReason, now: Time) {
        let Some(gather) = self.requests.gathers.get_mut(tag.gather) else { return };
        let Some(attempt) = gather.attempts.get_mut(tag.attempt).map(|attempt| *attempt) else { return };
        let call = attempt.saved_call.and_then(|saved| gather.attempts.saved_calls.get(saved as usize));
        let Some(second) = call.map(|call| call.leaf) else { return };
        let (leaf, second_leaf) = (usize::from(attempt.leaf.0), usize::from(second.0));
        let (first_window, second_window) = (self.links[leaf].allowed(), self.links[second_leaf].allowed());
        // A leaf with a full window would only queue the second call: credits show an overload that
        // rejections do not.
        let has_credit = second_window > self.links[second_leaf].in_flight();
        let hedges = &mut self.requests.hedges;
        let may = has_credit
            && match reason {
                SecondReason::Slow => hedges.try_hedge(now, (leaf, first_window), (second_leaf, second_window)),
                SecondReason::Rejected => hedges.try_retry(now, (second_leaf, second_window)),
            };
        match (may, reason) {
            (true, _) => self.second_attempt(tag, &attempt, reason, now),
            (false, SecondReason::Rejected) => self.requests.fail_attempt(tag, &attempt),
            (false, SecondReason::Slow) => {}
        }
    }

    fn second_attempt(&mut self, tag: Tag, attempt: &Attempt, reason: SecondReason, now: Time) {
        let Shard { links, requests: waiting, random, .. } = self;
        let Some(gather) = waiting.gathers.get_mut(tag.gather) else { return };
        let budget = gather.budget();
        // The events of this call may concern its own request.
        let saved_calls = std::mem::take(&mut gather.attempts.saved_calls);
        if let Some(call) = attempt.saved_call.and_then(|saved| saved_calls.get(saved as usize)) {
            let leaf = call.leaf;
            let number = gather.attempts.push_second(Attempt {
                leaf,
                saved_call: None,
                request: None,
                is_done: false,
                ..*attempt
            });
            let second = Tag { attempt: number, ..tag };
            let request = Request {
                method: call.method,
                payload: call.payload,
                priority: Priority::HIGHEST,
                random: random.draw(),
            };
            let link = &mut links[usize::from(leaf.0)];
            let request_id = link.submit(now, second, &request, budget, &mut |event| waiting.take(&event));
            if let Some(gather) = waiting.gathers.get_mut(tag.gather)
                && let Some(attempt) = gather.attempts.get_mut(number)
            {
                attempt.request = request_id;
            }
            let counts = &waiting.counts;
            let count = if reason == SecondReason::Slow { &counts.hedged } else { &counts.retried };
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(gather) = waiting.gathers.get_mut(tag.gather) {
            gather.attempts.saved_calls = saved_calls;
        }
    }
}
