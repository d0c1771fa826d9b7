//! `leeward profile info`: shows the contents of a trace.

use leeward_profile::format::meta::Engine;
use leeward_profile::span::format_nanos;
use leeward_profile::trace::Trace;
use serde_json::json;

use super::args::InfoArgs;
use super::control::is_recording;
use super::read::{OpenTrace, without_path};
use crate::failure::Failure;
use crate::stdout::{self, sanitize};

/// Maximum of threads and of modules that are listed.
const LISTED_MAX: usize = 20;

/// Runs the command.
pub(super) fn info(args: &InfoArgs) -> Result<(), Failure> {
    let mut reading = OpenTrace::open(&args.source.trace, &args.source.symbols)?;
    let survey = reading.symbols.survey();
    let trace = &reading.trace;
    if !args.source.json {
        let mut text = summary(trace);
        if !reading.omitted.is_empty() {
            text += "\nomitted at times, to keep recording within its share of the CPU\n";
        }
        for (name, one) in reading.omitted.iter().take(LISTED_MAX) {
            let share = one.missed as f64 * 100.0 / one.calls.max(1) as f64;
            text += &format!(
                "  {}: {share:.0} % of about {} calls, {} each\n",
                sanitize(name),
                one.calls,
                format_nanos(one.length)
            );
        }
        if reading.omitted.len() > LISTED_MAX {
            text += &format!("  and {} more\n", reading.omitted.len() - LISTED_MAX);
        }
        text += "\nmodules\n";
        for (path, found) in survey.iter().take(LISTED_MAX) {
            let found = found.as_ref().err().map_or("symbols and lines found", |why| without_path(path, why));
            text += &format!("  {}: {}\n", sanitize(path), sanitize(found));
        }
        if survey.len() > LISTED_MAX {
            text += &format!("  and {} more\n", survey.len() - LISTED_MAX);
        }
        return stdout::print(&text);
    }
    let header = trace.header();
    let (files, bytes) = trace.size();
    let threads = trace.threads().map(|thread| json!({"tid": thread.tid, "name": thread.name}));
    let modules = survey.iter().map(|(path, found)| json!({"path": path, "missing": found.as_ref().err()}));
    let left_out = reading
        .omitted
        .iter()
        .map(|(name, one)| json!({"name": name, "calls": one.calls, "missed": one.missed, "mean_ns": one.length}));
    let value = json!({
        "command": header.command, "pid": header.pid, "writer": header.writer, "engine": header.engine,
        "call_threshold_ns": header.call_threshold, "lock_threshold_ns": header.lock_threshold,
        "resolution_ns": trace.resolution(), "architecture": header.architecture,
        "wall_start_ns": header.clock.wall(trace.counts().first), "span_ns": trace.counts().span(),
        "recording_ns": trace.duration(),
        "files": files, "bytes": bytes, "bytes_per_event": bytes_per_event(trace), "counts": trace.counts(),
        "request_totals": trace.request_totals().last(), "clock_drift_ns": trace.drift(), "notes": trace.notes(), "missing": reading.missing,
        "left_out": left_out.collect::<Vec<_>>(),
        "end": trace.end().map(|end| end.description()), "damage": trace.damage().to_string().lines().collect::<Vec<_>>(),
        "threads": threads.collect::<Vec<_>>(), "modules": modules.collect::<Vec<_>>(),
    });
    stdout::print(&value.to_string())
}

fn bytes_per_event(trace: &Trace) -> f64 {
    trace.counts().event_bytes as f64 / trace.counts().events.max(1) as f64
}

/// Duration of the recording; without it, the time between the first and the last event.
fn describe_duration(trace: &Trace) -> String {
    match trace.duration() {
        Some(lasted) => format!("{} of recording", format_nanos(lasted)),
        None => format!("{} from the first event to the last", format_nanos(trace.counts().span())),
    }
}

/// Summarizes a trace in a few lines.
pub(super) fn summary(trace: &Trace) -> String {
    let (header, counts) = (trace.header(), trace.counts());
    let (files, bytes) = trace.size();
    let mut text = format!("{}: {} (process {})\n", trace.path().display(), sanitize(&header.command), header.pid);
    text += &format!(
        "  {}, {:.1} MB in {files} file{}, written by {}\n",
        describe_duration(trace),
        bytes as f64 / 1e6,
        if files == 1 { "" } else { "s" },
        sanitize(&header.writer)
    );
    text += &if header.engine == Engine::Samples {
        let interval = format_nanos(trace.resolution());
        format!(
            "  calls: from samples {interval} of CPU time apart; shorter ones are seen in proportion to their time\n"
        )
    } else {
        format!(
            "  calls: engine {}, from {} on, resolution {}; locks from {} on\n",
            header.engine.description(),
            format_nanos(header.call_threshold),
            if header.resolution == 0 { "exact".into() } else { format_nanos(trace.resolution()) },
            format_nanos(header.lock_threshold)
        )
    };
    if let Some(totals) = trace.request_totals().last() {
        let of_windows = if trace.pace().stopped > 0 { " in the windows" } else { "" };
        let missing = if trace.all_requests().is_some() { "" } else { ", of which a part is missing" };
        text += &format!(
            "  {} requests{of_windows}: here are the {} slowest, and {} of the others{missing}\n",
            totals.seen, totals.slow, totals.sampled
        );
    }
    text += &format!(
        "  {} events of {:.1} bytes: {} calls, {} locks, {} waits, {} of requests, {} of the scheduler; {} lost\n",
        counts.events,
        bytes_per_event(trace),
        counts.calls,
        counts.locks,
        counts.waits,
        counts.requests,
        counts.scheduler,
        counts.lost
    );
    if header.resolution > 0 && header.engine == Engine::Tick {
        text += "  a call shorter than a tick is recorded if a tick falls into it, and then lasts one tick\n";
    }
    text += &match trace.end() {
        _ if is_recording(trace) => format!("  no end yet: process {} is still recording\n", header.pid),
        None => "  no end record, as when who writes it is killed\n".into(),
        Some(end) => format!("  end: {}\n", end.description()),
    };
    for note in trace.notes().iter().filter(|note| note.level == 0) {
        text += &format!("  note: {}\n", sanitize(&note.text));
    }
    let threads: Vec<String> =
        trace.threads().take(LISTED_MAX).map(|thread| sanitize(&trace.thread_name(thread.number))).collect();
    let more = trace.threads().count().saturating_sub(LISTED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    text += &format!("  threads: {}{more}\n", threads.join(", "));
    text
}
