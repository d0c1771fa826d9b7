//! Options and progress of a scenario's runs. Does not contain the scenario.

use leeward_plant::ServerObservers;

/// Options of a scenario's runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The base seed: run `i` of each point uses `seed + i`.
    pub seed: u64,
    /// Number of threads; `None` for one per CPU.
    pub threads: Option<usize>,
    /// Whether the scenario was shortened when it was read; recorded in the results.
    pub quick: bool,
    /// `sim` or `real`.
    pub plant: String,
    /// Overrides that were applied when the scenario was read; recorded in the results.
    pub overrides: Vec<String>,
    /// Observers of the servers in real runs.
    pub observers: Option<ServerObservers>,
}

impl Default for Options {
    fn default() -> Self {
        Options { seed: 1, threads: None, quick: false, plant: "sim".into(), overrides: Vec::new(), observers: None }
    }
}

/// Progress of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of finished runs.
    pub done: usize,
    /// Number of all runs, as far as known.
    pub total: usize,
    /// Whether policies are trained at present, which comes before their runs.
    pub is_training: bool,
}
