//! Which thread has which slot of the plan: a plain table, changed under one lock. Never here: the lock, threads, waking them.

use super::plan::Epoch;
use leeward_threading::{Duty, Fanout, Owed, Roles, Setup, slots};

/// Task of a thread until the plan changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Post {
    /// The setup under which it was taken.
    pub setup: Setup,
    /// Roles of the thread, and how it waits for work.
    pub duty: Duty,
    /// Number among the posts of the same roles.
    pub place: u16,
    /// How many posts of the same roles there are.
    pub of: u16,
}

/// A slot of the plan, and the thread that has it.
#[derive(Clone, Copy, Debug)]
struct Slot {
    duty: Duty,
    place: u16,
    by: Option<u16>,
}

/// The table. All its memory is there from the start: a change of plan allocates nothing.
#[derive(Debug)]
pub(crate) struct Claims {
    epoch: Epoch,
    setup: Setup,
    slots: Vec<Slot>,
    /// The table before the last change, whose memory the next one uses.
    before: Vec<Slot>,
    /// Slot of each thread.
    of: Vec<Option<u16>>,
    /// Threads that have found no slot, and rest until one is there.
    resting: Vec<bool>,
}

/// Roles are a set of three: so many kinds of duty there are at most.
const KINDS: usize = 8;

fn kind(roles: Roles) -> usize {
    let has = |role, bit| if roles.contain(role) { bit } else { 0 };
    has(Roles::FRONT, 1) | has(Roles::RUN, 2) | has(Roles::LEAVES, 4)
}

