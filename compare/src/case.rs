//! Cases: the contenders of each comparison, and the bars that they must meet.

use crate::load::{Dialect, Load};
use crate::outcome::Measurement;
use crate::servers::ServerKind;

/// A comparison.
#[derive(Debug)]
pub(crate) struct Case {
    /// As on the command line.
    pub(crate) name: &'static str,
    /// Contenders that take turns.
    pub(crate) contenders: &'static [Contender],
    /// Bars to meet.
    pub(crate) bars: &'static [Bar],
    /// When it runs.
    pub(crate) when: When,
    /// Microseconds that its servers work for each request, unless the command line says otherwise, so that the server is
    /// what limits; 0: they only echo.
    pub(crate) work_us: u64,
}

/// When a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Also if no case is named.
    Always,
    /// Only if it is named: what it asks was answered once.
    Named,
}

/// A server and the load that it gets.
#[derive(Debug)]
pub(crate) struct Contender {
    /// For the tables.
    pub(crate) name: &'static str,
    /// Server to run.
    pub(crate) server: ServerKind,
    /// Load to give it.
    pub(crate) load: Load,
}

/// A ratio of one contender to the best of some others, and its bound.
#[derive(Debug)]
pub(crate) struct Bar {
    /// Quantity compared, for the table.
    pub(crate) what: &'static str,
    /// Ours, by its place in the case.
    pub(crate) ours: usize,
    /// Contenders of which the best counts, by their places.
    pub(crate) against: &'static [usize],
    /// The quantity.
    pub(crate) metric: Metric,
    /// The ratio's bound.
    pub(crate) bound: Bound,
}

/// Bound that a ratio must not exceed, or must reach.
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
    /// 99th percentile of latency.
    P99,
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
            Metric::P99 => measurement.p99_us.unwrap_or(f64::NAN),
        }
    }
}

/// Connections of all cases but the round trip.
pub(crate) const MANY: u32 = 1_000;
/// Connections over which tonic's clients may share theirs, as HTTP/2 allows: as many calls under way on fewer sockets.
const FEW: u32 = 8;

const fn closed(dialect: Dialect, connections: u32, outstanding: u32) -> Load {
    Load::Closed { dialect, connections, outstanding }
}

const fn contender(name: &'static str, server: ServerKind, load: Load) -> Contender {
    Contender { name, server, load }
}

const ROUND_TRIP: &[Bar] = &[Bar {
    what: "median round trip, to a bare busy-polling echo's",
    ours: 0,
    against: &[1],
    metric: Metric::P50,
    bound: Bound::AtMost(1.5),
}];

const THROUGHPUT: &[Bar] = &[Bar {
    what: "requests per second, to a bare epoll echo's",
    ours: 0,
    against: &[1],
    metric: Metric::Rate,
    bound: Bound::AtLeast(0.7),
}];

const fn tonic_bar(what: &'static str, ours: usize, against: &'static [usize]) -> Bar {
    Bar { what, ours, against, metric: Metric::Rate, bound: Bound::AtLeast(4.0) }
}

/// The contenders are those of [`against_tonic`].
const TONIC: &[Bar] = &[
    tonic_bar("requests per second, to tonic's on as many connections", 0, &[2]),
    tonic_bar("the same, the calls of both over 8 connections", 1, &[3]),
    tonic_bar("1,000 connections, to the better of tonic's", 0, &[2, 3]),
];

const fn against_tonic(outstanding: u32) -> [Contender; 4] {
    let (many, few) = ((MANY, outstanding), (FEW, outstanding * MANY / FEW));
    [
        contender("leeward, 1000 connections", ServerKind::Leeward, closed(Dialect::Leeward, many.0, many.1)),
        contender("leeward, 8 connections", ServerKind::Leeward, closed(Dialect::Leeward, few.0, few.1)),
        contender("tonic, 1000 connections", ServerKind::Tonic, closed(Dialect::Grpc, many.0, many.1)),
        contender("tonic, 8 connections", ServerKind::Tonic, closed(Dialect::Grpc, few.0, few.1)),
    ]
}

const ADMISSION: &[Bar] = &[
    Bar {
        what: "requests per second with Breakwater, to those without",
        ours: 0,
        against: &[1],
        metric: Metric::Rate,
        bound: Bound::AtLeast(0.98),
    },
    Bar {
        what: "99th percentile of latency with Breakwater, to that without",
        ours: 0,
        against: &[1],
        metric: Metric::P99,
        bound: Bound::AtMost(1.03),
    },
];

