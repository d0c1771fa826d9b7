//! The rules of ARCHITECTURE.md that a machine can check: the directions of dependencies, the crates that `control` and
//! `sim` may use, and that every file begins with its description.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What a crate in `services/` may use: the seams of the server and of the load generator, and what a service is
/// (`leeward-services`). The catalogue, which lists them all, may use each of them, too.
const SERVICE: &[&str] = &[
    "leeward-control",
    "leeward-host",
    "leeward-load",
    "leeward-port",
    "leeward-rpc",
    "leeward-runtime",
    "leeward-services",
    "leeward-workload",
];
const SERVICES: &str = "services/";
const CATALOGUE: &str = "services/catalogue";

/// Our crates and which of ours each may depend on. A new crate needs a line here, and a reason in ARCHITECTURE.md;
/// those in `services/` follow [`SERVICE`].
const MAY_USE: [(&str, &[&str]); 18] = [
    ("crates/control", &[]),
    ("crates/workload", &["leeward-control"]),
    // What comes of a run, whoever makes it: below every plant and above none.
    ("crates/outcome", &["leeward-control"]),
    ("crates/sim", &["leeward-control", "leeward-workload", "leeward-outcome"]),
    ("crates/runtime", &["leeward-control"]),
    ("crates/batch", &[]),
    ("crates/rpc", &["leeward-batch", "leeward-control", "leeward-runtime"]),
    ("services", SERVICE),
    ("crates/load", &["leeward-control", "leeward-workload", "leeward-outcome", "leeward-rpc"]),
    (
        "crates/plant",
        &[
            "leeward-control",
            "leeward-workload",
            "leeward-outcome",
            // The simulated plant stands beside the measured one, under one trait.
            "leeward-sim",
            "leeward-runtime",
            "leeward-rpc",
            "leeward-services",
            "leeward-load",
        ],
    ),
    (
        "crates/lab",
        &[
            "leeward-control",
            "leeward-outcome",
            "leeward-sim",
            "leeward-plant",
            "leeward-services",
            "leeward-catalogue",
        ],
    ),
    ("crates/report", &["leeward-outcome"]),
    // Reads traces of any program: it knows nothing of servers and controllers.
    ("profiler/tool", &[]),
    // Runs compilers, with nothing of ours but files that it finds.
    ("profiler/compilers", &[]),
    // What programs are built with that are to be profiled: nothing but the attribute.
    ("profiler/recorder", &["leeward-trace-attribute"]),
    ("profiler/recorder/attribute", &[]),
    (
        "crates/cli",
        &[
            "leeward-control",
            "leeward-workload",
            "leeward-load",
            "leeward-sim",
            "leeward-lab",
            "leeward-profile",
            "leeward-plant",
            "leeward-report",
            "leeward-rpc",
            "leeward-runtime",
            "leeward-search",
            "leeward-services",
            "leeward-catalogue",
            "leeward-compilers",
        ],
    ),
    // A workspace of its own, so that nothing else compiles what it compares with.
    (
        "compare",
        &["leeward-control", "leeward-workload", "leeward-load", "leeward-rpc", "leeward-runtime", "leeward-services"],
    ),
];

/// Everything else that the pure crates may use outside of tests: nothing that does I/O, waits, or knows the time.
const PURE: [(&str, &[&str]); 4] = [
    ("crates/control", &["thiserror", "loom"]),
    ("crates/workload", &["libm", "rand_core", "rand_xoshiro", "thiserror"]),
    ("crates/outcome", &["hdrhistogram", "serde"]),
    ("crates/sim", &["thiserror"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

/// The names under `[dependencies]` and `[target.….dependencies]` of a crate's manifest.
fn dependencies(folder: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
    let mut names = BTreeSet::new();
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line.trim_matches(['[', ']']).ends_with("dependencies") && !line.contains("dev-dependencies");
        } else if inside && !line.starts_with('#') && !line.is_empty() {
            names.insert(line.split(['.', '=', ' ']).next().unwrap().to_string());
        }
    }
    names
}

#[test]
fn dependencies_point_one_way() {
    let rules: BTreeMap<_, _> = MAY_USE.into_iter().collect();
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let folders = |key| {
        let (_, rest): (&str, &str) = workspace.split_once(key).unwrap();
        let list = rest.split_once(']').unwrap().0;
        list.split(',').map(|name| name.trim().trim_matches('"')).filter(|name| !name.is_empty())
    };
    for member in folders("members = [").chain(folders("exclude = [")) {
        let service = member.starts_with(SERVICES).then_some(&SERVICE);
        let allowed = rules.get(member).or(service).unwrap_or_else(|| panic!("`{member}` has no rule in this test"));
        let is_listed = |name: &str| {
            let folder = name.strip_prefix("leeward-").unwrap_or_default();
            member == CATALOGUE && root().join(SERVICES).join(folder).join("Cargo.toml").is_file()
        };
        for dependency in dependencies(member).iter().filter(|name| name.starts_with("leeward")) {
            let is_allowed = allowed.contains(&dependency.as_str()) || is_listed(dependency);
            assert!(is_allowed, "`{member}` must not depend on `{dependency}`");
        }
    }
}

#[test]
fn the_pure_crates_use_nothing_impure() {
    for (member, allowed) in PURE {
        for dependency in dependencies(member).iter().filter(|name| !name.starts_with("leeward")) {
            assert!(allowed.contains(&dependency.as_str()), "`{member}` must not depend on `{dependency}`");
        }
        let config = std::fs::read_to_string(root().join(member).join("clippy.toml")).unwrap();
        for banned in ["Instant::now", "SystemTime::now", "thread::sleep", "RandomState::new"] {
            assert!(config.contains(banned), "`{member}/clippy.toml` must ban {banned}");
        }
    }
}

#[test]
fn every_file_says_what_it_is_and_stays_small() {
    let mut files = Vec::new();
    // Those in `services/` are in its folder.
    for (member, _) in MAY_USE {
        rust_files(&root().join(member), &mut files);
    }
    assert!(files.len() > 30, "the search for files is broken");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("//!"), "{} does not begin with `//!`", file.display());
        assert!(text.lines().count() < 800, "{} has 800 lines or more", file.display());
    }
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("target") {
                rust_files(&path, files);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
