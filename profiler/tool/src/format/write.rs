//! A writer of traces, for tests, examples and programs that record by other means. The profiler's
//! run-time has its own writer in C.
//!
//! Does not contain the files' limits (`segments`) and the blocks about the process (`payload`).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::block::put_block;
use super::context::{self, OtherEvent};
use super::event::{EventKind, Extent, OffCpu, PairTable};
use super::meta::{Clock, ClockReport, Engine, Header, Module, OverheadReport, SegmentEnd, Thread};
use super::payload::{clock_payload, header_payload, modules_payload, threads_payload};
use super::request_totals::RequestTotals;
use super::segments::SegmentFiles;
pub use super::segments::segment_path;
use super::varint::{put_signed, put_text, put_varint};
use super::{MAGIC, VERSION, kind};

/// Size in bytes at which a block of events is written.
const BLOCK: usize = 64 << 10;
/// Modules, threads or labels in one block: their texts may be long.
const PER_BLOCK: usize = 200;

/// Settings of a trace.
#[derive(Clone, Debug)]
pub struct TraceConfig {
    /// The header.
    pub header: Header,
    /// Modules; their times in units of the clock.
    pub modules: Vec<Module>,
    /// Threads; their times in units of the clock.
    pub threads: Vec<Thread>,
    /// Size in bytes at which a segment ends.
    pub segment_bytes: u64,
    /// Size in bytes that all segments together may have: the oldest are deleted.
    pub budget_bytes: u64,
}

impl Default for TraceConfig {
    fn default() -> TraceConfig {
        let header = Header {
            id: [7; 16],
            clock: Clock::NANOSECONDS,
            pid: 1,
            engine: Engine::Tick,
            call_threshold: 1000,
            lock_threshold: 1000,
            resolution: 1000,
            architecture: "x86_64".into(),
            writer: "leeward".into(),
            command: "example".into(),
            boot: String::new(),
        };
        TraceConfig {
            header,
            modules: Vec::new(),
            threads: Vec::new(),
            segment_bytes: 64 << 20,
            budget_bytes: u64::MAX,
        }
    }
}

/// Encodes one thread's events into payloads.
#[derive(Debug)]
struct Encoder {
    body: Vec<u8>,
    pairs: PairTable,
    count: u32,
    base: u64,
    time: u64,
    id: u64,
    earliest: u64,
    latest: u64,
}

impl Encoder {
    fn new() -> Encoder {
        Encoder {
            body: Vec::new(),
            pairs: PairTable::new(),
            count: 0,
            base: 0,
            time: 0,
            id: 0,
            earliest: u64::MAX,
            latest: 0,
        }
    }

    fn payload(&mut self, thread: u32) -> Vec<u8> {
        let mut payload = Vec::with_capacity(32 + self.body.len());
        payload.extend_from_slice(&thread.to_le_bytes());
        payload.extend_from_slice(&self.count.to_le_bytes());
        for time in [self.base, self.earliest, self.latest] {
            payload.extend_from_slice(&time.to_le_bytes());
        }
        payload.append(&mut self.body);
        self.pairs.clear();
        (self.count, self.id, self.earliest, self.latest) = (0, 0, u64::MAX, 0);
        payload
    }

    fn put(&mut self, time: u64, kind: &EventKind) {
        if self.count == 0 {
            (self.base, self.time) = (time, time);
        }
        self.count += 1;
        let reach = match *kind {
            EventKind::Call { duration, .. } => duration,
            EventKind::Held { wait, hold, .. } => wait.saturating_add(hold),
            EventKind::Waited { wait, .. } | EventKind::Acquired { wait, .. } => wait,
            _ => 0,
        };
        self.earliest = self.earliest.min(time.saturating_sub(reach));
        self.latest = self.latest.max(time);
        let head = self.body.len();
        self.body.push(0);
        put_signed(&mut self.body, time, self.time);
        self.time = time;
        self.body[head] = self.fields(kind);
    }

    /// Writes an event of kind 15 and returns its first byte.
    fn other(&mut self, event: OtherEvent) -> u8 {
        let mut inside = context::encode(&event);
        put_varint(&mut self.body, inside.len() as u64);
        self.body.append(&mut inside);
        15
    }

