//! Planted latency bugs of each kind, in synthetic traces.
//!
//! The planted cause must be the first finding, and the timeline must show it.

use crate::support::*;
use leeward_profile::analysis::timeline::{BarKind, RequestChoice};
use leeward_profile::format::EventKind;
use leeward_profile::format::event::OffCpu;
use leeward_profile::format::write::TraceWriter;

/// Writes 1000 requests; `slow` writes every 150th of them.
fn with(slow: impl Fn(&mut TraceWriter, u64, u64)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(folder.path(), &setup()).unwrap();
    for id in 1..=1000 {
        let start = id * 1_000_000;
        if id % 150 == 0 { slow(&mut writer, id, start) } else { usual_request(&mut writer, id, start) }
    }
    writer.finish(2_000_000_000).unwrap();
    folder
}

#[test]
fn a_slow_function_on_a_rare_input() {
    let folder = with(|writer, id, start| {
        request(writer, id, start, start + 310_000, |writer| {
            writer.event(WORKER, start + 5_000, call(PARSE, 3_000)).unwrap();
            writer.event(WORKER, start + 306_000, call(RARE, 300_000)).unwrap();
        });
    });
    let tail = tail_of(folder.path());
    assert_eq!((tail.requests, tail.slow), (1000, 6), "{tail:#?}");
    let first = &tail.findings[0];
    assert!(first.cause == format!("in {RARE:#x}") && first.explains > 90.0, "{tail:#?}");
    assert!(first.rest == 0 && first.in_rest == 0.0);

    let timeline = timeline_of(folder.path(), RequestChoice::Slowest);
    assert!(timeline.id.is_multiple_of(150) && timeline.latency == 310_000);
    let longest =
        timeline.rows[0].bars.iter().filter(|bar| bar.depth == 2).max_by_key(|bar| bar.end - bar.start).unwrap();
    assert_eq!((longest.name.as_str(), longest.start, longest.end), ("0x3000", 6_000, 306_000));
}

#[test]
fn a_lock_holder_that_writes_to_a_disk() {
    let (taken, waited) = (0x4100, 0x1100);
    let folder = with(|writer, id, start| {
        // The background thread takes the lock before the request begins, and is off the CPU during
        // its write.
        let release = start + 500_000;
        writer.event(BACKGROUND, start + 20_000, switched_out(OffCpu::Blocked)).unwrap();
        request(writer, id, start, start + 510_000, |writer| {
            let acquired = release + 1_000;
            writer.event(WORKER, acquired + 4_000, lock_held(waited, acquired - (start + 1_000), 4_000)).unwrap();
        });
        writer.event(BACKGROUND, start + 480_000, EventKind::SwitchedIn { cpu: 1 }).unwrap();
        writer.event(BACKGROUND, start + 490_000, call(WRITE, 480_000)).unwrap();
        writer.event(BACKGROUND, release, lock_held(taken, 0, 510_000)).unwrap();
        // This call ends long after the request: the holder must be known before the end of the
        // call.
        writer.event(BACKGROUND, start + 900_000, call(SNAPSHOT, 950_000)).unwrap();
    });
    let tail = tail_of(folder.path());
    let first = &tail.findings[0];
    assert!(first.cause == "waiting for a mutex, 0x10ff" && first.explains > 90.0, "{tail:#?}");
    let holder = &first.holders[0];
    assert!(holder.thread == "background (101)" && holder.place == "0x40ff" && holder.share > 95.0, "{holder:?}");
    assert!(
        holder.doing[0].0 == format!("off the CPU, blocked in {WRITE:#x}") && holder.doing[0].1 > 85.0,
        "{holder:?}"
    );
    assert!(first.text.contains("background (101)") && first.text.contains("blocked in 0x5000"), "{}", first.text);

    let timeline = timeline_of(folder.path(), RequestChoice::Slowest);
    assert_eq!(
        timeline.rows.iter().map(|row| (row.thread.as_str(), row.own)).collect::<Vec<_>>(),
        [("worker (100)", true), ("background (101)", false)]
    );
    let holder = &timeline.rows[1];
    let names: Vec<(&str, BarKind)> = holder.bars.iter().map(|bar| (bar.name.as_str(), bar.look)).collect();
    assert_eq!(names[0], ("holds the mutex, taken in 0x40ff", BarKind::Held));
    // The timeline reads the whole trace, so it also shows calls that end later.
    assert_eq!(
        names[1..],
        [("0x4000", BarKind::Call), ("0x5000", BarKind::Call), ("off the CPU, blocked", BarKind::Blocked)]
    );
    let wait = &timeline.waits[0];
    assert_eq!((wait.start, wait.end, wait.holders.len()), (1_000, 501_000, 1));
    assert_eq!(wait.holders[0].nanos, 499_000);
}

