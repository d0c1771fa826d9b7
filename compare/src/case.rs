//! What is compared with what, and what is asked of it.

use crate::load::{Dialect, Load};
use crate::measure::Measurement;
use crate::servers::ServerKind;

/// One comparison: the first contender is measured against the best of the others.
#[derive(Debug)]
pub(crate) struct Case {
    /// As on the command line.
    pub(crate) name: &'static str,
    /// Who takes turns.
    pub(crate) contenders: &'static [Contender],
    /// What is asked.
    pub(crate) bars: &'static [Bar],
}

/// One server and the load that it gets.
#[derive(Debug)]
pub(crate) struct Contender {
    /// For the tables.
    pub(crate) name: &'static str,
    /// What runs.
    pub(crate) server: ServerKind,
    /// What it gets.
    pub(crate) load: Load,
}

/// A ratio of the first contender to the best of the others, and its bound.
#[derive(Debug)]
pub(crate) struct Bar {
    /// What is compared, for the table.
    pub(crate) what: &'static str,
    /// The quantity.
    pub(crate) metric: Metric,
    /// The ratio's bound.
    pub(crate) bound: Bound,
}

/// What a ratio must not exceed, or reach.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// Smaller is better.
    AtMost(f64),
    /// Larger is better.
    AtLeast(f64),
}

/// A quantity that is compared.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Metric {
    /// Answers per second.
    Rate,
    /// Median latency.
    P50,
}

impl Bound {
    /// Whether `ratio` is good enough.
    pub(crate) fn holds(self, ratio: f64) -> bool {
        match self {
            Bound::AtMost(limit) => ratio <= limit,
            Bound::AtLeast(limit) => ratio >= limit,
        }
    }

    /// The better of two references: the one that is harder to match.
    pub(crate) fn harder(self, a: f64, b: f64) -> f64 {
        match self {
            Bound::AtMost(_) => a.min(b),
            Bound::AtLeast(_) => a.max(b),
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bound::AtMost(limit) => write!(f, "<= {limit:.2} x"),
            Bound::AtLeast(limit) => write!(f, ">= {limit:.2} x"),
        }
    }
}

impl Metric {
    /// Its value in a measurement; NaN where that has none.
    pub(crate) fn of(self, measurement: &Measurement) -> f64 {
        match self {
            Metric::Rate => measurement.rate_per_s,
            Metric::P50 => measurement.p50_us.unwrap_or(f64::NAN),
        }
    }
}

/// Connections of the throughput cases.
const MANY: u32 = 1_000;

const fn closed(dialect: Dialect, connections: u32, outstanding: u32) -> Load {
    Load::Closed { dialect, connections, outstanding }
}

const fn contender(name: &'static str, server: ServerKind, load: Load) -> Contender {
    Contender { name, server, load }
}

const THROUGHPUT: &[Bar] =
    &[Bar { what: "requests per second against a bare epoll echo", metric: Metric::Rate, bound: Bound::AtLeast(0.7) }];

/// All of them, in the order in which they run.
pub(crate) const CASES: &[Case] = &[
    Case {
        name: "round-trip",
        contenders: &[
            contender("leeward", ServerKind::Leeward, Load::RoundTrip(Dialect::Leeward)),
            contender("busy echo", ServerKind::Busy, Load::RoundTrip(Dialect::Bare)),
        ],
        bars: &[Bar {
            what: "median round trip against a bare busy-polling echo",
            metric: Metric::P50,
            bound: Bound::AtMost(1.5),
        }],
    },
    Case {
        name: "echo-1",
        contenders: &[
            contender("leeward", ServerKind::Leeward, closed(Dialect::Leeward, MANY, 1)),
            contender("epoll echo", ServerKind::Epoll, closed(Dialect::Bare, MANY, 1)),
        ],
        bars: THROUGHPUT,
    },
    Case {
        name: "echo-8",
        contenders: &[
            contender("leeward", ServerKind::Leeward, closed(Dialect::Leeward, MANY, 8)),
            contender("epoll echo", ServerKind::Epoll, closed(Dialect::Bare, MANY, 8)),
        ],
        bars: THROUGHPUT,
    },
];

/// The case called `name`.
pub(crate) fn named(name: &str) -> Result<&'static Case, String> {
    CASES.iter().find(|case| case.name == name).ok_or_else(|| {
        let names: Vec<_> = CASES.iter().map(|case| case.name).collect();
        format!("accepted: {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_on_one_side() {
        assert!(Bound::AtMost(1.5).holds(1.5) && !Bound::AtMost(1.5).holds(1.51));
        assert!(Bound::AtLeast(0.7).holds(0.7) && !Bound::AtLeast(0.7).holds(0.69));
        assert!(!Bound::AtMost(1.5).holds(f64::NAN) && !Bound::AtLeast(0.7).holds(f64::NAN));
    }

    #[test]
    fn the_better_reference_counts() {
        assert_eq!(Bound::AtLeast(4.0).harder(10.0, 20.0), 20.0);
        assert_eq!(Bound::AtMost(1.5).harder(10.0, 20.0), 10.0);
    }

    #[test]
    fn every_case_has_a_reference_and_a_bar() {
        assert!(CASES.iter().all(|case| case.contenders.len() >= 2 && !case.bars.is_empty()));
    }
}
