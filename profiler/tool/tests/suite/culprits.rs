//! Causes of slow requests: the function that only slow requests call, labels, functions whose
//! calls may be requests, and totals that count each moment once.

use crate::support::*;
use leeward_profile::analysis::Selection;
use leeward_profile::analysis::suggest::candidates;
use leeward_profile::analysis::tail::{Tail, by_label, tail};
use leeward_profile::format::EventKind;
use leeward_profile::format::event::{Extent, OffCpu};
use leeward_profile::format::meta::{Engine, Thread};
use leeward_profile::format::write::TraceWriter;
use leeward_profile::stats;
use leeward_profile::trace::ignore_progress;

/// Writes a trace of two kinds of requests.
///
/// Requests with label 1 call `PARSE`. Each 50th request has label 2 and calls `SNAPSHOT`, which
/// calls `WRITE`, which calls `PARSE`; the time passes in `PARSE`.
fn requests() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(folder.path(), &setup()).unwrap();
    writer.labels(&[(1, "GET"), (2, "KEYS")]).unwrap();
    for id in 1..=1000_u64 {
        let start = id * 1_000_000;
        let is_slow = id % 50 == 0;
        writer.event(WORKER, start, EventKind::RequestLabel { id: 0, label: 1 }).unwrap();
        let end = start + if is_slow { 400_000 + id * 10 } else { 10_000 + id % 7 * 100 };
        writer.event(WORKER, start, EventKind::RequestStart { id, queue: None }).unwrap();
        writer.event(WORKER, start + 1, EventKind::RequestLabel { id, label: if is_slow { 2 } else { 1 } }).unwrap();
        let inner = end - start - 4_000;
        writer.event(WORKER, end - 2_000, call(PARSE, inner - 1_000)).unwrap();
        if is_slow {
            writer.event(WORKER, end - 1_500, call(WRITE, inner)).unwrap();
            writer.event(WORKER, end - 1_000, call(SNAPSHOT, inner + 1_000)).unwrap();
        }
        writer.event(WORKER, end - 100, call(HANDLE, end - start - 200)).unwrap();
        writer.event(WORKER, end, EventKind::RequestEnd { id }).unwrap();
    }
    writer.finish(2_000_000_000).unwrap();
    folder
}

#[test]
fn the_culprit_is_called_only_by_slow_requests() {
    let folder = requests();
    let (trace, mut symbols) = open(folder.path());
    let tail = tail(&trace, &mut symbols, &Selection::Marked, 0.02, &mut ignore_progress).unwrap();
    assert_eq!(tail.findings[0].cause, format!("in {PARSE:#x}"), "where the time goes");
    let culprit = tail.culprit.unwrap();
    assert_eq!(culprit.function, format!("{SNAPSHOT:#x}"), "{culprit:?}");
    assert_eq!(culprit.path, [HANDLE, SNAPSHOT, WRITE, PARSE].map(|function| format!("{function:#x}")));
    assert!(culprit.explains > 90.0 && culprit.in_slow == 100.0 && culprit.in_rest == 0.0, "{culprit:?}");
    assert!(culprit.text.contains("Path: 0x1000 > 0x4000 > 0x5000 > 0x2000"), "{}", culprit.text);
}

#[test]
fn causes_in_the_machine_and_in_the_program_are_distinguished() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(folder.path(), &setup()).unwrap();
    for id in 1..=200_u64 {
        let (start, more) = (id * 1_000_000, if id % 100 == 0 { 300_000 } else { 0 });
        request(&mut writer, id, start, start + 20_000 + more, |writer| {
            if more > 0 {
                writer.event(WORKER, start + 5_000, switched_out(OffCpu::Runnable)).unwrap();
                writer.event(WORKER, start + 205_000, EventKind::SwitchedIn { cpu: 0 }).unwrap();
            }
            writer.event(WORKER, start + 15_000 + more, call(PARSE, 10_000 + more)).unwrap();
        });
    }
    writer.finish(2_000_000_000).unwrap();
    let tail = tail_of(folder.path());
    let causes: Vec<_> = tail.findings.iter().map(|finding| (finding.of_machine, finding.cause.as_str())).collect();
    assert_eq!(causes[0], (true, "off the CPU, though it could run"));
    assert_eq!(causes[1], (false, format!("in {PARSE:#x}").as_str()));
}

