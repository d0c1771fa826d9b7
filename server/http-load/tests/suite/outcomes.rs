//! Refusals and failures by their statuses.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use crate::support::{Reply, Server, Speaks, config, open, run};

#[test]
fn refusals_are_dropped_and_other_statuses_failed() {
    let turn = AtomicUsize::new(0);
    let server = Server::start(Speaks::Http1, move |_, _| match turn.fetch_add(1, SeqCst) % 7 {
        0 => Reply::status(200),
        1 => Reply::status(302).header("location", "/elsewhere"),
        2 => Reply::status(429),
        3 => Reply::status(503),
        4 => Reply::status(503).header("leeward-reason", "deadline"),
        5 => Reply::status(404),
        _ => Reply::status(500),
    });
    let report = run(&config(server.address), &open(2_000.0, 10));
    let names = |counts: &std::collections::BTreeMap<String, u64>| counts.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&report.drop_reasons), ["429", "503", "deadline"]);
    assert_eq!(names(&report.failures), ["404", "500"]);
    let totals = report.totals;
    assert_eq!(totals.completed + totals.dropped + totals.failed, report.planned);
    for (count, sevenths) in [(totals.completed, 2), (totals.dropped, 3), (totals.failed, 2)] {
        assert!(count.abs_diff(report.planned * sevenths / 7) <= 7, "{totals:?}");
    }
    assert_eq!((report.connections.lost, report.connections.reopened), (0, 0), "a status closes no connection");
}

#[test]
fn invented_reasons_do_not_fill_the_memory() {
    let turn = AtomicUsize::new(0);
    let server = Server::start(Speaks::Http1, move |_, _| {
        Reply::status(429).header("leeward-reason", &format!("r{}", turn.fetch_add(1, SeqCst)))
    });
    let report = run(&config(server.address), &open(2_000.0, 10));
    assert_eq!(report.totals.dropped, report.planned);
    assert!(report.drop_reasons.len() <= 65, "{}", report.drop_reasons.len());
}
