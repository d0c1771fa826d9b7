//! Parts that all reading subcommands share: opening a trace with a progress bar, its symbols, and
//! reporting damage.

use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Error, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use leeward_profile::analysis::Selection;
use leeward_profile::analysis::missing::{RecordingGaps, missing};
use leeward_profile::analysis::names::{is_called, without_closures};
use leeward_profile::analysis::select::{Functions, similar_names};
use leeward_profile::analysis::suggest::{Candidate, candidates};
use leeward_profile::format::meta::{Engine, OmittedFunction};
use leeward_profile::format::request_totals::RequestTotals;
use leeward_profile::span::format_nanos;
use leeward_profile::symbols::{Options, Symbols, naming_hint};
use leeward_profile::trace::{Damage, Progress, ProgressCallback, Trace, TraceError};

use super::args::RequestArgs;
use super::control::is_recording;
use crate::failure::{Failure, file_failure};
use crate::hangup;
use crate::interrupt::{Interrupt, StopMode};
use crate::stdout::sanitize;
use crate::table::{WIDTH, wrap};

/// An open trace with its symbols.
pub(super) struct OpenTrace {
    pub(super) trace: Trace,
    pub(super) symbols: Symbols,
    pub(super) missing: RecordingGaps,
    /// Functions that were omitted at times, with their names; those with the most missing calls.
    pub(super) omitted: Vec<(String, OmittedFunction)>,
    interrupt: Interrupt,
}

impl OpenTrace {
    /// Opens a trace, and reports damage on stderr.
    pub(super) fn open(path: &Path, folders: &[PathBuf]) -> Result<OpenTrace, Failure> {
        let opened = OpenTrace::open_with(folders, |watch| Ok((Trace::open(path, watch)?, ())));
        opened.map(|(reading, ())| reading)
    }

