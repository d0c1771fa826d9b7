//! Perfetto's native format.
//!
//! Each thread has a track with nested slices, and another track for its locks. Requests have one
//! track per lane.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use super::proto::Message;
use super::{Attempt, ExportError, ExportItem, Options, named, origin, walk, watching};
use crate::join::JoinedTimeline;
use crate::symbols::Symbols;
use crate::trace::{ProgressCallback, Trace};

// Fields of Perfetto's protos/perfetto/trace: trace_packet.proto, track_event/*.proto.
const TRACE_PACKET: u32 = 1;
const PACKET_TIMESTAMP: u32 = 8;
const PACKET_SEQUENCE: u32 = 10;
const PACKET_EVENT: u32 = 11;
const PACKET_FLAGS: u32 = 13;
const PACKET_TRACK: u32 = 60;
const EVENT_ANNOTATION: u32 = 4;
const EVENT_TYPE: u32 = 9;
const EVENT_TRACK: u32 = 11;
const EVENT_CATEGORY: u32 = 22;
const EVENT_NAME: u32 = 23;
const ANNOTATION_TEXT: u32 = 6;
const ANNOTATION_NAME: u32 = 10;
const TRACK_UUID: u32 = 1;
const TRACK_NAME: u32 = 2;
const TRACK_PROCESS: u32 = 3;
const TRACK_THREAD: u32 = 4;
const TRACK_PARENT: u32 = 5;
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
/// SEQ_INCREMENTAL_STATE_CLEARED, which readers require once.
const CLEARED: u64 = 1;

/// The track of the process; threads, locks and requests have greater numbers.
const PROCESS: u64 = 1;
const THREADS: u64 = 1 << 32;
const LOCKS: u64 = 2 << 32;
const REQUESTS: u64 = 3 << 32;
/// Lanes for overlapping requests.
const LANES: usize = 256;

struct Writer<'a> {
    out: &'a mut dyn Write,
    declared: HashSet<u64>,
    /// End of the last slice of each track.
    ends: HashMap<u64, u64>,
    first: bool,
}

impl Writer<'_> {
    fn packet(&mut self, packet: Message) -> io::Result<()> {
        let mut packet = packet.number(PACKET_SEQUENCE, 1);
        if std::mem::take(&mut self.first) {
            packet = packet.number(PACKET_FLAGS, CLEARED);
        }
        self.out.write_all(Message::default().message(TRACE_PACKET, &packet).as_bytes())
    }

    fn declare(&mut self, uuid: u64, track: impl FnOnce(Message) -> Message) -> io::Result<()> {
        if !self.declared.insert(uuid) {
            return Ok(());
        }
        let track = track(Message::default().number(TRACK_UUID, uuid));
        self.packet(Message::default().message(PACKET_TRACK, &track))
    }

    fn slice(
        &mut self,
        track: u64,
        start: u64,
        end: u64,
        name: &str,
        category: &str,
        from: Option<&str>,
    ) -> io::Result<()> {
        let mut begin = Message::default()
            .number(EVENT_TYPE, SLICE_BEGIN)
            .number(EVENT_TRACK, track)
            .text(EVENT_CATEGORY, category)
            .text(EVENT_NAME, name);
        if let Some(from) = from {
            let note = Message::default().text(ANNOTATION_NAME, "from").text(ANNOTATION_TEXT, from);
            begin = begin.message(EVENT_ANNOTATION, &note);
        }
        self.at(start, &begin)?;
        self.at(end, &Message::default().number(EVENT_TYPE, SLICE_END).number(EVENT_TRACK, track))
    }

    fn at(&mut self, time: u64, event: &Message) -> io::Result<()> {
        // In the reader's default clock: another clock would require a conversion table.
        let packet = Message::default().number(PACKET_TIMESTAMP, time);
        self.packet(packet.message(PACKET_EVENT, event))
    }
}

