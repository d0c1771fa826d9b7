//! Tests of calls that are reconstructed from stacks. Contains no recordings of real programs.

use proptest::prelude::*;

use super::*;

const INTERVAL: u64 = 1000;

/// A stack of functions, the outermost first. Each is called from one place.
fn stack(functions: &[u64]) -> Vec<Frame> {
    functions.iter().map(|function| Frame { function: *function, address: function + 5 }).collect()
}

/// Calls as function, start and end.
fn plain(calls: &[Call]) -> Vec<(u64, u64, u64)> {
    calls.iter().map(|call| (call.function, call.start, call.end)).collect()
}

#[test]
fn successive_stacks_share_their_outer_calls() {
    let (mut thread, mut calls) = (ThreadCalls::new(0), Vec::new());
    let report = &mut |call| calls.push(call);
    thread.sample(1000, &stack(&[1, 2, 3]), INTERVAL, report);
    thread.sample(2000, &stack(&[1, 2, 4]), INTERVAL, report);
    thread.sample(3000, &stack(&[1, 2, 4]), INTERVAL, report);
    thread.sample(4000, &stack(&[1]), INTERVAL, report);
    thread.end(4200, INTERVAL, false, report);
    assert_eq!(plain(&calls), [(3, 500, 1500), (4, 1500, 3500), (2, 500, 3500), (1, 500, 4200)]);
    assert_eq!(calls[0].caller, 2 + 5);
    assert_eq!(calls[3].caller, 0);
}

#[test]
fn a_call_from_another_place_is_another_call() {
    let (mut thread, mut calls) = (ThreadCalls::new(0), Vec::new());
    let report = &mut |call| calls.push(call);
    thread.sample(1000, &[Frame { function: 1, address: 6 }, Frame { function: 2, address: 7 }], INTERVAL, report);
    thread.sample(2000, &[Frame { function: 1, address: 8 }, Frame { function: 2, address: 7 }], INTERVAL, report);
    thread.end(2000, INTERVAL, false, report);
    assert_eq!(plain(&calls), [(2, 500, 1500), (2, 1500, 2000), (1, 500, 2000)]);
}

#[test]
fn a_stack_at_a_switch_stands_until_the_thread_returns() {
    let (mut thread, mut calls) = (ThreadCalls::new(0), Vec::new());
    let report = &mut |call| calls.push(call);
    thread.sample(1000, &stack(&[1, 2]), INTERVAL, report);
    thread.switched_out(1200, false, Some(&stack(&[1, 3])), INTERVAL, report);
    assert!(thread.is_off());
    thread.switched_in(90_000);
    thread.sample(90_400, &stack(&[1, 2]), INTERVAL, report);
    thread.end(90_500, INTERVAL, false, report);
    assert_eq!(plain(&calls), [(2, 500, 1100), (3, 1100, 90_200), (2, 90_200, 90_500), (1, 500, 90_500)]);
}

#[test]
fn a_thread_that_waits_again_in_the_same_place_returned_meanwhile() {
    let (mut thread, mut calls) = (ThreadCalls::new(0), Vec::new());
    let report = &mut |call| calls.push(call);
    let waiting = stack(&[1, 2, 3, 4]);
    thread.switched_out(1000, false, Some(&waiting), INTERVAL, report);
    thread.set_around_wait(2);
    thread.switched_in(5000);
    thread.switched_out(5400, false, Some(&waiting), INTERVAL, report);
    thread.switched_in(9000);
    // Here it was seen on its CPU: the wait may have been a part of the call.
    thread.sample(9100, &waiting, INTERVAL, report);
    thread.switched_out(9200, false, Some(&waiting), INTERVAL, report);
    thread.end(9500, INTERVAL, false, report);
    let expected = [(4, 500, 5000), (3, 500, 5000), (4, 5400, 9500), (3, 5400, 9500), (2, 500, 9500), (1, 500, 9500)];
    assert_eq!(plain(&calls), expected);
}