#[test]
fn with_equal_calls_the_culprit_is_the_innermost_function() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(folder.path(), &setup()).unwrap();
    for id in 1..=1000_u64 {
        let (start, more) = (id * 1_000_000, if id % 100 == 0 { 300_000 } else { 0 });
        request(&mut writer, id, start, start + 20_000 + more, |writer| {
            writer.event(WORKER, start + 10_000 + more, call(PARSE, 5_000 + more)).unwrap();
            writer.event(WORKER, start + 15_000 + more, call(WRITE, 14_000 + more)).unwrap();
        });
    }
    writer.finish(2_000_000_000).unwrap();
    let culprit = tail_of(folder.path()).culprit.unwrap();
    assert_eq!(culprit.function, format!("{PARSE:#x}"), "{culprit:?}");
    assert_eq!(culprit.path, [HANDLE, WRITE, PARSE].map(|function| format!("{function:#x}")));
}

/// Writes a wait of a thread in a function; `waker` ends it.
fn wait(writer: &mut TraceWriter, thread: u32, function: u64, (from, to): (u64, u64), waker: Option<u32>) {
    writer.event(thread, from, switched_out(OffCpu::Blocked)).unwrap();
    if let Some(waker) = waker {
        writer.event(thread, to, EventKind::Woken { waker }).unwrap();
    }
    writer.event(thread, to, EventKind::SwitchedIn { cpu: 0 }).unwrap();
    writer.event(thread, to, call(function, to - from)).unwrap();
}

/// Writes the begin of a request each millisecond, before which its thread waited in `PARSE`.
fn begin(writer: &mut TraceWriter, id: u64) {
    let start = id * 1_000_000;
    wait(writer, WORKER, PARSE, (start - 400_000, start - 1_000), None);
    writer.event(WORKER, start, EventKind::RequestStart { id, queue: None }).unwrap();
}

/// Writes a trace of samples: threads are `WORKER` with the id 70 and others with the ids after it.
fn of_threads(count: u32, write: impl FnOnce(&mut TraceWriter)) -> Tail {
    let folder = tempfile::tempdir().unwrap();
    let mut config = setup();
    config.header.engine = Engine::Samples;
    let mut writer = TraceWriter::create(folder.path(), &config).unwrap();
    let thread =
        |number| Thread { number: WORKER + number, tid: 70 + number, started: None, ended: None, name: String::new() };
    writer.threads(&(0..count).map(thread).collect::<Vec<_>>()).unwrap();
    write(&mut writer);
    writer.finish(3_000_000_000).unwrap();
    tail_of(folder.path())
}

/// A trace of samples: an event loop waits in `PARSE`, called by `HANDLE`, before each request.
/// Each 50th request calls `SNAPSHOT`, which calls `WRITE`, and then waits for `waits` ns in the
/// loop.
fn sampled(waits: u64) -> Tail {
    of_threads(1, |writer| {
        for id in 1..=1000_u64 {
            let start = id * 1_000_000;
            let mut end = start + 10_000;
            begin(writer, id);
            if id % 50 == 0 {
                writer.event(WORKER, start + 201_000, call(WRITE, 200_000)).unwrap();
                writer.event(WORKER, start + 202_000, call(SNAPSHOT, 201_500)).unwrap();
                end = start + 210_000 + waits;
                wait(writer, WORKER, PARSE, (start + 205_000, end - 4_000), None);
            }
            writer.event(WORKER, end, EventKind::RequestEnd { id }).unwrap();
            writer.event(WORKER, end + 1_000, call(HANDLE, end + 1_000 - (start - 450_000))).unwrap();
        }
    })
}

#[test]
fn of_sampled_calls_the_innermost_that_contains_the_difference_is_named() {
    let culprit = sampled(100).culprit.unwrap();
    assert_eq!(culprit.function, format!("{WRITE:#x}"), "{culprit:?}");
    // `HANDLE` leads to every request.
    assert_eq!(culprit.path, [SNAPSHOT, WRITE].map(|function| format!("{function:#x}")));
    assert!(culprit.explains > 90.0, "{culprit:?}");
}

