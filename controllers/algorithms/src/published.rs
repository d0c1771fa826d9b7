//! `as_published`: one switch per controller that turns off Leeward's additions, so that a paper's
//! number can be compared with the paper's algorithm. This file lists the additions; the
//! controllers implement them.
//!
//! A controller that this project's papers did not publish has no such switch, and [`additions`]
//! returns `None` for it.

use leeward_core::params::{ParamKind, ParamSpec, Params};
use leeward_core::units::Nanos;

/// Name of the switch.
pub const SWITCH: &str = "as_published";

/// The switch.
pub(super) const AS_PUBLISHED: ParamSpec = ParamSpec {
    name: SWITCH,
    kind: ParamKind::SWITCH,
    default: "off",
    doc: "turns off every addition of ours (docs/as-published.md lists them), for figures that are redrawn",
    tuning_values: &[],
};

/// Version of a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// With Leeward's additions.
    #[default]
    Extended,
    /// As published by its authors.
    Published,
}

impl Version {
    pub(super) fn read(params: &Params) -> Version {
        if params.choice(SWITCH, "off") == "on" { Version::Published } else { Version::Extended }
    }

    /// Whether Leeward's additions are off.
    pub fn is_published(self) -> bool {
        self == Version::Published
    }

    /// A measured time as this version sees it: the published code reads a clock of microseconds.
    pub(super) fn measured(self, time: Nanos) -> Nanos {
        if self.is_published() { Nanos::from_micros(time.0 / 1_000) } else { time }
    }
}

/// An addition of Leeward, and the publication's behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addition {
    /// Name in the documentation.
    pub name: &'static str,
    /// Behaviour with `as_published = true`.
    pub published: &'static str,
}

const fn addition(name: &'static str, published: &'static str) -> Addition {
    Addition { name, published }
}

const CREDITS: &[Addition] = &[
    addition("stale", "a request that was admitted is executed, however long it has waited"),
    addition("untried sessions", "a session that never had a credit is trusted under overload, too"),
    addition("double precision", "the pool shrinks in single precision, as in the published code"),
    addition("silent sessions", "no credit goes to a session before its first message"),
    addition(
        "demand of a drained session",
        "a demand message of a session on the waking list gives it nothing at once",
    ),
    addition("unused growth", "an unused pool does not grow faster than the law"),
    addition("backlog allowance", "AQM does not wait for cores that can still be granted"),
    addition(
        "minimum pool",
        "with an allocator 25 credits per 5 us of round trip, at least the cores (the poster's code)",
    ),
    addition(
        "last-credit rotation",
        "a session keeps its last credit for as long as it asks, however long others have had none",
    ),
    addition("client delay", "a request expires after 10 us at the client (the testbed's setting)"),
    addition("calm", "AQM rejects whoever finds its threshold exceeded, also on a server that is all but idle"),
    addition("nanoseconds", "measured times are whole microseconds"),
];

const EFFICIENCY: &[Addition] = &[
    CREDITS[0],
    CREDITS[1],
    CREDITS[2],
    CREDITS[3],
    CREDITS[4],
    CREDITS[5],
    CREDITS[6],
    CREDITS[7],
    CREDITS[8],
    addition("rates", "iterations are compared by counts"),
    addition("growth without change", "an iteration equal to the last shrinks the pool"),
    addition("lulls", "an iteration of next to nothing is judged as any other"),
    addition("fractions of a credit", "the pool is a whole number after each step"),
    addition("last credit", "a session keeps its last credit while more are out than the pool has"),
    addition("asking again", "a request that waits for a lock is not asked again when its turn comes (`acquire`)"),
];

const DAGOR: &[Addition] = &[
    addition("probe", "a client above its threshold stays silent until it has something more important to send"),
    addition("update without requests", "the threshold stays where it is while nothing arrives"),
    addition("exact smoothing", "delays are whole microseconds, and so is the smoothed delay after each sample"),
    addition("first threshold", "a client begins with a random threshold"),
    addition("numbering", "priorities are numbered from 0, so that the least threshold admits two of 128"),
];

const SEDA: &[Addition] = &[
    addition("timer", "an interval ends with a response, never between two"),
    addition(
        "percentile",
        "a full interval counts its slowest response, one that time ends rank (n - 1) times the percentile, rounded \
         down, and one that both end its first",
    ),
    addition("start", "4 requests per second at first, and no tokens before the first use"),
    addition("nanoseconds", "measured times are whole microseconds"),
];

const CODEL: &[Addition] =
    &[addition("interval", "everything is dropped while the delay is at the target or above (the testbed's code)")];

/// Returns the additions that `as_published` turns off in a controller; `None` if no paper of this
/// project published it.
pub fn additions(controller: &str) -> Option<&'static [Addition]> {
    match controller {
        "breakwater" => Some(CREDITS),
        "efficiency" => Some(EFFICIENCY),
        "dagor" => Some(DAGOR),
        "seda" => Some(SEDA),
        "codel" => Some(CODEL),
        _ => None,
    }
}
