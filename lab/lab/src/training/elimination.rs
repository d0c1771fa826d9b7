//! Training by successive elimination: at each load all setups are measured in rounds, and setups
//! that are surely not the best are dropped.
//!
//! The paper's grid (every setup at every load five times for 30 s) takes hours, most of them for
//! setups far from the best.

use super::measurement::{Measurement, round_load};
use super::{Bench, Candidate, Trial};
use crate::error::RunError;
use leeward_core::units::{Nanos, Rate};
use leeward_threading::ThreadingSetup;
use leeward_threading::curves::{Curve, CurvePoint, Curves, CurvesError, TailPercentile};
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Setups and loads to train, and the size of measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingPlan {
    /// Setups, in the order of preference for ties.
    pub setups: Vec<ThreadingSetup>,
    /// Lowest and highest load; `None`: from a hundredth of the best setup's sustained load to 1.1
    /// times that load.
    pub loads: Option<(Rate, Rate)>,
    /// Percentile that decides.
    pub tail: TailPercentile,
    /// Number of requests in a first measurement.
    pub min_requests: u64,
    /// Maximum number of requests in a setup's measurement at a load.
    pub max_requests: u64,
}

impl TrainingPlan {
    /// Plan for these setups by their 99th percentile: 500 to 2,000 requests per measurement.
    pub fn new(setups: Vec<ThreadingSetup>) -> Self {
        TrainingPlan { setups, loads: None, tail: TailPercentile::P99, min_requests: 500, max_requests: 2_000 }
    }
}

/// Progress of a training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainingProgress {
    /// Setup of the finished measurement.
    pub setup: ThreadingSetup,
    /// Load of the finished measurement.
    pub load: Rate,
    /// Number of measurements so far.
    pub measurements: usize,
    /// Number of finished loads, and of all loads if known.
    pub loads: (usize, usize),
}

/// Outcome of a training.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingOutcome {
    /// The curves of all setups that sustain at least two loads.
    pub curves: Curves,
    /// Setups that sustain fewer than two loads.
    pub excluded: Vec<ThreadingSetup>,
    /// Number of measurements.
    pub measurements: usize,
    /// Whether the time limit ended the training early.
    pub timed_out: bool,
}

/// First load of the search for the setups' sustained loads.
const FIRST_LOAD: f64 = 100.0;
/// Maximum load; no present server sustains more.
const MAX_LOAD: f64 = 1e8;
/// Number of bisections between a sustained load and one that is not.
const HALVINGS: u32 = 3;
/// Maximum number of loads in a training.
const LOADS_MAX: usize = 40;

/// Trains the setups of `plan`. Once `is_over` returns `true`, training finishes the current
/// measurements and returns curves of the available points.
///
/// # Errors
/// A failed measurement, `stop`, or no setup that sustains two loads.
pub fn train(
    bench: &dyn Bench,
    plan: &TrainingPlan,
    progress: &dyn Fn(TrainingProgress),
    is_over: &(dyn Fn() -> bool + Sync),
    stop: &AtomicBool,
) -> Result<TrainingOutcome, RunError> {
    let states =
        plan.setups.iter().map(|setup| SetupState { setup: *setup, points: Vec::new(), failed_load: None }).collect();
    let mut training = Elimination {
        bench,
        plan,
        progress,
        is_over,
        stop,
        setups: states,
        measurements: 0,
        late_measurements: 0,
        loads: (0, 0),
    };
    let mut loads = match plan.loads {
        Some((lowest, highest)) => grid(lowest.0, highest.0),
        None => {
            let best = training.find_capacity()?;
            grid(best / 100.0, best * 1.1)
        }
    };
    // The same number of requests takes longest at a low load. In real time, the higher loads come
    // first: below its lowest load a curve is level, so a training that ends early is still useful.
    if bench.is_real_time() {
        loads.reverse();
    }
    training.loads = (0, loads.len());
    for load in &loads {
        if training.is_over() {
            break;
        }
        training.measure_load(*load)?;
        training.loads.0 += 1;
    }
    let cut_short = training.loads.0 < loads.len() && training.setups.iter().any(|state| state.failed_load.is_none());
    training.refine_limits()?;
    training.finish(cut_short)
}

