//! Mutational fuzzing of the trace reader: whole traces, damaged and spliced.
//!
//! Some mutants get correct checksums, so that the fuzzer reaches both the framing and the decoder
//! after it.
//!
//! The seed is fixed, so each run does the same. `LEEWARD_FUZZ_ITERATIONS` makes the run longer,
//! `LEEWARD_FUZZ_SEED` makes it different. The failure message names the file of a finding; a copy
//! of the file in `tests/corpus/` is replayed in each later run.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::*;
use leeward_profile::analysis::select::Functions;
use leeward_profile::analysis::suggest::candidates;
use leeward_profile::analysis::timeline::{self, RequestChoice};
use leeward_profile::analysis::{Selection, slowest, tail};
use leeward_profile::export::{self, Format, Options};
use leeward_profile::format::block::{BlockReader, Item, put_block};
use leeward_profile::format::event::OffCpu;
use leeward_profile::format::meta::{ClockReport, ClockStop, OmittedFunction, OverheadReport};
use leeward_profile::format::write::{TraceWriter, segment_path};
use leeward_profile::format::{EventKind, PREAMBLE};
use leeward_profile::stats::{self, Collector};
use leeward_profile::trace::{Trace, ignore_progress};
use leeward_profile::{render, symbols};
use leeward_testkit::fuzz::{self, FuzzSearch};
use leeward_testkit::random::Random;

/// Boundary values: block kinds, and numbers of one and two bytes.
const EDGES: [u8; 9] = [0, 1, 2, 0x42, 127, 128, 129, 254, 255];

/// Writes a small trace with every kind of event.
fn rich() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(folder.path(), &setup()).unwrap();
    let clock_stops = vec![ClockStop { start: 500_000, length: 60_000, used: 50_000 }];
    writer
        .pace(&ClockReport {
            stopped: 60_000,
            used: 1_000_000,
            tick: 1000,
            stops: clock_stops,
            ..ClockReport::default()
        })
        .unwrap();
    let most = vec![OmittedFunction { function: PARSE, calls: 300, missed: 200, length: 12 }];
    writer
        .share(&OverheadReport {
            asked: 50_000,
            functions: 3,
            left_out: 1,
            calls: 400,
            missed: 200,
            most,
            ..OverheadReport::default()
        })
        .unwrap();
    for id in 1..=20_u64 {
        let start = id * 100_000;
        writer
            .event(
                BACKGROUND,
                start,
                EventKind::Acquired {
                    object: leeward_profile::format::ObjectKind::Writer,
                    lock: LOCK + id,
                    site: 5,
                    wait: 9,
                },
            )
            .unwrap();
        request(&mut writer, id, start, start + 50_000, |writer| {
            writer.event(WORKER, start + 1, EventKind::RequestBlock { id, queue: Some(id) }).unwrap();
            writer.event(WORKER, start + 9, EventKind::RequestStart { id, queue: Some(id) }).unwrap();
            writer.event(WORKER, start + 10, switched_out(OffCpu::Blocked)).unwrap();
            writer.event(WORKER, start + 20, EventKind::Woken { waker: 3 }).unwrap();
            writer.event(WORKER, start + 30, EventKind::SwitchedIn { cpu: 1 }).unwrap();
            writer.event(WORKER, start + 31, EventKind::Migrated { from: 0, to: 1 }).unwrap();
            writer.event(WORKER, start + 30_000, lock_held(0x1100, 10_000, 5_000)).unwrap();
            writer.event(WORKER, start + 31_000, call(PARSE, 2_000)).unwrap();
        });
        writer.event(BACKGROUND, start + 24_000, lock_held(0x4100, 0, 30_000)).unwrap();
        writer
            .event(
                BACKGROUND,
                start + 25_000,
                EventKind::Released { object: leeward_profile::format::ObjectKind::Writer, lock: LOCK + id, site: 5 },
            )
            .unwrap();
        writer.event(BACKGROUND, start + 26_000, EventKind::Lost { category: 2, count: id }).unwrap();
        writer.event(WORKER, start + 60_000, EventKind::RequestEndAll).unwrap();
    }
    writer.note(5, 1, 1, "a note").unwrap();
    writer.finish(3_000_000).unwrap();
    fs::read(segment_path(folder.path(), 0)).unwrap()
}

/// The files of the corpus, ordered by name, and a trace with every kind of event.
fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    fuzz::corpus(&folder, "", 2).into_iter().chain([rich()]).collect()
}

