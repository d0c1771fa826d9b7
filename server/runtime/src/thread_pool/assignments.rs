//! Assignment of the plan's slots to threads: a plain table, changed under one lock. Does not
//! contain the lock, the threads, or their wake-up.

use super::plan::Epoch;
use leeward_threading::{Fanout, LeftoverWork, Role, Setup, Tasks, roles};

/// Task of a thread until the plan changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The setup under which the thread took it.
    pub setup: Setup,
    /// Role of the thread, and how it waits for work.
    pub role: Role,
    /// Index among the slots with the same tasks.
    pub index: u16,
    /// Number of slots with the same tasks.
    pub count: u16,
}

/// A slot of the plan, and its thread.
#[derive(Clone, Copy, Debug)]
struct Slot {
    role: Role,
    index: u16,
    thread: Option<u16>,
}

/// The table of slots. All its memory is allocated at the start: a change of plan allocates
/// nothing.
#[derive(Debug)]
pub(crate) struct AssignmentTable {
    epoch: Epoch,
    setup: Setup,
    slots: Vec<Slot>,
    /// The table before the last change. The next change reuses its memory.
    before: Vec<Slot>,
    /// Slot of each thread.
    slot_of: Vec<Option<u16>>,
    /// Threads without a slot, which stay parked until there is one.
    parked: Vec<bool>,
}

/// A role is a set of three tasks, so there are at most eight kinds.
const KINDS: usize = 8;

fn kind(roles: Tasks) -> usize {
    let has = |role, bit| if roles.contains(role) { bit } else { 0 };
    has(Tasks::RECEIVE, 1) | has(Tasks::EXECUTE, 2) | has(Tasks::AWAIT_LEAVES, 4)
}

