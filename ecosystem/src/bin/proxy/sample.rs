//! What a row is: a service, its mode, and a demand. Draws the sample of rows that is measured.

use std::time::Duration;

/// Services, one per kind of server that people run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Service {
    /// Go's `net/http`.
    Go,
    /// An ASGI application under uvicorn.
    Uvicorn,
    /// A WSGI application under gunicorn's sync workers.
    Gunicorn,
    /// `node:http`.
    Node,
    /// The JDK's `HttpServer`.
    Java,
    /// axum without the layer.
    Axum,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// 1 ms of CPU.
    Cpu,
    /// Exponentially distributed, 1 ms of CPU in the mean.
    Exp,
    /// 0.2 ms of CPU; every tenth, 8 ms.
    Bimodal,
    /// Awaits 20 ms, then takes 1 ms of CPU.
    Wait,
    /// Half of the requests hold one lock for 2 ms, the others take 0.1 ms of CPU.
    Lock,
    /// 1 ms of CPU; three times as much for some seconds.
    Slow,
    /// 1 ms of CPU; the whole service stops for 100 ms of each second.
    Pauses,
    /// Four routes of 0.1, 0.5, 2 and 10 ms of CPU.
    Routes,
    /// One of 8 places for 8 ms, then 0.2 ms of CPU.
    Pool,
    /// 1 ms of CPU; one request of a hundred takes a second.
    Rare,
}

/// A row: its demand is a multiple of the service's capacity at the moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) service: Service,
    pub(crate) mode: Mode,
    pub(crate) demand: f64,
    pub(crate) protocol: Protocol,
}

/// What clients speak with the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protocol {
    /// HTTP/1.1, as the proxy does with the service.
    Http1,
    /// HTTP/2; HTTP/1.1 to the service.
    Http2,
    /// gRPC over HTTP/2 on both sides.
    Grpc,
}

pub(crate) const DEMANDS: [f64; 5] = [0.5, 0.9, 1.2, 2.0, 5.0];

/// Rows of a full measurement.
pub(crate) const ROWS: usize = 24;

impl Service {
    pub(crate) const ALL: [Service; 6] =
        [Service::Go, Service::Uvicorn, Service::Gunicorn, Service::Node, Service::Java, Service::Axum];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Service::Go => "go",
            Service::Uvicorn => "uvicorn",
            Service::Gunicorn => "gunicorn",
            Service::Node => "node",
            Service::Java => "java",
            Service::Axum => "axum",
        }
    }

    /// Whether the service has the mode. Workers that are processes share no lock and no pool, and
    /// a sleeper occupies one of the few.
    fn has(self, mode: Mode) -> bool {
        self != Service::Gunicorn || !matches!(mode, Mode::Lock | Mode::Pool | Mode::Slow | Mode::Rare)
    }
}

impl Mode {
    pub(crate) const ALL: [Mode; 10] = [
        Mode::Cpu,
        Mode::Exp,
        Mode::Bimodal,
        Mode::Wait,
        Mode::Lock,
        Mode::Slow,
        Mode::Pauses,
        Mode::Routes,
        Mode::Pool,
        Mode::Rare,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Cpu => "cpu",
            Mode::Exp => "exp",
            Mode::Bimodal => "bimodal",
            Mode::Wait => "wait",
            Mode::Lock => "lock",
            Mode::Slow => "slow",
            Mode::Pauses => "pauses",
            Mode::Routes => "routes",
            Mode::Pool => "pool",
            Mode::Rare => "rare",
        }
    }

    /// Requests awaited for 20 ms get more time.
    pub(crate) fn objective(self) -> Duration {
        Duration::from_millis(match self {
            Mode::Wait => 100,
            // A stop of 100 ms would make every objective below it unreachable for a tenth.
            Mode::Pauses => 200,
            _ => 50,
        })
    }

    /// Percentile of admitted requests that has to be within the objective.
    pub(crate) fn percentile(self) -> f64 {
        if self == Mode::Rare { 0.98 } else { 0.99 }
    }

    /// Least goodput over Envoy's at this demand, if one is asked.
    pub(crate) fn over_envoy(self, demand: f64) -> Option<f64> {
        match self {
            Mode::Cpu | Mode::Lock if demand > 1.0 => Some(0.98),
            // Around the capacity Envoy loses less than where it has been measured.
            Mode::Bimodal if demand >= 2.0 => Some(1.15),
            Mode::Wait if demand >= 2.0 => Some(1.3),
            _ => None,
        }
    }
}

impl Row {
    /// A row of HTTP/1.1.
    pub(crate) fn new(service: Service, mode: Mode, demand: f64) -> Self {
        Row { service, mode, demand, protocol: Protocol::Http1 }
    }

