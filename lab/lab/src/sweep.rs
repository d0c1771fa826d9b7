//! A scenario over a grid of values: the runs, in an order that does not depend on the workers, and
//! the results of each.
//!
//! Does not contain workers, files and frames.

use crate::error::RunError;
use crate::options::Options;
use crate::run::run;
use crate::scenario::{Scenario, ScenarioError};
use leeward_core::registry::Registry;
use leeward_outcome::results::Results;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::atomic::AtomicBool;

/// The axis that selects variants by label instead of changing the scenario.
pub const CONTROLLER_AXIS: &str = "controller";

/// Short names of frequently swept keys.
const KEY_ALIASES: [(&str, &str); 8] = [
    ("demand", "workload.demand"),
    ("clients", "workload.clients"),
    ("service", "workload.service"),
    ("slo", "workload.slo"),
    ("p", "workload.p"),
    ("r", "workload.r"),
    ("rtt", "network.rtt"),
    ("cores", "server.cores"),
];

/// A key of the scenario with its values, written like overrides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// `controller`, a short name such as `demand`, or a dotted path such as
    /// `controller.breakwater.params.target`.
    pub key: String,
    /// Values, one run per entry and combination.
    pub values: Vec<String>,
}

/// An error of a sweep.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// An axis that is not of the form `key=value,value`.
    #[error("--sweep {0}: accepted: KEY=VALUE,VALUE, such as demand=0.8x,1.2x")]
    InvalidAxis(String),
    /// An axis without values.
    #[error("{0}: no values; accepted: at least one")]
    EmptyAxis(String),
    /// Two axes for one key.
    #[error("{0}: swept twice; accepted: one axis for each key")]
    DuplicateAxis(String),
    /// A value occurs twice, with identical runs.
    #[error("{key}: `{value}` is there twice")]
    DuplicateValue {
        /// Key of the axis.
        key: String,
        /// Repeated value.
        value: String,
    },
    /// No variant has this label.
    #[error("controller: there is no variant or controller `{label}`; accepted: {accepted}")]
    Label {
        /// Requested label.
        label: String,
        /// Known labels.
        accepted: String,
    },
    /// An override that is not accepted.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Axis {
    /// Parses `key=value,value`.
    ///
    /// # Errors
    /// [`SweepError::InvalidAxis`].
    pub fn parse(text: &str) -> Result<Axis, SweepError> {
        let wrong = || SweepError::InvalidAxis(text.chars().take(60).collect());
        let (key, values) = text.split_once('=').ok_or_else(wrong)?;
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_string()).collect();
        if key.trim().is_empty() || values.iter().any(String::is_empty) {
            return Err(wrong());
        }
        Ok(Axis { key: key.trim().into(), values })
    }

    /// Full path of the key in the scenario.
    pub fn path(&self) -> &str {
        KEY_ALIASES.iter().find(|(short, _)| *short == self.key).map_or(&self.key, |(_, path)| path)
    }
}

/// All combinations of the axes' values, each with several seeds. The first axis changes slowest,
/// the seed fastest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grid {
    /// Axes in the given order.
    pub axes: Vec<Axis>,
    /// Runs per combination.
    pub seeds: u32,
    /// First seed; the others are consecutive.
    pub seed: u64,
}

/// A combination of values with a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell<'a> {
    /// Each axis with its value.
    pub values: Vec<(&'a Axis, &'a str)>,
    /// Seed of the run.
    pub seed: u64,
}

impl Grid {
    /// Creates a checked grid.
    ///
    /// # Errors
    /// An axis without values, a key with two axes, a repeated value.
    pub fn new(axes: Vec<Axis>, seeds: u32, seed: u64) -> Result<Grid, SweepError> {
        for (index, axis) in axes.iter().enumerate() {
            if axis.values.is_empty() {
                return Err(SweepError::EmptyAxis(axis.key.clone()));
            }
            if axes[..index].iter().any(|other| other.path() == axis.path()) {
                return Err(SweepError::DuplicateAxis(axis.key.clone()));
            }
            for (at, value) in axis.values.iter().enumerate() {
                if axis.values[..at].contains(value) {
                    return Err(SweepError::DuplicateValue { key: axis.key.clone(), value: value.clone() });
                }
            }
        }
        Ok(Grid { axes, seeds: seeds.max(1), seed })
    }

    /// Number of cells.
    pub fn cells(&self) -> usize {
        self.axes.iter().map(|axis| axis.values.len()).product::<usize>() * self.seeds as usize
    }

