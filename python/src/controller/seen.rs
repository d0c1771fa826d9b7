//! Views of the plant that a controller in Python is shown. Times are in microseconds, as in the tables.
//!
//! Making an object costs as much as a short method. A view is used again in the next call, unless the controller has kept it.

use leeward_controllers::breakwater::PoolState;
use leeward_core::registry;
use leeward_core::server;
use leeward_core::units::Nanos;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt};
use std::sync::atomic::{AtomicU64, Ordering};

fn micros(span: Nanos) -> f64 {
    span.as_micros_f64()
}

/// Surroundings that a controller must know and can't decide.
#[pyclass(frozen, get_all, module = "leeward._leeward")]
pub(crate) struct Environment {
    /// Cores of the server.
    cores: u32,
    /// Network round trip without queueing, µs.
    rtt_us: f64,
    /// The latency objective, µs.
    slo_us: f64,
}

impl Environment {
    pub(super) fn of(environment: &registry::Environment) -> Self {
        Environment { cores: environment.cores, rtt_us: micros(environment.rtt), slo_us: micros(environment.slo) }
    }
}

/// A number of a view. Written before a call, read in it, on one thread.
#[derive(Default)]
struct Real(AtomicU64);

impl Real {
    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }
}

impl<'py> IntoPyObject<'py> for &Real {
    type Target = PyFloat;
    type Output = Bound<'py, PyFloat>;
    type Error = std::convert::Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        f64::from_bits(self.0.load(Ordering::Relaxed)).into_pyobject(py)
    }
}

/// A whole number of a view.
#[derive(Default)]
struct Whole(AtomicU64);

impl Whole {
    fn set(&self, value: impl Into<i128>) {
        self.0.store(value.into() as u64, Ordering::Relaxed);
    }
}

impl<'py> IntoPyObject<'py> for &Whole {
    type Target = PyInt;
    type Output = Bound<'py, PyInt>;
    type Error = std::convert::Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        (self.0.load(Ordering::Relaxed) as i64).into_pyobject(py)
    }
}

/// A view that shows one thing after the other.
pub(super) trait View: pyo3::PyClass<Frozen = pyo3::pyclass::boolean_struct::True> + Default + Sync {}

/// The view that was shown last.
pub(super) struct Shown<V>(Option<Py<V>>);

impl<V> Default for Shown<V> {
    fn default() -> Self {
        Shown(None)
    }
}

impl<V> Shown<V>
where
    V: View + Into<pyo3::PyClassInitializer<V>>,
{
    /// A view that `fill` has filled: the last one, or another where that is kept by somebody.
    pub(super) fn with<'py>(&mut self, py: Python<'py>, fill: impl FnOnce(&V)) -> PyResult<Bound<'py, V>> {
        // SAFETY: the interpreter is held, so nobody takes or gives up a reference meanwhile.
        let free = self.0.take().filter(|view| unsafe { ffi::Py_REFCNT(view.as_ptr()) } == 1);
        let view = free.map_or_else(|| Py::new(py, V::default()), Ok)?;
        fill(view.get());
        let shown = view.bind(py).clone();
        self.0 = Some(view);
        Ok(shown)
    }
}

/// State of the plant, and the events since the last tick.
#[pyclass(frozen, get_all, module = "leeward._leeward")]
#[derive(Default)]
pub(crate) struct Signals {
    /// Now, µs from the run's begin.
    now_us: Real,
    /// Queueing delay: that of the packet and that of the task which wait longest, µs.
    delay_us: Real,
    /// Age of the oldest packet that waits, µs.
    packet_delay_us: Real,
    /// Age of the oldest task that waits, µs.
    run_delay_us: Real,
    /// Requests received.
    arrivals: Whole,
    /// Requests answered with a result.
    completions: Whole,
    /// Requests rejected.
    drops: Whole,
    /// Of these, requests that were refused a lock.
    lock_drops: Whole,
}

impl Signals {
    pub(super) fn show(&self, signals: &server::Signals) {
        self.now_us.set(signals.now.0 as f64 / 1e3);
        self.delay_us.set(micros(signals.delay()));
        self.packet_delay_us.set(micros(signals.packet_delay));
        self.run_delay_us.set(micros(signals.run_delay));
        self.arrivals.set(signals.arrivals);
        self.completions.set(signals.completions);
        self.drops.set(signals.rejections);
        self.lock_drops.set(signals.lock_rejections);
    }
}

impl View for Signals {}

/// A request that has been received and parsed.
#[pyclass(frozen, get_all, module = "leeward._leeward")]
#[derive(Default)]
pub(crate) struct Arrival {
    /// Now, µs from the run's begin.
    now_us: Real,
    /// Queueing delay of the server, µs.
    delay_us: Real,
    /// Requests that still wait at the client.
    demand: Whole,
    /// How important the request is: 1 is the most important, 128 the least.
    priority: Whole,
    /// A random number from 0 up to and without 1, drawn from the run's seed.
    random: Real,
    /// Tenant for which the request was sent.
    tenant: Whole,
    /// How much work the request is.
    cost: Whole,
    /// Core that received it.
    core: Whole,
}

impl Arrival {
    pub(super) fn show(&self, arrival: &server::Arrival, core: u32) {
        self.now_us.set(arrival.now.0 as f64 / 1e3);
        self.delay_us.set(micros(arrival.delay));
        self.demand.set(arrival.demand);
        self.priority.set(arrival.priority.level());
        self.random.set(fraction(arrival.random));
        self.tenant.set(arrival.tenant.0);
        self.cost.set(arrival.cost.0);
        self.core.set(core);
    }
}

impl View for Arrival {}

/// Random bits as a number from 0 up to and without 1.
pub(super) fn fraction(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// The credit pool of Breakwater's server.
#[pyclass(frozen, get_all, module = "leeward._leeward")]
#[derive(Default)]
pub(crate) struct Pool {
    /// Credits that there are.
    total: Whole,
    /// Credits that clients hold.
    issued: Whole,
    /// Clients that are registered.
    sessions: Whole,
}

impl Pool {
    pub(super) fn show(&self, state: &PoolState) {
        self.total.set(state.total);
        self.issued.set(state.issued);
        self.sessions.set(state.sessions);
    }
}

impl View for Pool {}
