//! Opens a trace: finds its segments, reads each block once, and remembers the locations of events.
//!
//! Decides which thread decodes the events; does not contain the decoding.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;

use super::block_decoder::{BlockDecoder, InlineDecoder};
use super::damage::Damage;
use super::decoded::{BlockLocation, DecodedBlock};
use super::pool::DecoderPool;
use super::runs::{self, TraceCounts};
use super::{ProgressCallback, Segment, Trace, TraceError, preamble, report_progress};
use crate::format::block::{BlockReader, Item};
use crate::format::event::{Decoder, Sink};
use crate::format::meta::{
    ClockReport, Header, Module, Note, OverheadReport, SegmentEnd, Thread, read_clock, read_labels, read_stacks,
};
use crate::format::request_totals::RequestTotals;
use crate::format::varint::FormatError;
use crate::format::{BLOCK_HEADER, kind};

/// Limits of threads, modules and notes.
const THREADS: usize = 1 << 18;
const MODULES: usize = 1 << 14;
const NOTES: usize = 1000;
/// Limits of clock stops, and of labels.
const STILLS: usize = 1 << 17;
const LABELS: usize = 1 << 16;
/// Limit of blocks about all requests.
const TOTALS: usize = 1 << 14;
/// Bytes between two calls of the progress callback.
const PROGRESS_INTERVAL: u64 = 1 << 20;

/// Bytes per thread: starting a thread takes as long as decoding a small part of them.
const WORTH_A_THREAD: u64 = 1 << 20;

/// Opens a trace; decodes all events on this thread, in the order of the file.
pub(super) fn open_sequential(
    path: &Path,
    watch: &mut ProgressCallback<'_>,
    sink: &mut impl Sink,
) -> Result<Trace, TraceError> {
    let (mut trace, segments) = begin(path)?;
    let mut inline_decoder = InlineDecoder { decoder: Decoder::new(trace.header.clock), sink };
    read_all(&mut trace, segments, &mut inline_decoder, watch)?;
    Ok(trace)
}

/// Opens a trace; decodes events on up to `threads` threads, if the trace is large enough.
///
/// `new` makes a sink per thread; its argument is the number of threads.
pub(super) fn open_parallel<S: Sink + Send>(
    path: &Path,
    threads: usize,
    watch: &mut ProgressCallback<'_>,
    new: impl Fn(usize) -> S,
) -> Result<(Trace, Vec<S>), TraceError> {
    let (mut trace, segments) = begin(path)?;
    let bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
    let threads = threads.min(usize::try_from(bytes / WORTH_A_THREAD).unwrap_or(usize::MAX));
    let decoder = Decoder::new(trace.header.clock);
    thread::scope(|scope| {
        let several = threads > 1;
        if let Some(mut pool) = several.then(|| DecoderPool::start(scope, threads, &decoder, || new(threads))).flatten()
        {
            read_all(&mut trace, segments, &mut pool, watch)?;
            return Ok((trace, pool.finish()));
        }
        let mut sink = new(1);
        read_all(&mut trace, segments, &mut InlineDecoder { decoder, sink: &mut sink }, watch)?;
        Ok((trace, vec![sink]))
    })
}

/// Returns a trace before its first block, and its segments.
fn begin(path: &Path) -> Result<(Trace, Vec<Segment>), TraceError> {
    let mut damage = Damage::default();
    let segments = segments(path, &mut damage)?;
    let header = header(path, &segments)?;
    let trace = Trace {
        path: path.to_path_buf(),
        segments: Vec::new(),
        threads: BTreeMap::new(),
        modules: Vec::new(),
        notes: Vec::new(),
        begin: None,
        end: None,
        drift: 0,
        damage,
        counts: TraceCounts::new(),
        runs: Vec::new(),
        pace: ClockReport::default(),
        share: None,
        labels: BTreeMap::new(),
        request_totals: Vec::new(),
        stacks: BTreeMap::new(),
        header,
    };
    Ok((trace, segments))
}