#[test]
fn work_that_no_sample_shows_belongs_to_no_call() {
    let (mut thread, mut calls) = (ThreadCalls::new(0), Vec::new());
    let report = &mut |call| calls.push(call);
    let waiting = stack(&[1, 2]);
    thread.switched_out(1000, false, Some(&waiting), INTERVAL, report);
    // A task wakes it, and it answers.
    thread.switched_in(5000);
    thread.boundary(5400);
    thread.switched_out(5500, false, Some(&waiting), INTERVAL, report);
    // It works again, loses its CPU in the answer, and then waits.
    thread.switched_in(8000);
    thread.boundary(8010);
    thread.switched_out(8300, true, Some(&stack(&[1, 3])), INTERVAL, report);
    thread.switched_in(8700);
    thread.boundary(8710);
    thread.switched_out(8800, false, Some(&waiting), INTERVAL, report);
    // A sample shows what it does, back to the boundary.
    thread.switched_in(9000);
    thread.boundary(9100);
    thread.sample(9200, &stack(&[1, 4]), INTERVAL, report);
    thread.boundary(9300);
    thread.end(9500, INTERVAL, false, report);
    let expected = [
        [(2, 500, 5000), (1, 500, 5000)],
        [(2, 5500, 8000), (1, 5500, 8000)],
        [(3, 8300, 8700), (1, 8300, 8700)],
        [(2, 8800, 9000), (1, 8800, 9000)],
        [(4, 9100, 9300), (1, 9100, 9300)],
    ];
    assert_eq!(plain(&calls), expected.concat());
}

#[test]
fn a_thread_that_loses_its_cpu_twice_is_in_the_same_call() {
    let (mut thread, mut calls) = (ThreadCalls::new(0), Vec::new());
    let report = &mut |call| calls.push(call);
    for turn in 1..=2 {
        thread.switched_out(turn * 1000, true, Some(&stack(&[1, 2])), INTERVAL, report);
        thread.switched_in(turn * 1000 + 500);
    }
    thread.end(2600, INTERVAL, false, report);
    assert_eq!(plain(&calls), [(2, 500, 2600), (1, 500, 2600)]);
}

#[test]
fn a_thread_that_blocks_unseen_leaves_no_calls_meanwhile() {
    let (mut thread, mut calls) = (ThreadCalls::new(0), Vec::new());
    let report = &mut |call| calls.push(call);
    thread.sample(1000, &stack(&[1, 2]), INTERVAL, report);
    thread.switched_out(9000, false, None, INTERVAL, report);
    thread.switched_in(50_000);
    thread.sample(50_400, &stack(&[1, 2]), INTERVAL, report);
    thread.end(50_400, INTERVAL, false, report);
    assert_eq!(plain(&calls), [(2, 500, 1500), (1, 500, 1500), (2, 50_200, 50_400), (1, 50_200, 50_400)]);
}

#[test]
fn losing_the_cpu_ends_no_call() {
    let (mut thread, mut calls) = (ThreadCalls::new(0), Vec::new());
    let report = &mut |call| calls.push(call);
    thread.sample(1000, &stack(&[1, 2]), INTERVAL, report);
    thread.switched_out(1400, true, None, INTERVAL, report);
    thread.switched_in(80_000);
    // 400 before the switch and 600 after it: the middle is behind it.
    thread.sample(80_600, &stack(&[1, 3]), INTERVAL, report);
    thread.end(80_600, INTERVAL, true, report);
    assert_eq!(plain(&calls), [(2, 500, 80_100), (3, 80_100, 80_600), (1, 500, 80_600)]);
    assert_eq!(calls.iter().map(|call| call.is_cut).collect::<Vec<_>>(), [false, true, true]);
}

#[test]
fn calls_do_not_reach_over_boundaries_and_gaps() {
    let (mut thread, mut calls) = (ThreadCalls::new(0), Vec::new());
    let report = &mut |call| calls.push(call);
    thread.sample(1000, &stack(&[1]), INTERVAL, report);
    for boundary in [1100, 1300, 1200] {
        thread.boundary(boundary);
    }
    thread.sample(2000, &stack(&[1]), INTERVAL, report);
    thread.sample(12_000, &stack(&[1]), INTERVAL, report);
    thread.end(20_000, INTERVAL, false, report);
    assert_eq!(plain(&calls), [(1, 500, 1100), (1, 1300, 2500), (1, 11_500, 12_500)]);
}

