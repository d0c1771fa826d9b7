//! Programs and kernel features that some tests need and some machines lack.
//!
//! A test without one of them calls [`Requirement::missing`] and returns. The call prints a line,
//! and appends it to the file named by `LEEWARD_SKIPS`. Where `LEEWARD_REQUIRE` lists the
//! requirement, the call panics instead: in CI every required test must run.
//! `profiler/tests/skips.py` does the same for the tests in Python.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

/// Comma-separated list of [requirements](Requirement) whose absence fails a test; an unknown name
/// is an error.
pub const REQUIRE: &str = "LEEWARD_REQUIRE";

/// File to which a line is appended for each skipped test, and for each attempt on a busy machine.
pub const SKIPS: &str = "LEEWARD_SKIPS";

/// A program or kernel feature that tests need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requirement {
    /// memcached and its clients: libmemcached's tools, pymemcache (`scripts/setup kv`).
    Memcached,
    /// The profiler's compiler plugin and run-time (`make profiler`).
    Profiler,
    /// The profiler's plugin for the LLVM of rustc (`make profiler`, where that LLVM's headers
    /// are).
    RustcPlugin,
    /// io_uring, which some containers forbid.
    IoUring,
    /// Scheduler events from the kernel, which some containers forbid.
    Scheduler,
    /// Prometheus's reading of metrics (`scripts/setup promtool`).
    Promtool,
    /// Readers of the profiler's exports: pandas, pyarrow, Perfetto's definitions
    /// (`profiler/tests/readers`).
    Readers,
    /// OpenTelemetry's definitions of OTLP (`scripts/setup otlp`).
    Otlp,
    /// Programs that recipes are for: nginx, HAProxy, Envoy, Kubernetes' schemas (`scripts/setup
    /// recipes`).
    Recipes,
}

impl Requirement {
    const ALL: [Requirement; 9] = [
        Requirement::Memcached,
        Requirement::Profiler,
        Requirement::RustcPlugin,
        Requirement::IoUring,
        Requirement::Scheduler,
        Requirement::Promtool,
        Requirement::Readers,
        Requirement::Otlp,
        Requirement::Recipes,
    ];

    /// Returns the name in `LEEWARD_REQUIRE`.
    pub fn name(self) -> &'static str {
        match self {
            Requirement::Memcached => "memcached",
            Requirement::Profiler => "profiler",
            Requirement::RustcPlugin => "rustc_plugin",
            Requirement::IoUring => "io_uring",
            Requirement::Scheduler => "scheduler",
            Requirement::Promtool => "promtool",
            Requirement::Readers => "readers",
            Requirement::Otlp => "otlp",
            Requirement::Recipes => "recipes",
        }
    }

    /// Returns whether `LEEWARD_REQUIRE` lists the requirement.
    ///
    /// # Panics
    /// If `LEEWARD_REQUIRE` contains an unknown name.
    pub fn is_required(self) -> bool {
        let list = std::env::var(REQUIRE).unwrap_or_default();
        parse(&list).unwrap_or_else(|error| panic!("{REQUIRE}: {error}")).contains(&self)
    }

    /// Reports that the running test is skipped because the requirement is missing. The test must
    /// return next.
    ///
    /// # Panics
    /// If `LEEWARD_REQUIRE` lists the requirement.
    pub fn missing(self, why: impl Display) {
        assert!(!self.is_required(), "{} is required and missing: {why}", self.name());
        note("skipped", self.name(), &why.to_string());
    }
}

/// Attempts of a test on a busy machine.
const ATTEMPTS: usize = 5;

/// The pause after the first failed attempt; each further pause is twice as long, because other
/// work lasts seconds.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Repeats an attempt that fails because the machine was too busy.
///
/// An attempt returns the reason if other work prevented the observation. Each such attempt is
/// recorded as a line, which CI counts. A pause precedes each further attempt.
///
/// # Panics
/// After five attempts, for any `LEEWARD_REQUIRE`: a test without observations shows nothing.
pub fn retry_if_busy(attempt: impl FnMut() -> Result<(), String>) {
    let busy = |why: &str| note("busy", "", why);
    assert!(succeeds(attempt, busy, std::thread::sleep), "the machine was too busy for {ATTEMPTS} attempts");
}

