//! The controller `edge` with a planted mistake each: a property that does not see it is blind.

use leeward_controllers::edge;
use leeward_core::params::{ParamError, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{Admission, Arrival, RejectReason, ServerHalves, Session, Verdict};
use leeward_core::units::{Cost, Nanos, Priority, Tenant, Time};

/// A core that is asked something else than what came, or whose answer is changed.
struct DefectiveCore {
    inner: Box<dyn Admission>,
    change: fn(&mut DefectState, &mut Arrival),
    answer: fn(&mut DefectState, &Arrival, Verdict) -> Verdict,
    memory: DefectState,
}

#[derive(Default)]
struct DefectState {
    refused: bool,
    first: Option<Time>,
}

impl Admission for DefectiveCore {
    fn request(&mut self, session: &mut Session, event: &Arrival) -> Verdict {
        let mut changed = *event;
        (self.change)(&mut self.memory, &mut changed);
        let verdict = self.inner.request(session, &changed);
        (self.answer)(&mut self.memory, event, verdict)
    }

    fn on_dequeue(&mut self, waited: Nanos) -> Verdict {
        self.inner.on_dequeue(waited)
    }
}

fn with_defect(
    params: &Params,
    environment: &Environment,
    change: fn(&mut DefectState, &mut Arrival),
    answer: fn(&mut DefectState, &Arrival, Verdict) -> Verdict,
) -> Result<ServerHalves, ParamError> {
    let halves = edge::ALGORITHM.server(params, environment)?;
    let spoilt =
        |inner| Box::new(DefectiveCore { inner, change, answer, memory: DefectState::default() }) as Box<dyn Admission>;
    Ok(ServerHalves { cores: halves.cores.into_iter().map(spoilt).collect(), control: halves.control })
}

fn same(_: &mut DefectState, _: &mut Arrival) {}

fn keep(_: &mut DefectState, _: &Arrival, verdict: Verdict) -> Verdict {
    verdict
}

/// The least important first.
pub(crate) const UPSIDE_DOWN: Algorithm = Algorithm {
    build_server: |params, environment| {
        let change =
            |_: &mut DefectState, event: &mut Arrival| event.priority = Priority::new(129 - event.priority.level());
        with_defect(params, environment, change, keep)
    },
    ..edge::ALGORITHM
};

/// Locked for ever after its first refusal.
pub(crate) const LOCKS_OUT: Algorithm = Algorithm {
    build_server: |params, environment| {
        with_defect(params, environment, same, |memory, _, verdict| {
            memory.refused |= verdict != Verdict::Admit;
            if memory.refused { Verdict::Reject(RejectReason::Priority) } else { verdict }
        })
    },
    ..edge::ALGORITHM
};

/// Levels bind beside free workers.
pub(crate) const REJECTS_WHEN_FREE: Algorithm = Algorithm {
    build_server: |params, environment| {
        let change = |_: &mut DefectState, event: &mut Arrival| event.delay = event.delay.max(Nanos::from_millis(8));
        with_defect(params, environment, change, keep)
    },
    ..edge::ALGORITHM
};

/// A single share for all tenants together.
pub(crate) const NO_SHARES: Algorithm = Algorithm {
    build_server: |params, environment| {
        with_defect(
            params,
            environment,
            |_: &mut DefectState, event: &mut Arrival| event.tenant = Tenant::DEFAULT,
            keep,
        )
    },
    ..edge::ALGORITHM
};

/// Every request costs the same.
pub(crate) const NO_COSTS: Algorithm = Algorithm {
    build_server: |params, environment| {
        with_defect(params, environment, |_: &mut DefectState, event: &mut Arrival| event.cost = Cost::ONE, keep)
    },
    ..edge::ALGORITHM
};

/// Deadlines count for nothing.
pub(crate) const ADMITS_LATE: Algorithm = Algorithm {
    build_server: |params, environment| {
        let change = |_: &mut DefectState, event: &mut Arrival| {
            *event = event.with_budget(leeward_core::budget::Budget::UNLIMITED);
        };
        with_defect(params, environment, change, keep)
    },
    ..edge::ALGORITHM
};

/// Closed until it has seen a tenth of a second.
pub(crate) const STARTS_CLOSED: Algorithm = Algorithm {
    build_server: |params, environment| {
        with_defect(params, environment, same, |memory, event, verdict| {
            let first = *memory.first.get_or_insert(event.now);
            let closed = event.now.since(first) < Nanos::from_millis(100);
            if closed { Verdict::Reject(RejectReason::Priority) } else { verdict }
        })
    },
    ..edge::ALGORITHM
};
