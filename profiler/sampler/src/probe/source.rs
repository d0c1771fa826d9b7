//! The source of requests: programs in the kernel, and the records that it makes of their reports.
//!
//! Contains no program.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::bpf::{KernelTypes, ProgramError, RunningProgram, TRACEPOINT};
use super::delay::Delay;
use super::functions::{FunctionError, FunctionProbes};
use super::latencies::{ChoiceControl, Latencies};
use super::report::{Event, EventKind, SLOW, Shared};
use super::sockets::SocketProbes;
use super::targets::Targets;
use crate::clock::now;
use crate::record::{Record, RecordKind, RecordSource, RequestCounts, SourceError};

/// Pause between two adaptations of the threshold.
const ADAPTATION: Duration = Duration::from_millis(200);

/// Nanoseconds at the end of a window in which an answer is taken to go on if it has just been
/// written to.
const EDGE: u64 = 5_000_000;

/// What is common to all kinds of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestOptions {
    /// The recorded processes.
    pub processes: Vec<u32>,
    /// Children that they make later are recorded, too.
    pub follow: bool,
    /// Requests that are reported per second, at most; of more the slowest, and one of so many.
    pub per_second: u32,
}

impl RequestOptions {
    /// Records a process and its later children.
    pub fn new(process: u32) -> RequestOptions {
        RequestOptions { processes: vec![process], follow: true, per_second: 450 }
    }
}

/// Kind of the probes that see requests.
#[derive(Debug)]
enum Probes {
    Sockets(SocketProbes),
    Function(Box<FunctionProbes>),
}

impl Probes {
    /// Nanoseconds after its end for which a request can be reported again, or earlier parts of
    /// other requests arrive.
    fn hold(&self) -> u64 {
        match self {
            Probes::Sockets(_) => 800_000_000,
            Probes::Function(_) => 100_000_000,
        }
    }

    /// CPU time that a request costs the process, in nanoseconds, where the kernel doesn't tell.
    fn cost(&self) -> u64 {
        match self {
            Probes::Sockets(_) => 2 * (TRACEPOINT + 150),
            Probes::Function(probes) => probes.cost(),
        }
    }

    fn programs(&self) -> Vec<RunningProgram<'_>> {
        match self {
            Probes::Sockets(probes) => {
                let running = |program| RunningProgram { program, around: TRACEPOINT };
                probes.programs().iter().map(running).collect()
            }
            Probes::Function(probes) => probes.programs(),
        }
    }

    fn set_recording(&mut self, is_on: bool) -> Result<(), ProgramError> {
        match self {
            Probes::Sockets(probes) => probes.set_recording(is_on),
            Probes::Function(probes) => {
                probes.set_recording(is_on);
                Ok(())
            }
        }
    }
}

/// Reports the requests of processes: the slowest, and some of the others.
#[derive(Debug)]
pub struct RequestSource {
    probes: Probes,
    targets: Targets,
    shared: Shared,
    process: u32,
    delay: Delay,
    choice: ChoiceControl,
    adapted: Instant,
    /// From this latency on each request is reported now.
    threshold: u64,
    latencies: Latencies,
    mixed: u64,
    counts: RequestCounts,
    /// Requests that ended until the last adaptation, by process.
    answered: BTreeMap<u32, u64>,
    lost: u64,
    requests: u64,
}

impl RequestSource {
    /// Records requests by input and output: each begins when a read brings bytes of a connection
    /// that the process has accepted, and ends with the last write before the next read.
    ///
    /// # Errors
    /// BPF is missing or forbidden, or the kernel is older than Linux 6.3.
    pub fn io(options: &RequestOptions) -> Result<RequestSource, SourceError> {
        let types = KernelTypes::of_kernel().map_err(|error| without(&format!("the kernel's types (BTF): {error}")))?;
        let (shared, targets) = begin(options, Some(&types))?;
        let probes = SocketProbes::load(&types, &targets, &shared).map_err(refused)?;
        let mut source = RequestSource::new(Probes::Sockets(probes), targets, shared, options);
        source.probes.set_recording(true).map_err(refused)?;
        Ok(source)
    }

    /// Records the calls of a function: of nested ones the outermost. A call costs the process two
    /// traps: 2.3 µs, and several times that in some virtual machines.
    ///
    /// # Errors
    /// BPF is missing or forbidden, or the name is in no module of a process.
    pub fn function(name: &str, options: &RequestOptions) -> Result<RequestSource, SourceError> {
        // Without them children are not followed.
        let types = KernelTypes::of_kernel().ok();
        let (shared, targets) = begin(options, types.as_ref())?;
        let mut probes = FunctionProbes::load(name, &targets, &shared).map_err(function_refused)?;
        probes.set_recording(true);
        for process in &options.processes {
            probes.attach(*process).map_err(|error| match function_refused(error) {
                SourceError::NoSymbol(why) if options.processes.len() > 1 => {
                    SourceError::NoSymbol(format!("process {process}: {why}"))
                }
                error => error,
            })?;
        }
        Ok(RequestSource::new(Probes::Function(Box::new(probes)), targets, shared, options))
    }

    fn new(probes: Probes, targets: Targets, shared: Shared, options: &RequestOptions) -> RequestSource {
        RequestSource {
            probes,
            targets,
            shared,
            process: options.processes.first().copied().unwrap_or_default(),
            delay: Delay::default(),
            choice: ChoiceControl::new(options.per_second),
            adapted: Instant::now(),
            threshold: 0,
            latencies: Latencies::default(),
            mixed: 0,
            counts: RequestCounts::default(),
            answered: BTreeMap::new(),
            lost: 0,
            requests: 0,
        }
    }

