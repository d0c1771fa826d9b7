//! Hands work from callers to the client's thread: a list behind a mutex, with a wake-up if it was
//! empty.
//!
//! A limit bounds the calls in flight, from submission to their end.

use leeward_host::sync::{AtomicUsize, Mutex, Ordering, lock};

/// Wakes the thread that takes from an inbox. A wake-up while the thread is awake shortens its next
/// sleep.
pub(super) trait Wake {
    fn wake(&self);
}

impl Wake for mio::Waker {
    fn wake(&self) {
        // Fails only if the descriptor is broken, which has no remedy; the next round finds the
        // list's contents.
        let _ = mio::Waker::wake(self);
    }
}

/// Mode of the client, from open to closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InboxMode {
    /// Accepts calls.
    Open,
    /// Accepts no more calls; those in flight continue.
    Closing,
    /// Accepts no more calls; those in flight end at once.
    Aborting,
    /// No thread reads the inbox any more.
    Closed,
}

/// Reason for not accepting a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubmitError {
    /// Too many calls are in flight.
    Full,
    /// The client is closing or closed; see [`InboxMode`].
    Closed,
}

pub(super) struct Inbox<C, W> {
    list: Mutex<List<C>>,
    /// Calls in flight. Rises only under the lock, so it never exceeds the limit; falls whenever a
    /// call ends.
    live: AtomicUsize,
    limit: usize,
    waker: W,
}

struct List<C> {
    commands: Vec<C>,
    next: u64,
    mode: InboxMode,
}

impl<C, W: Wake> Inbox<C, W> {
    /// Creates an inbox for `limit` calls in flight.
    pub(super) fn new(limit: usize, waker: W) -> Self {
        let list = List { commands: Vec::new(), next: 0, mode: InboxMode::Open };
        Inbox { list: Mutex::new(list), live: AtomicUsize::new(0), limit, waker }
    }

    /// Submits a call, under a number that is unique in this inbox.
    pub(super) fn submit(&self, command: impl FnOnce(u64) -> C) -> Result<u64, SubmitError> {
        let (number, was_empty) = {
            let mut list = lock(&self.list);
            if list.mode != InboxMode::Open {
                return Err(SubmitError::Closed);
            }
            if self.live.load(Ordering::Acquire) >= self.limit {
                return Err(SubmitError::Full);
            }
            self.live.fetch_add(1, Ordering::AcqRel);
            let (number, was_empty) = (list.next, list.commands.is_empty());
            list.next += 1;
            list.commands.push(command(number));
            (number, was_empty)
        };
        if was_empty {
            self.waker.wake();
        }
        Ok(number)
    }

    /// Sends a command about a call. At most one per call, or the list has no bound.
    pub(super) fn send(&self, command: C) {
        let was_empty = {
            let mut list = lock(&self.list);
            if list.mode == InboxMode::Closed {
                return;
            }
            list.commands.push(command);
            list.commands.len() == 1
        };
        if was_empty {
            self.waker.wake();
        }
    }

    /// Moves the commands, in order, into `commands`, which is empty.
    pub(super) fn take(&self, commands: &mut Vec<C>) -> InboxMode {
        let mut list = lock(&self.list);
        std::mem::swap(&mut list.commands, commands);
        list.mode
    }

    /// Counts the end of a call. Runs before the caller gets the outcome, because the caller may
    /// have the next call ready.
    pub(super) fn finish_call(&self) {
        self.live.fetch_sub(1, Ordering::AcqRel);
    }