/// A synthetic program: calls that contain each other, made from a list of choices.
fn program(choices: &[(u8, u64)]) -> (Vec<Call>, u64) {
    let (mut open, mut calls, mut now) = (vec![(100, 0)], Vec::new(), 0);
    for (choice, length) in choices {
        now += length;
        if choice % 3 == 0 && open.len() > 1 {
            let (function, start) = open.pop().unwrap_or_default();
            let caller = open.last().map_or(0, |(function, _): &(u64, u64)| function + 5);
            calls.push(Call { function, caller, start, end: now, is_cut: false });
        } else if open.len() < 8 {
            open.push((101 + u64::from(choice % 5) + 10 * open.len() as u64, now));
        }
    }
    now += 3 * INTERVAL;
    while let Some((function, start)) = open.pop() {
        let caller = open.last().map_or(0, |(function, _)| function + 5);
        calls.push(Call { function, caller, start, end: now, is_cut: false });
    }
    (calls, now)
}

/// The stack of a synthetic program at a time.
fn stack_at(calls: &[Call], time: u64) -> Vec<Frame> {
    let mut on: Vec<&Call> = calls.iter().filter(|call| call.start <= time && time < call.end).collect();
    on.sort_by_key(|call| (call.start, std::cmp::Reverse(call.end), call.function));
    on.into_iter().map(|call| Frame { function: call.function, address: call.function + 5 }).collect()
}

proptest! {
    #[test]
    fn calls_longer_than_two_intervals_are_found_within_one(choices in prop::collection::vec((0_u8..6, 2500_u64..9000), 1..40)) {
        let (truth, end) = program(&choices);
        let (mut thread, mut found) = (ThreadCalls::new(0), Vec::new());
        for time in (INTERVAL / 2..end).step_by(INTERVAL as usize) {
            thread.sample(time, &stack_at(&truth, time), INTERVAL, &mut |call| found.push(call));
        }
        thread.end(end, INTERVAL, false, &mut |call| found.push(call));
        for call in &truth {
            let is_it = |other: &Call| {
                other.function == call.function && other.caller == call.caller
                    && other.start.abs_diff(call.start) <= INTERVAL && other.end.abs_diff(call.end) <= INTERVAL
            };
            // The same function may be called again within an interval: then both are one.
            let again = truth.iter().any(|other| {
                other.function == call.function && other != call
                    && (other.start.abs_diff(call.end) <= 3 * INTERVAL || call.start.abs_diff(other.end) <= 3 * INTERVAL)
            });
            prop_assert!(again || found.iter().any(is_it), "{call:?} in {found:?}");
        }
    }

    #[test]
    fn calls_are_nested_and_each_moment_counts_once(steps in prop::collection::vec((0_u8..9, 0_u64..5000, prop::collection::vec(0_u64..3, 0..5)), 0..80)) {
        let (mut thread, mut now, mut calls) = (ThreadCalls::new(10), 10_u64, Vec::new());
        for (step, after, functions) in steps {
            now += after;
            let (frames, report) = (stack(&functions), &mut |call| calls.push(call));
            match step {
                0..=2 => thread.sample(now, &frames, INTERVAL, report),
                3 => thread.switched_out(now, after % 2 == 0, Some(&frames), INTERVAL, report),
                4 => thread.switched_out(now, after % 2 == 0, None, INTERVAL, report),
                5 | 6 => thread.switched_in(now),
                // Boundaries may be told late.
                7 => thread.boundary(now.saturating_sub(after * 2)),
                _ => thread.end(now, INTERVAL, after % 2 == 0, report),
            }
        }
        thread.end(now, INTERVAL, true, &mut |call| calls.push(call));
        for call in &calls {
            prop_assert!(call.start >= 10 && call.start < call.end && call.end <= now, "{call:?}");
        }
        // Of two calls one contains the other, or they don't touch.
        for (index, a) in calls.iter().enumerate() {
            for b in &calls[index + 1..] {
                let apart = a.end <= b.start || b.end <= a.start;
                let within = a.start >= b.start && a.end <= b.end || b.start >= a.start && b.end <= a.end;
                prop_assert!(apart || within, "{a:?} {b:?}");
            }
        }
    }
}
