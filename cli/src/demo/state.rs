//! State that the live view draws from: all news so far.

use leeward_lab::real::CALIBRATION_STEPS;
use leeward_lab::results::Machine;

use super::events::{DemoEvent, RunInfo, RunResult, RunSample};

/// How long the measurement of the machine takes, about.
pub(crate) const CALIBRATION_S: f64 = 6.5;
/// How long a run takes besides its own length, about: connections, the last answers, the prediction.
pub(crate) const OVERHEAD_S: f64 = 0.7;
/// Moments of a run that are kept: more than there are columns to draw them in.
const SAMPLES_MAX: usize = 1_200;

/// Current activity of the demo.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Activity {
    /// Nothing yet.
    #[default]
    Starting,
    /// Measuring the machine.
    Measuring(String),
    /// A run.
    Running(RunInfo),
}

/// Everything so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct DemoState {
    /// Now.
    pub(crate) activity: Activity,
    /// The machine, once measured.
    pub(crate) machine: Option<Machine>,
    /// The present run, or the last one.
    pub(crate) samples: Vec<RunSample>,
    /// Runs that have ended.
    pub(crate) rows: Vec<RunResult>,
    /// How many there will be.
    pub(crate) runs: usize,
    /// How long all of it takes, about.
    pub(crate) total_s: f64,
    /// Somebody asked to stop.
    pub(crate) is_stopping: bool,
    /// Address of the dashboard, if there is one.
    pub(crate) dashboard: Option<String>,
    /// Of that, the steps and runs that are over.
    done_s: f64,
    steps: usize,
}

impl DemoState {
    /// Nothing told yet.
    pub(crate) fn new(runs: usize, total_s: f64, dashboard: Option<String>) -> DemoState {
        DemoState { runs, total_s, dashboard, ..DemoState::default() }
    }

    /// Takes note.
    pub(crate) fn apply(&mut self, news: DemoEvent) {
        match news {
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
            DemoEvent::Sample(moment) => {
                if self.samples.len() >= SAMPLES_MAX {
                    self.samples.remove(0);
                }
                self.samples.push(moment);
            }
            DemoEvent::RunEnded(row) => {
                if let Activity::Running(subject) = &self.activity {
                    self.done_s += subject.duration_s + OVERHEAD_S;
                }
                self.rows.push(*row);
            }
        }
    }

    /// The run under way, or the last one.
    pub(crate) fn run(&self) -> Option<&RunInfo> {
        if let Activity::Running(subject) = &self.activity { Some(subject) } else { None }
    }

    /// Seconds of work done, of `total_s`.
    pub(crate) fn done_s(&self) -> f64 {
        let under_way = self.run().is_some() && self.rows.len() < self.runs;
        let within = match (under_way, self.run(), self.samples.last()) {
            // Moments come until the last answer; an ended run is counted already, until the next one clears them.
            (true, Some(subject), Some(last)) if !self.is_run_ended() => last.at_s.min(subject.duration_s),
            _ => 0.0,
        };
        (self.done_s + within).min(self.total_s)
    }

    fn is_run_ended(&self) -> bool {
        let Some(subject) = self.run() else { return false };
        self.rows.last().is_some_and(|row| row.point.run.label == subject.label && row.load == subject.load)
    }

    /// The share of the work that is done, 0..=1.
    pub(crate) fn progress(&self) -> f64 {
        if self.total_s > 0.0 { (self.done_s() / self.total_s).clamp(0.0, 1.0) } else { 0.0 }
    }
}
