//! A trace that the C runtime wrote in a real program (`tests/golden/`): events, causes and names.

use leeward_profile::analysis::timeline::{RequestChoice, timeline};
use leeward_profile::analysis::{Selection, tail};
use leeward_profile::format::meta::Engine;
use leeward_profile::stats::{Collector, Options, SpanKind};
use leeward_profile::symbols::{self, Symbols};
use leeward_profile::trace::{Trace, ignore_progress};
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn open() -> (Trace, Collector, Symbols) {
    let mut collector = Collector::new(&Options::default());
    let trace =
        Trace::open_with(&folder().join("tick.lwt"), &mut ignore_progress, |event| collector.event(event)).unwrap();
    // The module is found by its file name, although the program ran in another folder.
    let symbols = Symbols::new(&trace, symbols::Options { folders: vec![folder()] });
    (trace, collector, symbols)
}

#[test]
fn the_golden_trace_is_read_completely() {
    let (trace, ..) = open();
    assert!(trace.damage().is_none(), "{}", trace.damage());
    let (header, counts) = (trace.header(), trace.counts());
    assert_eq!((header.writer.as_str(), header.command.as_str()), ("leeward-rt 0.1", "./golden"));
    assert_eq!((header.engine, header.architecture.as_str()), (Engine::Tick, "x86_64"));
    assert_eq!((counts.events, counts.lost, counts.requests), (295, 0, 80));
    assert_eq!((counts.calls, counts.locks, counts.waits, counts.scheduler), (86, 29, 1, 99));
    assert_eq!((counts.span(), trace.duration()), (81_798_236, Some(82_348_999)));
    assert_eq!(trace.end().map(|end| (end.description(), end.lost)), Some(("the program ended", 0)));
    assert_eq!(trace.threads().map(|thread| thread.tid).collect::<Vec<_>>(), [9736, 9739]);
    let notes: Vec<_> = trace.notes().iter().map(|note| (note.level, note.text.as_str())).collect();
    assert!(matches!(notes[..], [(1, text)] if text.starts_with("the clock stood still")), "{notes:?}");
    assert_eq!(trace.modules().len(), 5);
}

#[test]
fn calls_have_their_names_and_times() {
    let (_, collector, mut symbols) = open();
    let rows = collector.rows(&mut symbols, &Options::default(), 0);
    let calls: Vec<_> =
        rows.iter().filter(|row| row.sort == SpanKind::Call).map(|row| (row.name.as_str(), row.count)).collect();
    // A call shorter than a tick is recorded if a tick occurs during the call.
    let expected =
        [("main", 1), ("journal", 1), ("serves", 28), ("looks_up", 28), ("writes_journal", 1), ("parses", 27)];
    assert_eq!(calls, expected);
}

#[test]
fn the_request_that_waited_is_explained() {
    let (trace, _, mut symbols) = open();
    let tail = tail::tail(&trace, &mut symbols, &Selection::Marked, 0.01, &mut ignore_progress).unwrap();
    assert_eq!((tail.requests, tail.slow, tail.slow_mean), (40, 1, 10_256_227));
    let first = &tail.findings[0];
    assert_eq!((first.cause.as_str(), first.slow), ("waiting for a mutex, looks_up", 10_113_361));
    assert_eq!(first.holders[0].place, "writes_journal");
    assert_eq!(first.holders[0].doing[0].0, "off the CPU, though it could run");

    let selection = Selection::Marked;
    let timeline =
        timeline(&trace, &mut symbols, &selection, RequestChoice::Slowest, &mut ignore_progress).unwrap().unwrap();
    assert_eq!((timeline.id, timeline.latency), (20, 10_256_227));
    let names: Vec<_> = timeline.rows[0].bars.iter().map(|bar| bar.name.as_str()).collect();
    assert!(names.starts_with(&["main", "serves", "looks_up"]), "{names:?}");
    assert_eq!(timeline.rows.len(), 2, "the thread that held the lock is shown");
}
