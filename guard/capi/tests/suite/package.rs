//! What packages say of the library's version, and where CMake finds the headers.

use crate::support::{folder, run};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
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

#[test]
fn cmake_finds_the_headers_of_the_chosen_package() {
    if Command::new("cmake").arg("--version").output().is_err() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let out = out.path().canonicalize().unwrap();
    let install = |prefix: &Path, lib: &str| {
        let package = prefix.join(lib).join("cmake/leeward");
        fs::create_dir_all(&package).unwrap();
        fs::create_dir_all(prefix.join("include")).unwrap();
        fs::write(prefix.join("include/leeward.h"), "").unwrap();
        fs::copy(folder().join("package/leeward-config.cmake"), package.join("leeward-config.cmake")).unwrap();
    };
    // A Debian package, where /lib is a link; and another prefix.
    install(&out.join("debian/usr"), "lib/machine");
    symlink("usr/lib", out.join("debian/lib")).unwrap();
    install(&out.join("other"), "lib");
    let project = "cmake_minimum_required(VERSION 3.13)\nproject(finds NONE)\nfind_package(leeward REQUIRED CONFIG)\n\
                   get_target_property(found leeward::leeward INTERFACE_INCLUDE_DIRECTORIES)\n\
                   message(\"found: ${found}\")\n";
    fs::write(out.join("CMakeLists.txt"), project).unwrap();
    // Both with the same cache.
    for (package, headers) in [("debian/lib/machine", "debian/usr/include"), ("other/lib", "other/include")] {
        let chosen = out.join(package).join("cmake/leeward");
        let output = run(Command::new("cmake")
            .arg(format!("-Dleeward_DIR={}", chosen.display()))
            .arg("-S")
            .arg(&out)
            .arg("-B")
            .arg(out.join("build")));
        let found = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(found.contains(&format!("found: {}\n", out.join(headers).display())), "{package}: {found}");
    }
}
