//! Breakwater's parameters. Each part that the paper takes away in an ablation can be switched off here.

use super::super::client_params::{CLIENT_DELAY, CLIENT_QUEUE, MAX_OUTSTANDING, client_config};
use super::allocation::{self, Awareness};
use crate::client::ClientConfig;
use crate::params::{Kind, ParamError, ParamSpec, Params};
use crate::registry::Environment;
use crate::units::Nanos;

/// How the additive increase α·n_c turns into whole credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Additive {
    /// The fraction is carried to the next period (the published code).
    Carried,
    /// At least one credit per period (Breakwater §3.2.2, eq. 3).
    AtLeastOne,
}

/// Which session without credit is woken first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waking {
    /// The one that has waited longest (the published code).
    Fifo,
    /// Any (Breakwater §3.2.2).
    Random,
}

/// How the server learns what waits at its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// From requests only; it guesses in between and overcommits (Breakwater §3.2.2).
    Speculation,
    /// From a message at every change; nothing is overcommitted (the ablation of Breakwater Fig. 8).
    Synchronization,
}

/// Everything Breakwater may be told.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Credits on: clients send by window. Off: clients send at will.
    pub credits: bool,
    /// Drop requests on arrival when the queueing delay is at `aqm_threshold` or above.
    pub aqm: bool,
    /// See [`Additive`].
    pub additive: Additive,
    /// See [`Waking`].
    pub waking: Waking,
    /// See [`Demand`].
    pub demand: Demand,
    /// α: credits added per session and period while the delay is under its target.
    pub alpha: f64,
    /// β: how strongly the pool shrinks per relative excess of delay.
    pub beta: f64,
    /// d_t: the queueing delay aimed at.
    pub target: Nanos,
    /// Queueing delay from which requests are dropped.
    pub aqm_threshold: Nanos,
    /// Waiting time from which a request is dropped when its turn comes: its response could not be in time any more.
    /// Not in the paper. On many cores requests rarely get so far; on one, where the age of the oldest says little of how
    /// long the newest will wait, it spares the executions that nobody has a use for.
    pub stale: Nanos,
    /// Control period: the network round trip.
    pub period: Nanos,
    /// A session's window stays below this.
    pub max_window: u32,
    /// The pool never shrinks below this.
    pub min_pool: u32,
    /// The pool at the start.
    pub initial_pool: u32,
    /// See [`Awareness`]. Unless it is off, [`Config::min_pool`] follows from the round trip, too.
    pub allocator_aware: Awareness,
    /// The client's queue.
    pub client: ClientConfig,
}

