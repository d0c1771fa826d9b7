//! A scenario as Python holds it: its text, what changes it, and the controllers that are written in Python.

use crate::controller::{self, Written};
use crate::errors;
use crate::grid::Grid;
use crate::patience::{Stop, catching};
use crate::results::Results;
use crate::table::Table;
use leeward_core::registry::Registry;
use leeward_lab::scenario::{self as lab, ScenarioError};
use leeward_lab::{Scenario as Checked, builtin_scenarios};
use pyo3::prelude::*;
use std::path::PathBuf;

/// Everything that makes a scenario, so that it can be made again on another thread.
#[pyclass(frozen, module = "leeward._leeward")]
pub(crate) struct Scenario {
    pub(crate) source: Source,
    pub(crate) checked: Checked,
}

/// Text of a scenario and changes to it.
pub(crate) struct Source {
    name: String,
    text: String,
    folder: PathBuf,
    overrides: Vec<String>,
    quick: bool,
    written: Vec<Written>,
}

impl Source {
    pub(crate) fn overrides(&self) -> &[String] {
        &self.overrides
    }

    /// Whether a controller of it is asked about every request: then threads only wait for each other.
    pub(crate) fn decides_in_python(&self) -> bool {
        self.written.iter().any(Written::per_request)
    }

    /// Numbers of the classes that are asked.
    pub(crate) fn asked(&self) -> Vec<u64> {
        self.written.iter().map(Written::slot).collect()
    }

    /// The algorithms of this library and those of this scenario.
    pub(crate) fn registry(&self, py: Python<'_>) -> PyResult<Registry> {
        let mut registry = leeward_lab::registry();
        for written in &self.written {
            let added = registry.add(written.algorithm());
            added.map_err(|error| errors::plain(py, "ControllerError", &error.to_string()))?;
        }
        Ok(registry)
    }

    /// The text with a section for each controller that is written in Python.
    fn whole_text(&self) -> String {
        self.written.iter().fold(self.text.clone(), |text, written| text + &written.section())
    }

    /// The scenario with these overrides, checked.
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
            written: self.written.iter().map(|written| written.clone_ref(py)).collect(),
        }
    }

    /// The same with the overrides of a call.
    pub(crate) fn with(&self, py: Python<'_>, more: Option<String>) -> Source {
        self.copy(py, self.overrides.iter().cloned().chain(more).collect())
    }
}

#[pymethods]
impl Scenario {
    /// `controllers` are tuples of label, class and parameters as TOML.
    #[new]
    #[pyo3(signature = (name, text, folder, overrides, quick, controllers))]
    fn new(
        py: Python<'_>,
        name: String,
        text: String,
        folder: PathBuf,
        overrides: Vec<String>,
        quick: bool,
        controllers: Vec<(String, Py<PyAny>, Vec<(String, String)>)>,
    ) -> PyResult<Self> {
        let written =
            controllers.into_iter().map(|(label, class, params)| controller::Written::new(py, label, class, params));
        let written = written.collect::<PyResult<Vec<_>>>()?;
        let source = Source { name, text, folder, overrides, quick, written };
        let registry = source.registry(py)?;
        let checked = catching(py, || source.check(&source.overrides, &registry))?;
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

    /// Pairs of label and controller.
    #[getter]
    fn variants(&self) -> Vec<(&str, &str)> {
        self.checked.controllers.iter().map(|variant| (variant.label.as_str(), variant.controller.as_str())).collect()
    }

    /// Runs all of it: see `run`.
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

/// The text of a scenario that comes with this library.
pub(crate) fn builtin_text(id: &str) -> Option<&'static str> {
    builtin_scenarios().iter().find(|known| known.id == id).map(|known| known.text)
}

/// Exception for a scenario that is not there.
pub(crate) fn unknown(py: Python<'_>, id: &str) -> PyErr {
    match Checked::builtin(id, &[], true) {
        Err(error @ lab::ScenarioError::UnknownId { .. }) => errors::scenario(py, &error),
        _ => errors::plain(py, "RunError", "the scenario is there"),
    }
}
