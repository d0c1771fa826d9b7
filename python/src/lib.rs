//! The native part of the Python package `leeward`: scenarios, runs, tables in Arrow's layout,
//! controllers written in Python, load.
//!
//! Plots, sweeps and the public names are in `leeward/`, which is Python.
//!
//! - `errors`: conversion of errors to exceptions of `leeward.errors`.
//! - `scenario`, `run`: a checked scenario; all of its runs. `grid`, `cells`: a sweep, and parts of
//!   it.
//! - `controller`: the halves of a controller that calls Python.
//! - `results`, `table`: results as JSON, Arrow or Parquet.
//! - `read`, `trace`: recordings of servers, traces of the profiler. `load`, `listing`: the load
//!   generator; lists of scenarios, controllers and fields.

mod cells;
mod controller;
mod errors;
mod grid;
mod listing;
mod load;
mod patience;
mod read;
mod results;
mod run;
mod scenario;
mod table;
mod trace;

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The module `leeward._leeward`.
#[pymodule]
fn _leeward(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("RECORDING", pyo3::types::PyBytes::new(module.py(), &leeward_recording::MAGIC))?;
    module.add("TRACE", pyo3::types::PyBytes::new(module.py(), &leeward_profile::format::MAGIC))?;
    module.add_class::<scenario::Scenario>()?;
    module.add_class::<results::Results>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<grid::Grid>()?;
    module.add_class::<patience::Stop>()?;
    module.add_class::<controller::Signals>()?;
    module.add_class::<controller::Arrival>()?;
    module.add_class::<controller::Pool>()?;
    module.add_class::<controller::Environment>()?;
    module.add_class::<load::Recording>()?;
    module.add_function(wrap_pyfunction!(load::load, module)?)?;
    module.add_function(wrap_pyfunction!(load::merge, module)?)?;
    module.add_function(wrap_pyfunction!(listing::scenarios, module)?)?;
    module.add_function(wrap_pyfunction!(listing::controllers, module)?)?;
    module.add_function(wrap_pyfunction!(listing::looks, module)?)?;
    module.add_function(wrap_pyfunction!(listing::fields, module)?)?;
    module.add_function(wrap_pyfunction!(read::recording, module)?)?;
    module.add_function(wrap_pyfunction!(trace::trace_events, module)?)?;
    module.add_function(wrap_pyfunction!(trace::trace_requests, module)?)?;
    module.add_function(wrap_pyfunction!(trace::trace_timeline, module)?)?;
    let at_exit = wrap_pyfunction!(controller::ask::end_at_exit, module)?;
    module.py().import("atexit")?.call_method1("register", (at_exit,))?;
    let forked = PyDict::new(module.py());
    forked.set_item("after_in_child", wrap_pyfunction!(controller::ask::forget_threads, module)?)?;
    module.py().import("os")?.call_method("register_at_fork", (), Some(&forked))?;
    Ok(())
}
