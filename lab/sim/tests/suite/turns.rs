//! A control loop that is a task of its own server: under overload its turns come late, and below it they don't.

use leeward_core::server::{ControlLoop, CoresGranted, Downstream, Gauges, Signals};
use leeward_core::units::Nanos;
use leeward_sim::config::{SimConfig, Turns};
use leeward_sim::service::Service;
use leeward_sim::simulate_through;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the turns of a slow half.
struct Counting(Box<dyn ControlLoop>, Arc<AtomicU64>);

impl ControlLoop for Counting {
    fn period(&self) -> Nanos {
        self.0.period()
    }
    fn tick(&mut self, signals: &Signals) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.tick(signals);
    }
    fn cores_granted(&mut self, event: &CoresGranted) {
        self.0.cores_granted(event);
    }
    fn downstream(&mut self, event: &Downstream) {
        self.0.downstream(event);
    }
    fn gauges(&self) -> Gauges {
        self.0.gauges()
    }
}

/// Turns in 20 ms, of which there are 2,000 of 10 us.
fn turns(demand: f64, control: Turns) -> u64 {
    let mut config = SimConfig {
        warmup: Nanos::from_millis(5),
        duration: Nanos::from_millis(20),
        ..SimConfig::testbed(Service::Exponential(Nanos::from_micros(10)), demand)
    };
    config.server.control = control;
    let registry = leeward_controllers::builtin();
    let breakwater = registry.find("breakwater").unwrap();
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let params = breakwater.params(&[("credits", leeward_core::params::Raw::Switch(false))]).unwrap();
    let report = simulate_through(&config, breakwater, &params, |mut halves| {
        halves.control = Box::new(Counting(halves.control, counted));
        halves
    });
    assert!(report.unwrap().violations.is_empty());
    count.load(Ordering::Relaxed)
}

#[test]
fn turns_come_late_when_requests_wait_for_cores() {
    assert!(turns(2.0, Turns::Ideal) >= 1_990);
    let late = turns(2.0, Turns::Queued);
    assert!(late < 1_000, "{late} of 2,000");
    assert!(turns(0.3, Turns::Queued) >= 1_950, "{}", turns(0.3, Turns::Queued));
}
