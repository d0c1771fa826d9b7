//! A control loop that runs as a task of its server: its ticks are late under overload, and on time
//! below it.

use leeward_core::server::{ControlLoop, CoreGrant, Downstream, Gauges, Signals};
use leeward_core::units::Nanos;
use leeward_sim::config::{ControlTiming, SimConfig};
use leeward_sim::service_time::ServiceTime;
use leeward_sim::simulate_wrapped;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the ticks of a slow half.
struct CountingControl(Box<dyn ControlLoop>, Arc<AtomicU64>);

impl ControlLoop for CountingControl {
    fn period(&self) -> Nanos {
        self.0.period()
    }
    fn tick(&mut self, signals: &Signals) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.tick(signals);
    }
    fn on_core_grant(&mut self, event: &CoreGrant) {
        self.0.on_core_grant(event);
    }
    fn set_downstream(&mut self, event: &Downstream) {
        self.0.set_downstream(event);
    }
    fn gauges(&self) -> Gauges {
        self.0.gauges()
    }
}

/// Number of ticks in 20 ms; with a period of 10 us there are up to 2,000.
fn count_ticks(demand: f64, control: ControlTiming) -> u64 {
    let mut config = SimConfig {
        warmup: Nanos::from_millis(5),
        duration: Nanos::from_millis(20),
        ..SimConfig::testbed(ServiceTime::Exponential(Nanos::from_micros(10)), demand)
    };
    config.server.control = control;
    let registry = leeward_controllers::builtin();
    let breakwater = registry.find("breakwater").unwrap();
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let params = breakwater.params(&[("credits", leeward_core::params::RawParam::Switch(false))]).unwrap();
    let report = simulate_wrapped(&config, breakwater, &params, |mut halves| {
        halves.control = Box::new(CountingControl(halves.control, counted));
        halves
    });
    assert!(report.unwrap().violations.is_empty());
    count.load(Ordering::Relaxed)
}

#[test]
fn control_ticks_are_late_when_requests_wait_for_cores() {
    assert!(count_ticks(2.0, ControlTiming::Ideal) >= 1_990);
    let late = count_ticks(2.0, ControlTiming::Queued);
    assert!(late < 1_000, "{late} of 2,000");
    assert!(count_ticks(0.3, ControlTiming::Queued) >= 1_950, "{}", count_ticks(0.3, ControlTiming::Queued));
}
