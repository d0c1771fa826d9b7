//! Random histories, each drawn from one number: steps of the demand and of the service time, and
//! silences. `knee` must not lock itself out: the goodput returns after each. Does not contain
//! single events (`recovery`).

use crate::support::{case, knee, slots};
use leeward_core::units::Nanos;
use leeward_proxy_sim::case::{Case, Demand, Discipline, Feature};
use leeward_proxy_sim::proxy::SLOT;
use leeward_workload::ServiceTime;
use leeward_workload::rng::{Purpose, Rng};

const HISTORIES: u64 = 60;
const SECOND: Nanos = Nanos::from_secs(1);
/// Seconds of a history before the end, in which nothing happens but an overload.
const EVENTS: u64 = 16;
const BACK: u64 = 2;
const JUDGED: u64 = 4;
/// Least goodput of the end, as a share of the capacity: four seconds of a single core are noise.
const LEAST: f64 = 0.9;

fn draw(seed: u64) -> Case {
    let mut rng = Rng::new(seed, Purpose::Kinds);
    let mean = Nanos::from_micros([300, 1_000, 3_000][rng.below(3) as usize]);
    let service = match rng.below(4) {
        0 => ServiceTime::Constant(mean),
        1 => ServiceTime::Exponential(mean),
        2 => ServiceTime::Bimodal(mean),
        _ => ServiceTime::Lognormal { mean, sigma: 1.0 },
    };
    let discipline = if rng.below(2) == 0 { Discipline::Fifo } else { Discipline::ProcessorSharing };
    let cores = 1 << rng.below(4);
    let mut steps = Vec::new();
    let mut features = Vec::new();
    let mut at = 0;
    while at < EVENTS {
        let load = [0.0, 0.3, 0.9, 1.3, 2.0, 5.0][rng.below(6) as usize];
        steps.push((SECOND * at, load));
        let length = 1 + rng.below(3);
        let (from, to) = (SECOND * at, SECOND * (at + length).min(EVENTS));
        match rng.below(4) {
            0 => features.push(Feature::Slower { from, to, factor: [0.5, 2.0, 4.0][rng.below(3) as usize] }),
            1 => features.push(Feature::Silence { from: from + SECOND.scale(0.3), to }),
            _ => {}
        }
        at += length;
    }
    steps.push((SECOND * EVENTS, 2.0));
    steps.push((SECOND * (EVENTS + BACK + JUDGED), 0.0));
    Case { discipline, features, objective: mean * 60, demand: Demand::Steps(steps), ..case(cores, service) }
}

/// All seeds, or the one to reproduce.
#[allow(clippy::disallowed_methods)] // a test's own switch, not configuration of the simulator
fn seeds() -> Vec<u64> {
    match std::env::var("LEEWARD_SWARM_SEED") {
        Ok(seed) => vec![seed.parse().expect("LEEWARD_SWARM_SEED is a number")],
        Err(_) => (1..=HISTORIES).collect(),
    }
}

#[test]
fn the_goodput_returns_after_any_history() {
    for seed in seeds() {
        let case = draw(seed);
        let all = knee(&case, seed);
        let end = slots(&all, SECOND * (EVENTS + BACK), SECOND * (EVENTS + BACK + JUDGED));
        let good = end.iter().map(|slot| slot.good).sum::<u64>() as f64;
        let share = good / end.len() as f64 / (case.capacity() * SLOT.as_secs_f64());
        assert!(
            share >= LEAST,
            "{share}: {case}\nlimits: {:?}\nreplay: LEEWARD_SWARM_SEED={seed} cargo test -p leeward-proxy-sim --test suite swarm",
            all.iter().map(|slot| (slot.limit, slot.good)).collect::<Vec<_>>()
        );
    }
}
