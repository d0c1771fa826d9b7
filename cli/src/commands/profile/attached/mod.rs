//! `leeward profile record --pid`: records running processes from outside.
//!
//! Does not contain the sources of records, and not the trace's format (`leeward-sampler`).

mod children;
mod failures;
mod progress;

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use leeward_profile::analysis::select::Functions;
use leeward_profile::format::request_totals::RequestTotals;
use leeward_profile::symbols::{Options, Symbols};
use leeward_profile::trace::{Trace, ignore_progress};
use leeward_sampler::clock::{now, process_time};
use leeward_sampler::convert::recorder::{RecordedTrace, RecorderConfig, RecorderError};
use leeward_sampler::convert::{KeepSlow, Recorder};
use leeward_sampler::perf::{PerfOptions, PerfSource, SampleRate};
use leeward_sampler::probe::{RequestOptions, RequestSource};
use leeward_sampler::process::Process;
use leeward_sampler::process::quota::{CpuQuota, Throttling};
use leeward_sampler::record::{RecordSource, SourceError};
use leeward_sampler::windows::{CostLimit, Spending, WindowChange, Windows};

use super::args::{AttachArgs, RecordArgs};
use super::control;
use super::read::{print_line, suggest};
use super::record::summarize;
use crate::admission::parse_span;
use crate::failure::Failure;
use crate::hangup;
use crate::interrupt::{Interrupt, StopMode};
use crate::stdout;
use failures::{recorder_failure, source_failure};
use progress::{Progress, State};

/// Time between two polls of the sources.
const POLL: Duration = Duration::from_millis(50);
/// Time between two counts of all requests in the trace.
const TOTALS: Duration = Duration::from_secs(2);
/// Share of requests that seem to share a connection from which the user is warned.
const MIXED_SHARE: f64 = 0.005;
/// Most traces that are described.
const DESCRIBED: usize = 5;
/// Samples per second before the source has chosen.
const RATE: u32 = 1000;

/// Runs the command.
pub(super) fn record(args: &RecordArgs) -> Result<(), Failure> {
    let duration = args.sampling.duration.as_deref().map(|text| parse_span("--duration", text)).transpose()?;
    let disk = failures::parse_size("--disk", &args.recording.disk)?;
    let limit = failures::parse_overhead(args.recording.overhead.as_deref())?;
    let keep = failures::parse_keep(args.sampling.keep.as_deref(), &args.sampling.keep_memory)?;
    let pids: BTreeSet<u32> = args.pid.iter().copied().collect();
    let mut processes = Vec::new();
    for pid in pids {
        let process = Process::open(pid).map_err(source_failure)?;
        if process.has_runtime() {
            if args.pid.len() > 1 {
                return Err(Failure::Input(anyhow!(
                    "process {pid} records itself: name it alone, with `attach {pid}`"
                )));
            }
            return control::attach(&AttachArgs { pid, recording: args.recording.clone() });
        }
        processes.push(process);
    }
    for name in failures::run_time_options(&args.recording) {
        print_line(&format!("note: {name} is for programs with the run-time; it is not used here"));
    }
    let interrupt = Interrupt::listen(StopMode::Graceful)?;
    hangup::stop_on_hangup(&interrupt);
    let mut recording = Recording::begin(args, processes, (disk, limit), keep)?;
    let until = args.sampling.duration.as_deref().map_or("until Ctrl-C".into(), |span| format!("for {span}"));
    let pids: Vec<String> = recording.recorder.processes().map(|pid| pid.to_string()).collect();
    print_line(&format!("recording {} in {}, {until}", pids.join(", "), args.recording.out.display()));
    let end = duration.map(|duration| Instant::now() + Duration::from_nanos(duration.0));
    let recorded = recording.run(&interrupt, end);
    recording.finish(recorded)
}

