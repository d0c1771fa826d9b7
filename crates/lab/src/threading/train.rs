//! Training in the simulator: tail latency and CPU of every setup over the load, for policies to choose by (µTune §4.2: each setup is held
//! at each load, and measured several times). Files of curves are not here.

use crate::scenario::Training;
use leeward_control::params::Params;
use leeward_control::registry::Registry;
use leeward_control::threading::curves::{Curve, Curves, KNOTS_MAX, Knot};
use leeward_control::threading::{Setup, Threading};
use leeward_control::units::{Nanos, Rate};
use leeward_outcome::RunOutcome;
use leeward_sim::config::Segment;
use leeward_sim::{SimConfig, SimError, simulate};
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Distance of training's seeds from those of runs, so that no policy is judged by what it was trained on.
const APART: u64 = 0x7261_696e;
/// Answers over requests below which a load is not sustained.
const SUSTAINED: f64 = 0.98;
/// Halvings between the last load that is sustained and the first that is not.
const HALVINGS: u32 = 3;
/// Highest load over the capacity.
const HIGHEST: f64 = 1.1;

/// The curves of a tier's setups: `config` says which tier, arrivals and objective, `capacity` where loads end, `seed` what the runs that
/// come have. `None` if `stop` was set.
///
/// # Errors
/// A tier that can't be simulated, or setups of which none sustains anything.
pub fn train(
    config: &SimConfig,
    training: &Training,
    capacity: Rate,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Option<Curves>, SimError> {
    let loads = loads(training, capacity);
    let one = |setup: &Setup| curve(config, training, *setup, &loads, seed, stop);
    let curves: Vec<Option<Curve>> = training.setups.par_iter().with_max_len(1).map(one).collect::<Result<_, _>>()?;
    if stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    Curves::new(curves.into_iter().flatten().collect()).map(Some).map_err(|error| SimError::Config(error.to_string()))
}

/// The loads, each the root of two times the one before: a ratio that every machine computes alike.
fn loads(training: &Training, capacity: Rate) -> Vec<f64> {
    let highest = (capacity.0 * HIGHEST).max(training.lowest * 2.0);
    let next = |load: &f64| Some(load * std::f64::consts::SQRT_2);
    std::iter::successors(Some(training.lowest), next).take_while(|load| *load <= highest).take(KNOTS_MAX / 2).collect()
}

/// One setup from the lowest load upwards, until it sustains no more. `None` if it sustains less than two loads.
fn curve(
    config: &SimConfig,
    training: &Training,
    setup: Setup,
    loads: &[f64],
    seed: u64,
    stop: &AtomicBool,
) -> Result<Option<Curve>, SimError> {
    let mut knots: Vec<Knot> = Vec::new();
    let (mut sustained, mut beyond) = (0.0, None);
    for load in loads {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match knot(config, training, setup, *load, seed)? {
            Some(knot) => {
                knots.push(knot);
                sustained = *load;
            }
            None => {
                beyond = Some(*load);
                break;
            }
        }
    }
    if let (Some(mut above), true) = (beyond, sustained > 0.0) {
        for _ in 0..HALVINGS {
            let middle = (sustained * above).sqrt();
            match knot(config, training, setup, middle, seed)? {
                Some(knot) => {
                    knots.push(knot);
                    sustained = middle;
                }
                None => above = middle,
            }
        }
    }
    let threading = Threading::Setup(setup);
    Ok((knots.len() >= 2).then_some(Curve { setup: threading, knots, sustains: sustained }))
}

/// A setup at a load, each number the mean over seeds; `None` if it does not sustain it.
fn knot(config: &SimConfig, training: &Training, setup: Setup, load: f64, seed: u64) -> Result<Option<Knot>, SimError> {
    let mut told = Vec::new();
    for index in 0..u64::from(training.seeds.max(1)) {
        let report = run(config, training, setup, load, seed.wrapping_add(APART).wrapping_add(index))?;
        let (completed, offered) = (report.counts.completed, report.counts.offered.max(1));
        if (completed as f64) < SUSTAINED * offered as f64 {
            return Ok(None);
        }
        told.push(report);
    }
    let mean = |of: &dyn Fn(&RunOutcome) -> f64| told.iter().map(of).sum::<f64>() / told.len() as f64;
    let p99 = |report: &RunOutcome| report.latency.p99.as_micros_f64();
    let p99_us = mean(&p99);
    let (least, most) =
        told.iter().map(p99).fold((f64::INFINITY, 0.0), |(least, most), us| (us.min(least), us.max(most)));
    let cpus = config.tier.as_ref().map_or(1, |tier| tier.cpus);
    Ok(Some(Knot {
        load,
        p50_us: mean(&|report| report.latency.p50.as_micros_f64()).max(1e-3),
        p99_us: p99_us.max(1e-3),
        p999_us: mean(&|report| report.latency.p999.as_micros_f64()).max(1e-3),
        cpu: mean(&|report| report.cpu_utilization) * f64::from(cpus),
        samples: told.iter().map(|report| report.latency.count).sum(),
        spread: (most - least) / 2.0 / p99_us.max(1e-3),
    }))
}

fn run(config: &SimConfig, training: &Training, setup: Setup, load: f64, seed: u64) -> Result<RunOutcome, SimError> {
    let mut config = config.clone();
    if let Some(tier) = &mut config.tier {
        (tier.threading, tier.policy) = (setup, None);
    }
    config.workload.demand = vec![Segment { from: Nanos::ZERO, rate: Rate(load) }];
    let length = Nanos::from_secs_f64(f64::from(training.requests) / load);
    config.warmup = length.scale(0.05);
    config.duration = (config.warmup + length).min(Nanos::from_secs(3_600));
    (config.window, config.fine_window, config.seed) = (None, None, seed);
    let registry = Registry::builtin();
    let none = registry.find("none").map_err(|error| SimError::Config(error.to_string()))?;
    simulate(&config, none, &Params::default())
}
