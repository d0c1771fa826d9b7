//! Admission at the edge of software that has queues of its own and clients without credits: late requests are refused one
//! by one, and a level per tenant keeps the standing queueing delay near its target. Here: the entry and the two halves.
//!
//! - `law`: how much work is to be admitted. `standing`: the delay that stands. `share`: who gets how much of it.
//! - `table`: the demand of each tenant by priority, as cores count it. [`cost`], [`deadline`]: arithmetic for plants.
//!
//! Never here: how a plant learns delays, priorities, tenants and costs.

pub mod cost;
pub mod deadline;
mod law;
mod share;
mod standing;
mod table;

use law::{Law, Observed};
use leeward_core::client::ClientParts;
use leeward_core::client::params::{CLIENT_DELAY, CLIENT_QUEUE, MAX_OUTSTANDING, client_config};
use leeward_core::none::SendAll;
use leeward_core::params::{Kind, ParamSpec, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{
    Admission, Arrival, ControlLoop, Gauges, RejectReason, ServerHalves, Session, Signals, Verdict,
};
use leeward_core::sync::{Arc, AtomicU64, Ordering, Padded};
use leeward_core::units::{Cost, Nanos, Time};
use share::Shares;
use standing::Standing;
use table::Table;

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "edge",
    summary: "refuses what is late, and below a level per tenant that keeps the standing delay near its target",
    source: "ours; the histogram after Zhou et al., SoCC'18 §4.2, the standing delay after RFC 8289",
    params: &[
        ParamSpec {
            name: "target",
            kind: Kind::SPAN,
            default: "40 % of the SLO",
            doc: "queueing delay that may stand",
            tune: &["20us", "40us", "60us", "80us", "100us", "120us"],
        },
        ParamSpec {
            name: "lateness",
            kind: Kind::SPAN,
            default: "90 % of the SLO less the round trip",
            doc: "a request that has waited longer is refused, whatever its priority",
            tune: &["120us", "140us", "160us", "180us"],
        },
        ParamSpec { name: "level", kind: Kind::SWITCH, default: "on", doc: "off: lateness alone", tune: &[] },
        ParamSpec {
            name: "period",
            kind: Kind::SPAN,
            default: "SLO / 20, from 100us to 10ms",
            doc: "how often the level is computed",
            tune: &["50us", "100us", "200us", "1ms"],
        },
        ParamSpec {
            name: "memory",
            kind: Kind::SPAN,
            default: "5 x the SLO, at least 2ms",
            doc: "time over which demand and capacity are averaged",
            tune: &["500us", "1ms", "2ms", "5ms", "20ms"],
        },
        ParamSpec {
            name: "gain",
            kind: Kind::Number { min: 0.0, max: 1.0 },
            default: "0.3",
            doc: "share of the capacity that is added or taken when the standing delay is nothing or twice its target",
            tune: &["0.1", "0.2", "0.3", "0.5"],
        },
        ParamSpec {
            name: "increase",
            kind: Kind::Number { min: 0.0001, max: 1.0 },
            default: "1%",
            doc: "share of demand by which more is admitted per period while no delay stands",
            tune: &["0.5%", "1%", "2%"],
        },
        ParamSpec {
            name: "costs",
            kind: Kind::SWITCH,
            default: "on",
            doc: "off: every request counts as one",
            tune: &[],
        },
        ParamSpec {
            name: "tenants",
            kind: Kind::Count { min: 1, max: 65_536 },
            default: "256",
            doc: "tenants that are told apart at once; others share places by chance",
            tune: &[],
        },
        CLIENT_QUEUE,
        ParamSpec { default: "none", ..CLIENT_DELAY },
        MAX_OUTSTANDING,
    ],
    build_server: |params, environment| Ok(halves(params, environment)),
    build_client: |params, _| Ok(ClientParts { half: Box::new(SendAll), config: client_config(params, Nanos::MAX) }),
};

/// Below this share of the target a core has nothing to wait for: whatever comes is admitted, so that no core idles
/// because of a level that is too low.
const FREE: f64 = 0.125;

fn halves(params: &Params, environment: &Environment) -> ServerHalves {
    let slo = environment.slo;
    let target = params.duration("target", slo.scale(0.4));
    let lateness = params.duration("lateness", slo.scale(0.9).saturating_sub(environment.rtt));
    let period = params.duration("period", (slo / 20).clamp(Nanos::from_micros(100), Nanos::from_millis(10)));
    let memory = params.duration("memory", (slo * 5).max(Nanos::from_millis(2)));
    let tenants = params.count("tenants", 256) as usize;
    let cores = environment.cores.max(1) as usize;
    let shared =
        Arc::new(Shared { table: Table::new(tenants), cores: (0..cores).map(|_| Padded::default()).collect() });
    let bounds = Bounds { free: target.scale(FREE), target, lateness, level: params.choice("level", "on") == "on" };
    let costs = params.choice("costs", "on") == "on";
    let core = |index| Box::new(Core { index, bounds, costs, shared: Arc::clone(&shared) }) as Box<dyn Admission>;
    ServerHalves {
        cores: (0..cores).map(core).collect(),
        control: Box::new(Control {
            period,
            memory,
            standing: Standing::new(target * 2),
            law: Law::new(target, lateness, params.number("gain", 0.3), params.number("increase", 0.01)),
            shares: Shares::new(shared.table.places()),
            shared,
            before: Admitted::default(),
            updated: Time::ZERO,
            admitted: 0.0,
            requests: 0.0,
        }),
    }
}

