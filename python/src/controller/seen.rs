//! Views of the plant for a controller in Python. Times are in microseconds, as in the tables.
//!
//! Making an object costs as much as a short method. A view is reused in the next call, unless the
//! controller has kept it.

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

/// The environment of a controller: facts that it must know and can't change.
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

/// A floating-point field of a view. One thread writes it before a call and reads it during the
/// call.
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

/// An integer field of a view.
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

/// A view that is refilled for each call.
pub(super) trait View: pyo3::PyClass<Frozen = pyo3::pyclass::boolean_struct::True> + Default + Sync {}

/// Cache of the last view.
pub(super) struct ViewCache<V>(Option<Py<V>>);

impl<V> Default for ViewCache<V> {
    fn default() -> Self {
        ViewCache(None)
    }
}

impl<V> ViewCache<V>
where
    V: View + Into<pyo3::PyClassInitializer<V>>,
{
    /// Returns a view filled by `fill`: the cached one, or a new one if Python code kept that.
    pub(super) fn with<'py>(&mut self, py: Python<'py>, fill: impl FnOnce(&V)) -> PyResult<Bound<'py, V>> {
        // SAFETY: this thread holds the interpreter, so no other thread changes the reference
        // count.
        let free = self.0.take().filter(|view| unsafe { ffi::Py_REFCNT(view.as_ptr()) } == 1);
        let view = free.map_or_else(|| Py::new(py, V::default()), Ok)?;
        fill(view.get());
        let bound = view.bind(py).clone();
        self.0 = Some(view);
        Ok(bound)
    }
}

/// State of the plant, and the events since the last tick.
#[pyclass(frozen, get_all, module = "leeward._leeward")]
#[derive(Default)]
pub(crate) struct Signals {
    /// Now, µs from the start of the run.
    now_us: Real,
    /// Queueing delay: the delays of the oldest packet and of the oldest task together, µs.
    delay_us: Real,
    /// Age of the oldest waiting packet, µs.
    packet_delay_us: Real,
    /// Age of the oldest waiting task, µs.
    run_delay_us: Real,
    /// Requests received.
    arrivals: Whole,
    /// Requests answered with a result.
    completions: Whole,
    /// Requests rejected.
    drops: Whole,
    /// Of these, requests that were rejected at a lock.
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
    /// Now, µs from the start of the run.
    now_us: Real,
    /// Queueing delay of the server, µs.
    delay_us: Real,
    /// Requests that still wait at the client.
    demand: Whole,
    /// Priority of the request, from 1 (most important) to 128 (least).
    priority: Whole,
    /// A random number in [0, 1), drawn from the run's seed.
    random: Real,
    /// Tenant of the request.
    tenant: Whole,
    /// Cost of the request.
    cost: Whole,
    /// Core that received the request.
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

/// Converts random bits to a number in [0, 1).
pub(super) fn fraction(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// The credit pool of Breakwater's server.
#[pyclass(frozen, get_all, module = "leeward._leeward")]
#[derive(Default)]
pub(crate) struct Pool {
    /// Total number of credits.
    total: Whole,
    /// Credits that clients hold.
    issued: Whole,
    /// Registered clients.
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
