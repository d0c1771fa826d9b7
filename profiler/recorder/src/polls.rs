//! A request that a future serves: its polls are the work, the time between them is waiting.
//!
//! Does not contain a future.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use crate::await_point::{CurrentPoll, Places};
use crate::runtime;
use crate::waker::{READY, WakeState, request_waker};

/// Ids of requests from [`RequestPolls::new`] begin here, so that they differ from a program's
/// counters.
const FIRST_ID: u64 = 1 << 40;

static NEXT_ID: AtomicU64 = AtomicU64::new(FIRST_ID);

/// A request that is served by polls, on any threads. Dropping it ends the request.
///
/// This is for futures of other crates that contain it; [`crate::instrument`] makes a future of
/// it. Nothing is reported of polls while nothing records.
#[derive(Debug, Default)]
pub struct RequestPolls {
    /// 0 until the request is reported for the first time, if it has no id of the program.
    id: u64,
    /// Present once the request is reported.
    state: Option<Arc<WakeState>>,
    /// Queues of what the last poll seemed to await.
    awaited: Places,
}

impl RequestPolls {
    /// Makes a request with an id of its own. It starts with its first poll or [`start`].
    ///
    /// [`start`]: RequestPolls::start
    pub fn new() -> RequestPolls {
        RequestPolls::default()
    }

    /// Makes a request with the program's id.
    pub fn with_id(id: u64) -> RequestPolls {
        RequestPolls { id, state: None, awaited: Places::default() }
    }

    /// Starts the request before its first poll, if something records: this thread works on it
    /// until [`pause`].
    ///
    /// [`pause`]: RequestPolls::pause
    #[inline(always)]
    pub fn start(&mut self) {
        if runtime::is_recorded() {
            self.resume();
        }
    }

    /// This thread leaves the request, which waits for a poll.
    #[inline(always)]
    pub fn pause(&mut self) {
        if let Some(state) = &self.state {
            state.suspend(READY);
        }
    }

    /// Returns whether the request is reported, so that a label is of use.
    #[inline(always)]
    pub fn is_reported(&self) -> bool {
        self.state.is_some()
    }

    /// Sets the kind of the request, such as its route, if it is reported.
    pub fn label(&self, label: &str) {
        if self.state.is_some() {
            runtime::request_label(self.id, label);
        }
    }

    /// Runs a poll of the request. A pending request waits from then on.
    ///
    /// The request is not over when the poll is ready: that is when this is dropped.
    #[inline(always)]
    pub fn poll<T>(&mut self, context: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        if !runtime::is_recorded() {
            return poll(context);
        }
        self.recorded_poll(context, poll)
    }

    #[inline(never)]
    fn recorded_poll<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let state = self.resume();
        let waker = request_waker(Arc::clone(&state), context.waker().clone());
        let current = CurrentPoll::enter();
        let result = poll(&mut Context::from_waker(&waker));
        state.suspend(if result.is_pending() { current.queue(&mut self.awaited) } else { READY });
        result
    }

    /// Begins or continues the work of this thread.
    fn resume(&mut self) -> Arc<WakeState> {
        if let Some(state) = &self.state {
            state.resume();
            runtime::request_resume(self.id, 0);
            return Arc::clone(state);
        }
        if self.id == 0 {
            self.id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        }
        let state = WakeState::new(self.id);
        self.state = Some(Arc::clone(&state));
        runtime::request_start(self.id);
        state
    }
}

impl Drop for RequestPolls {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(state) = &self.state {
            state.end();
            runtime::request_end(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Wake, Waker};

    use super::*;
    use crate::{TraceFuture, instrument, wait};

    #[derive(Default)]
    struct CountedWakes(AtomicUsize);

    impl Wake for CountedWakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Keeps the waker of each poll, and is ready at the third.
    #[derive(Default)]
    struct ThirdPoll(Arc<Mutex<Vec<Waker>>>);

    impl Future for ThirdPoll {
        type Output = &'static str;

        fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<&'static str> {
            let mut wakers = self.0.lock().unwrap();
            wakers.push(context.waker().clone());
            if wakers.len() == 3 { Poll::Ready("third") } else { Poll::Pending }
        }
    }

    /// Polls a future three times, and wakes each of its wakers from another thread.
    fn run(is_watched: bool) {
        let _watched = is_watched.then(runtime::watch_for_test);
        let (future, counted) = (ThirdPoll::default(), Arc::new(CountedWakes::default()));
        let wakers = Arc::clone(&future.0);
        {
            let waker = Waker::from(Arc::clone(&counted));
            let mut context = Context::from_waker(&waker);
            let mut request = pin!(wait("backend", future).instrument(7));
            assert!(request.as_mut().poll(&mut context).is_pending());
            assert!(request.as_mut().poll(&mut context).is_pending());
            request.as_mut().label("third");
            assert_eq!(request.as_mut().poll(&mut context), Poll::Ready("third"));
        }
        let kept = std::mem::take(&mut *wakers.lock().unwrap());
        let woken = std::thread::spawn(move || {
            for waker in kept {
                let copy = waker.clone();
                waker.wake_by_ref();
                drop(waker);
                copy.wake();
            }
        });
        woken.join().unwrap();
        // A wake after the end is passed on, too: the task decides what it means.
        assert_eq!(counted.0.load(Ordering::SeqCst), 6);
        assert_eq!(Arc::strong_count(&counted), 1, "a waker was not dropped");
    }

    #[test]
    fn polls_and_wakes_are_passed_on() {
        run(false);
        run(true);
    }

    #[test]
    fn a_panicking_poll_leaves_no_request_behind() {
        let _watched = runtime::watch_for_test();
        let poll = || {
            let mut request = pin!(instrument(9, async { panic!("on purpose") }));
            let _ = request.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        };
        assert!(std::panic::catch_unwind(poll).is_err());
        assert_eq!(CurrentPoll::enter().queue(&mut Places::default()), 0);
    }

    #[test]
    fn ids_of_their_own_differ() {
        let _watched = runtime::watch_for_test();
        let (mut first, mut second) = (RequestPolls::new(), RequestPolls::new());
        first.start();
        second.start();
        assert!(first.is_reported() && first.id >= FIRST_ID && first.id != second.id);
        first.pause();
    }
}
