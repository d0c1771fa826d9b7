//! Results of a scenario: tables, claims, JSON and the report.

use crate::errors;
use crate::table::{Builder, Table};
use leeward_lab::results::Results as Whole;
use leeward_lab::store;
use leeward_outcome::table as rows;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;

/// Results of a run.
#[pyclass(frozen, module = "leeward._leeward")]
pub(crate) struct Results {
    results: Whole,
}

impl Results {
    pub(crate) fn new(results: Whole) -> Self {
        Results { results }
    }
}

#[pymethods]
impl Results {
    /// Reads a results folder or its `result.json`.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        store::read(&path).map(Results::new).map_err(|error| errors::store(py, &error))
    }

    /// Reads the output of [`Results::to_json`].
    #[staticmethod]
    fn from_json(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        let read = serde_json::from_slice(bytes);
        read.map(Results::new).map_err(|error| errors::plain(py, "ResultsError", &error.to_string()))
    }

    /// The results as `leeward run --json` prints them.
    fn to_json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = serde_json::to_vec(&self.results);
        let mut bytes = bytes.map_err(|error| errors::plain(py, "ResultsError", &error.to_string()))?;
        bytes.push(b'\n'); // as the program prints it
        Ok(PyBytes::new(py, &bytes))
    }

    /// Writes a results folder, with its report.
    fn write(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        store::write(&folder, &self.results).map_err(|error| errors::store(py, &error))?;
        let report = folder.join("report.html");
        std::fs::write(&report, self.report())
            .map_err(|error| errors::plain(py, "ResultsError", &format!("{}: {error}", report.display())))
    }

    /// The report, one HTML page.
    fn report(&self) -> String {
        leeward_report::render(&self.results)
    }

    /// A table by its name: `points`, `windows`, `shifts`, `locks`, `replicas`, `services`,
    /// `kinds`.
    fn table(&self, py: Python<'_>, name: &str) -> PyResult<Table> {
        let table = rows::Table::find(name).ok_or_else(|| {
            let names: Vec<&str> = rows::Table::ALL.iter().map(|table| table.name()).collect();
            errors::plain(py, "ResultsError", &format!("there is no table `{name}`; accepted: {}", names.join(", ")))
        })?;
        let mut builder = Builder::of(table);
        builder.rows(table, &self.results, &[]);
        Ok(builder.finish())
    }

    /// Claims as JSON objects.
    fn claims_json(&self, py: Python<'_>) -> PyResult<String> {
        serde_json::to_string(&self.results.claims)
            .map_err(|error| errors::plain(py, "ResultsError", &error.to_string()))
    }

    #[getter]
    fn scenario(&self) -> &str {
        &self.results.scenario
    }

    #[getter]
    fn title(&self) -> &str {
        &self.results.title
    }

    #[getter]
    fn plant(&self) -> &str {
        &self.results.plant
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.results.seed
    }

    #[getter]
    fn quick(&self) -> bool {
        self.results.quick
    }

    #[getter]
    fn overrides(&self) -> Vec<String> {
        self.results.overrides.clone()
    }

    #[getter]
    fn doubts(&self) -> Vec<String> {
        self.results.doubts.clone()
    }
}
