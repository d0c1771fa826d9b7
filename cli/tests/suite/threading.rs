//! `leeward serve --threading FILE.toml`: a policy that changes a tier's setup by curves, and the
//! check that the curves fit.

use crate::server::{Server, leeward};

fn curves(service: &str, setups: [&str; 2]) -> String {
    let head =
        format!("version = 1\nservice = \"{service}\"\ndata = \"\"\nmade = \"by hand\"\nmachine = \"another\"\n");
    let curve = |setup: &str, us: u32, sustains: u32| {
        format!(
            "\n[[setup]]\nname = \"{setup}\"\nsustains = {sustains}\nloads = [10, {sustains}]\np50_us = [{us}, {us}]\np99_us = [{us}, {us}]\n\
             p999_us = [{us}, {us}]\ncpu = [1, 1]\nspread = [0.01, 0.01]\nsamples = [2000, 2000]\n"
        )
    };
    head + &curve(setups[0], 100, 500) + &curve(setups[1], 200, 20_000)
}

#[test]
fn curves_must_match_the_served_tier() {
    let folder = tempfile::tempdir().unwrap();
    let check = |text: &str, flags: &[&str], expected: &str| {
        std::fs::write(folder.path().join("curves.toml"), text).unwrap();
        let leaf = ["serve", "--listen", "127.0.0.1:0", "--service", "tier", "--leaves", "127.0.0.1:9"];
        let output = leeward(&[&leaf[..], flags].concat(), folder.path());
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), words.lines().count()), (Some(2), 1), "{words}");
        assert!(
            words.starts_with("error: ") && words.contains(expected) && output.stdout.is_empty(),
            "{expected}: {words}"
        );
    };
    let file = ["--threading", "curves.toml"];
    let mine = curves("tier", ["SIP1", "SDB1-8"]);
    check(
        &curves("hdsearch", ["SIP1", "SDB1-8"]),
        &file,
        "of service `hdsearch`, this is `tier`; accepted with --accept-curves",
    );
    check(&mine, &file, "of machine `another`, this is `");
    check(&mine, &[&file[..], &["--accept-curves", "--threading-policy", "fast"]].concat(), "--threading-policy: ");
    check(&mine, &[&file[..], &["--accept-curves", "--threading-policy", "static"]].concat(), "does not use curves");
    check(&curves("tier", ["CORE1", "SDB1-8"]), &[&file[..], &["--accept-curves"]].concat(), "CORE1 can't be changed");
    check("version = 2", &file, "curves.toml:1: version");
    check(&mine.replace("sustains = 500", "sustains = 5"), &file, "curves.toml:");
    check(&mine, &["--threading", "nosuch.toml"], "nosuch.toml");
    check(&mine, &["--accept-curves"], "go with --threading FILE.toml");
    check(&mine, &["--threading", "SIX1"], "SIX1");
}

#[test]
fn a_tier_serves_by_its_curves() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("curves.toml"), curves("tier", ["SIB1", "SDB1-4"])).unwrap();
    let leaf = Server::start(&["--service", "wait", "--admission", "none", "--idle", "block"], folder.path());
    let threading = ["--threading", "curves.toml", "--accept-curves", "--slo", "50ms", "--admission", "none"];
    // Other tests run beside this one: by default, the tier goes on without a leaf that is late.
    let threading = [&threading[..], &["--leaf-timeout", "30s"]].concat();
    for policy in ["leeward", "utune"] {
        let flags =
            [&["--service", "tier", "--leaves", &leaf.1, "--threading-policy", policy][..], &threading].concat();
        let tier = Server::start(&flags, folder.path());
        let shape = ["--demand", "1500", "--clients", "4", "--duration", "500ms", "--warmup", "100ms", "--slo", "50ms"];
        let asked = leeward(
            &[&["load", &tier.1, "--service", "tier", "--admission", "none", "--json"], &shape[..]].concat(),
            folder.path(),
        );
        // 3: other work kept the generator from its schedule.
        assert!(matches!(asked.status.code(), Some(0 | 3)), "{policy}: {}", String::from_utf8_lossy(&asked.stderr));
        let report: serde_json::Value = serde_json::from_slice(&asked.stdout).unwrap();
        let count = |name: &str| report["measured"][name].as_u64().unwrap();
        assert!(count("completed") > 0 && count("failed") == 0, "{policy}: {report}");
    }
}

#[test]
fn advice_can_be_checked_on_other_requests() {
    let folder = tempfile::tempdir().unwrap();
    let few = ["--setups", "SIP1,SDB1-4", "--load", "100..800", "--slo", "5ms"];
    let advise = |flags: &[&str]| leeward(&[&["advise", "set-algebra"], &few[..], flags].concat(), folder.path());
    let output = advise(&["--check", "--json", "--out", "curves.toml"]);
    let advice: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let fresh = advice["fresh"].as_array().unwrap();
    assert_eq!(fresh.len(), advice["rows"].as_array().unwrap().len());
    for one in fresh {
        assert!(one["factor"].as_f64().unwrap() >= 1.0 && one["requests"] == 8_000, "{one}");
    }
    let curves = std::fs::read_to_string(folder.path().join("curves.toml")).unwrap();
    assert!(curves.contains("service = \"sets\""), "{curves}");
    let refused = |flags: &[&str], expected: &str| {
        let output = advise(flags);
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), words.lines().count()), (Some(2), 1), "{words}");
        assert!(words.contains(expected), "{words}");
    };
    refused(&["--data", "small"], "--data and --leaves go with --plant real and a service; accepted: hdsearch, router");
    refused(&["--plant", "real", "--data", "/dev/zero"], "a regular file");
    refused(&["--plant", "real", "--leaves", "0"], "--leaves");
}

#[test]
fn threads_that_poll_on_too_few_cpus_are_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["serve", "--listen", "203.0.113.1:1", "--service", "tier", "--leaves", "127.0.0.1:9", "--cpus", "0"];
    let warned = |setup: &str| {
        // The server does not start, since no machine has this address. Warnings come before that.
        let output = leeward(&[&flags[..], &["--threading", setup]].concat(), folder.path());
        String::from_utf8_lossy(&output.stderr).contains("threads poll on 1 CPU")
    };
    assert!(warned("SIP2") && warned("AIP1-0-1") && !warned("SIP1") && !warned("SDB1-50"));
}
