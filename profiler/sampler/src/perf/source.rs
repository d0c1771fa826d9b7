//! The source: opens events, reads rings, adapts the effort.
//!
//! Does not contain the fields of records, and no system calls.

use std::time::{Duration, Instant};

use super::attach::{EventPlan, OpenEvents};
use super::attr::{Inheritance, StackCapture};
use super::budget::{CostBudget, EventCosts, Spent};
use super::parse::parse;
use super::translate::Translator;
use super::{EventScope, PerfOptions, PerfReport, SampleRate, StackMethod};
use crate::clock::{now, thread_time};
use crate::probe::bpf::RunningProgram;
use crate::process::Process;
use crate::record::{Record, RecordSource, SourceError};
use crate::unwind::{ModuleFiles, ProcessModules};

/// Bytes of the stack that are copied.
const COPIED: u32 = 16 << 10;

/// Records younger than this stay in the rings, as older ones may still come to another ring.
const SETTLING: u64 = 2_000_000;

/// Time between adaptations of the effort.
const ADAPTATION: Duration = Duration::from_millis(250);

/// Samples and switches of a process.
#[derive(Debug)]
pub struct PerfSource {
    process: Process,
    events: OpenEvents,
    translator: Translator,
    budget: CostBudget,
    costs: EventCosts,
    capture: StackCapture,
    initial: Vec<Record>,
    /// When the effort was last adapted or recording switched on, and the program's CPU time then.
    since: (Instant, u64),
    /// The program's CPU time while it was recorded, and how long that was, up to `since`.
    used: u64,
    elapsed: Duration,
    is_recording: bool,
    own_time: u64,
    finished: bool,
}

impl PerfSource {
    /// Begins to record a process.
    ///
    /// # Errors
    /// The process can't be recorded; the error says what to change.
    pub fn attach(process: Process, options: PerfOptions) -> Result<PerfSource, SourceError> {
        let before = thread_time();
        let mut files = ModuleFiles::default();
        let capture = match options.stacks {
            StackMethod::FramePointers => StackCapture::FramePointers,
            StackMethod::Copies => StackCapture::Copy(COPIED),
            StackMethod::Automatic => {
                let mut modules = ProcessModules::default();
                for mapped in process.mappings()? {
                    modules.add(&mut files, process.pid(), &mapped);
                }
                if modules.is_go() { StackCapture::FramePointers } else { StackCapture::Copy(COPIED) }
            }
        };
        let fixed_rate = match options.rate {
            SampleRate::Automatic => None,
            SampleRate::Hertz(rate) => Some(rate),
        };
        let effort = CostBudget::new(fixed_rate, EventCosts::THREADS, Spent::default()).effort();
        let inheritance = if options.children { Inheritance::ThreadsAndChildren } else { Inheritance::Threads };
        let (clock_period, switch_period) = (effort.clock_period(), effort.switch_period);
        let plan = EventPlan { capture, clock_period, switch_period, inheritance };
        // What the process has at the begin is dated before all that the events tell.
        let began = now();
        let whole = if options.scope == EventScope::Automatic { OpenEvents::of_cpus(&process, plan) } else { None };
        let events = match whole {
            Some(events) => events,
            None => OpenEvents::of_threads(&process, plan)?,
        };
        let costs = if events.filter.is_some() { EventCosts::CPUS } else { EventCosts::THREADS };
        let mut translator = Translator::new(process.pid(), options.children, files);
        let initial = translator.begin(&process, matches!(capture, StackCapture::Copy(_)), began)?;
        // To begin costs what it costs, and more than a second of recording.
        let own_time = thread_time().saturating_sub(before);
        let budget = CostBudget::new(fixed_rate, costs, Spent { own_time, ..Spent::default() });
        Ok(PerfSource {
            since: (Instant::now(), process.cpu_time().unwrap_or(0)),
            used: 0,
            elapsed: Duration::ZERO,
            is_recording: true,
            process,
            events,
            translator,
            budget,
            costs,
            capture,
            initial,
            own_time,
            finished: false,
        })
    }

