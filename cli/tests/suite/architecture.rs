//! Rules of ARCHITECTURE.md that a machine can check: the direction of dependencies, the
//! dependencies of the pure crates, and a module comment in every file.

use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Crates that a service in `services/` may use: the interfaces of the server, and the definition
/// of a service (`leeward-services`). The catalogue, which lists all services, may use each of
/// them, too.
///
/// The load generator is not in the list: a server does not link it.
const SERVICE: &[&str] =
    &["controllers", "core", "engine", "host", "rpc", "runtime", "services", "threading", "workload"];

/// Services that use leaves or data of another service.
const SERVICE_DEPENDENCIES: [(&str, &str); 2] = [("router", "kv"), ("sets", "search")];

/// Our crates, each with the crates of ours that it may depend on. Crates in `services/` follow
/// [`SERVICE`]. All names are without `leeward-`.
///
/// A new crate needs a line here, and a reason in ARCHITECTURE.md.
const ALLOWED_DEPENDENCIES: [(&str, &[&str]); 45] = [
    ("core", &[]),
    // Everything that decides depends on the traits alone: an edit in one of these rebuilds no
    // other.
    ("controllers", &["core"]),
    ("allocation", &["core"]),
    ("threading", &["core"]),
    // The number of requests that a proxy keeps at a backend.
    ("concurrency", &["core"]),
    ("recording", &["core", "threading"]),
    ("workload", &["core"]),
    // Results of a run, on every plant: below each plant, above none.
    ("outcome", &["core", "threading"]),
    ("sim", &["allocation", "controllers", "core", "outcome", "threading", "workload"]),
    // A proxy and its backend: a plant of concurrency limits alone, so without the controllers.
    ("proxy-sim", &["concurrency", "core", "workload"]),
    ("runtime", &["allocation", "core", "threading"]),
    ("wire", &["core"]),
    // Observes decisions of all controllers: below every host of controllers.
    ("observe", &["core"]),
    ("host", &["core", "observe", "recording", "wire"]),
    // The admin port depends on observed sources, and not on servers.
    ("admin", &["http1", "observe", "tls"]),
    // Sockets as the kernel lists them, and what that says of a service: of any program, so without
    // servers and controllers.
    ("sockdiag", &[]),
    ("watch", &["sockdiag"]),
    // Carries frames, without sessions: below both the pure session and the engine.
    ("datagram", &["core", "wire"]),
    // TLS sessions for both ends, without a protocol or an engine.
    ("tls", &[]),
    ("session", &["core", "datagram", "host", "wire"]),
    // Servers of other projects: the gate depends on the host, and framework integrations on the
    // gate. Of the runtime they use the clock, and the budgets that locks need.
    ("gate", &["controllers", "core", "host", "observe", "runtime"]),
    // For the profiler, where the feature asks for it.
    ("tower", &["core", "gate", "runtime", "trace"]),
    // The gate and the runtime's locks for programs in C, with the admin port.
    ("capi", &["admin", "controllers", "core", "gate", "observe", "runtime"]),
    ("proxy", &["concurrency", "core", "gate", "host", "observe", "runtime", "tls", "tower"]),
    ("ecosystem", &["core", "gate", "runtime", "tower"]),
    ("engine", &["allocation", "core", "datagram", "host", "observe", "recording", "runtime", "wire"]),
    // Heads and framing of HTTP/1.1 for every port that speaks HTTP: pure, below all of them.
    ("http1", &[]),
    ("rpc", &["core", "datagram", "engine", "host", "runtime", "session", "threading", "tls", "wire"]),
    ("services", SERVICE),
    ("load", &["core", "outcome", "rpc", "workload"]),
    // Load on other people's HTTP services, with the schedules and reports of `load`.
    ("http-load", &["core", "load", "tls", "workload"]),
    // The simulated and the measured plant implement one trait. The crate starts tiers, and
    // measures how threads sleep at sockets, through the port's interfaces.
    ("plant", &["core", "engine", "load", "outcome", "rpc", "runtime", "services", "sim", "threading", "workload"]),
    ("lab", &["allocation", "catalogue", "controllers", "core", "outcome", "plant", "services", "sim", "threading"]),
    ("report", &["outcome"]),
    // Reads traces of any program, without servers and controllers.
    ("profile", &[]),
    // Records running programs as traces.
    ("sampler", &["profile"]),
    // Runs compilers; uses only files that it finds.
    ("compilers", &[]),
    // Dependency of programs that are to be profiled: nothing but the attribute.
    ("trace", &["trace-attribute"]),
    ("trace-attribute", &[]),
    // Attacks can write frames, but do not read them.
    ("hostile", &["core", "wire"]),
    (
        "leeward",
        &[
            "admin",
            "allocation",
            "catalogue",
            "compilers",
            "controllers",
            "core",
            "http-load",
            "lab",
            "load",
            "observe",
            "outcome",
            "plant",
            "profile",
            "proxy",
            "proxy-sim",
            "recording",
            "report",
            "rpc",
            "runtime",
            "sampler",
            "search",
            "services",
            "sim",
            "sockdiag",
            "threading",
            "watch",
            "workload",
        ],
    ),
    // A separate workspace, so that no other build compiles the servers of the comparison.
    (
        "compare",
        &["catalogue", "controllers", "core", "engine", "load", "rpc", "runtime", "services", "threading", "workload"],
    ),
    (
        "python",
        &[
            "catalogue",
            "controllers",
            "core",
            "lab",
            "load",
            "outcome",
            "profile",
            "recording",
            "report",
            "services",
            "workload",
        ],
    ),
    // Only for tests: these are only dev-dependencies, which do not count here.
    ("pair", &["core", "datagram", "host", "session", "wire"]),
    ("testkit", &[]),
];

