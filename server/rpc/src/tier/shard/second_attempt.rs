//! Second legs: calls that are made again at another leaf, because the first takes long or was rejected. Never here: whether that is
//! allowed (`leeward_core::hedging`).

use super::{Shard, Tag};
use crate::client::Request;
use crate::tier::gather::attempt::Attempt;
use crate::tier::service::LeafId;
use leeward_core::units::{Priority, Time};
use std::sync::atomic::Ordering;

/// Why a call is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SecondReason {
    Slow,
    Rejected,
}

impl<S> Shard<S> {
    /// Does what followed from events: gives unwanted calls up, and makes others again.
    pub(super) fn follow_up(&mut self, now: Time) {
        while let Some(tag) = self.requests.rejected.pop() {
            self.try_second(tag, SecondReason::Rejected, now);
        }
        while let Some((at, tag)) = self.hedge_deadlines.front().copied() {
            if at > now {
                break;
            }
            self.hedge_deadlines.pop_front();
            let takes_long = |leg: &mut Attempt| !leg.is_done;
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

    fn try_second(&mut self, tag: Tag, why: SecondReason, now: Time) {
        let Some(gather) = self.requests.gathers.get_mut(tag.gather) else { return };
        let Some(leg) = gather.attempts.get_mut(tag.attempt).map(|leg| *leg) else { return };
        let listed = leg.saved_call.and_then(|copy| gather.attempts.saved_calls.get(copy as usize));
        let Some(second) = listed.map(|listed| listed.leaf) else { return };
        let (leaf, other) = (usize::from(leg.leaf.0), usize::from(second.0));
        let (first, to) = (self.links[leaf].allowed(), self.links[other].allowed());
        // Where all that the leaf allows is under way a second call would only wait behind the others: credits show an overload that drops do not.
        let has_room = to > self.links[other].in_flight();
        let hedges = &mut self.requests.hedges;
        let may = has_room
            && match why {
                SecondReason::Slow => hedges.try_hedge(now, (leaf, first), (other, to)),
                SecondReason::Rejected => hedges.try_retry(now, (other, to)),
            };
        match (may, why) {
            (true, _) => self.second_attempt(tag, &leg, why, now),
            (false, SecondReason::Rejected) => self.requests.fail_attempt(tag, &leg),
            (false, SecondReason::Slow) => {}
        }
    }

    fn second_attempt(&mut self, tag: Tag, leg: &Attempt, why: SecondReason, now: Time) {
        let Shard { links, requests: waiting, random, .. } = self;
        let Some(gather) = waiting.gathers.get_mut(tag.gather) else { return };
        let budget = gather.budget();
        // The events of this call may concern its own request.
        let copies = std::mem::take(&mut gather.attempts.saved_calls);
        if let Some(listed) = leg.saved_call.and_then(|copy| copies.get(copy as usize)) {
            let leaf = listed.leaf;
            let number =
                gather.attempts.push_second(Attempt { leaf, saved_call: None, request: None, is_done: false, ..*leg });
            let second = Tag { attempt: number, ..tag };
            let request = Request {
                method: listed.method,
                payload: listed.payload,
                priority: Priority::HIGHEST,
                random: random.draw(),
            };
            let link = &mut links[usize::from(leaf.0)];
            let name = link.submit(now, second, &request, budget, &mut |event| waiting.take(&event));
            if let Some(gather) = waiting.gathers.get_mut(tag.gather)
                && let Some(leg) = gather.attempts.get_mut(number)
            {
                leg.request = name;
            }
            let counts = &waiting.counts;
            let count = if why == SecondReason::Slow { &counts.hedged } else { &counts.retried };
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(gather) = waiting.gathers.get_mut(tag.gather) {
            gather.attempts.saved_calls = copies;
        }
    }
}