fn succeeds(
    mut attempt: impl FnMut() -> Result<(), String>,
    mut busy: impl FnMut(&str),
    mut sleep: impl FnMut(Duration),
) -> bool {
    (0..ATTEMPTS).any(|number| {
        if let Some(doublings) = number.checked_sub(1) {
            sleep(FIRST_PAUSE * (1 << doublings));
        }
        attempt().inspect_err(|why| busy(why)).is_ok()
    })
}

/// Parses a comma-separated list of requirements.
///
/// # Errors
/// A message about the first unknown name.
pub fn parse(list: &str) -> Result<Vec<Requirement>, String> {
    let words = list.split(',').map(str::trim).filter(|word| !word.is_empty());
    words
        .map(|word| {
            Requirement::ALL.into_iter().find(|need| need.name() == word).ok_or_else(|| {
                let known = Requirement::ALL.map(Requirement::name).join(", ");
                format!("unknown requirement `{word}` (known: {known})")
            })
        })
        .collect()
}

/// Writes a line: kind, requirement, test, reason, separated by tabs.
fn note(kind: &str, need: &str, why: &str) {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(|path| path.file_stem()).map(|name| name.to_string_lossy().into_owned());
    // Cargo appends a hash to the name of a test's program.
    let program = program.as_deref().and_then(|name| name.rsplit_once('-')).map_or("?", |(name, _)| name).to_string();
    let thread = std::thread::current();
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = format!("{kind}\t{need}\t{program}::{}\t{why}\n", thread.name().unwrap_or("?"));
    eprint!("{}", line.replace('\t', " "));
    if let Some(path) = std::env::var_os(SKIPS) {
        // A single write, because tests run in parallel.
        let file = OpenOptions::new().create(true).append(true).open(&path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_requirements_are_accepted() {
        assert_eq!(parse(""), Ok(Vec::new()));
        assert_eq!(
            parse("memcached, profiler,io_uring"),
            Ok(vec![Requirement::Memcached, Requirement::Profiler, Requirement::IoUring])
        );
        for need in Requirement::ALL {
            assert_eq!(parse(need.name()), Ok(vec![need]));
        }
        assert!(parse("memcached,iouring").unwrap_err().starts_with("unknown requirement `iouring`"));
    }

    #[test]
    fn a_test_fails_when_the_machine_was_too_busy_each_time() {
        for (busy_attempts, expected) in [(0, true), (4, true), (5, false), (9, false)] {
            let (mut attempts, mut notes, mut pauses) = (0, Vec::new(), Vec::new());
            let attempt = || {
                attempts += 1;
                if attempts > busy_attempts { Ok(()) } else { Err(format!("attempt {attempts}")) }
            };
            let note = |why: &str| notes.push(why.to_string());
            assert_eq!(succeeds(attempt, note, |pause| pauses.push(pause.as_secs())), expected, "{busy_attempts}");
            assert_eq!(notes.len(), busy_attempts.min(ATTEMPTS));
            // No pause after the last attempt.
            assert_eq!(pauses, [1, 2, 4, 8][..attempts - 1]);
        }
    }

    /// Both read the same environment: a name that only one of them knows fails the other's whole
    /// run.
    #[test]
    fn python_tests_use_the_same_requirement_names() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiler/tests/skips.py");
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let line = text.lines().find_map(|line| line.strip_prefix("KNOWN = (")).expect("a line with the words");
        let words: Vec<&str> =
            line.trim_end_matches(')').split(',').map(|word| word.trim().trim_matches('"')).collect();
        assert_eq!(words, Requirement::ALL.map(Requirement::name));
    }

    /// Fails if this run's environment is misspelt, even if no test misses a requirement.
    #[test]
    fn the_requirements_of_this_run_are_valid() {
        if let Ok(list) = std::env::var(REQUIRE) {
            assert_eq!(parse(&list).err(), None);
        }
    }
}
