//! A connection's session with the controller, for protocols without credits. Requests run one at a
//! time, and only the controller's rejections take effect.

use crate::poll_context::PollContext;
use leeward_core::server::{
    Arrival, CoreId, Departure, Outcome, PendingRequest, Registration, Session, SessionSlot, Verdict,
};
use leeward_core::units::{CreditId, Method, Priority, Tenant, Time};
use leeward_host::ConnectionContext;
use leeward_wire::RejectCode;

/// A connection's controller session and its request in flight.
#[derive(Debug)]
pub struct ControllerSession {
    /// `None` once the window was returned.
    session: Option<Session>,
    in_flight: Option<InFlight>,
    /// Tenant of all requests of the connection.
    tenant: Tenant,
}

/// How the controller sees the request in flight.
#[derive(Debug)]
enum InFlight {
    /// The controller has decided about it.
    Controlled(PendingRequest, Method),
    /// The controller doesn't know it: the request is about the server.
    Uncontrolled,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// Executed, with a response.
    Answered {
        /// The response is a result, not a failure of the server.
        succeeded: bool,
    },
    /// Rejected.
    Rejected(RejectCode),
}

impl ControllerSession {
    /// Opens the session of the connection in `context`.
    pub fn open<C>(context: &mut PollContext<'_, C>) -> Self {
        let mut session = Session::new(SessionSlot(context.id.slot), CoreId(context.core as u32));
        let opened = Registration { now: context.now, demand: 0 };
        context.admission().open(&mut session, &opened);
        ControllerSession { session: Some(session), in_flight: None, tenant: Tenant::DEFAULT }
    }

    /// Counts later requests for this tenant.
    pub fn count_for(&mut self, tenant: Tenant) {
        self.tenant = tenant;
    }

    /// Begins a request that the controller is not told of.
    pub fn begin_uncontrolled(&mut self) {
        self.in_flight = Some(InFlight::Uncontrolled);
    }

    /// Asks the controller about a request, and counts it. Whatever the verdict, the request stays
    /// in flight until [`ControllerSession::finish`].
    ///
    /// # Errors
    /// Why the request is rejected.
    pub fn admit<C>(&mut self, method: Method, context: &mut PollContext<'_, C>) -> Result<(), RejectCode> {
        let Some(session) = &mut self.session else { return Err(RejectCode::ShuttingDown) };
        context.count_received();
        let random = context.random();
        let arrival = Arrival::new(context.now)
            .with_priority(Priority::from_random(random))
            .with_tenant(self.tenant)
            .with_delay(context.delay())
            .with_random(random)
            .with_method(method)
            .with_age(context.wait);
        let (verdict, permit) = session.request(context.admission(), &arrival);
        self.in_flight = Some(InFlight::Controlled(permit, method));
        match verdict {
            Verdict::Reject(reason) => Err(reason.into()),
            Verdict::Admit if context.is_stopping() => Err(RejectCode::ShuttingDown),
            Verdict::Admit => Ok(()),
        }
    }

    /// Reports the end of the request in flight, which arrived at `arrived`, and counts it. Returns
    /// whether there was one.
    pub fn finish<C>(&mut self, arrived: Time, result: RequestOutcome, context: &mut PollContext<'_, C>) -> bool {
        let (permit, method) = match self.in_flight.take() {
            None => return false,
            Some(InFlight::Uncontrolled) => return true,
            Some(InFlight::Controlled(permit, method)) => (permit, method),
        };
        let sojourn = context.now.since(arrived);
        let outcome = if let RequestOutcome::Rejected(_) = result { Outcome::Rejected } else { Outcome::Completed };
        if let Some(session) = &mut self.session {
            // The client sends no credit and receives none.
            let departure = Departure { now: context.now, outcome, sojourn, credit: CreditId::NONE };
            let _ = session.reply(context.admission(), permit, &departure);
        }
        match result {
            RequestOutcome::Answered { succeeded } => context.count_completed(Some(method), succeeded, sojourn),
            RequestOutcome::Rejected(reason) => context.count_refused(reason, sojourn),
        }
        true
    }

    /// Number of requests in flight: one or none.
    pub fn owed(&self) -> usize {
        usize::from(self.in_flight.is_some())
    }

    /// Takes an explicit credit, to empty the controller's lists. The client is not told.
    pub fn credit<C>(&mut self, context: &mut PollContext<'_, C>) {
        let now = context.now;
        if let Some(session) = &mut self.session {
            let _ = context.admission().wake(session, now);
        }
    }

    /// Returns the session's window, exactly once. Returns the number of requests that stay
    /// unanswered.
    pub fn abandon<C>(&mut self, context: &mut PollContext<'_, C>) -> usize {
        let now = context.now;
        if let Some(mut session) = self.session.take() {
            context.admission().close(&mut session, now);
        }
        usize::from(matches!(self.in_flight.take(), Some(InFlight::Controlled(..))))
    }
}
