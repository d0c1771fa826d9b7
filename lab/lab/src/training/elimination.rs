//! Successive elimination: at each load all setups are measured in turns, and those that are surely not the best are measured no further.
//! The paper's grid (every setup at every load five times for 30 s) takes hours; most of it is about setups far from the best.

use super::measurement::{Measurement, round_load};
use super::{Bench, Candidate, Trial};
use crate::error::RunError;
use leeward_core::units::{Nanos, Rate};
use leeward_threading::ThreadingSetup;
use leeward_threading::curves::{Curve, CurvePoint, Curves, CurvesError, TailPercentile};
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Setups and loads to train, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingPlan {
    /// Setups, in the order in which ties are decided.
    pub setups: Vec<ThreadingSetup>,
    /// Lowest and highest load; `None`: from a hundredth of what the best setup sustains to 1.1 times that.
    pub loads: Option<(Rate, Rate)>,
    /// Latency that decides.
    pub tail: TailPercentile,
    /// Requests of a first measurement.
    pub min_requests: u64,
    /// Requests of the longest measurement of a setup at a load.
    pub max_requests: u64,
}

impl TrainingPlan {
    /// Of these setups by their 99th percentile: 500 to 2,000 requests each.
    pub fn new(setups: Vec<ThreadingSetup>) -> Self {
        TrainingPlan { setups, loads: None, tail: TailPercentile::P99, min_requests: 500, max_requests: 2_000 }
    }
}

/// How far training has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainingProgress {
    /// Setup of the measurement that has ended.
    pub setup: ThreadingSetup,
    /// Its load.
    pub load: Rate,
    /// Measurements so far.
    pub measurements: usize,
    /// Loads that are finished, and all, where they are known.
    pub loads: (usize, usize),
}

/// Outcome of a training.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingOutcome {
    /// The curves of all setups that sustain at least two loads.
    pub curves: Curves,
    /// Setups that do not.
    pub excluded: Vec<ThreadingSetup>,
    /// Measurements made.
    pub measurements: usize,
    /// The time was over before all was measured.
    pub timed_out: bool,
}

/// First load of a search for what the setups sustain.
const FIRST_LOAD: f64 = 100.0;
/// No server of today has more.
const MAX_LOAD: f64 = 1e8;
/// Halvings between a load that is sustained and one that is not.
const HALVINGS: u32 = 3;
/// Loads of a training at most.
const LOADS_MAX: usize = 40;

/// Trains: see the module. `is_over` says that the time is; what is begun is finished then, and the curves are of what there is.
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
    let racers =
        plan.setups.iter().map(|setup| SetupState { setup: *setup, points: Vec::new(), failed_load: None }).collect();
    let mut race = Elimination {
        bench,
        plan,
        progress,
        is_over,
        stop,
        setups: racers,
        measurements: 0,
        late_measurements: 0,
        loads: (0, 0),
    };
    let mut loads = match plan.loads {
        Some((lowest, highest)) => grid(lowest.0, highest.0),
        None => {
            let best = race.find_capacity()?;
            grid(best / 100.0, best * 1.1)
        }
    };
    // At a low load as many requests take longest. Where they take real time, the budget is for the others first: below its lowest load a curve is
    // level, so that a training that was cut short says something all the same.
    if bench.is_real_time() {
        loads.reverse();
    }
    race.loads = (0, loads.len());
    for load in &loads {
        if race.is_over() {
            break;
        }
        race.measure_load(*load)?;
        race.loads.0 += 1;
    }
    let cut_short = race.loads.0 < loads.len() && race.setups.iter().any(|racer| racer.failed_load.is_none());
    race.refine_limits()?;
    race.finish(cut_short)
}

/// Loads from one to the other, each about the root of two times the one before, or more where that were too many.
fn grid(lowest: f64, highest: f64) -> Vec<f64> {
    let (lowest, highest) = (lowest.max(1e-3), highest.max(lowest.max(1e-3) * 1.01));
    let octaves = (highest / lowest).log2();
    let steps = ((octaves * 2.0).ceil() as usize).clamp(1, LOADS_MAX - 1);
    let ratio = (highest / lowest).powf(1.0 / steps as f64);
    let mut loads: Vec<f64> = (0..=steps).map(|step| round_load(lowest * ratio.powi(step as i32))).collect();
    loads.dedup();
    loads
}