/// Reads all segments.
fn read_all(
    trace: &mut Trace,
    segments: Vec<Segment>,
    decoding: &mut impl BlockDecoder,
    watch: &mut ProgressCallback<'_>,
) -> Result<(), TraceError> {
    let total = segments.iter().map(|segment| segment.bytes).sum();
    let mut done = 0;
    for segment in segments {
        let before = done;
        done += segment.bytes;
        let index = trace.segments.len() as u32;
        trace.segments.push(segment);
        let mut reported = 0;
        let mut report = |offset: u64| {
            if offset < reported + PROGRESS_INTERVAL {
                return Ok(());
            }
            reported = offset;
            report_progress(watch, before + offset, total)
        };
        if let Err(error) = read(trace, index, decoding, &mut report) {
            match error {
                // The disk may be bad, or the writer has deleted the segment meanwhile; other
                // segments may be readable.
                TraceError::Io { path, source } => trace.damage.skipped_files.push((path, source.to_string())),
                other => return Err(other),
            }
        }
    }
    decoding.flush(|decoded| note(trace, decoded));
    report_progress(watch, total, total)?;
    trace.pace.stops.sort_by_key(|stop| stop.start);
    let continues = |end: &SegmentEnd| end.reason == SegmentEnd::CONTINUES;
    trace.damage.missing_end = trace.end.as_ref().is_none_or(continues);
    // All blocks may be damaged.
    if trace.counts.first > trace.counts.last {
        trace.counts.first = trace.counts.last;
    }
    Ok(())
}

/// Lists the files of a trace, in order.
fn segments(path: &Path, damage: &mut Damage) -> Result<Vec<Segment>, TraceError> {
    let io = || TraceError::io(path);
    let meta = fs::metadata(path).map_err(io())?;
    let mut files: Vec<PathBuf> = Vec::new();
    if meta.is_dir() {
        for entry in fs::read_dir(path).map_err(io())? {
            let file = entry.map_err(io())?.path();
            if file.extension().is_some_and(|extension| extension == "lwt") {
                files.push(file);
            }
        }
        if files.is_empty() {
            return Err(TraceError::Empty(path.to_path_buf()));
        }
    } else {
        files.push(path.to_path_buf());
    }
    files.sort();
    let mut found: Vec<Segment> = Vec::new();
    let mut first_refusal = None;
    for file in files {
        let opened = File::open(&file).map_err(TraceError::io(&file));
        let read = opened.and_then(|mut open| {
            let number = preamble(&file, &mut open)?;
            Ok((number, open.metadata().map_err(TraceError::io(&file))?.len()))
        });
        match read {
            Ok((number, bytes)) => found.push(Segment { path: file, number, bytes }),
            Err(why) => {
                damage.skipped_files.push((file, why.to_string()));
                first_refusal.get_or_insert(why);
            }
        }
    }
    if let (true, Some(why)) = (found.is_empty(), first_refusal) {
        return Err(why);
    }
    found.sort_by_key(|segment| segment.number);
    for pair in found.windows(2) {
        if pair[1].number > pair[0].number + 1 {
            damage.gaps.push((pair[0].number + 1, pair[1].number - 1));
        }
    }
    Ok(found)
}

/// Returns the first readable header.
fn header(path: &Path, segments: &[Segment]) -> Result<Header, TraceError> {
    for segment in segments {
        let Ok(mut file) = File::open(&segment.path) else { continue };
        if preamble(&segment.path, &mut file).is_err() {
            continue;
        }
        let mut blocks = BlockReader::after_preamble(file);
        if let Ok(Some(Item::Block { kind: kind::HEADER, payload, .. })) = blocks.next_item()
            && let Ok(header) = Header::read(payload)
        {
            return Ok(header);
        }
    }
    Err(TraceError::NoHeader(path.to_path_buf()))
}

fn read(
    trace: &mut Trace,
    index: u32,
    decoding: &mut impl BlockDecoder,
    report: &mut dyn FnMut(u64) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let path = trace.segments[index as usize].path.clone();
    let mut file = File::open(&path).map_err(TraceError::io(&path))?;
    preamble(&path, &mut file)?;
    let mut blocks = BlockReader::after_preamble(file);
    while let Some(item) = blocks.next_item().map_err(TraceError::io(&path))? {
        match item {
            Item::Damage(damaged) => {
                let why = if damaged.truncated {
                    "cut off in the middle of a block"
                } else {
                    "no block with a correct checksum"
                };
                // Reports damage in the order of the file.
                decoding.flush(|decoded| note(trace, decoded));
                trace.damage.region(&path, damaged.offset, damaged.bytes, why);
            }
            Item::Block { offset, kind, payload } => {
                report(offset)?;
                let bytes = (payload.len() + BLOCK_HEADER) as u64;
                let read = match kind {
                    kind::EVENTS => {
                        let location = BlockLocation { segment: index, offset, bytes };
                        decoding.push(location, payload, |decoded| note(trace, decoded));
                        Ok(())
                    }
                    kind::HEADER => match Header::read(payload) {
                        Ok(header) if header.id != trace.header.id => {
                            let why = "it belongs to another trace";
                            trace.damage.skipped_files.push((path, why.into()));
                            return Ok(());
                        }
                        // The last header counts: a server changes its processes' titles.
                        other => other.map(|header| trace.header.command = header.command),
                    },
                    _ => about(trace, kind, payload),
                };
                if let Err(error) = read {
                    decoding.flush(|decoded| note(trace, decoded));
                    trace.damage.malformed(&path, offset, bytes, error);
                }
            }
        }
    }
    Ok(())
}

