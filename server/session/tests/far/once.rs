//! Every request ends once and is executed at most once, under all network faults. A server that
//! forgets its answers is detected.

use crate::support::{TIMEOUT, pair_with, relaxed_slo};
use leeward_core::units::Nanos;
use leeward_pair::{Faults, Pair, PairConfig, RequestOutcome, Work};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Number of executions per argument.
type ExecutionCounts = Rc<RefCell<BTreeMap<Vec<u8>, u32>>>;

fn start(controller: &str, seed: u64, faults: Faults, executed: &ExecutionCounts) -> Pair {
    let executed = Rc::clone(executed);
    let handler = move |payload: &[u8], _: &mut _| {
        *executed.borrow_mut().entry(payload.to_vec()).or_default() += 1;
        Work::Result(Nanos::from_micros(10), payload.to_vec())
    };
    let config = PairConfig { seed, datagrams: Some(faults), ..PairConfig::default() };
    pair_with(controller, &[], relaxed_slo(), config, Box::new(handler))
}

/// Runs three clients with a few hundred requests, some of them at once. Returns the number of
/// completed requests.
fn run(pair: &mut Pair, forget_one_in: u64) -> usize {
    let clients: Vec<_> = (0..3).map(|_| pair.connect()).collect();
    for client in &clients {
        pair.forget_answers(*client, forget_one_in);
    }
    for round in 0..60_u32 {
        for (number, client) in clients.iter().enumerate() {
            for call in 0..=round % 3 {
                pair.submit(*client, format!("{number} {round} {call}").as_bytes());
            }
        }
        pair.run_for(Nanos::from_micros(300));
    }
    let is_open = |pair: &mut Pair| clients.iter().any(|client| pair.open_requests(*client) > 0);
    pair.run_while(TIMEOUT, is_open);
    let outcomes = clients.iter().flat_map(|client| pair.outcomes(*client));
    outcomes.filter(|end| matches!(end, Some(RequestOutcome::Completed(_)))).count()
}

#[test]
fn requests_end_once_and_are_executed_at_most_once() {
    for (seed, algorithm) in leeward_controllers::builtin().algorithms().enumerate() {
        for of_thousand in [0, 10, 50, 200] {
            let executed = ExecutionCounts::default();
            let mut pair = start(algorithm.name, seed as u64 + 1, Faults::each(of_thousand), &executed);
            let completed = run(&mut pair, 0);
            let context = format!("{} with {of_thousand} of 1000", algorithm.name);
            assert_eq!(pair.violation(), None, "{context}");
            assert!(executed.borrow().values().all(|times| *times == 1), "{context}: executed twice");
            // Over datagrams requests also end otherwise: some controllers reject after a loss, or
            // let requests expire.
            assert!(completed > 0 && executed.borrow().len() >= completed, "{context}: {completed}");
            if of_thousand == 0 && algorithm.name == "none" {
                assert_eq!(completed, 360, "{context}");
            }
        }
    }
}

#[test]
fn a_server_that_forgets_its_answers_is_caught() {
    let detected = (1..=20).filter(|seed| {
        let executed = ExecutionCounts::default();
        let mut pair = start("none", *seed, Faults::each(100), &executed);
        run(&mut pair, 20);
        pair.violation().is_some() || executed.borrow().values().any(|times| *times > 1)
    });
    assert!(detected.count() >= 15);
}
