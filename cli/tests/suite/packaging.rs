//! The files of `packaging` that other programs read: hadolint checks the Containerfile, systemd
//! the units.

use crate::architecture::root;
use leeward_testkit::require::Requirement;
use std::path::Path;
use std::process::Command;

#[test]
fn hadolint_accepts_the_containerfile() {
    let hadolint = root().join("target/recipes/bin/hadolint");
    if !hadolint.exists() {
        return Requirement::Recipes.missing("no hadolint in target/recipes (scripts/setup recipes)");
    }
    let lint =
        |path: &Path| Command::new(&hadolint).args(["--no-color", "--failure-threshold", "info"]).arg(path).output();
    let output = lint(&root().join("packaging/container/Containerfile")).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    // The check detects a planted error.
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("Containerfile");
    std::fs::write(&wrong, "FROM docker.io/library/debian\nRUN cd /tmp\n").unwrap();
    assert!(!lint(&wrong).unwrap().status.success());
}

#[test]
fn the_image_is_built_without_the_results_of_other_builds() {
    // Podman would read `.containerignore` instead, and docker would not.
    assert!(!root().join(".containerignore").exists());
    let ignored = std::fs::read_to_string(root().join(".dockerignore")).unwrap();
    for folder in ["**/target", "**/node_modules", ".git"] {
        assert!(ignored.lines().any(|line| line == folder), "{folder}");
    }
}

#[test]
fn systemd_reads_the_units() {
    let analyze = Path::new("/usr/bin/systemd-analyze");
    if !analyze.exists() {
        return Requirement::Recipes.missing("no systemd-analyze (scripts/setup recipes)");
    }
    // systemd-analyze checks that the program and its manuals exist.
    let folder = tempfile::tempdir().unwrap();
    let unit = |name: &str| std::fs::read_to_string(root().join("packaging/systemd").join(name)).unwrap();
    let with_program = |name: &str| {
        let service = unit(name).replace("/usr/bin/leeward", env!("CARGO_BIN_EXE_leeward"));
        let lines = service.lines().filter(|line| !line.starts_with("Documentation="));
        lines.fold(String::new(), |text, line| text + line + "\n")
    };
    let units = ["leeward.service", "leeward.socket", "leeward-proxy.service", "leeward-proxy.socket"];
    let verify = |name: &str, service: &str| {
        for unit in units {
            std::fs::write(folder.path().join(unit), with_program(unit)).unwrap();
        }
        std::fs::write(folder.path().join(name), service).unwrap();
        let output = Command::new(analyze).arg("verify").args(units.map(|name| folder.path().join(name))).output();
        String::from_utf8(output.unwrap().stderr)
            .unwrap()
            .lines()
            .filter(|line| line.contains("leeward"))
            .map(String::from)
            .collect::<Vec<_>>()
    };
    for name in ["leeward.service", "leeward-proxy.service"] {
        let service = with_program(name);
        let planted = service.replace("NoNewPrivileges", "NoNewPrivilege");
        assert!(!verify(name, &planted).is_empty(), "{name}: a key that there is none of");
        assert_eq!(verify(name, &service), [""; 0], "{name}");
        // Exposure in tenths, out of 100: the level of a server that only uses the network.
        let mut security = Command::new(analyze);
        security.args(["security", "--offline=true", "--threshold=20", "--no-pager"]).arg(folder.path().join(name));
        let output = security.output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn the_proxy_accepts_its_packaged_settings() {
    let file = root().join("packaging/systemd/proxy.toml");
    let check = |text: &str| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("proxy.toml"), text).unwrap();
        let arguments = ["proxy", "--config", "proxy.toml", "--check"];
        Command::new(env!("CARGO_BIN_EXE_leeward")).args(arguments).current_dir(folder.path()).output().unwrap()
    };
    // The unit makes the folder of the log.
    let text = std::fs::read_to_string(file).unwrap().replace("/var/log/leeward/", "/tmp/");
    let output = check(&text);
    assert!(output.status.success() && output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    // The lines that are commented out are settings, too: a comment has a second blank or a word.
    let is_setting = |line: &str| line.starts_with("# [") || line.split(' ').nth(2) == Some("=");
    let all = text.lines().map(|line| if is_setting(line) { line.trim_start_matches("# ") } else { line });
    let output = check(&all.collect::<Vec<_>>().join("\n"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = check(&text.replace("slo =", "sloo ="));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("did you mean `slo`?"), "{error}");
    // The files that it names are read, too: a unit that passes its check starts.
    let output = check(&format!("{text}\n[tls]\ncertificate = \"none.pem\"\nkey = \"none.pem\"\n"));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("none.pem"), "{output:?}");
}

#[test]
fn packages_contain_sources_and_a_documentation_link() {
    let output = Command::new(env!("CARGO"))
        .args(["package", "--workspace", "--list", "--allow-dirty", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    // Cargo warns about missing metadata, and tells when it waits for another cargo.
    let errors = String::from_utf8_lossy(&output.stderr);
    let is_silent = errors.lines().all(|line| line.trim_start().starts_with("Blocking waiting for file lock"));
    assert!(output.status.success() && is_silent, "{errors}");
    let files = String::from_utf8(output.stdout).unwrap();
    let of_cargo = [".cargo_vcs_info.json", "Cargo.lock", "Cargo.toml", "Cargo.toml.orig", "README.md"];
    let strange = |file: &&str| {
        let folder = file.split('/').next().unwrap();
        !(of_cargo.contains(file)
            || ["src", "tests", "benches", "examples"].contains(&folder)
            || [".c", ".h", ".hpp", ".map", ".pc", ".cmake", ".3", "cbindgen.toml"]
                .iter()
                .any(|end| file.ends_with(end)))
    };
    assert_eq!(files.lines().filter(strange).collect::<Vec<_>>(), [""; 0]);
    assert!(files.lines().any(|file| file == "src/lib.rs"));
}
