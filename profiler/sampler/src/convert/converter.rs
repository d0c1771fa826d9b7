//! The trace of one process, from its records.
//!
//! Records wait for a moment until those of other sources have arrived. A request is reported at
//! its end: its begin is then put among the records that wait, so that calls are cut there.
//!
//! Does not read `/proc`, and does not poll sources.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::path::Path;

use leeward_profile::format::event::{EventKind, Extent, OffCpu};
use leeward_profile::format::meta::{Clock, ClockReport, Engine, Header};
use leeward_profile::format::request_totals::RequestTotals;
use leeward_profile::format::write::{TraceConfig, TraceWriter};

use super::calls::{Call, Frame};
use super::item::{Item, ItemSink};
use super::keep::KeepSlow;
use super::kept::Kept;
use super::labels::Labels;
use super::modules::Modules;
use super::order::Reorder;
use super::thread::ThreadState;
use crate::record::{Record, RecordKind};

/// Limit in bytes of the records that wait.
const WAITING: usize = 64 << 20;
/// Limit of threads at a time. Records of others are left out.
const THREADS: usize = 1 << 17;
/// Bytes of a record without its stack.
const RECORD: usize = 96;

/// How a process is recorded.
#[derive(Clone, Debug)]
pub struct ConverterConfig {
    /// The process.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// CPU time between two samples, in nanoseconds.
    pub interval: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC`, and since 1970, when the recording began.
    pub began: (u64, u64),
    /// Bytes that the trace may have on disk.
    pub disk: u64,
    /// Labels of requests are recorded.
    pub labels: bool,
    /// Only slow requests, and what surrounds them, are written.
    pub keep: Option<KeepSlow>,
}

/// What a converter has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Samples, and switches with a stack.
    pub stacks: u64,
    /// Requests that took long.
    pub slow: u64,
    /// Other requests.
    pub sampled: u64,
    /// Records that the kernel lost.
    pub lost: u64,
}

impl Written {
    /// Adds what another trace holds.
    #[must_use]
    pub fn plus(self, other: Written) -> Written {
        Written {
            stacks: self.stacks + other.stacks,
            slow: self.slow + other.slow,
            sampled: self.sampled + other.sampled,
            lost: self.lost.saturating_add(other.lost),
        }
    }
}

/// Writes the trace of one process.
#[derive(Debug)]
pub struct Converter {
    writer: TraceWriter,
    modules: Modules,
    waiting: Reorder<Item>,
    threads: HashMap<u32, ThreadState>,
    labels: Labels,
    has_labels: bool,
    next_thread: u32,
    interval: u64,
    /// Latest time that was converted.
    now: u64,
    /// What waits for slow requests, if only those are kept.
    kept: Option<Kept>,
    /// From this latency on the source reports all requests.
    threshold: u64,
    /// From this latency on requests are kept.
    slow_threshold: u64,
    /// Requests that were reported for this process: slow ones, and others.
    reported: (u64, u64),
    /// Those up to the last count.
    counted: (u64, u64),
    /// Requests of all processes, and of this one, up to the last count.
    source_totals: RequestTotals,
    own_totals: RequestTotals,
    written: Written,
    stack: Vec<Frame>,
}

impl ItemSink for Converter {
    fn convert_item(&mut self, time: u64, item: Item) -> io::Result<()> {
        match item {
            Item::Record(thread, kind) => self.convert(time, thread, kind),
            Item::Began(thread) => {
                self.boundary(thread, time);
                Ok(())
            }
            Item::Totals(totals, is_alone) => self.count_requests(*totals, is_alone),
        }
    }

    fn pause(&mut self, time: u64) -> io::Result<()> {
        let mut tids: Vec<u32> = self.threads.keys().copied().collect();
        tids.sort_unstable();
        for tid in tids {
            let Some(state) = self.threads.get(&tid) else { continue };
            let (number, cpu, is_off) = (state.thread.number, state.cpu, state.calls.is_off());
            self.end_calls(tid, time, false)?;
            if is_off {
                self.writer.event(number, time, EventKind::SwitchedIn { cpu })?;
            }
        }
        Ok(())
    }
}

impl Converter {
    /// Begins a trace in a folder.
    ///
    /// # Errors
    /// The folder or the first file can't be written.
    pub fn create(folder: &Path, config: &ConverterConfig, modules: Modules) -> io::Result<Converter> {
        let (monotonic, wall) = config.began;
        let id = RandomState::new();
        let mut trace_id = [0; 16];
        trace_id[..8].copy_from_slice(&id.hash_one((config.pid, monotonic)).to_le_bytes());
        trace_id[8..].copy_from_slice(&id.hash_one((wall, &config.command)).to_le_bytes());
        let header = Header {
            id: trace_id,
            clock: Clock { scale: 1 << 32, anchor: monotonic, monotonic, wall },
            pid: config.pid,
            engine: Engine::Samples,
            call_threshold: config.interval,
            lock_threshold: 0,
            resolution: config.interval,
            architecture: std::env::consts::ARCH.into(),
            writer: concat!("leeward-sampler ", env!("CARGO_PKG_VERSION")).into(),
            command: config.command.clone(),
            boot: boot_id(),
        };
        let trace = TraceConfig { header, budget_bytes: config.disk, ..TraceConfig::default() };
        let mut modules = modules;
        let mut writer = TraceWriter::create(folder, &trace)?;
        writer.modules(&modules.take_changed())?;
        Ok(Converter {
            writer,
            modules,
            waiting: Reorder::new(WAITING),
            threads: HashMap::new(),
            labels: Labels::default(),
            has_labels: config.labels,
            next_thread: 0,
            interval: config.interval.max(1),
            now: monotonic,
            kept: config.keep.map(Kept::new),
            threshold: 0,
            slow_threshold: 0,
            reported: (0, 0),
            counted: (0, 0),
            source_totals: RequestTotals::default(),
            own_totals: RequestTotals::default(),
            written: Written::default(),
            stack: Vec::new(),
        })
    }

    /// Takes a record of this process.
    ///
    /// # Errors
    /// Writing fails, also in the following methods.
    pub fn record(&mut self, record: Record) -> io::Result<()> {
        let Record { time, thread, kind, .. } = record;
        let mut bytes = RECORD;
        match &kind {
            RecordKind::Sample { stack } | RecordKind::SwitchedOut { stack: Some(stack), .. } => {
                bytes += 8 * stack.len()
            }
            RecordKind::Request { start, started_by, .. } => {
                self.waiting.push(*start, RECORD, Item::Began(started_by.unwrap_or(thread)));
            }
            _ => {}
        }
        self.waiting.push(time, bytes, Item::Record(thread, kind));
        // Only for records beyond the limit.
        self.advance(0)
    }

    /// Says how many requests there were up to `totals.time`, of all processes that are recorded.
    /// `is_alone` if this is the only one.
    pub fn request_totals(&mut self, totals: RequestTotals, is_alone: bool) {
        self.waiting.push(totals.time, RECORD + 16 * totals.latencies.len(), Item::Totals(Box::new(totals), is_alone));
    }

    /// Says that samples are now this much CPU time apart. `mean` is the mean over the recording.
    ///
    /// # Errors
    /// See [`Converter::record`].
    pub fn set_interval(&mut self, interval: u64, mean: u64) -> io::Result<()> {
        self.interval = interval.max(1);
        self.writer.pace(&ClockReport { tick: mean, ..ClockReport::default() })
    }

    /// Converts the records up to this time.
    ///
    /// # Errors
    /// See [`Converter::record`].
    pub fn advance(&mut self, until: u64) -> io::Result<()> {
        while let Some((time, item)) = self.waiting.pop(until) {
            self.now = self.now.max(time);
            if let Item::Record(_, RecordKind::Request { start, .. }) = &item {
                let is_slow = time.saturating_sub(*start) >= self.threshold;
                self.reported.0 += u64::from(is_slow);
                self.reported.1 += u64::from(!is_slow);
            }
            match self.kept.take() {
                None => self.convert_item(time, item)?,
                Some(mut kept) => {
                    self.slow_threshold = kept.threshold();
                    let held = kept.hold(self, time, item);
                    self.kept = Some(kept);
                    held?;
                }
            }
        }
        Ok(())
    }

    /// Writes what is buffered to the file.
    ///
    /// # Errors
    /// See [`Converter::record`].
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// Says that the process has another command line by now.
    ///
    /// # Errors
    /// See [`Converter::record`].
    pub fn set_command(&mut self, command: &str) -> io::Result<()> {
        self.writer.write_header(command)
    }

    /// Returns the modules of the process.
    pub fn modules(&self) -> &Modules {
        &self.modules
    }

    /// Writes a note for the user.
    ///
    /// # Errors
    /// See [`Converter::record`].
    pub fn note(&mut self, level: u8, topic: u8, text: &str) -> io::Result<()> {
        self.writer.note(self.now, level, topic, text)
    }

    /// Returns what was written so far.
    pub fn written(&self) -> Written {
        self.written
    }

    /// Returns the bytes of the trace on disk.
    pub fn bytes(&self) -> u64 {
        self.writer.bytes()
    }

    /// Converts what waits, and ends the trace. `reason` is one of `SegmentEnd`'s. Returns what was
    /// written.
    ///
    /// # Errors
    /// See [`Converter::record`].
    pub fn finish(mut self, time: u64, reason: u8) -> Result<Written, (Written, io::Error)> {
        let converted = self.advance(u64::MAX).and_then(|()| match self.kept.take() {
            Some(mut kept) => kept.release(&mut self, u64::MAX),
            None => Ok(()),
        });
        let time = time.max(self.now);
        let mut tids: Vec<u32> = self.threads.keys().copied().collect();
        tids.sort_unstable();
        let ended: io::Result<()> = tids.into_iter().try_for_each(|tid| self.end_calls(tid, time, true));
        let finished = self.writer.finish_because(time, reason);
        match converted.and(ended).and(finished) {
            Ok(()) => Ok(self.written),
            Err(error) => Err((self.written, error)),
        }
    }

    fn convert(&mut self, time: u64, tid: u32, kind: RecordKind) -> io::Result<()> {
        match kind {
            RecordKind::Executed => return self.execute(time),
            RecordKind::Mapped(mapping) => {
                self.modules.map(&mapping, time);
                let changed = self.modules.take_changed();
                return if changed.is_empty() { Ok(()) } else { self.writer.modules(&changed) };
            }
            RecordKind::Forked { .. } => return Ok(()),
            _ => {}
        }
        let Some(number) = self.thread(tid, time)? else { return Ok(()) };
        match kind {
            RecordKind::Sample { stack } => self.sample(time, tid, &stack),
            RecordKind::SwitchedOut { preempted, stack } => self.switched_out(time, tid, preempted, stack.as_deref()),
            RecordKind::SwitchedIn { cpu } => {
                if let Some(state) = self.threads.get_mut(&tid) {
                    state.calls.switched_in(time);
                    state.returned(time);
                    state.cpu = cpu;
                }
                self.writer.event(number, time, EventKind::SwitchedIn { cpu })
            }
            RecordKind::Woken { waker } => self.writer.event(number, time, EventKind::Woken { waker }),
            RecordKind::Named { name } => {
                let Some(state) = self.threads.get_mut(&tid) else { return Ok(()) };
                state.thread.name = name.chars().take(64).collect();
                self.writer.threads(std::slice::from_ref(&state.thread))
            }
            RecordKind::Ended => self.end_thread(tid, time),
            RecordKind::Request { id, start, started_by } => self.request(time, tid, id, start.min(time), started_by),
            RecordKind::RequestResumed { id } => {
                self.boundary(tid, time);
                self.writer.event(number, time, EventKind::RequestStart { id, queue: None })
            }
            RecordKind::RequestSuspended { id } => {
                self.boundary(tid, time);
                self.writer.event(number, time, EventKind::RequestBlock { id, queue: None })
            }
            RecordKind::RequestEnded { id } => {
                self.boundary(tid, time);
                self.written.slow += 1;
                self.writer.event(number, time, EventKind::RequestEnd { id })
            }
            RecordKind::RequestLabelled { id, label } if self.has_labels => {
                let (label, text) = self.labels.number(&label);
                if let Some(text) = text {
                    self.writer.labels(&[(label, &text)])?;
                }
                self.writer.event(number, time, EventKind::RequestLabel { id, label })
            }
            RecordKind::Lost { count } => {
                self.written.lost = self.written.lost.saturating_add(count);
                self.writer.event(number, time, EventKind::Lost { category: 0, count })
            }
            _ => Ok(()),
        }
    }

    /// Writes how many requests this process had. The source counts those of all its processes, so
    /// each sampled request stands for as many here as on average.
    fn count_requests(&mut self, totals: RequestTotals, is_alone: bool) -> io::Result<()> {
        let Written { slow, sampled, .. } = self.written;
        let before = &self.source_totals;
        let others = |totals: &RequestTotals| totals.seen.saturating_sub(totals.slow);
        let unreported = others(&totals).saturating_sub(others(before));
        let reported = totals.sampled.saturating_sub(before.sampled).max(1);
        let own = (self.reported.0 - self.counted.0, self.reported.1 - self.counted.1);
        self.counted = self.reported;
        let represented = u128::from(unreported) * u128::from(own.1) / u128::from(reported);
        let represented = u64::try_from(represented).unwrap_or(u64::MAX).max(own.1);
        let seen = self.own_totals.seen.saturating_add(own.0).saturating_add(represented);
        self.threshold = totals.threshold;
        let latencies = if is_alone { totals.latencies.clone() } else { Vec::new() };
        self.source_totals = RequestTotals { latencies: Vec::new(), ..totals };
        let threshold = self.slow_from();
        self.own_totals = RequestTotals { time: totals.time, seen, slow, sampled, threshold, latencies };
        self.writer.request_totals(&self.own_totals)
    }

    fn sample(&mut self, time: u64, tid: u32, stack: &[u64]) -> io::Result<()> {
        if !self.set_stack(stack) {
            return Ok(());
        }
        let interval = self.interval;
        let Converter { threads, stack, writer, .. } = self;
        let Some(state) = threads.get_mut(&tid) else { return Ok(()) };
        let number = state.thread.number;
        if state.calls.is_off() {
            // The record of its return was lost.
            let returned = time.saturating_sub(interval / 2).max(state.calls.seen());
            state.returned(returned);
            writer.event(number, returned, EventKind::SwitchedIn { cpu: state.cpu })?;
        }
        reporting(writer, number, |report| state.calls.sample(time, stack, interval, report))
    }

    fn switched_out(&mut self, time: u64, tid: u32, preempted: bool, stack: Option<&[u64]>) -> io::Result<()> {
        let has_stack = stack.is_some_and(|stack| self.set_stack(stack));
        let interval = self.interval;
        let Converter { threads, stack, writer, .. } = self;
        let Some(state) = threads.get_mut(&tid) else { return Ok(()) };
        let number = state.thread.number;
        let stack = has_stack.then_some(&stack[..]);
        reporting(writer, number, |report| state.calls.switched_out(time, preempted, stack, interval, report))?;
        state.left(time);
        let reason = if preempted { OffCpu::Runnable } else { OffCpu::Blocked };
        writer.event(number, time, EventKind::SwitchedOut { cpu: state.cpu, next: 0, reason })
    }

    /// Prepares a stack, the outermost frame first. False if it is empty.
    fn set_stack(&mut self, stack: &[u64]) -> bool {
        self.stack.clear();
        for (index, address) in stack.iter().enumerate().rev() {
            // A return address may be the first byte behind the function.
            let instruction = address.saturating_sub(u64::from(index > 0));
            let function = self.modules.function(instruction);
            self.stack.push(Frame { function, address: *address });
        }
        self.written.stacks += u64::from(!stack.is_empty());
        !stack.is_empty()
    }

    /// Writes a request that ended at `time` in this thread.
    fn request(&mut self, time: u64, tid: u32, id: u64, start: u64, started_by: Option<u32>) -> io::Result<()> {
        self.boundary(tid, time);
        let is_slow = time - start >= self.slow_from();
        self.written.slow += u64::from(is_slow);
        self.written.sampled += u64::from(!is_slow);
        let Some(number) = self.thread(tid, time)? else { return Ok(()) };
        let starter = match started_by.filter(|starter| *starter != tid) {
            Some(starter) => self.thread(starter, time)?.map(|number| (starter, number)),
            None => None,
        };
        let begin = EventKind::RequestStart { id, queue: None };
        if let Some((starter, of_starter)) = starter {
            // It was handed over when this thread could first work on it.
            let taken = self.threads.get(&tid).map_or(start, |state| state.next_on(start)).min(time);
            let left = self.threads.get(&starter).and_then(|state| state.next_left(start));
            let given = left.map_or(taken, |left| left.min(taken));
            self.writer.event(of_starter, start, begin)?;
            self.writer.event(of_starter, given, EventKind::RequestBlock { id, queue: None })?;
            self.writer.event(number, taken, begin)?;
        } else {
            self.writer.event(number, start, begin)?;
        }
        self.writer.event(number, time, EventKind::RequestEnd { id })
    }

    /// Returns the latency from which on all requests are written.
    fn slow_from(&self) -> u64 {
        self.slow_threshold.max(self.threshold)
    }

    fn boundary(&mut self, tid: u32, time: u64) {
        if let Some(state) = self.threads.get_mut(&tid) {
            state.calls.boundary(time);
        }
    }

    fn execute(&mut self, time: u64) -> io::Result<()> {
        let mut tids: Vec<u32> = self.threads.keys().copied().collect();
        tids.sort_unstable();
        tids.into_iter().try_for_each(|tid| self.end_calls(tid, time, false))?;
        self.modules.execute(time);
        let changed = self.modules.take_changed();
        self.writer.modules(&changed)
    }

    /// Returns the trace's number of a thread, and describes a new one; `None` if there are too
    /// many.
    fn thread(&mut self, tid: u32, time: u64) -> io::Result<Option<u32>> {
        if let Some(state) = self.threads.get(&tid) {
            return Ok(Some(state.thread.number));
        }
        if self.threads.len() >= THREADS {
            return Ok(None);
        }
        let number = self.next_thread;
        self.next_thread += 1;
        let state = self.threads.entry(tid).or_insert_with(|| ThreadState::new(number, tid, time));
        self.writer.threads(std::slice::from_ref(&state.thread))?;
        Ok(Some(number))
    }

    fn end_thread(&mut self, tid: u32, time: u64) -> io::Result<()> {
        self.end_calls(tid, time, false)?;
        let Some(mut state) = self.threads.remove(&tid) else { return Ok(()) };
        state.thread.ended = Some(time.max(1));
        self.writer.threads(&[state.thread])
    }

    fn end_calls(&mut self, tid: u32, time: u64, stops: bool) -> io::Result<()> {
        let interval = self.interval;
        let Converter { threads, writer, .. } = self;
        let Some(state) = threads.get_mut(&tid) else { return Ok(()) };
        let number = state.thread.number;
        reporting(writer, number, |report| state.calls.end(time, interval, stops, report))
    }
}

/// Returns the id of the machine's start: recordings with the same one share their clock.
fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().into()
}

/// Writes the calls that `work` reports.
fn reporting(writer: &mut TraceWriter, thread: u32, work: impl FnOnce(&mut dyn FnMut(Call))) -> io::Result<()> {
    let mut result = Ok(());
    work(&mut |call: Call| {
        let Call { function, caller, start, end, is_cut } = call;
        let extent = if is_cut { Extent::Cut } else { Extent::Whole };
        let kind = EventKind::Call { function, caller, duration: end - start, extent };
        if result.is_ok() {
            result = writer.event(thread, end, kind);
        }
    });
    result
}

#[cfg(test)]
mod tests;
