//! Invariants of every algorithm. They hold after each step, for any steps in any order. After an
//! overload every client is served again, and nothing is left when the last session has closed. The
//! canaries show that the checker detects violations.

use crate::support::canary;
use crate::support::cases::{self, Case};
use crate::support::checker::{Guarantees, Violation};
use crate::support::plant::PlantDefect;
use crate::support::run::{run, seed, sequences};
use leeward_controllers::breakwater;
use leeward_core::registry::Algorithm;

fn check(cases: &[Case]) {
    let run = |case: &Case| run(case, PlantDefect::None, seed(), sequences()).err();
    let failures: Vec<String> = cases.iter().filter_map(run).map(|(_, report)| report).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn every_algorithm_keeps_the_invariants() {
    check(&cases::every_algorithm());
}

#[test]
fn every_combination_of_breakwaters_switches_keeps_the_invariants() {
    check(&cases::every_switch_of_breakwater());
}

/// Checks that the checker detects a planted defect within the sequences of one ordinary run.
fn check_canary(case: &Case, defect: PlantDefect, expected: fn(&Violation) -> bool) {
    let (violation, report) = run(case, defect, seed(), 64).expect_err("the checker sees the planted mistake");
    assert!(expected(&violation), "seen, but as something else: {report}");
    assert!(report.contains("LEEWARD_SEED="), "{report}");
}

fn check_defective(algorithm: &Algorithm, expected: fn(&Violation) -> bool) {
    check_canary(&Case::breakwater_like(algorithm), PlantDefect::None, expected);
}

#[test]
fn canary_a_closed_session_keeps_its_window() {
    check_defective(&canary::KEEPS_WINDOW_ON_CLOSE, |violation| matches!(violation, Violation::Issued { .. }));
}

#[test]
fn canary_some_replies_lose_a_credit() {
    check_defective(&canary::LOSES_CREDIT, |violation| matches!(violation, Violation::Issued { .. }));
}

#[test]
fn canary_sessions_are_woken_for_ever() {
    check_defective(&canary::WAKES_FOR_EVER, |violation| {
        matches!(violation, Violation::Wake { .. } | Violation::Issued { .. })
    });
}

#[test]
fn canary_an_announced_window_is_not_counted() {
    check_defective(&canary::OVERSTATES_WINDOW, |violation| matches!(violation, Violation::WindowTooLarge { .. }));
}

#[test]
fn canary_a_client_sends_more_than_its_window() {
    check_defective(&canary::GREEDY_CLIENT, |violation| matches!(violation, Violation::SentWithoutCredit { .. }));
}

#[test]
fn canary_a_client_locks_itself_out() {
    check_defective(&canary::UNRESPONSIVE_CLIENT, |violation| matches!(violation, Violation::LockedOut { .. }));
}

#[test]
fn canary_admitted_requests_are_never_executed() {
    check_defective(&canary::REJECTS_AT_DEQUEUE, |violation| matches!(violation, Violation::LockedOut { .. }));
}

#[test]
fn canary_in_flight_leaks_with_lost_connections() {
    let case = Case::new(&canary::FORGETS_IN_FLIGHT, &[], None);
    check_canary(&case, PlantDefect::None, |violation| matches!(violation, Violation::InFlight { .. }));
}

/// Checks a guarantee that Breakwater does not give, so that a violation of each bound is detected.
fn check_broken_promise(breaks: fn(&mut Guarantees), expected: fn(&Violation) -> bool) {
    let mut case = Case::breakwater_like(&breakwater::ALGORITHM);
    breaks(&mut case.guarantees);
    check_canary(&case, PlantDefect::None, expected);
}

#[test]
fn canary_violated_bounds_are_found() {
    check_broken_promise(|p| p.queue = 3, |violation| matches!(violation, Violation::Queue { .. }));
    check_broken_promise(|p| p.min_pool = 4, |violation| matches!(violation, Violation::Pool { .. }));
    check_broken_promise(|p| p.max_window = Some(2), |violation| matches!(violation, Violation::WindowTooLarge { .. }));
    check_broken_promise(
        |p| p.max_outstanding = 0,
        |violation| matches!(violation, Violation::SentWithoutCredit { .. }),
    );
}

#[test]
fn canary_a_request_ends_twice() {
    let case = &cases::every_algorithm()[0];
    check_canary(case, PlantDefect::EndsTwice, |violation| matches!(violation, Violation::EndedTwice { .. }));
}

#[test]
fn canary_a_request_never_ends() {
    let case = &cases::every_algorithm()[0];
    check_canary(case, PlantDefect::ForgetsEnd, |violation| matches!(violation, Violation::NeverEnded { .. }));
}
