//! Parameters of the credit schemes as users write them: names, ranges and defaults. Does not
//! contain checks across parameters ([`super::config`]).

use super::super::published::AS_PUBLISHED;
use leeward_core::client::params::{CLIENT_DELAY, CLIENT_QUEUE, MAX_OUTSTANDING};
use leeward_core::params::{ParamKind, ParamSpec};

const CREDITS: ParamSpec = ParamSpec::new("credits", ParamKind::SWITCH, "on", "admission by credits");
const AQM: ParamSpec = ParamSpec::new("aqm", ParamKind::SWITCH, "on", "drop on arrival above the AQM threshold");
const ADDITIVE: ParamSpec = ParamSpec::new(
    "additive",
    ParamKind::Choice(&["carried", "at_least_one"]),
    "carried",
    "how the increase α·n_c becomes whole credits: fraction carried over, or at least one per period",
);
const WAKING: ParamSpec = ParamSpec::new(
    "waking",
    ParamKind::Choice(&["fifo", "random"]),
    "fifo",
    "which session without credit gets the next explicit one",
);
const DEMAND: ParamSpec = ParamSpec::new(
    "demand",
    ParamKind::Choice(&["speculation", "synchronization"]),
    "speculation",
    "guess the clients' demand, or have each change of it sent",
);
const ALPHA: ParamSpec = ParamSpec::new(
    "alpha",
    ParamKind::Number { min: 0.0, max: 100.0 },
    "0.1%",
    "α: credits added per session and round trip while the delay is under its target; fractions add up, so that a single \
     session's pool grows by one credit in 1,000 round trips: with few sessions raise α, or set additive",
)
.with_tuning_values(&["0.05%", "0.1%", "0.2%", "0.5%"]);
const BETA: ParamSpec = ParamSpec::new(
    "beta",
    ParamKind::Number { min: 0.0, max: 10.0 },
    "2%",
    "β: how strongly the pool shrinks per relative excess of delay",
)
.with_tuning_values(&["1%", "2%", "4%", "8%"]);
const TARGET: ParamSpec =
    ParamSpec::new("target", ParamKind::ANY_DURATION, "40 % of the SLO", "d_t: the queueing delay aimed at")
        .with_tuning_values(&["40us", "60us", "80us", "100us"]);
const AQM_THRESHOLD: ParamSpec = ParamSpec::new(
    "aqm_threshold",
    ParamKind::ANY_DURATION,
    "2 x target",
    "queueing delay from which requests are dropped on arrival",
);
const STALE: ParamSpec = ParamSpec::new(
    "stale",
    ParamKind::ANY_DURATION,
    "aqm_threshold",
    "a request that has waited this long is dropped when its turn comes, instead of being served too late (part of aqm)",
);
const PERIOD: ParamSpec =
    ParamSpec::new("period", ParamKind::ANY_DURATION, "the network round trip", "how often the credit pool is adapted");
const MAX_WINDOW: ParamSpec =
    ParamSpec::new("max_window", ParamKind::Count { min: 2, max: 65_536 }, "64", "a session's window stays below this");
const MIN_POOL: ParamSpec = ParamSpec::new(
    "min_pool",
    ParamKind::Count { min: 1, max: 1_000_000 },
    "the number of cores; with allocator_aware, what these serve in a round trip",
    "the credit pool never shrinks below this",
);
const INITIAL_POOL: ParamSpec = ParamSpec::new(
    "initial_pool",
    ParamKind::Count { min: 1, max: 1_000_000 },
    "min_pool",
    "the credit pool at the start",
);
const ALLOCATOR_AWARE: ParamSpec = ParamSpec::new(
    "allocator_aware",
    ParamKind::Choice(&["on", "off", "grants"]),
    "on where an allocator grants and parks the cores",
    "the pool grows with each granted core (grants) and while most of it is unused, its minimum with the round trip, \
     and AQM leaves a backlog to cores that can still be granted",
);
const DOWNSTREAM_OVERCOMMIT: ParamSpec = ParamSpec::new(
    "downstream_overcommit",
    ParamKind::Number { min: 0.0, max: 10.0 },
    "25%",
    "share by which the pool may exceed the credits that the servers behind this one give it",
);
const SERVICE: ParamSpec = ParamSpec::new(
    "service",
    ParamKind::ANY_DURATION,
    "a tenth of the SLO less the round trip",
    "mean service time, from which allocator_aware derives the smallest pool",
);
const EXPIRY: ParamSpec = ParamSpec { default: "the SLO less target", ..CLIENT_DELAY };

const EFFICIENCY_THRESHOLD: ParamSpec = ParamSpec::new(
    "efficiency_threshold",
    ParamKind::Number { min: 0.0, max: 1.0 },
    "10%",
    "t_e: the pool grows while one more request brings more than this in responses; 0 is most throughput, \
     1 fewest drops",
)
.with_tuning_values(&["1%", "10%", "25%", "50%"]);
const DROP_THRESHOLD: ParamSpec = ParamSpec::new(
    "drop_threshold",
    ParamKind::Number { min: 0.0, max: 1.0 },
    "100%",
    "t_d: the pool shrinks while a larger share of the requests is dropped, whatever it costs in throughput",
);
const DECREASE: ParamSpec = ParamSpec::new(
    "decrease",
    ParamKind::Choice(&["multiplicative", "additive"]),
    "multiplicative",
    "what an iteration without gain takes: beta of the pool (thesis), or as much as a gain adds (Hoover)",
);
const ITERATION: ParamSpec = ParamSpec::new(
    "iteration",
    ParamKind::Count { min: 2, max: 1_000 },
    "4",
    "end-to-end round trips per iteration; the first is not counted",
);
const MAX_POOL: ParamSpec = ParamSpec::new(
    "max_pool",
    ParamKind::Count { min: 1, max: 1_000_000_000 },
    "sessions x max_window",
    "the credit pool never grows beyond this",
);

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
        tuning_values: &["1%", "2%", "4%"],
        ..BETA
    },
    ParamSpec { default: "at_least_one", ..ADDITIVE },
    CREDITS,
    AQM,
    WAKING,
    DEMAND,
    ParamSpec {
        doc: "queueing delay for cores from which the defaults of AQM and clients follow",
        tuning_values: &[],
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

/// Parameters of the automatic signal, which uses the one of the two with evidence of overload.
pub const AUTO: &[ParamSpec] = &[
    EFFICIENCY_THRESHOLD,
    DROP_THRESHOLD,
    ParamSpec {
        kind: ParamKind::Choice(&["evidence", "multiplicative", "additive"]),
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
    ParamSpec { default: "40 % of the SLO, at most half of what the round trip leaves of it", ..TARGET },
    ParamSpec { default: "2 x target, at most nine tenths of what the round trip leaves of the SLO", ..AQM_THRESHOLD },
    ParamSpec {
        default: "aqm_threshold, or what the rest of a request's time leaves of the SLO, at least target",
        ..STALE
    },
    PERIOD,
    ParamSpec { default: "64; of few sessions more, 4,096 together", ..MAX_WINDOW },
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
