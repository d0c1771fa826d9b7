//! Dispatch of calls: the connection that a call goes to, and what its end there means: its end, or another attempt.
//!
//! A call goes to another connection in two cases. It was never sent (its connection was lost while it waited, or its
//! controller foresaw a rejection): that costs no server anything. Or a server rejected it before it was begun, another
//! replica is up, and the retry budget allows it. What may have been executed is never sent again.

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

/// A server that is about to stop is left alone for so long: until it has closed the connection, most likely.
const STOPPING_AVOIDANCE: Nanos = Nanos::from_secs(1);

impl Driver {
    /// Sends a call on its way: to a connection, or to wait for one.
    pub(super) fn dispatch(&mut self, number: u64, now: Time) {
        let Some(call) = self.calls.get(number) else { return };
        call.over_tcp = call.over_tcp && self.settings.has_tcp();
        let (refused_by, by_stream) = (call.excluded, call.over_tcp);
        call.location = CallLocation::InTransit;
        if let Some(link) = self.choose(refused_by, by_stream, now) {
            self.submit(number, link, now);
        } else if refused_by != 0 {
            // Those that are left have refused it.
            let reason = self.last_failure();
            self.finish(number, Err(CallError::Disconnected { effect: Effect::Excluded, reason }));
        } else {
            if let Some(call) = self.calls.get(number) {
                call.location = CallLocation::Unassigned;
            }
            if let Some((displaced, _)) = self.unassigned[usize::from(by_stream)].push(now, number) {
                let waited = self.age(displaced, now);
                self.finish(displaced, Err(CallError::QueueFull { waited }));
            }
        }
    }