/// A recording that goes on.
struct Recording {
    recorder: Recorder,
    perf: Vec<PerfSource>,
    requests: Option<RequestSource>,
    windows: Windows,
    /// Limits of CPU time that the processes share with others of their control groups.
    quotas: Vec<CpuQuota>,
    began: Instant,
    counted: Instant,
    /// Requests up to the last count.
    seen: u64,
    /// Samples per second, and for how long nothing was recorded, as the trace says.
    pace: (u32, u64),
    /// Sum of the seconds, and of the samples per second, for the mean.
    intervals: (f64, f64),
    /// The function whose calls are requests.
    request_fn: Option<String>,
}

impl Recording {
    fn begin(
        args: &RecordArgs,
        processes: Vec<Process>,
        (disk, limit): (u64, Option<CostLimit>),
        keep: Option<KeepSlow>,
    ) -> Result<Recording, Failure> {
        let sampling = &args.sampling;
        let pids: Vec<u32> = processes.iter().map(Process::pid).collect();
        let children = args.recording.follow == "on";
        let rate = sampling.rate.map_or(SampleRate::Automatic, SampleRate::Hertz);
        let options = PerfOptions { rate, children, ..PerfOptions::default() };
        // Loaded before the samples begin, but switched on after them: of each request that is
        // seen, all samples and switches are.
        let (mut requests, problem) = requests(args, &pids, children)?;
        if let Some(source) = &mut requests {
            source.set_recording(false).map_err(source_failure)?;
        }
        let mut perf = Vec::new();
        for pid in &pids {
            let process = Process::open(*pid).map_err(source_failure)?;
            perf.push(PerfSource::attach(process, options).map_err(source_failure)?);
        }
        if let Some(source) = &mut requests {
            source.set_recording(true).map_err(source_failure)?;
        }
        let rate = perf.first().map_or(RATE, |source| source.report().rate).max(1);
        let config = RecorderConfig {
            out: args.recording.out.clone(),
            interval: 1_000_000_000 / u64::from(rate),
            disk,
            labels: sampling.labels == "on",
            children,
            keep,
        };
        let mut recorder = Recorder::new(config);
        for process in processes {
            recorder.add(process).map_err(recorder_failure)?;
        }
        if let Some(problem) = problem {
            print_line(&format!("warning: {problem}"));
            recorder.note(1, 5, &problem).map_err(recorder_failure)?;
        }
        let mut quotas: Vec<CpuQuota> = pids.iter().flat_map(|pid| CpuQuota::of_process(*pid)).collect();
        quotas.sort_by(|a, b| a.group().cmp(b.group()));
        quotas.dedup_by(|a, b| a.group() == b.group());
        let began = Instant::now();
        let windows = Windows::new(limit, now(), spending(&mut recorder), &sources(&mut perf, &mut requests));
        let pace = (rate, 0);
        let (counted, seen, intervals) = (began, 0, (0.0, 0.0));
        let request_fn = sampling.request_fn.clone();
        Ok(Recording { recorder, perf, requests, windows, quotas, began, counted, seen, pace, intervals, request_fn })
    }

    /// Records until the user or the processes end it.
    fn run(&mut self, interrupt: &Interrupt, end: Option<Instant>) -> Result<(), RecorderError> {
        let mut progress = Progress::new();
        while !interrupt.is_requested() && !self.recorder.is_finished() && end.is_none_or(|end| Instant::now() < end) {
            sleep(Duration::from_nanos(self.windows.next().saturating_sub(now())).min(POLL));
            self.poll()?;
            progress.show(|| self.state());
        }
        Ok(())
    }

    /// Takes what the sources still have.
    fn take_last(&mut self) -> Result<(), RecorderError> {
        let mut sources = sources(&mut self.perf, &mut self.requests);
        self.recorder.take_last(&mut sources)
    }

    fn poll(&mut self) -> Result<(), RecorderError> {
        let mut sources = sources(&mut self.perf, &mut self.requests);
        let time = now();
        if time >= self.windows.next()
            && self.windows.step(time, spending(&mut self.recorder), &mut sources)? == Some(WindowChange::Ended)
        {
            self.recorder.pause_at(time);
        }
        self.recorder.poll(&mut sources)?;
        // Weights of requests are right if the trace tells of each change of the threshold.
        let seen = self.requests.as_ref().map_or(0, |source| source.counts().seen);
        if seen != self.seen || self.counted.elapsed() >= TOTALS {
            self.seen = seen;
            self.count()?;
        }
        Ok(())
    }

