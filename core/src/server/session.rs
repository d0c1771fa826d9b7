//! A client's registered connection as the controllers see it, with the ticket of a request that is unanswered and the
//! state that an algorithm keeps of a session. The plant owns it, through one of its cores.

use super::{Admission, Arrival, Departure, Feedback, Verdict};
use crate::units::{Credits, Method};

/// A core (worker) of the server, counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreId(pub u32);

/// A session's place in its core's table. Slots are dense and reused after [`super::Admission::close`], so that an
/// algorithm may index arrays by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionSlot(pub u32);

/// Record of one session, the same for every algorithm.
#[derive(Debug)]
pub struct Session {
    /// Its place in its core's table.
    pub slot: SessionSlot,
    /// The core that owns it.
    pub core: CoreId,
    /// Credits it holds; written by the algorithm only.
    pub window: Credits,
    /// Requests that waited at the client when it last told; written by the plant only.
    pub demand: u32,
    pending: u32,
    last_method: Method,
    state: [u64; 2],
}

impl Session {
    /// A session that holds nothing yet.
    pub const fn new(slot: SessionSlot, core: CoreId) -> Self {
        Session { slot, core, window: Credits(0), demand: 0, pending: 0, last_method: Method::DEFAULT, state: [0; 2] }
    }

    /// Method of the request that was answered last, in [`Admission::reply`] the one that is answered now.
    pub const fn last_method(&self) -> Method {
        self.last_method
    }

    /// Requests received and not yet answered: the number of tickets that are out.
    pub const fn pending(&self) -> u32 {
        self.pending
    }

    /// Tells the session's core of a request that was received and parsed. The ticket is for [`Session::reply`], whatever
    /// the verdict: a rejected request is answered with a drop.
    pub fn request(&mut self, core: &mut dyn Admission, event: &Arrival) -> (Verdict, PendingRequest) {
        self.pending += 1;
        self.demand = event.demand;
        (core.request(self, event), PendingRequest::new(self, event.method))
    }

    /// Tells the session's core that the response or drop of a request leaves; returns what goes back with it.
    pub fn reply(&mut self, core: &mut dyn Admission, ticket: PendingRequest, event: &Departure) -> Feedback {
        self.last_method = ticket.method;
        ticket.check(self);
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

    /// Sets what a plant had set for a recorded call, for a replay.
    pub fn restore(&mut self, pending: u32, demand: u32, answered: Method) {
        (self.pending, self.demand, self.last_method) = (pending, demand, answered);
    }
}

/// Ticket of an unanswered request. [`Session::request`] gives it out and [`Session::reply`] consumes it, so that no
/// request is answered twice, and no answer is counted without a request. A plant keeps it beside whatever else it
/// knows of the request, and drops it when the session is closed first.
///
/// In a release build it holds its request's method and nothing else; a debug build notes the session, and panics if another session is given the ticket.
///
/// ```compile_fail
/// # use leeward_core::server::{Admission, Departure, Session, Ticket};
/// fn twice(session: &mut Session, core: &mut dyn Admission, ticket: Ticket, departure: &Departure) {
///     session.reply(core, ticket, departure);
///     session.reply(core, ticket, departure); // use of a moved value
/// }
/// ```
#[derive(Debug)]
#[must_use = "an unanswered request stays pending until its ticket is given to `Session::reply`"]
pub struct PendingRequest {
    #[cfg(debug_assertions)]
    of: (CoreId, SessionSlot),
    // Not public: no plant can make one.
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
        assert_eq!(self.of, (session.core, session.slot), "a ticket of another session");
    }
}

/// An algorithm's own state of one session, of which [`Session`] keeps two words.
///
/// A new session's words are zero, so that `from_words([0, 0])` is the state to begin with. Recordings hold the words, and
/// a replay compares them: equal states must have equal words.
///
/// ```
/// use leeward_core::server::{CoreId, Session, SessionSlot, SessionState};
///
/// /// Requests of one session: rejected in a row, and in all.
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
    /// The state that `words` hold.
    fn from_words(words: [u64; 2]) -> Self;

    /// The two words that hold this state.
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
    fn a_request_is_pending_until_its_ticket_comes_back() {
        let (mut core, mut session) = (core(), Session::new(SessionSlot(0), CoreId(0)));
        let tickets = [1, 2, 3].map(|demand| {
            let (verdict, ticket) = session.request(core.as_mut(), &Arrival::new(Time::ZERO).with_demand(demand));
            assert_eq!((verdict, session.demand), (Verdict::Admit, demand));
            ticket
        });
        assert_eq!(session.pending(), 3);
        for (answered, ticket) in tickets.into_iter().enumerate() {
            let _ = session.reply(core.as_mut(), ticket, &DEPARTURE);
            assert_eq!(session.pending() as usize, 2 - answered);
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a ticket of another session")]
    fn a_ticket_of_another_session_is_refused() {
        let mut core = core();
        let mut sessions = [0, 1].map(|slot| Session::new(SessionSlot(slot), CoreId(0)));
        let (_, ticket) = sessions[0].request(core.as_mut(), &Arrival::new(Time::ZERO));
        let _ = sessions[1].reply(core.as_mut(), ticket, &DEPARTURE);
    }

    /// A ticket lies in every plant's record of a request.
    #[test]
    #[cfg(not(debug_assertions))]
    fn a_ticket_takes_hardly_any_room() {
        assert_eq!(size_of::<Ticket>(), size_of::<Method>());
    }
}
