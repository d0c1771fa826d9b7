//! Which thread has which slot of the plan: a plain table, changed under one lock. Never here: the lock, threads, waking them.

use super::plan::Epoch;
use leeward_threading::{Fanout, LeftoverWork, Role, Setup, Tasks, roles};

/// Task of a thread until the plan changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The setup under which it was taken.
    pub setup: Setup,
    /// Roles of the thread, and how it waits for work.
    pub role: Role,
    /// Number among the posts of the same roles.
    pub index: u16,
    /// How many posts of the same roles there are.
    pub count: u16,
}

/// A slot of the plan, and the thread that has it.
#[derive(Clone, Copy, Debug)]
struct Slot {
    role: Role,
    index: u16,
    thread: Option<u16>,
}

/// The table. All its memory is there from the start: a change of plan allocates nothing.
#[derive(Debug)]
pub(crate) struct AssignmentTable {
    epoch: Epoch,
    setup: Setup,
    slots: Vec<Slot>,
    /// The table before the last change, whose memory the next one uses.
    before: Vec<Slot>,
    /// Slot of each thread.
    slot_of: Vec<Option<u16>>,
    /// Threads that have found no slot, and rest until one is there.
    parked: Vec<bool>,
}

/// Roles are a set of three: so many kinds of duty there are at most.
const KINDS: usize = 8;

fn kind(roles: Tasks) -> usize {
    let has = |role, bit| if roles.contains(role) { bit } else { 0 };
    has(Tasks::RECEIVE, 1) | has(Tasks::EXECUTE, 2) | has(Tasks::AWAIT_LEAVES, 4)
}

impl AssignmentTable {
    /// No thread has a slot yet. There are `threads` of them.
    pub(crate) fn new(threads: usize, setup: &Setup) -> Self {
        let mut claims = AssignmentTable {
            epoch: Epoch::FIRST,
            setup: *setup,
            slots: Vec::with_capacity(threads + 1),
            before: Vec::with_capacity(threads + 1),
            slot_of: vec![None; threads],
            parked: vec![false; threads],
        };
        claims.fill(setup, LeftoverWork::default());
        claims
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Slots of the setup into the table, all free.
    fn fill(&mut self, setup: &Setup, owed: LeftoverWork) {
        let mut counts = [0; KINDS];
        self.slots.clear();
        // A plan that asks for more threads than there are gets as many as there are: the first slots are the needed ones.
        for duty in roles(setup, owed).take(self.slot_of.len()) {
            let count = &mut counts[kind(duty.tasks)];
            self.slots.push(Slot { role: duty, index: *count, thread: None });
            *count += 1;
        }
    }

    /// Makes a new table. A thread keeps a slot of the same roles, so that a switch moves few threads; but not one that executes if
    /// the fan-out changes: it may be held by a request of the old kind, and the new kind must not wait for that. `wake` gets the
    /// threads that have to hear of it: those that have lost their slot or wait differently from now on, and as many resting ones
    /// as there are slots to take.
    pub(crate) fn plan(&mut self, setup: &Setup, owed: LeftoverWork, wake: &mut Vec<u16>) {
        let keeps_runners = self.setup.fanout == setup.fanout;
        std::mem::swap(&mut self.slots, &mut self.before);
        self.fill(setup, owed);
        (self.epoch, self.setup) = (self.epoch.next(), *setup);
        // For each kind, where the search for the next old slot of that kind begins.
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
            // Who waits for leaves may have others to wait for.
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
        let resting = self.parked.iter().enumerate().filter(|(_, rests)| **rests);
        wake.extend(resting.take(open).map(|(thread, _)| thread as u16));
    }

    /// Slot of `thread`: the one that it has, else the first that is free. Without one it rests from now on.
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
        let of = self.slots.iter().filter(same).count() as u16;
        Some(Assignment { setup: self.setup, role: slot.role, index: slot.index, count: of })
    }

    /// Threads that rest.
    pub(crate) fn parked(&self) -> usize {
        self.parked.iter().filter(|rests| **rests).count()
    }

    /// Slots that no thread has.
    pub(crate) fn open(&self) -> usize {
        self.slots.iter().filter(|slot| slot.thread.is_none()).count()
    }

    /// Whether a slot is there for calls of an older setup alone.
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

    fn roles(claims: &mut AssignmentTable, thread: u16) -> Option<Tasks> {
        claims.claim(thread).map(|post| post.role.tasks)
    }