    /// Writes the fields and returns the first byte.
    fn fields(&mut self, kind: &EventKind) -> u8 {
        match *kind {
            EventKind::Call { function, caller, duration, extent } => {
                put_varint(&mut self.body, duration);
                let marks = match extent {
                    Extent::Whole => 0,
                    Extent::Cut => 0x40,
                    Extent::Early => 0x20,
                    Extent::CutAndEarly => 0x60,
                };
                1 | marks | self.pair((function, caller))
            }
            EventKind::Held { object, lock, site, wait, hold } => {
                put_varint(&mut self.body, wait);
                put_varint(&mut self.body, hold);
                2 | object.marks() | self.pair((lock, site))
            }
            EventKind::Waited { object, lock, site, wait } => {
                put_varint(&mut self.body, wait);
                3 | object.marks() | self.pair((lock, site))
            }
            EventKind::Acquired { object, lock, site, wait } => {
                put_varint(&mut self.body, wait);
                4 | object.marks() | self.pair((lock, site))
            }
            EventKind::Released { object, lock, site } => 5 | object.marks() | self.pair((lock, site)),
            EventKind::RequestStart { id, queue } => 6 | self.request(id, queue),
            EventKind::RequestBlock { id, queue } => 7 | self.request(id, queue),
            EventKind::RequestEnd { id } => 8 | self.request(id, None),
            EventKind::RequestEndAll => 9,
            EventKind::RequestLabel { id, label } => self.other(OtherEvent::RequestLabel { id, label }),
            EventKind::RequestContext { id, field, value } => {
                self.other(OtherEvent::RequestContext { id, field, value })
            }
            EventKind::RemoteCall { id, span, peer } => self.other(OtherEvent::RemoteCall { id, span, peer }),
            EventKind::RemoteAnswer { id, span } => self.other(OtherEvent::RemoteAnswer { id, span }),
            EventKind::SwitchedOut { cpu, next, reason: why } => {
                put_varint(&mut self.body, u64::from(cpu));
                put_varint(&mut self.body, u64::from(next));
                match why {
                    OffCpu::Blocked => 10,
                    OffCpu::Runnable => 0x10 | 10,
                    OffCpu::Stopped => 0x20 | 10,
                }
            }
            EventKind::Woken { waker: by } => {
                put_varint(&mut self.body, u64::from(by));
                11
            }
            EventKind::SwitchedIn { cpu } => {
                put_varint(&mut self.body, u64::from(cpu));
                12
            }
            EventKind::Migrated { from, to } => {
                put_varint(&mut self.body, u64::from(from));
                put_varint(&mut self.body, u64::from(to));
                13
            }
            EventKind::Lost { category: sort, count } => {
                self.body.push(sort);
                put_varint(&mut self.body, count);
                14
            }
        }
    }

    fn request(&mut self, id: u64, queue: Option<u64>) -> u8 {
        put_signed(&mut self.body, id, self.id);
        self.id = id;
        queue.map_or(0, |queue| {
            put_varint(&mut self.body, queue);
            0x80
        })
    }

    fn pair(&mut self, pair: (u64, u64)) -> u8 {
        match self.pairs.put(pair) {
            Ok(slot) => {
                self.body.push(slot);
                0x80
            }
            Err(before) => {
                put_signed(&mut self.body, pair.0, before.0);
                put_signed(&mut self.body, pair.1, before.1);
                0
            }
        }
    }
}

/// Writes a trace into a folder. Only its owner may read the files.
#[derive(Debug)]
pub struct TraceWriter {
    files: SegmentFiles,
    header: Header,
    /// What each new segment repeats: modules and threads that have not ended, and labels.
    live_modules: BTreeMap<u64, Module>,
    live_threads: BTreeMap<u32, Thread>,
    labels: Vec<(u32, String)>,
    threads: BTreeMap<u32, Encoder>,
    events: u64,
    lost: u64,
    latest: u64,
}

impl TraceWriter {
    /// Begins a trace in a folder; creates a missing folder, and replaces another trace in it.
    ///
    /// # Errors
    /// An error of the file system, like all following methods.
    pub fn create(folder: &Path, config: &TraceConfig) -> io::Result<TraceWriter> {
        let segment = config.segment_bytes.min(config.budget_bytes / 4);
        let mut writer = TraceWriter {
            files: SegmentFiles::create(folder, segment, config.budget_bytes)?,
            header: config.header.clone(),
            live_modules: config.modules.iter().map(|module| (module.id, module.clone())).collect(),
            live_threads: config.threads.iter().map(|thread| (thread.number, thread.clone())).collect(),
            labels: Vec::new(),
            threads: BTreeMap::new(),
            events: 0,
            lost: 0,
            latest: 0,
        };
        writer.begin_segment()?;
        Ok(writer)
    }

    /// Records an event that ended at `time` in `thread`. All times and spans in units of the
    /// trace's clock.
    ///
    /// # Errors
    /// See [`TraceWriter::create`].
    pub fn event(&mut self, thread: u32, time: u64, kind: EventKind) -> io::Result<()> {
        self.events += 1;
        self.latest = self.latest.max(time);
        if let EventKind::Lost { count, .. } = kind {
            self.lost = self.lost.saturating_add(count);
        }
        let encoder = self.threads.entry(thread).or_insert_with(Encoder::new);
        encoder.put(time, &kind);
        if encoder.body.len() >= BLOCK {
            let payload = encoder.payload(thread);
            self.block(kind::EVENTS, &payload)?;
            self.rotate_if_full()?;
        }
        Ok(())
    }

