//! `leeward demo` from outside, without a terminal. Nothing here asserts how fast anything is.

use serde_json::Value;
use std::process::{Command, Stdio};

#[test]
fn a_short_demo_leaves_a_table_results_and_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_leeward"))
        .args(["demo", "--out", "out", "--duration", "200ms", "--clients", "20"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{told}");
    for part in ["demand", "no control", "Breakwater", "spike", "This machine", "report.html"] {
        assert!(said.contains(part), "no `{part}` in: {said}");
    }
    assert!(!said.contains('\u{1b}') && !told.contains('\u{1b}'), "escape sequences without a terminal");
    assert_eq!(told.lines().filter(|line| line.contains("demand")).count(), 8, "a line for each run: {told}");

    let results = std::fs::read_to_string(folder.path().join("out/result.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    assert_eq!(results["plant"], "real");
    assert_eq!(results["machines"].as_array().unwrap().len(), 1);
    assert_eq!(results["points"].as_array().unwrap().len(), 6);
    assert_eq!(results["shifts"].as_array().unwrap().len(), 4);
    assert!(!results["windows"].as_array().unwrap().is_empty());
    let page = std::fs::read_to_string(folder.path().join("out/report.html")).unwrap();
    for part in ["This machine", "How well the simulator predicted it", "during a spike"] {
        assert!(page.contains(part), "no `{part}` on the page");
    }
}

#[cfg(unix)]
#[test]
fn a_demo_can_be_stopped_with_nothing_written() {
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