    /// The cell at `index`, which must be less than [`Grid::cells`].
    pub fn cell(&self, index: usize) -> Cell<'_> {
        let seed = self.seed.wrapping_add((index % self.seeds as usize) as u64);
        let mut rest = index / self.seeds as usize;
        let mut values: Vec<(&Axis, &str)> = Vec::with_capacity(self.axes.len());
        for axis in self.axes.iter().rev() {
            values.push((axis, axis.values[rest % axis.values.len()].as_str()));
            rest /= axis.values.len();
        }
        values.reverse();
        Cell { values, seed }
    }

    /// Checks each value of each axis once, beside the first values of the others: a misspelt one
    /// is found before anything runs. `scenario` is that of [`run_cells`].
    ///
    /// # Errors
    /// The first value that is not accepted.
    pub fn check(
        &self,
        base: &[String],
        scenario: impl Fn(&[String]) -> Result<Scenario, ScenarioError>,
    ) -> Result<(), SweepError> {
        let mut below = self.cells() / self.seeds as usize;
        for axis in &self.axes {
            below /= axis.values.len();
            for value in 0..axis.values.len() {
                self.cell(value * below * self.seeds as usize).scenario(base, &scenario)?;
            }
        }
        Ok(())
    }
}

impl Cell<'_> {
    /// Overrides for this cell, after the overrides in `base`.
    pub fn overrides(&self, base: &[String]) -> Vec<String> {
        let set = self.values.iter().filter(|(axis, _)| axis.key != CONTROLLER_AXIS);
        let own = set.map(|(axis, value)| format!("{}={value}", axis.path()));
        base.iter().cloned().chain(own).chain(["run.seeds=1".to_string()]).collect()
    }

    /// Makes the scenario of this cell.
    fn scenario(
        &self,
        base: &[String],
        scenario: impl Fn(&[String]) -> Result<Scenario, ScenarioError>,
    ) -> Result<Scenario, SweepError> {
        let mut made = scenario(&self.overrides(base))?;
        self.label().map_or(Ok(()), |label| select(&mut made, label))?;
        Ok(made)
    }

    /// Label of the variants to run; `None`: all variants.
    pub fn label(&self) -> Option<&str> {
        self.values.iter().find(|(axis, _)| axis.key == CONTROLLER_AXIS).map(|(_, value)| *value)
    }
}

/// Keeps only the variants with this `label`; for a `vary` grid also by the label of the entry.
///
/// # Errors
/// [`SweepError::Label`].
pub fn select(scenario: &mut Scenario, label: &str) -> Result<(), SweepError> {
    let labels = || scenario.controllers.iter().map(|variant| variant.label.as_str()).collect::<Vec<_>>().join(", ");
    let fits = |own: &str, base: &str| own == label || base == label;
    if !scenario.controllers.iter().any(|variant| fits(&variant.label, &variant.base_label)) {
        return Err(SweepError::Label { label: label.chars().take(60).collect(), accepted: labels() });
    }
    scenario.controllers.retain(|variant| fits(&variant.label, &variant.base_label));
    Ok(())
}

/// Adds a controller with its defaults for each of `names` to the text of a scenario.
pub fn with_controllers<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let sections = names.into_iter().map(|name| format!("\n[[controller]]\nname = \"{name}\"\n"));
    std::iter::once(text.to_string()).chain(sections).collect()
}

/// Runs the cells of `range` on this thread, and passes the results of each to `each`, with its
/// index. `scenario` creates the scenario for given overrides; cells that differ only in their
/// seeds share it.
///
/// # Errors
/// The first cell that can't be run.
pub fn run_cells(
    grid: &Grid,
    range: Range<usize>,
    base: &[String],
    registry: &Registry,
    scenario: impl Fn(&[String]) -> Result<Scenario, ScenarioError>,
    cancel: &AtomicBool,
    mut each: impl FnMut(usize, Results),
) -> Result<(), SweepError> {
    let mut last: Option<(Vec<String>, Option<String>, Scenario)> = None;
    for index in range {
        let cell = grid.cell(index);
        let (overrides, label) = (cell.overrides(base), cell.label().map(String::from));
        let known = last.take().filter(|(given, selected, _)| *given == overrides && *selected == label);
        let (overrides, label, made) = match known {
            Some(known) => known,
            None => {
                let made = cell.scenario(base, &scenario)?;
                (overrides, label, made)
            }
        };
        let options = Options { seed: cell.seed, threads: Some(1), ..Options::default() };
        each(index, run(&made, registry, &options, &|_| {}, cancel)?);
        last = Some((overrides, label, made));
    }
    Ok(())
}
