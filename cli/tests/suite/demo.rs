//! `leeward demo` from outside, without a terminal. Does not check performance.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn writes_a_table_results_and_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_leeward"))
        .args(["demo", "--out", "out", "--duration", "200ms", "--clients", "20"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // On a busy machine none of the runs may measure the server.
    assert_eq!(output.status.code(), Some(if stdout.contains("In 12 of 12 runs") { 3 } else { 0 }), "{stderr}");
    for part in ["demand", "no control", "auto", "Breakwater", "spike", "This machine", "report.html"] {
        assert!(stdout.contains(part), "no `{part}` in: {stdout}");
    }
    assert!(!stdout.contains('\u{1b}') && !stderr.contains('\u{1b}'), "escape sequences without a terminal");
    assert_eq!(stderr.lines().filter(|line| line.contains("demand")).count(), 12, "a line for each run: {stderr}");

    let results = std::fs::read_to_string(folder.path().join("out/result.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    assert_eq!(results["plant"], "real");
    assert_eq!(results["machines"].as_array().unwrap().len(), 1);
    assert_eq!(results["points"].as_array().unwrap().len(), 9);
    assert_eq!(results["shifts"].as_array().unwrap().len(), 6);
    assert!(!results["windows"].as_array().unwrap().is_empty());
    let page = std::fs::read_to_string(folder.path().join("out/report.html")).unwrap();
    for part in ["This machine", "How well the simulator predicted it", "during a spike", "share-of-capacity"] {
        assert!(page.contains(part), "no `{part}` on the page");
    }
}

#[cfg(unix)]
#[test]
fn a_stopped_demo_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_leeward"))
        .args(["demo", "--out", "out", "--clients", "20", "--duration", "30s"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!folder.path().join("out").exists());
}

#[cfg(target_os = "linux")]
/// Number of processes whose command line contains this text.
fn count_running(part: &str) -> usize {
    let lines = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(part)).count()
}

#[test]
fn shows_tiers_and_ends_their_processes() {
    let folder = tempfile::tempdir().unwrap();
    // Data that no other test uses, which identify the servers of this test.
    let data = "synthetic:1500:20:4711";
    let output = Command::new(env!("CARGO_BIN_EXE_leeward"))
        .args(["demo", "--service", "sets", "--leaves", "2", "--data", data, "--out", "out", "--duration", "300ms"])
        .args(["--slo", "5s"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(matches!(output.status.code(), Some(0 | 3)), "{stderr}");
    for part in ["0.5x", "2x", "sets-leaf", "credits", "tiers.json"] {
        assert!(stdout.contains(part), "no `{part}` in: {stdout}");
    }
    assert!(!stdout.contains('\u{1b}') && !stderr.contains('\u{1b}'), "escape sequences without a terminal");
    let results = std::fs::read_to_string(folder.path().join("out/tiers.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    let phases = results["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 3);
    for phase in phases {
        let tiers = phase["tiers"].as_array().unwrap();
        assert_eq!((tiers[0]["tier"].as_str(), tiers[1]["servers"].as_u64()), (Some("sets"), Some(2)));
    }
    #[cfg(target_os = "linux")]
    assert_eq!(count_running(data), 0, "servers are left");
}

#[test]
fn rejects_services_without_leaves() {
    let folder = tempfile::tempdir().unwrap();
    for (flags, expected) in [
        (&["--service", "kv"][..], "accepted: hdsearch, router, sets, recommend"),
        (&["--service", "router", "--data", "small"], "router has no data of its own"),
        (&["--service", "sets", "--data", "/dev/zero"], "a regular file"),
        (&["--service", "sets", "--admission", "magic"], "magic"),
    ] {
        let demo = [&["demo", "--leaves", "1", "--duration", "100ms"], flags].concat();
        let output =
            Command::new(env!("CARGO_BIN_EXE_leeward")).args(demo).current_dir(folder.path()).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {words}");
        assert!(words.contains(expected), "{flags:?}: {words}");
    }
}

#[test]
fn puts_the_proxy_before_a_service_in_another_language() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_leeward"))
        .args(["demo", "--proxy", "--duration", "1s", "--out", "out", "--admin", "127.0.0.1:0", "--plain"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(if stdout.contains("late in 8 of 8 runs") { 3 } else { 0 }), "{stderr}");
    for part in ["0.5x", "2x", "spike", "refused", "The objective is", "requests/s", "result.json"] {
        assert!(stdout.contains(part), "no `{part}` in: {stdout}");
    }
    assert!(!stdout.contains('\u{1b}') && !stderr.contains('\u{1b}'), "escape sequences without a terminal");
    assert_eq!(
        stderr.lines().filter(|line| line.contains("the proxy, demand")).count(),
        8,
        "a line for each run: {stderr}"
    );
    let results = std::fs::read_to_string(folder.path().join("out/result.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    assert!(results["capacity_per_s"].as_f64().unwrap() > 0.0 && results["slo_ns"].as_u64().unwrap() >= 20_000_000);
    let runs = results["runs"].as_array().unwrap();
    let proxied: Vec<bool> = runs.iter().map(|run| run["proxy"].as_bool().unwrap()).collect();
    assert_eq!(proxied, [false, true, false, true, false, true, false, true]);
    let offered = |run: &Value| run["report"]["totals"]["offered"].as_u64();
    assert!(runs.iter().all(|run| offered(run).is_some_and(|offered| offered > 0)));
}

#[cfg(target_os = "linux")]
#[test]
fn a_stopped_demo_of_the_proxy_leaves_no_service() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_leeward"))
        .args(["demo", "--proxy", "--out", "out", "--admin", "off"])
        .current_dir(folder.path())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    assert!(lines.any(|line| line.unwrap().starts_with("Measuring ")));
    let children = || std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap_or_default();
    let services: Vec<String> = children().split_whitespace().map(String::from).collect();
    assert_eq!(services.len(), 1);
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    assert!(!Path::new("/proc").join(&services[0]).exists(), "the service is left");
    assert!(!folder.path().join("out").exists());
}

#[test]
fn without_python_and_go_the_demo_of_the_proxy_names_both() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_leeward"))
        .args(["demo", "--proxy", "--out", "out", "--admin", "off"])
        .env("PATH", folder.path())
        .current_dir(folder.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let last = stderr.trim_end().lines().last().unwrap();
    assert!(last.contains("no python3 in PATH") && last.contains("no go in PATH"), "{last}");
}
