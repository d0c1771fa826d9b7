//! Runs that the caller stops: of a server, of replicas, of a graph and of a tier.

use crate::common::plants;
use leeward_core::units::Nanos;
use leeward_sim::{RunOutcome, SimConfig, SimError, simulate_until};
use std::sync::atomic::{AtomicBool, Ordering};

/// Longer than any test may take, but within a run's maximum duration.
const LONG: Nanos = Nanos::from_secs(3_000);

fn run(config: &SimConfig, stop: &AtomicBool) -> Result<RunOutcome, SimError> {
    let registry = leeward_controllers::builtin();
    let none = registry.find("none").unwrap();
    simulate_until(config, none, &none.params(&[]).unwrap(), stop)
}

#[test]
fn a_run_can_be_stopped_midway() {
    for (name, config) in plants() {
        let long = SimConfig { duration: LONG, window: None, ..config };
        let stop = AtomicBool::new(false);
        let ended = std::thread::scope(|scope| {
            let running = scope.spawn(|| run(&long, &stop));
            stop.store(true, Ordering::Relaxed);
            running.join().unwrap()
        });
        assert_eq!(ended.unwrap_err(), SimError::Stopped, "{name}");
    }
}

#[test]
fn a_stop_flag_that_is_never_set_changes_nothing() {
    for (name, config) in plants() {
        let short =
            SimConfig { warmup: Nanos::from_millis(1), duration: Nanos::from_millis(5), window: None, ..config };
        let registry = leeward_controllers::builtin();
        let none = registry.find("none").unwrap();
        let plain = leeward_sim::simulate(&short, none, &none.params(&[]).unwrap()).unwrap();
        let watched = run(&short, &AtomicBool::new(false)).unwrap();
        assert_eq!((plain.totals, plain.events), (watched.totals, watched.events), "{name}");
    }
}
