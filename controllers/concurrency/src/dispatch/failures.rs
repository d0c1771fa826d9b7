//! Which backends get requests: those that are reachable, except one that fails while others do
//! not. Its places would always be free, so that nearly all requests would go there. Does not
//! contain the choice among the others ([`super`]).

use super::{Answer, Dispatch, Dispatcher};
use crate::Outcome;
use leeward_core::units::Time;

/// Weight of an answer in the share of failures. With a sixteenth, chance alone would eject some of
/// twenty backends that fail alike.
const WEIGHT: f64 = 1.0 / 32.0;
/// Failures per answer beyond those of the best backend with which one is ejected.
const EXCESS: f64 = 0.5;
/// Successes that others must have had since the backend's last one: else it may be the service
/// that fails.
const OTHERS: u64 = 2;

/// Whether a backend gets requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Up,
    Down,
    /// It fails while others do not.
    Ejected,
    /// On probation: it gets a request while it has no more than so many: one is enough to see
    /// whether it is well.
    Probed(u32),
}

/// The failures of a backend.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Failures {
    /// Running share of its answers.
    share: f64,
    /// Successes of all backends at its last one.
    successes: u64,
}

impl<T> Dispatcher<T> {
    /// Marks a backend as reachable or not; called each second for one that is not up. If none is
    /// reachable, requests go to all of them. One that was ejected, or had failed before it was
    /// unreachable, gets a single request, which decides; if none has come by the next call, it is
    /// up again.
    pub fn set_up(&mut self, now: Time, backend: usize, is_up: bool, done: &mut Vec<Dispatch<T>>) {
        let of = &mut self.backends[backend];
        of.state = match (is_up, of.state) {
            (false, _) => State::Down,
            (true, State::Probed(most)) if of.in_flight <= most => {
                of.failures.share = 0.0;
                State::Up
            }
            (true, State::Down) if of.failures.share <= EXCESS => State::Up,
            (true, State::Up) => State::Up,
            (true, State::Down | State::Ejected | State::Probed(_)) => State::Probed(of.in_flight),
        };
        self.fill(now, done);
    }

    /// Whether a backend is reachable and not ejected.
    pub fn is_up(&self, backend: usize) -> bool {
        self.backends[backend].state == State::Up
    }

    /// Takes note of whether a backend answers; ejects it if it fails while others do not. Returns
    /// whether [`Dispatcher::is_up`] has changed. A failure that comes late says nothing: a slow
    /// backend keeps its places, and may only be overloaded.
    pub fn judge(&mut self, backend: usize, answer: &Answer) -> bool {
        let has_failed = answer.outcome == Outcome::Failed;
        if has_failed && answer.now.since(answer.dispatched) >= self.settings.objective {
            return false;
        }
        let of = &mut self.backends[backend];
        let was_up = of.state == State::Up;
        of.failures.share += WEIGHT * (f64::from(u8::from(has_failed)) - of.failures.share);
        if !has_failed {
            self.successes += 1;
            of.failures.successes = self.successes;
            if matches!(of.state, State::Probed(_)) {
                (of.state, of.failures.share) = (State::Up, 0.0);
            }
        } else if matches!(of.state, State::Up | State::Probed(_)) {
            let state = if self.is_worse(backend) { State::Ejected } else { State::Up };
            self.backends[backend].state = state;
        }
        (self.backends[backend].state == State::Up) != was_up
    }

    /// Whether a backend fails much more than another one that is up.
    fn is_worse(&self, backend: usize) -> bool {
        let others = self
            .backends
            .iter()
            .enumerate()
            .filter(|(index, other)| *index != backend && !other.is_removed && other.state == State::Up);
        let best = others.map(|(_, other)| other.failures.share).fold(f64::INFINITY, f64::min);
        let of = &self.backends[backend].failures;
        of.share > best + EXCESS && self.successes - of.successes >= OTHERS
    }
}
