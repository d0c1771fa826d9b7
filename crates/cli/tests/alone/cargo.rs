//! `leeward cargo`: a Rust program without a word of the profiler in its source is recorded.

use leeward_testkit::alone::alone;
use leeward_testkit::require::Need;
use std::path::Path;
use std::process::{Command, Output};

fn leeward(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leeward"));
    // What cargo tells this test is not for the cargo that it runs.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO") || name.ends_with("RUSTFLAGS")) {
        if name != "CARGO_HOME" {
            command.env_remove(name);
        }
    }
    command.env_remove("LEEWARD_PROFILE").env_remove("LEEWARD_CC_OPTIONS");
    command.current_dir(folder).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn write(folder: &Path, name: &str, content: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

const MANIFEST: &str = "\
[package]
name = \"plain\"
version = \"0.1.0\"
edition = \"2021\"
[profile.dev]
opt-level = 1
[workspace]
";

/// A build script runs on the way: it must not get flags that are for programs.
const BUILD: &str = "fn main() { assert!(std::env::var(\"CARGO_CFG_LEEWARD_OPTIONS\").is_ok()); }\n";

const MAIN: &str = "\
use std::time::{Duration, Instant};
#[inline(never)]
fn handle(id: u64) -> u64 {
    let began = Instant::now();
    let mut turns = id;
    while began.elapsed() < Duration::from_millis(20) { turns += 1 }
    if id % 2 == 1 { std::panic::panic_any(turns) }
    turns
}
fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let caught = (0..6).filter(|id| std::panic::catch_unwind(|| handle(*id)).is_err()).count();
    println!(\"caught {caught}\");
}
";

#[test]
fn a_program_that_says_nothing_of_the_profiler_is_recorded() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    write(here, "Cargo.toml", MANIFEST);
    write(here, "build.rs", BUILD);
    write(here, "src/main.rs", MAIN);
    let build =
        leeward(here, &["cargo", "--leeward-request-fn=plain::handle*:0", "build", "--offline", "--target-dir", "t"]);
    let said = text(&build.stderr);
    if said.contains("plugin is not built") {
        return Need::Profiler.missing(said);
    }
    if said.contains("there is no plugin") {
        return Need::RustcPlugin.missing(said);
    }
    assert!(build.status.success(), "{said}");
    let program = std::fs::read_dir(here.join("t")).unwrap().filter_map(|entry| {
        let program = entry.unwrap().path().join("debug/plain");
        (program.is_file() && !program.starts_with(here.join("t/debug"))).then_some(program)
    });
    let program = program.into_iter().next().expect("a program in the target's folder");
    // A busy machine may keep the clock from its CPU for 20 ms, but not every time.
    for attempt in 1.. {
        let out = format!("traces-{attempt}");
        let record = leeward(here, &["profile", "record", "--out", &out, "--", program.to_str().unwrap()]);
        assert!(
            record.status.success() && text(&record.stdout).contains("caught 3"),
            "{}{}",
            text(&record.stdout),
            text(&record.stderr)
        );
        let trace = std::fs::read_dir(here.join(&out)).unwrap().next().unwrap().unwrap().path();
        let stats = text(&leeward(here, &["profile", "stats", trace.to_str().unwrap()]).stdout);
        let requests = text(&leeward(here, &["profile", "requests", trace.to_str().unwrap(), "--json"]).stdout);
        if stats.contains("plain::handle") && requests.contains("\"id\":5") {
            return;
        }
        assert!(attempt < 6, "{stats}\n{requests}");
    }
}