impl AssignmentTable {
    /// Makes a table for `threads` threads, none of which has a slot yet.
    pub(crate) fn new(threads: usize, setup: &Setup) -> Self {
        let mut table = AssignmentTable {
            epoch: Epoch::FIRST,
            setup: *setup,
            slots: Vec::with_capacity(threads + 1),
            before: Vec::with_capacity(threads + 1),
            slot_of: vec![None; threads],
            parked: vec![false; threads],
        };
        table.fill(setup, LeftoverWork::default());
        table
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Fills the table with the setup's slots, all free.
    fn fill(&mut self, setup: &Setup, leftover: LeftoverWork) {
        let mut counts = [0; KINDS];
        self.slots.clear();
        // A plan for more threads than exist gets as many slots as threads. The most needed slots
        // come first.
        for next in roles(setup, leftover).take(self.slot_of.len()) {
            let count = &mut counts[kind(next.tasks)];
            self.slots.push(Slot { role: next, index: *count, thread: None });
            *count += 1;
        }
    }

    /// Makes a new table. A thread keeps a slot of the same tasks, so that a switch moves few
    /// threads. A thread that executes loses its slot if the fan-out changes. A request of the old
    /// kind may hold it, and requests of the new kind must not wait for that. `wake` gets the
    /// threads to be notified: those that lost their slot or wait differently, and as many parked
    /// ones as there are open slots.
    pub(crate) fn plan(&mut self, setup: &Setup, leftover: LeftoverWork, wake: &mut Vec<u16>) {
        let keeps_runners = self.setup.fanout == setup.fanout;
        std::mem::swap(&mut self.slots, &mut self.before);
        self.fill(setup, leftover);
        (self.epoch, self.setup) = (self.epoch.next(), *setup);
        // For each kind, the index where the search for the next old slot of that kind begins.
        let mut from = [0; KINDS];
        let mut open = 0;
        for slot in 0..self.slots.len() {
            let Role { tasks: roles, wait } = self.slots[slot].role;
            let start = &mut from[kind(roles)];
            let is_kept = |old: &Slot| {
                old.thread.is_some() && old.role.tasks == roles && (keeps_runners || !roles.contains(Tasks::EXECUTE))
            };
            let found = self.before[*start..].iter().position(is_kept).map(|ahead| *start + ahead);
            *start = found.map_or(self.before.len(), |found| found + 1);
            let Some(old) = found.map(|found| &mut self.before[found]) else {
                open += 1;
                continue;
            };
            let Some(thread) = old.thread.take() else { continue };
            self.slots[slot].thread = Some(thread);
            self.slot_of[usize::from(thread)] = Some(slot as u16);
            // A thread that waits for leaves may have different leaves to wait for.
            if old.role.wait != wait || roles.contains(Tasks::AWAIT_LEAVES) {
                wake.push(thread);
            }
        }
        for old in &self.before {
            if let Some(thread) = old.thread {
                self.slot_of[usize::from(thread)] = None;
                wake.push(thread);
            }
        }
        let parked = self.parked.iter().enumerate().filter(|(_, rests)| **rests);
        wake.extend(parked.take(open).map(|(thread, _)| thread as u16));
    }

    /// Claims a slot for `thread`: its own, or else the first free one. Without one the thread
    /// counts as parked.
    pub(crate) fn claim(&mut self, thread: u16) -> Option<Assignment> {
        let at = usize::from(thread);
        if self.slot_of[at].is_none() {
            let free = self.slots.iter().position(|slot| slot.thread.is_none());
            self.parked[at] = free.is_none();
            let free = free?;
            self.slots[free].thread = Some(thread);
            self.slot_of[at] = Some(free as u16);
        }
        let slot = self.slots[usize::from(self.slot_of[at]?)];
        let same = |other: &&Slot| other.role.tasks == slot.role.tasks;
        let total = self.slots.iter().filter(same).count() as u16;
        Some(Assignment { setup: self.setup, role: slot.role, index: slot.index, count: total })
    }

    /// Number of parked threads.
    pub(crate) fn parked(&self) -> usize {
        self.parked.iter().filter(|rests| **rests).count()
    }

    /// Number of slots without a thread.
    pub(crate) fn open(&self) -> usize {
        self.slots.iter().filter(|slot| slot.thread.is_none()).count()
    }

    /// Returns whether a slot exists only for calls of an older setup.
    pub(crate) fn has_leftover_slot(&self) -> bool {
        self.setup.fanout == Fanout::Sync && self.slots.iter().any(|slot| slot.role.tasks.contains(Tasks::AWAIT_LEAVES))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn setup(text: &str) -> Setup {
        text.parse().unwrap_or_else(|_| panic!("{text}"))
    }

    fn roles(table: &mut AssignmentTable, thread: u16) -> Option<Tasks> {
        table.claim(thread).map(|assignment| assignment.role.tasks)
    }

    #[test]
    fn threads_claim_needed_slots_first_and_park_without_one() {
        let mut table = AssignmentTable::new(5, &setup("ADB1-2-1"));
        assert_eq!(roles(&mut table, 4), Some(Tasks::RECEIVE));
        assert_eq!(roles(&mut table, 2), Some(Tasks::AWAIT_LEAVES));
        assert_eq!(roles(&mut table, 0), Some(Tasks::EXECUTE));
        assert_eq!(roles(&mut table, 1), Some(Tasks::EXECUTE));
        assert_eq!(roles(&mut table, 3), None);
        assert_eq!((table.parked(), table.open()), (1, 0));
        assert_eq!(roles(&mut table, 4), Some(Tasks::RECEIVE), "kept");
    }

    #[test]
    fn a_change_to_async_fanout_frees_the_executing_threads() {
        let mut table = AssignmentTable::new(6, &setup("SDB1-2"));
        (0..6).for_each(|thread| _ = table.claim(thread));
        let mut wake = Vec::new();
        table.plan(&setup("ADB1-2-1"), LeftoverWork::default(), &mut wake);
        // Thread 0 keeps its receiving slot and sleeps on. 1 and 2 lose their slots. Three parked
        // threads are for the three open slots.
        assert_eq!(wake, [1, 2, 3, 4, 5]);
        assert_eq!(roles(&mut table, 3), Some(Tasks::AWAIT_LEAVES));
        assert_eq!(roles(&mut table, 0), Some(Tasks::RECEIVE));
    }

    #[test]
    fn outstanding_async_calls_keep_a_thread() {
        let mut table = AssignmentTable::new(4, &setup("AIB1-0-1"));
        (0..4).for_each(|thread| _ = table.claim(thread));
        let mut wake = Vec::new();
        table.plan(&setup("SIB1"), LeftoverWork { async_calls: 1 }, &mut wake);
        assert!(table.has_leftover_slot());
        assert_eq!(roles(&mut table, 1), Some(Tasks::AWAIT_LEAVES), "the same thread");
        table.plan(&setup("SIB1"), LeftoverWork::default(), &mut wake);
        assert!(!table.has_leftover_slot());
    }

    fn any_setup() -> impl Strategy<Value = Setup> {
        (0..2u8, 0..2u8, 0..3u8, 1..5u16, 1..5u16, 1..5u16).prop_map(
            |(fanout, handling, wait, network, worker, response)| {
                let handling = if handling == 0 { "I" } else { "D" };
                let wait = if wait == 0 { "B" } else { "P" };
                let text = match (fanout, handling) {
                    (0, "I") => format!("SI{wait}{network}"),
                    (0, _) => format!("SD{wait}{network}-{worker}"),
                    (_, "I") => format!("AI{wait}{network}-0-{response}"),
                    (..) => format!("AD{wait}{network}-{worker}-{response}"),
                };
                setup(&text)
            },
        )
    }

    proptest! {
        /// After every plan, whichever threads have come back by then: a slot has one thread and a
        /// thread one slot. Every free slot has a thread that is awake or woken for it. The needed
        /// slots exist.
        #[test]
        fn a_plan_strands_no_thread(
            threads in 1..20usize,
            plans in prop::collection::vec((any_setup(), any::<bool>(), prop::collection::vec(any::<prop::sample::Index>(), 0..20)), 1..20),
        ) {
            let mut table = AssignmentTable::new(threads, &plans[0].0);
            // Threads that have not seen the newest plan, or still work under an older one.
            let mut asleep = vec![false; threads];
            let mut wake = Vec::with_capacity(2 * threads);
            let capacity = (table.slots.capacity(), table.before.capacity());
            for (setup, owed, comers) in plans {
                wake.clear();
                table.plan(&setup, LeftoverWork { async_calls: owed.into() }, &mut wake);
                for thread in &wake {
                    asleep[usize::from(*thread)] = false;
                }
                for comer in comers {
                    let thread = comer.index(threads);
                    if !asleep[thread] {
                        table.claim(thread as u16);
                        asleep[thread] = true;
                    }
                }
                for (at, slot) in table.slots.iter().enumerate() {
                    if let Some(thread) = slot.thread {
                        prop_assert_eq!(table.slot_of[usize::from(thread)], Some(at as u16));
                    }
                }
                let holders = table.slot_of.iter().flatten().count();
                prop_assert_eq!(holders, table.slots.len() - table.open());
                let coming = (0..threads).filter(|thread| !asleep[*thread] && table.slot_of[*thread].is_none()).count();
                prop_assert!(coming >= table.open().min(threads - holders), "{} open, {} coming", table.open(), coming);
                prop_assert!(table.slots[0].role.tasks.contains(Tasks::RECEIVE));
                let has = |role| table.slots.iter().any(|slot| slot.role.tasks.contains(role));
                prop_assert!(threads < 3 || has(Tasks::EXECUTE));
                prop_assert!(threads < 3 || has(Tasks::AWAIT_LEAVES) || (setup.fanout == Fanout::Sync && !owed));
                prop_assert_eq!(capacity, (table.slots.capacity(), table.before.capacity()));
            }
        }
    }
}
