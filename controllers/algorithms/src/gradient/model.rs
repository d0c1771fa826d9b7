//! Model checking of the slots in the server: all interleavings. Run with `RUSTFLAGS="--cfg loom"
//! cargo test -p leeward-controllers --lib --release`.

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
fn no_slot_leaks() {
    loom::model(|| {
        let in_flight = Arc::new(InFlight::new(1));
        let other = Arc::clone(&in_flight);
        let enter_and_leave = |in_flight: &InFlight| {
            for _ in 0..2 {
                if in_flight.try_enter() {
                    assert!(in_flight.count() <= 1);
                    in_flight.leave(1);
                }
            }
        };
        let thread = thread::spawn(move || enter_and_leave(&other));
        enter_and_leave(&in_flight);
        thread.join().unwrap();
        assert_eq!(in_flight.count(), 0);
        assert!(in_flight.try_enter(), "the place is free again");
    });
}

#[test]
fn a_lowered_limit_applies_to_later_requests() {
    loom::model(|| {
        let in_flight = Arc::new(InFlight::new(2));
        assert!(in_flight.try_enter());
        let other = Arc::clone(&in_flight);
        let thread = thread::spawn(move || other.try_enter());
        in_flight.set_limit(1);
        assert!(!in_flight.try_enter());
        // The other core may have entered under the old limit; no core enters under the new one.
        let entered = thread.join().unwrap();
        assert_eq!(in_flight.count(), 1 + i64::from(entered));
        assert!(!in_flight.try_enter());
    });
}