#[test]
fn a_request_that_waits_where_its_thread_waits_for_work_is_nobodys() {
    let tail = sampled(300_000);
    assert!(tail.culprit.is_none(), "{:?}", tail.culprit);
    let first = &tail.findings[0];
    assert_eq!(first.cause, "waiting for an event or another thread");
    assert!(first.explains > 50.0 && first.in_rest == 0.0, "{first:?}");
    assert_eq!(tail.findings[1].cause, format!("in {WRITE:#x}"));
}

/// An event loop waits in `PARSE` for requests, and for their backends. Each tenth request then
/// waits in `WRITE`; those that come meanwhile start right after its answer.
#[test]
fn a_wait_that_holds_others_up_is_not_for_work() {
    let tail = of_threads(1, |writer| {
        for turn in 1..=100_u64 {
            let mut at = turn * 20_000_000;
            wait(writer, WORKER, PARSE, (at - 1_000_000, at - 20_000), None);
            for number in 0..10 {
                let id = turn * 10 + number;
                let is_behind = (1..5).contains(&number);
                if number >= 5 {
                    wait(writer, WORKER, PARSE, (at, at + 200_000), None);
                    at += 220_000;
                }
                writer.event(WORKER, at, EventKind::RequestStart { id, queue: None }).unwrap();
                if !is_behind {
                    wait(writer, WORKER, PARSE, (at + 10_000, at + 1_010_000), None);
                    at += 1_020_000;
                }
                if number == 0 {
                    wait(writer, WORKER, WRITE, (at, at + 8_000_000), None);
                    at += 8_010_000;
                }
                at += 20_000;
                writer.event(WORKER, at, EventKind::RequestEnd { id }).unwrap();
                at += 10_000;
            }
        }
    });
    let causes: Vec<&str> = tail.findings.iter().map(|finding| finding.cause.as_str()).collect();
    assert_eq!(causes[0], format!("off the CPU, blocked in {WRITE:#x}"), "{causes:?}");
    assert_eq!(tail.culprit.unwrap().function, format!("{WRITE:#x}"));
    // Of the first requests, too, it is known that the loop waits for work there.
    assert!(!causes.contains(&format!("off the CPU, blocked in {PARSE:#x}").as_str()), "{causes:?}");
}

/// Of a few requests one that waits before four of them is a great share: that is chance.
#[test]
fn waits_before_four_requests_are_not_for_work() {
    let tail = of_threads(1, |writer| {
        writer.event(WORKER, 500_000, EventKind::RequestStart { id: 0, queue: None }).unwrap();
        writer.event(WORKER, 510_000, EventKind::RequestEnd { id: 0 }).unwrap();
        for id in 1..=5_u64 {
            let start = id * 20_000_000;
            if id < 5 {
                wait(writer, WORKER, WRITE, (start - 400_000, start - 1_000), None);
            }
            writer.event(WORKER, start, EventKind::RequestStart { id, queue: None }).unwrap();
            let mut end = start + 10_000;
            if id == 5 {
                end = start + 8_000_000;
                wait(writer, WORKER, WRITE, (start + 1_000, end - 1_000), None);
            }
            writer.event(WORKER, end, EventKind::RequestEnd { id }).unwrap();
        }
    });
    assert_eq!(tail.findings[0].cause, format!("off the CPU, blocked in {WRITE:#x}"));
}

