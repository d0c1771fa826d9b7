//! The halves of a controller that ask an object in Python.

use super::ask::ask;
use super::dials::{Dialled, Dials, told};
use super::seen::{self, Shown};
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

/// An object of a controller's class, which halves share.
pub(super) struct Asked {
    pub(super) slot: u64,
    pub(super) label: String,
    /// Bound methods; `None` where the class has none.
    pub(super) tick: Option<Py<PyAny>>,
    pub(super) request: Option<Py<PyAny>>,
    pub(super) pool: Option<Py<PyAny>>,
    pub(super) period: Nanos,
}

/// The slow half.
pub(super) struct SlowHalf {
    pub(super) asked: Arc<Asked>,
    pub(super) dials: Arc<Dials>,
    pub(super) signals: Shown<seen::Signals>,
}

impl ControlLoop for SlowHalf {
    fn period(&self) -> Nanos {
        self.asked.period
    }

    fn tick(&mut self, signals: &Signals) {
        let Some(tick) = &self.asked.tick else { return };
        ask(self.asked.slot, |py| {
            let shown = self.signals.with(py, |view| view.show(signals))?;
            let answer = tick.bind(py).call1((shown,))?;
            self.dials.set(&self.asked.label, &answer)
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

/// A fast half that asks about every request, after the dials have let it pass.
pub(super) struct FastHalf {
    pub(super) asked: Arc<Asked>,
    pub(super) dialled: Dialled,
    pub(super) arrival: Shown<seen::Arrival>,
}

impl Admission for FastHalf {
    fn request(&mut self, session: &mut Session, event: &Arrival) -> Verdict {
        let verdict = self.dialled.request(session, event);
        let Some(request) = self.asked.request.as_ref().filter(|_| verdict == Verdict::Admit) else { return verdict };
        let admits = ask(self.asked.slot, |py| {
            let shown = self.arrival.with(py, |view| view.show(event, session.core.0))?;
            let answer = request.bind(py).call1((shown,))?;
            answer.cast::<PyBool>().map(|admits| admits.is_true()).map_err(|_| {
                let words =
                    format!("{}: request returned {}; accepted: True or False", self.asked.label, told(&answer));
                errors::plain(py, "ControllerError", &words)
            })
        });
        if admits { Verdict::Admit } else { Verdict::Reject(RejectReason::Concurrency) }
    }

    fn reply(&mut self, session: &mut Session, event: &Departure) -> Feedback {
        self.dialled.reply(session, event)
    }
}

/// The law of Breakwater's pool.
pub(super) struct Law {
    pub(super) asked: Arc<Asked>,
    pub(super) signals: Shown<seen::Signals>,
    pub(super) pool: Shown<seen::Pool>,
}

impl PoolLaw for Law {
    fn total(&mut self, pool: &PoolState, signals: &Signals) -> i64 {
        let Some(law) = &self.asked.pool else { return pool.total };
        ask(self.asked.slot, |py| {
            let signals = self.signals.with(py, |view| view.show(signals))?;
            let answer = law.bind(py).call1((signals, self.pool.with(py, |view| view.show(pool))?))?;
            let credits = answer.extract::<f64>().ok().filter(|credits| credits.is_finite() && *credits >= 0.0);
            credits.map(|credits| credits as i64).ok_or_else(|| {
                let words = format!(
                    "{}: pool returned {}; accepted: a number of credits from 0",
                    self.asked.label,
                    told(&answer)
                );
                errors::plain(py, "ControllerError", &words)
            })
        })
    }
}

/// A client that sends whatever the connection takes.
pub(super) struct SendAll;

impl ClientHalf for SendAll {
    fn gate(&mut self, _: Time, _: u32) -> Gate {
        Gate::Open
    }
}
