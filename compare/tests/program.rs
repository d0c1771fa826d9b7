//! Tests of the program from outside: every case must complete; its numbers are not checked.

use std::process::Command;

#[test]
fn every_case_runs_and_writes_its_results() {
    let out = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("compare.json");
    let run = Command::new(env!("CARGO_BIN_EXE_leeward-compare"))
        .args(["--quick", "--rounds", "1", "--out"])
        .arg(&out)
        .output()
        .unwrap();
    let table = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let numbers: serde_json::Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    let cases = numbers["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 14);
    for case in cases {
        let name = case["case"].as_str().unwrap();
        assert!(table.contains(name), "{name} is not in the table");
        for contender in case["contenders"].as_array().unwrap() {
            assert_eq!(contender["rounds"].as_array().unwrap().len(), 1, "{name}: {}", contender["name"]);
        }
    }
}

#[test]
fn a_nonexistent_cpu_is_rejected() {
    let run = Command::new(env!("CARGO_BIN_EXE_leeward-compare"))
        .args(["round-trip", "--server-cpu", "99999", "--out", "/dev/null"])
        .output()
        .unwrap();
    assert!(!run.status.success());
    assert!(String::from_utf8_lossy(&run.stderr).contains("99999"));
}