/// Other dependencies of the pure crates outside of tests: nothing that does I/O, blocks, or reads
/// the time.
const PURE_CRATES: [(&str, &[&str]); 14] = [
    ("core", &["loom", "thiserror"]),
    ("controllers", &["loom", "thiserror"]),
    ("allocation", &["thiserror"]),
    ("threading", &["loom", "thiserror"]),
    ("concurrency", &["thiserror"]),
    ("recording", &["loom", "thiserror"]),
    ("workload", &["libm", "rand_core", "rand_xoshiro", "thiserror"]),
    ("outcome", &["hdrhistogram", "serde"]),
    ("sim", &["thiserror"]),
    ("proxy-sim", &["serde"]),
    ("wire", &["thiserror"]),
    ("datagram", &["siphasher", "thiserror"]),
    ("session", &["thiserror"]),
    ("pair", &[]),
];

/// Root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// A package in the output of `cargo metadata`, with the fields that these tests read.
#[derive(Clone, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
}

/// A dependency of a package; `kind` is null, `build` or `dev`.
#[derive(Clone, Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// Packages of the workspaces as cargo reports them: this one, and those of `compare` and
/// `ecosystem`.
pub(crate) fn packages() -> Vec<Package> {
    static PACKAGES: OnceLock<Vec<Package>> = OnceLock::new();
    PACKAGES.get_or_init(read_packages).clone()
}

fn read_packages() -> Vec<Package> {
    let root = root();
    let read = |manifest: &str| -> Metadata {
        // The names of dependencies suffice, so cargo resolves none.
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["metadata", "--format-version", "1", "--no-deps", "--manifest-path"]).arg(root.join(manifest));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    ["Cargo.toml", "compare/Cargo.toml", "ecosystem/Cargo.toml"]
        .into_iter()
        .flat_map(|manifest| read(manifest).packages)
        .collect()
}

pub(crate) fn short(name: &str) -> &str {
    name.strip_prefix("leeward-").unwrap_or(name)
}

/// Dependencies of a package outside of tests, on any system: our crates by their short names, and
/// the others.
fn dependencies(package: &Package) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let built = package.dependencies.iter().filter(|dependency| dependency.kind.as_deref() != Some("dev"));
    let (ours, others): (BTreeSet<_>, _) =
        built.map(|dependency| dependency.name.as_str()).partition(|name| name.starts_with("leeward"));
    (ours.into_iter().map(short).collect(), others)
}

pub(crate) fn folder(package: &Package) -> &Path {
    package.manifest_path.parent().unwrap()
}

