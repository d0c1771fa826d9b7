//! The wait queue of a gate as a caller sees it: each request ends once, in time or unexecuted, and
//! never more begin than allowed.

#![cfg(not(loom))]

use leeward_core::units::{Nanos, Time};
use leeward_gate::{Class, DecisionReason, Gate, Mode, Outcome, Permit, RequestInfo, WaitError, Waiter};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn at(us: u64) -> Time {
    Time::ZERO + Nanos::from_micros(us)
}

fn gate(capacity: usize) -> Gate {
    Gate::builder(MS(20)).workers(1).queue(capacity).build().unwrap()
}

/// Admits a request of this class that had waited for `waited` us.
fn admit(gate: &Gate, us: u64, class: u8, waited: u64) -> Permit {
    let info = RequestInfo::default().with_class(Class::new(class)).with_age(Duration::from_micros(waited));
    gate.admit_at(at(us), &info).expect("nothing is refused yet")
}

fn enqueue(permit: &Permit, us: u64) -> Waiter {
    permit.enqueue(at(us)).expect("there are places").expect("there is a room")
}

fn poll(waiter: &mut Waiter, us: u64) -> Poll<Result<(), WaitError>> {
    waiter.poll_ready(at(us), &mut Context::from_waker(Waker::noop()))
}

#[test]
fn the_most_important_request_starts_first_and_its_wait_counts() {
    let gate = gate(100);
    let held: Vec<_> = (0..2).map(|_| admit(&gate, 0, 3, 2_000)).map(|permit| (enqueue(&permit, 0), permit)).collect();
    let mut queued: Vec<_> = [5, 3, 0].map(|class| admit(&gate, 0, class, 2_000)).into_iter().collect::<Vec<_>>();
    let mut waiters: Vec<_> = queued.iter().map(|permit| enqueue(permit, 0)).collect();
    assert_eq!(gate.waiting(), 3);
    assert!(waiters.iter_mut().all(|waiter| poll(waiter, 100).is_pending()));
    drop(held);
    // Two slots were free, so the two most important requests were called.
    assert_eq!(
        waiters.iter_mut().map(|waiter| poll(waiter, 3_000).is_ready()).collect::<Vec<_>>(),
        [false, true, true]
    );
    assert_eq!(waiters[2].begin(at(3_000)), Poll::Ready(Ok(())));
    let permit = queued.pop().unwrap().begin_at(at(3_000), Ok(())).unwrap();
    assert_eq!(gate.delay_at(at(3_000)), MS(5), "2 before it came and 3 in the queue");
    permit.finish_at(at(3_100), Outcome::Completed);
    assert_eq!((gate.counts().completed, gate.counts().in_time), (1, 1));
}

#[test]
fn a_late_request_is_rejected_before_any_work() {
    let gate = gate(100);
    let (permit, other) = (admit(&gate, 0, 3, 9_000), admit(&gate, 0, 3, 9_000));
    let (mut first, mut second) = (enqueue(&permit, 0), enqueue(&other, 0));
    // The lateness bound is 18 ms; each request had 9 ms left.
    assert_eq!(poll(&mut first, 9_100), Poll::Ready(Ok(())), "called when it came");
    assert_eq!(first.begin(at(9_100)), Poll::Ready(Err(WaitError::Late)));
    let rejection = permit.begin_at(at(9_100), Err(WaitError::Late)).unwrap_err();
    assert_eq!(rejection.reason, DecisionReason::Late);
    assert!(
        gate.explain(rejection.decision).expect("it is kept").contains("18.1 ms when dequeued; the limit is 18 ms"),
        "{:?}",
        gate.explain(rejection.decision)
    );
    // The controller checks the wait again, for any result of the queue.
    assert_eq!(second.begin(at(100)), Poll::Ready(Ok(())));
    assert!(other.begin_at(at(9_100), Ok(())).is_err());
    let counts = gate.counts();
    assert_eq!((counts.admitted, counts.rejected_inside, counts.in_flight()), (2, 2, 0));
}

#[test]
fn the_clients_deadline_ends_the_wait() {
    let gate = gate(100);
    let info = RequestInfo::default().with_age(MS(2)).with_timeout(MS(5));
    let permit = gate.admit_at(at(0), &info).unwrap();
    assert_eq!(enqueue(&permit, 0).start_deadline(), at(3_000));
    assert_eq!(permit.begin_at(at(3_000), Err(WaitError::Late)).unwrap_err().reason, DecisionReason::Deadline);
}

#[test]
fn a_full_queue_evicts_the_least_important_request() {
    let gate = gate(1);
    let _held: Vec<_> = (0..2).map(|_| admit(&gate, 0, 3, 2_000)).map(|permit| (enqueue(&permit, 0), permit)).collect();
    let (batch, critical) = (admit(&gate, 0, 5, 2_000), admit(&gate, 0, 0, 2_000));
    let mut batch_waiter = enqueue(&batch, 0);
    assert!(poll(&mut batch_waiter, 1).is_pending());
    let _critical_waiter = enqueue(&critical, 1);
    assert_eq!(poll(&mut batch_waiter, 2), Poll::Ready(Err(WaitError::Full)));
    assert_eq!(admit(&gate, 3, 7, 2_000).enqueue(at(3)).unwrap_err(), WaitError::Full, "nor is there one for the next");
    assert_eq!(batch.begin_at(at(3), Err(WaitError::Full)).unwrap_err().reason, DecisionReason::Concurrency);
    assert_eq!(gate.waiting(), 1);
}

#[test]
fn no_request_waits_without_a_queue_or_in_shadow_mode() {
    let plain = Gate::builder(MS(20)).workers(1).build().unwrap();
    let shadow = Gate::builder(MS(20)).workers(1).queue(100).mode(Mode::Shadow).build().unwrap();
    for gate in [plain, shadow] {
        let permit = admit(&gate, 0, 3, 2_000);
        assert!(permit.enqueue(at(0)).unwrap().is_none());
        permit.begin_at(at(60_000), Ok(())).unwrap().finish(Outcome::Completed);
    }
}

/// P4: without a delay, a request begins at once and takes a slot of the queue.
#[test]
fn without_a_delay_a_request_starts_at_once() {
    let gate = gate(0);
    let permits: Vec<_> = (0..3).map(|_| admit(&gate, 0, 3, 10)).collect();
    let mut waiters: Vec<_> = permits.iter().map(|permit| permit.enqueue(at(0))).collect();
    assert_eq!(waiters.pop().unwrap().unwrap_err(), WaitError::Full, "a worker and one: the third would wait");
    for waiter in waiters {
        let mut waiter = waiter.unwrap().unwrap();
        assert_eq!(waiter.begin(at(0)), Poll::Ready(Ok(())), "without being called");
    }
    assert!(admit(&gate, 1, 3, 10).enqueue(at(1)).is_ok(), "slots come back");
}