/// When the recording begins, each of eight threads works on a request that waits in `WRITE`. Its
/// next one starts right after, and others after waits in `PARSE`. One waits in `slow_in`.
fn begun_before_the_recording(slow_in: u64) -> String {
    const THREADS: u32 = 8;
    let tail = of_threads(THREADS, |writer| {
        for thread in 0..THREADS {
            wait(writer, thread, WRITE, (1_000_000, 9_000_000), None);
        }
        for id in 0..10 * u64::from(THREADS) {
            let (thread, turn) = (id as u32 % THREADS, id / u64::from(THREADS));
            let start = 9_000_000 + turn * 20_000_000;
            if turn > 0 {
                wait(writer, thread, PARSE, (start - 400_000, start - 1_000), None);
            }
            writer.event(thread, start, EventKind::RequestStart { id, queue: None }).unwrap();
            let mut end = start + 10_000;
            if id == 75 {
                end = start + 8_000_000;
                wait(writer, thread, slow_in, (start + 1_000, end - 1_000), None);
            }
            writer.event(thread, end, EventKind::RequestEnd { id }).unwrap();
        }
    });
    tail.findings[0].cause.clone()
}

#[test]
fn a_wait_before_a_threads_first_request_may_be_of_one_that_was_not_seen() {
    assert_eq!(begun_before_the_recording(WRITE), format!("off the CPU, blocked in {WRITE:#x}"));
    assert_eq!(begun_before_the_recording(PARSE), "waiting for an event or another thread");
}

/// Each request waits where its thread waits for work, which the trace shows only later.
#[test]
fn waits_for_work_are_known_of_the_first_requests() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = setup();
    config.header.engine = Engine::Samples;
    let mut writer = TraceWriter::create(folder.path(), &config).unwrap();
    for id in 1..=100_u64 {
        let start = id * 2_000_000;
        wait(&mut writer, WORKER, PARSE, (start - 400_000, start - 1_000), None);
        writer.event(WORKER, start, EventKind::RequestStart { id, queue: None }).unwrap();
        wait(&mut writer, WORKER, PARSE, (start + 1_000, start + 1_001_000), None);
        writer.event(WORKER, start + 1_010_000, call(WRITE, 9_000)).unwrap();
        writer.event(WORKER, start + 1_010_000, EventKind::RequestEnd { id }).unwrap();
    }
    writer.finish(1_000_000_000).unwrap();
    let (trace, mut symbols) = open(folder.path());
    let options = stats::Options::default();
    let (rows, requests) =
        stats::per_request(&trace, &mut symbols, &Selection::Marked, &options, &mut ignore_progress).unwrap();
    assert_eq!(requests, 100);
    assert_eq!(rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), [format!("{WRITE:#x}")]);
}

/// A trace of samples: an event loop waits in `PARSE` before each request, and during each 50th,
/// while a thread of a pool is in `SNAPSHOT`. That thread otherwise waits in `WRITE`; it is in
/// `SNAPSHOT` for `busy` ns of each 50 ms.
fn with_a_helper(busy: u64) -> Tail {
    const HELPER: u32 = WORKER + 1;
    of_threads(2, |writer| {
        for id in 1..=1000_u64 {
            let start = id * 1_000_000;
            let mut end = start + 10_000;
            begin(writer, id);
            if id % 50 == 0 {
                wait(writer, HELPER, WRITE, (start + busy + 10_000 - 50_000_000, start + 10_000), None);
                writer.event(HELPER, start + 10_000 + busy, call(SNAPSHOT, busy)).unwrap();
                end = start + 320_000;
                wait(writer, WORKER, PARSE, (start + 5_000, end - 4_000), None);
            }
            writer.event(WORKER, end, EventKind::RequestEnd { id }).unwrap();
        }
    })
}

#[test]
fn the_work_of_a_pools_thread_is_named() {
    let tail = with_a_helper(300_000);
    let culprit = tail.culprit.unwrap();
    assert_eq!((culprit.function, culprit.in_slow), (format!("{SNAPSHOT:#x}"), 100.0));
    assert_eq!(tail.findings[0].cause, format!("in {SNAPSHOT:#x}"));
    assert!(tail.findings[0].explains > 90.0, "{:?}", tail.findings[0]);
}

#[test]
fn a_thread_that_is_busy_at_all_times_or_for_a_part_helps_nobody() {
    for busy in [30_000_000, 100_000] {
        let tail = with_a_helper(busy);
        assert!(tail.culprit.is_none(), "{:?}", tail.culprit);
        assert_eq!(tail.findings[0].cause, "waiting for an event or another thread");
    }
}