/// Price of metrics and of the ring of decisions. The contenders are those of [`watched`].
const WATCHED: &[Bar] = &[Bar {
    what: "requests per second while watched, to those unwatched",
    ours: 0,
    against: &[1],
    metric: Metric::Rate,
    bound: Bound::AtLeast(0.99),
}];

const fn watched(load: Load) -> [Contender; 2] {
    [contender("leeward, watched", ServerKind::LeewardWatched, load), contender("leeward", ServerKind::Leeward, load)]
}

/// Price of encryption, beside tonic's. The contenders are those of [`sealed`].
const TLS: &[Bar] = &[
    Bar {
        what: "requests per second within TLS, to tonic's",
        ours: 1,
        against: &[2],
        metric: Metric::Rate,
        bound: Bound::AtLeast(3.0),
    },
    Bar { what: "the same, to plain", ours: 1, against: &[0], metric: Metric::Rate, bound: Bound::AtLeast(0.3) },
];

const TLS_TRIP: &[Bar] = &[Bar {
    what: "median round trip within TLS, to tonic's",
    ours: 1,
    against: &[2],
    metric: Metric::P50,
    bound: Bound::AtMost(1.0),
}];

const TLS_SHAKES: &[Bar] = &[Bar {
    what: "full handshakes per second, to tonic's",
    ours: 0,
    against: &[1],
    metric: Metric::Rate,
    bound: Bound::AtLeast(1.0),
}];

const fn sealed(plain: Load, ours: Load, theirs: Load) -> [Contender; 3] {
    [
        contender("leeward, plain", ServerKind::Leeward, plain),
        contender("leeward, TLS", ServerKind::LeewardTls, ours),
        contender("tonic, TLS", ServerKind::TonicTls, theirs),
    ]
}

/// Gain of datagrams over streams, and their price over no protocol at all. The contenders are those of [`udp`].
const UDP: &[Bar] = &[
    Bar {
        what: "requests per second by datagrams, to those over TCP",
        ours: 0,
        against: &[1],
        metric: Metric::Rate,
        bound: Bound::AtLeast(2.0),
    },
    Bar {
        what: "the same, to a bare echo of datagrams",
        ours: 0,
        against: &[2],
        metric: Metric::Rate,
        bound: Bound::AtLeast(0.8),
    },
];

const UDP_TRIP: &[Bar] = &[Bar {
    what: "median round trip by datagrams, to that over TCP",
    ours: 0,
    against: &[1],
    metric: Metric::P50,
    bound: Bound::AtMost(1.0),
}];

/// Goodput that datagrams can give where requests work, and what Leeward makes of it.
const UDP_WORK: &[Bar] = &[
    Bar {
        what: "requests per second by datagrams, to those over TCP",
        ours: 0,
        against: &[1],
        metric: Metric::Rate,
        bound: Bound::AtLeast(1.4),
    },
    Bar {
        what: "a bare server's of datagrams, to those over TCP",
        ours: 2,
        against: &[1],
        metric: Metric::Rate,
        bound: Bound::AtLeast(1.4),
    },
    Bar {
        what: "requests per second by datagrams, to a bare server's",
        ours: 0,
        against: &[2],
        metric: Metric::Rate,
        bound: Bound::AtLeast(0.8),
    },
];

const fn udp(far: Load, near: Load, bare: Load) -> [Contender; 3] {
    [
        contender("leeward, datagrams", ServerKind::LeewardUdp, far),
        contender("leeward, TCP", ServerKind::Leeward, near),
        contender("mmsg echo", ServerKind::Mmsg, bare),
    ]
}

/// A thousand clients with a request under way each.
const UDP_CLOSED: &[Contender] =
    &udp(closed(Dialect::LeewardUdp, MANY, 1), closed(Dialect::Leeward, MANY, 1), closed(Dialect::BareUdp, MANY, 1));

const fn udp_case(name: &'static str, contenders: &'static [Contender], bars: &'static [Bar]) -> Case {
    Case { name, contenders, bars, when: When::Always, work_us: 0 }
}