/// A setup in the race.
struct SetupState {
    setup: ThreadingSetup,
    /// Ascending loads.
    points: Vec<CurvePoint>,
    /// The lowest load that it did not sustain.
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
    /// Measurements whose clients were late.
    late_measurements: usize,
    loads: (usize, usize),
}

impl Elimination<'_> {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || (self.is_over)()
    }

    /// Measures these setups, in turns or at once, each once.
    fn measure(&mut self, asked: &[(usize, f64)], requests: u64, round: u32) -> Result<Vec<Measurement>, RunError> {
        let one = |(racer, load): &(usize, f64)| {
            if self.stop.load(Ordering::Relaxed) {
                return Err(RunError::Cancelled);
            }
            let candidate = Candidate::Setup(self.setups[*racer].setup);
            self.bench.measure(&Trial { candidate, load: Rate(*load), requests, round }, self.stop)
        };
        let samples: Vec<Result<Measurement, RunError>> = if self.bench.is_parallel() {
            asked.par_iter().with_max_len(1).map(one).collect()
        } else {
            asked.iter().map(one).collect()
        };
        for (racer, load) in asked {
            self.measurements += 1;
            let (setup, load) = (self.setups[*racer].setup, Rate(*load));
            (self.progress)(TrainingProgress { setup, load, measurements: self.measurements, loads: self.loads });
        }
        let samples: Vec<Measurement> = samples.into_iter().collect::<Result<_, _>>()?;
        self.late_measurements += samples.iter().filter(|sample| sample.clients_late).count();
        Ok(samples)
    }

    /// About what the best setup sustains: each is offered twice as much until none keeps up.
    fn find_capacity(&mut self) -> Result<f64, RunError> {
        let mut running: Vec<usize> = (0..self.setups.len()).collect();
        let (mut best, mut load) = (FIRST_LOAD / 2.0, FIRST_LOAD);
        while !running.is_empty() && load < MAX_LOAD && !self.is_over() {
            let asked: Vec<(usize, f64)> = running.iter().map(|racer| (*racer, load)).collect();
            let samples = self.measure(&asked, self.plan.min_requests, 0)?;
            running = running
                .iter()
                .zip(&samples)
                .filter(|(_, sample)| sample.is_sustained())
                .map(|(racer, _)| *racer)
                .collect();
            if !running.is_empty() {
                best = load;
            }
            load *= 2.0;
        }
        // Between here and twice as much.
        Ok(best * std::f64::consts::SQRT_2)
    }

    /// All setups that kept up so far, at one load.
    fn measure_load(&mut self, load: f64) -> Result<(), RunError> {
        let may_keep_up = |racer: &usize| self.setups[*racer].failed_load.is_none_or(|failed| load < failed);
        let mut running: Vec<usize> = (0..self.setups.len()).filter(may_keep_up).collect();
        let mut found: Vec<Option<Measurement>> = vec![None; self.setups.len()];
        let (mut requests, mut round) = (self.plan.min_requests, 0);
        loop {
            let asked: Vec<(usize, f64)> = running.iter().map(|racer| (*racer, load)).collect();
            let samples = self.measure(&asked, requests, round)?;
            for (racer, sample) in running.iter().zip(samples) {
                // A setup near its end keeps up for a while: the longer measurement is right. A load that both measurements sustained has been
                // measured twice, which counts where a measurement depends on more than its requests.
                let before = found[*racer].filter(|_| self.bench.is_real_time());
                let all = before.map_or(sample, |before| before.merge(&sample, self.plan.tail));
                found[*racer] = sample.is_sustained().then_some(all);
                if found[*racer].is_none() {
                    self.setups[*racer].failed_load = Some(load);
                }
            }
            running.retain(|racer| found[*racer].is_some());
            self.eliminate_setups(&mut running, &found);
            if requests >= self.plan.max_requests || running.is_empty() || self.is_over() {
                break;
            }
            (requests, round) = (requests * 2, round + 1);
        }
        let tail = self.plan.tail;
        for (racer, sample) in self.setups.iter_mut().zip(found) {
            racer.points.extend(sample.map(|sample| sample.curve_point(Rate(load), tail)));
        }
        Ok(())
    }

    /// Leaves those that may be the best: whose tail's lower bound is not above the least upper bound.
    fn eliminate_setups(&self, running: &mut Vec<usize>, found: &[Option<Measurement>]) {
        let bounds = |racer: &usize| found[*racer].map(|sample| sample.bounds(self.plan.tail));
        let least: Option<Nanos> = running.iter().filter_map(bounds).map(|(_, high)| high).min();
        running.retain(|racer| bounds(racer).zip(least).is_some_and(|((low, _), least)| low <= least));
    }

    /// Looks closer for the load at which each setup ends.
    fn refine_limits(&mut self) -> Result<(), RunError> {
        for round in 0..HALVINGS {
            let middle = |racer: &SetupState| {
                let load = racer.points.iter().map(|knot| knot.load).max_by(f64::total_cmp)?;
                racer.failed_load.map(|failed| round_load((load * failed).sqrt()))
            };
            let asked: Vec<(usize, f64)> =
                self.setups.iter().enumerate().filter_map(|(place, racer)| Some((place, middle(racer)?))).collect();
            if asked.is_empty() || self.is_over() {
                return Ok(());
            }
            let mut samples = self.measure(&asked, self.plan.max_requests, round)?;
            if self.bench.is_real_time() {
                // No load is known by one measurement of a real server.
                let again = self.measure(&asked, self.plan.max_requests, round + HALVINGS)?;
                for (sample, again) in samples.iter_mut().zip(again) {
                    *sample = match (sample.is_sustained(), again.is_sustained()) {
                        (true, true) => sample.merge(&again, self.plan.tail),
                        (true, false) => again,
                        (false, _) => *sample,
                    };
                }
            }
            for ((racer, load), sample) in asked.into_iter().zip(samples) {
                let racer = &mut self.setups[racer];
                if !sample.is_sustained() {
                    racer.failed_load = Some(load);
                } else if racer.points.iter().all(|knot| load > knot.load) {
                    racer.points.push(sample.curve_point(Rate(load), self.plan.tail));
                }
            }
        }
        Ok(())
    }

    fn finish(self, cut_short: bool) -> Result<TrainingOutcome, RunError> {
        // Whoever asked to stop gets nothing; a time that is over gives what there is.
        if self.stop.load(Ordering::Relaxed) {
            return Err(RunError::Cancelled);
        }
        let mut racers = self.setups;
        for SetupState { points: knots, failed_load: failed, .. } in &mut racers {
            knots.sort_by(|one, other| one.load.total_cmp(&other.load));
            // A load that one measurement kept up with and another, of less, did not: the machine's mood.
            knots.retain(|knot| failed.is_none_or(|failed| knot.load < failed));
        }
        let (enough, few): (Vec<SetupState>, Vec<SetupState>) =
            racers.into_iter().partition(|racer| racer.points.len() >= 2);
        if enough.is_empty() {
            let (loads, all) = self.loads;
            let end = if cut_short { "the budget was over" } else { "that was all" };
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
        let left_out = few.into_iter().map(|racer| racer.setup).collect();
        let curve = |racer: SetupState| {
            let sustains = racer.points.last().map_or(0.0, |knot| knot.load);
            Curve { setup: racer.setup, points: racer.points, max_load: sustains }
        };
        let curves = Curves::new(enough.into_iter().map(curve).collect()).map_err(curves_error)?;
        Ok(TrainingOutcome { curves, excluded: left_out, measurements: self.measurements, timed_out: cut_short })
    }
}

fn curves_error(error: CurvesError) -> RunError {
    RunError::Training(error.to_string())
}
