//! Many connections under overload: all requests end, no honest client is rejected for missing
//! credit, and closed connections leave nothing. Tests of memory and descriptors with real sockets
//! are in server/rpc/tests.

use crate::support::{PairExt, fragmenting_wire, pair_with};
use leeward_core::registry::Environment;
use leeward_core::units::Nanos;
use leeward_pair::{PairConfig, RequestOutcome, echo};

/// Runs so many clients for `span`, each with up to two requests in flight; capacity is 5,000 per
/// second.
fn crowd(controller: &str, clients: usize, span: Nanos) {
    let environment = Environment::new(1, Nanos::from_micros(100), Nanos::from_millis(5));
    let config = PairConfig { wire: fragmenting_wire(), workers: 1, ..PairConfig::default() };
    let mut pair = pair_with(controller, &[], environment, config, echo(Nanos::from_micros(200)));
    let all: Vec<_> = (0..clients).map(|_| pair.connect()).collect();
    let end = pair.now() + span;
    while pair.now() < end {
        for client in &all {
            if pair.open_requests(*client) < 2 {
                pair.submit(*client, b"x");
            }
        }
        pair.run_for(Nanos::from_millis(1));
    }
    assert_eq!(pair.counts().connections, clients as u64);
    // A request that waits for a credit expires; a sent request is answered.
    pair.wait_until("all have ended", |pair| all.iter().all(|client| pair.open_requests(*client) == 0));
    let outcomes = all.iter().flat_map(|client| pair.outcomes(*client)).flatten();
    let completed = outcomes.filter(|end| matches!(end, RequestOutcome::Completed(_))).count();
    assert!(completed > 50, "{controller}: {completed}");
    all.iter().for_each(|client| pair.deregister(*client));
    pair.assert_settled();
    let counts = pair.counts();
    assert_eq!(counts.without_credit, 0, "{counts:?}");
    // Slots and credits of the closed connections are reused.
    pair.assert_serving();
}

#[test]
fn three_hundred_clients_of_every_controller() {
    for algorithm in leeward_controllers::builtin().algorithms() {
        crowd(algorithm.name, 300, Nanos::from_millis(20));
    }
}

#[test]
#[ignore = "takes a minute"]
fn five_thousand_clients() {
    crowd("breakwater", 5_000, Nanos::from_millis(100));
}
