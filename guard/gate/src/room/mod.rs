//! A wait room: requests that were read and let in wait there until it is their turn, the most important first, so that a worker reads what
//! has come before it executes the next. Never here: the order itself (`order`), executors, and what a request does.

mod order;

use leeward_core::units::Time;
use leeward_host::sync::{Mutex, lock};
use order::{Begin, Order, Place, Stand};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A room of a gate.
#[derive(Debug)]
pub(crate) struct Room(Mutex<Order<Option<Waker>>>);

impl Room {
    /// A room with one slot more than there are workers, so that the next request is at hand when one ends, and `places` to wait in.
    pub(crate) fn new(workers: usize, places: usize) -> Self {
        Room(Mutex::new(Order::new(workers + 1, places)))
    }

    /// Requests that wait in it.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    /// Changes the order, and wakes whoever stands elsewhere since.
    fn change<R>(&self, change: impl FnOnce(&mut Order<Option<Waker>>, &mut Vec<Option<Waker>>) -> R) -> R {
        let mut wakes = Vec::new();
        let result = change(&mut lock(&self.0), &mut wakes);
        // Not under the lock: an executor may run anything here.
        wakes.into_iter().flatten().for_each(Waker::wake);
        result
    }

    /// A request comes and begins at once; `None`: all slots are taken.
    pub(crate) fn start(self: &Arc<Self>, class: u8, until: Time) -> Option<Seat> {
        let begins = lock(&self.0).start();
        begins.then(|| Seat { room: Arc::clone(self), place: Place::of(class, until), begun: true })
    }

    /// A request comes that has to begin before `until`, and so many may be called `ahead`; `None`: the room is full of more important
    /// ones.
    pub(crate) fn enter(self: &Arc<Self>, now: Time, class: u8, until: Time, ahead: usize) -> Option<Seat> {
        let enter = |order: &mut Order<_>, wakes: &mut Vec<_>| {
            order.call_ahead(ahead);
            order.enter(now, (class, until), wakes)
        };
        let place = self.change(enter).ok()?;
        Some(Seat { room: Arc::clone(self), place, begun: false })
    }
}

/// End of a wait without a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Out {
    /// Too late to begin.
    Late,
    /// A more important request has taken the place.
    Full,
}

/// A request's seat in a wait room, and a slot once it has begun. Dropping it leaves the room, wherever the request stands.
#[must_use = "a seat that is dropped is given up"]
#[derive(Debug)]
pub struct Seat {
    room: Arc<Room>,
    place: Place,
    begun: bool,
}

impl Seat {
    /// Waits until the request is called. An executor that polls what it has been told of in order should then let others have their turn
    /// once before [`Seat::begin`]: that is what lets it read before it executes.
    pub fn poll_called(&mut self, now: Time, context: &mut Context<'_>) -> Poll<Result<(), Out>> {
        // Dropped once the lock is free: the last waker of a task may drop the task, and a seat with it.
        let _before;
        match lock(&self.room.0).look(now, self.place) {
            (Stand::Waits, Some(waker)) if now < self.place.until => {
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                    _before = waker.replace(context.waker().clone());
                }
                Poll::Pending
            }
            (Stand::Called, _) => Poll::Ready(Ok(())),
            _ => Poll::Ready(Err(self.out(now))),
        }
    }

    /// The request that was called begins. Dropping the seat then gives its slot to the next. Pending where all slots are taken: it is to
    /// be called again. An error: its time is over.
    pub fn begin(&mut self, now: Time) -> Poll<Result<(), Out>> {
        if self.begun {
            return Poll::Ready(Ok(()));
        }
        match self.room.change(|order, wakes| order.begin(now, self.place, wakes)) {
            Begin::Begins => {
                self.begun = true;
                Poll::Ready(Ok(()))
            }
            Begin::Waits => Poll::Pending,
            Begin::Out => Poll::Ready(Err(self.out(now))),
        }
    }

    /// Whether the request has begun, as it does at once where nobody waits.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// From then on it is too late to begin.
    pub fn until(&self) -> Time {
        self.place.until
    }

    fn out(&self, now: Time) -> Out {
        if now >= self.place.until { Out::Late } else { Out::Full }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let _waker = self.room.change(|order, wakes| {
            if self.begun {
                order.end(wakes);
                return None;
            }
            order.leave(self.place, wakes)
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

    fn turn(mut seat: Seat) {
        waits(&mut seat);
        assert!(seat.begin(Time(1)) == Poll::Ready(Ok(())), "nobody is late");
    }

    /// Waits for the turn. The model checker finds who waits for ever.
    fn waits(seat: &mut Seat) {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        while seat.poll_called(Time(1), &mut context).is_pending() {
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
            let room = Arc::new(Room(Mutex::new(Order::new(1, 8))));
            let first = room.enter(Time(0), 3, FOREVER, 0).expect("there are places");
            let second = room.enter(Time(0), 3, FOREVER, 0).expect("there are places");
            let waits = thread::spawn(move || turn(second));
            turn(first);
            waits.join().unwrap();
        });
    }

    /// A request that is given up while it is called does not keep the slot from the one behind it.
    #[test]
    fn who_goes_away_keeps_nobody_waiting() {
        check(|| {
            let room = Arc::new(Room(Mutex::new(Order::new(1, 8))));
            let mut first = room.enter(Time(0), 3, FOREVER, 0).expect("there are places");
            assert!(first.begin(Time(0)).is_ready());
            let (gone, last) = (room.enter(Time(0), 2, FOREVER, 0), room.enter(Time(0), 3, FOREVER, 0));
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
            let room = Arc::new(Room(Mutex::new(Order::new(1, 8))));
            let mut first = room.enter(Time(0), 3, FOREVER, 0).expect("there are places");
            assert!(first.begin(Time(0)).is_ready());
            // Not dropped by the panic that is asked for: the model is over then.
            let mut second = ManuallyDrop::new(room.enter(Time(0), 3, FOREVER, 0).expect("there are places"));
            let waits = thread::spawn(move || waits(&mut second));
            std::mem::forget(first);
            waits.join().unwrap();
        });
    }
}
