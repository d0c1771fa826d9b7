//! Requests that wait for leaves, and what the ends of calls mean to them. Sans I/O. Never here: links, time.

use super::Tag;
use crate::client::{Event, RequestStage};
use crate::tier::gather::Gather;
use crate::tier::gather::attempt::Attempt;
use crate::tier::server::FanoutCounters;
use crate::tier::service::LeafId;
use crate::tier::slab::{Key, Slab};
use crate::wire::{RejectCode, RequestId};
use leeward_core::hedging::HedgingPolicy;
use leeward_core::units::Time;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Requests that wait, and those that wait no more.
pub(super) struct WaitingRequests<S> {
    pub(super) gathers: Slab<Box<Gather<S>>>,
    pub(super) ready: Vec<Box<Gather<S>>>,
    pub(super) hedges: HedgingPolicy,
    /// Legs that were rejected, of calls that another leaf may answer.
    pub(super) rejected: Vec<Tag>,
    /// Calls that nobody waits for any more.
    pub(super) unwanted: Vec<(LeafId, RequestId)>,
    pub(super) counts: Arc<FanoutCounters>,
    /// Now, as far as events are concerned.
    pub(super) now: Time,
}

impl<S> WaitingRequests<S> {
    pub(super) fn new(leaves: usize, counts: &Arc<FanoutCounters>) -> Self {
        WaitingRequests {
            gathers: Slab::new(),
            ready: Vec::new(),
            hedges: HedgingPolicy::new(leaves),
            rejected: Vec::new(),
            unwanted: Vec::new(),
            counts: Arc::clone(counts),
            now: Time::ZERO,
        }
    }

    /// A leg has ended.
    pub(super) fn take(&mut self, event: &Event<'_, Tag>) {
        let tag = *event.token();
        let Some(gather) = self.gathers.get_mut(tag.gather) else {
            // Of a request that has ended, whose place another may have by now.
            self.counts.late.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let Some(leg) = gather.attempts.end(tag.attempt) else { return };
        match event {
            Event::Completed { round_trip, .. } => self.hedges.record_response(usize::from(leg.leaf.0), *round_trip),
            Event::Rejected { .. } => self.hedges.record_rejection(self.now, usize::from(leg.leaf.0)),
            _ => {}
        }
        let is_result = matches!(event, Event::Completed { .. });
        let place = leg.place as usize;
        if gather.attempts.has_second() {
            let twin = gather.attempts.in_flight_for(leg.place);
            match twin {
                // Its twin may have a result yet.
                Some(_) if !is_result => return,
                Some(twin) => {
                    twin.is_done = true;
                    self.unwanted.extend(twin.request.map(|request| (twin.leaf, request)));
                }
                None => {}
            }
        }
        if !is_result && leg.saved_call.is_some() && has_no_effect(event) {
            return self.rejected.push(tag);
        }
        let news = gather.replies.record_event(place, event);
        gather.finish_call(news);
        self.finish_if_enough(tag.gather);
    }

    /// The call of a rejected leg ends without a result.
    pub(super) fn fail_attempt(&mut self, tag: Tag, leg: &Attempt) {
        if let Some(gather) = self.gathers.get_mut(tag.gather) {
            gather.fail_call(leg.place as usize);
            self.finish_if_enough(tag.gather);
        }
    }

    /// The request goes on if it has enough.
    pub(super) fn finish_if_enough(&mut self, key: Key) {
        if self.gathers.get_mut(key).is_some_and(|gather| gather.is_enough()) {
            self.finish(key);
        }
    }

    /// The request goes on with what it has. Legs that may be given up are.
    pub(super) fn finish(&mut self, key: Key) {
        if let Some(mut gather) = self.gathers.remove(key) {
            gather.attempts.cancel_repeatable(|leaf, request| self.unwanted.push((leaf, request)));
            self.ready.push(gather);
        }
    }
}

/// Whether the call was not begun.
fn has_no_effect(event: &Event<'_, Tag>) -> bool {
    match event {
        Event::Rejected { reason, .. } => {
            !matches!(reason, RejectCode::Lock | RejectCode::Other | RejectCode::Cancelled)
        }
        Event::EndedLocally { .. } => true,
        Event::Disconnected { stage: at, .. } => *at == RequestStage::Waiting,
        _ => false,
    }
}