    /// Says in the trace how many requests there were, and how far apart samples are.
    fn count(&mut self) -> Result<(), RecorderError> {
        let seconds = self.counted.elapsed().as_secs_f64();
        self.counted = Instant::now();
        if let Some(source) = &self.requests {
            let counts = source.counts();
            let latencies = source.latencies().iter().collect();
            let totals =
                RequestTotals { time: counts.time, threshold: counts.threshold, latencies, ..RequestTotals::default() };
            self.recorder.request_totals(&totals, source.answered());
        }
        let rate = self.perf.iter().map(|source| source.report().rate).min().unwrap_or(RATE).max(1);
        self.intervals = (self.intervals.0 + seconds, self.intervals.1 + seconds * f64::from(rate));
        let pace = (rate, self.windows.paused(now()));
        if pace != self.pace {
            self.pace = pace;
            let mean = self.intervals.1 / self.intervals.0.max(0.001);
            self.recorder.set_pace(1_000_000_000 / u64::from(rate), (1e9 / mean.max(1.0)) as u64, pace.1)?;
        }
        Ok(())
    }

    fn state(&self) -> State {
        let written = self.recorder.written();
        State {
            elapsed: self.began.elapsed(),
            samples: written.stacks,
            requests: self.requests.as_ref().map(|source| (source.counts().seen, written.slow)),
            paused: Duration::from_nanos(self.windows.paused(now())),
        }
    }

    /// Ends the traces, describes them, and names the next command.
    fn finish(mut self, recorded: Result<(), RecorderError>) -> Result<(), Failure> {
        let recorded = recorded.and_then(|()| self.take_last()).and_then(|()| self.count());
        if let Err(error) = recorded {
            let kept = self.recorder.abandon(&error);
            kept.iter().for_each(|trace| print_line(&format!("{}: kept up to the failure", trace.folder.display())));
            return Err(recorder_failure(error));
        }
        self.warn_of_mixed_requests()?;
        self.warn_of_quotas()?;
        let seen = self.requests.as_ref().map(|source| source.counts().seen);
        drop(self.perf);
        drop(self.requests);
        let recorded = self.recorder.processes().collect();
        let traces = self.recorder.finish().map_err(recorder_failure)?;
        let tried = self.request_fn.as_deref().filter(|_| seen == Some(0));
        describe(&traces, &recorded, seen, tried)?;
        match tried {
            Some(name) => {
                let was_seen = traces.iter().take(DESCRIBED).any(|trace| has_function(trace, name));
                Err(failures::no_call(name, was_seen, self.windows.paused(now()) > 0))
            }
            None => Ok(()),
        }
    }

    /// Warns if many requests seem to share a connection.
    fn warn_of_mixed_requests(&mut self) -> Result<(), Failure> {
        let share = self.requests.as_ref().map_or(0.0, RequestSource::mixed_share);
        if share < MIXED_SHARE {
            return Ok(());
        }
        self.warn(5, &format!(
            "{:.1} % of the requests were mixed with others. If a connection has several requests at a time (HTTP/2, gRPC, pipelining), input and output do not tell them apart, and slow ones are missed: record again with --request-fn NAME",
            share * 100.0
        ))
    }

    /// Says if a control group had no CPU time left: without that its threads seem to wait for
    /// others.
    fn warn_of_quotas(&mut self) -> Result<(), Failure> {
        let throttled: Vec<Throttling> = self.quotas.iter().filter_map(CpuQuota::throttling).collect();
        throttled.iter().try_for_each(|Throttling { group, cpus, period_ms, share }| {
            self.warn(1, &format!(
                "in {:.0} % of its periods of {period_ms:.0} ms, the control group {} had used up its CPU quota ({cpus:.2} CPUs): its threads then stay off the CPU, though they could run, even on an idle machine",
                share * 100.0,
                group.display()
            ))
        })
    }