impl Claims {
    /// No thread has a slot yet. There are `threads` of them.
    pub(crate) fn new(threads: usize, setup: &Setup) -> Self {
        let mut claims = Claims {
            epoch: Epoch::FIRST,
            setup: *setup,
            slots: Vec::with_capacity(threads + 1),
            before: Vec::with_capacity(threads + 1),
            of: vec![None; threads],
            resting: vec![false; threads],
        };
        claims.fill(setup, Owed::default());
        claims
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Slots of the setup into the table, all free.
    fn fill(&mut self, setup: &Setup, owed: Owed) {
        let mut counts = [0; KINDS];
        self.slots.clear();
        // A plan that asks for more threads than there are gets as many as there are: the first slots are the needed ones.
        for duty in slots(setup, owed).take(self.of.len()) {
            let count = &mut counts[kind(duty.roles)];
            self.slots.push(Slot { duty, place: *count, by: None });
            *count += 1;
        }
    }

    /// Makes a new table. A thread keeps a slot of the same roles, so that a switch moves few threads; but not one that executes if
    /// the fan-out changes: it may be held by a request of the old kind, and the new kind must not wait for that. `wake` gets the
    /// threads that have to hear of it: those that have lost their slot or wait differently from now on, and as many resting ones
    /// as there are slots to take.
    pub(crate) fn plan(&mut self, setup: &Setup, owed: Owed, wake: &mut Vec<u16>) {
        let keeps_runners = self.setup.fanout == setup.fanout;
        std::mem::swap(&mut self.slots, &mut self.before);
        self.fill(setup, owed);
        (self.epoch, self.setup) = (self.epoch.next(), *setup);
        // For each kind, where the search for the next old slot of that kind begins.
        let mut from = [0; KINDS];
        let mut open = 0;
        for slot in 0..self.slots.len() {
            let Duty { roles, wait } = self.slots[slot].duty;
            let start = &mut from[kind(roles)];
            let is_kept = |old: &Slot| {
                old.by.is_some() && old.duty.roles == roles && (keeps_runners || !roles.contain(Roles::RUN))
            };
            let found = self.before[*start..].iter().position(is_kept).map(|ahead| *start + ahead);
            *start = found.map_or(self.before.len(), |found| found + 1);
            let Some(old) = found.map(|found| &mut self.before[found]) else {
                open += 1;
                continue;
            };
            let Some(thread) = old.by.take() else { continue };
            self.slots[slot].by = Some(thread);
            self.of[usize::from(thread)] = Some(slot as u16);
            // Who waits for leaves may have others to wait for.
            if old.duty.wait != wait || roles.contain(Roles::LEAVES) {
                wake.push(thread);
            }
        }
        for old in &self.before {
            if let Some(thread) = old.by {
                self.of[usize::from(thread)] = None;
                wake.push(thread);
            }
        }
        let resting = self.resting.iter().enumerate().filter(|(_, rests)| **rests);
        wake.extend(resting.take(open).map(|(thread, _)| thread as u16));
    }

    /// Slot of `thread`: the one that it has, else the first that is free. Without one it rests from now on.
    pub(crate) fn claim(&mut self, thread: u16) -> Option<Post> {
        let at = usize::from(thread);
        if self.of[at].is_none() {
            let free = self.slots.iter().position(|slot| slot.by.is_none());
            self.resting[at] = free.is_none();
            let free = free?;
            self.slots[free].by = Some(thread);
            self.of[at] = Some(free as u16);
        }
        let slot = self.slots[usize::from(self.of[at]?)];
        let same = |other: &&Slot| other.duty.roles == slot.duty.roles;
        let of = self.slots.iter().filter(same).count() as u16;
        Some(Post { setup: self.setup, duty: slot.duty, place: slot.place, of })
    }

    /// Threads that rest.
    pub(crate) fn resting(&self) -> usize {
        self.resting.iter().filter(|rests| **rests).count()
    }

    /// Slots that no thread has.
    pub(crate) fn open(&self) -> usize {
        self.slots.iter().filter(|slot| slot.by.is_none()).count()
    }

    /// Whether a slot is there for calls of an older setup alone.
    pub(crate) fn keeps_leaves(&self) -> bool {
        self.setup.fanout == Fanout::Sync && self.slots.iter().any(|slot| slot.duty.roles.contain(Roles::LEAVES))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn setup(text: &str) -> Setup {
        text.parse().unwrap_or_else(|_| panic!("{text}"))
    }

    fn roles(claims: &mut Claims, thread: u16) -> Option<Roles> {
        claims.claim(thread).map(|post| post.duty.roles)
    }

    #[test]
    fn threads_take_the_needed_slots_first_and_rest_when_there_is_none() {
        let mut claims = Claims::new(5, &setup("ADB1-2-1"));
        assert_eq!(roles(&mut claims, 4), Some(Roles::FRONT));
        assert_eq!(roles(&mut claims, 2), Some(Roles::LEAVES));
        assert_eq!(roles(&mut claims, 0), Some(Roles::RUN));
        assert_eq!(roles(&mut claims, 1), Some(Roles::RUN));
        assert_eq!(roles(&mut claims, 3), None);
        assert_eq!((claims.resting(), claims.open()), (1, 0));
        assert_eq!(roles(&mut claims, 4), Some(Roles::FRONT), "kept");
    }

    #[test]
    fn a_change_of_fanout_frees_those_that_execute() {
        let mut claims = Claims::new(6, &setup("SDB1-2"));
        (0..6).for_each(|thread| _ = claims.claim(thread));
        let mut wake = Vec::new();
        claims.plan(&setup("ADB1-2-1"), Owed::default(), &mut wake);
        // Thread 0 keeps the front and sleeps on; 1 and 2 lose their slots; three that rest are for the three slots.
        assert_eq!(wake, [1, 2, 3, 4, 5]);
        assert_eq!(roles(&mut claims, 3), Some(Roles::LEAVES));
        assert_eq!(roles(&mut claims, 0), Some(Roles::FRONT));
    }

    #[test]
    fn calls_that_are_owed_keep_a_thread() {
        let mut claims = Claims::new(4, &setup("AIB1-0-1"));
        (0..4).for_each(|thread| _ = claims.claim(thread));
        let mut wake = Vec::new();
        claims.plan(&setup("SIB1"), Owed { async_calls: 1 }, &mut wake);
        assert!(claims.keeps_leaves());
        assert_eq!(roles(&mut claims, 1), Some(Roles::LEAVES), "the same thread");
        claims.plan(&setup("SIB1"), Owed::default(), &mut wake);
        assert!(!claims.keeps_leaves());
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
            let mut claims = Claims::new(threads, &plans[0].0);
            // Threads that have not heard of the newest plan, or work on under an older one.
            let mut asleep = vec![false; threads];
            let mut wake = Vec::with_capacity(2 * threads);
            let capacity = (claims.slots.capacity(), claims.before.capacity());
            for (setup, owed, comers) in plans {
                wake.clear();
                claims.plan(&setup, Owed { async_calls: owed.into() }, &mut wake);
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
                    if let Some(thread) = slot.by {
                        prop_assert_eq!(claims.of[usize::from(thread)], Some(at as u16));
                    }
                }
                let holders = claims.of.iter().flatten().count();
                prop_assert_eq!(holders, claims.slots.len() - claims.open());
                let coming = (0..threads).filter(|thread| !asleep[*thread] && claims.of[*thread].is_none()).count();
                prop_assert!(coming >= claims.open().min(threads - holders), "{} open, {} coming", claims.open(), coming);
                prop_assert!(claims.slots[0].duty.roles.contain(Roles::FRONT));
                let has = |role| claims.slots.iter().any(|slot| slot.duty.roles.contain(role));
                prop_assert!(threads < 3 || has(Roles::RUN));
                prop_assert!(threads < 3 || has(Roles::LEAVES) || (setup.fanout == Fanout::Sync && !owed));
                prop_assert_eq!(capacity, (claims.slots.capacity(), claims.before.capacity()));
            }
        }
    }
}
