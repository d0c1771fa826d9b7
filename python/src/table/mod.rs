//! A table in memory: columns of numbers and texts in Arrow's layout, so that data-frame libraries
//! use it without a copy.
//!
//! - `build`: conversion of rows of the results to columns.
//! - `arrow`: Arrow's C stream interface.
//! - `records`: conversion of other rows to columns.
//! - `parquet`: a file that every data-frame library reads.

mod arrow;
mod build;
mod parquet;
mod records;

pub(crate) use build::Builder;
pub(crate) use records::{Field, Records};

use crate::errors;
use arrow::Stream;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyList};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Values of a column. Absent rows contain a placeholder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "values", rename_all = "snake_case")]
pub(crate) enum Values {
    /// Numbers.
    Float(Vec<f64>),
    /// Whole numbers.
    Whole(Vec<i64>),
    /// 0 or 1.
    Flag(Vec<u8>),
    /// Texts.
    Text(Texts),
}

/// Concatenated texts and the offsets of their beginnings; the last offset is the end of the last
/// text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Texts {
    begins: Vec<i64>,
    bytes: String,
}

impl Default for Texts {
    fn default() -> Self {
        Texts { begins: vec![0], bytes: String::new() }
    }
}

impl Texts {
    fn push(&mut self, text: &str) {
        self.bytes.push_str(text);
        self.begins.push(self.bytes.len() as i64);
    }

    /// Checks that the texts follow each other without gaps and cover all bytes.
    fn check(&self) -> Result<(), &'static str> {
        let is_boundary = |begin: &i64| usize::try_from(*begin).is_ok_and(|begin| self.bytes.is_char_boundary(begin));
        match (self.begins.first(), self.begins.last()) {
            (Some(0), Some(end)) if *end == self.bytes.len() as i64 => {}
            _ => return Err("its offsets do not cover its texts"),
        }
        if !self.begins.is_sorted() || !self.begins.iter().all(is_boundary) {
            return Err("an offset is not at the beginning of a text");
        }
        Ok(())
    }

    fn get(&self, row: usize) -> &str {
        &self.bytes[self.begins[row] as usize..self.begins[row + 1] as usize]
    }
}

/// A column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) values: Values,
    /// True for each row with a value; `None` if all rows have one.
    pub(crate) present: Option<Vec<bool>>,
}

impl Column {
    fn new(name: &str, values: Values) -> Self {
        Column { name: name.into(), values, present: None }
    }

    fn len(&self) -> usize {
        match &self.values {
            Values::Float(values) => values.len(),
            Values::Whole(values) => values.len(),
            Values::Flag(values) => values.len(),
            Values::Text(texts) => texts.begins.len() - 1,
        }
    }

    /// Checks a column that other code has made: methods and Arrow's consumers index its vectors by
    /// each other.
    fn check(&self) -> Result<(), &'static str> {
        match &self.values {
            Values::Text(texts) => texts.check()?,
            Values::Flag(flags) if flags.iter().any(|flag| *flag > 1) => return Err("a flag is not 0 or 1"),
            Values::Float(_) | Values::Whole(_) | Values::Flag(_) => {}
        }
        match &self.present {
            Some(present) if present.len() != self.len() => Err("its presence has another length"),
            _ => Ok(()),
        }
    }

    fn has(&self, row: usize) -> bool {
        self.present.as_ref().is_none_or(|present| present[row])
    }

    fn is_empty(&self) -> bool {
        self.len() > 0 && self.present.as_ref().is_some_and(|present| !present.contains(&true))
    }

    /// Appends the rows of a column of the same type.
    fn append(&mut self, other: Column) -> bool {
        let before = self.len();
        let rows = other.len();
        if self.present.is_some() || other.present.is_some() {
            let present = self.present.get_or_insert_with(|| vec![true; before]);
            present.extend(other.present.unwrap_or_else(|| vec![true; rows]));
        }
        match (&mut self.values, other.values) {
            (Values::Float(all), Values::Float(more)) => all.extend(more),
            (Values::Whole(all), Values::Whole(more)) => all.extend(more),
            (Values::Flag(all), Values::Flag(more)) => all.extend(more),
            (Values::Text(all), Values::Text(more)) => {
                let from = all.bytes.len() as i64;
                all.begins.extend(more.begins.iter().skip(1).map(|begin| begin + from));
                all.bytes.push_str(&more.bytes);
            }
            _ => return false,
        }
        true
    }
}

/// Columns of equal length. Tables share common columns.
#[pyclass(frozen, module = "leeward._leeward")]
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    pub(crate) columns: Arc<Vec<Arc<Column>>>,
}

