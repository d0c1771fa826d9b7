//! Second legs: calls that are made again at another leaf, because the first takes long or was rejected. Never here: whether that is
//! allowed (`leeward_core::hedging`).

use super::{Shard, Tag};
use crate::client::Request;
use crate::tier::gather::leg::Leg;
use crate::tier::service::LeafId;
use leeward_core::units::{Priority, Time};
use std::sync::atomic::Ordering;

/// Why a call is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    TakesLong,
    Rejected,
}

impl<S> Shard<S> {
    /// Does what followed from events: gives unwanted calls up, and makes others again.
    pub(super) fn follow_up(&mut self, now: Time) {
        while let Some(tag) = self.waiting.rejected.pop() {
            self.again(tag, Why::Rejected, now);
        }
        while let Some((at, tag)) = self.patience.front().copied() {
            if at > now {
                break;
            }
            self.patience.pop_front();
            let takes_long = |leg: &mut Leg| !leg.is_done;
            let gather = self.waiting.gathers.get_mut(tag.gather);
            if gather.and_then(|gather| gather.legs.get_mut(tag.leg)).is_some_and(takes_long) {
                self.again(tag, Why::TakesLong, now);
            }
        }
        while let Some((LeafId(leaf), request)) = self.waiting.unwanted.pop() {
            let Shard { links, waiting, .. } = self;
            let cancelled = links[usize::from(leaf)].cancel(now, request, &mut |event| waiting.take(&event));
            waiting.counts.cancelled.fetch_add(u64::from(cancelled), Ordering::Relaxed);
        }
    }

    fn again(&mut self, tag: Tag, why: Why, now: Time) {
        let Some(gather) = self.waiting.gathers.get_mut(tag.gather) else { return };
        let Some(leg) = gather.legs.get_mut(tag.leg).map(|leg| *leg) else { return };
        let listed = leg.copy.and_then(|copy| gather.legs.copies.get(copy as usize));
        let Some(second) = listed.map(|listed| listed.leaf) else { return };
        let (leaf, other) = (usize::from(leg.leaf.0), usize::from(second.0));
        let (first, to) = (self.links[leaf].allowed(), self.links[other].allowed());
        // Where all that the leaf allows is under way a second call would only wait behind the others: credits show an overload that drops do not.
        let has_room = to > self.links[other].in_flight();
        let hedges = &mut self.waiting.hedges;
        let may = has_room
            && match why {
                Why::TakesLong => hedges.may_hedge(now, (leaf, first), (other, to)),
                Why::Rejected => hedges.may_retry(now, (other, to)),
            };
        match (may, why) {
            (true, _) => self.second_leg(tag, &leg, why, now),
            (false, Why::Rejected) => self.waiting.give_up(tag, &leg),
            (false, Why::TakesLong) => {}
        }
    }

    fn second_leg(&mut self, tag: Tag, leg: &Leg, why: Why, now: Time) {
        let Shard { links, waiting, random, .. } = self;
        let Some(gather) = waiting.gathers.get_mut(tag.gather) else { return };
        let budget = gather.budget();
        // The events of this call may concern its own request.
        let copies = std::mem::take(&mut gather.legs.copies);
        if let Some(listed) = leg.copy.and_then(|copy| copies.get(copy as usize)) {
            let leaf = listed.leaf;
            let number = gather.legs.push_second(Leg { leaf, copy: None, request: None, is_done: false, ..*leg });
            let second = Tag { leg: number, ..tag };
            let request = Request {
                method: listed.method,
                payload: listed.payload,
                priority: Priority::HIGHEST,
                random: random.draw(),
            };
            let link = &mut links[usize::from(leaf.0)];
            let name = link.submit(now, second, &request, budget, &mut |event| waiting.take(&event));
            if let Some(gather) = waiting.gathers.get_mut(tag.gather)
                && let Some(leg) = gather.legs.get_mut(number)
            {
                leg.request = name;
            }
            let counts = &waiting.counts;
            let count = if why == Why::TakesLong { &counts.hedged } else { &counts.retried };
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(gather) = waiting.gathers.get_mut(tag.gather) {
            gather.legs.copies = copies;
        }
    }
}