    #[test]
    fn threads_take_the_needed_slots_first_and_rest_when_there_is_none() {
        let mut claims = AssignmentTable::new(5, &setup("ADB1-2-1"));
        assert_eq!(roles(&mut claims, 4), Some(Tasks::RECEIVE));
        assert_eq!(roles(&mut claims, 2), Some(Tasks::AWAIT_LEAVES));
        assert_eq!(roles(&mut claims, 0), Some(Tasks::EXECUTE));
        assert_eq!(roles(&mut claims, 1), Some(Tasks::EXECUTE));
        assert_eq!(roles(&mut claims, 3), None);
        assert_eq!((claims.parked(), claims.open()), (1, 0));
        assert_eq!(roles(&mut claims, 4), Some(Tasks::RECEIVE), "kept");
    }

    #[test]
    fn a_change_of_fanout_frees_those_that_execute() {
        let mut claims = AssignmentTable::new(6, &setup("SDB1-2"));
        (0..6).for_each(|thread| _ = claims.claim(thread));
        let mut wake = Vec::new();
        claims.plan(&setup("ADB1-2-1"), LeftoverWork::default(), &mut wake);
        // Thread 0 keeps the front and sleeps on; 1 and 2 lose their slots; three that rest are for the three slots.
        assert_eq!(wake, [1, 2, 3, 4, 5]);
        assert_eq!(roles(&mut claims, 3), Some(Tasks::AWAIT_LEAVES));
        assert_eq!(roles(&mut claims, 0), Some(Tasks::RECEIVE));
    }

    #[test]
    fn calls_that_are_owed_keep_a_thread() {
        let mut claims = AssignmentTable::new(4, &setup("AIB1-0-1"));
        (0..4).for_each(|thread| _ = claims.claim(thread));
        let mut wake = Vec::new();
        claims.plan(&setup("SIB1"), LeftoverWork { async_calls: 1 }, &mut wake);
        assert!(claims.has_leftover_slot());
        assert_eq!(roles(&mut claims, 1), Some(Tasks::AWAIT_LEAVES), "the same thread");
        claims.plan(&setup("SIB1"), LeftoverWork::default(), &mut wake);
        assert!(!claims.has_leftover_slot());
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
        /// After every plan, whatever threads have come back by then: a slot has one thread and a thread one slot, every free slot has a
        /// thread that is awake or woken for it, and the needed slots are there.
        #[test]
        fn a_plan_strands_nobody(
            threads in 1..20usize,
            plans in prop::collection::vec((any_setup(), any::<bool>(), prop::collection::vec(any::<prop::sample::Index>(), 0..20)), 1..20),
        ) {
            let mut claims = AssignmentTable::new(threads, &plans[0].0);
            // Threads that have not heard of the newest plan, or work on under an older one.
            let mut asleep = vec![false; threads];
            let mut wake = Vec::with_capacity(2 * threads);
            let capacity = (claims.slots.capacity(), claims.before.capacity());
            for (setup, owed, comers) in plans {
                wake.clear();
                claims.plan(&setup, LeftoverWork { async_calls: owed.into() }, &mut wake);
                for thread in &wake {
                    asleep[usize::from(*thread)] = false;
                }
                for comer in comers {
                    let thread = comer.index(threads);
                    if !asleep[thread] {
                        claims.claim(thread as u16);
                        asleep[thread] = true;
                    }
                }
                for (at, slot) in claims.slots.iter().enumerate() {
                    if let Some(thread) = slot.thread {
                        prop_assert_eq!(claims.slot_of[usize::from(thread)], Some(at as u16));
                    }
                }
                let holders = claims.slot_of.iter().flatten().count();
                prop_assert_eq!(holders, claims.slots.len() - claims.open());
                let coming = (0..threads).filter(|thread| !asleep[*thread] && claims.slot_of[*thread].is_none()).count();
                prop_assert!(coming >= claims.open().min(threads - holders), "{} open, {} coming", claims.open(), coming);
                prop_assert!(claims.slots[0].role.tasks.contains(Tasks::RECEIVE));
                let has = |role| claims.slots.iter().any(|slot| slot.role.tasks.contains(role));
                prop_assert!(threads < 3 || has(Tasks::EXECUTE));
                prop_assert!(threads < 3 || has(Tasks::AWAIT_LEAVES) || (setup.fanout == Fanout::Sync && !owed));
                prop_assert_eq!(capacity, (claims.slots.capacity(), claims.before.capacity()));
            }
        }
    }
}
