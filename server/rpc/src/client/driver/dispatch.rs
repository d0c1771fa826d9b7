//! Dispatch of calls: the connection for a call, and the effect of its end there: a final outcome
//! or another attempt.
//!
//! A call goes to another connection in two cases:
//!
//! - It was never sent: its connection was lost while it waited, or its controller foresaw a
//!   rejection. That costs no server anything.
//! - A server rejected it before it was begun, another replica is up, and the retry budget allows
//!   it.
//!
//! A call that may have been executed is never sent again.

use leeward_core::client::{LocalOutcome, LocalReason};
use leeward_core::units::{Nanos, Time};

use super::Driver;
use super::call_event::{CallEvent, LinkOutcome};
use super::choice::choose;
use super::socket_connection::ConnectionFailure;
use super::table::CallLocation;
use crate::client::RequestStage;
use crate::client::call::{Outcome, Response};
use crate::client::call_error::{CallError, Effect, effect_of};
use crate::client::counters::count;
use crate::client::datagrams::Transport;
use crate::wire::{FailureCode, RejectCode};

/// Time for which clients avoid a stopping server: by then it has most likely closed the
/// connection.
const STOPPING_AVOIDANCE: Nanos = Nanos::from_secs(1);

impl Driver {
    /// Dispatches a call to a connection, or to a queue for one.
    pub(super) fn dispatch(&mut self, number: u64, now: Time) {
        let Some(call) = self.calls.get(number) else { return };
        if now >= call.deadline {
            // Its time is over before it leaves, so it certainly has no effect.
            let waited = now.since(call.made);
            return self.finish(number, Err(CallError::TimedOut { effect: Effect::Excluded, waited }));
        }
        call.over_tcp = call.over_tcp && self.settings.has_tcp();
        let (excluded, over_tcp) = (call.excluded, call.over_tcp);
        call.location = CallLocation::InTransit;
        if let Some(link) = self.choose(excluded, over_tcp, now) {
            self.submit(number, link, now);
        } else if excluded != 0 {
            // The remaining replicas have rejected the call.
            let reason = self.last_failure();
            self.finish(number, Err(CallError::Disconnected { effect: Effect::Excluded, reason }));
        } else {
            if let Some(call) = self.calls.get(number) {
                call.location = CallLocation::Unassigned;
            }
            if let Some((displaced, _)) = self.unassigned[usize::from(over_tcp)].push(now, number) {
                let waited = self.age(displaced, now);
                self.finish(displaced, Err(CallError::QueueFull { waited }));
            }
        }
    }

    /// Chooses a connection to a replica outside `excluded` (one bit each), over TCP if `over_tcp`.
    ///
    /// Takes a fallback only if there is no other.
    pub(super) fn choose(&mut self, excluded: u64, over_tcp: bool, now: Time) -> Option<usize> {
        let Driver { links, settings, random, up, fallbacks, .. } = self;
        for list in [up, fallbacks] {
            let chosen = if excluded == 0 && !over_tcp {
                choose(list, random, |link| links[link].rank(now))
            } else {
                let fits = |link: &usize| {
                    let replica = links[*link].replica;
                    excluded & bit(replica) == 0
                        && (!over_tcp || settings.replicas[replica].transport == Transport::Tcp)
                };
                let others: Vec<usize> = list.iter().copied().filter(fits).collect();
                choose(&others, random, |link| links[link].rank(now))
            };
            if chosen.is_some() {
                return chosen;
            }
        }
        None
    }

    /// Replicas that a call skips after this link has rejected it, one bit each.
    ///
    /// These are the link's replica and all fallbacks, which may be the same server.
    fn excluded_by(&self, link: usize) -> u64 {
        bit(self.links[link].replica) | self.fallback_bits
    }

    fn submit(&mut self, number: u64, link: usize, now: Time) {
        let Some(call) = self.calls.get(number) else { return };
        let request = self.links[link].submit(now, number, call, self.random.draw(), &mut self.call_events);
        call.location = request.map_or(CallLocation::InTransit, |request| CallLocation::OnLink { link, request });
    }

    /// Handles the connections' events: each call gets its final outcome here, or is dispatched
    /// again.
    ///
    /// A call goes to each replica at most once after rejections, so the loop ends.
    pub(super) fn settle(&mut self, now: Time) {
        while !self.call_events.is_empty() {
            let mut events = std::mem::take(&mut self.call_events);
            for event in events.drain(..) {
                self.settle_event(event, now);
            }
            if self.call_events.is_empty() {
                self.call_events = events;
            }
        }
    }