/// A handler waits in `WRITE` for a thread of a pool, which is busy at all times. Who wakes the
/// handler?
fn handler_waits_for_a_busy_thread(waker: Option<u32>) -> Tail {
    of_threads(2, |writer| {
        for id in 1..=1000_u64 {
            let start = id * 1_000_000;
            begin(writer, id);
            let mut end = start + 10_000;
            if id % 50 == 0 {
                end = start + 320_000;
                wait(writer, WORKER, WRITE, (start + 5_000, end - 4_000), waker);
                writer.event(WORKER + 1, end - 4_000, call(SNAPSHOT, 311_000)).unwrap();
            }
            writer.event(WORKER, end, EventKind::RequestEnd { id }).unwrap();
        }
    })
}

#[test]
fn a_busy_thread_that_wakes_the_requests_thread_worked_for_it() {
    let tail = handler_waits_for_a_busy_thread(Some(71));
    assert_eq!(tail.culprit.unwrap().function, format!("{SNAPSHOT:#x}"));
    assert!(tail.findings[0].explains > 90.0, "{:?}", tail.findings[0]);
    for waker in [None, Some(99)] {
        let tail = handler_waits_for_a_busy_thread(waker);
        assert_eq!(tail.findings[0].cause, format!("off the CPU, blocked in {WRITE:#x}"));
    }
}

/// Each 50th request waits for a timer without a thread; then another thread answers it. That waits
/// in `PARSE`, or is in `WRITE` all the time.
fn without_a_thread(is_idle: bool) -> Tail {
    of_threads(2, |writer| {
        for id in 1..=1000_u64 {
            let start = id * 1_000_000;
            begin(writer, id);
            let mut end = start + 10_000;
            if id % 50 == 0 {
                end = start + 320_000;
                writer.event(WORKER, start + 5_000, EventKind::RequestBlock { id, queue: None }).unwrap();
                if is_idle {
                    wait(writer, WORKER + 1, PARSE, (start - 300_000, end - 10_000), None);
                } else {
                    writer.event(WORKER + 1, end - 10_000, call(WRITE, 400_000)).unwrap();
                }
                writer.event(WORKER + 1, end - 10_000, EventKind::RequestStart { id, queue: None }).unwrap();
                writer.event(WORKER + 1, end, EventKind::RequestEnd { id }).unwrap();
                continue;
            }
            writer.event(WORKER, end, EventKind::RequestEnd { id }).unwrap();
        }
    })
}

#[test]
fn a_request_does_not_queue_for_a_thread_that_waits_for_work() {
    for (is_idle, cause) in [(true, "waiting for an event or another thread"), (false, "in a queue")] {
        let tail = without_a_thread(is_idle);
        assert_eq!(tail.findings[0].cause, cause);
        assert!(tail.findings[0].explains > 90.0, "{:?}", tail.findings[0]);
    }
}

#[test]
fn time_in_which_the_program_is_stopped_is_the_machines() {
    let tail = of_threads(1, |writer| {
        for id in 1..=1000_u64 {
            let start = id * 1_000_000;
            writer.event(WORKER, start, EventKind::RequestStart { id, queue: None }).unwrap();
            let mut end = start + 10_000;
            if id % 50 == 0 {
                end = start + 320_000;
                writer.event(WORKER, start + 5_000, switched_out(OffCpu::Stopped)).unwrap();
                writer.event(WORKER, end - 5_000, EventKind::SwitchedIn { cpu: 0 }).unwrap();
            }
            writer.event(WORKER, end, EventKind::RequestEnd { id }).unwrap();
        }
    });
    let first = &tail.findings[0];
    assert_eq!((first.cause.as_str(), first.of_machine), ("stopped by a signal or a debugger", true));
    assert!(tail.culprit.is_none());
}

#[test]
fn each_label_is_analysed_separately() {
    let folder = requests();
    let (trace, mut symbols) = open(folder.path());
    let labels = by_label(&trace, &mut symbols, &Selection::Marked, 0.1, &mut ignore_progress).unwrap();
    let summary: Vec<(&str, u64, u64)> =
        labels.iter().map(|(label, tail)| (label.as_str(), tail.requests, tail.slow_mean / 100_000)).collect();
    assert_eq!(summary, [("KEYS", 20, 4), ("GET", 980, 0)]);
    assert!(labels[1].1.max < 11_000);
}