    /// Like [`OpenTrace::open`], but `open` opens the trace and returns an additional value.
    pub(super) fn open_with<T>(
        folders: &[PathBuf],
        open: impl FnOnce(&mut ProgressCallback<'_>) -> Result<(Trace, T), TraceError>,
    ) -> Result<(OpenTrace, T), Failure> {
        let interrupt = Interrupt::listen(StopMode::Graceful)?;
        hangup::stop_on_hangup(&interrupt);
        let (trace, extra) = {
            let mut watch = progress(&interrupt, "reading");
            open(&mut watch).map_err(failure)?
        };
        warn_of_damage(&trace);
        let missing = missing(&trace, &mut progress(&interrupt, "estimating what is missing")).map_err(failure)?;
        warn_of_missing(&trace, &missing);
        let mut symbols = Symbols::new(&trace, Options { folders: folders.to_vec() });
        let left_out = omitted(&trace, &mut symbols);
        Ok((OpenTrace { trace, symbols, missing, omitted: left_out, interrupt }, extra))
    }

    /// Returns a callback that shows the progress of reading and stops it on an interrupt.
    pub(super) fn progress(&self, title: &str) -> impl FnMut(Progress) -> ControlFlow<()> + use<> {
        progress(&self.interrupt, title)
    }

    /// Warns on stderr about missing symbols.
    pub(super) fn warn_of_symbols(&self) {
        for (module, reason) in self.symbols.missing() {
            print_line(&format!("warning: symbols of {module}: {}", without_path(&module, &reason)));
        }
    }

    /// Failure for an empty selection, with the names that could have been selected.
    pub(super) fn selection_failure(&mut self, what: &RequestArgs, unfinished: u64) -> Failure {
        let Some(name) = &what.request_fn else {
            return Failure::Input(anyhow!(
                "no request ended during the recording{}",
                if unfinished > 0 { format!("; {unfinished} requests are unfinished") } else { String::new() }
            ));
        };
        let mut watch = self.progress("looking for such a name");
        let names = match similar_names(&self.trace, &mut self.symbols, name, &mut watch) {
            Ok(names) => names,
            Err(error) => return failure(error),
        };
        if let Err(failure) = self.suggest() {
            return failure;
        }
        let why = if self.is_sampled() {
            "no sample fell into it, or its calls take less than"
        } else {
            "its calls take less than"
        };
        let names: Vec<String> = names.iter().map(|name| format!("`{}`", sanitize(name))).collect();
        let similar =
            if names.is_empty() { String::new() } else { format!("; recorded functions include {}", names.join(", ")) };
        Failure::Input(anyhow!(
            "no call of `{}` was recorded: the program has no such function, or {why} {}{similar}",
            sanitize(name),
            format_nanos(self.trace.header().call_threshold)
        ))
    }

    /// Names the selected requests, as the end of a phrase after a number.
    pub(super) fn describe_requests(&self, what: &RequestArgs) -> String {
        match &what.request_fn {
            Some(name) => format!("recorded calls of {}", sanitize(name)),
            None => "requests".into(),
        }
    }

    /// Note on recorded calls that are missing from a selection; empty for requests that the
    /// program marks.
    pub(super) fn coverage_note(&self, what: &RequestArgs) -> String {
        let least = format_nanos(self.trace.header().call_threshold);
        let Some(name) = &what.request_fn else { return String::new() };
        if self.is_sampled() {
            return format!(
                "Calls were reconstructed from samples {least} apart: of shorter ones only some are seen.\n"
            );
        }
        let mut note = format!("Calls that took less than {least} were not recorded, and are not counted.\n");
        let out = self.omitted.iter().find(|(function, one)| {
            one.missed > 0 && (is_called(function, name) || is_called(without_closures(function), name))
        });
        if let Some((_, one)) = out {
            let share = one.missed as f64 * 100.0 / one.calls.max(1) as f64;
            note += &format!(
                "{share:.0} % of the calls of {name} were omitted, to keep recording within its share of the CPU. They are not \
                 counted, either.\n"
            );
        }
        note
    }

    /// Note on a trace that has only some of the requests: how many.
    pub(super) fn kept_note(&self) -> String {
        let Some(totals) = self.trace.request_totals().last() else { return String::new() };
        let RequestTotals { seen, slow, sampled, .. } = totals;
        if self.trace.all_requests().is_none() {
            let text = format!(
                "Of {seen} requests the recorder chose {}, but the trace lacks a part of these: all numbers are of the rest.",
                slow + sampled
            );
            return wrap(&text, 0, WIDTH);
        }
        let others = match sampled {
            0 => "none of the others".into(),
            sampled => format!("{sampled} of the others, which stand for all"),
        };
        wrap(&format!("Of {seen} requests the {slow} slowest were recorded, and {others}."), 0, WIDTH)
    }

    /// Returns the requested selection, or an error if nothing can be selected.
    pub(super) fn selection(&mut self, what: &RequestArgs) -> Result<Selection, Failure> {
        match &what.request_fn {
            Some(name) if self.trace.counts().calls == 0 => {
                Err(Failure::Input(anyhow!("no call of `{name}` was recorded; {}", no_calls_reason(&self.trace))))
            }
            Some(name) => self.select_calls(name, what),
            // The recording has noted that it could not time requests.
            None if self.is_sampled() && lacks_requests(&self.trace) => {
                Err(Failure::Input(anyhow!("no request was timed; `stats` shows where the time goes")))
            }
            None if self.trace.counts().requests == 0 && self.is_sampled() => {
                self.suggest()?;
                Err(Failure::Input(anyhow!(
                    "no request was seen: no answer over a connection or, if it was recorded with --request-fn, no call of that \
                     function; `stats` shows where the time goes"
                )))
            }
            None if self.trace.counts().requests == 0 => {
                self.suggest()?;
                Err(Failure::Input(anyhow!(
                    "the program marks no requests: name the function whose calls are requests with --request-fn NAME, or see docs/profile.md"
                )))
            }
            None => Ok(Selection::Marked),
        }
    }

    /// Selects the calls of a function; prints a note if other calls may be better.
    fn select_calls(&mut self, name: &str, what: &RequestArgs) -> Result<Selection, Failure> {
        let mut watch = self.progress("looking for the function");
        let found = Functions::find(&self.trace, &mut self.symbols, name, &mut watch).map_err(failure)?;
        if found.is_empty() {
            return Err(self.selection_failure(what, 0));
        }
        if !found.inlined_into.is_empty() {
            let around: Vec<String> = found.inlined_into.iter().map(|name| format!("`{name}`")).collect();
            let around = around.join(", ");
            print_line(&format!("note: `{name}` is inlined into {around}: each recorded call of that function counts"));
        }
        if let Some((caller, times)) = &found.repeat_caller {
            print_line(&format!(
                "note: `{name}` is called {times:.1} times per call of `{caller}`: if these are one request, use --request-fn '{caller}'"
            ));
        }
        Ok(Selection::CallsOf(found))
    }

    /// True if calls were reconstructed from samples.
    pub(super) fn is_sampled(&self) -> bool {
        self.trace.header().engine == Engine::Samples
    }

    /// Lists on stderr the functions that may be called once per request.
    fn suggest(&mut self) -> Result<(), Failure> {
        let mut watch = self.progress("looking for requests");
        suggest(&self.trace, &mut self.symbols, None, &mut watch)
    }
}

/// Lists on stderr the functions of a trace that may be called once per request. `tried` is one
/// that is not.
pub(super) fn suggest(
    trace: &Trace,
    symbols: &mut Symbols,
    tried: Option<&str>,
    watch: &mut ProgressCallback<'_>,
) -> Result<(), Failure> {
    suggestions(trace, symbols, tried, watch)?.iter().for_each(|line| print_line(line));
    Ok(())
}

/// Returns the lines of [`suggest`]; none if there are no such functions.
fn suggestions(
    trace: &Trace,
    symbols: &mut Symbols,
    tried: Option<&str>,
    watch: &mut ProgressCallback<'_>,
) -> Result<Vec<String>, Failure> {
    let is_sampled = trace.header().engine == Engine::Samples;
    // Who could not time requests can't time calls, either.
    if is_sampled && lacks_requests(trace) {
        return Ok(Vec::new());
    }
    let mut candidates = candidates(trace, symbols, tried, watch).map_err(failure)?;
    if is_sampled {
        // A probe needs the name of a symbol.
        candidates.retain(|one| one.is_in_file && !one.function.contains("+0x") && !one.function.starts_with('['));
    }
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    let about: &[&str] = if is_sampled {
        &["note: functions that may handle a request, the likeliest first. To time each call of one, record again:"]
    } else {
        &[
            "note: candidates for --request-fn, the likeliest first: functions that are called once per request. If a function is called",
            "several times per request, such as a state machine, each call is only a part of a request.",
        ]
    };
    let line = |one: &Candidate| {
        let share = one.share;
        if is_sampled {
            let (pid, name) = (trace.header().pid, one.function.replace('\'', "'\\''"));
            return format!(
                "  leeward profile record --pid {pid} --request-fn '{name}'     {share:.0} % of the program's time"
            );
        }
        format!(
            "  {}: {:.0} calls per second, half within {}, 99 % within {}, {share:.0} % of the program's time",
            one.function,
            one.per_second,
            format_nanos(one.p50),
            format_nanos(one.p99)
        )
    };
    Ok(about.iter().map(|line| (*line).to_string()).chain(candidates.iter().map(line)).collect())
}

/// Returns whether there are no requests, and a note of the recording warns of them (topic 5): it
/// could not time any.
fn lacks_requests(trace: &Trace) -> bool {
    trace.counts().requests == 0 && trace.notes().iter().any(|note| note.level > 0 && note.topic == 5)
}

/// Explains why a trace has no calls of functions, and how to fix it.
pub(super) fn no_calls_reason(trace: &Trace) -> String {
    let header = trace.header();
    if header.engine == Engine::None {
        "calls were switched off (--engine none)".into()
    } else if header.engine == Engine::Samples {
        "no sample was taken: the process used next to no CPU time".into()
    } else if has_run_time(trace) {
        let span = format_nanos(trace.duration().unwrap_or_else(|| trace.counts().span()));
        let threshold = format_nanos(header.call_threshold);
        match trace.counts().span() {
            0 => "the process ended, or executed another program, before the first event".into(),
            _ => format!(
                "the program was built for recording, but none of its functions took {threshold} or longer in the recorded \
                 {span}; smaller values of --threshold and --tick record shorter calls"
            ),
        }
    } else {
        let program = trace.program().unwrap_or("the program");
        format!("{} must be built with `leeward cc` for that (docs/profile-build.md)", sanitize(program))
    }
}

/// True if the program was built with the run-time. The symbols count, too, since the file with the
/// run-time's note may be deleted.
fn has_run_time(trace: &Trace) -> bool {
    let is_noted = trace.notes().iter().any(|note| note.text.contains("built with the run-time in it"));
    is_noted || Symbols::new(trace, Options::default()).program_defines("__leeward_tick_slow")
}

/// Names of the functions that were omitted to keep recording within its share of the CPU.
fn omitted(trace: &Trace, symbols: &mut Symbols) -> Vec<(String, OmittedFunction)> {
    let most = trace.share().map_or(&[][..], |share| &share.most);
    let time = trace.counts().last;
    most.iter().map(|one| (symbols.location(one.function, time).function(), *one)).collect()
}

/// Returns the reason why symbols are missing without the path of the module, which it may begin
/// with.
pub(super) fn without_path<'a>(module: &str, reason: &'a str) -> &'a str {
    let rest = reason.strip_prefix(module).filter(|rest| rest.starts_with([':', ' ']));
    rest.map_or(reason, |rest| rest.trim_start_matches([':', ' ']))
}

