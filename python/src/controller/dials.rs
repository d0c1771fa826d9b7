//! Settings by a slow half in Python, and the fast half that applies them.
//!
//! There are four: a share of requests, a queueing delay, a concurrency limit and a priority.

use super::seen::fraction;
use crate::errors;
use leeward_core::server::{Admission, Arrival, Departure, Feedback, RejectReason, Session, Verdict};
use leeward_core::units::{Nanos, Priority, parse_duration};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Settings that all cores read.
pub(super) struct Dials {
    /// Share of requests to admit, as bits of an `f64`.
    admit: AtomicU64,
    /// Queueing delay from which requests are rejected, in ns.
    delay: AtomicU64,
    /// Limit of requests in the server.
    limit: AtomicU64,
    /// Requests in the server.
    in_flight: AtomicU64,
    /// Requests less important than this are rejected.
    priority: AtomicU8,
}

impl Dials {
    /// Settings that admit every request.
    pub(super) fn open() -> Self {
        Dials {
            admit: AtomicU64::new(1f64.to_bits()),
            delay: AtomicU64::new(u64::MAX),
            limit: AtomicU64::new(u64::MAX),
            in_flight: AtomicU64::new(0),
            priority: AtomicU8::new(Priority::LOWEST.level()),
        }
    }

    pub(super) fn limit(&self) -> Option<u64> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit != u64::MAX)
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Applies the result of a tick; missing keys leave their settings unchanged.
    pub(super) fn set(&self, label: &str, answer: &Bound<'_, PyAny>) -> PyResult<()> {
        if answer.is_none() {
            return Ok(());
        }
        let py = answer.py();
        let wrong =
            |problem: String| errors::plain(py, "ControllerError", &format!("{label}: tick returned {problem}"));
        let Ok(settings) = answer.cast::<PyDict>() else {
            return Err(wrong(format!("{}; accepted: a dict, or None", short_repr(answer))));
        };
        for (key, value) in settings.iter() {
            let name = key.cast::<PyString>().map(ToString::to_string).unwrap_or_else(|_| short_repr(&key));
            let bad = |accepted: &str| wrong(format!("{name} = {}; accepted: {accepted}", short_repr(&value)));
            let number = || value.extract::<f64>().ok().filter(|number| number.is_finite());
            match name.as_str() {
                "admit" => {
                    let share = number().filter(|share| (0.0..=1.0).contains(share));
                    self.admit.store(share.ok_or_else(|| bad("a number from 0 to 1"))?.to_bits(), Ordering::Relaxed);
                }
                "delay" => {
                    let accepted = "a duration such as \"80us\", a number of microseconds from 0, or None";
                    let span = if value.is_none() {
                        Some(Nanos::MAX)
                    } else if let Ok(text) = value.extract::<String>() {
                        parse_duration(&text).ok()
                    } else {
                        number().filter(|us| *us >= 0.0).map(|us| Nanos::from_secs_f64(us / 1e6))
                    };
                    self.delay.store(span.ok_or_else(|| bad(accepted))?.0, Ordering::Relaxed);
                }
                "limit" => {
                    let limit = if value.is_none() {
                        Some(u64::MAX)
                    } else {
                        number().filter(|limit| *limit >= 0.0).map(|limit| limit as u64)
                    };
                    self.limit.store(limit.ok_or_else(|| bad("a number from 0, or None"))?, Ordering::Relaxed);
                }
                "priority" => {
                    let level = number().filter(|level| (1.0..=128.0).contains(level));
                    self.priority.store(level.ok_or_else(|| bad("a number from 1 to 128"))? as u8, Ordering::Relaxed);
                }
                _ => return Err(wrong(format!("the key `{name}`; accepted: admit, delay, limit, priority"))),
            }
        }
        Ok(())
    }
}

/// The representation of a value for a message, at most 80 characters.
pub(super) fn short_repr(value: &Bound<'_, PyAny>) -> String {
    let text = value.repr().map(|text| text.to_string()).unwrap_or_else(|_| "something".into());
    text.chars().take(80).collect()
}

/// The fast half of a core.
pub(super) struct DialAdmission {
    pub(super) dials: Arc<Dials>,
}

impl Admission for DialAdmission {
    fn request(&mut self, _: &mut Session, event: &Arrival) -> Verdict {
        let dials = &self.dials;
        let in_flight = dials.in_flight.fetch_add(1, Ordering::Relaxed); // reply() decrements it, for rejections, too
        if event.delay.0 >= dials.delay.load(Ordering::Relaxed) {
            Verdict::Reject(RejectReason::Delay)
        } else if event.priority.level() > dials.priority.load(Ordering::Relaxed) {
            Verdict::Reject(RejectReason::Priority)
        } else if in_flight >= dials.limit.load(Ordering::Relaxed)
            || fraction(event.random) >= f64::from_bits(dials.admit.load(Ordering::Relaxed))
        {
            Verdict::Reject(RejectReason::Concurrency)
        } else {
            Verdict::Admit
        }
    }

    fn reply(&mut self, _: &mut Session, _: &Departure) -> Feedback {
        self.dials.in_flight.fetch_sub(1, Ordering::Relaxed);
        Feedback::NONE
    }
}
