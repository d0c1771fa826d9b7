//! How callers hand work to the client's thread: a list behind a mutex, and a wake-up when it was empty. Bounded by a
//! number of calls that may be under way, from the moment they are put in to the moment they end.

use leeward_host::sync::{AtomicUsize, Mutex, Ordering, lock};

/// Ends the sleep of the thread that takes from an inbox. A wake-up while it is awake makes its next sleep a short one.
pub(super) trait Wake {
    fn wake(&self);
}

impl Wake for mio::Waker {
    fn wake(&self) {
        // Fails only if the descriptor is broken, which nobody can mend; what is in the list is found at the next turn.
        let _ = mio::Waker::wake(self);
    }
}

/// Mode of the client: what callers may still expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InboxMode {
    /// Calls are taken.
    Open,
    /// No more calls; those under way go on.
    Closing,
    /// No more calls; those under way are to end at once.
    Aborting,
    /// The inbox is read no more.
    Closed,
}

/// Why a call is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubmitError {
    /// As many are under way as may be.
    Full,
    /// See [`Mode`].
    Closed,
}

pub(super) struct Inbox<C, W> {
    list: Mutex<List<C>>,
    /// Calls under way. Rises only under the lock, so it never exceeds the limit; falls whenever one ends.
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
    /// An inbox for `limit` calls under way.
    pub(super) fn new(limit: usize, waker: W) -> Self {
        let list = List { commands: Vec::new(), next: 0, mode: InboxMode::Open };
        Inbox { list: Mutex::new(list), live: AtomicUsize::new(0), limit, waker }
    }

    /// Puts a call in, under a number that no other call of this inbox has.
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

    /// Puts something in about a call. At most one for each, or the list has no bound.
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

    /// Takes what is there, in order, into `commands`, which is empty.
    pub(super) fn take(&self, commands: &mut Vec<C>) -> InboxMode {
        let mut list = lock(&self.list);
        std::mem::swap(&mut list.commands, commands);
        list.mode
    }

    /// Counts the end of a call. Called before the caller is told, because the caller may have the next call ready.
    pub(super) fn finish_call(&self) {
        self.live.fetch_sub(1, Ordering::AcqRel);
    }

    /// Goes on to `mode`; there is no way back.
    pub(super) fn close(&self, mode: InboxMode) {
        let left = {
            let mut list = lock(&self.list);
            list.mode = list.mode.max(mode);
            if list.mode == InboxMode::Closed { std::mem::take(&mut list.commands) } else { Vec::new() }
        };
        // Outside the lock: what a command holds may say something of its own when it is dropped.
        drop(left);
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
    fn no_more_than_the_limit_is_under_way_and_none_after_the_end() {
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

    /// Two callers, and a thread that sleeps whenever it has found nothing: every call taken in is found, in time. A lost
    /// wake-up would be a deadlock, which loom reports.
    #[test]
    fn what_is_put_in_is_found_and_nothing_sleeps_beside_it() {
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

    /// The limit holds whatever the callers' order, and a call that has ended leaves its place before its caller knows.
    #[test]
    fn the_limit_holds() {
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

    /// A call and the end at the same time: it is refused, taken, or thrown away with what was left; never forgotten.
    #[test]
    fn a_call_that_meets_the_end_is_not_forgotten() {
        loom::model(|| {
            let inbox = Arc::new(Inbox::new(8, Bell(Arc::new(Notify::new()))));
            let fate = Arc::new(());
            let caller = {
                let (inbox, held) = (Arc::clone(&inbox), Arc::clone(&fate));
                thread::spawn(move || inbox.submit(|_| held).is_ok())
            };
            let mut commands = Vec::new();
            inbox.take(&mut commands);
            inbox.close(InboxMode::Closed);
            caller.join().unwrap();
            commands.clear();
            assert_eq!(Arc::strong_count(&fate), 1, "a call lies where nobody looks");
        });
    }
}
