//! Decoding on several threads gives the same trace: counts, places, damage and statistics, whole
//! or damaged.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use leeward_profile::format::block::{BlockReader, Item, put_block};
use leeward_profile::format::event::{Extent, Sink};
use leeward_profile::format::write::{TraceConfig, TraceWriter, segment_path};
use leeward_profile::format::{Event, EventKind, PREAMBLE, kind};
use leeward_profile::stats::{self, Options};
use leeward_profile::symbols::{self, Symbols};
use leeward_profile::trace::{Progress, Trace, TraceError, ignore_progress};

/// Reads a trace on `threads` threads; returns it and all rows of `leeward profile stats` as JSON.
fn read(folder: &Path, threads: usize) -> (Trace, String) {
    let options = Options::default();
    let (trace, collector) = stats::open(folder, &options, threads, &mut ignore_progress).unwrap();
    let mut symbols = Symbols::new(&trace, symbols::Options::default());
    let rows = collector.rows(&mut symbols, &options, 0);
    (trace, serde_json::to_string(&rows).unwrap())
}

/// Checks that one thread and several threads read the same trace.
fn check(folder: &Path) -> Trace {
    let (trace, rows) = read(folder, 1);
    for threads in [2, 3, 7] {
        let (other, others) = read(folder, threads);
        assert!(other == trace, "{threads} threads: {:?}, {}", other.counts(), other.damage());
        assert!(others == rows, "{threads} threads count something else");
    }
    assert_eq!(Trace::open(folder, &mut ignore_progress).unwrap(), trace);
    trace
}

/// Writes a trace that is large enough for seven threads.
fn large() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    crate::store::write(folder.path(), 1_600_000).unwrap();
    let size = fs::metadata(segment_path(folder.path(), 0)).unwrap().len();
    assert!(size > 7 << 20, "{size}");
    folder
}

#[test]
fn whole_and_damaged_traces_are_the_same_on_any_number_of_threads() {
    let folder = large();
    let events = check(folder.path()).counts().events;

    // Adds blocks with a correct checksum that cannot be decoded, and damaged blocks, some of them
    // adjacent.
    let path = segment_path(folder.path(), 0);
    let bytes = fs::read(&path).unwrap();
    let mut damaged = bytes[..PREAMBLE].to_vec();
    let mut blocks = BlockReader::after_preamble(&bytes[PREAMBLE..]);
    let mut number = 0;
    while let Some(item) = blocks.next_item().unwrap() {
        let Item::Block { kind, payload, .. } = item else { panic!("damage in a whole trace") };
        number += u32::from(kind == kind::EVENTS);
        let begin = damaged.len();
        match number % 16 {
            3 | 4 if kind == kind::EVENTS => put_block(&mut damaged, kind, &payload[..payload.len() - 1]),
            _ => put_block(&mut damaged, kind, payload),
        }
        if matches!(number % 16, 4 | 5 | 11) {
            let last = damaged.len() - 1;
            damaged[if number % 16 == 11 { begin + 1 } else { last }] ^= 1;
        }
    }
    // The file ends inside a block.
    damaged.truncate(damaged.len() - 100);
    fs::write(&path, &damaged).unwrap();
    let trace = check(folder.path());
    assert!(trace.damage().count > 20 && trace.damage().missing_end, "{}", trace.damage());
    assert!(trace.counts().events > events / 2 && trace.counts().events < events);
    assert!(trace.damage().regions.is_sorted_by_key(|region| region.offset));
}

#[test]
fn small_and_empty_blocks_are_the_same_on_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(folder.path(), &TraceConfig::default()).unwrap();
    writer.event(0, 5, EventKind::RequestEnd { id: 1 }).unwrap();
    writer.finish(9).unwrap();
    let path = segment_path(folder.path(), 0);
    let mut bytes = fs::read(&path).unwrap();
    // An empty payload is malformed; a payload without events is not.
    for number in 0..150_000 {
        put_block(&mut bytes, kind::EVENTS, if number % 3 == 0 { &[] } else { &[0; 32] });
    }
    fs::write(&path, &bytes).unwrap();
    let trace = check(folder.path());
    assert_eq!((trace.counts().events, trace.damage().count), (1, 50_000));
}

#[test]
fn too_many_functions_and_callers_are_the_same_on_any_number_of_threads() {
    // Three cases: only some callers fit; all fit once, but not once per thread; all are too many.
    for callers in [9_000, 15_000, 40_000_u64] {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = TraceWriter::create(folder.path(), &TraceConfig::default()).unwrap();
        for number in 0..1_000_000_u64 {
            let caller = 0x100_0000 + number * 7919 % callers * 0x1000;
            let event =
                EventKind::Call { function: 0x1000, caller, duration: 2_000 + number % 3_000, extent: Extent::Whole };
            writer.event(0, 10_000 + number * 1_000, event).unwrap();
        }
        writer.finish(2_000_000_000).unwrap();
        assert!(fs::metadata(segment_path(folder.path(), 0)).unwrap().len() > 7 << 20);
        let (trace, rows) = read(folder.path(), 1);
        for threads in [2, 7] {
            let (other, others) = read(folder.path(), threads);
            assert!(other == trace && others == rows, "{callers} callers, {threads} threads");
        }
    }
}

#[test]
fn reading_a_trace_can_be_interrupted() {
    let folder = large();
    let mut calls = 0;
    let mut watch = |progress: Progress| {
        calls += 1;
        assert!(progress.done <= progress.total);
        if calls == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let stopped = stats::open(folder.path(), &Options::default(), 3, &mut watch);
    assert!(matches!(stopped, Err(TraceError::Interrupted)));
    assert_eq!(calls, 3);
}

/// Panics at the end of request 100 000.
struct PanickingSink;

impl Sink for PanickingSink {
    fn event(&mut self, event: &Event) {
        assert!(!matches!(event.kind, EventKind::RequestEnd { id: 100_000 }), "that was too much");
    }
}

#[test]
#[should_panic(expected = "that was too much")]
fn a_panic_of_a_reader_thread_reaches_the_caller() {
    let folder = large();
    let _ = Trace::open_on(folder.path(), 3, &mut ignore_progress, |_| PanickingSink);
}
