//! Tests of the trace of one process. Contains no recordings of real programs.

use std::sync::Arc;

use leeward_profile::analysis::Selection;
use leeward_profile::analysis::tail::{self, Tail};
use leeward_profile::symbols::{Options, Symbols};
use leeward_profile::trace::{Trace, ignore_progress};
use proptest::prelude::*;

use super::super::{KeepSlow, SlowRequests};
use super::*;
use crate::record::{LeaveReason, Stack};

const MS: u64 = 1_000_000;
/// Functions of the synthetic program.
const MAIN: u64 = 0x1000;
const HANDLE: u64 = 0x2000;
const PARSE: u64 = 0x3000;
const RARE: u64 = 0x4000;
const WAIT: u64 = 0x5000;

fn config(keep: Option<KeepSlow>) -> ConverterConfig {
    let (command, disk) = ("./program".into(), 1 << 30);
    ConverterConfig { pid: 7, command, interval: MS, began: (1, 1), disk, labels: true, keep }
}

fn converter(folder: &Path, keep: Option<KeepSlow>) -> Converter {
    let modules = Modules::new("/program", Box::new(|_| None));
    Converter::create(folder, &config(keep), modules).unwrap()
}

/// A stack in the order of records: the innermost address first. Each function has one call.
fn stack(functions: &[u64]) -> Stack {
    functions.iter().rev().enumerate().map(|(index, at)| at + u64::from(index > 0)).collect::<Vec<_>>().into()
}

fn record(time: u64, kind: RecordKind) -> Record {
    Record { time, process: 7, thread: 70, kind }
}

fn sample(time: u64, functions: &[u64]) -> Record {
    record(time, RecordKind::Sample { stack: stack(functions) })
}

/// Feeds requests that take 2 ms, and each `every`th 20 ms in a function of its own; between them
/// the thread waits. From `threshold` on they are reported as slow. Returns when it is over.
fn feed(
    converter: &mut Converter,
    requests: std::ops::RangeInclusive<u64>,
    every: u64,
    threshold: u64,
    from: u64,
) -> u64 {
    feed_causes(converter, requests, every, |_| RARE, threshold, from)
}

/// The same with causes of their own, by the number of the slow request.
fn feed_causes(
    converter: &mut Converter,
    requests: std::ops::RangeInclusive<u64>,
    every: u64,
    rare: impl Fn(u64) -> u64,
    threshold: u64,
    from: u64,
) -> u64 {
    let mut now = from;
    for id in requests {
        let is_slow = id % every == 0;
        let start = now;
        let end = start + if is_slow { 20 * MS } else { 2 * MS };
        let mut at = start + MS / 3;
        while at < end {
            let inner = if is_slow && at > start + MS { rare(id / every) } else { PARSE };
            converter.record(sample(at, &[MAIN, HANDLE, inner])).unwrap();
            at += MS;
        }
        converter
            .record(record(end, RecordKind::Request { id, start, started_by: None, is_slow: end - start >= threshold }))
            .unwrap();
        let stack = Some(stack(&[MAIN, WAIT]));
        converter.record(record(end + 100, RecordKind::SwitchedOut { reason: LeaveReason::Waits, stack })).unwrap();
        now = end + 5 * MS;
        converter.record(record(now - 100, RecordKind::SwitchedIn { cpu: 1 })).unwrap();
        converter.advance(now.saturating_sub(1000 * MS)).unwrap();
    }
    now
}

fn tail_of(folder: &Path) -> Tail {
    let trace = Trace::open(folder, &mut ignore_progress).unwrap();
    assert!(trace.damage().is_none(), "{}", trace.damage());
    let mut symbols = Symbols::new(&trace, Options::default());
    tail::tail(&trace, &mut symbols, &Selection::Marked, 0.01, &mut ignore_progress).unwrap()
}

fn totals(time: u64, seen: u64) -> RequestTotals {
    RequestTotals { time, seen, threshold: 10 * MS, ..RequestTotals::default() }
}

#[test]
fn a_planted_slow_function_is_the_culprit() {
    let folder = tempfile::tempdir().unwrap();
    let mut converter = converter(folder.path(), None);
    let now = feed(&mut converter, 1..=500, 100, 0, MS);
    let written = converter.finish(now, 0).unwrap();
    assert_eq!(written.slow, 500);
    let tail = tail_of(folder.path());
    assert_eq!((tail.requests, tail.slow), (500, 5));
    let culprit = tail.culprit.unwrap();
    assert_eq!(culprit.function, format!("{RARE:#x}"));
    assert!(culprit.explains > 95.0 && culprit.in_rest == 0.0, "{culprit:?}");
    assert!(tail.findings[0].cause == format!("in {RARE:#x}") && tail.findings[0].explains > 95.0);
}

