//! A connection's account with the controller, for protocols that know no credits: one request at a time, and of a controller
//! only what it refuses takes effect.

use crate::poll_context::PollContext;
use leeward_core::server::{
    Arrival, CoreId, Departure, Outcome, PendingRequest, Registration, Session, SessionSlot, Verdict,
};
use leeward_core::units::{CreditId, Method, Priority, Tenant, Time};
use leeward_host::ConnectionContext;
use leeward_wire::RejectCode;

/// The account of one connection: its session, and the request that is under way.
#[derive(Debug)]
pub struct ControllerSession {
    /// `None` once its window was given back.
    session: Option<Session>,
    in_flight: Option<InFlight>,
    /// On whose behalf all its requests are.
    tenant: Tenant,
}

/// How the controller sees the request that is under way.
#[derive(Debug)]
enum InFlight {
    /// The controller has been asked.
    Controlled(PendingRequest, Method),
    /// The controller does not know of it: the request is about the server.
    Uncontrolled,
}

/// How a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// Executed, with an answer.
    Answered {
        /// Its answer is a result, and no failure of the server's.
        succeeded: bool,
    },
    /// Refused.
    Rejected(RejectCode),
}

impl ControllerSession {
    /// Opens the session of the connection that is visited.
    pub fn open<C>(visit: &mut PollContext<'_, C>) -> Self {
        let mut session = Session::new(SessionSlot(visit.id.slot), CoreId(visit.core as u32));
        let opened = Registration { now: visit.now, demand: 0 };
        visit.admission().open(&mut session, &opened);
        ControllerSession { session: Some(session), in_flight: None, tenant: Tenant::DEFAULT }
    }

    /// Counts its requests for this tenant from now on.
    pub fn count_for(&mut self, tenant: Tenant) {
        self.tenant = tenant;
    }

    /// A request is under way of which the controller shall not hear.
    pub fn begin_uncontrolled(&mut self) {
        self.in_flight = Some(InFlight::Uncontrolled);
    }

    /// Asks the controller about a request of a method that has come, and counts it. Whatever the verdict, the request is under way until
    /// [`Account::settle`].
    ///
    /// # Errors
    /// Why the request is to be dropped.
    pub fn admit<C>(&mut self, method: Method, visit: &mut PollContext<'_, C>) -> Result<(), RejectCode> {
        let Some(session) = &mut self.session else { return Err(RejectCode::ShuttingDown) };
        visit.count_received();
        let random = visit.random();
        let arrival = Arrival::new(visit.now)
            .with_priority(Priority::from_random(random))
            .with_tenant(self.tenant)
            .with_delay(visit.delay())
            .with_random(random)
            .with_method(method)
            .with_age(visit.wait);
        let (verdict, ticket) = session.request(visit.admission(), &arrival);
        self.in_flight = Some(InFlight::Controlled(ticket, method));
        match verdict {
            Verdict::Reject(reason) => Err(reason.into()),
            Verdict::Admit if visit.is_stopping() => Err(RejectCode::ShuttingDown),
            Verdict::Admit => Ok(()),
        }
    }

    /// Settles the request under way, which came at `arrived`, with the controller, and counts it. Whether there was one.
    pub fn finish<C>(&mut self, arrived: Time, end: RequestOutcome, visit: &mut PollContext<'_, C>) -> bool {
        let (ticket, method) = match self.in_flight.take() {
            None => return false,
            Some(InFlight::Uncontrolled) => return true,
            Some(InFlight::Controlled(ticket, method)) => (ticket, method),
        };
        let sojourn = visit.now.since(arrived);
        let outcome = if let RequestOutcome::Rejected(_) = end { Outcome::Rejected } else { Outcome::Completed };
        if let Some(session) = &mut self.session {
            // The client names no credit, and hears of none.
            let departure = Departure { now: visit.now, outcome, sojourn, credit: CreditId::NONE };
            let _ = session.reply(visit.admission(), ticket, &departure);
        }
        match end {
            RequestOutcome::Answered { succeeded } => visit.count_completed(Some(method), succeeded, sojourn),
            RequestOutcome::Rejected(reason) => visit.count_refused(reason, sojourn),
        }
        true
    }

    /// Requests that are under way: one or none.
    pub fn owed(&self) -> usize {
        usize::from(self.in_flight.is_some())
    }

    /// Takes an explicit credit of which the client hears nothing: the controller's lists are emptied all the same.
    pub fn credit<C>(&mut self, visit: &mut PollContext<'_, C>) {
        let now = visit.now;
        if let Some(session) = &mut self.session {
            let _ = visit.admission().wake(session, now);
        }
    }

    /// Gives the session's window back, exactly once. Returns the requests that nobody will hear of.
    pub fn abandon<C>(&mut self, visit: &mut PollContext<'_, C>) -> usize {
        let now = visit.now;
        if let Some(mut session) = self.session.take() {
            visit.admission().close(&mut session, now);
        }
        usize::from(matches!(self.in_flight.take(), Some(InFlight::Controlled(..))))
    }
}
