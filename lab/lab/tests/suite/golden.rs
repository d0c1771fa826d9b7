//! Results of small scenarios, byte for byte, one for each table. A difference is a change of a
//! seed's results, or of the file format.
//!
//! `LEEWARD_UPDATE_GOLDEN=1 cargo test -p leeward-lab --test suite golden` writes them anew.

use leeward_lab::run::{Options, Progress, run};
use leeward_lab::{Scenario, store};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Runs `tests/golden/NAME.toml` and compares its `result.json` with `tests/golden/NAME.json`.
fn check(name: &str) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let scenario = Scenario::load(&golden.join(format!("{name}.toml")), &[], false).unwrap();
    let options = Options { threads: Some(2), ..Options::default() };
    let results =
        run(&scenario, &leeward_controllers::builtin(), &options, &|_: Progress| {}, &AtomicBool::new(false)).unwrap();
    let folder = Folder(std::env::temp_dir().join(format!("leeward-golden-{}-{name}", std::process::id())));
    store::write(&folder.0, &results).unwrap();
    let written = std::fs::read_to_string(folder.0.join("result.json")).unwrap();
    assert_eq!(store::read(&folder.0).unwrap(), results, "{name}: read back");
    let stored = golden.join(format!("{name}.json"));
    if std::env::var("LEEWARD_UPDATE_GOLDEN").is_ok() {
        std::fs::write(&stored, &written).unwrap();
    }
    let expected = std::fs::read_to_string(&stored).unwrap();
    let lines = written.lines().zip(expected.lines()).enumerate();
    if let Some((number, (now, then))) = lines.into_iter().find(|(_, (now, then))| now != then) {
        panic!("{name}.json, line {}: now `{now}`, then `{then}`", number + 1);
    }
    assert!(written == expected, "{name}.json has another length: {} then, {} now", expected.len(), written.len());
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // best effort
    }
}

#[test]
fn points_and_locks() {
    check("locks");
}

#[test]
fn windows_and_shifts() {
    check("shift");
}

#[test]
fn core_allocation() {
    check("cores");
}

#[test]
fn replicas() {
    check("replicas");
}

#[test]
fn tiers_of_threads() {
    check("tier");
}

#[test]
fn graphs_of_services() {
    check("graph");
}