/// All of them, in the order in which they run.
pub(crate) const CASES: &[Case] = &[
    Case {
        name: "round-trip",
        contenders: &[
            contender("leeward", ServerKind::Leeward, Load::RoundTrip(Dialect::Leeward)),
            contender("busy echo", ServerKind::Busy, Load::RoundTrip(Dialect::Bare)),
        ],
        bars: ROUND_TRIP,
        when: When::Always,
        work_us: 0,
    },
    Case {
        name: "echo-1",
        contenders: &[
            contender("leeward", ServerKind::Leeward, closed(Dialect::Leeward, MANY, 1)),
            contender("epoll echo", ServerKind::Epoll, closed(Dialect::Bare, MANY, 1)),
        ],
        bars: THROUGHPUT,
        when: When::Always,
        work_us: 0,
    },
    Case {
        name: "echo-8",
        contenders: &[
            contender("leeward", ServerKind::Leeward, closed(Dialect::Leeward, MANY, 8)),
            contender("epoll echo", ServerKind::Epoll, closed(Dialect::Bare, MANY, 8)),
        ],
        bars: THROUGHPUT,
        when: When::Always,
        work_us: 0,
    },
    Case { name: "tonic-1", contenders: &against_tonic(1), bars: TONIC, when: When::Always, work_us: 0 },
    Case { name: "tonic-8", contenders: &against_tonic(8), bars: TONIC, when: When::Always, work_us: 0 },
    Case {
        name: "admission",
        contenders: &[
            contender("breakwater", ServerKind::Breakwater, Load::Half("breakwater")),
            contender("no control", ServerKind::NoControl, Load::Half("none")),
        ],
        bars: ADMISSION,
        when: When::Always,
        work_us: 0,
    },
    Case {
        name: "watched-1",
        contenders: &watched(closed(Dialect::Leeward, MANY, 1)),
        bars: WATCHED,
        when: When::Always,
        work_us: 0,
    },
    Case {
        name: "watched-8",
        contenders: &watched(closed(Dialect::Leeward, MANY, 8)),
        bars: WATCHED,
        when: When::Always,
        work_us: 0,
    },
    udp_case("udp-1", UDP_CLOSED, UDP),
    udp_case(
        "udp-trip",
        &udp(
            Load::RoundTrip(Dialect::LeewardUdp),
            Load::RoundTrip(Dialect::Leeward),
            Load::RoundTrip(Dialect::BareUdp),
        ),
        UDP_TRIP,
    ),
    Case { name: "udp-work", contenders: UDP_CLOSED, bars: UDP_WORK, when: When::Named, work_us: 10 },
    Case {
        name: "tls-1",
        contenders: &sealed(
            closed(Dialect::Leeward, MANY, 1),
            closed(Dialect::LeewardTls, MANY, 1),
            closed(Dialect::GrpcTls, MANY, 1),
        ),
        bars: TLS,
        when: When::Always,
        work_us: 0,
    },
    Case {
        name: "tls-8",
        contenders: &sealed(
            closed(Dialect::Leeward, MANY, 8),
            closed(Dialect::LeewardTls, MANY, 8),
            closed(Dialect::GrpcTls, MANY, 8),
        ),
        bars: TLS,
        when: When::Always,
        work_us: 0,
    },
    Case {
        name: "tls-trip",
        contenders: &sealed(
            Load::RoundTrip(Dialect::Leeward),
            Load::RoundTrip(Dialect::LeewardTls),
            Load::RoundTrip(Dialect::GrpcTls),
        ),
        bars: TLS_TRIP,
        when: When::Always,
        work_us: 0,
    },
    Case {
        name: "tls-shakes",
        contenders: &[
            contender("leeward, TLS", ServerKind::LeewardTls, Load::Handshakes(Dialect::LeewardTls)),
            contender("tonic, TLS", ServerKind::TonicTls, Load::Handshakes(Dialect::GrpcTls)),
        ],
        bars: TLS_SHAKES,
        when: When::Always,
        work_us: 0,
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
    fn every_bar_is_about_contenders_that_are_there() {
        for case in CASES {
            assert!(!case.bars.is_empty(), "{}", case.name);
            for bar in case.bars {
                assert!(
                    bar.ours < case.contenders.len() && !bar.against.is_empty() && !bar.against.contains(&bar.ours)
                );
                assert!(bar.against.iter().all(|place| *place < case.contenders.len()), "{}", bar.what);
            }
        }
    }
}