/// Records the location, the counts and the defect of a block.
fn note(trace: &mut Trace, decoded: DecodedBlock) {
    trace.counts.add(&decoded.counts);
    if let Some(run) = decoded.run() {
        runs::add(&mut trace.runs, run);
    }
    if let Some(error) = decoded.error {
        let BlockLocation { segment, offset, bytes } = decoded.location;
        let Trace { segments, damage, .. } = trace;
        damage.malformed(&segments[segment as usize].path, offset, bytes, error);
    }
}

/// Reads a block of metadata.
fn about(trace: &mut Trace, block: u8, payload: &[u8]) -> Result<(), FormatError> {
    let clock = trace.header.clock;
    match block {
        kind::MODULES => {
            for module in Module::read_all(payload, &clock)? {
                let has_space = trace.modules.len() < MODULES;
                match trace.modules.iter_mut().find(|known| known.id == module.id) {
                    Some(known) => *known = module,
                    None if has_space => trace.modules.push(module),
                    None => trace.damage.dropped_entries += 1,
                }
            }
        }
        kind::THREADS => {
            for thread in Thread::read_all(payload, &clock)? {
                if trace.threads.len() < THREADS || trace.threads.contains_key(&thread.number) {
                    trace.threads.insert(thread.number, thread);
                } else {
                    trace.damage.dropped_entries += 1;
                }
            }
        }
        kind::CLOCK => {
            let (time, drift) = read_clock(payload, &clock)?;
            // The first clock block of segment 0. Without that segment, the start of the trace is
            // unknown.
            if let [Segment { number: 0, .. }] = trace.segments[..] {
                trace.begin.get_or_insert(time);
            }
            if drift.unsigned_abs() > trace.drift.unsigned_abs() {
                trace.drift = drift;
            }
        }
        kind::NOTE => {
            let note = Note::read(payload, &clock)?;
            // Each segment may repeat the notes.
            let known = trace.notes.iter().any(|known| known.text == note.text);
            if !known && trace.notes.len() < NOTES {
                trace.notes.push(note);
            } else if !known {
                trace.damage.dropped_entries += 1;
            }
        }
        kind::PACE => {
            let pace = ClockReport::read(payload, &clock)?;
            let mut listed = std::mem::take(&mut trace.pace.stops);
            // The sums include all stops; the listed part shows their durations.
            listed.extend(pace.stops.iter().take(STILLS.saturating_sub(listed.len())));
            trace.pace = ClockReport { stops: listed, ..pace };
        }
        // The last one contains all.
        kind::SHARE => trace.share = Some(OverheadReport::read(payload)?),
        kind::LABELS => {
            for (number, text) in read_labels(payload)? {
                if trace.labels.len() < LABELS || trace.labels.contains_key(&number) {
                    trace.labels.insert(number, text);
                }
            }
        }
        kind::REQUESTS => totals(&mut trace.request_totals, RequestTotals::read(payload, &clock)?),
        kind::STACKS => {
            for (number, addresses) in read_stacks(payload)? {
                if trace.stacks.len() < LABELS || trace.stacks.contains_key(&number) {
                    trace.stacks.insert(number, addresses.into());
                }
            }
        }
        kind::END => trace.end = Some(SegmentEnd::read(payload, &clock)?),
        _ => {}
    }
    Ok(())
}

/// Adds a block about all requests. Of the latencies only the last list is kept; it has all.
fn totals(all: &mut Vec<RequestTotals>, next: RequestTotals) {
    if !next.latencies.is_empty() {
        all.iter_mut().for_each(|totals| totals.latencies = Vec::new());
    }
    all.push(next);
    if all.len() >= TOTALS {
        // Counts are sums since the begin, so each second block tells the same, less finely.
        let mut index = 0;
        let last = all.len() - 1;
        all.retain(|totals| {
            index += 1;
            index % 2 == 1 || index > last || !totals.latencies.is_empty()
        });
    }
}
