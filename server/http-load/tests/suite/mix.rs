//! Classes, tenants, targets and budgets as a server sees them, and the schedule's determinism.

use leeward_core::units::Nanos;
use leeward_http_load::{HttpLoadConfig, Share, Target};

use crate::support::{Reply, Server, Speaks, Tally, config, open, run};

fn shares(shares: &[(&str, f64)]) -> Vec<Share> {
    shares.iter().map(|(name, weight)| Share { name: (*name).into(), weight: *weight }).collect()
}

#[test]
fn the_same_seed_sends_the_same_mix() {
    let send = || {
        let tally = Tally::default();
        let seen = tally.clone();
        let server = Server::start(Speaks::Http1, move |head, _| {
            let header = |name: &str| head.headers[name].to_str().unwrap().to_string();
            seen.add(&format!("{} {} {}", head.uri, header("leeward"), header("x-tenant")));
            Reply::status(200)
        });
        let target = |path: &str| Target::parse(&format!("http://{}{path}", server.address)).unwrap();
        let config = HttpLoadConfig {
            targets: vec![Target { weight: 3.0, ..target("/a") }, target("/b")],
            classes: shares(&[("critical", 1.0), ("batch", 3.0)]),
            tenants: shares(&[("t1", 1.0), ("t2", 1.0)]),
            ..config(server.address)
        };
        let report = run(&config, &open(2_000.0, 10));
        assert_eq!(report.totals.completed, report.planned);
        (tally.get(), report)
    };
    let (first, report) = send();
    assert_eq!(first, send().0);
    let share = |part: &str| {
        let count: u64 = first.iter().filter(|(name, _)| name.contains(part)).map(|(_, count)| count).sum();
        count as f64 / report.planned as f64
    };
    for (part, expected) in [("/a ", 0.75), ("t1", 0.5)] {
        assert!((share(part) - expected).abs() < 0.1, "{part}: {}", share(part));
    }
    let [critical, batch] = &report.classes[..] else { panic!("two classes") };
    assert_eq!((critical.name.as_str(), batch.name.as_str()), ("critical", "batch"));
    let ratio = critical.totals.completed as f64 / report.planned as f64;
    assert!((ratio - 0.25).abs() < 0.1, "{ratio}");
}

#[test]
fn the_results_of_classes_are_told_apart() {
    let server = Server::start(Speaks::Http1, |head, _| {
        let priority = head.headers["leeward"].to_str().unwrap().trim_start_matches("p=").parse::<u8>().unwrap();
        // Class 7 has the priorities 113 to 128.
        if priority > 112 { Reply::status(503) } else { Reply::status(200) }
    });
    let classes = shares(&[("normal", 1.0), ("sheddable", 1.0)]);
    let report = run(&HttpLoadConfig { classes, ..config(server.address) }, &open(1_000.0, 10));
    let [normal, sheddable] = &report.classes[..] else { panic!("two classes") };
    assert_eq!(normal.totals.completed, normal.totals.offered);
    assert_eq!(sheddable.totals.dropped, sheddable.totals.offered);
    assert!(normal.goodput_per_s > 0.0 && sheddable.goodput_per_s == 0.0);
    assert!(normal.latency.p50 > Nanos::ZERO && sheddable.latency.p50 == Nanos::ZERO);
}

#[test]
fn the_budget_that_is_left_is_sent_along() {
    let tally = Tally::default();
    let seen = tally.clone();
    let server = Server::start(Speaks::Http1, move |head, _| {
        let value = head.headers["leeward"].to_str().unwrap();
        let rest: u64 = value.strip_prefix("b=").unwrap().parse().unwrap();
        seen.add(if (1..=10_000_000).contains(&rest) { "within" } else { "outside" });
        Reply::status(200)
    });
    let budget = Some(Nanos::from_secs(10));
    let report = run(&HttpLoadConfig { budget, ..config(server.address) }, &open(1_000.0, 10));
    assert_eq!(tally.get(), [("within".to_string(), report.planned)].into());
}

#[test]
fn several_endpoints_share_the_connections() {
    let tally = Tally::default();
    let server = |name: &'static str| {
        let seen = tally.clone();
        Server::start(Speaks::Http1, move |_, _| {
            seen.add(name);
            Reply::status(200)
        })
    };
    let (a, b) = (server("a"), server("b"));
    let target =
        |server: &Server, weight| Target { weight, ..Target::parse(&format!("http://{}/", server.address)).unwrap() };
    let config = HttpLoadConfig { targets: vec![target(&a, 4.0), target(&b, 1.0)], ..config(a.address) };
    let report = run(&config, &open(1_000.0, 10));
    let counts = tally.get();
    assert_eq!((report.totals.completed, report.connections.opened), (report.planned, 10));
    assert!(counts["a"] > 2 * counts["b"] && counts["b"] > 0, "{counts:?}");
}
