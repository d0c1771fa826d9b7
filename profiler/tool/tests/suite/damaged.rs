//! Truncated, damaged, incomplete and foreign traces: a clear error, and the readable events.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::*;
use leeward_profile::format::meta::Clock;
use leeward_profile::format::varint::FormatError;
use leeward_profile::format::write::{TraceConfig, TraceWriter, segment_path};
use leeward_profile::format::{EventKind, kind};
use leeward_profile::trace::{Trace, TraceError, ignore_progress};

/// Writes a trace of at least three segments; returns its number of events.
fn several() -> (tempfile::TempDir, u64) {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(folder.path(), &TraceConfig { segment_bytes: 100_000, ..setup() }).unwrap();
    for id in 1..=20_000 {
        usual_request(&mut writer, id, id * 100_000);
    }
    writer.finish(3_000_000_000).unwrap();
    assert!(segments(folder.path()).len() >= 3);
    (folder, 20_000 * 4)
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn open(folder: &Path) -> Trace {
    Trace::open(folder, &mut ignore_progress).unwrap()
}

#[test]
fn a_whole_trace_has_no_damage() {
    let (folder, events) = several();
    let trace = open(folder.path());
    assert!(trace.damage().is_none(), "{}", trace.damage());
    assert_eq!(trace.counts().events, events);
    assert_eq!(trace.end().unwrap().events, events);
    // A single segment can be read alone.
    let part = open(&segments(folder.path())[1]);
    assert!(part.counts().events > 0 && part.counts().events < events);
}

#[test]
fn a_flipped_byte_costs_one_block() {
    let (folder, events) = several();
    let path = &segments(folder.path())[0];
    let mut bytes = fs::read(path).unwrap();
    bytes[30_000] ^= 1;
    fs::write(path, &bytes).unwrap();
    let trace = open(folder.path());
    assert_eq!(trace.damage().count, 1);
    assert!(trace.damage().bytes > 0 && trace.damage().bytes < 80_000);
    assert!(trace.counts().events > events / 2 && trace.counts().events < events);
    assert!(trace.damage().to_string().contains("00000000.lwt"), "{}", trace.damage());
}

#[test]
fn a_truncated_trace_gives_its_complete_blocks() {
    let (folder, events) = several();
    let path = segments(folder.path()).pop().unwrap();
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() * 2 / 3]).unwrap();
    let trace = open(folder.path());
    assert!(trace.damage().missing_end, "{}", trace.damage());
    assert!(trace.damage().to_string().contains("cut off"));
    assert!(trace.counts().events > events / 3);
}

#[test]
fn missing_segments_are_named() {
    let (folder, _) = several();
    let paths = segments(folder.path());
    fs::remove_file(&paths[1]).unwrap();
    let trace = open(folder.path());
    assert_eq!(trace.damage().gaps, [(1, 1)]);
    // The first segment may have been deleted on purpose.
    fs::remove_file(&paths[0]).unwrap();
    assert!(open(folder.path()).damage().gaps.is_empty());
}

#[test]
fn a_segment_of_another_trace_is_left_out() {
    let (folder, events) = several();
    let mut other = setup();
    other.header.id = [9; 16];
    let elsewhere = tempfile::tempdir().unwrap();
    TraceWriter::create(elsewhere.path(), &other).unwrap().finish(1).unwrap();
    let mut bytes = fs::read(segment_path(elsewhere.path(), 0)).unwrap();
    bytes[12..16].copy_from_slice(&900_u32.to_le_bytes());
    fs::write(segment_path(folder.path(), 900), bytes).unwrap();
    let trace = open(folder.path());
    assert_eq!(trace.counts().events, events);
    assert!(trace.damage().to_string().contains("belongs to another trace"), "{}", trace.damage());
}

#[test]
fn files_that_are_no_trace_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let error_of = |path: &Path| Trace::open(path, &mut ignore_progress).unwrap_err();
    assert!(matches!(error_of(folder.path()), TraceError::Empty(_)));
    assert!(matches!(error_of(&folder.path().join("nowhere")), TraceError::Io { .. }));
    let file = folder.path().join("00000000.lwt");
    fs::write(&file, b"").unwrap();
    assert!(matches!(error_of(folder.path()), TraceError::NotATrace(_)));
    fs::write(&file, b"ELF and something else that is long enough").unwrap();
    assert!(matches!(error_of(&file), TraceError::NotATrace(_)));
    TraceWriter::create(folder.path(), &setup()).unwrap().finish(1).unwrap();
    let whole = fs::read(&file).unwrap();
    let mut later = whole.clone();
    later[8] = 2;
    fs::write(&file, &later).unwrap();
    let error = error_of(&file);
    assert!(matches!(error, TraceError::Version { found: 2, .. }));
    assert!(error.to_string().contains("version 2; this program reads version 1"), "{error}");
    let mut headless = whole;
    headless[40] ^= 1;
    fs::write(&file, &headless).unwrap();
    assert!(matches!(error_of(&file), TraceError::NoHeader(_)));
}

#[test]
fn a_block_that_can_not_be_decoded_is_reported_and_the_rest_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(folder.path(), &setup()).unwrap();
    usual_request(&mut writer, 1, 1000);
    // Thread 0, one event of the unknown kind 0.
    let mut wrong = vec![0; 32];
    wrong[4] = 1;
    wrong.push(0);
    writer.block(kind::EVENTS, &wrong).unwrap();
    // A block kind that a later version may have.
    writer.block(77, b"whatever").unwrap();
    writer.finish(20_000).unwrap();
    let trace = open(folder.path());
    assert_eq!(trace.counts().events, 4);
    assert_eq!(trace.damage().count, 1);
    let message = FormatError::Kind(0).to_string();
    assert!(trace.damage().to_string().contains(&message), "{}", trace.damage());
}

#[test]
fn a_clock_of_cycles_becomes_nanoseconds() {
    let folder = tempfile::tempdir().unwrap();
    let mut setup = setup();
    // 4 cycles per nanosecond.
    setup.header.clock = Clock { scale: 1 << 30, anchor: 1_000, monotonic: 50_000, wall: 7 };
    let mut writer = TraceWriter::create(folder.path(), &setup).unwrap();
    writer.event(0, 9_000, call(HANDLE, 4_000)).unwrap();
    writer.finish(9_000).unwrap();
    let mut events_read = Vec::new();
    let trace = Trace::open_with(folder.path(), &mut ignore_progress, |event| events_read.push(*event)).unwrap();
    assert_eq!((events_read[0].time, events_read[0].kind), (52_000, call(HANDLE, 1_000)));
    assert_eq!((trace.counts().first, trace.counts().last), (51_000, 52_000));
    assert_eq!(trace.header().clock.wall(52_000), 2_007);
}

#[test]
fn lost_events_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(folder.path(), &setup()).unwrap();
    writer.event(0, 10, EventKind::Lost { category: 1, count: 41 }).unwrap();
    writer.event(0, 20, EventKind::Lost { category: 4, count: 1 }).unwrap();
    writer.note(30, 1, 1, "no scheduler events: permission denied").unwrap();
    writer.finish(40).unwrap();
    let trace = open(folder.path());
    assert_eq!((trace.counts().lost, trace.end().unwrap().lost), (42, 42));
    assert_eq!(trace.notes()[0].text, "no scheduler events: permission denied");
}
