//! A wait room: requests that were read and let in wait there until it is their turn, the most important first, so that a worker reads what
//! has come before it executes the next. Never here: the order itself (`order`), executors, and what a request does.

mod order;

use leeward_core::units::Time;
use leeward_host::sync::{Mutex, lock};
use order::{BeginOutcome, QueueKey, QueueState, WaiterState};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A room of a gate.
#[derive(Debug)]
pub(crate) struct WaitQueue(Mutex<QueueState<Option<Waker>>>);

impl WaitQueue {
    /// A room with one slot more than there are workers, so that the next request is at hand when one ends, and `places` to wait in.
    pub(crate) fn new(workers: usize, places: usize) -> Self {
        WaitQueue(Mutex::new(QueueState::new(workers + 1, places)))
    }

    /// Requests that wait in it.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    /// Changes the order, and wakes whoever stands elsewhere since.
    fn change<R>(&self, change: impl FnOnce(&mut QueueState<Option<Waker>>, &mut Vec<Option<Waker>>) -> R) -> R {
        let mut wakes = Vec::new();
        let result = change(&mut lock(&self.0), &mut wakes);
        // Not under the lock: an executor may run anything here.
        wakes.into_iter().flatten().for_each(Waker::wake);
        result
    }

    /// A request comes and begins at once; `None`: all slots are taken.
    pub(crate) fn try_start(self: &Arc<Self>, class: u8, until: Time) -> Option<Waiter> {
        let begins = lock(&self.0).try_start();
        begins.then(|| Waiter { queue: Arc::clone(self), key: QueueKey::of(class, until), begun: true })
    }

    /// A request comes that has to begin before `until`, and so many may be called `ahead`; `None`: the room is full of more important
    /// ones.
    pub(crate) fn enqueue(self: &Arc<Self>, now: Time, class: u8, until: Time, ahead: usize) -> Option<Waiter> {
        let enter = |order: &mut QueueState<_>, wakes: &mut Vec<_>| {
            order.set_ahead(ahead);
            order.enqueue(now, (class, until), wakes)
        };
        let place = self.change(enter).ok()?;
        Some(Waiter { queue: Arc::clone(self), key: place, begun: false })
    }
}

/// End of a wait without a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// Too late to begin.
    Late,
    /// A more important request has taken the place.
    Full,
}

/// A request's seat in a wait room, and a slot once it has begun. Dropping it leaves the room, wherever the request stands.
#[must_use = "a seat that is dropped is given up"]
#[derive(Debug)]
pub struct Waiter {
    queue: Arc<WaitQueue>,
    key: QueueKey,
    begun: bool,
}

impl Waiter {
    /// Waits until the request is called. An executor that polls what it has been told of in order should then let others have their turn
    /// once before [`Seat::begin`]: that is what lets it read before it executes.
    pub fn poll_ready(&mut self, now: Time, context: &mut Context<'_>) -> Poll<Result<(), WaitError>> {
        // Dropped once the lock is free: the last waker of a task may drop the task, and a seat with it.
        let _before;
        match lock(&self.queue.0).poll(now, self.key) {
            (WaiterState::Queued, Some(waker)) if now < self.key.start_deadline => {
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                    _before = waker.replace(context.waker().clone());
                }
                Poll::Pending
            }
            (WaiterState::Called, _) => Poll::Ready(Ok(())),
            _ => Poll::Ready(Err(self.error(now))),
        }
    }

    /// The request that was called begins. Dropping the seat then gives its slot to the next. Pending where all slots are taken: it is to
    /// be called again. An error: its time is over.
    pub fn begin(&mut self, now: Time) -> Poll<Result<(), WaitError>> {
        if self.begun {
            return Poll::Ready(Ok(()));
        }
        match self.queue.change(|order, wakes| order.begin(now, self.key, wakes)) {
            BeginOutcome::Started => {
                self.begun = true;
                Poll::Ready(Ok(()))
            }
            BeginOutcome::Requeued => Poll::Pending,
            BeginOutcome::Removed => Poll::Ready(Err(self.error(now))),
        }
    }

    /// Whether the request has begun, as it does at once where nobody waits.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// From then on it is too late to begin.
    pub fn start_deadline(&self) -> Time {
        self.key.start_deadline
    }

    fn error(&self, now: Time) -> WaitError {
        if now >= self.key.start_deadline { WaitError::Late } else { WaitError::Full }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let _waker = self.queue.change(|order, wakes| {
            if self.begun {
                order.end(wakes);
                return None;
            }
            order.leave(self.key, wakes)
        });
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::thread;
    use std::mem::ManuallyDrop;
    use std::task::Wake;

    const FOREVER: Time = Time(u64::MAX);

    struct Unpark(thread::Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    fn turn(mut seat: Waiter) {
        waits(&mut seat);
        assert!(seat.begin(Time(1)) == Poll::Ready(Ok(())), "nobody is late");
    }

    /// Waits for the turn. The model checker finds who waits for ever.
    fn waits(seat: &mut Waiter) {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        while seat.poll_ready(Time(1), &mut context).is_pending() {
            thread::park();
        }
    }

    fn check(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        // Every interleaving with up to so many preemptions.
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    /// Two requests for one slot: whoever comes second has its turn after the first, whenever it looks.
    #[test]
    fn a_slot_is_passed_on() {
        check(|| {
            let room = Arc::new(WaitQueue(Mutex::new(QueueState::new(1, 8))));
            let first = room.enqueue(Time(0), 3, FOREVER, 0).expect("there are places");
            let second = room.enqueue(Time(0), 3, FOREVER, 0).expect("there are places");
            let waits = thread::spawn(move || turn(second));
            turn(first);
            waits.join().unwrap();
        });
    }

    /// A request that is given up while it is called does not keep the slot from the one behind it.
    #[test]
    fn who_goes_away_keeps_nobody_waiting() {
        check(|| {
            let room = Arc::new(WaitQueue(Mutex::new(QueueState::new(1, 8))));
            let mut first = room.enqueue(Time(0), 3, FOREVER, 0).expect("there are places");
            assert!(first.begin(Time(0)).is_ready());
            let (gone, last) = (room.enqueue(Time(0), 2, FOREVER, 0), room.enqueue(Time(0), 3, FOREVER, 0));
            let waits = thread::spawn(move || turn(last.expect("there are places")));
            let goes = thread::spawn(move || drop(gone));
            drop(first);
            goes.join().unwrap();
            waits.join().unwrap();
            assert_eq!(room.len(), 0);
        });
    }

    /// Canary: a request that goes away without telling is found.
    #[test]
    #[should_panic(expected = "deadlock")]
    fn canary_a_seat_that_is_forgotten_is_found() {
        check(|| {
            let room = Arc::new(WaitQueue(Mutex::new(QueueState::new(1, 8))));
            let mut first = room.enqueue(Time(0), 3, FOREVER, 0).expect("there are places");
            assert!(first.begin(Time(0)).is_ready());
            // Not dropped by the panic that is asked for: the model is over then.
            let mut second = ManuallyDrop::new(room.enqueue(Time(0), 3, FOREVER, 0).expect("there are places"));
            let waits = thread::spawn(move || waits(&mut second));
            std::mem::forget(first);
            waits.join().unwrap();
        });
    }
}