    /// Returns how many requests ended until the last adaptation.
    pub fn counts(&self) -> RequestCounts {
        self.counts
    }

    /// Returns how many requests each process has answered until the last adaptation. A process
    /// that has ended is there for some seconds.
    pub fn answered(&self) -> &BTreeMap<u32, u64> {
        &self.answered
    }

    /// Returns the latencies of all requests that ended until the last adaptation.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// Returns the share of the requests, from 0 to 1, that seem to share their connection with
    /// others: of these, two are read, and later two are answered. Input and output do not tell
    /// them apart.
    pub fn mixed_share(&self) -> f64 {
        self.mixed as f64 / self.counts.seen.max(1) as f64
    }

    fn adapt(&mut self, report: &mut dyn FnMut(Record)) -> Result<(), SourceError> {
        let io = |source| SourceError::Io { what: "read the counts of requests".into(), source };
        self.counts.time = now();
        let tally = self.shared.tally().map_err(io)?;
        self.latencies = Latencies::new(tally.buckets);
        self.mixed = tally.mixed;
        self.answered = self.targets.answered(self.latencies.count(), self.counts.time).map_err(io)?;
        if let Probes::Function(probes) = &mut self.probes {
            probes.follow(&self.targets.present().map_err(io)?);
        }
        let choice = self.choice.update(self.latencies.clone(), self.adapted.elapsed().as_secs_f64());
        self.adapted = Instant::now();
        self.shared.set(choice.threshold, choice.one_in).map_err(io)?;
        self.counts.seen = self.latencies.count();
        self.counts.threshold = std::mem::replace(&mut self.threshold, choice.threshold);
        if tally.lost > self.lost {
            let count = tally.lost - self.lost;
            self.lost = tally.lost;
            let (process, thread, kind) = (self.process, 0, RecordKind::Lost { count });
            report(Record { time: now(), process, thread, kind });
        }
        Ok(())
    }

    fn release(&mut self, until: u64, report: &mut dyn FnMut(Record)) {
        let RequestSource { delay, requests, .. } = self;
        delay.release(until, |event| {
            *requests += u64::from(event.kind == EventKind::Request);
            report(record(&event, *requests));
        });
    }
}

impl RecordSource for RequestSource {
    fn poll(&mut self, report: &mut dyn FnMut(Record)) -> Result<(), SourceError> {
        self.shared.read(|event| self.delay.push(event));
        self.release(now().saturating_sub(self.probes.hold()), report);
        if self.adapted.elapsed() >= ADAPTATION {
            self.adapt(report)?;
        }
        Ok(())
    }

    fn finish(&mut self, report: &mut dyn FnMut(Record)) -> Result<(), SourceError> {
        self.shared.read(|event| self.delay.push(event));
        self.release(u64::MAX, report);
        self.adapt(report)
    }

    fn set_recording(&mut self, is_on: bool) -> Result<(), SourceError> {
        if is_on {
            let failed = |source| SourceError::Io { what: "begin a window".into(), source };
            self.shared.begin_window(now()).map_err(failed)?;
        }
        self.probes.set_recording(is_on).map_err(refused)?;
        if !is_on && let Probes::Sockets(_) = self.probes {
            self.shared.read(|event| self.delay.push(event));
            self.delay.remove_since(now().saturating_sub(EDGE));
        }
        Ok(())
    }

    fn programs(&self) -> Vec<RunningProgram<'_>> {
        self.probes.programs()
    }

    fn cost(&self, with_programs: bool) -> u64 {
        if with_programs { self.counts.seen.saturating_mul(self.probes.cost()) } else { 0 }
    }
}

/// Makes a record of a report; `request` is the number of a request that is reported whole.
fn record(event: &Event, request: u64) -> Record {
    let kind = match event.kind {
        EventKind::Request => {
            let started_by = (event.started_by != event.thread).then_some(event.started_by);
            RecordKind::Request { id: request, start: event.start, started_by, is_slow: event.flags & SLOW != 0 }
        }
        EventKind::Resumed => RecordKind::RequestResumed { id: event.id },
        EventKind::Suspended => RecordKind::RequestSuspended { id: event.id },
        EventKind::Ended => RecordKind::RequestEnded { id: event.id },
    };
    Record { time: event.time, process: event.process, thread: event.thread, kind }
}

/// Creates what all kinds need.
fn begin(options: &RequestOptions, types: Option<&KernelTypes>) -> Result<(Shared, Targets), SourceError> {
    let mut shared = Shared::create().map_err(|source| refused(ProgramError::Load { source, log: String::new() }))?;
    let targets = Targets::new(&options.processes, types.filter(|_| options.follow)).map_err(refused)?;
    shared.set(0, 1).map_err(|source| SourceError::Io { what: "set the threshold".into(), source })?;
    Ok((shared, targets))
}

fn function_refused(error: FunctionError) -> SourceError {
    match error {
        FunctionError::Source(error) => error,
        FunctionError::Program(error) => refused(error),
    }
}

/// Says in a sentence why the kernel refuses.
fn refused(error: ProgramError) -> SourceError {
    if error.is_forbidden() {
        return without("the right to load BPF programs (root, or CAP_BPF and CAP_PERFMON)");
    }
    match error {
        ProgramError::NoTracepoint(name) => {
            without(&format!("the kernel's tracepoint {name}, which Linux has since version 6.3"))
        }
        error => without(&format!("BPF: {error}")),
    }
}

/// Names what is missing, and what can be recorded without it.
fn without(what: &str) -> SourceError {
    SourceError::Refused(format!("requests can't be timed without {what}; samples alone can be recorded"))
}
