//! The wait room of a gate from outside: every request ends once, in time or unexecuted, and no more have begun than may.

#![cfg(not(loom))]

use leeward_core::units::{Nanos, Time};
use leeward_gate::{Class, DecisionReason, Gate, Mode, Outcome, Permit, RequestInfo, WaitError, Waiter};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn at(us: u64) -> Time {
    Time::ZERO + Nanos::from_micros(us)
}

fn gate(places: usize) -> Gate {
    Gate::builder(MS(20)).workers(1).queue(places).build().unwrap()
}

/// A request of this class that had waited for so many us.
fn comes(gate: &Gate, us: u64, class: u8, waited: u64) -> Permit {
    let arriving = RequestInfo::default().with_class(Class::new(class)).with_age(Duration::from_micros(waited));
    gate.admit_at(at(us), &arriving).expect("nothing is refused yet")
}

fn seat(ticket: &Permit, us: u64) -> Waiter {
    ticket.enqueue(at(us)).expect("there are places").expect("there is a room")
}

fn poll(seat: &mut Waiter, us: u64) -> Poll<Result<(), WaitError>> {
    seat.poll_ready(at(us), &mut Context::from_waker(Waker::noop()))
}

#[test]
fn the_most_important_begins_first_and_its_wait_counts() {
    let gate = gate(100);
    let held: Vec<_> = (0..2).map(|_| comes(&gate, 0, 3, 2_000)).map(|ticket| (seat(&ticket, 0), ticket)).collect();
    let mut waits: Vec<_> = [5, 3, 0].map(|class| comes(&gate, 0, class, 2_000)).into_iter().collect::<Vec<_>>();
    let mut seats: Vec<_> = waits.iter().map(|ticket| seat(ticket, 0)).collect();
    assert_eq!(gate.waiting(), 3);
    assert!(seats.iter_mut().all(|seat| poll(seat, 100).is_pending()));
    drop(held);
    // Two slots were free: the two most important were called.
    assert_eq!(seats.iter_mut().map(|seat| poll(seat, 3_000).is_ready()).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!(seats[2].begin(at(3_000)), Poll::Ready(Ok(())));
    let ticket = waits.pop().unwrap().begin_at(at(3_000), Ok(())).unwrap();
    assert_eq!(gate.delay(), MS(5), "2 before it came and 3 in the room");
    ticket.finish_at(at(3_100), Outcome::Completed);
    assert_eq!((gate.counts().completed, gate.counts().in_time), (1, 1));
}

#[test]
fn who_cannot_be_in_time_any_more_is_refused_before_any_work() {
    let gate = gate(100);
    let (ticket, other) = (comes(&gate, 0, 3, 9_000), comes(&gate, 0, 3, 9_000));
    let (mut first, mut second) = (seat(&ticket, 0), seat(&other, 0));
    // Lateness is 18 ms, of which each had 9 left.
    assert_eq!(poll(&mut first, 9_100), Poll::Ready(Ok(())), "called when it came");
    assert_eq!(first.begin(at(9_100)), Poll::Ready(Err(WaitError::Late)));
    let refusal = ticket.begin_at(at(9_100), Err(WaitError::Late)).unwrap_err();
    assert_eq!(refusal.reason, DecisionReason::Late);
    assert!(
        gate.explain(refusal.decision).expect("it is kept").contains("18.1 ms when dequeued; the limit is 18 ms"),
        "{:?}",
        gate.explain(refusal.decision)
    );
    // The controller's second question is asked whatever the room has said.
    assert_eq!(second.begin(at(100)), Poll::Ready(Ok(())));
    assert!(other.begin_at(at(9_100), Ok(())).is_err());
    let counts = gate.counts();
    assert_eq!((counts.admitted, counts.rejected_inside, counts.in_flight()), (2, 2, 0));
}

#[test]
fn a_deadline_of_the_client_ends_the_wait() {
    let gate = gate(100);
    let arriving = RequestInfo::default().with_age(MS(2)).with_timeout(MS(5));
    let ticket = gate.admit_at(at(0), &arriving).unwrap();
    assert_eq!(seat(&ticket, 0).start_deadline(), at(3_000));
    assert_eq!(ticket.begin_at(at(3_000), Err(WaitError::Late)).unwrap_err().reason, DecisionReason::Deadline);
}

#[test]
fn the_least_important_has_to_go_where_the_room_is_full() {
    let gate = gate(1);
    let _held: Vec<_> = (0..2).map(|_| comes(&gate, 0, 3, 2_000)).map(|ticket| (seat(&ticket, 0), ticket)).collect();
    let (batch, critical) = (comes(&gate, 0, 5, 2_000), comes(&gate, 0, 0, 2_000));
    let mut waits = seat(&batch, 0);
    assert!(poll(&mut waits, 1).is_pending());
    let _place = seat(&critical, 1);
    assert_eq!(poll(&mut waits, 2), Poll::Ready(Err(WaitError::Full)));
    assert_eq!(comes(&gate, 3, 7, 2_000).enqueue(at(3)).unwrap_err(), WaitError::Full, "nor is there one for the next");
    assert_eq!(batch.begin_at(at(3), Err(WaitError::Full)).unwrap_err().reason, DecisionReason::Concurrency);
    assert_eq!(gate.waiting(), 1);
}

#[test]
fn nobody_takes_a_seat_without_a_room_or_in_a_rehearsal() {
    let plain = Gate::builder(MS(20)).workers(1).build().unwrap();
    let shadow = Gate::builder(MS(20)).workers(1).queue(100).mode(Mode::Shadow).build().unwrap();
    for gate in [plain, shadow] {
        let ticket = comes(&gate, 0, 3, 2_000);
        assert!(ticket.enqueue(at(0)).unwrap().is_none());
        ticket.begin_at(at(60_000), Ok(())).unwrap().finish(Outcome::Completed);
    }
}

/// P4: where nobody has waited, a request begins at once, and its slot is one of the room's.
#[test]
fn a_calm_gate_needs_no_room() {
    let gate = gate(0);
    let tickets: Vec<_> = (0..3).map(|_| comes(&gate, 0, 3, 10)).collect();
    let mut seats: Vec<_> = tickets.iter().map(|ticket| ticket.enqueue(at(0))).collect();
    assert_eq!(seats.pop().unwrap().unwrap_err(), WaitError::Full, "a worker and one: the third would wait");
    for seat in seats {
        let mut seat = seat.unwrap().unwrap();
        assert_eq!(seat.begin(at(0)), Poll::Ready(Ok(())), "without being called");
    }
    assert!(comes(&gate, 1, 3, 10).enqueue(at(1)).is_ok(), "slots come back");
}
