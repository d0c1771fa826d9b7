//! Cases: the contenders of each comparison, and the bounds that their ratios must meet.

use crate::load::{Dialect, Load};
use crate::outcome::Measurement;
use crate::servers::ServerKind;

/// A comparison.
#[derive(Debug)]
pub(crate) struct Case {
    /// Name on the command line.
    pub(crate) name: &'static str,
    /// Contenders, measured in alternation.
    pub(crate) contenders: &'static [Contender],
    /// Bounds to check.
    pub(crate) bars: &'static [Bar],
    /// Whether the case runs without being named.
    pub(crate) selection: Selection,
    /// Service time per request in microseconds, so that the server is the limit; 0 means echo
    /// only. The command line can override it.
    pub(crate) work_us: u64,
}

/// Condition under which a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// Runs also if the command line names no case.
    Always,
    /// Runs only if named, because its question was answered once.
    Named,
}

/// A server and its load.
#[derive(Debug)]
pub(crate) struct Contender {
    /// Name in the tables.
    pub(crate) name: &'static str,
    pub(crate) server: ServerKind,
    pub(crate) load: Load,
}

/// The ratio of one contender to the best of some others, and its bound.
#[derive(Debug)]
pub(crate) struct Bar {
    /// Description of the quantity, for the table.
    pub(crate) what: &'static str,
    /// Index of our contender in the case.
    pub(crate) ours: usize,
    /// Indices of the contenders to compare with; the best one counts.
    pub(crate) against: &'static [usize],
    pub(crate) metric: Metric,
    pub(crate) bound: Bound,
}

/// Upper or lower bound of a ratio.
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
    /// Returns true if `ratio` is within the bound.
    pub(crate) fn holds(self, ratio: f64) -> bool {
        match self {
            Bound::AtMost(limit) => ratio <= limit,
            Bound::AtLeast(limit) => ratio >= limit,
        }
    }

    /// Returns the reference that is harder to match.
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
    /// Value of this quantity in `measurement`; NaN if it was not measured.
    pub(crate) fn of(self, measurement: &Measurement) -> f64 {
        match self {
            Metric::Rate => measurement.rate_per_s,
            Metric::P50 => measurement.p50_us.unwrap_or(f64::NAN),
            Metric::P99 => measurement.p99_us.unwrap_or(f64::NAN),
        }
    }
}

/// Connections of all cases except the round trip.
pub(crate) const MANY: u32 = 1_000;
/// Connections for calls that share connections, as HTTP/2 allows.
///
/// As many calls are in flight as in the other cases, on fewer sockets.
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

/// Bounds for the contenders of [`against_tonic`].
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

/// Cost of metrics and of the ring of decisions, for the contenders of [`watched`].
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

/// Cost of encryption, compared with tonic's, for the contenders of [`sealed`].
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

/// Gain of datagrams over streams, and their cost over no protocol, for the contenders of [`udp`].
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

/// Goodput of datagrams when requests take service time, for a bare server and for Leeward.
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

/// 1,000 clients, each with one request in flight.
const UDP_CLOSED: &[Contender] =
    &udp(closed(Dialect::LeewardUdp, MANY, 1), closed(Dialect::Leeward, MANY, 1), closed(Dialect::BareUdp, MANY, 1));

const fn udp_case(name: &'static str, contenders: &'static [Contender], bars: &'static [Bar]) -> Case {
    Case { name, contenders, bars, selection: Selection::Always, work_us: 0 }
}

