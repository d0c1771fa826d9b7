//! Permits by number. A number names a slot and the slot's generation, so the number of an ended
//! permit never names another one. Does not contain locks.

use crate::status::Failure;
use leeward_core::budget::Budget;
use leeward_core::units::{Nanos, Time};
use leeward_gate::{Gate, Permit, Rejection, RequestInfo};
use leeward_runtime::budget::RequestBudget;

/// Bits of a number that name the slot within its table.
const INDEX_BITS: u32 = 20;
/// Bits that name the table.
const TABLE_BITS: u32 = 6;
/// Number of tables of a gate.
pub(crate) const TABLES: usize = 1 << TABLE_BITS;
/// Largest number of permits in one table.
const SLOTS_MAX: usize = 1 << INDEX_BITS;
/// Generations before a slot's numbers repeat: 2^38, years of reuse by one request at a time.
const GENERATION_MAX: u64 = (1 << (u64::BITS - INDEX_BITS - TABLE_BITS)) - 1;

/// An admitted request between two calls of the program. It stays where it is until it ends: moving
/// it costs as much as a lock.
pub(crate) struct AdmittedRequest {
    /// `None`: the slot was never used. That of a request that has ended is for the next one.
    permit: Option<Permit>,
    /// Budget for queues inside, while no thread runs the request.
    pub(crate) budget: RequestBudget,
    /// Number of the thread that runs the request; 0: none.
    pub(crate) runner: u64,
    /// Time that threads have run it; `None`: no thread has.
    pub(crate) ran: Option<Nanos>,
    /// Time from its arrival until a thread took it up.
    pub(crate) waited: Nanos,
}

struct Slot {
    generation: u64,
    /// Whether its request has not ended.
    is_open: bool,
    request: AdmittedRequest,
}

const FREE: AdmittedRequest =
    AdmittedRequest { permit: None, budget: RequestBudget::none(), runner: 0, ran: None, waited: Nanos::ZERO };

/// Slots for permits. It grows up to a limit and keeps its memory.
pub(crate) struct PermitTable {
    number: u64,
    slots: Vec<Slot>,
    free: Vec<u32>,
}

/// Table of the permit with this number.
pub(crate) fn table_of(id: u64) -> usize {
    (id >> INDEX_BITS) as usize % TABLES
}

impl AdmittedRequest {
    /// A thread takes the request up at `now`, by the process's clock. Returns how long it has
    /// waited for that; zero if a thread has run it before.
    pub(crate) fn start(&mut self, now: Time) -> Nanos {
        let Some(permit) = &mut self.permit else { return Nanos::ZERO };
        permit.resume();
        let now = permit.gate().time_at(now);
        let waited = permit.record_start(now);
        self.waited += waited;
        waited
    }
}

impl AdmittedRequest {
    /// Its thread leaves the request, which then occupies none.
    pub(crate) fn leave(&mut self) {
        self.runner = 0;
        if let Some(permit) = &mut self.permit {
            permit.suspend();
        }
    }
}

impl PermitTable {
    pub(crate) fn new(number: usize) -> Self {
        PermitTable { number: (number % TABLES) as u64, slots: Vec::new(), free: Vec::new() }
    }

