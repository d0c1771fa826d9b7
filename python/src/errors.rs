//! Conversion of the crates' errors to exceptions of `leeward.errors`.
//!
//! Those are Python classes, so that they can be pickled and have fields.

use leeward_lab::run::RunError;
use leeward_lab::scenario::ScenarioError;
use leeward_lab::store::StoreError;
use leeward_lab::sweep::SweepError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Creates an exception of the class `class`. Without the package it is an import error, which
/// names the problem, too.
fn of_class(py: Python<'_>, class: &str, arguments: &[&str]) -> PyErr {
    let made = || {
        let arguments = PyTuple::new(py, arguments)?;
        py.import("leeward.errors")?.getattr(class)?.call1(arguments)
    };
    made().map_or_else(|error| error, PyErr::from_value)
}

/// Creates a `LeewardError` of the class `class` with this message.
pub(crate) fn plain(py: Python<'_>, class: &str, message: &str) -> PyErr {
    of_class(py, class, &[message])
}

/// Creates a `ScenarioError` with file, line and key.
pub(crate) fn scenario(py: Python<'_>, error: &ScenarioError) -> PyErr {
    let (place, key) = match error {
        ScenarioError::Invalid { place, key, .. } => (place.as_str(), key.as_str()),
        ScenarioError::Read { file, .. } => (file.as_str(), ""),
        _ => ("", ""),
    };
    of_class(py, "ScenarioError", &[&error.to_string(), place, key])
}

/// Creates a `ScenarioError` if the request was wrong, a `RunError` if the run failed.
pub(crate) fn run(py: Python<'_>, error: &RunError) -> PyErr {
    match error {
        RunError::Cancelled => plain(py, "Stopped", "stopped before all runs were done"),
        error if error.is_input() => of_class(py, "ScenarioError", &[&error.to_string(), "", ""]),
        error => plain(py, "RunError", &error.to_string()),
    }
}

/// Creates an exception of a sweep.
pub(crate) fn sweep(py: Python<'_>, error: &SweepError) -> PyErr {
    match error {
        SweepError::Scenario(error) => scenario(py, error),
        SweepError::Run(error) => run(py, error),
        SweepError::Label { .. } => of_class(py, "ScenarioError", &[&error.to_string(), "", "controller"]),
        error => plain(py, "SweepError", &error.to_string()),
    }
}

/// Creates a `ResultsError`.
pub(crate) fn store(py: Python<'_>, error: &StoreError) -> PyErr {
    plain(py, "ResultsError", &error.to_string())
}
