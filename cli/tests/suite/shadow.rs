//! `leeward serve --shadow` and `--enforce`: rejections are enforced for no client or for a share,
//! and shadow rejections are reported alike everywhere.

use crate::admin::{OVERLOAD, Server};
use crate::server::leeward;
use serde_json::Value;
use std::path::Path;

/// Number of rejections, whether enforced or not.
fn rejected(server: &Server) -> f64 {
    server.metric("leeward_admission_decisions_total", "decision=\"refused\"")
}

#[test]
fn shadow_mode_rejects_nobody_and_counts_would_be_rejections() {
    for controller in ["edge", "auto"] {
        let server = Server::start(&["--slo", "1ms", "--admission", controller, "--shadow"]);
        let report = server.load(&OVERLOAD);
        let total = |key: &str| report["totals"][key].as_f64().unwrap_or_else(|| panic!("no {key} in {report}"));
        assert_eq!(total("dropped"), 0.0, "{controller}: {report}");
        let (foreseen, arrived) = (rejected(&server), server.metric("leeward_requests_arrived_total", ""));
        assert!(
            foreseen > arrived * 0.1,
            "{controller}: {foreseen} of {arrived} are foreseen at three times the capacity"
        );
        let text = server.get("/metrics").1;
        let of_decisions = text.lines().filter(|line| line.starts_with("leeward_admission_decisions_total{"));
        assert!(of_decisions.into_iter().all(|line| line.contains("mode=\"shadow\"")), "{text}");
        let decisions: Value = serde_json::from_str(&server.get("/debug/decisions?n=1000").1).unwrap();
        let refusal = decisions["decisions"].as_array().unwrap().iter().find(|each| !each["reason"].is_null());
        let refusal = refusal.unwrap_or_else(|| panic!("no refusal in {decisions}"));
        assert_eq!(refusal["rehearsed"], true, "{refusal}");
        let why = server.why(refusal["id"].as_str().unwrap());
        assert!(
            why.starts_with("Would have been rejected: ")
                && why.contains("Admitted at ")
                && why.contains("the controller is in shadow mode"),
            "{why}"
        );
    }
}

#[test]
fn rejections_are_enforced_for_a_share_of_the_clients() {
    let server = Server::start(&["--slo", "1ms", "--admission", "edge", "--enforce", "50%"]);
    let report = server.load(&OVERLOAD);
    let dropped = report["totals"]["dropped"].as_f64().unwrap();
    let foreseen = rejected(&server);
    // Twenty connections: about half of them.
    assert!(dropped > 0.0 && dropped < foreseen * 0.9, "{dropped} of {foreseen}: {report}");
}

#[test]
fn what_shadow_mode_cannot_do_is_refused_with_a_message() {
    for (flags, part) in [
        (&["--shadow", "--admission", "none"][..], "--shadow: `none` rejects no request at the server"),
        (&["--enforce", "5%", "--admission", "window"], "--enforce: `window` rejects no request at the server"),
        (&["--shadow", "--cores", "1..2"], "a fixed number of cores"),
        (&["--shadow", "--service", "tier"], "a service with leaves"),
        (&["--enforce", "5"], "--enforce `5`; accepted: whole percent"),
        (&["--enforce", "5%", "--shadow"], "cannot be used with"),
    ] {
        let output = leeward(&[&["serve", "--listen", "127.0.0.1:0"], flags].concat(), Path::new("."));
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && words.contains(part), "{flags:?}: {words}");
    }
    // 100 % is the behaviour without the flag.
    let output = leeward(&["serve", "--enforce", "100%", "--admission", "none", "--print-config"], Path::new("."));
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("enforce = \"100%\"\n"));
}
