//! `leeward profile record`: runs a program with the profiler's run-time, and says where its traces are.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use anyhow::{Context, anyhow};
use leeward_profile::analysis::missing::missing;
use leeward_profile::format::meta::Engine;
use leeward_profile::trace::{Trace, ignore_progress};

use super::args::RecordArgs;
use super::children::wait_for_recording;
use super::control::{is_recording, options};
use super::info::summary;
use super::read::print_line;
use super::signals::{self, SignalForwarder};
use crate::failure::Failure;
use crate::stdout;

/// The run-time's library.
const LIBRARY: &str = "libleeward_rt.so";
/// Names the folder of the profiler's files.
const FOLDER_VAR: &str = "LEEWARD_PROFILER_DIR";
/// Where they are, seen from the program: installed, and in the build folder.
const SEARCH_FOLDERS: [&str; 3] = ["../lib/leeward", "../profiler", "profiler"];
/// Traces that are described one by one.
const DESCRIBED_MAX: usize = 5;

/// The command.
pub(super) fn record(args: &RecordArgs) -> Result<(), Failure> {
    let options = options(&args.recording)?;
    let out = &args.recording.out;
    let here = || format!("the folder for traces, {}", out.display());
    std::fs::create_dir_all(out).with_context(here).map_err(Failure::Input)?;
    let before = traces(out);
    let began = std::time::SystemTime::now();
    let Some((program, arguments)) = args.command.split_first() else {
        return Err(Failure::Input(anyhow!("no program to record")));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    let begin = if args.wait { "wait" } else { "on" };
    // Signals stay the program's: `attach` and `stop` ask by the socket.
    let setting = format!("{begin},signal=none,{options}");
    command.env("LEEWARD_PROFILE", &setting);
    let loaded = preload(&mut command, args.runtime.as_deref())?;
    // Signals to this process are meant for the program, and this process waits for its end.
    let passing = SignalForwarder::start()?;
    let name = || program.to_string_lossy().into_owned();
    let mut child = command.spawn().map_err(|error| spawn_failure(program, error))?;
    passing.set_program(child.id());
    if args.wait {
        print_line(&format!("process {0} waits: leeward profile attach {0}", child.id()));
    }
    passing.wait();
    let status = child.wait().with_context(name).map_err(Failure::Runtime)?;
    let ended = end_signal(status, passing.stop_signal());
    if !args.wait && ended.is_none() {
        wait_for_recording(&setting);
    }
    let fresh: Vec<PathBuf> =
        traces(out).into_iter().filter(|path| !before.contains(path) || is_newer(path, began)).collect();
    let (mut events, mut lives) = (0, false);
    for path in fresh.iter().take(DESCRIBED_MAX) {
        let summary = summarize(path)?;
        events += summary.events;
        lives |= summary.is_recording;
    }
    if fresh.len() > DESCRIBED_MAX {
        stdout::print(&format!("and {} more traces in {}", fresh.len() - DESCRIBED_MAX, out.display()))?;
    }
    if fresh.is_empty() && !args.wait && ended.is_none() {
        return Err(Failure::Runtime(anyhow!(
            "no trace was written. If nothing above says why: {} is not built with `leeward cc`, and {}",
            name(),
            if loaded {
                "is linked statically or does not accept libraries that are preloaded"
            } else {
                "`make profiler` has not built libleeward_rt.so, which would do for locks and the scheduler (or --runtime says where it is)"
            }
        )));
    }
    if let Some(number) = ended {
        let what = if fresh.is_empty() { "nothing was recorded" } else { "what was recorded is there" };
        let signal = signals::name(number);
        return Err(Failure::Signal { number, cause: anyhow!("{signal} ended {}; {what}", name()) });
    }
    if events == 0 && !fresh.is_empty() && fresh.len() <= DESCRIBED_MAX && !args.wait && !lives {
        return Err(Failure::Runtime(anyhow!("nothing at all was recorded of {}", name())));
    }
    if status.success() || passing.is_interrupted() {
        return Ok(());
    }
    Err(Failure::Runtime(anyhow!("{} ended with {status}; what was recorded is there", name())))
}

/// Signal by which the recording ended: one that this process was sent, or a hangup that the program did not survive.
fn end_signal(status: ExitStatus, asked: Option<i32>) -> Option<i32> {
    const HANGUP: i32 = 1;
    asked.or(status.signal().filter(|signal| *signal == HANGUP))
}

/// A trace in short.
#[derive(Default)]
pub(super) struct TraceSummary {
    events: u64,
    /// Whether its process is still recording.
    is_recording: bool,
}

/// Says what is missing in a trace, and what it holds.
pub(super) fn summarize(path: &Path) -> Result<TraceSummary, Failure> {
    let trace = match Trace::open(path, &mut ignore_progress) {
        Ok(trace) => trace,
        Err(error) => {
            print_line(&format!("warning: {error}"));
            return Ok(TraceSummary::default());
        }
    };
    let missing = missing(&trace, &mut ignore_progress).map_err(super::read::failure)?;
    // What is wrong comes before what was recorded.
    super::read::warn_of_damage(&trace);
    super::read::warn_of_missing(&trace, &missing);
    let lives = is_recording(&trace);
    if trace.counts().calls == 0 && trace.header().engine != Engine::None && !lives {
        let why = super::read::no_calls_reason(&trace);
        print_line(&format!("note: no call of a function was recorded; {why}"));
    }
    stdout::print(&summary(&trace))?;
    Ok(TraceSummary { events: trace.counts().events, is_recording: lives })
}

/// Why a program can't be run.
fn spawn_failure(program: &std::ffi::OsStr, error: std::io::Error) -> Failure {
    let program = program.to_string_lossy();
    Failure::Input(match error.kind() {
        ErrorKind::NotFound if program.contains('/') => anyhow!("{program}: there is no such program to record"),
        ErrorKind::NotFound => anyhow!("{program}: there is no such program to record in PATH; is it ./{program}?"),
        ErrorKind::PermissionDenied => anyhow!("{program} is no program, or may not be run"),
        _ => anyhow!(error).context(format!("{program} could not be run")),
    })
}

/// Lets the program load the run-time if there is one to load; one that has it already does not mind. Whether there is one.
fn preload(command: &mut Command, wanted: Option<&Path>) -> Result<bool, Failure> {
    let installed = || {
        let named = std::env::var_os(FOLDER_VAR).map(PathBuf::from);
        let own = std::env::current_exe().ok();
        let beside = own.as_deref().and_then(Path::parent);
        // Where `leeward cc` looks for its files, too.
        let places = beside.into_iter().flat_map(|folder| SEARCH_FOLDERS.map(|place| folder.join(place)));
        named.into_iter().chain(places).map(|folder| folder.join(LIBRARY)).find(|path| path.is_file())
    };
    let asked = wanted.map(Path::to_path_buf);
    if let Some(path) = asked.as_ref().filter(|path| !path.is_file()) {
        return Err(Failure::Input(anyhow!("{}: the run-time is not there", path.display())));
    }
    let Some(path) = asked.or_else(installed) else { return Ok(false) };
    let path = std::path::absolute(&path).context("the run-time").map_err(Failure::Input)?;
    let mut list = path.into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    command.env("LD_PRELOAD", list);
    Ok(true)
}

/// Whether something was written into a folder since: a process may have the id of an earlier one.
fn is_newer(folder: &Path, began: std::time::SystemTime) -> bool {
    std::fs::metadata(folder).and_then(|meta| meta.modified()).is_ok_and(|modified| modified >= began)
}

/// The folders in `out`.
fn traces(out: &Path) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(out).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}