    /// Writes a report about the clock.
    ///
    /// # Errors
    /// See [`TraceWriter::create`].
    pub fn pace(&mut self, pace: &ClockReport) -> io::Result<()> {
        let mut payload = 0_u64.to_le_bytes().to_vec();
        for number in [pace.stopped, pace.coarse, pace.coarse_tick, pace.used, pace.tick, pace.stops.len() as u64] {
            put_varint(&mut payload, number);
        }
        for stop in &pace.stops {
            payload.extend(stop.start.to_le_bytes());
            put_varint(&mut payload, stop.length);
            put_varint(&mut payload, stop.used);
        }
        self.block(kind::PACE, &payload)
    }

    /// Writes a report about overhead and omissions.
    ///
    /// # Errors
    /// See [`TraceWriter::create`].
    pub fn share(&mut self, share: &OverheadReport) -> io::Result<()> {
        let mut payload = 0_u64.to_le_bytes().to_vec();
        let OverheadReport { asked, estimated, functions, left_out, calls, missed, longest, .. } = *share;
        for number in [asked, estimated, functions, left_out, calls, missed, longest] {
            put_varint(&mut payload, number);
        }
        payload.push(u8::from(share.holders) | u8::from(share.sched) << 1 | u8::from(share.waits) << 2);
        put_varint(&mut payload, share.most.len() as u64);
        for one in &share.most {
            payload.extend(one.function.to_le_bytes());
            for number in [one.calls, one.missed, one.length] {
                put_varint(&mut payload, number);
            }
        }
        self.block(kind::SHARE, &payload)
    }

    /// Writes the texts of labels. Each segment repeats them.
    ///
    /// # Errors
    /// See [`TraceWriter::create`].
    pub fn labels(&mut self, labels: &[(u32, &str)]) -> io::Result<()> {
        let known = self.labels.len();
        self.labels.extend(labels.iter().map(|(number, text)| (*number, (*text).to_string())));
        let TraceWriter { files, labels, .. } = self;
        labels[known..].chunks(PER_BLOCK).try_for_each(|labels| append(files, kind::LABELS, &labels_payload(labels)))
    }

    /// Writes stacks of threads where requests began to wait: numbers from 1, and return addresses,
    /// the innermost first.
    ///
    /// # Errors
    /// See [`TraceWriter::create`].
    pub fn stacks(&mut self, stacks: &[(u32, &[u64])]) -> io::Result<()> {
        let mut payload = Vec::new();
        put_varint(&mut payload, stacks.len() as u64);
        for (number, addresses) in stacks {
            put_varint(&mut payload, u64::from(*number));
            put_varint(&mut payload, addresses.len() as u64);
            payload.extend(addresses.iter().flat_map(|address| address.to_le_bytes()));
        }
        self.block(kind::STACKS, &payload)
    }

    /// Writes a note.
    ///
    /// # Errors
    /// See [`TraceWriter::create`].
    pub fn note(&mut self, time: u64, level: u8, topic: u8, text: &str) -> io::Result<()> {
        let mut payload = time.to_le_bytes().to_vec();
        payload.extend([level, topic]);
        put_text(&mut payload, text);
        self.block(kind::NOTE, &payload)
    }

    /// Writes the header again, for a process with a new command line.
    ///
    /// # Errors
    /// See [`TraceWriter::create`].
    pub fn write_header(&mut self, command: &str) -> io::Result<()> {
        self.header.command = command.into();
        let header = header_payload(&self.header);
        self.block(kind::HEADER, &header)
    }

    /// Writes the remaining events and the end.
    ///
    /// # Errors
    /// See [`TraceWriter::create`].
    pub fn finish(self, time: u64) -> io::Result<()> {
        self.finish_because(time, 0)
    }

    /// Writes the remaining events and the end with a reason; see [`SegmentEnd::reason`].
    ///
    /// # Errors
    /// See [`TraceWriter::create`]. The end is written even if events could not be.
    pub fn finish_because(mut self, time: u64, reason: u8) -> io::Result<()> {
        let flushed = self.flush();
        let reason = flushed.as_ref().err().map_or(reason, SegmentEnd::reason_after);
        let mut ended = self.end(time, reason);
        if ended.is_err() {
            ended = self.files.drop_last_block().and_then(|()| self.end(time, reason));
        }
        flushed.and(ended)
    }

