//! The halves of a controller that call a Python object.

use super::ask::call_python;
use super::dials::{DialAdmission, Dials, short_repr};
use super::seen::{self, ViewCache};
use crate::errors;
use leeward_controllers::breakwater::{PoolLaw, PoolState};
use leeward_core::client::{ClientHalf, Gate};
use leeward_core::server::{
    Admission, Arrival, ControlLoop, Departure, Feedback, Gauges, RejectReason, Session, Signals, Verdict,
};
use leeward_core::units::{Nanos, Time};
use pyo3::prelude::*;
use pyo3::types::PyBool;
use std::sync::Arc;

/// A controller object that all halves share.
pub(super) struct PythonController {
    pub(super) slot: u64,
    pub(super) label: String,
    /// Bound methods; `None` if the class has none.
    pub(super) tick: Option<Py<PyAny>>,
    pub(super) request: Option<Py<PyAny>>,
    pub(super) pool: Option<Py<PyAny>>,
    pub(super) period: Nanos,
}

/// The slow half.
pub(super) struct SlowHalf {
    pub(super) object: Arc<PythonController>,
    pub(super) dials: Arc<Dials>,
    pub(super) signals: ViewCache<seen::Signals>,
}

impl ControlLoop for SlowHalf {
    fn period(&self) -> Nanos {
        self.object.period
    }

    fn reaction(&self) -> Nanos {
        self.object.period
    }

    fn tick(&mut self, signals: &Signals) {
        let Some(tick) = &self.object.tick else { return };
        call_python(self.object.slot, |py| {
            let view = self.signals.with(py, |view| view.show(signals))?;
            let answer = tick.bind(py).call1((view,))?;
            self.dials.set(&self.object.label, &answer)
        });
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            concurrency_limit: self.dials.limit().map(|limit| limit as f64),
            in_flight: Some(self.dials.in_flight() as i64),
            ..Gauges::default()
        }
    }
}

/// A fast half that calls Python for each request that the settings admit.
pub(super) struct FastHalf {
    pub(super) object: Arc<PythonController>,
    pub(super) base: DialAdmission,
    pub(super) arrival: ViewCache<seen::Arrival>,
}

impl Admission for FastHalf {
    fn request(&mut self, session: &mut Session, event: &Arrival) -> Verdict {
        let verdict = self.base.request(session, event);
        let Some(request) = self.object.request.as_ref().filter(|_| verdict == Verdict::Admit) else { return verdict };
        let admits = call_python(self.object.slot, |py| {
            let view = self.arrival.with(py, |view| view.show(event, session.core.0))?;
            let answer = request.bind(py).call1((view,))?;
            answer.cast::<PyBool>().map(|admits| admits.is_true()).map_err(|_| {
                let message =
                    format!("{}: request returned {}; accepted: True or False", self.object.label, short_repr(&answer));
                errors::plain(py, "ControllerError", &message)
            })
        });
        if admits { Verdict::Admit } else { Verdict::Reject(RejectReason::Concurrency) }
    }

    fn reply(&mut self, session: &mut Session, event: &Departure) -> Feedback {
        self.base.reply(session, event)
    }
}

/// The law of Breakwater's pool.
pub(super) struct Law {
    pub(super) object: Arc<PythonController>,
    pub(super) signals: ViewCache<seen::Signals>,
    pub(super) pool: ViewCache<seen::Pool>,
}

impl PoolLaw for Law {
    fn total(&mut self, pool: &PoolState, signals: &Signals) -> i64 {
        let Some(law) = &self.object.pool else { return pool.total };
        call_python(self.object.slot, |py| {
            let signals = self.signals.with(py, |view| view.show(signals))?;
            let answer = law.bind(py).call1((signals, self.pool.with(py, |view| view.show(pool))?))?;
            let credits = answer.extract::<f64>().ok().filter(|credits| credits.is_finite() && *credits >= 0.0);
            credits.map(|credits| credits as i64).ok_or_else(|| {
                let message = format!(
                    "{}: pool returned {}; accepted: a number of credits from 0",
                    self.object.label,
                    short_repr(&answer)
                );
                errors::plain(py, "ControllerError", &message)
            })
        })
    }
}

/// A client half that never holds back requests.
pub(super) struct SendAll;

impl ClientHalf for SendAll {
    fn gate(&mut self, _: Time, _: u32) -> Gate {
        Gate::Open
    }
}
