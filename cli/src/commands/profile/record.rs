//! `leeward profile record`: runs a program with the profiler's run-time, and prints where its
//! traces are.

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
use super::attached;
use super::children::wait_for_recording;
use super::control::{is_recording, options};
use super::info::summary;
use super::read::print_line;
use super::signals::{self, SignalForwarder};
use crate::failure::Failure;
use crate::stdout;

/// File name of the run-time library.
const LIBRARY: &str = "libleeward_rt.so";
/// Environment variable with the folder of the profiler's files.
const FOLDER_VAR: &str = "LEEWARD_PROFILER_DIR";
/// Folders of these files, relative to the program: installed, and in the build folder.
const SEARCH_FOLDERS: [&str; 3] = ["../lib/leeward", "../profiler", "profiler"];
/// Maximum of traces that are described individually.
const DESCRIBED_MAX: usize = 5;

/// Runs the command.
pub(super) fn record(args: &RecordArgs) -> Result<(), Failure> {
    if !args.pid.is_empty() {
        return attached::record(args);
    }
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
    // The program keeps its signals: `attach` and `stop` use the socket.
    let setting = format!("{begin},signal=none,{options}");
    command.env("LEEWARD_PROFILE", &setting);
    let loaded = preload(&mut command, args.runtime.as_deref())?;
    if !loaded && !args.wait {
        print_line(&format!(
            "warning: {LIBRARY} was not found (build it by `make profiler`, or name it by --runtime): only a program that is built with `leeward cc` leaves a trace. Any other, once it runs, is recorded by `leeward profile record --pid`"
        ));
    }
    // This process forwards its signals to the program, and waits for the program's end.
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
            "no trace was written. If no message above gives the reason: {} is not built with `leeward cc`, and {}. While it runs, `leeward profile record --pid` records it as it is",
            name(),
            if loaded {
                "is linked statically or does not accept libraries that are preloaded"
            } else {
                "the run-time was not found"
            }
        )));
    }
    if let Some(number) = ended {
        let what = if fresh.is_empty() { "nothing was recorded" } else { "the trace is kept" };
        let signal = signals::name(number);
        return Err(Failure::Signal { number, cause: anyhow!("{signal} ended {}; {what}", name()) });
    }
    if events == 0 && !fresh.is_empty() && fresh.len() <= DESCRIBED_MAX && !args.wait && !lives {
        return Err(Failure::Runtime(anyhow!("no event of {} was recorded", name())));
    }
    if status.success() || passing.is_interrupted() {
        return Ok(());
    }
    Err(Failure::Runtime(anyhow!("{} ended with {status}; the trace is kept", name())))
}

/// Signal that ended the recording: one that this process received, or a hangup that killed the
/// program.
fn end_signal(status: ExitStatus, asked: Option<i32>) -> Option<i32> {
    const HANGUP: i32 = 1;
    asked.or(status.signal().filter(|signal| *signal == HANGUP))
}

/// Summary of a trace.
#[derive(Default)]
pub(super) struct TraceSummary {
    events: u64,
    /// True if the process is still recording.
    is_recording: bool,
}

/// Prints the summary of a trace, and warnings about missing parts.
pub(super) fn summarize(path: &Path) -> Result<TraceSummary, Failure> {
    let trace = match Trace::open(path, &mut ignore_progress) {
        Ok(trace) => trace,
        Err(error) => {
            print_line(&format!("warning: {error}"));
            return Ok(TraceSummary::default());
        }
    };
    let missing = missing(&trace, &mut ignore_progress).map_err(super::read::failure)?;
    // Print the problems before the contents.
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

/// Failure to run the program.
fn spawn_failure(program: &std::ffi::OsStr, error: std::io::Error) -> Failure {
    let program = program.to_string_lossy();
    Failure::Input(match error.kind() {
        ErrorKind::NotFound if program.contains('/') => anyhow!("{program}: there is no such program to record"),
        ErrorKind::NotFound => anyhow!("{program}: there is no such program to record in PATH; is it ./{program}?"),
        ErrorKind::PermissionDenied => anyhow!("{program} is no program, or may not be run"),
        _ => anyhow!(error).context(format!("{program} could not be run")),
    })
}

/// Preloads the run-time if a library is found; a program that contains the run-time ignores it.
/// Returns true if one was found.
fn preload(command: &mut Command, requested: Option<&Path>) -> Result<bool, Failure> {
    let installed = || {
        let named = std::env::var_os(FOLDER_VAR).map(PathBuf::from);
        let own = std::env::current_exe().ok();
        let beside = own.as_deref().and_then(Path::parent);
        // `leeward cc` searches the same folders.
        let candidates = beside.into_iter().flat_map(|folder| SEARCH_FOLDERS.map(|path| folder.join(path)));
        named.into_iter().chain(candidates).map(|folder| folder.join(LIBRARY)).find(|path| path.is_file())
    };
    let asked = requested.map(Path::to_path_buf);
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

/// True if the folder has changed since `began`: a process may have the id of an earlier one.
fn is_newer(folder: &Path, began: std::time::SystemTime) -> bool {
    std::fs::metadata(folder).and_then(|meta| meta.modified()).is_ok_and(|modified| modified >= began)
}

/// Folders in `out`.
fn traces(out: &Path) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(out).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}
