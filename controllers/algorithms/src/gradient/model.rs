//! Model checking of the places in the server: every interleaving. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p leeward-controllers --lib --release`.

use loom::thread;

use super::in_flight::InFlight;
use leeward_core::sync::Arc;

#[test]
fn cores_together_never_admit_more_than_the_limit() {
    loom::model(|| {
        let in_flight = Arc::new(InFlight::new(2));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let in_flight = Arc::clone(&in_flight);
                thread::spawn(move || i64::from(in_flight.try_enter()) + i64::from(in_flight.try_enter()))
            })
            .collect();
        let admitted: i64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(admitted, 2, "all places are used, none twice");
        assert_eq!(in_flight.count(), 2);
    });
}

#[test]
fn no_place_leaks() {
    loom::model(|| {
        let in_flight = Arc::new(InFlight::new(1));
        let other = Arc::clone(&in_flight);
        let visit = |in_flight: &InFlight| {
            for _ in 0..2 {
                if in_flight.try_enter() {
                    assert!(in_flight.count() <= 1);
                    in_flight.leave(1);
                }
            }
        };
        let thread = thread::spawn(move || visit(&other));
        visit(&in_flight);
        thread.join().unwrap();
        assert_eq!(in_flight.count(), 0);
        assert!(in_flight.try_enter(), "the place is free again");
    });
}

#[test]
fn a_smaller_limit_holds_for_whoever_comes_after_it_is_seen() {
    loom::model(|| {
        let in_flight = Arc::new(InFlight::new(2));
        assert!(in_flight.try_enter());
        let other = Arc::clone(&in_flight);
        let thread = thread::spawn(move || other.try_enter());
        in_flight.set_limit(1);
        assert!(!in_flight.try_enter());
        // The other core may have come in under the old limit; nobody comes in under the new one.
        let came_in = thread.join().unwrap();
        assert_eq!(in_flight.count(), 1 + i64::from(came_in));
        assert!(!in_flight.try_enter());
    });
}