#[test]
fn of_several_causes_the_greatest_is_named_and_not_what_leads_to_all() {
    let folder = tempfile::tempdir().unwrap();
    let mut converter = converter(folder.path(), None);
    let now = feed_causes(&mut converter, 1..=2_000, 100, |number| RARE + number % 3 * 0x1_0000, 0, MS);
    converter.finish(now, 0).unwrap();
    let culprit = tail_of(folder.path()).culprit.unwrap();
    assert!((20.0..50.0).contains(&culprit.explains), "{culprit:?}");
    assert_eq!(culprit.path.last(), Some(&culprit.function));
    assert!(culprit.function.ends_with("4000") && culprit.in_rest < 1.0, "{culprit:?}");
}

#[test]
fn sampled_requests_stand_for_those_that_were_not_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut converter = converter(folder.path(), None);
    // What the source does not report: 9 of 10 ordinary requests.
    converter.request_totals(totals(1, 0), true);
    let now = feed(&mut converter, 1..=500, 100, 10 * MS, MS);
    converter.request_totals(totals(now, 5100), true);
    let written = converter.finish(now, 0).unwrap();
    assert_eq!((written.slow, written.sampled), (5, 495));
    let trace = Trace::open(folder.path(), &mut ignore_progress).unwrap();
    assert_eq!(trace.all_requests().map(|totals| totals.seen), Some(5100));
    let tail = tail_of(folder.path());
    // Each of the 495 stands for ten, which makes fewer.
    assert_eq!((tail.requests, tail.weighted, tail.rest_mean), (5100, true, 2 * MS));
}

/// Feeds 4000 requests of which each `every`th is slow; returns the comparison, the counts in the
/// trace, and its bytes.
fn keep_slow(keep: Option<KeepSlow>, every: u64) -> (Tail, RequestTotals, u64) {
    let folder = tempfile::tempdir().unwrap();
    let mut converter = converter(folder.path(), keep);
    let mut counts = RequestTotals { threshold: 0, ..totals(1, 0) };
    converter.request_totals(counts.clone(), true);
    let mut now = MS;
    for turn in 1..=20 {
        now = feed(&mut converter, turn * 200 - 199..=turn * 200, every, 0, now);
        (counts.time, counts.seen) = (now, turn * 200);
        converter.request_totals(counts.clone(), true);
    }
    converter.finish(now, 0).unwrap();
    let bytes = std::fs::metadata(folder.path().join("00000000.lwt")).unwrap().len();
    let trace = Trace::open(folder.path(), &mut ignore_progress).unwrap();
    (tail_of(folder.path()), trace.all_requests().unwrap().clone(), bytes)
}

const KEEP: Option<KeepSlow> = Some(KeepSlow { slow: SlowRequests::Longer(10 * MS), memory: 1 << 20 });

#[test]
fn only_slow_requests_and_some_others_are_kept() {
    let (all, _, whole) = keep_slow(None, 100);
    let (tail, counts, bytes) = keep_slow(KEEP, 100);
    assert_eq!(tail.culprit.as_ref().map(|culprit| &*culprit.function), Some(&*format!("{RARE:#x}")));
    assert!(bytes < whole / 2, "{bytes} of {whole}");
    // Some of the others stand for all.
    assert_eq!((counts.seen, counts.slow), (4000, 40));
    assert!((100..1000).contains(&counts.sampled), "{counts:?}");
    assert_eq!((tail.requests, tail.slow, tail.weighted), (4000, 40, true));
    assert_eq!((tail.slow_mean, tail.p50), (all.slow_mean, all.p50));
}

#[test]
fn the_slowest_are_no_more_than_were_kept() {
    let (tail, counts, _) = keep_slow(KEEP, 400);
    // Less than 1 %: of others the trace has too few.
    assert_eq!((counts.slow, tail.requests, tail.slow, tail.slow_mean), (10, 4000, 10, 20 * MS));
}