pub(super) fn export(
    trace: &Trace,
    symbols: &mut Symbols,
    options: &Options,
    out: &mut dyn Write,
    watch: &mut ProgressCallback<'_>,
) -> Result<(), ExportError> {
    let pid = trace.header().pid;
    let mut writer = Writer { out, declared: HashSet::new(), ends: HashMap::new(), first: true };
    let mut attempt = Attempt::new();
    let failed = Cell::new(false);
    attempt.run(|| {
        let process = Message::default().number(1, u64::from(pid)).text(6, &trace.header().command);
        writer.declare(PROCESS, |track| track.message(TRACK_PROCESS, &process))
    });
    let mut lanes: Vec<u64> = Vec::new();
    let mut open: HashMap<u32, SliceStack> = HashMap::new();
    let read = walk(trace, symbols, &options.selection, &mut watching(watch, &failed), |item, symbols| {
        attempt.run(|| match item {
            ExportItem::Interval(thread, interval) => {
                thread_track(&mut writer, trace, thread)?;
                let (name, category) = named(symbols, interval);
                let from = origin(symbols, interval);
                // Slices of a track must nest: an end that exceeds the surrounding slice by a tick
                // is cut.
                let end = open.entry(thread).or_default().end_of(interval.start, interval.end);
                writer.slice(THREADS + u64::from(thread), interval.start, end, &name, category, from.as_deref())
            }
            ExportItem::Held(thread, object, lock, site, start, end) => {
                thread_track(&mut writer, trace, thread)?;
                let track = LOCKS + u64::from(thread);
                let parent = THREADS + u64::from(thread);
                writer
                    .declare(track, |message| message.text(TRACK_NAME, "holds locks").number(TRACK_PARENT, parent))?;
                let place = symbols.site(site, end).describe();
                // Holds need not nest; an overlapping hold is shown from the previous one's end.
                let start = start.max(writer.ends.get(&track).copied().unwrap_or(0));
                writer.ends.insert(track, end);
                writer.slice(track, start.min(end), end, &format!("{} {lock:#x}", object.name()), "hold", Some(&place))
            }
            ExportItem::Request(request) => {
                let free = lanes.iter().position(|end| *end <= request.start);
                let lane = free.unwrap_or(lanes.len()).min(LANES - 1);
                if lane == lanes.len() {
                    lanes.push(0);
                }
                let start = request.start.max(lanes[lane]);
                lanes[lane] = request.end;
                let track = REQUESTS + lane as u64;
                writer.declare(track, |message| message.text(TRACK_NAME, "requests").number(TRACK_PARENT, PROCESS))?;
                let name = format!("request {}", request.id);
                writer.slice(track, start.min(request.end), request.end, &name, "request", None)
            }
        });
        failed.set(attempt.failed());
    });
    attempt.finish(read)
}

pub(super) fn export_joined(joined: &JoinedTimeline, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = Writer { out, declared: HashSet::new(), ends: HashMap::new(), first: true };
    for (number, (row, (process, name))) in joined.timeline.rows.iter().zip(&joined.processes).enumerate() {
        let (parent, track) = (PROCESS + *process as u64, THREADS + number as u64);
        let number = *process as u64 + 1;
        let descriptor = Message::default().number(1, number).text(6, name);
        writer.declare(parent, |message| message.message(TRACK_PROCESS, &descriptor))?;
        writer.declare(track, |message| message.text(TRACK_NAME, &row.thread).number(TRACK_PARENT, parent))?;
        let mut slices = SliceStack::default();
        for bar in &row.bars {
            let end = slices.end_of(bar.start, bar.end);
            let from = (!bar.detail.is_empty()).then_some(bar.detail.as_str());
            writer.slice(track, bar.start, end, &bar.name, bar.look.description(), from)?;
        }
    }
    Ok(())
}

fn thread_track(writer: &mut Writer<'_>, trace: &Trace, thread: u32) -> io::Result<()> {
    let (pid, tid) = (trace.header().pid, trace.thread(thread).map_or(thread, |known| known.tid));
    let name = trace.thread(thread).map(|known| known.name.clone()).unwrap_or_default();
    writer.declare(THREADS + u64::from(thread), |track| {
        let descriptor = Message::default().number(1, u64::from(pid)).number(2, u64::from(tid)).text(5, &name);
        track.message(TRACK_THREAD, &descriptor).number(TRACK_PARENT, PROCESS)
    })
}

/// Starts and ends of the open slices.
#[derive(Default)]
struct SliceStack(Vec<(u64, u64)>);

impl SliceStack {
    fn end_of(&mut self, start: u64, end: u64) -> u64 {
        // A call that lasts longer than a batch arrives after its inner calls, which do not contain
        // it.
        while self.0.last().is_some_and(|(from, until)| *until <= start || *from > start) {
            self.0.pop();
        }
        let end = self.0.last().map_or(end, |(_, until)| end.min(*until));
        self.0.push((start, end));
        end
    }
}