/// Returns the names of the functions that may be requests: `handle` and its caller have as many
/// calls.
fn candidates_within(caller: &str, tried: Option<&str>) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let mut config = setup();
    config.header.engine = Engine::Samples;
    let names = format!("{HANDLE:x} 10 {caller}\n{PARSE:x} 10 handle\n");
    std::fs::write(folder.path().join(format!("perf-{}.map", config.header.pid)), names).unwrap();
    let mut writer = TraceWriter::create(folder.path(), &config).unwrap();
    for turn in 1..=100_u64 {
        let end = turn * 1_000_000;
        let handle = EventKind::Call { function: PARSE, caller: HANDLE + 5, duration: 500_000, extent: Extent::Whole };
        writer.event(WORKER, end, handle).unwrap();
        writer.event(WORKER, end + 1_000, call(HANDLE, 510_000)).unwrap();
    }
    writer.finish(1_000_000_000).unwrap();
    let (trace, mut symbols) = open(folder.path());
    let found = candidates(&trace, &mut symbols, tried, &mut ignore_progress).unwrap();
    found.into_iter().map(|one| one.function).collect()
}

#[test]
fn a_function_that_starts_a_program_or_a_thread_is_no_candidate() {
    for start in [
        "main",
        "main.main",
        "server::main",
        "server::main::{closure#0}",
        "runtime.goexit",
        "runtime.main",
        "_start",
        "__libc_start_main",
        "start_thread",
        "clone",
        "__clone",
        "std::rt::lang_start_internal",
        "std::sys::backtrace::__rust_begin_short_backtrace",
        "execute_native_thread_routine",
        "JavaThread::run",
        "Py_RunMain",
        "py::<module>:/srv/app.py",
        "node::Start",
    ] {
        assert_eq!(candidates_within(start, None), ["handle"], "{start}");
    }
}

#[test]
fn of_two_functions_that_are_the_same_work_the_outer_is_a_candidate() {
    assert_eq!(candidates_within("answer", None), ["answer"]);
    assert_eq!(candidates_within("answer", Some("answer")), ["handle"], "it had no calls");
}

#[test]
fn recursion_counts_each_instant_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(folder.path(), &setup()).unwrap();
    let inside = |function: u64, caller: u64, duration: u64| EventKind::Call {
        function,
        caller: caller + 1,
        duration,
        extent: Extent::Whole,
    };
    // First 200 nested calls, so that more than one span is remembered; then 3 consecutive calls
    // without nesting.
    for turn in 1..=20_u64 {
        let base = turn * 10_000_000;
        for depth in (0..200_u64).rev() {
            let caller = if depth == 0 { HANDLE } else { PARSE };
            writer
                .event(WORKER, base + 1_000_000 - depth * 1000, inside(PARSE, caller, 900_000 - depth * 2000))
                .unwrap();
        }
        for call in 1..=3 {
            writer.event(WORKER, base + 2_000_000 + call * 100_000, inside(WRITE, HANDLE, 50_000)).unwrap();
        }
    }
    writer.finish(300_000_000).unwrap();
    for by_caller in [false, true] {
        let options = stats::Options { by_caller, ..stats::Options::default() };
        let (trace, collector) = stats::open(folder.path(), &options, 2, &mut ignore_progress).unwrap();
        let (_, mut symbols) = open(folder.path());
        let rows = stats::rows(&trace, collector, &mut symbols, &options, &mut ignore_progress).unwrap();
        let total =
            |name: u64| rows.iter().filter(|row| row.name == format!("{name:#x}")).map(|row| row.total).max().unwrap();
        assert_eq!(total(WRITE), 20 * 150_000, "{rows:#?}");
        assert_eq!(total(PARSE), 20 * 900_000, "{rows:#?}");
        assert!(rows.iter().all(|row| row.total < 300_000_000));
    }
}
