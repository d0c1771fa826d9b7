//! Controllers with a planted defect, which the checker must detect.

use leeward_controllers::{breakwater, gradient};
use leeward_core::client::{ClientHalf, ClientParts, Gate, Reply};
use leeward_core::params::{ParamError, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{
    Admission, Arrival, Departure, Feedback, Registration, RejectReason, ServerHalves, Session, SessionSlot, Verdict,
};
use leeward_core::units::{Credits, Nanos, Time};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Defect {
    KeepsWindowOnClose,
    LosesCredit,
    WakesForEver,
    ForgetsInFlightOnClose,
    OverstatesWindow,
    RejectsAtDequeue,
}

/// A correct core with one defect.
struct DefectiveCore {
    inner: Box<dyn Admission>,
    defect: Defect,
    replies: u64,
    last_opened: Option<SessionSlot>,
}

#[deny(clippy::missing_trait_methods)]
impl Admission for DefectiveCore {
    fn open(&mut self, session: &mut Session, event: &Registration) {
        self.last_opened = Some(session.slot);
        self.inner.open(session, event);
    }

    fn request(&mut self, session: &mut Session, event: &Arrival) -> Verdict {
        self.inner.request(session, event)
    }

    fn on_dequeue(&mut self, waited: Nanos) -> Verdict {
        match self.defect {
            Defect::RejectsAtDequeue => Verdict::Reject(RejectReason::Delay),
            _ => self.inner.on_dequeue(waited),
        }
    }

    fn reply(&mut self, session: &mut Session, event: &Departure) -> Feedback {
        let mut feedback = self.inner.reply(session, event);
        self.replies += 1;
        if self.defect == Defect::LosesCredit && self.replies.is_multiple_of(20) && session.window.0 > session.pending()
        {
            session.window.0 -= 1;
            feedback.window = session.window;
        }
        if self.defect == Defect::OverstatesWindow && self.replies.is_multiple_of(20) {
            feedback.window = Credits(64);
        }
        feedback
    }

    fn demand(&mut self, session: &mut Session, now: Time) -> Option<Feedback> {
        self.inner.demand(session, now)
    }

    fn next_to_wake(&mut self, random: u64) -> Option<SessionSlot> {
        let next = self.inner.next_to_wake(random);
        if self.defect == Defect::WakesForEver { next.or(self.last_opened) } else { next }
    }

    fn wake(&mut self, session: &mut Session, now: Time) -> Feedback {
        self.inner.wake(session, now)
    }

    fn close(&mut self, session: &mut Session, now: Time) {
        match self.defect {
            Defect::KeepsWindowOnClose => session.window = Credits(0),
            Defect::ForgetsInFlightOnClose => session.set_state([0; 2]),
            _ => {}
        }
        self.inner.close(session, now);
    }
}

fn with_defect(
    algorithm: &Algorithm,
    params: &Params,
    environment: &Environment,
    kind: Defect,
) -> Result<ServerHalves, ParamError> {
    let halves = algorithm.server(params, environment)?;
    let defective =
        |inner| Box::new(DefectiveCore { inner, defect: kind, replies: 0, last_opened: None }) as Box<dyn Admission>;
    Ok(ServerHalves { cores: halves.cores.into_iter().map(defective).collect(), control: halves.control })
}

/// Breakwater whose closed sessions keep their windows issued.
pub(crate) const KEEPS_WINDOW_ON_CLOSE: Algorithm = Algorithm {
    build_server: |params, environment| {
        with_defect(&breakwater::ALGORITHM, params, environment, Defect::KeepsWindowOnClose)
    },
    ..breakwater::ALGORITHM
};

/// Breakwater that loses a credit with every 20th reply of a core.
pub(crate) const LOSES_CREDIT: Algorithm = Algorithm {
    build_server: |params, environment| with_defect(&breakwater::ALGORITHM, params, environment, Defect::LosesCredit),
    ..breakwater::ALGORITHM
};

/// Breakwater that always returns another session to wake.
pub(crate) const WAKES_FOR_EVER: Algorithm = Algorithm {
    build_server: |params, environment| with_defect(&breakwater::ALGORITHM, params, environment, Defect::WakesForEver),
    ..breakwater::ALGORITHM
};

/// Breakwater that sends clients a window that it has not counted.
pub(crate) const OVERSTATES_WINDOW: Algorithm = Algorithm {
    build_server: |params, environment| {
        with_defect(&breakwater::ALGORITHM, params, environment, Defect::OverstatesWindow)
    },
    ..breakwater::ALGORITHM
};

/// Breakwater that executes none of its admitted requests.
pub(crate) const REJECTS_AT_DEQUEUE: Algorithm = Algorithm {
    build_server: |params, environment| {
        with_defect(&breakwater::ALGORITHM, params, environment, Defect::RejectsAtDequeue)
    },
    ..breakwater::ALGORITHM
};

/// The gradient limit whose slots leak with lost connections.
pub(crate) const FORGETS_IN_FLIGHT: Algorithm = Algorithm {
    build_server: |params, environment| {
        with_defect(&gradient::ALGORITHM, params, environment, Defect::ForgetsInFlightOnClose)
    },
    ..gradient::ALGORITHM
};

/// A client that sends one request more than it may.
struct GreedyClient(Box<dyn ClientHalf>);

impl ClientHalf for GreedyClient {
    fn gate(&mut self, now: Time, outstanding: u32) -> Gate {
        self.0.gate(now, outstanding.saturating_sub(1))
    }
    fn reply(&mut self, event: &Reply) {
        self.0.reply(event);
    }
    fn credit(&mut self, now: Time, feedback: &Feedback) {
        self.0.credit(now, feedback);
    }
}

/// Breakwater with greedy clients.
pub(crate) const GREEDY_CLIENT: Algorithm = Algorithm {
    build_client: |params, environment| {
        let parts = (breakwater::ALGORITHM.build_client)(params, environment)?;
        Ok(ClientParts { half: Box::new(GreedyClient(parts.half)), config: parts.config })
    },
    ..breakwater::ALGORITHM
};

/// A client that stops reacting after some replies.
struct UnresponsiveClient(Box<dyn ClientHalf>, u32);

impl ClientHalf for UnresponsiveClient {
    fn gate(&mut self, now: Time, outstanding: u32) -> Gate {
        // After its third reply it ignores its credits.
        if self.1 > 3 { Gate::Closed } else { self.0.gate(now, outstanding) }
    }
    fn reply(&mut self, event: &Reply) {
        self.1 += 1;
        self.0.reply(event);
    }
    fn credit(&mut self, now: Time, feedback: &Feedback) {
        self.0.credit(now, feedback);
    }
}

/// Breakwater with clients that lock themselves out.
pub(crate) const UNRESPONSIVE_CLIENT: Algorithm = Algorithm {
    build_client: |params, environment| {
        let parts = (breakwater::ALGORITHM.build_client)(params, environment)?;
        Ok(ClientParts { half: Box::new(UnresponsiveClient(parts.half, 0)), config: parts.config })
    },
    ..breakwater::ALGORITHM
};
