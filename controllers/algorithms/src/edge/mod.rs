//! Admission at the edge of software with its own queues and clients without credits. Late requests
//! are rejected one by one, and a level per tenant keeps the standing queueing delay near its
//! target. This file has the registry's entry and the two halves.
//!
//! - `law`: the amount of work to admit.
//! - `standing`: the standing delay.
//! - `share`: the division of the admitted work among tenants.
//! - `table`: the demand of each tenant by priority, as cores count it.
//! - [`cost`], [`deadline`]: arithmetic for plants.
//!
//! Does not contain a plant's measurement of delays, priorities, tenants and costs.

pub mod cost;
pub mod deadline;
mod law;
mod share;
mod standing;
mod table;

use law::{Law, Observation};
use leeward_core::client::ClientParts;
use leeward_core::client::params::{CLIENT_DELAY, CLIENT_QUEUE, MAX_OUTSTANDING, client_config};
use leeward_core::none::SendAll;
use leeward_core::params::{ParamKind, ParamSpec, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{
    Admission, Arrival, ControlLoop, Gauges, RejectReason, ServerHalves, Session, Signals, Verdict,
};
use leeward_core::sync::{Arc, AtomicU64, CachePadded, Ordering};
use leeward_core::units::{Cost, Nanos, Time};
use share::Shares;
use standing::StandingDelay;
use table::TenantTable;

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "edge",
    summary: "refuses what is late, and below a level per tenant that keeps the standing delay near its target",
    source: "ours; the histogram after Zhou et al., SoCC'18 §4.2, the standing delay after RFC 8289",
    params: &[
        ParamSpec {
            name: "target",
            kind: ParamKind::ANY_DURATION,
            default: "40 % of the SLO",
            doc: "queueing delay that may stand",
            tuning_values: &["20us", "40us", "60us", "80us", "100us", "120us"],
        },
        ParamSpec {
            name: "lateness",
            kind: ParamKind::ANY_DURATION,
            default: "90 % of the SLO less the round trip",
            doc: "a request that has waited longer is refused, whatever its priority",
            tuning_values: &["120us", "140us", "160us", "180us"],
        },
        ParamSpec {
            name: "level",
            kind: ParamKind::SWITCH,
            default: "on",
            doc: "off: lateness alone",
            tuning_values: &[],
        },
        ParamSpec {
            name: "period",
            kind: ParamKind::ANY_DURATION,
            default: "SLO / 20, from 100us to 10ms",
            doc: "how often the level is computed",
            tuning_values: &["50us", "100us", "200us", "1ms"],
        },
        ParamSpec {
            name: "memory",
            kind: ParamKind::ANY_DURATION,
            default: "5 x the SLO, at least 2ms",
            doc: "time over which demand and capacity are averaged",
            tuning_values: &["500us", "1ms", "2ms", "5ms", "20ms"],
        },
        ParamSpec {
            name: "gain",
            kind: ParamKind::Number { min: 0.0, max: 1.0 },
            default: "0.3",
            doc: "share of the capacity that is added or taken when the standing delay is nothing or twice its target",
            tuning_values: &["0.1", "0.2", "0.3", "0.5"],
        },
        ParamSpec {
            name: "increase",
            kind: ParamKind::Number { min: 0.0001, max: 1.0 },
            default: "1%",
            doc: "share of demand by which more is admitted per period while no delay stands",
            tuning_values: &["0.5%", "1%", "2%"],
        },
        ParamSpec {
            name: "costs",
            kind: ParamKind::SWITCH,
            default: "on",
            doc: "off: every request counts as one",
            tuning_values: &[],
        },
        ParamSpec {
            name: "tenants",
            kind: ParamKind::Count { min: 1, max: 65_536 },
            default: "256",
            doc: "tenants that are told apart at once; others share places by chance",
            tuning_values: &[],
        },
        CLIENT_QUEUE,
        ParamSpec { default: "none", ..CLIENT_DELAY },
        MAX_OUTSTANDING,
    ],
    build_server: |params, environment| Ok(halves(params, environment)),
    build_client: |params, _| Ok(ClientParts { half: Box::new(SendAll), config: client_config(params, Nanos::MAX) }),
};

/// Share of the target below which a core has free capacity. Every request is admitted then, so
/// that no core idles because of a level that is too low.
const FREE: f64 = 0.125;

fn halves(params: &Params, environment: &Environment) -> ServerHalves {
    let slo = environment.slo;
    let target = params.duration("target", slo.scale(0.4));
    let lateness = params.duration("lateness", slo.scale(0.9).saturating_sub(environment.rtt));
    let period = params.duration("period", (slo / 20).clamp(Nanos::from_micros(100), Nanos::from_millis(10)));
    let memory = params.duration("memory", (slo * 5).max(Nanos::from_millis(2)));
    let tenants = params.count("tenants", 256) as usize;
    let cores = environment.cores.max(1) as usize;
    let shared = Arc::new(Shared {
        table: TenantTable::new(tenants),
        cores: (0..cores).map(|_| CachePadded::default()).collect(),
    });
    let bounds =
        DelayBounds { free_delay: target.scale(FREE), target, lateness, level: params.choice("level", "on") == "on" };
    let costs = params.choice("costs", "on") == "on";
    let core = |index| Box::new(Core { index, bounds, costs, shared: Arc::clone(&shared) }) as Box<dyn Admission>;
    ServerHalves {
        cores: (0..cores).map(core).collect(),
        control: Box::new(Control {
            period,
            memory,
            standing: StandingDelay::new(target * 2),
            law: Law::new(
                target,
                (slo * 2).max(period * 8),
                params.number("gain", 0.3),
                params.number("increase", 0.01),
            ),
            shares: Shares::new(shared.table.slots()),
            shared,
            last_totals: AdmittedTotals::default(),
            updated: Time::ZERO,
            resumed_at: None,
            completions: 0,
            admitted: 0.0,
            requests: 0.0,
        }),
    }
}

