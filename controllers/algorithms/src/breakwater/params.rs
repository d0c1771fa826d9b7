//! The parameters of the credit schemes as users write them: names, ranges, defaults in words.
//! Never here: what they mean together ([`super::config`]).

use super::super::published::AS_PUBLISHED;
use leeward_core::client::params::{CLIENT_DELAY, CLIENT_QUEUE, MAX_OUTSTANDING};
use leeward_core::params::{Kind, ParamSpec};

const CREDITS: ParamSpec =
    ParamSpec { name: "credits", kind: Kind::SWITCH, default: "on", doc: "admission by credits", tune: &[] };
const AQM: ParamSpec = ParamSpec {
    name: "aqm",
    kind: Kind::SWITCH,
    default: "on",
    doc: "drop on arrival above the AQM threshold",
    tune: &[],
};
const ADDITIVE: ParamSpec = ParamSpec {
    name: "additive",
    kind: Kind::Choice(&["carried", "at_least_one"]),
    default: "carried",
    doc: "how the increase α·n_c becomes whole credits: fraction carried over, or at least one per period",
    tune: &[],
};
const WAKING: ParamSpec = ParamSpec {
    name: "waking",
    kind: Kind::Choice(&["fifo", "random"]),
    default: "fifo",
    doc: "which session without credit gets the next explicit one",
    tune: &[],
};
const DEMAND: ParamSpec = ParamSpec {
    name: "demand",
    kind: Kind::Choice(&["speculation", "synchronization"]),
    default: "speculation",
    doc: "guess the clients' demand, or have each change of it sent",
    tune: &[],
};
const ALPHA: ParamSpec = ParamSpec {
    name: "alpha",
    kind: Kind::Number { min: 0.0, max: 100.0 },
    default: "0.1%",
    doc: "α: credits added per session and round trip while the delay is under its target; fractions add up, so that a single \
          session's pool grows by one credit in 1,000 round trips: with few sessions raise α, or set additive",
    tune: &["0.05%", "0.1%", "0.2%", "0.5%"],
};
const BETA: ParamSpec = ParamSpec {
    name: "beta",
    kind: Kind::Number { min: 0.0, max: 10.0 },
    default: "2%",
    doc: "β: how strongly the pool shrinks per relative excess of delay",
    tune: &["1%", "2%", "4%", "8%"],
};
const TARGET: ParamSpec = ParamSpec {
    name: "target",
    kind: Kind::SPAN,
    default: "40 % of the SLO",
    doc: "d_t: the queueing delay aimed at",
    tune: &["40us", "60us", "80us", "100us"],
};
const AQM_THRESHOLD: ParamSpec = ParamSpec {
    name: "aqm_threshold",
    kind: Kind::SPAN,
    default: "2 x target",
    doc: "queueing delay from which requests are dropped on arrival",
    tune: &[],
};
const STALE: ParamSpec = ParamSpec {
    name: "stale",
    kind: Kind::SPAN,
    default: "aqm_threshold",
    doc: "a request that has waited this long is dropped when its turn comes, instead of being served too late (part of aqm)",
    tune: &[],
};
const PERIOD: ParamSpec = ParamSpec {
    name: "period",
    kind: Kind::SPAN,
    default: "the network round trip",
    doc: "how often the credit pool is adapted",
    tune: &[],
};
const MAX_WINDOW: ParamSpec = ParamSpec {
    name: "max_window",
    kind: Kind::Count { min: 2, max: 65_536 },
    default: "64",
    doc: "a session's window stays below this",
    tune: &[],
};
const MIN_POOL: ParamSpec = ParamSpec {
    name: "min_pool",
    kind: Kind::Count { min: 1, max: 1_000_000 },
    default: "the number of cores; with allocator_aware, what these serve in a round trip",
    doc: "the credit pool never shrinks below this",
    tune: &[],
};
const INITIAL_POOL: ParamSpec = ParamSpec {
    name: "initial_pool",
    kind: Kind::Count { min: 1, max: 1_000_000 },
    default: "min_pool",
    doc: "the credit pool at the start",
    tune: &[],
};
const ALLOCATOR_AWARE: ParamSpec = ParamSpec {
    name: "allocator_aware",
    kind: Kind::Choice(&["on", "off", "grants"]),
    default: "on where an allocator grants and parks the cores",
    doc: "the pool grows with each granted core (grants) and while most of it is unused, its minimum with the round trip, \
          and AQM leaves a backlog to cores that can still be granted",
    tune: &[],
};
const DOWNSTREAM_OVERCOMMIT: ParamSpec = ParamSpec {
    name: "downstream_overcommit",
    kind: Kind::Number { min: 0.0, max: 10.0 },
    default: "25%",
    doc: "share by which the pool may exceed the credits that the servers behind this one give it",
    tune: &[],
};
const SERVICE: ParamSpec = ParamSpec {
    name: "service",
    kind: Kind::SPAN,
    default: "a tenth of the SLO less the round trip",
    doc: "mean service time, from which allocator_aware derives the smallest pool",
    tune: &[],
};
const EXPIRY: ParamSpec = ParamSpec { default: "the SLO less target", ..CLIENT_DELAY };