/// Prints a line to stderr. Errors are ignored: stderr may be closed.
pub(super) fn print_line(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", sanitize(line));
}

/// Reports damage of a trace on stderr. A trace that is still being written has no missing end.
pub(super) fn warn_of_damage(trace: &Trace) {
    let damage = Damage { missing_end: false, ..trace.damage().clone() };
    for line in damage.to_string().lines() {
        print_line(&format!("warning: {line}"));
    }
    if trace.damage().missing_end {
        let pid = trace.header().pid;
        let lives = format!("process {pid} is still recording: `leeward profile stop {pid}`");
        print_line(&format!("note: {}", if is_recording(trace) { &lives } else { missing_end(trace) }));
    }
}

/// Says what may be missing at the end. Records from outside wait until those of all sources have
/// arrived, with `--keep` until it is known which requests are slow, and then to be written.
fn missing_end(trace: &Trace) -> &'static str {
    if trace.header().engine == Engine::Samples {
        "its end is missing: about 3 seconds (13 with --keep) if `record` was killed, and more if the trace was cut off"
    } else {
        "its end is missing: a tenth of a second at most if the program was killed, and more if the trace was cut off"
    }
}

/// Reports on stderr the problems that the recording noted: failures, an early end, lost events.
pub(super) fn warn_of_missing(trace: &Trace, missing: &RecordingGaps) {
    let mut err = std::io::stderr();
    // A program without instrumented functions has no missing calls.
    let has_calls = trace.counts().calls > 0 || has_run_time(trace);
    let message = missing.describe().filter(|_| has_calls || trace.share().is_some() || missing.in_windows);
    if let Some(message) = &message {
        let _ = writeln!(err, "warning: {message}");
    }
    // This message already contains the recording's note on its clock (topic 4).
    let is_reported = |topic: u8| topic == 4 && (message.is_some() || !has_calls);
    for note in trace.notes().iter().filter(|note| note.level > 0 && !is_reported(note.topic)) {
        let _ = writeln!(err, "note from the recording: {}", sanitize(&note.text));
    }
    if let Some(hint) = naming_hint(trace) {
        let _ = writeln!(err, "note: {hint}");
    }
    if let Some(end) = trace.end().filter(|end| end.is_early()) {
        let _ =
            writeln!(err, "warning: the recording ended early ({}); the events until then are kept", end.description());
    }
    let (lost, kept) = (trace.counts().lost, trace.counts().events);
    if lost > 0 {
        let share = lost as f64 * 100.0 / (lost + kept) as f64;
        let what = if trace.header().engine == Engine::Samples {
            ": some samples, waits of threads and requests are missing; counts and percentiles are of all requests. A lower --rate loses fewer"
        } else {
            ""
        };
        let _ = writeln!(err, "warning: {lost} events ({share:.1} %) were lost while recording{what}");
    }
}