    /// Advances to `mode`; a later mode never reverts.
    pub(super) fn close(&self, mode: InboxMode) {
        let remaining = {
            let mut list = lock(&self.list);
            list.mode = list.mode.max(mode);
            if list.mode == InboxMode::Closed { std::mem::take(&mut list.commands) } else { Vec::new() }
        };
        // Outside the lock: dropping a command may send another.
        drop(remaining);
        self.waker.wake();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct NoWaker;

    impl Wake for NoWaker {
        fn wake(&self) {}
    }

    #[test]
    fn submissions_are_limited_and_rejected_after_the_close() {
        let inbox = Inbox::new(2, NoWaker);
        assert_eq!(inbox.submit(|number| number), Ok(0));
        assert_eq!(inbox.submit(|number| number), Ok(1));
        assert_eq!(inbox.submit(|number| number), Err(SubmitError::Full));
        let mut commands = Vec::new();
        assert_eq!(inbox.take(&mut commands), InboxMode::Open);
        assert_eq!(commands, [0, 1]);
        assert_eq!(inbox.submit(|number| number), Err(SubmitError::Full), "taken, and still under way");
        inbox.finish_call();
        assert_eq!(inbox.submit(|number| number), Ok(2));
        inbox.close(InboxMode::Closing);
        inbox.finish_call();
        assert_eq!(inbox.submit(|number| number), Err(SubmitError::Closed));
        inbox.send(7);
        commands.clear();
        assert_eq!(inbox.take(&mut commands), InboxMode::Closing);
        assert_eq!(commands, [2, 7]);
        inbox.close(InboxMode::Closed);
        inbox.close(InboxMode::Aborting);
        inbox.send(8);
        commands.clear();
        assert_eq!(inbox.take(&mut commands), InboxMode::Closed);
        assert!(commands.is_empty());
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::{Arc, Notify};
    use loom::thread;

    struct Bell(Arc<Notify>);

    impl Wake for Bell {
        fn wake(&self) {
            self.0.notify();
        }
    }

    /// Two callers, and a thread that sleeps after an empty take: the thread finds every accepted
    /// call in time. A lost wake-up would be a deadlock, which loom reports.
    #[test]
    fn no_submitted_call_is_missed_by_a_sleeping_thread() {
        loom::model(|| {
            let bell = Arc::new(Notify::new());
            let inbox = Arc::new(Inbox::new(8, Bell(Arc::clone(&bell))));
            let callers: Vec<_> = (0..2)
                .map(|_| {
                    let inbox = Arc::clone(&inbox);
                    thread::spawn(move || inbox.submit(|number| number).expect("there is room"))
                })
                .collect();
            let (mut found, mut commands) = (Vec::new(), Vec::new());
            while found.len() < 2 {
                inbox.take(&mut commands);
                if commands.is_empty() {
                    bell.wait();
                }
                found.append(&mut commands);
            }
            for caller in callers {
                assert!(found.contains(&caller.join().unwrap()));
            }
            assert_ne!(found[0], found[1]);
        });
    }

    /// The limit holds for any order of callers, and a call that has ended frees its slot before
    /// its caller knows.
    #[test]
    fn the_limit_holds_for_concurrent_callers() {
        loom::model(|| {
            let inbox = Arc::new(Inbox::new(1, Bell(Arc::new(Notify::new()))));
            let other = {
                let inbox = Arc::clone(&inbox);
                thread::spawn(move || inbox.submit(|number| number).is_ok())
            };
            let mine = inbox.submit(|number| number).is_ok();
            let theirs = other.join().unwrap();
            assert!(mine != theirs, "one place, one call");
            inbox.finish_call();
            assert!(inbox.submit(|number| number).is_ok());
        });
    }

    /// A call races with the close: it is rejected, taken, or dropped with the remaining commands;
    /// never forgotten.
    #[test]
    fn a_call_that_races_with_the_close_is_not_lost() {
        loom::model(|| {
            let inbox = Arc::new(Inbox::new(8, Bell(Arc::new(Notify::new()))));
            let tracked = Arc::new(());
            let caller = {
                let (inbox, held) = (Arc::clone(&inbox), Arc::clone(&tracked));
                thread::spawn(move || inbox.submit(|_| held).is_ok())
            };
            let mut commands = Vec::new();
            inbox.take(&mut commands);
            inbox.close(InboxMode::Closed);
            caller.join().unwrap();
            commands.clear();
            assert_eq!(Arc::strong_count(&tracked), 1, "a call lies where nobody looks");
        });
    }
}