#[derive(Clone, Copy)]
struct DelayBounds {
    free_delay: Nanos,
    target: Nanos,
    lateness: Nanos,
    level: bool,
}

impl DelayBounds {
    /// Weight of a level at a delay: 1 up to the target, 0 where requests are late. The level
    /// itself follows a delay only after it has stood for a while.
    fn level_weight(&self, delay: Nanos) -> f64 {
        let (above, range) = (delay.saturating_sub(self.target).0, self.lateness.saturating_sub(self.target).0);
        1.0 - (above as f64 / range.max(1) as f64).min(1.0)
    }
}

/// Counters and levels that all cores and the slow half share.
struct Shared {
    table: TenantTable,
    cores: Vec<CachePadded<CoreCounters>>,
}

/// Requests that a core admitted, and their cost.
#[derive(Default)]
struct CoreCounters {
    requests: AtomicU64,
    cost: AtomicU64,
}

impl CoreCounters {
    /// Counts an admitted request. Each core is the only writer of its counters: a store costs a
    /// fifth of an atomic addition.
    fn count(&self, cost: Cost) {
        let add = |counter: &AtomicU64, count: u64| {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
        };
        add(&self.requests, 1);
        add(&self.cost, cost.0.max(1).into());
    }
}

#[derive(Clone, Copy, Default)]
struct AdmittedTotals {
    requests: u64,
    cost: u64,
}

impl Shared {
    fn admitted(&self) -> AdmittedTotals {
        self.cores.iter().fold(AdmittedTotals::default(), |sum, core| AdmittedTotals {
            requests: sum.requests.wrapping_add(core.0.requests.load(Ordering::Relaxed)),
            cost: sum.cost.wrapping_add(core.0.cost.load(Ordering::Relaxed)),
        })
    }
}

struct Core {
    index: usize,
    bounds: DelayBounds,
    /// Whether requests count by their cost.
    costs: bool,
    shared: Arc<Shared>,
}

impl Core {
    fn judge(&mut self, event: &Arrival) -> Verdict {
        let cost = if self.costs { event.cost } else { Cost::ONE };
        let slot = self.shared.table.record(event.tenant, event.priority, cost);
        if event.budget.is_spent() {
            return Verdict::Reject(RejectReason::Delay);
        }
        let binds = self.bounds.level && event.delay >= self.bounds.free_delay;
        if binds && !slot.admits(event.priority, event.random, self.bounds.level_weight(event.delay)) {
            return Verdict::Reject(slot.reason());
        }
        self.shared.cores[self.index].0.count(cost);
        Verdict::Admit
    }
}

impl Admission for Core {
    fn request(&mut self, _: &mut Session, event: &Arrival) -> Verdict {
        self.judge(event)
    }

    fn on_dequeue(&mut self, waited: Nanos) -> Verdict {
        if waited > self.bounds.lateness { Verdict::Reject(RejectReason::Delay) } else { Verdict::Admit }
    }
}

struct Control {
    period: Nanos,
    memory: Nanos,
    standing: StandingDelay,
    law: Law,
    shares: Shares,
    shared: Arc<Shared>,
    /// Totals at the last tick.
    last_totals: AdmittedTotals,
    updated: Time,
    /// First tick after a pause of the process, while its queue drains.
    resumed_at: Option<Time>,
    /// Completions since `updated`.
    completions: u64,
    /// Cost admitted per nanosecond, averaged.
    admitted: f64,
    /// Requests admitted per nanosecond, averaged likewise.
    requests: f64,
}

impl Control {
    /// Mean cost of an admitted request, as a ratio of means. The mean of the periods' ratios would
    /// give the few requests beside an expensive one the weight of the many in a period without
    /// one.
    fn mean_cost(&self) -> f64 {
        if self.requests > 0.0 { self.admitted / self.requests } else { 1.0 }
    }
}

impl ControlLoop for Control {
    fn period(&self) -> Nanos {
        self.period
    }

    fn tick(&mut self, signals: &Signals) {
        self.completions += signals.completions;
        let elapsed_ns = signals.now.since(self.updated).0 as f64;
        if elapsed_ns <= 0.0 {
            return;
        }
        // What arrived in a pause is read at once after it. It is no demand of that moment, but of
        // the whole time until its queue has drained.
        let is_paused = |elapsed_ns| self.law.is_paused(elapsed_ns, signals.delay());
        if is_paused(elapsed_ns) {
            let resumed_at = *self.resumed_at.get_or_insert(signals.now);
            if !is_paused(signals.now.since(resumed_at).0 as f64) {
                return;
            }
        }
        (self.updated, self.resumed_at) = (signals.now, None);
        let delay = self.standing.record(signals.now, signals.delay());
        let weight = elapsed_ns / (elapsed_ns + self.memory.0 as f64);
        let admitted = self.shared.admitted();
        let cost = admitted.cost.wrapping_sub(self.last_totals.cost) as f64;
        let requests = admitted.requests.wrapping_sub(self.last_totals.requests) as f64;
        self.last_totals = admitted;
        self.admitted += weight * (cost / elapsed_ns - self.admitted);
        self.requests += weight * (requests / elapsed_ns - self.requests);
        let demand = self.shares.record(&self.shared.table, elapsed_ns, weight);
        let allowed = self.law.update(&Observation {
            delay: signals.delay(),
            standing_delay: delay,
            elapsed_ns,
            weight,
            memory: self.memory.0 as f64,
            completions: std::mem::take(&mut self.completions),
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