    /// Asks the gate about a request, which thread `runner` runs if it is admitted. Returns its
    /// number, and its budget for queues.
    ///
    /// # Errors
    ///
    /// The table is full, or the gate rejects the request.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        gate: &Gate,
        now: Time,
        arriving: &RequestInfo,
        runner: u64,
    ) -> Result<Result<(u64, Budget), Rejection>, Failure> {
        let index = match self.free.last() {
            Some(index) => *index,
            None => self.add_slot().ok_or(Failure::Limit)?,
        };
        let slot = &mut self.slots[index as usize];
        let decided = match &mut slot.request.permit {
            Some(permit) => permit.readmit_at(now, arriving),
            unused => gate.admit_at(now, arriving).map(|permit| *unused = Some(permit)),
        };
        if let Err(rejection) = decided {
            return Ok(Err(rejection));
        }
        self.free.pop();
        slot.generation = if slot.generation == GENERATION_MAX { 1 } else { slot.generation + 1 };
        slot.is_open = true;
        let mut budget = Budget::UNLIMITED;
        if let Some(permit) = &mut slot.request.permit {
            if runner == 0 {
                permit.record_wait(now);
            }
            budget = permit.budget();
        }
        slot.request.budget = RequestBudget::of(budget);
        (slot.request.runner, slot.request.ran, slot.request.waited) = (runner, None, Nanos::ZERO);
        let id = slot.generation << (INDEX_BITS + TABLE_BITS) | self.number << INDEX_BITS | u64::from(index);
        Ok(Ok((id, budget)))
    }

    /// Adds a free slot; `None`: the table is full.
    #[cold]
    fn add_slot(&mut self) -> Option<u32> {
        if self.slots.len() == SLOTS_MAX {
            return None;
        }
        let index = self.slots.len() as u32;
        self.slots.push(Slot { generation: 0, is_open: false, request: FREE });
        // Ending a request must not allocate.
        self.free.reserve(self.slots.capacity() - self.free.len());
        self.free.push(index);
        Some(index)
    }

    /// The request with this number, until it ends.
    pub(crate) fn get(&mut self, id: u64) -> Option<&mut AdmittedRequest> {
        self.slot(id).map(|slot| &mut slot.request)
    }

    /// Ends the request with this number by `end`; the number then names nothing.
    #[inline]
    pub(crate) fn remove(&mut self, id: u64, end: impl FnOnce(&mut Permit)) {
        let Some(slot) = self.slot(id) else { return };
        slot.is_open = false;
        let index = id % SLOTS_MAX as u64;
        // Before the end, which may panic: what it leaves open ends when the slot is used again.
        self.free.push(index as u32);
        if let Some(permit) = &mut self.slots[index as usize].request.permit {
            end(permit);
        }
    }

    /// Number of requests.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn slot(&mut self, id: u64) -> Option<&mut Slot> {
        let slot = self.slots.get_mut((id % SLOTS_MAX as u64) as usize)?;
        let is_named = slot.generation == id >> (INDEX_BITS + TABLE_BITS) && table_of(id) as u64 == self.number;
        (is_named && slot.is_open).then_some(slot)
    }

    /// Forgets the gate, of which no request may be open.
    pub(crate) fn forget_gate(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.request.permit = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_gate::Outcome;
    use proptest::prelude::*;
    use std::collections::HashSet;
    use std::time::Duration;

    fn admit(table: &mut PermitTable, gate: &Gate) -> u64 {
        table.admit(gate, gate.now(), &RequestInfo::default(), 1).unwrap().expect("an idle gate admits").0
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Requests begin and end in any order: each number is valid once, and others never are.
        #[test]
        fn a_number_names_one_request_until_it_ends(steps in prop::collection::vec((any::<bool>(), any::<u16>()), 0..80), odd: u64) {
            let gate = Gate::builder(Duration::from_secs(1)).decisions(16).build().unwrap();
            let (mut table, mut live, mut ended) = (PermitTable::new(5), Vec::new(), HashSet::new());
            for (begins, choice) in steps {
                if begins || live.is_empty() {
                    let id = admit(&mut table, &gate);
                    prop_assert!(id != 0 && table_of(id) == 5 && !ended.contains(&id) && !live.contains(&id));
                    live.push(id);
                } else {
                    let id = live.swap_remove(usize::from(choice) % live.len());
                    table.remove(id, |permit| permit.end_at(Time::ZERO, Outcome::Completed));
                    ended.insert(id);
                }
                prop_assert!(live.iter().all(|id| table.get(*id).is_some()));
                prop_assert!(ended.iter().all(|id| table.get(*id).is_none()));
                prop_assert_eq!((table.len(), gate.counts().in_flight()), (live.len(), live.len() as u64));
            }
            prop_assert!(live.contains(&odd) || table.get(odd).is_none());
        }
    }

    #[test]
    fn a_panic_in_an_end_leaves_its_slot_free() {
        let gate = Gate::builder(Duration::from_secs(1)).decisions(16).build().unwrap();
        let mut table = PermitTable::new(1);
        let id = admit(&mut table, &gate);
        let ends = std::panic::AssertUnwindSafe(|| table.remove(id, |_| panic!("as planted")));
        assert!(std::panic::catch_unwind(ends).is_err());
        assert!(table.len() == 0 && table.get(id).is_none());
        let next = admit(&mut table, &gate);
        assert!(next != id && table.len() == 1);
        assert_eq!((gate.counts().abandoned, gate.counts().in_flight()), (1, 1));
    }

    #[test]
    fn a_number_of_another_table_names_nothing() {
        let gate = Gate::builder(Duration::from_secs(1)).decisions(16).build().unwrap();
        let (mut one, mut other) = (PermitTable::new(1), PermitTable::new(2));
        let id = admit(&mut one, &gate);
        let _ = admit(&mut other, &gate);
        assert!(other.get(id).is_none() && one.get(id).is_some());
    }
}
