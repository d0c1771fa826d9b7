//! The view of a pair from outside: time, counts, how requests ended, what raw clients have heard.

use super::client::RequestOutcome;
use super::rng::Rng;
use super::{ClientId, Pair};
use leeward_core::server::Gauges;
use leeward_core::units::{Nanos, Time};
use leeward_host::RequestCounts;
use leeward_session::client::{ConnectionError, Phase};
use leeward_wire::ErrorCode;

impl Pair {
    /// Whether the server has stopped, and owes nothing.
    pub fn has_stopped(&self) -> bool {
        self.has_stopped
    }

    /// Counts of requests so far.
    pub fn counts(&self) -> RequestCounts {
        let mut counts = self.core.counts();
        counts.connections = self.open.len() as u64;
        counts
    }

    /// Calls that were cancelled before their turn.
    pub fn cancelled(&self) -> u64 {
        self.core.tally.cancelled
    }

    /// The controller's state.
    pub fn gauges(&self) -> Gauges {
        self.core.gauges()
    }

    /// Now.
    pub fn now(&self) -> Time {
        self.now
    }

    /// A hash of all that has happened: equal for equal seeds and equal deeds.
    pub fn trace(&self) -> u64 {
        self.event_queue.hash()
    }

    /// The stream of chances of this run, for scenarios that are drawn from the same seed.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// How a request of a client of ours has ended.
    ///
    /// # Panics
    /// If it is no client of ours, or never submitted such a request.
    pub fn outcome(&self, client: ClientId, request: usize) -> Option<&RequestOutcome> {
        self.honest(client).outcomes[request].as_ref()
    }

    /// How the requests of a client of ours have ended, in the order in which they were submitted.
    ///
    /// # Panics
    /// If it is no client of ours.
    pub fn outcomes(&self, client: ClientId) -> &[Option<RequestOutcome>] {
        &self.honest(client).outcomes
    }

    /// How long each completed request of a client of ours took from its issue, in the order of completion.
    ///
    /// # Panics
    /// If it is no client of ours.
    pub fn latencies(&self, client: ClientId) -> &[Nanos] {
        &self.honest(client).latencies
    }

    /// Requests of a client of ours that have no end yet.
    ///
    /// # Panics
    /// If it is no client of ours.
    pub fn open_requests(&self, client: ClientId) -> usize {
        self.honest(client).open
    }

    /// Where a client of ours is in its life.
    ///
    /// # Panics
    /// If it is no client of ours.
    pub fn phase(&self, client: ClientId) -> Phase {
        self.honest(client).connection.phase()
    }

    /// Why the connection of a client of ours is over.
    pub fn error(&self, client: ClientId) -> Option<&ConnectionError> {
        self.links[client.0].error.as_ref()
    }

    /// The next frame, as text, that a raw client has heard.
    pub fn try_receive(&mut self, client: ClientId) -> Option<String> {
        self.raw_mut(client).frames.pop_front()
    }

    /// Whether a raw client has heard the end of its stream.
    pub fn is_eof(&self, client: ClientId) -> bool {
        self.raw(client).is_eof
    }

    /// The window that a raw client was told last, `None` where windows do not bind.
    pub fn window(&self, client: ClientId) -> Option<u32> {
        let raw = self.raw(client);
        raw.window_binds.then_some(raw.window)
    }

    /// Answers that a raw client was given.
    pub fn answers(&self, client: ClientId) -> u64 {
        self.raw(client).answers
    }

    /// Why the server has sent a client away.
    pub fn close_reason(&self, client: ClientId) -> Option<&(ErrorCode, String)> {
        self.links[client.0].close_reason.as_ref()
    }

    /// Whether the server still has its end of a client's connection.
    pub fn is_open(&self, client: ClientId) -> bool {
        self.links[client.0].server.is_some()
    }

    /// Calls of a client that its server has not answered.
    pub fn unanswered(&self, client: ClientId) -> usize {
        self.links[client.0].server.as_ref().map_or(0, |end| end.connection.unanswered())
    }
}
