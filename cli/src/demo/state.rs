//! State that the live view draws from: all news so far.

use leeward_lab::real::MEASURING_STEPS;
use leeward_lab::results::Machine;

use super::news::{Moment, News, Row, Subject};

/// How long the measurement of the machine takes, about.
pub(crate) const MEASURING_S: f64 = 6.5;
/// How long a run takes besides its own length, about: connections, the last answers, the prediction.
pub(crate) const OVERHEAD_S: f64 = 0.7;
/// Moments of a run that are kept: more than there are columns to draw them in.
const KEPT: usize = 1_200;

/// Current activity of the demo.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Doing {
    /// Nothing yet.
    #[default]
    Starting,
    /// Measuring the machine.
    Measuring(String),
    /// A run.
    Running(Subject),
}

/// Everything so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// Now.
    pub(crate) doing: Doing,
    /// The machine, once measured.
    pub(crate) machine: Option<Machine>,
    /// The present run, or the last one.
    pub(crate) moments: Vec<Moment>,
    /// Runs that have ended.
    pub(crate) rows: Vec<Row>,
    /// How many there will be.
    pub(crate) runs: usize,
    /// How long all of it takes, about.
    pub(crate) total_s: f64,
    /// Somebody asked to stop.
    pub(crate) stopping: bool,
    /// Address of the dashboard, if there is one.
    pub(crate) dashboard: Option<String>,
    /// Of that, the steps and runs that are over.
    over_s: f64,
    steps: usize,
}

impl State {
    /// Nothing told yet.
    pub(crate) fn new(runs: usize, total_s: f64, dashboard: Option<String>) -> State {
        State { runs, total_s, dashboard, ..State::default() }
    }

    /// Takes note.
    pub(crate) fn note(&mut self, news: News) {
        match news {
            News::Measuring(step) => {
                self.over_s = MEASURING_S * self.steps as f64 / MEASURING_STEPS as f64;
                self.steps += 1;
                self.doing = Doing::Measuring(step);
            }
            News::Measured(machine) => {
                self.over_s = self.over_s.max(MEASURING_S);
                self.machine = Some(machine);
            }
            News::Begins(subject) => {
                self.moments.clear();
                self.doing = Doing::Running(subject);
            }
            News::Now(moment) => {
                if self.moments.len() >= KEPT {
                    self.moments.remove(0);
                }
                self.moments.push(moment);
            }
            News::Ended(row) => {
                if let Doing::Running(subject) = &self.doing {
                    self.over_s += subject.duration_s + OVERHEAD_S;
                }
                self.rows.push(*row);
            }
        }
    }

    /// The run under way, or the last one.
    pub(crate) fn subject(&self) -> Option<&Subject> {
        if let Doing::Running(subject) = &self.doing { Some(subject) } else { None }
    }

    /// Seconds of work done, of `total_s`.
    pub(crate) fn done_s(&self) -> f64 {
        let under_way = self.subject().is_some() && self.rows.len() < self.runs;
        let within = match (under_way, self.subject(), self.moments.last()) {
            // Moments come until the last answer; an ended run is counted already, until the next one clears them.
            (true, Some(subject), Some(last)) if !self.just_ended() => last.at_s.min(subject.duration_s),
            _ => 0.0,
        };
        (self.over_s + within).min(self.total_s)
    }

    fn just_ended(&self) -> bool {
        let Some(subject) = self.subject() else { return false };
        self.rows.last().is_some_and(|row| row.point.run.label == subject.label && row.load == subject.load)
    }

    /// The share of the work that is done, 0..=1.
    pub(crate) fn share(&self) -> f64 {
        if self.total_s > 0.0 { (self.done_s() / self.total_s).clamp(0.0, 1.0) } else { 0.0 }
    }
}
