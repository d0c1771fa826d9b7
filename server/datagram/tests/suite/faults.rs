//! Random scenarios by seed: every call is answered once and executed once, under all network
//! faults.

use crate::harness::{Faults, Harness};

const SCENARIOS: u64 = 300;

fn faults(seed: u64) -> Faults {
    let of = |shift: u64| [0, 10, 50, 200][(seed >> shift & 3) as usize];
    Faults { loss: of(0), duplication: of(2), reordering: of(4) }
}

#[test]
fn calls_are_answered_once_and_executed_once() {
    let (mut retransmitted, mut duplicates) = (0, 0);
    for seed in 0..SCENARIOS {
        let faults = faults(seed);
        let mut harness = Harness::new(seed, faults);
        let in_flight = [1, 4, 64][(seed % 3) as usize];
        harness.run(400, in_flight);
        let (calls, twice) = (harness.answered.len(), harness.executed_twice());
        assert_eq!((calls, twice), (400, 0), "seed {seed}, {faults:?}");
        let mut answered = harness.answered.clone();
        answered.sort_unstable();
        assert!(answered.iter().copied().eq(1..=400), "seed {seed}: an answer twice");
        assert!(harness.open.is_empty() && harness.amplified <= 0, "seed {seed}: {}", harness.amplified);
        retransmitted += harness.client.counts().retransmitted;
        duplicates += harness.server.as_mut().map_or(0, |link| link.take_counts().duplicates);
    }
    assert!(retransmitted > 10_000 && duplicates > 10_000, "{retransmitted} and {duplicates}: no test of anything");
}

/// The canary: a server that forgets its answers executes a call twice.
#[test]
fn a_server_that_forgets_its_answers_is_caught() {
    let caught = (0..20).filter(|seed| {
        let mut harness = Harness::new(*seed, Faults { loss: 100, duplication: 100, reordering: 0 });
        harness.forgets = true;
        harness.run(400, 4);
        harness.executed_twice() > 0
    });
    assert!(caught.count() > 15);
}

/// Silence of the network ends the link.
#[test]
fn a_link_ends_when_the_network_falls_silent() {
    let mut harness = Harness::new(1, Faults { loss: 0, duplication: 0, reordering: 0 });
    harness.run(10, 1);
    assert_eq!(harness.answered.len(), 10);
    harness.server = None;
    harness.run(20, 4);
    assert!(harness.open.len() == 4 && harness.answered.len() == 10);
}
