//! State of the live view, made up of all events so far.

use leeward_lab::real::CALIBRATION_STEPS;
use leeward_lab::results::Machine;

use super::events::{DemoEvent, RunInfo, RunResult, RunSample};

/// Approximate duration of the calibration, in seconds.
pub(crate) const CALIBRATION_S: f64 = 6.5;
/// Approximate overhead of a run in seconds: connections, last responses, prediction.
pub(crate) const OVERHEAD_S: f64 = 0.7;
/// Maximum of samples per run: more than there are columns to draw.
const SAMPLES_MAX: usize = 1_200;

/// Current activity of the demo.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Activity {
    /// Nothing has started yet.
    #[default]
    Starting,
    /// The machine is being calibrated.
    Measuring(String),
    /// A run is in progress.
    Running(RunInfo),
}

/// State of the demo so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct DemoState {
    /// Current activity.
    pub(crate) activity: Activity,
    /// The machine, once measured.
    pub(crate) machine: Option<Machine>,
    /// Samples of the current run, or of the last one.
    pub(crate) samples: Vec<RunSample>,
    /// Runs that have ended.
    pub(crate) rows: Vec<RunResult>,
    /// Total number of runs.
    pub(crate) runs: usize,
    /// Approximate duration of the demo, in seconds.
    pub(crate) total_s: f64,
    /// True if a stop was requested.
    pub(crate) is_stopping: bool,
    /// Address of the dashboard, if there is one.
    pub(crate) dashboard: Option<String>,
    /// Duration of the finished steps and runs, part of `total_s`.
    done_s: f64,
    steps: usize,
}

impl DemoState {
    /// State before any event.
    pub(crate) fn new(runs: usize, total_s: f64, dashboard: Option<String>) -> DemoState {
        DemoState { runs, total_s, dashboard, ..DemoState::default() }
    }

    /// Applies an event.
    pub(crate) fn apply(&mut self, event: DemoEvent) {
        match event {
            DemoEvent::Calibrating(step) => {
                self.done_s = CALIBRATION_S * self.steps as f64 / CALIBRATION_STEPS as f64;
                self.steps += 1;
                self.activity = Activity::Measuring(step);
            }
            DemoEvent::Calibrated(machine) => {
                self.done_s = self.done_s.max(CALIBRATION_S);
                self.machine = Some(machine);
            }
            DemoEvent::RunStarted(subject) => {
                self.samples.clear();
                self.activity = Activity::Running(subject);
            }
            DemoEvent::Sample(sample) => {
                if self.samples.len() >= SAMPLES_MAX {
                    self.samples.remove(0);
                }
                self.samples.push(sample);
            }
            DemoEvent::RunEnded(row) => {
                if let Activity::Running(subject) = &self.activity {
                    self.done_s += subject.duration_s + OVERHEAD_S;
                }
                self.rows.push(*row);
            }
        }
    }

    /// The current run, or the last one.
    pub(crate) fn run(&self) -> Option<&RunInfo> {
        if let Activity::Running(subject) = &self.activity { Some(subject) } else { None }
    }

    /// Seconds of work that are done, of `total_s`.
    pub(crate) fn done_s(&self) -> f64 {
        let under_way = self.run().is_some() && self.rows.len() < self.runs;
        let within = match (under_way, self.run(), self.samples.last()) {
            // Samples arrive until the last response. An ended run is already counted until the
            // next run clears the samples.
            (true, Some(subject), Some(last)) if !self.is_run_ended() => last.at_s.min(subject.duration_s),
            _ => 0.0,
        };
        (self.done_s + within).min(self.total_s)
    }

    fn is_run_ended(&self) -> bool {
        let Some(subject) = self.run() else { return false };
        self.rows.last().is_some_and(|row| row.point.run.label == subject.label && row.load == subject.load)
    }

    /// Share of the work that is done, from 0 to 1.
    pub(crate) fn progress(&self) -> f64 {
        if self.total_s > 0.0 { (self.done_s() / self.total_s).clamp(0.0, 1.0) } else { 0.0 }
    }
}
