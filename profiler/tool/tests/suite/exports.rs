//! Exports as their readers parse them.
//!
//! Each line of CSV has as many fields as the header. In Chrome's JSON and in Perfetto's packets,
//! each begin has an end. `profiler/tests/readers` reads the same files with pandas, pyarrow and
//! Perfetto's own definitions.

use std::collections::BTreeMap;

use crate::support::*;
use leeward_profile::analysis::Selection;
use leeward_profile::analysis::timeline::RequestChoice;
use leeward_profile::export::{Format, Options, export};
use leeward_profile::format::event::OffCpu;
use leeward_profile::format::queue::Queue;
use leeward_profile::format::write::TraceWriter;
use leeward_profile::format::{EventKind, ObjectKind};
use leeward_profile::trace::ignore_progress;

/// Exports a trace of requests with calls, overlapping lock holds and both reasons to lose the CPU.
///
/// One call lasts longer than a batch.
fn exported(format: Format) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(folder.path(), &setup()).unwrap();
    let requests = 7_000;
    for id in 1..=requests {
        let start = id * 100_000;
        request(&mut writer, id, start, start + 50_000, |writer| {
            let reason = if id % 2 == 0 { OffCpu::Blocked } else { OffCpu::Runnable };
            writer.event(WORKER, start + 3_000, switched_out(reason)).unwrap();
            writer.event(WORKER, start + 9_000, EventKind::SwitchedIn { cpu: 1 }).unwrap();
            writer.event(WORKER, start + 20_000, call(PARSE, 18_000)).unwrap();
            // `RARE` lasts as long as `WRITE`, the call around it.
            writer.event(WORKER, start + 30_000, call(RARE, 5_000)).unwrap();
            writer.event(WORKER, start + 30_000, call(WRITE, 5_000)).unwrap();
            writer.event(WORKER, start + 40_000, lock_held(0x1100, 1_000, 15_000)).unwrap();
            let other =
                EventKind::Held { object: ObjectKind::Reader, lock: LOCK + 64, site: 0x1100, wait: 0, hold: 15_000 };
            writer.event(WORKER, start + 45_000, other).unwrap();
        });
    }
    let end = (requests + 1) * 100_000;
    writer.event(WORKER, end, call(SNAPSHOT, end - 50_000)).unwrap();
    writer.finish(end + 1).unwrap();
    let (trace, mut symbols) = open(folder.path());
    let mut out = Vec::new();
    let options = Options { selection: Selection::Marked, slower_than: 0 };
    export(&trace, &mut symbols, format, &options, &mut out, &mut ignore_progress).unwrap();
    out
}

#[test]
fn waits_of_a_request_keep_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(folder.path(), &setup()).unwrap();
    writer.labels(&[(3, "quota; of today")]).unwrap();
    let queue = Some(Queue::Named(3).to_event());
    request(&mut writer, 1, 1_000, 50_000, |writer| {
        writer.event(WORKER, 10_000, EventKind::RequestBlock { id: 1, queue }).unwrap();
        writer.event(WORKER, 40_000, EventKind::RequestStart { id: 1, queue }).unwrap();
    });
    writer.finish(60_000).unwrap();
    let (trace, mut symbols) = open(folder.path());
    let mut out = Vec::new();
    let options = Options { selection: Selection::Marked, slower_than: 0 };
    export(&trace, &mut symbols, Format::Folded, &options, &mut out, &mut ignore_progress).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.lines().any(|line| line == "request;awaiting quota, of today 30000"), "{text}");
    let timeline = timeline_of(folder.path(), RequestChoice::Slowest);
    assert_eq!(timeline.rows[0].bars[0].name, "awaiting quota; of today");
}

/// Fields of a line of CSV, as in RFC 4180.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            other => fields.last_mut().unwrap().push(other),
        }
    }
    fields
}

#[test]
fn each_line_of_csv_has_as_many_fields_as_its_head() {
    let text = String::from_utf8(exported(Format::Csv)).unwrap();
    let mut lines = text.lines().map(fields);
    let head = lines.next().unwrap();
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for line in lines {
        assert_eq!(line.len(), head.len(), "{line:?}");
        *kinds.entry(line[1].clone()).or_default() += 1;
    }
    assert_eq!((kinds["switched out, blocked"], kinds["switched out, runnable"]), (3_500, 3_500), "{kinds:?}");
}

/// Begins (+1) and ends (−1) of a track with their times, in the order of the file.
type Slices = Vec<(u64, i64)>;

/// Checks a track like a reader: a stable sort by time, then each end must follow its begin.
fn balanced(track: &str, mut slices: Slices) {
    slices.sort_by_key(|(time, _)| *time);
    let mut depth = 0;
    for (time, step) in slices {
        depth += step;
        assert!(depth >= 0, "{track}: an end without a begin at {time}");
    }
    assert_eq!(depth, 0, "{track}: begins without an end");
}

#[test]
fn chrome_export_balances_begin_and_end_events() {
    let json: serde_json::Value = serde_json::from_slice(&exported(Format::Chrome)).unwrap();
    let mut tracks: BTreeMap<String, Slices> = BTreeMap::new();
    let mut complete = 0;
    for event in json["traceEvents"].as_array().unwrap() {
        let time = (event["ts"].as_f64().unwrap_or_default() * 1000.0).round() as u64;
        let track = format!("{} {} {}", event["cat"], event["id"], event["name"]);
        match event["ph"].as_str().unwrap() {
            "b" => tracks.entry(track).or_default().push((time, 1)),
            "e" => tracks.entry(track).or_default().push((time, -1)),
            "X" => {
                assert!(event["dur"].as_f64().unwrap() >= 0.0, "{event}");
                complete += 1;
            }
            other => assert_eq!(other, "M"),
        }
    }
    assert!(complete > 30_000 && tracks.len() > 7_000, "{complete} complete ones, {} tracks", tracks.len());
    tracks.into_iter().for_each(|(track, slices)| balanced(&track, slices));
}

/// Fields of a protocol buffers message: number, and value or bytes.
fn message(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(first & 127) << shift;
            shift += 7;
            if first & 128 == 0 {
                return value;
            }
        }
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let (key, value) = (varint(&mut bytes), varint(&mut bytes));
        let inside = if key & 7 == 2 { bytes.split_at(value as usize) } else { bytes.split_at(0) };
        bytes = inside.1;
        fields.push((key >> 3, value, inside.0));
    }
    fields
}

#[test]
fn perfetto_export_balances_begin_and_end_events() {
    let bytes = exported(Format::Perfetto);
    let mut tracks: BTreeMap<u64, Slices> = BTreeMap::new();
    let mut longest = 0;
    for (_, _, packet) in message(&bytes) {
        let packet = message(packet);
        let time = packet.iter().find(|field| field.0 == 8).map_or(0, |field| field.1);
        for (_, _, event) in packet.iter().filter(|field| field.0 == 11) {
            let field_value = |number| message(event).iter().find(|field| field.0 == number).map_or(0, |field| field.1);
            tracks.entry(field_value(11)).or_default().push((time, if field_value(9) == 1 { 1 } else { -1 }));
            longest = longest.max(time);
        }
    }
    assert!(tracks.len() >= 3, "{:?}", tracks.keys());
    // The outermost call ends at its own time, although it is written many batches after the inner
    // calls.
    assert_eq!(longest, 700_100_000);
    tracks.into_iter().for_each(|(track, slices)| balanced(&format!("track {track:#x}"), slices));
}
