//! A swarm by seed: every call is answered once and executed once, whatever the network does.

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
        let mut world = Harness::new(seed, faults);
        let under_way = [1, 4, 64][(seed % 3) as usize];
        world.run(400, under_way);
        let (calls, twice) = (world.answered.len(), world.executed_twice());
        assert_eq!((calls, twice), (400, 0), "seed {seed}, {faults:?}");
        let mut answered = world.answered.clone();
        answered.sort_unstable();
        assert!(answered.iter().copied().eq(1..=400), "seed {seed}: an answer twice");
        assert!(world.open.is_empty() && world.amplified <= 0, "seed {seed}: {}", world.amplified);
        retransmitted += world.client.counts().retransmitted;
        duplicates += world.server.as_mut().map_or(0, |link| link.take_counts().duplicates);
    }
    assert!(retransmitted > 10_000 && duplicates > 10_000, "{retransmitted} and {duplicates}: no test of anything");
}

/// The checker can see: a server that forgets what it has answered executes something twice.
#[test]
fn a_server_that_forgets_is_caught() {
    let caught = (0..20).filter(|seed| {
        let mut world = Harness::new(*seed, Faults { loss: 100, duplication: 100, reordering: 0 });
        world.forgets = true;
        world.run(400, 4);
        world.executed_twice() > 0
    });
    assert!(caught.count() > 15);
}

/// A network that never delivers is not waited for.
#[test]
fn silence_ends_a_link() {
    let mut world = Harness::new(1, Faults { loss: 0, duplication: 0, reordering: 0 });
    world.run(10, 1);
    assert_eq!(world.answered.len(), 10);
    world.server = None;
    world.run(20, 4);
    assert!(world.open.len() == 4 && world.answered.len() == 10);
}