/// What scenario files may set.
pub const PARAMS: &[ParamSpec] = &[
    ParamSpec { name: "credits", kind: Kind::SWITCH, default: "on", doc: "admission by credits", tune: &[] },
    ParamSpec {
        name: "aqm",
        kind: Kind::SWITCH,
        default: "on",
        doc: "drop on arrival above the AQM threshold",
        tune: &[],
    },
    ParamSpec {
        name: "additive",
        kind: Kind::Choice(&["carried", "at_least_one"]),
        default: "carried",
        doc: "how the increase α·n_c becomes whole credits: fraction carried over, or at least one per period",
        tune: &[],
    },
    ParamSpec {
        name: "waking",
        kind: Kind::Choice(&["fifo", "random"]),
        default: "fifo",
        doc: "which session without credit gets the next explicit one",
        tune: &[],
    },
    ParamSpec {
        name: "demand",
        kind: Kind::Choice(&["speculation", "synchronization"]),
        default: "speculation",
        doc: "guess the clients' demand, or have each change of it sent",
        tune: &[],
    },
    ParamSpec {
        name: "alpha",
        kind: Kind::Number { min: 0.0, max: 100.0 },
        default: "0.1%",
        doc: "α: credits added per session and round trip while the delay is under its target",
        tune: &["0.05%", "0.1%", "0.2%", "0.5%"],
    },
    ParamSpec {
        name: "beta",
        kind: Kind::Number { min: 0.0, max: 10.0 },
        default: "2%",
        doc: "β: how strongly the pool shrinks per relative excess of delay",
        tune: &["1%", "2%", "4%", "8%"],
    },
    ParamSpec {
        name: "target",
        kind: Kind::SPAN,
        default: "40 % of the SLO",
        doc: "d_t: the queueing delay aimed at",
        tune: &["40us", "60us", "80us", "100us"],
    },
    ParamSpec {
        name: "aqm_threshold",
        kind: Kind::SPAN,
        default: "2 x target",
        doc: "queueing delay from which requests are dropped on arrival",
        tune: &[],
    },
    ParamSpec {
        name: "stale",
        kind: Kind::SPAN,
        default: "aqm_threshold",
        doc: "a request that has waited this long is dropped when its turn comes, instead of being served too late (part of aqm)",
        tune: &[],
    },
    ParamSpec {
        name: "period",
        kind: Kind::SPAN,
        default: "the network round trip",
        doc: "how often the credit pool is adapted",
        tune: &[],
    },
    ParamSpec {
        name: "max_window",
        kind: Kind::Count { min: 2, max: 65_536 },
        default: "64",
        doc: "a session's window stays below this",
        tune: &[],
    },
    ParamSpec {
        name: "min_pool",
        kind: Kind::Count { min: 1, max: 1_000_000 },
        default: "the number of cores; with allocator_aware, what these serve in a round trip",
        doc: "the credit pool never shrinks below this",
        tune: &[],
    },
    ParamSpec {
        name: "initial_pool",
        kind: Kind::Count { min: 1, max: 1_000_000 },
        default: "min_pool",
        doc: "the credit pool at the start",
        tune: &[],
    },
    ParamSpec {
        name: "allocator_aware",
        kind: Kind::Choice(&["on", "off", "grants"]),
        default: "on where an allocator grants and parks the cores",
        doc: "the pool grows with each granted core (grants) and while most of it is unused, and its minimum with the round trip",
        tune: &[],
    },
    ParamSpec {
        name: "service",
        kind: Kind::SPAN,
        default: "a tenth of the SLO less the round trip",
        doc: "mean service time, from which allocator_aware derives the smallest pool",
        tune: &[],
    },
    CLIENT_QUEUE,
    ParamSpec { default: "the SLO less target", ..CLIENT_DELAY },
    MAX_OUTSTANDING,
];

impl Config {
    /// The configuration that `params` ask for.
    ///
    /// # Errors
    /// An AQM threshold below the delay target: the pool could never settle at its target.
    pub fn read(params: &Params, environment: &Environment) -> Result<Config, ParamError> {
        let on = |name| params.choice(name, "on") == "on";
        // Breakwater §5.1: d_t = 40 % of SLO. Never zero: the pool's law divides by it.
        let target = params.duration("target", environment.slo.scale(0.4).max(Nanos(1)));
        let aqm_threshold = params.duration("aqm_threshold", target * 2); // Breakwater §5.1: 2·d_t
        if aqm_threshold < target {
            return Err(ParamError::Conflict(format!(
                "`aqm_threshold` ({aqm_threshold}) must not be below `target` ({target})"
            )));
        }
        let allocator_aware = allocation::awareness(params, environment);
        let min_pool = params.count("min_pool", allocation::default_min_pool(allocator_aware, params, environment));
        Ok(Config {
            credits: on("credits"),
            aqm: on("aqm"),
            additive: match params.choice("additive", "carried") {
                "at_least_one" => Additive::AtLeastOne,
                _ => Additive::Carried,
            },
            waking: if params.choice("waking", "fifo") == "random" { Waking::Random } else { Waking::Fifo },
            demand: match params.choice("demand", "speculation") {
                "synchronization" => Demand::Synchronization,
                _ => Demand::Speculation,
            },
            alpha: params.number("alpha", 0.001), // Breakwater §5.1
            beta: params.number("beta", 0.02),    // Breakwater §5.1
            target,
            aqm_threshold,
            stale: params.duration("stale", aqm_threshold),
            period: params.duration("period", environment.rtt.max(Nanos::from_micros(1))),
            max_window: params.count("max_window", 64) as u32, // the published code's bound
            min_pool: min_pool as u32,
            initial_pool: params.count("initial_pool", min_pool).max(min_pool) as u32,
            allocator_aware,
            // The testbed expired requests after 10 µs at the client; a user's default follows from the objective: what
            // the target delay leaves of it.
            client: client_config(params, environment.slo.saturating_sub(target)),
        })
    }
}