fn is_service(package: &Package) -> bool {
    folder(package).parent().is_some_and(|parent| parent.ends_with("services"))
}

/// True if a package may depend on our crate `other`.
pub(crate) fn allowed(package: &Package, other: &str) -> bool {
    let name = short(&package.name);
    let rule = ALLOWED_DEPENDENCIES.iter().find(|(of, _)| *of == name).map(|(_, allowed)| *allowed);
    let rule =
        rule.or(is_service(package).then_some(SERVICE)).unwrap_or_else(|| panic!("`{name}` has no rule in this test"));
    let is_catalogue = name == "catalogue" && packages().iter().any(|it| is_service(it) && short(&it.name) == other);
    name != other && (rule.contains(&other) || is_catalogue || SERVICE_DEPENDENCIES.contains(&(name, other)))
}

#[test]
fn dependencies_point_one_way() {
    let packages = packages();
    let services = packages.iter().filter(|package| is_service(package)).count();
    assert_eq!(packages.len(), ALLOWED_DEPENDENCIES.len() + services, "a rule for a crate that is gone");
    for package in &packages {
        for dependency in dependencies(package).0 {
            assert!(allowed(package, dependency), "`{}` must not depend on `{dependency}`", package.name);
        }
    }
}

#[test]
fn the_pure_crates_use_nothing_impure() {
    let packages = packages();
    for (name, allowed) in PURE_CRATES {
        let package = packages.iter().find(|package| short(&package.name) == name).unwrap();
        for dependency in dependencies(package).1 {
            assert!(allowed.contains(&dependency), "`{name}` must not depend on `{dependency}`");
        }
        let config = std::fs::read_to_string(folder(package).join("clippy.toml")).unwrap();
        for banned in ["Instant::now", "SystemTime::now", "thread::sleep", "RandomState::new"] {
            assert!(config.contains(banned), "`{name}`'s clippy.toml must ban {banned}");
        }
    }
}

#[test]
fn every_file_has_a_description_and_stays_small() {
    let mut files = Vec::new();
    for package in packages() {
        rust_files(folder(&package), &mut files);
    }
    assert!(files.len() > 30, "the search for files is broken");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("//!"), "{} does not begin with `//!`", file.display());
        assert!(text.lines().count() < 800, "{} has 800 lines or more", file.display());
    }
}

pub(super) fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
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

/// Methods of the trait that `source` declares as `head`: the required ones, and the number of
/// those with a default.
fn methods<'a>(source: &'a str, head: &str) -> Option<(BTreeSet<&'a str>, usize)> {
    let (_, body) = source.split_once(head)?;
    let (body, _) = body.split_once("\n}\n")?;
    let (mut required, mut defaults) = (BTreeSet::new(), 0);
    for method in body.split("\n    fn ").skip(1) {
        match method.find([';', '{']).map(|end| method.as_bytes()[end]) {
            Some(b';') => _ = required.insert(method.split(['(', '<']).next()?),
            _ => defaults += 1,
        }
    }
    Some((required, defaults))
}

#[test]
fn the_guide_names_the_methods_of_a_protocol() {
    let mut files = Vec::new();
    for package in packages() {
        rust_files(folder(&package), &mut files);
    }
    let sources = files.iter().map(|file| std::fs::read_to_string(file).unwrap());
    // Split in two, so that this line is not a match itself.
    let head = concat!("pub trait ", "Protocol:");
    let source = sources.into_iter().find(|source| source.contains(head)).unwrap();
    let (required, defaults) = methods(&source, head).unwrap();
    let guide = std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let (_, guide) = guide.split_once("## Add a protocol").unwrap();
    let (guide, _) = guide.split_once("\n2. ").unwrap();
    let counts = format!("these {} methods;\n   {defaults} more have a default", required.len());
    assert!(guide.contains(&counts), "the guide does not say {counts:?}");
    let rows = guide.lines().filter_map(|line| line.trim().strip_prefix("| `")?.split(" |").next());
    let named: BTreeSet<_> = rows.flat_map(|row| row.split(['`', ',', ' '])).filter(|name| !name.is_empty()).collect();
    assert_eq!(named, required);
}