/// Loads between both ends, each about √2 times the previous one, or more if the maximum number
/// requires it.
fn grid(lowest: f64, highest: f64) -> Vec<f64> {
    let (lowest, highest) = (lowest.max(1e-3), highest.max(lowest.max(1e-3) * 1.01));
    let octaves = (highest / lowest).log2();
    let steps = ((octaves * 2.0).ceil() as usize).clamp(1, LOADS_MAX - 1);
    let ratio = (highest / lowest).powf(1.0 / steps as f64);
    let mut loads: Vec<f64> = (0..=steps).map(|step| round_load(lowest * ratio.powi(step as i32))).collect();
    loads.dedup();
    loads
}

/// State of a setup in the training.
struct SetupState {
    setup: ThreadingSetup,
    /// Points in ascending order of load.
    points: Vec<CurvePoint>,
    /// Lowest load that the setup did not sustain.
    failed_load: Option<f64>,
}

struct Elimination<'a> {
    bench: &'a dyn Bench,
    plan: &'a TrainingPlan,
    progress: &'a dyn Fn(TrainingProgress),
    is_over: &'a (dyn Fn() -> bool + Sync),
    stop: &'a AtomicBool,
    setups: Vec<SetupState>,
    measurements: usize,
    /// Number of measurements with late clients.
    late_measurements: usize,
    loads: (usize, usize),
}

