//! A tier whose leaves are other processes. If leaves stop, die and return, no request waits
//! forever, and full answers return.

use crate::server::{Server, leeward};
use serde_json::Value;
use std::path::Path;

const LEAF: [&str; 6] = ["--service", "wait", "--admission", "none", "--idle", "block"];

/// Loads a tier for half a second; returns the numbers of requests, of full answers and of partial
/// answers.
fn leaf_counts(tier: &Server, folder: &Path) -> (u64, u64, u64) {
    let shape = ["--demand", "60", "--clients", "4", "--duration", "500ms", "--warmup", "0s", "--slo", "1s"];
    let flags = [&["load", &tier.1, "--service", "tier", "--admission", "none", "--json"], &shape[..]].concat();
    let output = leeward(&flags, folder);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let count = |name: &str| report["totals"][name].as_u64().unwrap();
    assert_eq!((count("unfinished"), count("disconnected")), (0, 0), "{report}");
    // A partial answer is marked, and the client counts it as a failure.
    (count("offered"), count("completed"), count("failed"))
}

/// Repeats rounds of half a second until all requests of a round get full answers.
fn has_recovered(tier: &Server, folder: &Path) -> bool {
    (0..20).any(|_| {
        let (offered, full, _) = leaf_counts(tier, folder);
        offered > 0 && full == offered
    })
}

#[test]
fn stopped_and_killed_leaves_cost_only_their_part() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for threading in ["SDB1-8", "ADB1-2-2", "CORE1"] {
        let (steady, frail) = (Server::start(&LEAF, folder), Server::start(&LEAF, folder));
        let (leaves, address) = (format!("{},{}", steady.1, frail.1), frail.1.clone());
        let flags = ["--service", "tier", "--leaves", &leaves, "--threading", threading, "--leaf-timeout", "50ms"];
        let tier = Server::start(&[&flags[..], &["--admission", "none", "--idle", "block"]].concat(), folder);
        assert!(has_recovered(&tier, folder), "{threading}: at first");
        frail.signal("STOP");
        let (offered, full, partial) = leaf_counts(&tier, folder);
        assert!(full + partial == offered && partial > 0, "{threading}, stopped: {offered}, {full}, {partial}");
        frail.signal("CONT");
        assert!(has_recovered(&tier, folder), "{threading}: it goes on");
        // Killed, not asked to stop.
        drop(frail);
        let (offered, full, partial) = leaf_counts(&tier, folder);
        assert!(full == 0 && partial == offered, "{threading}, killed: {offered}, {full}, {partial}");
        let _back = Server::start_at(&address, &LEAF, folder);
        assert!(has_recovered(&tier, folder), "{threading}: it is back");
    }
}
