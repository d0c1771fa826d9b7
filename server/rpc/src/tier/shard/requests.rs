//! Requests that wait for leaves, and the effect of ended calls on them.
//!
//! Does no I/O. Does not contain links or time.

use super::Tag;
use crate::client::{Event, RequestStage};
use crate::tier::gather::Gather;
use crate::tier::gather::attempt::Attempt;
use crate::tier::server::FanoutCounters;
use crate::tier::service::{LeafError, LeafId};
use crate::tier::slab::{Key, Slab};
use crate::wire::{RejectCode, RequestId};
use leeward_core::hedging::HedgingPolicy;
use leeward_core::units::Time;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Waiting requests, and requests that are ready.
pub(super) struct WaitingRequests<S> {
    pub(super) gathers: Slab<Box<Gather<S>>>,
    pub(super) ready: Vec<Box<Gather<S>>>,
    pub(super) hedges: HedgingPolicy,
    /// Rejected attempts of calls that another leaf may answer.
    pub(super) rejected: Vec<Tag>,
    /// Calls whose replies no request needs any more.
    pub(super) unwanted: Vec<(LeafId, RequestId)>,
    pub(super) counts: Arc<FanoutCounters>,
    /// Time of the current events.
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

    /// Records the end of an attempt.
    pub(super) fn take(&mut self, event: &Event<'_, Tag>) {
        let tag = *event.token();
        let Some(gather) = self.gathers.get_mut(tag.gather) else {
            // The request has ended, and another may use its slot by now.
            self.counts.late.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let Some(attempt) = gather.attempts.end(tag.attempt) else { return };
        match event {
            Event::Completed { round_trip, .. } => {
                self.hedges.record_response(usize::from(attempt.leaf.0), *round_trip)
            }
            Event::Rejected { .. } => self.hedges.record_rejection(self.now, usize::from(attempt.leaf.0)),
            _ => {}
        }
        let is_result = matches!(event, Event::Completed { .. });
        let place = attempt.place as usize;
        if gather.attempts.has_second() {
            let other = gather.attempts.in_flight_for(attempt.place);
            match other {
                // The other attempt may still have a result.
                Some(_) if !is_result => return,
                Some(other) => {
                    other.is_done = true;
                    self.unwanted.extend(other.request.map(|request| (other.leaf, request)));
                }
                None => {}
            }
        }
        if !is_result && attempt.saved_call.is_some() && has_no_effect(event) {
            return self.rejected.push(tag);
        }
        let outcome = gather.replies.record_event(place, event);
        gather.finish_call(outcome);
        self.finish_if_enough(tag.gather);
    }

    /// Ends the call of a rejected attempt without a result.
    pub(super) fn fail_attempt(&mut self, tag: Tag, attempt: &Attempt) {
        if let Some(gather) = self.gathers.get_mut(tag.gather) {
            gather.fail_call(attempt.place as usize, LeafError::Invalid);
            self.finish_if_enough(tag.gather);
        }
    }

    /// Makes the request ready if it has enough results.
    pub(super) fn finish_if_enough(&mut self, key: Key) {
        if self.gathers.get_mut(key).is_some_and(|gather| gather.is_enough()) {
            self.finish(key);
        }
    }

    /// Makes the request ready with the replies that it has, and cancels its repeatable attempts.
    pub(super) fn finish(&mut self, key: Key) {
        if let Some(mut gather) = self.gathers.remove(key) {
            gather.attempts.cancel_repeatable(|leaf, request| self.unwanted.push((leaf, request)));
            self.ready.push(gather);
        }
    }
}

/// Whether the leaf has not begun the call.
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
