//! `leeward cargo`: records a Rust program whose source does not mention the profiler.

use leeward_testkit::require::Requirement;
use leeward_testkit::serial::serial_guard;
use std::path::Path;
use std::process::{Command, Output};

fn leeward(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leeward"));
    // The environment that cargo sets for this test must not reach the cargo that it runs.
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

/// A build script runs during the build; it must not get the flags for programs.
const BUILD: &str = "fn main() { assert!(std::env::var(\"CARGO_CFG_LEEWARD_OPTIONS\").is_ok()); }\n";

/// A small server loop: futures in wrappers, and a poll that waits for work.
const ASYNC: &str = "\
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
#[inline(never)]
fn work(micros: u64) {
    let began = Instant::now();
    let mut turns = 0_u64;
    while began.elapsed() < Duration::from_micros(micros) { for _ in 0..100 { turns = std::hint::black_box(turns + 1) } }
}
async fn cheap() { work(300) }
async fn dear() { work(6_000) }
struct Wrapped<F>(F);
impl<F: Future<Output = ()> + Unpin> Future for Wrapped<F> {
    type Output = ();
    #[inline(never)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> { Pin::new(&mut self.0).poll(context) }
}
fn boxed(turn: u64) -> Pin<Box<dyn Future<Output = ()>>> {
    if turn % 20 == 0 { Box::pin(Wrapped(Wrapped(Box::pin(dear())))) } else { Box::pin(Wrapped(Wrapped(Box::pin(cheap())))) }
}
fn main() {
    let mut context = Context::from_waker(Waker::noop());
    for turn in 1..=200 {
        mio::Poll.poll();
        assert!(boxed(turn).as_mut().poll(&mut context).is_ready());
    }
}
";

const MIO: &str = "\
pub struct Poll;
impl Poll {
    #[inline(never)]
    pub fn poll(&self) { for _ in 0..2 { std::thread::sleep(std::time::Duration::from_millis(4)) } }
}
";

#[test]
fn async_functions_are_named_as_they_were_written_and_waiting_is_no_request() {
    let _alone = serial_guard();
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    write(
        here,
        "Cargo.toml",
        &MANIFEST.replace("[workspace]", "[dependencies]\nmio = { path = \"mio\" }\n[workspace]"),
    );
    write(here, "src/main.rs", ASYNC);
    write(here, "mio/Cargo.toml", "[package]\nname = \"mio\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    write(here, "mio/src/lib.rs", MIO);
    let build = leeward(here, &["cargo", "build", "--offline", "--release"]);
    let printed = text(&build.stderr);
    if printed.contains("plugin is not built") {
        return Requirement::Profiler.missing(printed);
    }
    if printed.contains("there is no plugin") {
        return Requirement::RustcPlugin.missing(printed);
    }
    assert!(build.status.success(), "{printed}");
    let target = printed.lines().find_map(|line| line.strip_prefix("leeward: programs go to "));
    let program = here.join(target.expect(&printed)).join("plain");
    for attempt in 1.. {
        let out = format!("traces-{attempt}");
        let record = leeward(here, &["profile", "record", "--out", &out, "--", program.to_str().unwrap()]);
        assert!(record.status.success(), "{}", text(&record.stderr));
        let trace = std::fs::read_dir(here.join(&out)).unwrap().next().unwrap().unwrap().path();
        let trace = trace.to_str().unwrap();
        let ask = |arguments: &[&str]| leeward(here, &[&["profile"], arguments].concat());
        let dear = ask(&["requests", trace, "--request-fn", "plain::dear", "--json"]);
        let polls = ask(&["tail", trace, "--request-fn", "poll"]);
        let stats = text(&ask(&["stats", trace, "-p", "50"]).stdout);
        let suggested = text(&ask(&["tail", trace]).stderr);
        let (dear, printed) = (text(&dear.stdout), text(&dear.stderr));
        let polls = text(&polls.stdout);
        // Ten calls of `dear`; a poll of mio's takes longer than any request.
        let is_found = (8..=10).any(|count| dear.contains(&format!("\"requests\":{count},")));
        let is_told = polls.contains("plain::") && !polls.contains("mio::");
        // A row for each of the two futures, and none for their wrappers.
        let is_short = stats.matches("Wrapped").count() <= 2 && !stats.contains("Wrapped<plain::Wrapped");
        let is_suggested = suggested.contains("plain::") && !suggested.contains("  mio::");
        if is_found && is_told && is_short && is_suggested {
            return;
        }
        assert!(attempt < 6, "{dear}{printed}\n{polls}\n{stats}\n{suggested}");
    }
}

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
fn a_program_without_profiler_code_is_recorded() {
    let _alone = serial_guard();
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    write(here, "Cargo.toml", MANIFEST);
    write(here, "build.rs", BUILD);
    write(here, "src/main.rs", MAIN);
    let build =
        leeward(here, &["cargo", "--leeward-request-fn=plain::handle*:0", "build", "--offline", "--target-dir", "t"]);
    let printed = text(&build.stderr);
    if printed.contains("plugin is not built") {
        return Requirement::Profiler.missing(printed);
    }
    if printed.contains("there is no plugin") {
        return Requirement::RustcPlugin.missing(printed);
    }
    assert!(build.status.success(), "{printed}");
    let program = std::fs::read_dir(here.join("t")).unwrap().filter_map(|entry| {
        let program = entry.unwrap().path().join("debug/plain");
        (program.is_file() && !program.starts_with(here.join("t/debug"))).then_some(program)
    });
    let program = program.into_iter().next().expect("a program in the target's folder");
    // A busy machine may keep the profiler's clock from its CPU for 20 ms, but not every time.
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
