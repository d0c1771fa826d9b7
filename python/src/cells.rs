//! Parts of a sweep: a worker runs some cells of a grid and returns one table.

use crate::errors;
use crate::grid::Grid;
use crate::patience::{Progress, Stop, catch_panics, run_in_thread};
use crate::scenario::Scenario;
use crate::table::{Builder, Table};
use leeward_core::registry::Registry;
use leeward_lab::sweep::{self, Axis, CONTROLLER_AXIS, SweepError, run_cells};
use leeward_outcome::table as rows;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

impl Scenario {
    /// Checks the scenario of a cell without running it.
    pub(crate) fn check_one(&self, py: Python<'_>, grid: &Grid, index: usize) -> PyResult<()> {
        let (registry, cell) = (self.source.registry(py)?, grid.grid.cell(index));
        let checked = catch_panics(py, || self.source.check(&cell.overrides(self.source.overrides()), &registry))?;
        let mut checked = checked.map_err(|error| errors::scenario(py, &error))?;
        let selected = cell.label().map_or(Ok(()), |label| sweep::select(&mut checked, label));
        selected.map_err(|error| errors::sweep(py, &error))
    }

    /// Runs the cells `start..stop_at` on one thread that does not hold the interpreter.
    ///
    /// Returns the rows of `table`, with a column for each axis whose value is in no column of the
    /// results.
    pub(crate) fn run_range(
        &self,
        py: Python<'_>,
        grid: &Grid,
        start: usize,
        stop_at: usize,
        table: &str,
        stop: Option<&Stop>,
    ) -> PyResult<Table> {
        let found = rows::Table::find(table).ok_or_else(|| {
            let names: Vec<&str> = rows::Table::ALL.iter().map(|table| table.name()).collect();
            errors::plain(py, "ResultsError", &format!("there is no table `{table}`; accepted: {}", names.join(", ")))
        })?;
        if start > stop_at || stop_at > grid.grid.cells() {
            return Err(errors::plain(py, "SweepError", "cells that the grid does not have"));
        }
        let (source, grid) = (self.source.with(py, None), grid.grid.clone());
        let registry: Registry = source.registry(py)?;
        let cancel = Arc::new(AtomicBool::new(false));
        let progress = Arc::new(Progress::default());
        let (flag, counted) = (Arc::clone(&cancel), Arc::clone(&progress));
        let slots = source.class_slots();
        let ran: Result<Table, SweepError> = run_in_thread(py, &cancel, &progress, None, stop, &slots, move || {
            let mut builder = Builder::of(found);
            let extra: Vec<&Axis> = grid.axes.iter().filter(|axis| !is_in_results(axis)).collect();
            extra.iter().for_each(|axis| builder.extra(&axis.key, &axis.values));
            let base = source.overrides().to_vec();
            let scenario = |overrides: &[String]| source.check(overrides, &registry);
            run_cells(&grid, start..stop_at, &base, &registry, scenario, &flag, |index, results| {
                let cell = grid.cell(index);
                let own = cell.values.iter().filter(|(axis, _)| !is_in_results(axis)).map(|(_, value)| *value);
                builder.rows(found, &results, &own.collect::<Vec<_>>());
                counted.done.fetch_add(1, Ordering::Relaxed);
            })?;
            Ok(builder.finish())
        })?;
        ran.map_err(|error| errors::sweep(py, &error))
    }
}

/// Returns true if columns of the results contain the value of this axis.
fn is_in_results(axis: &Axis) -> bool {
    matches!(axis.path(), CONTROLLER_AXIS | "workload.demand" | "workload.clients" | "workload.service")
        || matches!(axis.path(), "workload.p" | "workload.r" | "network.rtt")
}
