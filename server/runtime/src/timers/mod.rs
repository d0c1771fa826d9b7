//! Waiting inside a task: [`sleep`], [`sleep_until`], [`timeout`].
//!
//! ```
//! use leeward_core::units::Nanos;
//! use leeward_runtime::timers::{Elapsed, sleep, timeout};
//!
//! # async fn ask_a_backend() -> u64 { 7 }
//! async fn with_a_second_chance() -> Result<u64, Elapsed> {
//!     if let Ok(answer) = timeout(Nanos::from_micros(500), ask_a_backend()).await {
//!         return Ok(answer);
//!     }
//!     sleep(Nanos::from_micros(100)).await;
//!     timeout(Nanos::from_millis(2), ask_a_backend()).await
//! }
//! ```
//!
//! **Where.** A sleep belongs to the core that polls the task at its creation, and waits in that
//! core's timer queue. It may then move to other cores and threads. When its server has ended, it
//! is over at once. A sleep made by code outside of a task (a thread of your own, a plain handler,
//! a test) has no core. It wakes itself until its time has come, which is correct and wastes a CPU.
//! Nothing here panics.
//!
//! **When.** Never too early. A core checks its timers between two tasks, so a sleep may last
//! longer by one task; an awake idle core takes over for a busy one. A sleeping core is woken by
//! the system, whose timers are coarser: a millisecond on Linux's epoll. For sleeps of microseconds
//! let the cores spin.
//!
//! **How many.** As many as are alive: a sleep that is dropped, or that is over, leaves nothing
//! behind.

mod core;
mod queue;

pub(crate) use self::core::{CoreTimers, Timers};

use self::core::RegisterOutcome;
use self::queue::TimerKey;
use crate::context;
use leeward_core::units::{Nanos, Time};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The time of [`timeout`] has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl std::fmt::Display for Elapsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("took too long")
    }
}

impl std::error::Error for Elapsed {}

/// Waits for `span` from now.
pub fn sleep(span: Nanos) -> Sleep {
    let state = match context::timers() {
        Some(timers) => State::Waiting { deadline: timers.now() + span, timers, key: None },
        None => State::Outside(Instant::now().checked_add(Duration::from_nanos(span.0))),
    };
    Sleep { state }
}

/// Waits until the server's clock shows `time`. Code outside of a task has no such clock; its sleep
/// is over at once.
pub fn sleep_until(time: Time) -> Sleep {
    let state = match context::timers() {
        Some(timers) => State::Waiting { deadline: time, timers, key: None },
        None => State::Over,
    };
    Sleep { state }
}

/// Current time on the server's clock; `None` for code outside of a task.
pub fn now() -> Option<Time> {
    context::timers().map(|timers| timers.now())
}

/// Gives `future` at most `span` from now. The future is polled before the time is checked, so a
/// future that is done in time counts, however late the poll.
///
/// # Errors
/// The time has passed: [`Elapsed`]. The future is dropped.
pub fn timeout<F: Future>(span: Nanos, future: F) -> impl Future<Output = Result<F::Output, Elapsed>> {
    let mut sleep = sleep(span);
    async move {
        let mut future = pin!(future);
        poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            Pin::new(&mut sleep).poll(context).map(|()| Err(Elapsed))
        })
        .await
    }
}

/// Future of [`sleep`] and [`sleep_until`].
#[must_use = "a sleep waits when it is awaited"]
pub struct Sleep {
    state: State,
}

enum State {
    Waiting {
        deadline: Time,
        timers: Arc<CoreTimers>,
        /// Its key in the timer queue, since it was first polled.
        key: Option<TimerKey>,
    },
    /// Without a core: ends at this moment, or never without one.
    Outside(Option<Instant>),
    Over,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let is_over = match &mut self.state {
            State::Waiting { deadline, timers, key } => {
                // Setting it again is right even if it has fired: another core's clock may be some
                // nanoseconds behind.
                timers.now() >= *deadline || timers.set(key, *deadline, context.waker()) == RegisterOutcome::Closed
            }
            State::Outside(until) => until.is_some_and(|until| Instant::now() >= until),
            State::Over => true,
        };
        if is_over {
            self.end();
            return Poll::Ready(());
        }
        if matches!(self.state, State::Outside(_)) {
            context.waker().wake_by_ref();
            std::thread::yield_now();
        }
        Poll::Pending
    }
}

impl Sleep {
    fn end(&mut self) {
        if let State::Waiting { timers, key: Some(key), .. } = std::mem::replace(&mut self.state, State::Over) {
            timers.clear(key);
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::tasks::{current_core, yield_now};
    use std::future::{pending, ready};
    use std::task::Waker;

    /// Polls again and again, as a thread without other work.
    fn poll_until_ready<F: Future>(future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return output;
            }
        }
    }

    #[test]
    fn sleep_works_outside_of_tasks() {
        let began = Instant::now();
        poll_until_ready(sleep(Nanos::from_millis(2)));
        assert!(began.elapsed() >= Duration::from_millis(2));
        poll_until_ready(sleep(Nanos::ZERO));
        poll_until_ready(yield_now());
        assert_eq!(poll_until_ready(timeout(Nanos::MAX, ready(7))), Ok(7));
        assert_eq!(poll_until_ready(timeout(Nanos::from_micros(10), pending::<()>())), Err(Elapsed));
    }

    #[test]
    fn code_outside_of_tasks_has_no_core_and_no_clock() {
        assert_eq!((current_core(), now()), (None, None));
        poll_until_ready(sleep_until(Time::NEVER));
    }

    #[test]
    fn a_sleep_outside_of_tasks_wakes_itself() {
        struct Woken(std::sync::atomic::AtomicBool);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, std::sync::atomic::Ordering::SeqCst);
            }
        }
        let woken = Arc::new(Woken(false.into()));
        let waker = Waker::from(Arc::clone(&woken));
        let mut sleep = pin!(sleep(Nanos::MAX));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(woken.0.load(std::sync::atomic::Ordering::SeqCst));
    }
}