#[derive(Clone, Copy)]
struct Bounds {
    free: Nanos,
    target: Nanos,
    lateness: Nanos,
    level: bool,
}

impl Bounds {
    /// Part of a level that still counts at a delay: all of it up to the target, nothing where requests are late. The level itself
    /// follows a delay only after it has stood for a while.
    fn ease(&self, delay: Nanos) -> f64 {
        let (above, room) = (delay.saturating_sub(self.target).0, self.lateness.saturating_sub(self.target).0);
        1.0 - (above as f64 / room.max(1) as f64).min(1.0)
    }
}

/// Counters and levels that all cores and the slow half share.
struct Shared {
    table: Table,
    cores: Vec<Padded<Counts>>,
}

/// Requests that a core admitted, and their cost.
#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    cost: AtomicU64,
}

impl Counts {
    /// Counts an admitted request. A core is its own counters' only writer: a store costs a fifth of an atomic addition.
    fn count(&self, cost: Cost) {
        let add = |counter: &AtomicU64, count: u64| {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
        };
        add(&self.requests, 1);
        add(&self.cost, cost.0.max(1).into());
    }
}

#[derive(Clone, Copy, Default)]
struct Admitted {
    requests: u64,
    cost: u64,
}

impl Shared {
    fn admitted(&self) -> Admitted {
        self.cores.iter().fold(Admitted::default(), |sum, core| Admitted {
            requests: sum.requests.wrapping_add(core.0.requests.load(Ordering::Relaxed)),
            cost: sum.cost.wrapping_add(core.0.cost.load(Ordering::Relaxed)),
        })
    }
}

struct Core {
    index: usize,
    bounds: Bounds,
    /// Requests count as much as they cost.
    costs: bool,
    shared: Arc<Shared>,
}

impl Core {
    fn judge(&mut self, event: &Arrival) -> Verdict {
        let cost = if self.costs { event.cost } else { Cost::ONE };
        let place = self.shared.table.note(event.tenant, event.priority, cost);
        if event.budget.is_spent() {
            return Verdict::Reject(RejectReason::Delay);
        }
        let binds = self.bounds.level && event.delay >= self.bounds.free;
        if binds && !place.admits(event.priority, event.random, self.bounds.ease(event.delay)) {
            return Verdict::Reject(place.reason());
        }
        self.shared.cores[self.index].0.count(cost);
        Verdict::Admit
    }
}

impl Admission for Core {
    fn request(&mut self, _: &mut Session, event: &Arrival) -> Verdict {
        self.judge(event)
    }

    fn execute(&mut self, waited: Nanos) -> Verdict {
        if waited > self.bounds.lateness { Verdict::Reject(RejectReason::Delay) } else { Verdict::Admit }
    }
}

struct Control {
    period: Nanos,
    memory: Nanos,
    standing: Standing,
    law: Law,
    shares: Shares,
    shared: Arc<Shared>,
    /// At the last tick.
    before: Admitted,
    updated: Time,
    /// Cost admitted per nanosecond, averaged.
    admitted: f64,
    /// Requests admitted per nanosecond, averaged likewise.
    requests: f64,
}

impl Control {
    /// Mean cost of an admitted request. A ratio of means: the mean of the periods' ratios would count the few requests beside a
    /// dear one for as much as the many of a period without any.
    fn mean_cost(&self) -> f64 {
        if self.requests > 0.0 { self.admitted / self.requests } else { 1.0 }
    }
}

impl ControlLoop for Control {
    fn period(&self) -> Nanos {
        self.period
    }

    fn tick(&mut self, signals: &Signals) {
        let passed = signals.now.since(self.updated).0 as f64;
        if passed <= 0.0 {
            return;
        }
        self.updated = signals.now;
        let delay = self.standing.note(signals.now, signals.delay());
        let weight = passed / (passed + self.memory.0 as f64);
        let admitted = self.shared.admitted();
        let cost = admitted.cost.wrapping_sub(self.before.cost) as f64;
        let requests = admitted.requests.wrapping_sub(self.before.requests) as f64;
        self.before = admitted;
        self.admitted += weight * (cost / passed - self.admitted);
        self.requests += weight * (requests / passed - self.requests);
        let demand = self.shares.note(&self.shared.table, passed, weight);
        let allowed = self.law.update(&Observed {
            delay: signals.delay(),
            standing: delay,
            passed,
            weight,
            memory: self.memory.0 as f64,
            completions: signals.completions,
            admitted: self.admitted,
            cost: self.mean_cost(),
            demand,
        });
        self.shares.divide(&self.shared.table, allowed);
    }

    fn gauges(&self) -> Gauges {
        Gauges { priority_threshold: Some(self.shares.level()), ..Gauges::default() }
    }
}