const EFFICIENCY_THRESHOLD: ParamSpec = ParamSpec {
    name: "efficiency_threshold",
    kind: Kind::Number { min: 0.0, max: 1.0 },
    default: "10%",
    doc: "t_e: the pool grows while one more request brings more than this in responses; 0 is most throughput, 1 fewest drops",
    tune: &["1%", "10%", "25%", "50%"],
};
const DROP_THRESHOLD: ParamSpec = ParamSpec {
    name: "drop_threshold",
    kind: Kind::Number { min: 0.0, max: 1.0 },
    default: "100%",
    doc: "t_d: the pool shrinks while a larger share of the requests is dropped, whatever it costs in throughput",
    tune: &[],
};
const DECREASE: ParamSpec = ParamSpec {
    name: "decrease",
    kind: Kind::Choice(&["multiplicative", "additive"]),
    default: "multiplicative",
    doc: "what an iteration without gain takes: beta of the pool (thesis), or as much as a gain adds (Hoover)",
    tune: &[],
};
const ITERATION: ParamSpec = ParamSpec {
    name: "iteration",
    kind: Kind::Count { min: 2, max: 1_000 },
    default: "4",
    doc: "end-to-end round trips per iteration; the first is not counted",
    tune: &[],
};
const MAX_POOL: ParamSpec = ParamSpec {
    name: "max_pool",
    kind: Kind::Count { min: 1, max: 1_000_000_000 },
    default: "sessions x max_window",
    doc: "the credit pool never grows beyond this",
    tune: &[],
};

/// Parameters of admission by queueing delay.
pub const DELAY: &[ParamSpec] = &[
    CREDITS,
    AQM,
    ADDITIVE,
    WAKING,
    DEMAND,
    ALPHA,
    BETA,
    TARGET,
    AQM_THRESHOLD,
    STALE,
    PERIOD,
    MAX_WINDOW,
    MIN_POOL,
    INITIAL_POOL,
    ALLOCATOR_AWARE,
    SERVICE,
    DOWNSTREAM_OVERCOMMIT,
    AS_PUBLISHED,
    CLIENT_QUEUE,
    EXPIRY,
    MAX_OUTSTANDING,
];

/// Parameters of admission by efficiency.
pub const EFFICIENCY: &[ParamSpec] = &[
    EFFICIENCY_THRESHOLD,
    DROP_THRESHOLD,
    DECREASE,
    ITERATION,
    ParamSpec { doc: "a = α·n_c: credits added per iteration that has gained", ..ALPHA },
    ParamSpec {
        doc: "d: the part of the pool that an iteration without gain takes",
        tune: &["1%", "2%", "4%"],
        ..BETA
    },
    ParamSpec { default: "at_least_one", ..ADDITIVE },
    CREDITS,
    AQM,
    WAKING,
    DEMAND,
    ParamSpec {
        doc: "queueing delay for cores from which the defaults of AQM and clients follow",
        tune: &[],
        ..TARGET
    },
    AQM_THRESHOLD,
    STALE,
    ParamSpec { doc: "how often the counts are looked at", ..PERIOD },
    MAX_WINDOW,
    MIN_POOL,
    INITIAL_POOL,
    ALLOCATOR_AWARE,
    SERVICE,
    DOWNSTREAM_OVERCOMMIT,
    AS_PUBLISHED,
    MAX_POOL,
    CLIENT_QUEUE,
    EXPIRY,
    MAX_OUTSTANDING,
];

/// Parameters of admission by whichever of the two signals has evidence of overload.
pub const AUTO: &[ParamSpec] = &[
    EFFICIENCY_THRESHOLD,
    DROP_THRESHOLD,
    ParamSpec {
        kind: Kind::Choice(&["evidence", "multiplicative", "additive"]),
        default: "evidence",
        doc: "what an iteration without gain takes: as much as a gain adds where locks were refused, beta of the pool where \
              responses were late, or always the same",
        ..DECREASE
    },
    ITERATION,
    ALPHA,
    ParamSpec { doc: "β of the delay signal and d of the efficiency signal", ..BETA },
    ParamSpec { default: "each signal's own: delay carried, efficiency at_least_one", ..ADDITIVE },
    CREDITS,
    AQM,
    WAKING,
    DEMAND,
    TARGET,
    AQM_THRESHOLD,
    STALE,
    PERIOD,
    MAX_WINDOW,
    MIN_POOL,
    INITIAL_POOL,
    ALLOCATOR_AWARE,
    SERVICE,
    DOWNSTREAM_OVERCOMMIT,
    MAX_POOL,
    CLIENT_QUEUE,
    EXPIRY,
    MAX_OUTSTANDING,
];