    /// Warns the user now, and everybody who reads the traces.
    fn warn(&mut self, topic: u8, text: &str) -> Result<(), Failure> {
        print_line(&format!("warning: {text}"));
        self.recorder.note(1, topic, text).map_err(recorder_failure)
    }
}

fn spending(recorder: &mut Recorder) -> Spending {
    Spending { own: process_time(), used: recorder.cpu_time() }
}

fn sources<'a>(perf: &'a mut [PerfSource], requests: &'a mut Option<RequestSource>) -> Vec<&'a mut dyn RecordSource> {
    let perf = perf.iter_mut().map(|source| source as &mut dyn RecordSource);
    perf.chain(requests.iter_mut().map(|source| source as &mut dyn RecordSource)).collect()
}

/// Begins to time requests. Without the right to, a recording of samples alone is still of use: the
/// second value says what is missing.
fn requests(
    args: &RecordArgs,
    pids: &[u32],
    children: bool,
) -> Result<(Option<RequestSource>, Option<String>), Failure> {
    let Some(first) = pids.first() else { return Ok((None, None)) };
    let mut options = RequestOptions::new(*first);
    options.processes = pids.to_vec();
    options.follow = children;
    if let Some(name) = &args.sampling.request_fn {
        let source = RequestSource::function(name, &options).map_err(source_failure)?;
        return Ok((Some(source), None));
    }
    match RequestSource::io(&options) {
        Ok(source) => Ok((Some(source), None)),
        Err(SourceError::Refused(why)) if !args.sampling.request_io => Ok((None, Some(why))),
        Err(error) => Err(source_failure(error)),
    }
}

/// Describes traces, and names the next command. `seen` is the number of requests, if the recorder
/// had the right to time them: without it nobody is told to time others. `tried` is a function that
/// had no calls.
fn describe(
    traces: &[RecordedTrace],
    recorded: &BTreeSet<u32>,
    seen: Option<u64>,
    tried: Option<&str>,
) -> Result<(), Failure> {
    let mut with_stacks: Vec<&RecordedTrace> = traces.iter().filter(|trace| trace.written.stacks > 0).collect();
    with_stacks
        .sort_by_key(|trace| std::cmp::Reverse((trace.written.slow + trace.written.sampled, trace.written.stacks)));
    for trace in with_stacks.iter().take(DESCRIBED) {
        summarize(&trace.folder)?;
    }
    let described = with_stacks.len().min(DESCRIBED);
    if traces.len() > described {
        stdout::print(&format!("and {} more traces", traces.len() - described))?;
    }
    // Workers that were there before are not followed.
    let children = if with_stacks.iter().any(|trace| trace.written.slow + trace.written.sampled > 0) {
        None
    } else {
        children::not_recorded(recorded)
    };
    let Some(first) = with_stacks.first() else {
        let hint = children.map_or(String::new(), |children| format!("; {children}"));
        return Err(Failure::Runtime(anyhow!("nothing was recorded: the process used no CPU time{hint}")));
    };
    if let Some(children) = children {
        print_line(&format!("note: no request was seen in the process; {children}"));
    }
    let folder = first.folder.display();
    let next = if seen.is_some() && first.written.slow > 0 { "tail" } else { "stats" };
    if seen == Some(0)
        && let Ok(trace) = Trace::open(&first.folder, &mut ignore_progress)
    {
        suggest(&trace, &mut Symbols::new(&trace, Options::default()), tried, &mut ignore_progress)?;
    }
    stdout::print(&format!("next: leeward profile {next} {folder}"))
}

/// Returns whether samples of a trace fell into a function with this name.
fn has_function(trace: &RecordedTrace, name: &str) -> bool {
    let Ok(trace) = Trace::open(&trace.folder, &mut ignore_progress) else { return false };
    let mut symbols = Symbols::new(&trace, Options::default());
    Functions::find(&trace, &mut symbols, name, &mut ignore_progress).is_ok_and(|found| !found.is_empty())
}