    /// Returns true when the process has ended and all its records were reported.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Returns what was recorded, and how.
    pub fn report(&self) -> PerfReport {
        let counts = self.translator.counts;
        let effort = self.budget.effort();
        PerfReport {
            rate: effort.rate,
            stacks: match self.capture {
                StackCapture::Copy(_) => StackMethod::Copies,
                _ => StackMethod::FramePointers,
            },
            sees_kernel: self.events.sees_kernel,
            whole_cpus: self.events.filter.is_some(),
            shortest_wait: effort.shortest_wait,
            switch_period: if self.events.sees_kernel { effort.switch_period } else { 0 },
            samples: counts.samples,
            switches: counts.switches,
            switches_with_stacks: counts.stacks_at_switches,
            truncated_stacks: counts.truncated,
            lost: counts.lost + self.events.rings.damaged(),
            throttled: counts.throttled,
            own_time: self.own_time,
        }
    }

    fn spent(&self) -> Spent {
        let counts = self.translator.counts;
        Spent {
            samples: counts.samples,
            switches: counts.switches,
            stacks_at_switches: counts.stacks_at_switches,
            lost: counts.lost,
            own_time: self.own_time,
        }
    }

    /// Takes the time that passed since the last call, and adapts the effort when enough has.
    fn account(&mut self) {
        let now = (Instant::now(), self.process.cpu_time().unwrap_or(0));
        let (before, used) = std::mem::replace(&mut self.since, now);
        if !self.is_recording {
            return;
        }
        self.used += now.1.saturating_sub(used);
        self.elapsed += now.0 - before;
        if self.elapsed < ADAPTATION {
            return;
        }
        let elapsed = std::mem::take(&mut self.elapsed).as_nanos() as u64;
        let before = self.budget.effort();
        let spent = self.spent();
        if let Some(effort) = self.budget.adapt(spent, self.used, elapsed) {
            self.events.set_effort(before, effort);
        }
    }
}

impl RecordSource for PerfSource {
    fn poll(&mut self, report: &mut dyn FnMut(Record)) -> Result<(), SourceError> {
        let before = thread_time();
        self.initial.drain(..).for_each(&mut *report);
        // Asked first: what the process wrote before it ended is in the rings by now.
        let is_running = self.process.is_running();
        let until = if is_running { now().saturating_sub(SETTLING) } else { u64::MAX };
        let PerfSource { events, translator, capture, .. } = self;
        let OpenEvents { rings, kinds, filter, .. } = events;
        rings.read(until, |header, bytes| {
            let layout = |event| kinds.get(&event).map(|kind| kind.layout(*capture));
            if let Some(parsed) = parse(header, bytes, layout) {
                if let (Some(filter), Some(child)) = (filter.as_ref(), translator.recorded_child(&parsed)) {
                    filter.forked(child);
                }
                translator.translate(parsed, |event| kinds.get(&event).copied(), report);
            }
        });
        self.finished |= !is_running;
        if self.since.0.elapsed() >= ADAPTATION && is_running {
            self.account();
        }
        self.own_time += thread_time().saturating_sub(before);
        Ok(())
    }

    fn set_recording(&mut self, is_on: bool) -> Result<(), SourceError> {
        self.account();
        self.is_recording = is_on;
        self.events
            .set_recording(is_on)
            .map_err(|error| SourceError::Refused(format!("switches can't be recorded any more: {error}")))
    }

    fn programs(&self) -> Vec<RunningProgram<'_>> {
        self.events.filter.as_ref().map_or(Vec::new(), |filter| filter.programs())
    }

    fn cost(&self, with_programs: bool) -> u64 {
        let Spent { samples, switches, stacks_at_switches, .. } = self.spent();
        let by_programs = self.events.filter.is_some() && !with_programs;
        let counted = if by_programs { (0, 0) } else { (switches, stacks_at_switches) };
        Spent { samples, switches: counted.0, stacks_at_switches: counted.1, ..Spent::default() }.cost(self.costs)
    }
}
