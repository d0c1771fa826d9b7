//! A client's registered connection as the controllers see it, the token of an unanswered request,
//! and an algorithm's state per session. The plant owns the session, through one of its cores.

use super::{Admission, Arrival, Departure, Feedback, Verdict};
use crate::units::{Credits, Method};

/// A core (worker) of the server, counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreId(pub u32);

/// A session's slot in its core's table. Slots are dense and reused after
/// [`super::Admission::close`], so that an algorithm may index arrays by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionSlot(pub u32);

/// Record of one session, the same for every algorithm.
#[derive(Debug)]
pub struct Session {
    /// The session's slot in its core's table.
    pub slot: SessionSlot,
    /// The core that owns the session.
    pub core: CoreId,
    /// Credits that the session holds; only the algorithm writes them.
    pub window: Credits,
    /// Requests that waited at the client at its last report; only the plant writes them.
    pub demand: u32,
    pending: u32,
    last_method: Method,
    state: [u64; 2],
}

impl Session {
    /// Creates a session without credits or requests.
    pub const fn new(slot: SessionSlot, core: CoreId) -> Self {
        Session { slot, core, window: Credits(0), demand: 0, pending: 0, last_method: Method::DEFAULT, state: [0; 2] }
    }

    /// Method of the request answered last; within [`Admission::reply`], of the current one.
    pub const fn last_method(&self) -> Method {
        self.last_method
    }

    /// Requests received and not yet answered: the number of existing [`PendingRequest`]s.
    pub const fn pending(&self) -> u32 {
        self.pending
    }

    /// Passes a received and parsed request to the session's core. [`Session::reply`] takes the
    /// [`PendingRequest`] for each verdict: a rejected request gets a rejection as its reply.
    pub fn request(&mut self, core: &mut dyn Admission, event: &Arrival) -> (Verdict, PendingRequest) {
        self.pending += 1;
        self.demand = event.demand;
        (core.request(self, event), PendingRequest::new(self, event.method))
    }

    /// Passes a leaving response or rejection to the session's core; returns the feedback in it.
    pub fn reply(&mut self, core: &mut dyn Admission, pending: PendingRequest, event: &Departure) -> Feedback {
        self.last_method = pending.method;
        pending.check(self);
        self.pending = self.pending.saturating_sub(1);
        core.reply(self, event)
    }

    /// The algorithm's state of this session.
    pub fn state<S: SessionState>(&self) -> S {
        S::from_words(self.state)
    }

    /// Replaces the algorithm's state of this session.
    pub fn set_state<S: SessionState>(&mut self, state: S) {
        self.state = state.into_words();
    }

    /// Changes the algorithm's state of this session in place.
    pub fn update_state<S: SessionState, R>(&mut self, change: impl FnOnce(&mut S) -> R) -> R {
        let mut state = self.state();
        let result = change(&mut state);
        self.set_state(state);
        result
    }

    /// Restores the values of a recorded call, for a replay.
    pub fn restore(&mut self, pending: u32, demand: u32, answered: Method) {
        (self.pending, self.demand, self.last_method) = (pending, demand, answered);
    }
}

/// Token of an unanswered request. [`Session::request`] creates it and [`Session::reply`] consumes
/// it. So no request is answered twice, and no response is counted without a request. A plant keeps
/// the token in its record of the request, and discards it if the session closes first.
///
/// A release build stores the request's method only. A debug build also stores the session, and
/// panics if another session gets the token.
///
/// ```compile_fail
/// # use leeward_core::server::{Admission, Departure, PendingRequest, Session};
/// fn twice(
///     session: &mut Session,
///     core: &mut dyn Admission,
///     pending: PendingRequest,
///     departure: &Departure,
/// ) {
///     session.reply(core, pending, departure);
///     session.reply(core, pending, departure); // use of a moved value
/// }
/// ```
#[derive(Debug)]
#[must_use = "an unanswered request stays pending until its ticket is given to `Session::reply`"]
pub struct PendingRequest {
    #[cfg(debug_assertions)]
    of: (CoreId, SessionSlot),
    // Private, so that no plant can create a token.
    method: Method,
}

