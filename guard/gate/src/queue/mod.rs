//! Priority wait queue of admitted requests. The most important request begins first, and a worker
//! reads new requests before it executes the next. Does not contain the order itself (`order`),
//! executors or request handling.

mod order;

use leeward_core::units::Time;
use leeward_host::sync::{Mutex, lock};
use order::{BeginOutcome, QueueKey, QueueState, WaiterState};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The wait queue of a gate.
#[derive(Debug)]
pub(crate) struct WaitQueue(Mutex<QueueState<Option<Waker>>>);

impl WaitQueue {
    /// Makes a queue with `capacity` waiting requests and one slot more than there are workers.
    ///
    /// With the extra slot, the next request is ready when one ends.
    pub(crate) fn new(workers: usize, capacity: usize) -> Self {
        WaitQueue(Mutex::new(QueueState::new(workers + 1, capacity)))
    }

    /// Largest number of requests that wait.
    pub(crate) fn capacity(&self) -> usize {
        lock(&self.0).capacity()
    }

    /// Number of requests that wait.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    /// Changes the order, and wakes the requests whose state has changed.
    fn change<R>(&self, change: impl FnOnce(&mut QueueState<Option<Waker>>, &mut Vec<Option<Waker>>) -> R) -> R {
        let mut wakes = Vec::new();
        let result = change(&mut lock(&self.0), &mut wakes);
        // After the lock is released: a waker may run any code of an executor.
        wakes.into_iter().flatten().for_each(Waker::wake);
        result
    }

    /// Starts an arriving request at once; `None`: all slots are taken, or others wait.
    pub(crate) fn try_start(self: &Arc<Self>, class: u8, until: Time) -> Option<Waiter> {
        let begins = lock(&self.0).try_start();
        begins.then(|| Waiter { queue: Arc::clone(self), key: QueueKey::of(class, until), begun: true })
    }

    /// Queues a request that must begin before `until`; `ahead` requests may be called beyond the
    /// slots.
    ///
    /// `None`: the queue is full of more important requests.
    pub(crate) fn enqueue(self: &Arc<Self>, now: Time, class: u8, until: Time, ahead: usize) -> Option<Waiter> {
        let enter = |order: &mut QueueState<_>, wakes: &mut Vec<_>| {
            order.set_ahead(ahead);
            order.enqueue(now, (class, until), wakes)
        };
        let place = self.change(enter).ok()?;
        Some(Waiter { queue: Arc::clone(self), key: place, begun: false })
    }
}

/// Reason for which a wait ended without a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// It is too late to begin.
    Late,
    /// A more important request has taken the position.
    Full,
}

/// A request's position in a wait queue, and its slot once it has begun.
///
/// Dropping it removes the request from the queue or frees the slot.
#[must_use = "a waiter that is dropped has given up"]
#[derive(Debug)]
pub struct Waiter {
    queue: Arc<WaitQueue>,
    key: QueueKey,
    begun: bool,
}

impl Waiter {
    /// Waits until the request is called.
    ///
    /// An executor that polls tasks in wake-up order should then yield once before
    /// [`Waiter::begin`], so that it reads sockets before it executes.
    pub fn poll_ready(&mut self, now: Time, context: &mut Context<'_>) -> Poll<Result<(), WaitError>> {
        // Dropped after the lock is released: a task's last waker may drop the task, and a waiter
        // with it.
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

    /// Begins a request that was called; dropping the waiter then frees its slot.
    ///
    /// Pending: all slots are taken, and the request is called again later. An error: the request
    /// is too late or was displaced.
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

    /// Whether the request has begun. It begins at once if no request waits.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Time from which it is too late to begin.
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

    fn turn(mut waiter: Waiter) {
        waits(&mut waiter);
        assert!(waiter.begin(Time(1)) == Poll::Ready(Ok(())), "nobody is late");
    }

    /// Waits for the call. The model checker finds a request that waits for ever.
    fn waits(waiter: &mut Waiter) {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        while waiter.poll_ready(Time(1), &mut context).is_pending() {
            thread::park();
        }
    }

    fn check(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        // Every interleaving with at most three preemptions.
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    /// Two requests for one slot: the second begins after the first, whenever it polls.
    #[test]
    fn a_slot_passes_to_the_next_request() {
        check(|| {
            let queue = Arc::new(WaitQueue(Mutex::new(QueueState::new(1, 8))));
            let first = queue.enqueue(Time(0), 3, FOREVER, 0).expect("there are places");
            let second = queue.enqueue(Time(0), 3, FOREVER, 0).expect("there are places");
            let waits = thread::spawn(move || turn(second));
            turn(first);
            waits.join().unwrap();
        });
    }

    /// A called request that is dropped passes the slot to the next request.
    #[test]
    fn a_dropped_request_passes_its_slot_on() {
        check(|| {
            let queue = Arc::new(WaitQueue(Mutex::new(QueueState::new(1, 8))));
            let mut first = queue.enqueue(Time(0), 3, FOREVER, 0).expect("there are places");
            assert!(first.begin(Time(0)).is_ready());
            let (gone, last) = (queue.enqueue(Time(0), 2, FOREVER, 0), queue.enqueue(Time(0), 3, FOREVER, 0));
            let waits = thread::spawn(move || turn(last.expect("there are places")));
            let goes = thread::spawn(move || drop(gone));
            drop(first);
            goes.join().unwrap();
            waits.join().unwrap();
            assert_eq!(queue.len(), 0);
        });
    }

    /// Canary: the model finds a request that keeps its slot.
    #[test]
    #[should_panic(expected = "deadlock")]
    fn canary_a_leaked_slot_is_found() {
        check(|| {
            let queue = Arc::new(WaitQueue(Mutex::new(QueueState::new(1, 8))));
            let mut first = queue.enqueue(Time(0), 3, FOREVER, 0).expect("there are places");
            assert!(first.begin(Time(0)).is_ready());
            // Not dropped by the expected panic: the model has ended by then.
            let mut second = ManuallyDrop::new(queue.enqueue(Time(0), 3, FOREVER, 0).expect("there are places"));
            let waits = thread::spawn(move || waits(&mut second));
            std::mem::forget(first);
            waits.join().unwrap();
        });
    }
}
