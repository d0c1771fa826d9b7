//! `leeward profile join`: joins recordings of several processes.
//!
//! Contains no analysis; that is in `leeward_profile::join`.

mod args;
mod text;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use leeward_profile::join::{JoinError, Joined, JoinedTimeline};
use leeward_profile::symbols::{Options, Symbols};
use leeward_profile::trace::{Trace, TraceError};
use leeward_profile::{export, render};
use serde_json::json;

pub(crate) use args::JoinArgs;

use super::read::{failure, print_line, progress};
use crate::failure::Failure;
use crate::hangup;
use crate::interrupt::{Interrupt, StopMode};
use crate::stdout;

/// Limit of examined entries of a folder.
const ENTRIES_MAX: usize = 10_000;

/// Runs the command.
pub(super) fn join(args: &JoinArgs) -> Result<(), Failure> {
    let interrupt = Interrupt::listen(StopMode::Graceful)?;
    hangup::stop_on_hangup(&interrupt);
    let mut traces = Vec::new();
    for (path, is_named) in expanded(&args.traces) {
        let trace = match Trace::open(&path, &mut progress(&interrupt, "reading")) {
            // A process that executes another program at once may leave a part of a header behind.
            Err(error @ (TraceError::NoHeader(_) | TraceError::NotATrace(_))) if !is_named => {
                print_line(&format!("warning: left out: {error}"));
                continue;
            }
            opened => opened.map_err(failure)?,
        };
        // Or an empty recording.
        if is_named || trace.counts().events > 0 {
            warn_of_damage(&trace);
            traces.push(trace);
        }
    }
    let mut symbols: Vec<Symbols> =
        traces.iter().map(|trace| Symbols::new(trace, Options { folders: args.symbols.clone() })).collect();
    let joined = Joined::new(&traces, &mut progress(&interrupt, "joining")).map_err(join_failure)?;
    joined.warnings().iter().for_each(|warning| print_line(&format!("warning: {warning}")));

    let mut watch = progress(&interrupt, "comparing requests");
    let mut tail = joined.tail(&mut symbols, args.slowest / 100.0, &mut watch).map_err(failure)?;
    let tree = joined.tree(args.trace).ok_or_else(|| {
        let front = &tail.front;
        Failure::Input(anyhow!("no request of {front} belongs to the trace {:032x}", args.trace.unwrap_or_default()))
    })?;
    if let Some(folder) = &args.out {
        let mut watch = progress(&interrupt, "drawing the trace");
        let timeline = joined.timeline(&tree, &mut symbols, &mut watch).map_err(failure)?;
        write(folder, &timeline, &text::commands(&traces)).map_err(Failure::Runtime)?;
    }
    warn_of_symbols(&symbols);
    if args.json {
        if let Some(tail) = &mut tail.tail {
            tail.findings.truncate(args.limit);
        }
        let process = |(name, requests, clock)| json!({"name": name, "requests": requests, "clock": clock});
        let processes: Vec<_> = joined.processes().map(process).collect();
        let value = json!({"tail": tail, "trace": tree, "processes": processes, "warnings": joined.warnings()});
        return stdout::print(&value.to_string());
    }
    let mut out = text::tail(&tail, args.limit);
    out += &text::tree(&tree, args.trace.is_some());
    out += &text::clocks(&joined);
    if let Some(folder) = &args.out {
        out += &format!("\nwrote {}\n", folder.join("trace.html").display());
        out += &format!("wrote {}\n", folder.join("trace.pftrace").display());
    }
    stdout::print(&out)
}

/// Replaces folders that hold folders of traces by these, sorted by name. Also returns whether the
/// user named the folder itself.
fn expanded(paths: &[PathBuf]) -> Vec<(PathBuf, bool)> {
    let has_segments =
        |folder: &Path| entries(folder).iter().any(|path| path.extension().is_some_and(|end| end == "lwt"));
    let mut all = Vec::new();
    for path in paths {
        let mut inner: Vec<PathBuf> = Vec::new();
        if path.is_dir() && !has_segments(path) {
            inner.extend(entries(path).into_iter().filter(|path| path.is_dir() && has_segments(path)));
            inner.sort();
        }
        if inner.is_empty() {
            all.push((path.clone(), true));
        }
        all.extend(inner.into_iter().map(|path| (path, false)));
    }
    all
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(ENTRIES_MAX);
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// Reports damage on stderr, with the recording's path.
fn warn_of_damage(trace: &Trace) {
    for line in trace.damage().to_string().lines() {
        print_line(&format!("warning: {}: {line}", trace.path().display()));
    }
}

fn write(folder: &Path, joined: &JoinedTimeline, commands: &str) -> anyhow::Result<()> {
    let path = |name| folder.join(name);
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let page = path("trace.html");
    std::fs::write(&page, render::page(&joined.timeline, commands)).with_context(|| page.display().to_string())?;
    let perfetto = path("trace.pftrace");
    let write = || -> anyhow::Result<()> {
        let mut out = BufWriter::new(File::create(&perfetto)?);
        export::export_joined(joined, &mut out)?;
        Ok(out.flush()?)
    };
    write().with_context(|| perfetto.display().to_string())
}

fn warn_of_symbols(symbols: &[Symbols]) {
    let mut missing: Vec<(String, String)> = symbols.iter().flat_map(Symbols::missing).collect();
    missing.sort();
    missing.dedup();
    for (module, reason) in missing {
        print_line(&format!("warning: symbols of {module}: {reason}"));
    }
}

fn join_failure(error: JoinError) -> Failure {
    match error {
        JoinError::Trace(error) => failure(error),
        other => Failure::Input(anyhow!(other)),
    }
}
