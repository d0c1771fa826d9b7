//! Recent holds of locks, in bounded memory, and those among them that delayed a wait.

use std::collections::{BTreeMap, VecDeque};

use crate::hash::Map;

/// Limit of remembered holds per lock.
const PER_LOCK: usize = 256;
/// Limit of remembered holds in all.
const MOST: usize = 1 << 19;
/// Limit of a hold whose begin is not recorded, in nanoseconds.
const LONGEST_HOLD: u64 = 10_000_000_000;

/// A hold of a lock by a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The thread.
    pub thread: u32,
    /// Address at which the thread took the lock.
    pub site: u64,
    /// Start of the hold.
    pub start: u64,
    /// End of the hold.
    pub end: u64,
}

/// Holds of all locks.
#[derive(Clone, Debug, Default)]
pub(super) struct Holds {
    released_holds: Map<u64, VecDeque<Hold>>,
    count: usize,
    /// Locks that are held now and whose release is a separate event.
    present: BTreeMap<(u64, u32), (u64, u64)>,
}

impl Holds {
    pub(super) fn acquired(&mut self, lock: u64, thread: u32, site: u64, at: u64) {
        if self.present.len() < MOST {
            self.present.insert((lock, thread), (site, at));
        }
    }

    pub(super) fn released(&mut self, lock: u64, thread: u32, site: u64, at: u64) {
        let holder = if self.present.contains_key(&(lock, thread)) {
            Some(thread)
        } else {
            // Another thread may release it: a semaphore, or a lock that was handed over.
            self.present.range((lock, 0)..=(lock, u32::MAX)).next().map(|((_, thread), _)| *thread)
        };
        let held = holder.and_then(|thread| Some((thread, self.present.remove(&(lock, thread))?)));
        let hold = match held {
            Some((thread, (site, start))) => Hold { thread, site, start, end: at },
            // Of locks that wait by themselves only releases are recorded, while somebody waits.
            // The thread held the lock since the release before, or longer than anybody waited.
            None => {
                let before = self.released_holds.get(&lock).and_then(|holds| holds.back());
                let start = before.map_or(at.saturating_sub(LONGEST_HOLD), |hold| hold.end);
                Hold { thread, site, start: start.max(at.saturating_sub(LONGEST_HOLD)), end: at }
            }
        };
        self.add(lock, hold);
    }

    pub(super) fn add(&mut self, lock: u64, hold: Hold) {
        if self.count >= MOST {
            self.discard_half();
        }
        let holds = self.released_holds.entry(lock).or_default();
        if holds.len() >= PER_LOCK {
            holds.pop_front();
            self.count -= 1;
        }
        holds.push_back(hold);
        self.count += 1;
    }

    fn discard_half(&mut self) {
        let mut ends: Vec<u64> = self.released_holds.values().flatten().map(|hold| hold.end).collect();
        let middle = ends.len() / 2;
        let (_, median, _) = ends.select_nth_unstable(middle);
        let median = *median;
        self.released_holds.retain(|_, holds| {
            holds.retain(|hold| hold.end > median);
            !holds.is_empty()
        });
        self.count = self.released_holds.values().map(VecDeque::len).sum();
    }

    /// Returns the holds of a lock by other threads between two times, cut to them.
    pub(super) fn between(&self, lock: u64, waiter: u32, from: u64, to: u64) -> Vec<Hold> {
        let released = self.released_holds.get(&lock).into_iter().flatten().copied();
        let present = self.present.range((lock, 0)..=(lock, u32::MAX));
        let present =
            present.map(|((_, thread), (site, start))| Hold { thread: *thread, site: *site, start: *start, end: to });
        let others = released.chain(present).filter(|hold| hold.thread != waiter && hold.start < to && hold.end > from);
        others.map(|hold| Hold { start: hold.start.max(from), end: hold.end.min(to), ..hold }).collect()
    }
}
