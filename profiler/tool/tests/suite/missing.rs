//! A stopped clock: the estimated share of hidden calls, and time that is not attributed to a wrong
//! cause.

use crate::support::*;
use leeward_profile::analysis::missing::missing;
use leeward_profile::format::EventKind;
use leeward_profile::format::event::OffCpu;
use leeward_profile::format::meta::{ClockReport, ClockStop, OmittedFunction, OverheadReport};
use leeward_profile::format::write::TraceWriter;
use leeward_profile::trace::{Trace, ignore_progress};

/// Writes a trace with a stopped clock; returns the true and the estimated share of missing calls.
///
/// A thread calls a function of duration `length` every 97 µs for one second. The clock stops for
/// `pause` in every 10 ms.
fn hidden(length: u64, pause: u64) -> (f64, f64) {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(folder.path(), &setup()).unwrap();
    let (mut all, mut recorded) = (0, 0);
    // The step is not a divisor of the pauses' period, so calls begin at any time relative to a
    // pause.
    for start in (1_000_000..1_001_000_000_u64).step_by(97_003) {
        let stop_index = |time: u64| (time % 10_000_000 < pause).then_some(time / 10_000_000);
        all += 1;
        if stop_index(start).is_some() && stop_index(start) == stop_index(start + length) {
            continue;
        }
        recorded += 1;
        writer.event(WORKER, start + length, call(PARSE, length)).unwrap();
    }
    let clock_stops: Vec<ClockStop> =
        (0..100).map(|turn| ClockStop { start: 10_000_000 * turn, length: pause, used: pause }).collect();
    let pace = ClockReport {
        stopped: 100 * pause,
        used: 1_000_000_000,
        tick: 1000,
        stops: clock_stops,
        ..ClockReport::default()
    };
    writer.pace(&pace).unwrap();
    writer.finish(1_002_000_000).unwrap();
    let trace = Trace::open(folder.path(), &mut ignore_progress).unwrap();
    let estimate = missing(&trace, &mut ignore_progress).unwrap();
    assert!((estimate.stood - pause as f64 / 1e7).abs() < 0.01, "{estimate:?}");
    assert!(estimate.describe().unwrap().contains("of the calls are missing"));
    ((all - recorded) as f64 / f64::from(all), estimate.calls)
}

#[test]
fn the_estimated_share_of_missing_calls_is_about_right() {
    for (length, pause) in [(5_000, 1_000_000), (5_000, 6_000_000), (2_000_000, 4_000_000), (50_000, 100_000)] {
        let (missing, estimate) = hidden(length, pause);
        assert!(estimate > missing / 1.5 && estimate < missing * 1.5, "{length} {pause}: {missing} and not {estimate}");
    }
    // Calls longer than any pause: none is hidden.
    let (missing, estimate) = hidden(2_000_000, 1_000_000);
    assert!(missing == 0.0 && estimate == 0.0, "{missing} {estimate}");
}

/// Cause of slow requests that block while the clock is stopped, before a call of `RARE`.
///
/// By its recorded duration, the call of `RARE` begins when the clock stops.
fn blocked(clock_stood: bool) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(folder.path(), &setup()).unwrap();
    let mut clock_stops = Vec::new();
    for id in 1..=200_u64 {
        let start = id * 10_000_000;
        if id % 50 != 0 {
            usual_request(&mut writer, id, start);
            continue;
        }
        let stopped = start + 10_000;
        clock_stops.push(ClockStop { start: stopped, length: 3_000_000, used: 500_000 });
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
                stops: clock_stops,
                ..ClockReport::default()
            })
            .unwrap();
    }
    writer.finish(3_000_000_000).unwrap();
    tail_of(folder.path()).findings[0].cause.clone()
}

#[test]
fn a_later_call_is_not_blamed_for_a_block() {
    assert_eq!(blocked(true), format!("off the CPU, blocked in {HANDLE:#x}"));
    assert_eq!(blocked(false), format!("off the CPU, blocked in {RARE:#x}"));
}

#[test]
fn functions_omitted_for_overhead_are_reported() {
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
    let message = missing(&trace, &mut ignore_progress).unwrap().describe().unwrap();
    assert_eq!(
        message,
        "to keep to 5 % of the CPU time, 1 of 40 functions were left out at times, with 70 % of all calls (on average they last 12 ns at most), \
         and holders of locks were left out from some time on"
    );
}