impl PendingRequest {
    fn new(session: &Session, method: Method) -> Self {
        #[cfg(not(debug_assertions))]
        let _ = session;
        PendingRequest {
            method,
            #[cfg(debug_assertions)]
            of: (session.core, session.slot),
        }
    }

    fn check(self, session: &Session) {
        #[cfg(not(debug_assertions))]
        let _ = session;
        #[cfg(debug_assertions)]
        assert_eq!(self.of, (session.core, session.slot), "a pending request of another session");
    }
}

/// An algorithm's own state of one session, stored in two words of the [`Session`].
///
/// A new session's words are zero, so `from_words([0, 0])` is the initial state. Recordings contain
/// the words, and a replay compares them: equal states must have equal words.
///
/// ```
/// use leeward_core::server::{CoreId, Session, SessionSlot, SessionState};
///
/// /// Requests of one session: rejected in a row, and in total.
/// #[derive(Clone, Copy, Debug, PartialEq, Eq)]
/// struct Rejections { in_a_row: u64, total: u64 }
///
/// impl SessionState for Rejections {
///     fn from_words([in_a_row, total]: [u64; 2]) -> Self {
///         Rejections { in_a_row, total }
///     }
///     fn into_words(self) -> [u64; 2] {
///         [self.in_a_row, self.total]
///     }
/// }
///
/// let mut session = Session::new(SessionSlot(0), CoreId(0));
/// session.update_state(|rejections: &mut Rejections| rejections.total += 1);
/// assert_eq!(session.state::<Rejections>(), Rejections { in_a_row: 0, total: 1 });
/// ```
pub trait SessionState: Copy {
    /// Decodes the state from its words.
    fn from_words(words: [u64; 2]) -> Self;

    /// Encodes the state in two words.
    fn into_words(self) -> [u64; 2];
}

/// The words themselves, for code that handles sessions of any algorithm.
impl SessionState for [u64; 2] {
    fn from_words(words: [u64; 2]) -> Self {
        words
    }

    fn into_words(self) -> [u64; 2] {
        self
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::none;
    use crate::params::Params;
    use crate::registry::Environment;
    use crate::server::Outcome;
    use crate::units::{CreditId, Nanos, Time};

    const DEPARTURE: Departure =
        Departure { now: Time::ZERO, outcome: Outcome::Completed, sojourn: Nanos::ZERO, credit: CreditId::NONE };

    fn core() -> Box<dyn Admission> {
        let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
        none::ALGORITHM.server(&Params::default(), &environment).unwrap().cores.remove(0)
    }

    #[test]
    fn a_request_is_pending_until_its_reply() {
        let (mut core, mut session) = (core(), Session::new(SessionSlot(0), CoreId(0)));
        let requests = [1, 2, 3].map(|demand| {
            let (verdict, pending) = session.request(core.as_mut(), &Arrival::new(Time::ZERO).with_demand(demand));
            assert_eq!((verdict, session.demand), (Verdict::Admit, demand));
            pending
        });
        assert_eq!(session.pending(), 3);
        for (answered, pending) in requests.into_iter().enumerate() {
            let _ = session.reply(core.as_mut(), pending, &DEPARTURE);
            assert_eq!(session.pending() as usize, 2 - answered);
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a pending request of another session")]
    fn a_reply_for_another_session_panics() {
        let mut core = core();
        let mut sessions = [0, 1].map(|slot| Session::new(SessionSlot(slot), CoreId(0)));
        let (_, pending) = sessions[0].request(core.as_mut(), &Arrival::new(Time::ZERO));
        let _ = sessions[1].reply(core.as_mut(), pending, &DEPARTURE);
    }

    /// Every plant's record of a request contains a token.
    #[test]
    #[cfg(not(debug_assertions))]
    fn a_pending_request_is_as_small_as_its_method() {
        assert_eq!(size_of::<PendingRequest>(), size_of::<Method>());
    }
}