    /// `go/cpu/2x`.
    pub(crate) fn name(&self) -> String {
        let protocol = match self.protocol {
            Protocol::Http1 => "",
            Protocol::Http2 => "/http2",
            Protocol::Grpc => "/grpc",
        };
        format!("{}/{}/{}x{protocol}", self.service.name(), self.mode.name(), self.demand)
    }

    /// The row of a name.
    pub(crate) fn named(name: &str) -> Option<Row> {
        every().chain(others()).find(|row| row.name() == name)
    }
}

/// Rows of other protocols.
pub(crate) fn others() -> impl Iterator<Item = Row> {
    let of = |service, protocol| {
        [Mode::Cpu, Mode::Wait].map(|mode| Row { protocol, ..Row::new(service, mode, 2.0) }).into_iter()
    };
    of(Service::Go, Protocol::Http2).chain(of(Service::Axum, Protocol::Grpc))
}

/// All rows of HTTP/1.1.
fn every() -> impl Iterator<Item = Row> {
    let services = Service::ALL.into_iter();
    let modes = services.flat_map(|service| Mode::ALL.into_iter().map(move |mode| (service, mode)));
    modes
        .filter(|(service, mode)| service.has(*mode))
        .flat_map(|(service, mode)| DEMANDS.into_iter().map(move |demand| Row::new(service, mode, demand)))
}

/// The sample: first the rows that `docs` give numbers of, then one after the other a row whose
/// mode, service and demand are together the rarest so far, at random among equals.
pub(crate) fn sample(seed: u64) -> Vec<Row> {
    let first = [Mode::Cpu, Mode::Bimodal, Mode::Wait, Mode::Lock];
    let mut rows: Vec<Row> = first.map(|mode| Row::new(Service::Go, mode, 2.0)).to_vec();
    let mut random = seed | 1;
    while rows.len() < ROWS {
        let rarity = |row: &Row| {
            let count = |same: fn(&Row, &Row) -> bool| rows.iter().filter(|other| same(row, other)).count();
            // Modes weigh most: each has at least two rows.
            2 * count(|a, b| a.mode == b.mode)
                + count(|a, b| a.service == b.service)
                + count(|a, b| a.demand == b.demand)
        };
        let open: Vec<Row> = every().filter(|row| !rows.contains(row)).collect();
        let least = open.iter().map(rarity).min().unwrap_or(0);
        let rarest: Vec<&Row> = open.iter().filter(|row| rarity(row) == least).collect();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        rows.push(*rarest[(random >> 33) as usize % rarest.len()]);
    }
    rows
}

/// A few rows of the sample, for a quick run.
pub(crate) fn quick(seed: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    for row in sample(seed) {
        let is_new = |same: fn(&Row, &Row) -> bool| !rows.iter().any(|other| same(&row, other));
        let covers = is_new(|a, b| a.service == b.service) || is_new(|a, b| a.demand == b.demand);
        if rows.len() < 3 || covers {
            rows.push(row);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_covers_all_modes_services_and_demands() {
        for seed in 0..50 {
            let rows = sample(seed);
            assert_eq!(rows.len(), ROWS);
            for mode in Mode::ALL {
                assert!(rows.iter().filter(|row| row.mode == mode).count() >= 2, "{seed} {mode:?}");
            }
            for service in Service::ALL {
                assert!(rows.iter().filter(|row| row.service == service).count() >= 3, "{seed} {service:?}");
            }
            for demand in DEMANDS {
                assert!(rows.iter().filter(|row| row.demand == demand).count() >= 3, "{seed} {demand}");
            }
            for (index, row) in rows.iter().enumerate() {
                assert!(!rows[..index].contains(row), "{seed} {row:?} twice");
            }
        }
    }

    #[test]
    fn a_seed_always_draws_the_same_rows() {
        assert_eq!(sample(1), sample(1));
        assert_ne!(sample(1), sample(2));
    }

    #[test]
    fn a_quick_run_covers_all_services_and_demands_with_rows_of_the_sample() {
        let (few, all) = (quick(1), sample(1));
        assert!(few.len() <= 10 && few.iter().all(|row| all.contains(row)), "{few:?}");
        assert!(Service::ALL.iter().all(|service| few.iter().any(|row| row.service == *service)));
        assert!(DEMANDS.iter().all(|demand| few.iter().any(|row| row.demand == *demand)));
    }

    #[test]
    fn a_row_is_found_by_its_name() {
        for row in every() {
            assert_eq!(Row::named(&row.name()), Some(row));
        }
        assert_eq!(Row::named("gunicorn/lock/2x"), None, "processes share no lock");
    }
}
