//! What packages say of the library's version.

use crate::support::{folder, run};
use std::fs;
use std::process::Command;

#[test]
fn cmake_takes_a_version_with_the_same_interface_only() {
    if Command::new("cmake").arg("--version").output().is_err() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let package = fs::read_to_string(folder().join("package/leeward-config-version.cmake")).unwrap();
    let script = package.replace("@VERSION@", "0.3.2") + "\nmessage(\"compatible: ${PACKAGE_VERSION_COMPATIBLE}\")\n";
    let path = out.path().join("version.cmake");
    fs::write(&path, script).unwrap();
    let takes = |wanted: &str| {
        let parts: Vec<&str> = wanted.split('.').collect();
        let part = |index: usize| parts.get(index).copied().unwrap_or("0");
        let output = run(Command::new("cmake")
            .arg(format!("-DPACKAGE_FIND_VERSION={wanted}"))
            .arg(format!("-DPACKAGE_FIND_VERSION_MAJOR={}", part(0)))
            .arg(format!("-DPACKAGE_FIND_VERSION_MINOR={}", part(1)))
            .arg(format!("-DPACKAGE_FIND_VERSION_COUNT={}", parts.len()))
            .arg("-P")
            .arg(&path));
        String::from_utf8_lossy(&output.stderr).contains("compatible: TRUE")
    };
    for wanted in ["0", "0.3", "0.3.0", "0.3.2"] {
        assert!(takes(wanted), "{wanted}");
    }
    for wanted in ["0.0.5", "0.2.9", "0.3.3", "0.4", "1", "1.3"] {
        assert!(!takes(wanted), "{wanted}");
    }
}
