//! A scenario of Python: its text, overrides, and the controllers that are written in Python.

use crate::controller::{self, PyAlgorithm};
use crate::errors;
use crate::grid::Grid;
use crate::patience::{Stop, catch_panics};
use crate::results::Results;
use crate::table::Table;
use leeward_core::registry::Registry;
use leeward_lab::scenario::{self as lab, ScenarioError};
use leeward_lab::{Scenario as Checked, builtin_scenarios};
use pyo3::prelude::*;
use std::path::PathBuf;

/// All parts of a scenario, so that another thread can make it again.
#[pyclass(frozen, module = "leeward._leeward")]
pub(crate) struct Scenario {
    pub(crate) source: Source,
    pub(crate) checked: Checked,
}

/// Text of a scenario and overrides.
pub(crate) struct Source {
    name: String,
    text: String,
    folder: PathBuf,
    overrides: Vec<String>,
    quick: bool,
    python_algorithms: Vec<PyAlgorithm>,
}

impl Source {
    pub(crate) fn overrides(&self) -> &[String] {
        &self.overrides
    }

    /// Returns true if a Python controller decides about each request: then threads would only wait
    /// for each other.
    pub(crate) fn decides_in_python(&self) -> bool {
        self.python_algorithms.iter().any(PyAlgorithm::per_request)
    }

    /// Numbers of the Python classes.
    pub(crate) fn class_slots(&self) -> Vec<u64> {
        self.python_algorithms.iter().map(PyAlgorithm::slot).collect()
    }

    /// The built-in algorithms and those of this scenario.
    pub(crate) fn registry(&self, py: Python<'_>) -> PyResult<Registry> {
        let mut registry = leeward_lab::registry();
        for algorithm in &self.python_algorithms {
            let added = registry.add(algorithm.algorithm());
            added.map_err(|error| errors::plain(py, "ControllerError", &error.to_string()))?;
        }
        Ok(registry)
    }

    /// The text with a section for each controller that is written in Python.
    fn whole_text(&self) -> String {
        self.python_algorithms.iter().fold(self.text.clone(), |text, algorithm| text + &algorithm.section())
    }

    /// Checks the scenario with these overrides.
    pub(crate) fn check(&self, overrides: &[String], registry: &Registry) -> Result<Checked, ScenarioError> {
        Checked::parse(&self.name, &self.whole_text(), &self.folder, overrides, self.quick, registry)
    }

    fn copy(&self, py: Python<'_>, overrides: Vec<String>) -> Source {
        Source {
            name: self.name.clone(),
            text: self.text.clone(),
            folder: self.folder.clone(),
            overrides,
            quick: self.quick,
            python_algorithms: self.python_algorithms.iter().map(|algorithm| algorithm.clone_ref(py)).collect(),
        }
    }

    /// Returns a copy with the overrides of one call added.
    pub(crate) fn with(&self, py: Python<'_>, more: Option<String>) -> Source {
        self.copy(py, self.overrides.iter().cloned().chain(more).collect())
    }
}

/// Label and class of a controller, and its parameters as TOML.
type LabelledClass = (String, Py<PyAny>, Vec<(String, String)>);

#[pymethods]
impl Scenario {
    #[new]
    #[pyo3(signature = (name, text, folder, overrides, quick, controllers))]
    fn new(
        py: Python<'_>,
        name: String,
        text: String,
        folder: PathBuf,
        overrides: Vec<String>,
        quick: bool,
        controllers: Vec<LabelledClass>,
    ) -> PyResult<Self> {
        let python_algorithms =
            controllers.into_iter().map(|(label, class, args)| controller::PyAlgorithm::new(py, label, class, args));
        let python_algorithms = python_algorithms.collect::<PyResult<Vec<_>>>()?;
        let source = Source { name, text, folder, overrides, quick, python_algorithms };
        let registry = source.registry(py)?;
        let checked = catch_panics(py, || source.check(&source.overrides, &registry))?;
        let checked = checked.map_err(|error| errors::scenario(py, &error))?;
        Ok(Scenario { source, checked })
    }

    #[getter]
    fn id(&self) -> &str {
        &self.checked.id
    }

    #[getter]
    fn title(&self) -> &str {
        &self.checked.title
    }

    #[getter(source)]
    fn source_(&self) -> &str {
        &self.checked.source
    }

    #[getter]
    fn description(&self) -> &str {
        &self.checked.description
    }

    #[getter]
    fn seeds(&self) -> u32 {
        self.checked.run.seeds
    }

    #[getter]
    fn labels(&self) -> Vec<&str> {
        self.checked.controllers.iter().map(|variant| variant.label.as_str()).collect()
    }

    /// Label of each variant's `[[controller]]` entry.
    #[getter]
    fn bases(&self) -> Vec<&str> {
        self.checked.controllers.iter().map(|variant| variant.base_label.as_str()).collect()
    }

    /// Pairs of label and controller.
    #[getter]
    fn variants(&self) -> Vec<(&str, &str)> {
        self.checked.controllers.iter().map(|variant| (variant.label.as_str(), variant.controller.as_str())).collect()
    }

    /// Runs the whole scenario: see `run`.
    #[pyo3(signature = (seed, seeds=None, labels=None, threads=None, progress=None, stop=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of one call from Python")]
    fn run(
        &self,
        py: Python<'_>,
        seed: u64,
        seeds: Option<u32>,
        labels: Option<Vec<String>>,
        threads: Option<usize>,
        progress: Option<Py<PyAny>>,
        stop: Option<Bound<'_, Stop>>,
    ) -> PyResult<Results> {
        self.run_all(py, seed, seeds, labels, threads, progress, stop.as_ref().map(Bound::get))
    }

    /// Checks a cell of a sweep: see `cells`.
    fn check_cell(&self, py: Python<'_>, grid: Bound<'_, Grid>, index: usize) -> PyResult<()> {
        self.check_one(py, grid.get(), index)
    }

    /// Runs cells of a sweep: see `cells`.
    #[pyo3(signature = (grid, start, stop_at, table="points", stop=None))]
    fn run_cells(
        &self,
        py: Python<'_>,
        grid: Bound<'_, Grid>,
        start: usize,
        stop_at: usize,
        table: &str,
        stop: Option<Bound<'_, Stop>>,
    ) -> PyResult<Table> {
        self.run_range(py, grid.get(), start, stop_at, table, stop.as_ref().map(Bound::get))
    }
}

/// The text of a built-in scenario.
pub(crate) fn builtin_text(id: &str) -> Option<&'static str> {
    builtin_scenarios().iter().find(|known| known.id == id).map(|known| known.text)
}

/// The exception for an unknown scenario.
pub(crate) fn unknown(py: Python<'_>, id: &str) -> PyErr {
    match Checked::builtin(id, &[], true) {
        Err(error @ lab::ScenarioError::UnknownId { .. }) => errors::scenario(py, &error),
        _ => errors::plain(py, "RunError", "the scenario is there"),
    }
}
