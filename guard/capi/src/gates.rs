//! Gates in a table of fixed size. A gate's address is one of the table's, so an address of a freed
//! gate, or any other, is recognised. Does not contain decisions.

use crate::fork;
use crate::slots::{PermitTable, TABLES};
use crate::status::Failure;
use leeward_admin::Admin;
use leeward_gate::Gate;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Largest number of gates of a process at a time.
const GATES: usize = 64;

/// How often a place is used anew by child processes, each of which finds its ancestors' gates.
const LIVES: usize = 16;

/// No gate.
const FREE: u32 = 0;
/// A thread makes or frees the gate.
const CHANGING: u32 = 1;
/// The gate is usable.
const OPEN: u32 = 2;

static TABLE: [GateSlot; GATES] = [const { GateSlot::new() }; GATES];

/// A place for a gate. Its memory is never freed.
pub(crate) struct GateSlot {
    state: AtomicU32,
    /// Process that made the gate ([`fork::generation`]).
    process: AtomicU32,
    /// That of this process, and those of ancestors: threads of theirs may have held any lock.
    bodies: [OnceLock<Box<Body>>; LIVES],
    /// Number of the body in use.
    life: AtomicUsize,
}

/// What locks protect in a place.
struct Body {
    shards: Box<[GateShard]>,
    admin: Mutex<Option<Admin>>,
}

/// A part of a gate's permits, in cache lines of its own.
#[repr(align(128))]
pub(crate) struct GateShard(Mutex<ShardState>);

/// The gate, and permits that threads of this shard were given.
pub(crate) struct ShardState {
    /// `None` after the gate was freed.
    pub(crate) gate: Option<Gate>,
    pub(crate) permits: PermitTable,
}

impl GateSlot {
    const fn new() -> Self {
        GateSlot {
            state: AtomicU32::new(FREE),
            process: AtomicU32::new(0),
            bodies: [const { OnceLock::new() }; LIVES],
            life: AtomicUsize::new(0),
        }
    }

    /// Puts a gate into a free place, or else into one with a gate of an ancestor, which this
    /// process can't use; returns the place.
    pub(crate) fn open(gate: &Gate) -> Result<&'static GateSlot, Failure> {
        GateSlot::open_in(gate, fork::generation())
    }

    fn open_in(gate: &Gate, process: u32) -> Result<&'static GateSlot, Failure> {
        let is_claimed = |slot: &GateSlot, from| {
            slot.state.compare_exchange(from, CHANGING, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let is_free = |slot: &&GateSlot| is_claimed(slot, FREE);
        // One that an ancestor's thread was changing stays so.
        let is_foreign = |slot: &&GateSlot| {
            slot.is_foreign(process) && slot.life.load(Ordering::Relaxed) + 1 < LIVES && is_claimed(slot, OPEN)
        };
        let slot = TABLE.iter().find(is_free).or_else(|| TABLE.iter().find(is_foreign)).ok_or(Failure::Limit)?;
        let mut life = slot.life.load(Ordering::Relaxed);
        if slot.is_foreign(process) && slot.bodies[life].get().is_some() && life + 1 < LIVES {
            life += 1;
            slot.life.store(life, Ordering::Relaxed);
        }
        let shard = |number| GateShard(Mutex::new(ShardState { gate: None, permits: PermitTable::new(number) }));
        let body = || Box::new(Body { shards: (0..TABLES).map(shard).collect(), admin: Mutex::new(None) });
        for shard in &slot.bodies[life].get_or_init(body).shards {
            shard.lock().gate = Some(gate.clone());
        }
        slot.process.store(process, Ordering::Relaxed);
        slot.state.store(OPEN, Ordering::Release);
        Ok(slot)
    }

    /// Whether the place was used last by another process than this.
    fn is_foreign(&self, process: u32) -> bool {
        self.process.load(Ordering::Relaxed) != process
    }

    /// The place at this address, whatever it contains.
    #[inline]
    pub(crate) fn at(address: usize) -> Result<&'static GateSlot, Failure> {
        let offset = address.wrapping_sub(TABLE.as_ptr().addr());
        let slot = TABLE.get(offset / size_of::<GateSlot>()).ok_or(Failure::Argument)?;
        if offset.is_multiple_of(size_of::<GateSlot>()) { Ok(slot) } else { Err(Failure::Argument) }
    }

    /// The place with this number, counted from one.
    #[inline]
    pub(crate) fn numbered(number: u32) -> Result<&'static GateSlot, Failure> {
        TABLE.get((number as usize).wrapping_sub(1)).ok_or(Failure::State)
    }

    /// Number of the place, counted from one.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        let offset = std::ptr::from_ref(self).addr() - TABLE.as_ptr().addr();
        (offset / size_of::<GateSlot>()) as u32 + 1
    }

    /// Part `number` of an open gate of this process.
    #[inline]
    pub(crate) fn shard(&self, number: usize) -> Result<MutexGuard<'_, ShardState>, Failure> {
        Ok(self.open_body()?.shards[number % TABLES].lock())
    }

    #[inline]
    fn open_body(&self) -> Result<&Body, Failure> {
        if self.state.load(Ordering::Acquire) != OPEN {
            return Err(Failure::Closed);
        }
        if self.is_foreign(fork::generation()) {
            return Err(Failure::Forked);
        }
        let body = self.bodies.get(self.life.load(Ordering::Relaxed)).and_then(OnceLock::get);
        body.map(|body| &**body).ok_or(Failure::Closed)
    }

    /// The gate.
    pub(crate) fn gate(&self) -> Result<Gate, Failure> {
        self.shard(0)?.gate.clone().ok_or(Failure::Closed)
    }

    /// The gate's admin port.
    pub(crate) fn admin(&self) -> Result<MutexGuard<'_, Option<Admin>>, Failure> {
        let admin = self.open_body()?.admin.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have freed the gate meanwhile; it ends the port under this lock.
        self.open_body()?;
        Ok(admin)
    }

    /// Frees the gate, unless a permit of it has not ended. Ends its admin port.
    pub(crate) fn free(&self) -> Result<(), Failure> {
        let body = self.open_body()?;
        let mut states: Vec<_> = body.shards.iter().map(GateShard::lock).collect();
        if states.iter().any(|state| state.permits.len() > 0) {
            return Err(Failure::Busy);
        }
        // Another thread may have freed it meanwhile.
        if self.state.compare_exchange(OPEN, CHANGING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Err(Failure::Closed);
        }
        states.iter_mut().for_each(|state| state.permits.forget_gate());
        let gates: Vec<_> = states.iter_mut().map(|state| state.gate.take()).collect();
        drop(states);
        let admin = body.admin.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop((admin, gates));
        self.state.store(FREE, Ordering::Release);
        Ok(())
    }
}