#[test]
fn a_request_that_another_thread_began_waits_in_between() {
    let folder = tempfile::tempdir().unwrap();
    let mut converter = converter(folder.path(), None);
    let of = |thread, time, kind| Record { time, process: 7, thread, kind };
    let away = |stack| RecordKind::SwitchedOut { reason: LeaveReason::Waits, stack };
    for record in [
        of(71, 10, away(None)),
        of(70, 100, RecordKind::SwitchedIn { cpu: 0 }),
        of(70, 150, away(None)),
        of(71, 400, RecordKind::SwitchedIn { cpu: 0 }),
        of(71, 900, RecordKind::Request { id: 3, start: 110, started_by: Some(70), is_slow: true }),
    ] {
        converter.record(record).unwrap();
    }
    converter.finish(1000, 1).unwrap();
    let trace = Trace::open(folder.path(), &mut ignore_progress).unwrap();
    let mut found = Vec::new();
    leeward_profile::analysis::select::Selector::all(&trace, &Selection::Marked, &mut ignore_progress, |request| {
        found.push(request);
    })
    .unwrap();
    assert_eq!((found[0].start, found[0].end, &found[0].queued[..]), (110, 900, &[(0, 150, 400)][..]));
    assert_eq!(trace.end().map(|end| end.reason), Some(1));
}

#[test]
fn the_disk_stays_within_its_budget() {
    let folder = tempfile::tempdir().unwrap();
    let modules = Modules::new("/program", Box::new(|_| None));
    let config = ConverterConfig { disk: 400_000, ..config(None) };
    let mut converter = Converter::create(folder.path(), &config, modules).unwrap();
    for turn in 0..40_000 {
        converter.record(sample(turn * MS, &[MAIN, HANDLE, turn * 64])).unwrap();
        converter.advance(turn * MS).unwrap();
        assert!(converter.bytes() < 500_000);
    }
    converter.finish(40_000 * MS, 0).unwrap();
    let trace = Trace::open(folder.path(), &mut ignore_progress).unwrap();
    assert!(trace.thread_name(0).contains("70") && trace.size().0 >= 3);
}

fn any_record() -> impl Strategy<Value = Record> {
    let stack = || prop::collection::vec(any::<u64>(), 0..4).prop_map(Arc::from);
    let reason = prop::sample::select(vec![
        LeaveReason::Preempted,
        LeaveReason::Waits,
        LeaveReason::Faults,
        LeaveReason::Stopped,
    ]);
    let id = 0_u64..4;
    let kind = prop_oneof![
        stack().prop_map(|stack| RecordKind::Sample { stack }),
        (reason, prop::option::of(stack())).prop_map(|(reason, stack)| RecordKind::SwitchedOut { reason, stack }),
        any::<u32>().prop_map(|cpu| RecordKind::SwitchedIn { cpu }),
        any::<u32>().prop_map(|waker| RecordKind::Woken { waker }),
        ".{0,70}".prop_map(|name| RecordKind::Named { name: name.into() }),
        Just(RecordKind::Ended),
        Just(RecordKind::Executed),
        (id.clone(), any::<u64>(), prop::option::of(0_u32..3), any::<bool>())
            .prop_map(|(id, start, started_by, is_slow)| RecordKind::Request { id, start, started_by, is_slow }),
        id.clone().prop_map(|id| RecordKind::RequestResumed { id }),
        id.clone().prop_map(|id| RecordKind::RequestSuspended { id }),
        id.clone().prop_map(|id| RecordKind::RequestEnded { id }),
        (id, ".{0,70}").prop_map(|(id, label)| RecordKind::RequestLabelled { id, label: label.into() }),
        any::<u64>().prop_map(|count| RecordKind::Lost { count }),
    ];
    (prop_oneof![0_u64..1000, any::<u64>()], 0_u32..3, kind).prop_map(|(time, thread, kind)| Record {
        time,
        process: 7,
        thread,
        kind,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_records_panic_and_the_trace_is_whole(records in prop::collection::vec(any_record(), 0..60), keeps in any::<bool>()) {
        let folder = tempfile::tempdir().unwrap();
        let keep = keeps.then_some(KeepSlow { slow: SlowRequests::Longer(100), memory: 1000 });
        let mut converter = converter(folder.path(), keep);
        for (index, record) in records.into_iter().enumerate() {
            let time = record.time;
            converter.record(record).unwrap();
            if index % 5 == 0 {
                converter.advance(time).unwrap();
                converter.request_totals(totals(time, 10), index % 2 == 0);
            }
        }
        converter.finish(5, 0).unwrap();
        let trace = Trace::open(folder.path(), &mut ignore_progress).unwrap();
        prop_assert!(trace.damage().is_none(), "{}", trace.damage());
    }
}
