//! The trace of one process, from its records.
//!
//! Records wait for a moment until those of other sources have arrived. A request is reported at
//! its end: its begin is then put among the records that wait, so that calls are cut there.
//!
//! Does not read `/proc`, and does not poll sources.

mod requests;
mod stacks;

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::path::Path;

use leeward_profile::format::event::EventKind;
use leeward_profile::format::meta::{Clock, ClockReport, Engine, Header, SegmentEnd};
use leeward_profile::format::request_totals::RequestTotals;
use leeward_profile::format::write::{TraceConfig, TraceWriter};

use super::calls::Frame;
use super::config::{ConverterConfig, Written};
use super::item::Item;
use super::kept::{Kept, Step};
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
    written: Written,
    stack: Vec<Frame>,
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
            RecordKind::Mapped(mapping) => self.modules.announce_map(mapping, time),
            RecordKind::Executed => self.modules.announce_execution(time),
            RecordKind::Request { start, started_by, .. } => {
                self.waiting.push(*start, RECORD, Item::Began(started_by.unwrap_or(thread)));
            }
            _ => {}
        }
        self.waiting.push(time, bytes, Item::Record(thread, kind));
        // Only for records beyond the limit.
        self.advance(0)
    }

    /// Says how many requests this process has answered up to `totals.time`. Threshold and
    /// latencies are of all processes that are recorded; `is_alone` if this is the only one. How
    /// many of the requests are in the trace is counted here.
    pub fn request_totals(&mut self, totals: RequestTotals, is_alone: bool) {
        self.waiting.push(totals.time, RECORD + 16 * totals.latencies.len(), Item::Totals(Box::new(totals), is_alone));
    }

    /// Says that from this time on nothing was recorded for a while.
    pub fn pause_at(&mut self, time: u64) {
        self.waiting.push(time, RECORD, Item::Pause);
    }

    /// Says that samples are now this much CPU time apart, since the recording began `mean`, and
    /// that nothing was recorded for `paused` nanoseconds.
    ///
    /// # Errors
    /// See [`Converter::record`].
    pub fn set_pace(&mut self, interval: u64, mean: u64, paused: u64) -> io::Result<()> {
        self.interval = interval.max(1);
        self.writer.pace(&ClockReport { tick: mean, stopped: paused, ..ClockReport::default() })
    }

    /// Converts the records up to this time.
    ///
    /// # Errors
    /// See [`Converter::record`].
    pub fn advance(&mut self, until: u64) -> io::Result<()> {
        while let Some((time, item)) = self.waiting.pop(until) {
            self.now = self.now.max(time);
            if let Some(kept) = &mut self.kept {
                kept.hold(time, item);
                self.release(time)?;
            } else {
                self.convert_item(time, item)?;
            }
        }
        Ok(())
    }

    /// Converts what has waited for slow requests until now.
    fn release(&mut self, now: u64) -> io::Result<()> {
        while let Some(step) = self.kept.as_mut().and_then(|kept| kept.next(now)) {
            match step {
                Step::Convert(time, item) => self.convert_item(time, item)?,
                Step::Pause(time) => self.pause(time)?,
            }
        }
        Ok(())
    }

    fn convert_item(&mut self, time: u64, item: Item) -> io::Result<()> {
        match item {
            Item::Record(thread, kind) => self.convert(time, thread, kind),
            Item::Began(thread) => {
                self.boundary(thread, time);
                if let Some(state) = self.threads.get_mut(&thread) {
                    state.begun(time);
                }
                Ok(())
            }
            Item::Totals(totals, is_alone) => {
                let Written { slow, sampled, .. } = self.written;
                let latencies = if is_alone { totals.latencies } else { Vec::new() };
                self.writer.request_totals(&RequestTotals { slow, sampled, latencies, ..*totals })
            }
            Item::Pause => self.pause(time),
        }
    }

    /// Nothing is told of the threads from now on until further records.
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
    pub fn modules(&mut self) -> &mut Modules {
        &mut self.modules
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
        let converted = self.advance(u64::MAX).and_then(|()| self.release(u64::MAX));
        let time = time.max(self.now);
        let mut tids: Vec<u32> = self.threads.keys().copied().collect();
        tids.sort_unstable();
        let ended: io::Result<()> = tids.into_iter().try_for_each(|tid| self.end_calls(tid, time, true));
        let written = converted.and(ended);
        let reason = written.as_ref().err().map_or(reason, SegmentEnd::reason_after);
        let finished = self.writer.finish_because(time, reason);
        match written.and(finished) {
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
            RecordKind::SwitchedOut { reason, stack } => self.switched_out(time, tid, reason, stack.as_deref()),
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
            RecordKind::Request { id, start, started_by, is_slow } => {
                self.written.slow += u64::from(is_slow);
                self.written.sampled += u64::from(!is_slow);
                self.request(time, tid, id, start.min(time), started_by)
            }
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
}

/// Returns the id of the machine's start: recordings with the same one share their clock.
fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().into()
}

#[cfg(test)]
mod tests;
