//! How often a thread asks the kernel for a receive stamp. A read with a stamp costs some hundred nanoseconds more than
//! one without: while nothing waits, one in a millisecond is enough. Never here: the reads.

use leeward_control::units::{Nanos, Time};
use std::cell::Cell;

/// A finding of longer ago says nothing of now: a thread that was away, or works for longer, asks again.
const EVERY: Nanos = Nanos(1_000_000);
/// Ages from here on are a queue, in which each request has its own.
const WAITS: Nanos = Nanos(500_000);

/// The last stamp that a thread has asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    at: Time,
    age: Nanos,
}

thread_local!(static LAST: Cell<Asked> = const { Cell::new(Asked { at: Time(0), age: Nanos::MAX }) });

impl Asked {
    /// By this thread.
    pub(crate) fn last() -> Self {
        LAST.try_with(Cell::get).unwrap_or(Asked { at: Time(0), age: Nanos::MAX })
    }

    /// This thread has asked; `None`: there was no stamp, and will be none without asking.
    pub(crate) fn found(at: Time, age: Option<Nanos>) {
        let _ = LAST.try_with(|last| last.set(Asked { at, age: age.unwrap_or(Nanos::MAX) }));
    }

    /// The age that bytes have which are read now, if there is no need to ask.
    pub(crate) fn still(self, now: Time) -> Option<Nanos> {
        (self.age < WAITS && now.since(self.at) < EVERY).then_some(self.age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_seen_within_a_millisecond_and_then_asked_about_each_time() {
        let asked = |at, age| Asked { at: Time(at), age: Nanos(age) };
        assert_eq!(asked(5_000_000, 20_000).still(Time(5_900_000)), Some(Nanos(20_000)));
        assert_eq!(asked(5_000_000, 20_000).still(Time(6_000_000)), None, "too long ago, or the thread was away");
        assert_eq!(asked(5_000_000, 500_000).still(Time(5_000_001)), None, "something waits");
        assert_eq!(asked(5_000_000, u64::MAX).still(Time(5_000_001)), None, "no stamps");
    }
}
