//! The source: opens events, reads rings, adapts the effort.
//!
//! Does not contain the fields of records, and no system calls.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::attach::{EventPlan, OpenEvents};
use super::attr::{Inheritance, StackCapture};
use super::budget::{CostBudget, EventCosts, Spent};
use super::parse::parse;
use super::translate::Translator;
use super::{EventScope, PerfOptions, PerfReport, SampleRate, StackMethod};
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
    used_at_begin: u64,
    adapted: Instant,
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
        let whole = if options.scope == EventScope::Automatic { OpenEvents::of_cpus(&process, plan) } else { None };
        let events = match whole {
            Some(events) => events,
            None => OpenEvents::of_threads(&process, plan)?,
        };
        let costs = if events.filter.is_some() { EventCosts::CPUS } else { EventCosts::THREADS };
        let mut translator = Translator::new(process.pid(), options.children, files);
        let initial = translator.begin(&process, matches!(capture, StackCapture::Copy(_)), now())?;
        // To begin costs what it costs, and more than a second of recording.
        let own_time = thread_time().saturating_sub(before);
        let budget = CostBudget::new(fixed_rate, costs, Spent { own_time, ..Spent::default() });
        Ok(PerfSource {
            used_at_begin: process.cpu_time().unwrap_or(0),
            process,
            events,
            translator,
            budget,
            costs,
            capture,
            initial,
            adapted: Instant::now(),
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

    fn adapt(&mut self, elapsed: Duration) {
        let used = self.process.cpu_time().unwrap_or(0).saturating_sub(self.used_at_begin);
        let before = self.budget.effort();
        let spent = self.spent();
        let Some(effort) = self.budget.adapt(spent, used, elapsed.as_nanos() as u64) else { return };
        self.events.set_effort(before, effort);
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
        let OpenEvents { rings, kinds, .. } = events;
        rings.read(until, |header, bytes| {
            let layout = |event| kinds.get(&event).map(|kind| kind.layout(*capture));
            if let Some(parsed) = parse(header, bytes, layout) {
                translator.translate(parsed, |event| kinds.get(&event).copied(), report);
            }
        });
        self.finished |= !is_running;
        let elapsed = self.adapted.elapsed();
        if elapsed >= ADAPTATION && is_running {
            self.adapted = Instant::now();
            self.adapt(elapsed);
        }
        self.own_time += thread_time().saturating_sub(before);
        Ok(())
    }

    fn cost(&self) -> u64 {
        self.spent().cost(self.costs)
    }
}

/// Nanoseconds of the monotonic clock.
fn now() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// CPU time of the calling thread in nanoseconds.
fn thread_time() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}
