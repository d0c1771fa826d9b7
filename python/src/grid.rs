//! The grid of a sweep: its axes, and the seed of each cell.

use crate::errors;
use leeward_lab::sweep::{self, Axis};
use pyo3::prelude::*;

/// Every combination of the axes' values, with seeds.
#[pyclass(frozen, module = "leeward._leeward")]
#[derive(Clone)]
pub(crate) struct Grid {
    pub(crate) grid: sweep::Grid,
}

#[pymethods]
impl Grid {
    /// `axes` are pairs of a key and its values, as `--set` writes them.
    #[new]
    fn new(py: Python<'_>, axes: Vec<(String, Vec<String>)>, seeds: u32, seed: u64) -> PyResult<Self> {
        let axes = axes.into_iter().map(|(key, values)| Axis { key, values }).collect();
        let grid = sweep::Grid::new(axes, seeds, seed).map_err(|error| errors::sweep(py, &error))?;
        Ok(Grid { grid })
    }

    fn __len__(&self) -> usize {
        self.grid.cells()
    }

    /// Axes' values and the seed of the cell at `index`.
    fn cell(&self, index: usize) -> (Vec<(String, String)>, u64) {
        let cell = self.grid.cell(index);
        let values = cell.values.iter().map(|(axis, value)| (axis.key.clone(), value.to_string()));
        (values.collect(), cell.seed)
    }
}