#[test]
fn a_thread_that_lost_its_cpu() {
    let folder = with(|writer, id, start| {
        request(writer, id, start, start + 410_000, |writer| {
            writer.event(WORKER, start + 3_000, switched_out(OffCpu::Runnable)).unwrap();
            writer.event(WORKER, start + 403_000, EventKind::SwitchedIn { cpu: 0 }).unwrap();
            writer.event(WORKER, start + 405_000, call(PARSE, 403_000)).unwrap();
        });
    });
    let tail = tail_of(folder.path());
    let first = &tail.findings[0];
    assert!(first.cause == "off the CPU, though it could run" && first.explains > 90.0, "{tail:#?}");

    let timeline = timeline_of(folder.path(), RequestChoice::Slowest);
    let off = timeline.rows[0].bars.iter().find(|bar| bar.look == BarKind::Descheduled).unwrap();
    assert_eq!((off.start, off.end), (3_000, 403_000));
    assert_eq!(timeline.causes[0], ("off the CPU, though it could run".to_string(), 400_000));
}

#[test]
fn a_task_that_keeps_its_runtime_from_looking_for_events() {
    const PARK: u64 = 0x6000;
    const AWAITED: u64 = 0x4001;
    const READY: u64 = 257;
    let folder = tempfile::tempdir().unwrap();
    let names = format!(
        "{PARK:x} 10 tokio::runtime::scheduler::multi_thread::park::Inner::park_driver\n{WRITE:x} 10 app::flush\n"
    );
    std::fs::write(folder.path().join(format!("perf-{}.map", setup().header.pid)), names).unwrap();
    let mut writer = TraceWriter::create(folder.path(), &setup()).unwrap();
    for id in 1..=200 {
        let (start, is_slow) = (id * 100_000_000, id % 100 == 0);
        let woken = start + if is_slow { 30_100_000 } else { 5_000_000 };
        let mut event = |after: u64, kind| writer.event(WORKER, start + after, kind).unwrap();
        event(0, EventKind::RequestStart { id, queue: None });
        event(10_000, EventKind::RequestBlock { id, queue: Some(AWAITED) });
        // A task blocks the only worker until after the awaited service has answered.
        if is_slow {
            event(30_000_000, call(WRITE, 28_000_000));
        }
        event(woken - start, EventKind::RequestBlock { id, queue: Some(READY) });
        event(woken - start + 1_000, call(PARK, if is_slow { 50_000 } else { 4_900_000 }));
        event(woken - start + 10_000, EventKind::RequestStart { id, queue: None });
        event(woken - start + 20_000, EventKind::RequestEnd { id });
    }
    writer.finish(30_000_000_000).unwrap();
    let tail = tail_of(folder.path());
    let first = &tail.findings[0];
    assert!(first.cause == "ready, but not polled" && first.explains > 90.0, "{tail:#?}");
    assert!(first.text.contains("its worker worker (100) ran app::flush"), "{}", first.text);
}

#[test]
fn without_a_planted_cause_the_tail_is_negligible() {
    let folder = with(usual_request);
    let tail = tail_of(folder.path());
    // The usual latencies vary by 600 ns.
    assert!(tail.slow_mean - tail.rest_mean < 1_000, "{tail:#?}");
}

#[test]
fn the_slowest_requests_come_first_and_their_time_adds_up() {
    let folder = with(|writer, id, start| {
        request(writer, id, start, start + 100_000 + id, |writer| {
            writer.event(WORKER, start + 90_000, call(RARE, 50_000)).unwrap();
        });
    });
    let found = slowest_of(folder.path(), 4);
    assert_eq!(found.slowest.iter().map(|slow| slow.id).collect::<Vec<_>>(), [900, 750, 600, 450]);
    assert_eq!(found.latencies.count(), 1000);
    for slow in &found.slowest {
        assert_eq!(slow.causes.iter().map(|(_, nanos)| nanos).sum::<u64>(), slow.latency);
        assert_eq!(slow.threads, ["worker (100)"]);
    }
}

#[test]
fn no_cause_explains_more_than_all() {
    // They do nothing of what the others do, and something else for longer than the difference.
    let folder = with(|writer, id, start| {
        request(writer, id, start, start + 20_000, |writer| {
            writer.event(WORKER, start + 19_500, call(RARE, 19_000)).unwrap();
        });
    });
    let tail = tail_of(folder.path());
    let first = &tail.findings[0];
    assert!(first.slow - first.rest > tail.slow_mean - tail.rest_mean, "{tail:#?}");
    assert_eq!((&*first.cause, first.explains), (&*format!("in {RARE:#x}"), 100.0));
}