fn mutated(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = corpus[random.below(corpus.len())].clone();
    if random.below(3) > 0 {
        return corrupt_payloads(random, &bytes);
    }
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len());
        match random.below(5) {
            0 => bytes.truncate(at),
            1 if !bytes.is_empty() => bytes[at] = random.byte(&EDGES),
            2 => bytes.extend_from_slice(&corpus[random.below(corpus.len())]),
            3 => {
                let count = random.below(200).min(bytes.len() - at);
                bytes.drain(at..at + count);
            }
            _ => {
                let piece: Vec<u8> = (0..random.below(100)).map(|_| random.byte(&EDGES)).collect();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

/// Damages the payloads of blocks and gives each block a correct checksum.
fn corrupt_payloads(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes[..PREAMBLE.min(bytes.len())].to_vec();
    let mut blocks = BlockReader::new(&bytes[out.len()..], 0);
    while let Some(item) = blocks.next_item().unwrap() {
        let Item::Block { kind, payload, .. } = item else { continue };
        let mut payload = payload.to_vec();
        // The header usually stays intact: without a header, the reader stops.
        let damages = if kind == 1 && random.below(8) > 0 { 0 } else { random.below(4) };
        for _ in 0..damages {
            let at = random.below(payload.len());
            match random.below(4) {
                0 => payload.truncate(at),
                1 => payload.splice(at..at, (0..random.below(12)).map(|_| random.byte(&EDGES))).for_each(drop),
                _ if !payload.is_empty() => payload[at] = random.byte(&EDGES),
                _ => {}
            }
        }
        let kind = if random.below(60) == 0 { random.byte(&EDGES) } else { kind };
        put_block(&mut out, kind, &payload);
    }
    out
}

/// Reads a trace in every way: for any content, no panic, no hang and no wrong count.
fn read_in_every_way(folder: &Path) {
    let mut collector = Collector::default();
    let mut event_count = 0;
    let Ok(trace) = Trace::open_with(folder, &mut ignore_progress, |event| {
        collector.event(event);
        event_count += 1;
    }) else {
        return;
    };
    assert_eq!(trace.counts().events, event_count);
    let _ = trace.damage().to_string();
    let mut symbols = symbols::Symbols::new(&trace, symbols::Options::default());
    collector.rows(&mut symbols, &stats::Options::default(), 0);
    let (mut before, mut ordered) = (0, 0);
    trace
        .in_order(
            &mut ignore_progress,
            |_| true,
            |event| {
                assert!(event.time >= before);
                before = event.time;
                ordered += 1;
            },
        )
        .unwrap();
    assert_eq!(ordered, event_count);
    let functions = Functions::find(&trace, &mut symbols, "0x1000", &mut ignore_progress).unwrap();
    candidates(&trace, &mut symbols, None, &mut ignore_progress).unwrap();
    for selection in [Selection::Marked, Selection::CallsOf(functions)] {
        let found = slowest::slowest(&trace, &mut symbols, &selection, 3, &mut ignore_progress).unwrap();
        assert!(found.slowest.is_sorted_by(|a, b| a.latency >= b.latency));
        tail::tail(&trace, &mut symbols, &selection, 0.1, &mut ignore_progress).unwrap();
        if let Some(timeline) =
            timeline::timeline(&trace, &mut symbols, &selection, RequestChoice::Slowest, &mut ignore_progress).unwrap()
        {
            assert!(
                timeline
                    .rows
                    .iter()
                    .flat_map(|row| &row.bars)
                    .all(|bar| bar.start <= bar.end && bar.end <= timeline.latency)
            );
            let _ = (render::timeline(&timeline), render::page(&timeline, "x"));
        }
        for format in [Format::Perfetto, Format::Chrome, Format::Csv, Format::Folded] {
            let options = Options { selection: selection.clone(), slower_than: 0 };
            let mut out = Vec::new();
            export::export(&trace, &mut symbols, format, &options, &mut out, &mut ignore_progress).unwrap();
            if format == Format::Chrome {
                serde_json::from_slice::<serde_json::Value>(&out).unwrap();
            }
        }
    }
    stats::per_request(&trace, &mut symbols, &Selection::Marked, &stats::Options::default(), &mut ignore_progress)
        .unwrap();
}

fn check(bytes: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(segment_path(folder.path(), 0), bytes).unwrap();
    read_in_every_way(folder.path());
}

#[test]
fn no_bytes_make_the_reader_panic() {
    let corpus = corpus();
    corpus.iter().for_each(|bytes| check(bytes));
    let search = FuzzSearch { name: "trace", findings: Path::new(env!("CARGO_TARGET_TMPDIR")), iterations: 300 };
    search.run(|random| mutated(random, &corpus), |_, bytes| check(bytes));
}

/// Rewrites the corpus: `cargo test -p leeward-profile --test suite -- --ignored`.
#[test]
#[ignore = "writes into the source folder"]
fn write_the_corpus() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("every-kind.lwt"), rich()).unwrap();
    let whole = rich();
    fs::write(folder.join("cut.lwt"), &whole[..whole.len() * 3 / 4]).unwrap();
    fs::write(folder.join("no-blocks.lwt"), &whole[..PREAMBLE]).unwrap();
    fs::write(folder.join("empty.lwt"), b"").unwrap();
}
