//! What a request's future waits for: found while the future is polled.
//!
//! A future that returns `Poll::Pending` has given its waker to somebody. The thread's calls at
//! that moment are what the request awaits, such as the read of a socket within an `async fn`. A
//! name set by [`crate::wait`] comes first.
//!
//! A future that is ready may have given its waker away, too, such as a timer's.
//! `AwaitPoint::queue` tells them apart.
//!
//! Contains no state of a request.

use std::any::Any;
use std::cell::RefCell;
use std::sync::Weak;

use crate::runtime;

/// Limit of clones that a poll remembers: of more futures that are awaited together the first ones
/// are enough.
const CLONES: usize = 4;

/// Queues of the calls in which a poll's clones were made, as far as these live; 0 for none.
pub(crate) type Places = [usize; CLONES];

/// A clone of a poll's waker.
struct WakerClone {
    /// Queue of the calls in which it was made.
    stack: usize,
    waker: Weak<dyn Any>,
}

impl WakerClone {
    fn is_alive(&self) -> bool {
        self.waker.strong_count() > 0
    }
}

/// What the innermost request that this thread polls awaits.
struct AwaitPoint {
    is_polling: bool,
    /// Queue of the name; 0 if none is set.
    named: usize,
    /// Clones of the poll's waker, in their order.
    clones: Vec<WakerClone>,
}

impl AwaitPoint {
    /// A clone that was dropped was of a future that is over. Of the others the first counts,
    /// because deadlines come last: `timeout` polls its timer after the future. But a set of tasks
    /// or an interval keeps the waker beyond its own await; the poll before has seen its place, so
    /// new places come first.
    fn queue(&self, before: &mut Places) -> usize {
        let mut places = [0; CLONES];
        let alive = self.clones.iter().filter(|clone| clone.is_alive());
        places.iter_mut().zip(alive).for_each(|(place, clone)| *place = clone.stack);
        let known = || places.into_iter().filter(|place| *place != 0);
        let stack = known().find(|place| !before.contains(place)).or_else(|| known().next());
        let stack = stack.unwrap_or_else(|| self.clones.last().map_or(0, |clone| clone.stack));
        *before = places;
        if self.named == 0 { stack } else { self.named }
    }
}

const NONE: AwaitPoint = AwaitPoint { is_polling: false, named: 0, clones: Vec::new() };

thread_local!(static CURRENT: RefCell<AwaitPoint> = const { RefCell::new(NONE) });

/// A poll of a request by this thread; requests may be nested. Dropping it ends the poll.
pub(crate) struct CurrentPoll {
    outer: AwaitPoint,
}

impl CurrentPoll {
    pub(crate) fn enter() -> CurrentPoll {
        let current = AwaitPoint { is_polling: true, ..NONE };
        // While a thread ends, its thread-local is gone.
        CurrentPoll { outer: CURRENT.try_with(|cell| cell.replace(current)).unwrap_or(NONE) }
    }

    /// Returns the queue that stands for what the future awaits; 0 if it is not known. `before` has
    /// the places of the poll before, and gets those of this one.
    pub(crate) fn queue(&self, before: &mut Places) -> usize {
        CURRENT.try_with(|cell| cell.borrow().queue(before)).unwrap_or(0)
    }
}

impl Drop for CurrentPoll {
    fn drop(&mut self) {
        let outer = std::mem::replace(&mut self.outer, NONE);
        let _ = CURRENT.try_with(|cell| cell.replace(outer));
    }
}

/// Returns whether this thread polls a request.
pub(crate) fn is_polling() -> bool {
    CURRENT.try_with(|cell| cell.borrow().is_polling).unwrap_or(false)
}

/// Notes the thread's calls for a clone of the waker of the request that it polls.
pub(crate) fn note_stack(waker: Weak<dyn Any>) {
    let _ = CURRENT.try_with(|cell| {
        let clones = &mut cell.borrow_mut().clones;
        if clones.len() >= CLONES {
            clones.retain(WakerClone::is_alive);
        }
        if clones.len() < CLONES {
            let stack = runtime::stack_queue();
            // Zero: the table of stacks is full.
            if stack != 0 {
                clones.push(WakerClone { stack, waker });
            }
        }
    });
}

/// Notes a name, if this thread polls a request. The innermost name stays.
pub(crate) fn note_name(name: &str) {
    let _ = CURRENT.try_with(|cell| {
        let mut current = cell.borrow_mut();
        if current.is_polling && current.named == 0 {
            current.named = runtime::named_queue(name);
        }
    });
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use std::cell::Cell;
    use std::future::{Future, poll_fn};
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use tokio::task::{JoinSet, yield_now};
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::waker::{WakeState, request_waker};

    const SHORT: Duration = Duration::from_millis(1);
    const SOME: Duration = Duration::from_millis(100);
    const LONG: Duration = Duration::from_secs(60);

    thread_local!(static STACK: Cell<usize> = const { Cell::new(0) });

    extern "C" fn stack() -> usize {
        STACK.get()
    }

    /// Polls a future in calls that have this number.
    async fn at<T>(stack: usize, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let poll = |context: &mut Context<'_>| {
            let outer = STACK.replace(stack);
            let result = future.as_mut().poll(context);
            STACK.set(outer);
            result
        };
        poll_fn(poll).await
    }

    /// Is ready at the second poll.
    #[derive(Default)]
    struct Answer(Option<Waker>);

    impl Future for Answer {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            if self.0.is_some() {
                return Poll::Ready(());
            }
            self.0 = Some(context.waker().clone());
            context.waker().wake_by_ref();
            Poll::Pending
        }
    }

    fn answer() -> Answer {
        Answer::default()
    }

    /// Returns what a request awaits from its first poll to its end.
    fn awaited(request: impl Future) -> Vec<usize> {
        crate::runtime::set_stack_queue_for_test(stack);
        let (mut awaited, mut before, state) = (Vec::new(), Places::default(), WakeState::new(1));
        let mut request = pin!(request);
        let poll = |context: &mut Context<'_>| {
            let waker = request_waker(state.clone(), context.waker().clone());
            let current = CurrentPoll::enter();
            let result = request.as_mut().poll(&mut Context::from_waker(&waker));
            if result.is_pending() {
                awaited.push(current.queue(&mut before));
            }
            result.map(drop)
        };
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(poll_fn(poll));
        awaited.dedup();
        awaited
    }

    #[test]
    fn a_request_awaits_no_future_that_is_over() {
        let after_a_timer = async {
            at(1, sleep(SHORT)).await;
            at(2, answer()).await;
        };
        assert_eq!(awaited(after_a_timer), [1, 2]);
        // The set keeps the waker.
        let after_tasks = async {
            let mut tasks = JoinSet::new();
            tasks.spawn(yield_now());
            while at(1, tasks.join_next()).await.is_some() {}
            at(2, answer()).await;
        };
        assert_eq!(awaited(after_tasks), [1, 2]);
    }

    #[test]
    fn a_request_awaits_the_first_of_several_futures_and_no_deadline() {
        let in_time = async {
            let steps = async {
                at(1, sleep(SHORT)).await;
                at(2, answer()).await;
            };
            at(9, timeout(LONG, steps)).await
        };
        assert_eq!(awaited(in_time), [1, 2]);
        assert_eq!(awaited(async { tokio::join!(at(1, answer()), at(2, sleep(SOME))) }), [1, 2]);
        let selected = async {
            tokio::select! {
                biased;
                () = at(1, answer()) => {}
                () = at(9, sleep(LONG)) => {}
            }
        };
        assert_eq!(awaited(selected), [1]);
    }
}