impl Elimination<'_> {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || (self.is_over)()
    }

    /// Measures each of these setups once, in turn or in parallel.
    fn measure(&mut self, pairs: &[(usize, f64)], requests: u64, round: u32) -> Result<Vec<Measurement>, RunError> {
        let measure_one = |(index, load): &(usize, f64)| {
            if self.stop.load(Ordering::Relaxed) {
                return Err(RunError::Cancelled);
            }
            let candidate = Candidate::Setup(self.setups[*index].setup);
            self.bench.measure(&Trial { candidate, load: Rate(*load), requests, round }, self.stop)
        };
        let samples: Vec<Result<Measurement, RunError>> = if self.bench.is_parallel() {
            pairs.par_iter().with_max_len(1).map(measure_one).collect()
        } else {
            pairs.iter().map(measure_one).collect()
        };
        for (index, load) in pairs {
            self.measurements += 1;
            let (setup, load) = (self.setups[*index].setup, Rate(*load));
            (self.progress)(TrainingProgress { setup, load, measurements: self.measurements, loads: self.loads });
        }
        let samples: Vec<Measurement> = samples.into_iter().collect::<Result<_, _>>()?;
        self.late_measurements += samples.iter().filter(|sample| sample.clients_late).count();
        Ok(samples)
    }

    /// Finds approximately the best setup's sustained load: it doubles the load until no setup
    /// sustains it.
    fn find_capacity(&mut self) -> Result<f64, RunError> {
        let mut running: Vec<usize> = (0..self.setups.len()).collect();
        let (mut best, mut load) = (FIRST_LOAD / 2.0, FIRST_LOAD);
        while !running.is_empty() && load < MAX_LOAD && !self.is_over() {
            let pairs: Vec<(usize, f64)> = running.iter().map(|index| (*index, load)).collect();
            let samples = self.measure(&pairs, self.plan.min_requests, 0)?;
            running = running
                .iter()
                .zip(&samples)
                .filter(|(_, sample)| sample.is_sustained())
                .map(|(index, _)| *index)
                .collect();
            if !running.is_empty() {
                best = load;
            }
            load *= 2.0;
        }
        // The sustained load is between this load and its double.
        Ok(best * std::f64::consts::SQRT_2)
    }

    /// Measures all setups that have sustained lower loads, at one load.
    fn measure_load(&mut self, load: f64) -> Result<(), RunError> {
        let may_keep_up = |index: &usize| self.setups[*index].failed_load.is_none_or(|failed| load < failed);
        let mut running: Vec<usize> = (0..self.setups.len()).filter(may_keep_up).collect();
        let mut results: Vec<Option<Measurement>> = vec![None; self.setups.len()];
        let (mut requests, mut round) = (self.plan.min_requests, 0);
        loop {
            let pairs: Vec<(usize, f64)> = running.iter().map(|index| (*index, load)).collect();
            let samples = self.measure(&pairs, requests, round)?;
            for (index, sample) in running.iter().zip(samples) {
                // A setup near its limit keeps up for a while, so the longer measurement decides. A
                // load that both sustained counts as measured twice, which matters where more than
                // the requests affects a measurement.
                let before = results[*index].filter(|_| self.bench.is_real_time());
                let all = before.map_or(sample, |before| before.merge(&sample, self.plan.tail));
                results[*index] = sample.is_sustained().then_some(all);
                if results[*index].is_none() {
                    self.setups[*index].failed_load = Some(load);
                }
            }
            running.retain(|index| results[*index].is_some());
            self.eliminate_setups(&mut running, &results);
            if requests >= self.plan.max_requests || running.is_empty() || self.is_over() {
                break;
            }
            (requests, round) = (requests * 2, round + 1);
        }
        let tail = self.plan.tail;
        for (state, sample) in self.setups.iter_mut().zip(results) {
            state.points.extend(sample.map(|sample| sample.curve_point(Rate(load), tail)));
        }
        Ok(())
    }

    /// Keeps the setups that may be the best: those whose lower bound of the tail is not above the
    /// lowest upper bound.
    fn eliminate_setups(&self, running: &mut Vec<usize>, results: &[Option<Measurement>]) {
        let bounds = |index: &usize| results[*index].map(|sample| sample.bounds(self.plan.tail));
        let least: Option<Nanos> = running.iter().filter_map(bounds).map(|(_, high)| high).min();
        running.retain(|index| bounds(index).zip(least).is_some_and(|((low, _), least)| low <= least));
    }

    /// Narrows down the highest sustained load of each setup.
    fn refine_limits(&mut self) -> Result<(), RunError> {
        for round in 0..HALVINGS {
            let middle = |state: &SetupState| {
                let load = state.points.iter().map(|point| point.load).max_by(f64::total_cmp)?;
                state.failed_load.map(|failed| round_load((load * failed).sqrt()))
            };
            let pairs: Vec<(usize, f64)> =
                self.setups.iter().enumerate().filter_map(|(index, state)| Some((index, middle(state)?))).collect();
            if pairs.is_empty() || self.is_over() {
                return Ok(());
            }
            let mut samples = self.measure(&pairs, self.plan.max_requests, round)?;
            if self.bench.is_real_time() {
                // A real server's load is never judged by one measurement.
                let again = self.measure(&pairs, self.plan.max_requests, round + HALVINGS)?;
                for (sample, again) in samples.iter_mut().zip(again) {
                    *sample = match (sample.is_sustained(), again.is_sustained()) {
                        (true, true) => sample.merge(&again, self.plan.tail),
                        (true, false) => again,
                        (false, _) => *sample,
                    };
                }
            }
            for ((index, load), sample) in pairs.into_iter().zip(samples) {
                let state = &mut self.setups[index];
                if !sample.is_sustained() {
                    state.failed_load = Some(load);
                } else if state.points.iter().all(|point| load > point.load) {
                    state.points.push(sample.curve_point(Rate(load), self.plan.tail));
                }
            }
        }
        Ok(())
    }

    fn finish(self, cut_short: bool) -> Result<TrainingOutcome, RunError> {
        // A stopped training returns nothing; one past its time limit returns the available points.
        if self.stop.load(Ordering::Relaxed) {
            return Err(RunError::Cancelled);
        }
        let mut states = self.setups;
        for SetupState { points: curve_points, failed_load: failed, .. } in &mut states {
            curve_points.sort_by(|one, other| one.load.total_cmp(&other.load));
            // One measurement sustained a load and another, of a lower load, did not: variation of
            // the machine.
            curve_points.retain(|point| failed.is_none_or(|failed| point.load < failed));
        }
        let (enough, few): (Vec<SetupState>, Vec<SetupState>) =
            states.into_iter().partition(|state| state.points.len() >= 2);
        if enough.is_empty() {
            let (loads, all) = self.loads;
            let end = if cut_short { "the budget was used up" } else { "the training ended" };
            let (late, measured) = (self.late_measurements, self.measurements);
            let why = match late {
                0 => String::new(),
                _ => format!(
                    "; in {late} of {measured} measurements the clients were late: other work keeps their CPU, or leaves on it do, or the objective is short \
                     for this machine"
                ),
            };
            return Err(RunError::Training(format!(
                "no setup has kept up with two loads; {loads} of {all} loads were measured, then {end}{why}"
            )));
        }
        let left_out = few.into_iter().map(|state| state.setup).collect();
        let curve = |state: SetupState| {
            let sustains = state.points.last().map_or(0.0, |point| point.load);
            Curve { setup: state.setup, points: state.points, max_load: sustains }
        };
        let curves = Curves::new(enough.into_iter().map(curve).collect()).map_err(curves_error)?;
        Ok(TrainingOutcome { curves, excluded: left_out, measurements: self.measurements, timed_out: cut_short })
    }
}

fn curves_error(error: CurvesError) -> RunError {
    RunError::Training(error.to_string())
}