impl Table {
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        Table::of(columns.into_iter().map(Arc::new).collect())
    }

    fn of(columns: Vec<Arc<Column>>) -> Self {
        Table { columns: Arc::new(columns) }
    }

    pub(crate) fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.len())
    }
}

#[pymethods]
impl Table {
    /// Number of rows.
    fn __len__(&self) -> usize {
        self.rows()
    }

    /// Names of the columns.
    #[getter]
    fn names(&self) -> Vec<&str> {
        self.columns.iter().map(|column| column.name.as_str()).collect()
    }

    /// Values of a column as Python objects, `None` where a row has none.
    fn column<'py>(&self, py: Python<'py>, name: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let name = name.str()?;
        let name = &*name.to_string_lossy();
        let found = self.columns.iter().find(|column| column.name == name).ok_or_else(|| {
            let message = format!("there is no column `{name}`; accepted: {}", self.names().join(", "));
            errors::plain(py, "ResultsError", &message)
        })?;
        let list = PyList::empty(py);
        for row in 0..found.len() {
            match &found.values {
                _ if !found.has(row) => list.append(py.None())?,
                Values::Float(values) => list.append(values[row])?,
                Values::Whole(values) => list.append(values[row])?,
                Values::Flag(values) => list.append(values[row] != 0)?,
                Values::Text(texts) => list.append(texts.get(row))?,
            }
        }
        Ok(list)
    }

    /// The table without columns in which no row has a value.
    fn dense(&self) -> Table {
        Table::of(self.columns.iter().filter(|column| !column.is_empty()).cloned().collect())
    }

    /// The table without the column `name`.
    fn without(&self, name: &str) -> Table {
        Table::of(self.columns.iter().filter(|column| column.name != name).cloned().collect())
    }

    /// Returns bytes for [`Table::from_bytes`]; equal tables have equal bytes.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let columns: Vec<&Column> = self.columns.iter().map(|column| &**column).collect();
        let bytes =
            serde_json::to_vec(&columns).map_err(|error| errors::plain(py, "ResultsError", &error.to_string()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The table for `pickle`. A static method of a native class has no name by which `pickle`
    /// finds it, hence a function of the package.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let unpickled = py.import("leeward.frames")?.getattr("unpickled")?;
        Ok((unpickled, (self.to_bytes(py)?,)))
    }

    /// Reads the table in these bytes. Damaged bytes are an error, or another valid table.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Table> {
        let columns: Vec<Column> =
            serde_json::from_slice(bytes).map_err(|error| errors::plain(py, "ResultsError", &error.to_string()))?;
        for column in &columns {
            column.check().map_err(|reason| {
                errors::plain(py, "ResultsError", &format!("damaged column `{}`: {reason}", column.name))
            })?;
        }
        let rows = columns.first().map_or(0, Column::len);
        if columns.iter().any(|column| column.len() != rows) {
            return Err(errors::plain(py, "ResultsError", "columns of different lengths"));
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = columns.iter().find(|column| !names.insert(column.name.as_str())) {
            return Err(errors::plain(py, "ResultsError", &format!("two columns have the name `{}`", twice.name)));
        }
        Ok(Table::new(columns))
    }

    /// Concatenates the rows of tables with the same columns.
    #[staticmethod]
    fn concat(py: Python<'_>, tables: Vec<Py<Table>>) -> PyResult<Table> {
        let mut all: Option<Vec<Column>> = None;
        for table in &tables {
            let more: Vec<Column> = table.get().columns.iter().map(|column| Column::clone(column)).collect();
            let Some(columns) = &mut all else {
                all = Some(more);
                continue;
            };
            let same = columns.len() == more.len()
                && columns.iter_mut().zip(more).all(|(column, more)| column.name == more.name && column.append(more));
            if !same {
                return Err(errors::plain(py, "ResultsError", "tables of different columns"));
            }
        }
        Ok(Table::new(all.unwrap_or_default()))
    }

    /// Writes a Parquet file.
    fn write_parquet(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let table = self.clone();
        let written = py.detach(move || parquet::write(&table, &path).map_err(|error| (path, error)));
        written.map_err(|(path, error)| errors::plain(py, "ResultsError", &format!("{}: {error}", path.display())))
    }

    /// Concatenates the rows of Parquet files that this library wrote.
    #[staticmethod]
    fn read_parquet(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<Table> {
        let read = py.detach(move || parquet::read(&paths));
        read.map_err(|(path, error)| errors::plain(py, "ResultsError", &format!("{}: {error}", path.display())))
    }

    /// Arrow's C stream interface: the consumer shares this table's memory.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema; // the interface allows ignoring it
        PyCapsule::new_with_value(py, Stream::of(self), c"arrow_array_stream")
    }

    fn __repr__(&self) -> String {
        format!("<leeward table of {} rows: {}>", self.rows(), self.names().join(", "))
    }
}