/// Converts a read error to the command's failure.
pub(super) fn failure(error: TraceError) -> Failure {
    match error {
        TraceError::Interrupted => Failure::Interrupted,
        // The error's own message would repeat its cause.
        TraceError::Io { path, source } => file_failure(Error::new(source).context(path.display().to_string())),
        _ => Failure::Input(Error::new(error)),
    }
}

/// Returns a callback that shows the progress of reading and stops it on an interrupt.
pub(super) fn progress(interrupt: &Interrupt, title: &str) -> impl FnMut(Progress) -> ControlFlow<()> + use<> {
    let interrupt = interrupt.clone();
    let bar = ClearOnDrop(if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() });
    if let Ok(style) = ProgressStyle::with_template("{msg}  {bar:30}  {bytes} of {total_bytes}, {eta} left") {
        bar.0.set_style(style);
    }
    bar.0.set_message(title.to_string());
    move |progress| {
        bar.0.set_length(progress.total);
        bar.0.set_position(progress.done);
        if interrupt.is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// A progress bar that is cleared when it is dropped.
struct ClearOnDrop(ProgressBar);

impl Drop for ClearOnDrop {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_profile::format::EventKind;
    use leeward_profile::format::event::Extent;
    use leeward_profile::format::meta::{Header, Module};
    use leeward_profile::format::write::{TraceConfig, TraceWriter};
    use leeward_profile::trace::ignore_progress;

    /// Its symbol is in this program's file.
    #[inline(never)]
    fn handle() {
        std::hint::black_box(());
    }

    /// Returns the suggestions for a trace of samples of calls of a function.
    fn suggested(function: u64, tried: Option<&str>, note: Option<&str>) -> String {
        let program = std::env::current_exe().unwrap().to_str().unwrap().to_string();
        let mappings = std::fs::read_to_string("/proc/self/maps").unwrap();
        let first = mappings.lines().find(|line| line.ends_with(&program)).unwrap();
        let bias = u64::from_str_radix(first.split('-').next().unwrap(), 16).unwrap();
        let module = Module {
            id: 1,
            flags: Module::PROGRAM,
            loaded: 0,
            unloaded: None,
            bias,
            ranges: vec![(bias, 1 << 32)],
            build_id: vec![],
            path: program,
        };
        let header = Header { engine: Engine::Samples, pid: 77, ..TraceConfig::default().header };
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("perf-77.map"), "10 10 compiled\n").unwrap();
        let setup = TraceConfig { header, modules: vec![module], ..TraceConfig::default() };
        let mut writer = TraceWriter::create(folder.path(), &setup).unwrap();
        for turn in 1..=100 {
            let call = EventKind::Call { function, caller: 0, duration: 500_000, extent: Extent::Whole };
            writer.event(0, turn * 1_000_000, call).unwrap();
        }
        if let Some(text) = note {
            writer.note(1, 1, 5, text).unwrap();
        }
        writer.finish(200_000_000).unwrap();
        let trace = Trace::open(folder.path(), &mut ignore_progress).unwrap();
        let mut symbols = Symbols::new(&trace, Options::default());
        suggestions(&trace, &mut symbols, tried, &mut ignore_progress).unwrap().join("\n")
    }

    #[test]
    fn functions_are_suggested_to_those_who_may_time_them() {
        let function = handle as fn() as usize as u64;
        let lines = suggested(function, None, None);
        assert!(lines.contains("record --pid 77 --request-fn '") && lines.contains("::handle'"), "{lines}");
        assert_eq!(suggested(function, None, Some("requests can't be timed without root")), "");
        assert_eq!(suggested(function, Some("handle"), None), "", "it had no calls");
        assert_eq!(suggested(0x10, None, None), "", "a probe can't find what was compiled meanwhile");
    }

    #[test]
    fn a_path_is_printed_once() {
        assert_eq!(without_path("/bin/a", "/bin/a: no such file"), "no such file");
        assert_eq!(without_path("/bin/a", "/debug/a has changed since"), "/debug/a has changed since");
        assert_eq!(without_path("/bin/a", "/bin/a has changed since"), "has changed since");
        assert_eq!(without_path("/bin/a", "/bin/ab: not a file"), "/bin/ab: not a file");
    }
}