/// All cases, in the order in which they run.
pub(crate) const CASES: &[Case] = &[
    Case {
        name: "round-trip",
        contenders: &[
            contender("leeward", ServerKind::Leeward, Load::RoundTrip(Dialect::Leeward)),
            contender("busy echo", ServerKind::Busy, Load::RoundTrip(Dialect::Bare)),
        ],
        bars: ROUND_TRIP,
        selection: Selection::Always,
        work_us: 0,
    },
    Case {
        name: "echo-1",
        contenders: &[
            contender("leeward", ServerKind::Leeward, closed(Dialect::Leeward, MANY, 1)),
            contender("epoll echo", ServerKind::Epoll, closed(Dialect::Bare, MANY, 1)),
        ],
        bars: THROUGHPUT,
        selection: Selection::Always,
        work_us: 0,
    },
    Case {
        name: "echo-8",
        contenders: &[
            contender("leeward", ServerKind::Leeward, closed(Dialect::Leeward, MANY, 8)),
            contender("epoll echo", ServerKind::Epoll, closed(Dialect::Bare, MANY, 8)),
        ],
        bars: THROUGHPUT,
        selection: Selection::Always,
        work_us: 0,
    },
    Case { name: "tonic-1", contenders: &against_tonic(1), bars: TONIC, selection: Selection::Always, work_us: 0 },
    Case { name: "tonic-8", contenders: &against_tonic(8), bars: TONIC, selection: Selection::Always, work_us: 0 },
    Case {
        name: "admission",
        contenders: &[
            contender("breakwater", ServerKind::Breakwater, Load::Half("breakwater")),
            contender("no control", ServerKind::NoControl, Load::Half("none")),
        ],
        bars: ADMISSION,
        selection: Selection::Always,
        work_us: 0,
    },
    Case {
        name: "watched-1",
        contenders: &watched(closed(Dialect::Leeward, MANY, 1)),
        bars: WATCHED,
        selection: Selection::Always,
        work_us: 0,
    },
    Case {
        name: "watched-8",
        contenders: &watched(closed(Dialect::Leeward, MANY, 8)),
        bars: WATCHED,
        selection: Selection::Always,
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
    Case { name: "udp-work", contenders: UDP_CLOSED, bars: UDP_WORK, selection: Selection::Named, work_us: 10 },
    Case {
        name: "tls-1",
        contenders: &sealed(
            closed(Dialect::Leeward, MANY, 1),
            closed(Dialect::LeewardTls, MANY, 1),
            closed(Dialect::GrpcTls, MANY, 1),
        ),
        bars: TLS,
        selection: Selection::Always,
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
        selection: Selection::Always,
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
        selection: Selection::Always,
        work_us: 0,
    },
    Case {
        name: "tls-shakes",
        contenders: &[
            contender("leeward, TLS", ServerKind::LeewardTls, Load::Handshakes(Dialect::LeewardTls)),
            contender("tonic, TLS", ServerKind::TonicTls, Load::Handshakes(Dialect::GrpcTls)),
        ],
        bars: TLS_SHAKES,
        selection: Selection::Always,
        work_us: 0,
    },
];

/// Returns the case with this name.
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
    fn a_bound_is_one_sided() {
        assert!(Bound::AtMost(1.5).holds(1.5) && !Bound::AtMost(1.5).holds(1.51));
        assert!(Bound::AtLeast(0.7).holds(0.7) && !Bound::AtLeast(0.7).holds(0.69));
        assert!(!Bound::AtMost(1.5).holds(f64::NAN) && !Bound::AtLeast(0.7).holds(f64::NAN));
    }

    #[test]
    fn a_bound_uses_the_harder_reference() {
        assert_eq!(Bound::AtLeast(4.0).harder(10.0, 20.0), 20.0);
        assert_eq!(Bound::AtMost(1.5).harder(10.0, 20.0), 10.0);
    }

    #[test]
    fn every_bar_refers_to_existing_contenders() {
        for case in CASES {
            assert!(!case.bars.is_empty(), "{}", case.name);
            for bar in case.bars {
                assert!(
                    bar.ours < case.contenders.len() && !bar.against.is_empty() && !bar.against.contains(&bar.ours)
                );
                assert!(bar.against.iter().all(|index| *index < case.contenders.len()), "{}", bar.what);
            }
        }
    }
}
