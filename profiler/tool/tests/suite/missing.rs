//! A clock that stood still: the share of calls that it hid, and the blame that nobody should get for it.

use crate::support::*;
use leeward_profile::analysis::missing::missing;
use leeward_profile::format::EventKind;
use leeward_profile::format::event::OffCpu;
use leeward_profile::format::meta::{ClockReport, ClockStop, OmittedFunction, OverheadReport};
use leeward_profile::format::write::TraceWriter;
use leeward_profile::trace::{Trace, ignore_progress};

/// A thread calls a function of `length` every 97 µs for a second; the clock stands still for `still` in every 10 ms. How many calls are
/// missing, and how many are said to be.
fn hidden(length: u64, still: u64) -> (f64, f64) {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(folder.path(), &setup()).unwrap();
    let (mut all, mut seen) = (0, 0);
    // A step that is no divisor of the pauses', so that calls begin anywhere in them.
    for start in (1_000_000..1_001_000_000_u64).step_by(97_003) {
        let stands = |time: u64| (time % 10_000_000 < still).then_some(time / 10_000_000);
        all += 1;
        if stands(start).is_some() && stands(start) == stands(start + length) {
            continue;
        }
        seen += 1;
        writer.event(WORKER, start + length, call(PARSE, length)).unwrap();
    }
    let stills: Vec<ClockStop> =
        (0..100).map(|turn| ClockStop { start: 10_000_000 * turn, length: still, used: still }).collect();
    let pace =
        ClockReport { stopped: 100 * still, used: 1_000_000_000, tick: 1000, stops: stills, ..ClockReport::default() };
    writer.pace(&pace).unwrap();
    writer.finish(1_002_000_000).unwrap();
    let trace = Trace::open(folder.path(), &mut ignore_progress).unwrap();
    let said = missing(&trace, &mut ignore_progress).unwrap();
    assert!((said.stood - still as f64 / 1e7).abs() < 0.01, "{said:?}");
    assert!(said.describe().unwrap().contains("of the calls are missing"));
    ((all - seen) as f64 / f64::from(all), said.calls)
}

#[test]
fn the_share_that_is_missing_is_about_right() {
    for (length, still) in [(5_000, 1_000_000), (5_000, 6_000_000), (2_000_000, 4_000_000), (50_000, 100_000)] {
        let (missing, said) = hidden(length, still);
        assert!(said > missing / 1.5 && said < missing * 1.5, "{length} {still}: {missing} and not {said}");
    }
    // Longer than any pause: nothing is hidden.
    let (missing, said) = hidden(2_000_000, 1_000_000);
    assert!(missing == 0.0 && said == 0.0, "{missing} {said}");
}

/// Requests that block in `PARSE`, while the clock stands still; then comes `RARE`, which seems to have begun when the clock stopped.
fn blocked(clock_stood: bool) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(folder.path(), &setup()).unwrap();
    let mut stills = Vec::new();
    for id in 1..=200_u64 {
        let start = id * 10_000_000;
        if id % 50 != 0 {
            usual_request(&mut writer, id, start);
            continue;
        }
        let stopped = start + 10_000;
        stills.push(ClockStop { start: stopped, length: 3_000_000, used: 500_000 });
        request(&mut writer, id, start, start + 3_200_000, |writer| {
            writer.event(WORKER, start + 20_000, switched_out(OffCpu::Blocked)).unwrap();
            writer.event(WORKER, start + 2_900_000, EventKind::SwitchedIn { cpu: 0 }).unwrap();
            writer.event(WORKER, start + 3_100_000, call(RARE, 3_090_000)).unwrap();
        });
    }
    if clock_stood {
        writer
            .pace(&ClockReport {
                stopped: 12_000_000,
                used: 1_000_000_000,
                tick: 1000,
                stops: stills,
                ..ClockReport::default()
            })
            .unwrap();
    }
    writer.finish(3_000_000_000).unwrap();
    tail_of(folder.path()).findings[0].cause.clone()
}

#[test]
fn a_call_that_came_later_is_not_said_to_have_blocked() {
    assert_eq!(blocked(true), format!("off the CPU, blocked in {HANDLE:#x}"));
    assert_eq!(blocked(false), format!("off the CPU, blocked in {RARE:#x}"));
}

#[test]
fn what_was_left_out_for_a_share_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(folder.path(), &setup()).unwrap();
    let most = vec![OmittedFunction { function: PARSE, calls: 900_000, missed: 700_000, length: 12 }];
    let first = OverheadReport { asked: 50_000, functions: 3, calls: 10, ..OverheadReport::default() };
    let last = OverheadReport {
        estimated: 48_000,
        functions: 40,
        left_out: 1,
        calls: 1_000_000,
        missed: 700_000,
        longest: 12,
        holders: true,
        most,
        ..first
    };
    writer.share(&OverheadReport { asked: 50_000, functions: 3, calls: 10, ..OverheadReport::default() }).unwrap();
    writer.event(WORKER, 2_000, call(PARSE, 1_000)).unwrap();
    writer.share(&last).unwrap();
    writer.finish(1_000_000).unwrap();
    let trace = Trace::open(folder.path(), &mut ignore_progress).unwrap();
    assert_eq!(trace.share(), Some(&last));
    let said = missing(&trace, &mut ignore_progress).unwrap().describe().unwrap();
    assert_eq!(
        said,
        "to keep to 5 % of the CPU time, 1 of 40 functions were left out at times, with 70 % of all calls (on average they last 12 ns at most), \
         and holders of locks were left out from some time on"
    );
}
