//! Options of a run of a scenario, and its progress. Never here: the scenario's own content.

use leeward_plant::ServerObservers;

/// How to run a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The base seed: run `i` of each point uses `seed + i`.
    pub seed: u64,
    /// Threads; `None` for one per CPU.
    pub threads: Option<usize>,
    /// Noted in the results; the scenario itself was shortened when it was read.
    pub quick: bool,
    /// `sim` or `real`.
    pub plant: String,
    /// Noted in the results; applied when the scenario was read.
    pub overrides: Vec<String>,
    /// Watchers of the servers of real runs.
    pub observers: Option<ServerObservers>,
}

impl Default for Options {
    fn default() -> Self {
        Options { seed: 1, threads: None, quick: false, plant: "sim".into(), overrides: Vec::new(), observers: None }
    }
}

/// How far a command has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Runs finished.
    pub done: usize,
    /// Runs in all, as far as known.
    pub total: usize,
}
