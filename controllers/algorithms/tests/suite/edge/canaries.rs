//! The controller `edge` with one planted defect each, which the matching property must detect.

use leeward_controllers::edge;
use leeward_core::params::{ParamError, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{Admission, Arrival, RejectReason, ServerHalves, Session, Verdict};
use leeward_core::units::{Cost, Nanos, Priority, Tenant, Time};

/// A core with a changed input, or a changed answer.
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
    let defective =
        |inner| Box::new(DefectiveCore { inner, change, answer, memory: DefectState::default() }) as Box<dyn Admission>;
    Ok(ServerHalves { cores: halves.cores.into_iter().map(defective).collect(), control: halves.control })
}

fn same(_: &mut DefectState, _: &mut Arrival) {}

fn keep(_: &mut DefectState, _: &Arrival, verdict: Verdict) -> Verdict {
    verdict
}

/// Prefers the least important requests.
pub(crate) const UPSIDE_DOWN: Algorithm = Algorithm {
    build_server: |params, environment| {
        let change =
            |_: &mut DefectState, event: &mut Arrival| event.priority = Priority::new(129 - event.priority.level());
        with_defect(params, environment, change, keep)
    },
    ..edge::ALGORITHM
};

/// Rejects for ever after its first rejection.
pub(crate) const LOCKS_OUT: Algorithm = Algorithm {
    build_server: |params, environment| {
        with_defect(params, environment, same, |memory, _, verdict| {
            memory.refused |= verdict != Verdict::Admit;
            if memory.refused { Verdict::Reject(RejectReason::Priority) } else { verdict }
        })
    },
    ..edge::ALGORITHM
};

/// Applies levels while workers are free.
pub(crate) const REJECTS_WHEN_FREE: Algorithm = Algorithm {
    build_server: |params, environment| {
        let change = |_: &mut DefectState, event: &mut Arrival| event.delay = event.delay.max(Nanos::from_millis(8));
        with_defect(params, environment, change, keep)
    },
    ..edge::ALGORITHM
};

/// Has one share for all tenants together.
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

/// Ignores the cost of requests.
pub(crate) const NO_COSTS: Algorithm = Algorithm {
    build_server: |params, environment| {
        with_defect(params, environment, |_: &mut DefectState, event: &mut Arrival| event.cost = Cost::ONE, keep)
    },
    ..edge::ALGORITHM
};

/// Ignores deadlines.
pub(crate) const ADMITS_LATE: Algorithm = Algorithm {
    build_server: |params, environment| {
        let change = |_: &mut DefectState, event: &mut Arrival| {
            *event = event.with_budget(leeward_core::budget::Budget::UNLIMITED);
        };
        with_defect(params, environment, change, keep)
    },
    ..edge::ALGORITHM
};

/// Rejects everything for the first tenth of a second.
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
