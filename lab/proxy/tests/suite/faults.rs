//! Several backends, some of which fail at once: the others must get the requests, and nothing may
//! be locked out. Does not contain failures of connections, which say themselves what they are.

use crate::support::{case, slots};
use leeward_concurrency::knee::Knee;
use leeward_concurrency::{ConcurrencyLimit, LimitEnvironment};
use leeward_core::units::Nanos;
use leeward_proxy_sim::case::{Case, Demand};
use leeward_proxy_sim::proxy::{Fault, Slot, several};
use leeward_workload::ServiceTime;

const MS: Nanos = Nanos::from_millis(1);
const SECOND: Nanos = Nanos::from_secs(1);
/// Seconds of a run.
const END: u64 = 20;

/// Three backends of 8 cores with 25 ms of work, and so many times the capacity of one of them.
fn play(load: f64, faults: &[Fault]) -> Vec<Slot> {
    let demand = Demand::Steps(vec![(Nanos::ZERO, load), (SECOND * END, 0.0)]);
    let case = Case { demand, objective: MS * 200, ..case(8, ServiceTime::Constant(MS * 25)) };
    let environment = LimitEnvironment { objective: case.objective, seed: 1 };
    let limits = (0..3).map(|_| Box::new(Knee::new(&environment)) as Box<dyn ConcurrencyLimit>).collect();
    several(&case, limits, faults, 1).1
}

/// A fault of a backend between two seconds.
fn fault(backend: usize, share: f64, from: u64, to: u64) -> Fault {
    Fault { backend, from: SECOND * from, to: SECOND * to, share }
}

/// Sums of a run between two seconds: requests, those in time, and those that failed.
fn sums(all: &[Slot], from: u64, to: u64) -> (u64, u64, u64) {
    let slots = slots(all, SECOND * from, SECOND * to);
    slots.iter().fold((0, 0, 0), |(offered, good, failed), slot| {
        (offered + slot.offered, good + slot.good, failed + slot.failed)
    })
}

#[test]
fn a_backend_that_fails_at_once_gets_few_requests() {
    for from in [0, 5] {
        let all = play(1.5, &[fault(2, 1.0, from, 15)]);
        let (offered, good, failed) = sums(&all, from, 15);
        // Some until it is ejected, and one a second.
        assert!(failed <= 40 + 10, "{failed} of {offered}");
        assert!(good + failed + 20 >= offered, "{good} and {failed} of {offered}");
        // More than two can do: it has its share again.
        let all = play(2.7, &[fault(2, 1.0, from, 15)]);
        let (offered, good, _) = sums(&all, 17, 20);
        assert!(good as f64 >= 0.97 * offered as f64, "{good} of {offered} when it is back");
    }
}

#[test]
fn a_backend_that_fails_four_in_five_gets_few_requests() {
    let all = play(1.5, &[fault(0, 0.8, 5, 15)]);
    let (offered, _, failed) = sums(&all, 5, 15);
    assert!(failed * 20 <= offered, "{failed} of {offered}");
}

/// Two of three fail, too, and the one that is left has to do what it can.
#[test]
fn the_last_one_that_answers_gets_all() {
    let all = play(0.9, &[fault(0, 1.0, 5, 15), fault(1, 1.0, 5, 15)]);
    let (offered, _, failed) = sums(&all, 5, 15);
    assert!(failed <= 50 + 20, "{failed} of {offered}");
    // Its limit binds for the first time, and takes some seconds to be learnt.
    let (offered, good, failed) = sums(&all, 8, 15);
    assert!(good + failed + 20 >= offered, "{good} and {failed} of {offered}");
}

/// A service that fails is no fault of a backend: all get requests, and are back at once.
#[test]
fn where_all_fail_none_is_ejected() {
    let faults: Vec<Fault> = (0..3).map(|backend| fault(backend, 1.0, 5, 10)).collect();
    let all = play(2.7, &faults);
    let (offered, good, _) = sums(&all, 11, 20);
    assert!(good as f64 >= 0.97 * offered as f64, "{good} of {offered}");
    // One fails first, and is the first that is well.
    let all = play(0.9, &[fault(0, 1.0, 3, 8), fault(1, 1.0, 5, 12), fault(2, 1.0, 5, 12)]);
    let (offered, good, _) = sums(&all, 10, 20);
    assert!(good as f64 >= 0.97 * offered as f64, "{good} of {offered}");
}

/// Half of the requests fail everywhere, as they may for some paths: that ejects none.
#[test]
fn equal_backends_keep_their_shares_whatever_fails() {
    let faults: Vec<Fault> = (0..3).map(|backend| fault(backend, 0.5, 0, END)).collect();
    let (offered, good, failed) = sums(&play(4.0, &faults), 2, END);
    assert!((good + failed) as f64 >= 0.99 * offered as f64, "{good} and {failed} of {offered}");
}
