//! Measures what programs in the kernel cost: by the kernel's own counts, which it keeps for a part
//! of the time only, as counting costs, too.
//!
//! Contains no limit.

use super::program::{Program, Runs, Statistics};

/// Nanoseconds that a run costs outside of its program: to get there and back. Measured with a
/// pair of sockets in a virtual machine: 225 ns a run, of which the kernel's count tells 145.
pub const TRACEPOINT: u64 = 80;
/// At an instruction, where it can't be measured.
pub const UPROBE: u64 = 1_000;
/// Behind a return, where it can't be measured.
pub const RETURN_PROBE: u64 = 2_000;

/// Of so many measurements, one counts; the others take its rate.
const COUNTED: u32 = 4;

/// A run for a recorded process costs so many times as much as one for another, which ends early.
const WEIGHT: f64 = 3.0;

/// A program that runs for a source.
#[derive(Clone, Copy, Debug)]
pub struct RunningProgram<'a> {
    /// The program.
    pub program: &'a Program,
    /// Nanoseconds that a run costs outside of the program: to get there and back.
    pub around: u64,
    /// Runs for the recorded processes so far; `None` if there are no others.
    pub own_runs: Option<u64>,
}

/// What programs cost the recorded processes while they are attached.
#[derive(Debug, Default)]
pub struct ProgramMeter {
    /// While the kernel counts, with the counts when it began.
    counting: Option<(Statistics, Vec<ProgramCount>)>,
    /// Nanoseconds of CPU time per nanosecond, as it was last counted.
    rate: Option<f64>,
    turn: u32,
}

/// Counts of one program.
#[derive(Clone, Copy, Debug, Default)]
struct ProgramCount {
    runs: Runs,
    own: Option<u64>,
    around: u64,
}

impl ProgramMeter {
    /// Begins a measurement.
    pub fn begin(&mut self, programs: &[RunningProgram<'_>]) {
        let is_due = self.turn.is_multiple_of(COUNTED) || self.rate.is_none();
        self.turn = self.turn.wrapping_add(1);
        // Without the right to count, the rate stays unknown.
        let statistics = is_due.then(Statistics::enable).and_then(Result::ok);
        self.counting = statistics.map(|statistics| (statistics, counts(programs)));
    }

    /// Ends a measurement over `elapsed` nanoseconds in which the programs were attached. Returns
    /// what they cost, `None` if the kernel does not tell.
    pub fn end(&mut self, programs: &[RunningProgram<'_>], elapsed: u64) -> Option<u64> {
        if let Some((statistics, before)) = self.counting.take() {
            let after = counts(programs);
            drop(statistics);
            let cost: f64 = before.iter().zip(&after).map(|(before, after)| after.cost_since(before)).sum();
            self.rate = (elapsed > 0).then(|| cost / elapsed as f64);
        }
        self.rate.map(|rate| (rate * elapsed as f64) as u64)
    }
}

fn counts(programs: &[RunningProgram<'_>]) -> Vec<ProgramCount> {
    let count = |running: &RunningProgram<'_>| ProgramCount {
        runs: running.program.runs().unwrap_or_default(),
        own: running.own_runs,
        around: running.around,
    };
    programs.iter().map(count).collect()
}

impl ProgramCount {
    /// Returns the nanoseconds that the recorded processes have spent on it since an earlier count.
    fn cost_since(&self, before: &ProgramCount) -> f64 {
        let runs = self.runs.count.saturating_sub(before.runs.count);
        let time = self.runs.nanoseconds.saturating_sub(before.runs.nanoseconds);
        let all = time.saturating_add(runs.saturating_mul(self.around)) as f64;
        let own = self.own.zip(before.own).map_or(runs, |(now, then)| now.saturating_sub(then).min(runs));
        let weighted = WEIGHT * own as f64;
        all * weighted / (weighted + (runs - own) as f64).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_for_other_processes_are_not_counted() {
        let count = |runs, nanoseconds, own| ProgramCount { runs: Runs { count: runs, nanoseconds }, own, around: 10 };
        assert_eq!(count(100, 2000, None).cost_since(&count(0, 0, None)), 3000.0);
        // A quarter of the runs, which cost half of the time.
        assert_eq!(count(100, 2000, Some(25)).cost_since(&count(0, 0, Some(0))), 1500.0);
        assert_eq!(count(100, 2000, Some(0)).cost_since(&count(0, 0, Some(0))), 0.0);
        // More than the kernel has counted.
        assert_eq!(count(100, 2000, Some(200)).cost_since(&count(0, 0, Some(0))), 3000.0);
        assert_eq!(count(0, 0, Some(0)).cost_since(&count(0, 0, Some(0))), 0.0);
    }
}
