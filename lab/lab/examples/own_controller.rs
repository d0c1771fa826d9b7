//! A controller of your own beside one of Leeward's in a scenario, with nothing changed in Leeward:
//! `cargo run --release -p leeward-lab --example own_controller`. Writes
//! `results/own-controller`; `leeward report results/own-controller` draws it.
//!
//! Copy this file to begin. The controller rejects a request that finds a queueing delay over a
//! threshold; its clients send whatever they have.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use leeward_core::client::{ClientConfig, ClientHalf, ClientParts, Gate};
use leeward_core::params::{ParamKind, ParamSpec};
use leeward_core::registry::Algorithm;
use leeward_core::server::{Admission, Arrival, ControlLoop, RejectReason, ServerHalves, Session, Signals, Verdict};
use leeward_core::units::{Nanos, Time};
use leeward_lab::run::{Options, run};
use leeward_lab::{Scenario, registry, store};

const THRESHOLD: Algorithm = Algorithm {
    name: "threshold",
    summary: "rejects what finds a longer queueing delay",
    source: "an example",
    params: &[ParamSpec {
        name: "limit",
        kind: ParamKind::Duration { min: Nanos::from_micros(1), max: Nanos::from_secs(1) },
        default: "60us",
        doc: "queueing delay from which requests are rejected",
        tuning_values: &["40us", "60us", "80us"],
    }],
    build_server: |params, environment| {
        let limit = params.duration("limit", Nanos::from_micros(60));
        let core = || Box::new(Core { limit }) as Box<dyn Admission>;
        Ok(ServerHalves { cores: (0..environment.cores).map(|_| core()).collect(), control: Box::new(Idle) })
    },
    build_client: |_, _| Ok(ClientParts { half: Box::new(Open), config: ClientConfig::default() }),
};

/// The server's fast half, one per core.
struct Core {
    limit: Nanos,
}

impl Admission for Core {
    fn request(&mut self, _: &mut Session, arrival: &Arrival) -> Verdict {
        if arrival.delay > self.limit { Verdict::Reject(RejectReason::Delay) } else { Verdict::Admit }
    }
}

/// The server's slow half. A controller that learns does it here.
struct Idle;

impl ControlLoop for Idle {
    fn period(&self) -> Nanos {
        Nanos::from_millis(1)
    }

    fn tick(&mut self, _: &Signals) {}
}

/// The client's half.
struct Open;

impl ClientHalf for Open {
    fn gate(&mut self, _: Time, _: u32) -> Gate {
        Gate::Open
    }
}

const SCENARIO: &str = r#"
id = "own-controller"
title = "A controller of my own beside Breakwater"
workload = { service = "exp:10us", clients = 1000, demand = ["0.5x", "1x", "1.5x", "2x"] }
run = { warmup = "50ms", duration = "150ms", seeds = 1 }
controller = [{ name = "breakwater" }, { name = "threshold" }, { name = "threshold", label = "late", params = { limit = "120us" } }]
plot = [{ title = "Goodput", x = "demand_ratio", y = "goodput_rps" }]
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut registry = registry();
    registry.add(THRESHOLD)?;
    let scenario = Scenario::parse("scenario", SCENARIO, Path::new(""), &[], false, &registry)?;
    let results = run(&scenario, &registry, &Options::default(), &|_| {}, &AtomicBool::new(false))?;
    for point in &results.points {
        println!(
            "{:<10} {:>4} x the capacity: {:6.1} k/s in time, p99 {:6.1} us",
            point.run.label,
            point.workload.demand_ratio,
            point.goodput_rps / 1e3,
            point.p99_us,
        );
    }
    store::write(Path::new("results/own-controller"), &results)?;
    Ok(())
}