    fn settle_event(&mut self, event: CallEvent, now: Time) {
        let CallEvent { number, link, outcome: link_outcome } = event;
        let excluded = self.excluded_by(link);
        let is_udp = self.settings.replicas[self.links[link].replica].transport == Transport::Udp;
        let Some(call) = self.calls.get(number) else { return };
        let (latency, retries, length) = (now.since(call.made), call.retries, call.payload.len());
        let outcome = match link_outcome {
            LinkOutcome::Completed { payload, round_trip, sojourn } => {
                self.links[link].record_success();
                let replica = self.links[link].replica;
                // The clocks of two cores may differ slightly.
                let latency = latency.max(round_trip);
                Ok(Response { payload, latency, round_trip, sojourn, replica, retries })
            }
            LinkOutcome::Rejected { reason, words, retry_after, round_trip } => {
                self.links[link].record_success();
                let avoidance = retry_after.max(self.avoidance_after(round_trip));
                self.avoid(link, reason, avoidance, now);
                if self.retry(number, link, reason, retry_after, now) {
                    return;
                }
                let retry_after = (retry_after > Nanos::ZERO).then_some(retry_after);
                Err(CallError::Rejected { reason, message: words, retry_after, waited: latency })
            }
            LinkOutcome::Failed { code: FailureCode::UnknownMethod, words } => {
                Err(CallError::UnknownMethod { message: words })
            }
            LinkOutcome::Failed { code: FailureCode::ResponseTooLarge, .. } => Err(CallError::ResponseTooLarge),
            LinkOutcome::Failed { code: FailureCode::Failed, words } => Err(CallError::Failed { message: words }),
            LinkOutcome::Local(LocalOutcome { reason: LocalReason::Throttled, .. }) => {
                let over_tcp = call.over_tcp;
                let all_excluded = call.excluded | excluded;
                call.excluded = all_excluded;
                if let Some(other) = self.choose(all_excluded, over_tcp, now) {
                    return self.submit(number, other, now);
                }
                Err(CallError::Throttled)
            }
            LinkOutcome::Local(LocalOutcome { reason: LocalReason::Overflow, .. }) => {
                Err(CallError::QueueFull { waited: latency })
            }
            LinkOutcome::Local(_) => Err(CallError::Expired { waited: latency }),
            LinkOutcome::TooLong(_) if is_udp && self.settings.has_tcp() => {
                call.over_tcp = true;
                return self.dispatch(number, now);
            }
            LinkOutcome::TooLong(limit) => Err(CallError::TooLarge { length, limit }),
            LinkOutcome::Disconnected(RequestStage::Waiting) => return self.dispatch(number, now),
            LinkOutcome::Disconnected(RequestStage::Sent) => Err(match self.links[link].failure.clone() {
                ConnectionFailure::Lost(reason) => CallError::Disconnected { effect: Effect::Possible, reason },
                ConnectionFailure::Protocol(violation) => CallError::Protocol { violation },
            }),
        };
        self.finish(number, outcome);
    }

    /// Time for which other replicas are preferred to one that has just rejected.
    ///
    /// A rejecting server responds quickly, so it would look idle and attract more calls. The time
    /// is a random number of its round trips, so that clients do not switch together.
    fn avoidance_after(&mut self, round_trip: Nanos) -> Nanos {
        round_trip * (5 + self.random.below(11))
    }

    /// Prefers other replicas to this link's, over any of its connections, for `span`.
    fn avoid(&mut self, link: usize, reason: RejectCode, span: Nanos, now: Time) {
        let avoidance = if reason == RejectCode::ShuttingDown { STOPPING_AVOIDANCE } else { span };
        let replica = self.links[link].replica;
        for link in self.links.iter_mut().filter(|link| link.replica == replica) {
            link.avoid_until = link.avoid_until.max(now + avoidance);
        }
    }

    /// Sends a rejected call to another replica. Returns whether it did.
    fn retry(&mut self, number: u64, link: usize, reason: RejectCode, retry_after: Nanos, now: Time) -> bool {
        let excluded = self.excluded_by(link);
        let Some(call) = self.calls.get(number) else { return false };
        call.excluded |= excluded;
        let (all_excluded, over_tcp) = (call.excluded, call.over_tcp);
        // "May be sent again, here or elsewhere, after `retry_after`" (docs/protocol.md): the
        // caller follows the hint.
        let worth_it = effect_of(reason) == Effect::Excluded
            && retry_after == Nanos::ZERO
            && call.retries < self.settings.retries_max
            && now.since(call.made) < self.expiry;
        if !worth_it {
            return false;
        }
        let Some(other) = self.choose(all_excluded, over_tcp, now) else { return false };
        if !self.retries.try_withdraw() {
            return false;
        }
        count(&self.shared.counters.retries);
        if let Some(call) = self.calls.get(number) {
            call.retries += 1;
        }
        self.submit(number, other, now);
        true
    }

    /// Removes a call from its location. Returns whether it may have an effect all the same.
    pub(super) fn withdraw(&mut self, number: u64, now: Time) -> Effect {
        let location = self.calls.get(number).map_or(CallLocation::InTransit, |call| call.location);
        match location {
            CallLocation::InTransit => Effect::Excluded,
            CallLocation::Unassigned => {
                for queue in &mut self.unassigned {
                    queue.remove(now, |waiting| *waiting == number);
                }
                Effect::Excluded
            }
            CallLocation::OnLink { link, request } => {
                match self.links[link].cancel(now, request, &mut self.call_events) {
                    Some(RequestStage::Waiting) => Effect::Excluded,
                    Some(RequestStage::Sent) | None => Effect::Possible,
                }
            }
        }
    }

    /// Ends a call whose caller has dropped the future.
    pub(super) fn cancel(&mut self, number: u64, now: Time) {
        self.withdraw(number, now);
        if self.calls.remove(number).is_some() {
            count(&self.shared.counters.cancelled);
            self.shared.inbox.finish_call();
        }
    }

    /// Time since a call was made.
    pub(super) fn age(&mut self, number: u64, now: Time) -> Nanos {
        self.calls.get(number).map_or(Nanos::ZERO, |call| now.since(call.made))
    }

    /// Ends a call with its final outcome. No queue holds it any more.
    pub(super) fn finish(&mut self, number: u64, outcome: Outcome) {
        let Some(call) = self.calls.remove(number) else { return };
        self.shared.counters.record_outcome(&outcome);
        self.shared.inbox.finish_call();
        // The receiver is gone if the future has just been dropped.
        let _ = call.answer.send(outcome);
    }
}

/// Bit of a replica; there are at most 64.
pub(super) fn bit(replica: usize) -> u64 {
    1 << (replica % 64)
}