    /// A connection to a replica that is not `excluded` (a bit each), over TCP if it is to be. A fallback where there is no other.
    pub(super) fn choose(&mut self, excluded: u64, by_stream: bool, now: Time) -> Option<usize> {
        let Driver { links, settings, random, up, fallbacks, .. } = self;
        for list in [up, fallbacks] {
            let chosen = if excluded == 0 && !by_stream {
                choose(list, random, |link| links[link].rank(now))
            } else {
                let fits = |link: &usize| {
                    let replica = links[*link].replica;
                    excluded & bit(replica) == 0
                        && (!by_stream || settings.replicas[replica].transport == Transport::Tcp)
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

    /// The replicas that are not asked any more when this link's has refused a call, a bit each: itself, and fallbacks, which may be
    /// the same server.
    fn excluded_by(&self, link: usize) -> u64 {
        bit(self.links[link].replica) | self.fallback_bits
    }

    fn submit(&mut self, number: u64, link: usize, now: Time) {
        let Some(call) = self.calls.get(number) else { return };
        let request = self.links[link].submit(now, number, call, self.random.draw(), &mut self.call_events);
        call.location = request.map_or(CallLocation::InTransit, |request| CallLocation::OnLink { link, request });
    }

    /// Takes in what the connections have said. Each call's end is decided here, or it is sent on its way again; a call goes
    /// to each replica at most once for being refused, so this ends.
    pub(super) fn settle(&mut self, now: Time) {
        while !self.call_events.is_empty() {
            let mut notes = std::mem::take(&mut self.call_events);
            for note in notes.drain(..) {
                self.settle_event(note, now);
            }
            if self.call_events.is_empty() {
                self.call_events = notes;
            }
        }
    }

    fn settle_event(&mut self, note: CallEvent, now: Time) {
        let CallEvent { number, link, outcome: end } = note;
        let refused = self.excluded_by(link);
        let is_far = self.settings.replicas[self.links[link].replica].transport == Transport::Udp;
        let Some(call) = self.calls.get(number) else { return };
        let (latency, retries, length) = (now.since(call.made), call.retries, call.payload.len());
        let outcome = match end {
            LinkOutcome::Completed { payload, round_trip, sojourn } => {
                self.links[link].record_success();
                let replica = self.links[link].replica;
                // Two cores' clocks may differ by a little.
                let latency = latency.max(round_trip);
                Ok(Response { payload, latency, round_trip, sojourn, replica, retries })
            }
            LinkOutcome::Rejected { reason, words, retry_after, round_trip } => {
                self.links[link].record_success();
                let rest = retry_after.max(self.avoidance_after(round_trip));
                self.avoid(link, reason, rest, now);
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
                let by_stream = call.over_tcp;
                let refused_by = call.excluded | refused;
                call.excluded = refused_by;
                if let Some(other) = self.choose(refused_by, by_stream, now) {
                    return self.submit(number, other, now);
                }
                Err(CallError::Throttled)
            }
            LinkOutcome::Local(LocalOutcome { reason: LocalReason::Overflow, .. }) => {
                Err(CallError::QueueFull { waited: latency })
            }
            LinkOutcome::Local(_) => Err(CallError::Expired { waited: latency }),
            LinkOutcome::TooLong(_) if is_far && self.settings.has_tcp() => {
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

    /// How long another replica is preferred to one that has just rejected. A server that rejects is quick to answer, so it
    /// would look idle and attract more. Some of its round trips, by chance: clients must not change sides together.
    fn avoidance_after(&mut self, round_trip: Nanos) -> Nanos {
        round_trip * (5 + self.random.below(11))
    }

    /// Others are preferred to this replica, over any of its connections, for so long.
    fn avoid(&mut self, link: usize, reason: RejectCode, span: Nanos, now: Time) {
        let rest = if reason == RejectCode::ShuttingDown { STOPPING_AVOIDANCE } else { span };
        let replica = self.links[link].replica;
        for link in self.links.iter_mut().filter(|link| link.replica == replica) {
            link.avoid_until = link.avoid_until.max(now + rest);
        }
    }

    /// Whether a rejected call has been sent to another replica.
    fn retry(&mut self, number: u64, link: usize, reason: RejectCode, retry_after: Nanos, now: Time) -> bool {
        let refused = self.excluded_by(link);
        let Some(call) = self.calls.get(number) else { return false };
        call.excluded |= refused;
        let (refused_by, by_stream) = (call.excluded, call.over_tcp);
        // "May be sent again, here or elsewhere, after `retry_after`" (docs/protocol.md): a hint is the caller's to follow.
        let worth_it = effect_of(reason) == Effect::Excluded
            && retry_after == Nanos::ZERO
            && call.retries < self.settings.retries_max
            && now.since(call.made) < self.expiry;
        if !worth_it {
            return false;
        }
        let Some(other) = self.choose(refused_by, by_stream, now) else { return false };
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

    /// Takes a call back from wherever it is. Whether it may have an effect all the same.
    pub(super) fn withdraw(&mut self, number: u64, now: Time) -> Effect {
        let place = self.calls.get(number).map_or(CallLocation::InTransit, |call| call.location);
        match place {
            CallLocation::InTransit => Effect::Excluded,
            CallLocation::Unassigned => {
                for lobby in &mut self.unassigned {
                    lobby.remove(now, |waiting| *waiting == number);
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

    /// The caller has dropped its future.
    pub(super) fn cancel(&mut self, number: u64, now: Time) {
        self.withdraw(number, now);
        if self.calls.remove(number).is_some() {
            count(&self.shared.counters.cancelled);
            self.shared.inbox.finish_call();
        }
    }

    /// How long ago a call was made.
    pub(super) fn age(&mut self, number: u64, now: Time) -> Nanos {
        self.calls.get(number).map_or(Nanos::ZERO, |call| now.since(call.made))
    }

    /// The end of a call. It is in no queue any more.
    pub(super) fn finish(&mut self, number: u64, outcome: Outcome) {
        let Some(call) = self.calls.remove(number) else { return };
        self.shared.counters.record_outcome(&outcome);
        self.shared.inbox.finish_call();
        // Nobody is there any more if the future has just been dropped.
        let _ = call.answer.send(outcome);
    }
}

/// A replica's bit; there are no more than 64.
pub(super) fn bit(replica: usize) -> u64 {
    1 << (replica % 64)
}