impl GateShard {
    fn lock(&self) -> MutexGuard<'_, ShardState> {
        // Consistent after every statement, so a panic in between does no harm.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_addresses_of_open_places_are_gates() {
        let gate = Gate::builder(Duration::from_millis(1)).decisions(16).build().unwrap();
        let slot = GateSlot::open(&gate).unwrap();
        let address = std::ptr::from_ref(slot).addr();
        assert!(std::ptr::eq(GateSlot::at(address).unwrap(), slot));
        assert!(std::ptr::eq(GateSlot::numbered(slot.number()).unwrap(), slot));
        for wrong in [0, 1, address + 1, address.wrapping_sub(1), usize::MAX, address + (1 << 40)] {
            assert_eq!(GateSlot::at(wrong).err(), Some(Failure::Argument), "{wrong:x}");
        }
        assert!(slot.gate().is_ok());
        assert_eq!(slot.free(), Ok(()));
        assert_eq!((slot.gate().err(), slot.free()), (Some(Failure::Closed), Err(Failure::Closed)));
        // A place is used again, and the table has an end.
        for _ in 0..3 {
            let mut open = Vec::new();
            let error = loop {
                match GateSlot::open(&gate) {
                    Ok(slot) => open.push(slot),
                    Err(error) => break error,
                }
            };
            assert_eq!(error, Failure::Limit);
            assert_eq!(open.len(), GATES);
            open.into_iter().for_each(|slot| slot.free().unwrap());
        }
        // Ancestors that never free theirs leave places for a child's, and stay recognised.
        for ancestor in 1..LIVES as u32 {
            let process = fork::generation().wrapping_sub(ancestor);
            let open: Vec<_> = (0..GATES).map(|_| GateSlot::open_in(&gate, process).unwrap()).collect();
            assert!(open.iter().all(|slot| slot.gate().err() == Some(Failure::Forked)));
            assert_eq!(GateSlot::open_in(&gate, process).err(), Some(Failure::Limit));
        }
    }
}