    /// Writes the buffered events without an end, like a writer that is killed.
    ///
    /// # Errors
    /// See [`TraceWriter::create`].
    pub fn flush(&mut self) -> io::Result<()> {
        for (thread, encoder) in &mut self.threads {
            if encoder.count > 0 {
                append(&mut self.files, kind::EVENTS, &encoder.payload(*thread))?;
            }
        }
        self.rotate_if_full()
    }

    /// Returns the bytes of all segments that the folder holds now.
    pub fn bytes(&self) -> u64 {
        self.files.bytes()
    }

    /// Returns the number of events that were recorded so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    fn rotate_if_full(&mut self) -> io::Result<()> {
        if !self.files.is_full() {
            return Ok(());
        }
        // Events before the end belong to this segment, so that each can be read by itself.
        for (thread, encoder) in &mut self.threads {
            if encoder.count > 0 {
                append(&mut self.files, kind::EVENTS, &encoder.payload(*thread))?;
            }
        }
        self.end(self.latest, SegmentEnd::CONTINUES)?;
        self.files.begin_next()?;
        self.begin_segment()
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        let mut preamble = MAGIC.to_vec();
        preamble.extend(VERSION.to_le_bytes());
        preamble.extend([0, 0]);
        preamble.extend(self.files.number().to_le_bytes());
        self.files.append(&preamble)?;
        let (header, clock) = (header_payload(&self.header), clock_payload(&self.header.clock));
        append(&mut self.files, kind::HEADER, &header)?;
        append(&mut self.files, kind::CLOCK, &clock)?;
        let modules: Vec<Module> = self.live_modules.values().cloned().collect();
        self.describe_modules(&modules)?;
        let threads: Vec<Thread> = self.live_threads.values().cloned().collect();
        self.describe_threads(&threads)?;
        let TraceWriter { files, labels, .. } = self;
        for labels in labels.chunks(PER_BLOCK) {
            append(files, kind::LABELS, &labels_payload(labels))?;
        }
        Ok(())
    }

    /// Describes modules that are new, or replaces what was said of them.
    ///
    /// # Errors
    /// See [`TraceWriter::create`].
    pub fn modules(&mut self, modules: &[Module]) -> io::Result<()> {
        for module in modules {
            match module.unloaded {
                None => self.live_modules.insert(module.id, module.clone()),
                Some(_) => self.live_modules.remove(&module.id),
            };
        }
        self.describe_modules(modules)
    }

    fn describe_modules(&mut self, modules: &[Module]) -> io::Result<()> {
        modules.chunks(PER_BLOCK).try_for_each(|modules| self.block(kind::MODULES, &modules_payload(modules)))
    }

    /// Describes threads that are new, or replaces what was said of them.
    ///
    /// # Errors
    /// See [`TraceWriter::create`].
    pub fn threads(&mut self, threads: &[Thread]) -> io::Result<()> {
        for thread in threads {
            if thread.ended.is_none() {
                self.live_threads.insert(thread.number, thread.clone());
                continue;
            }
            self.live_threads.remove(&thread.number);
            if let Some(mut encoder) = self.threads.remove(&thread.number)
                && encoder.count > 0
            {
                self.block(kind::EVENTS, &encoder.payload(thread.number))?;
            }
        }
        self.describe_threads(threads)
    }

    fn describe_threads(&mut self, threads: &[Thread]) -> io::Result<()> {
        threads.chunks(PER_BLOCK).try_for_each(|threads| self.block(kind::THREADS, &threads_payload(threads)))
    }

    /// Writes how many requests there were, reported or not.
    ///
    /// # Errors
    /// See [`TraceWriter::create`].
    pub fn request_totals(&mut self, totals: &RequestTotals) -> io::Result<()> {
        let payload = totals.payload();
        self.block(kind::REQUESTS, &payload)
    }

    fn end(&mut self, time: u64, reason: u8) -> io::Result<()> {
        let mut payload = time.to_le_bytes().to_vec();
        payload.push(reason);
        payload.extend(self.events.to_le_bytes());
        payload.extend(self.lost.to_le_bytes());
        self.block(kind::END, &payload)
    }

    /// Appends a block of any kind.
    ///
    /// # Errors
    /// See [`TraceWriter::create`].
    pub fn block(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        append(&mut self.files, kind, payload)
    }
}

fn append(files: &mut SegmentFiles, kind: u8, payload: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(payload.len() + 16);
    put_block(&mut bytes, kind, payload);
    files.append(&bytes)
}

fn labels_payload(labels: &[(u32, String)]) -> Vec<u8> {
    let mut payload = Vec::new();
    put_varint(&mut payload, labels.len() as u64);
    for (number, text) in labels {
        put_varint(&mut payload, u64::from(*number));
        put_text(&mut payload, text);
    }
    payload
}
