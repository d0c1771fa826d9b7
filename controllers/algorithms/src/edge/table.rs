//! Demand by tenant and priority, counted by cores and read by the slow half, and the levels that
//! the slow half sets. The table has a fixed size. A tenant takes a slot while it sends, and shares
//! one if none of its probed slots is free. Does not contain the choice of levels.

use leeward_core::server::RejectReason;
use leeward_core::sync::{AtomicU64, Ordering};
use leeward_core::units::{Cost, Priority, Tenant};

/// Number of priorities.
pub(super) const LEVELS: usize = Priority::LOWEST.level() as usize;
/// Slots that a tenant probes.
const PROBES: usize = 8;
/// Value of a free slot's tenant. Tenants are stored as their number plus one.
const FREE: u64 = 0;

pub(super) struct TenantTable {
    /// Tenants of the slots, contiguous: the slow half reads all of them each period.
    tenants: Vec<AtomicU64>,
    slots: Vec<TenantSlot>,
    /// Number of leading slots with one tenant each; the others are shared.
    exclusive: usize,
}

pub(super) struct TenantSlot {
    /// Cost that has arrived, by priority.
    arrivals: [AtomicU64; LEVELS],
    /// [`LevelBounds`] in bits.
    bounds: AtomicU64,
}

impl TenantTable {
    pub(super) fn new(tenants: usize) -> Self {
        let own = tenants.max(1);
        // Enough slots that a flood of made-up tenants rarely shares one with a real tenant.
        let shared = (own / 4).max(1);
        TenantTable::with_slots(own, shared)
    }

    fn with_slots(own: usize, shared: usize) -> Self {
        let tenants = (0..own + shared).map(|_| AtomicU64::new(FREE)).collect();
        TenantTable { tenants, slots: (0..own + shared).map(|_| TenantSlot::new()).collect(), exclusive: own }
    }

    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn slot(&self, index: usize) -> &TenantSlot {
        &self.slots[index]
    }

    pub(super) fn is_taken(&self, index: usize) -> bool {
        self.tenants[index].load(Ordering::Relaxed) != FREE
    }

    /// Frees a slot. A core that counts at this moment counts for the next tenant: one request too
    /// many.
    pub(super) fn release(&self, index: usize) {
        self.slots[index].bounds.store(LevelBounds::OPEN.to_bits(), Ordering::Relaxed);
        self.tenants[index].store(FREE, Ordering::Relaxed);
    }

    /// Counts a request of `tenant`; returns the tenant's slot.
    pub(super) fn record(&self, tenant: Tenant, priority: Priority, cost: Cost) -> &TenantSlot {
        let slot = self.find(tenant);
        slot.arrivals[index_of(priority)].fetch_add(cost.0.max(1).into(), Ordering::Relaxed);
        slot
    }

    /// Returns the tenant's slot, and takes one if it has none.
    pub(super) fn find(&self, tenant: Tenant) -> &TenantSlot {
        let name = u64::from(tenant.0) + 1;
        // Fibonacci hashing: neighbouring numbers fall far apart.
        let hash = name.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let probes = || (0..PROBES.min(self.exclusive)).map(|step| (hash as usize + step) % self.exclusive);
        if let Some(index) = probes().find(|index| self.tenants[*index].load(Ordering::Relaxed) == name) {
            return &self.slots[index];
        }
        // Another core may take a slot meanwhile, perhaps for the same tenant.
        let taken = probes().find(|index| match self.tenants[*index].load(Ordering::Relaxed) {
            FREE => match self.tenants[*index].compare_exchange(FREE, name, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => true,
                Err(other) => other == name,
            },
            other => other == name,
        });
        let index = taken.unwrap_or_else(|| {
            let index = self.exclusive + hash as usize % (self.slots.len() - self.exclusive);
            self.tenants[index].store(u64::MAX, Ordering::Relaxed);
            index
        });
        &self.slots[index]
    }
}

impl TenantSlot {
    fn new() -> Self {
        TenantSlot {
            arrivals: std::array::from_fn(|_| AtomicU64::new(0)),
            bounds: AtomicU64::new(LevelBounds::OPEN.to_bits()),
        }
    }

    pub(super) fn count(&self, level: usize) -> u64 {
        self.arrivals[level].load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, bounds: LevelBounds) {
        self.bounds.store(bounds.to_bits(), Ordering::Relaxed);
    }

    /// Whether a request of this priority is admitted: at an `ease` of 1 by the level, at 0 by the
    /// strict level. `random` decides for the priority on the border.
    pub(super) fn admits(&self, priority: Priority, random: u64, ease: f64) -> bool {
        let bounds = LevelBounds::from_bits(self.bounds.load(Ordering::Relaxed));
        let border = bounds.interpolate(ease);
        let (whole, part) = (border >> PART_BITS, border & (PART - 1));
        let index = index_of(priority) as u32;
        index < whole || (index == whole && (random >> (64 - PART_BITS)) < u64::from(part))
    }

    /// Reason of this slot's rejections.
    pub(super) fn reason(&self) -> RejectReason {
        let bounds = LevelBounds::from_bits(self.bounds.load(Ordering::Relaxed));
        if bounds.is_share { RejectReason::Share } else { RejectReason::Priority }
    }
}

fn index_of(priority: Priority) -> usize {
    usize::from(priority.level() - 1)
}

/// Border between admitted and rejected priorities: those before it whole, the next in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Level(u32);

/// Bits of a level's part, and the number of parts.
const PART_BITS: u32 = 23;
const PART: u32 = 1 << PART_BITS;

impl Level {
    /// Admits everything.
    pub(super) const OPEN: Level = Level((LEVELS as u32) << PART_BITS);

    /// Admits the first `whole` priorities, and `part` of the next.
    pub(super) fn new(whole: usize, part: f64) -> Self {
        let part = (part.clamp(0.0, 1.0) * f64::from(PART - 1)) as u32;
        Level(((whole.min(LEVELS) as u32) << PART_BITS | part).min(Level::OPEN.0))
    }

    /// Returns the level as a priority with a fraction, 1..=128.
    pub(super) fn to_f64(self) -> f64 {
        (f64::from(self.0) / f64::from(PART)).clamp(1.0, LEVELS as f64)
    }
}

/// Levels of a slot: at the target delay, and where requests are about to be late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LevelBounds {
    pub(super) level: Level,
    /// Not above `level`.
    pub(super) strict: Level,
    /// Whether rejections are for exceeding a tenant's share.
    pub(super) is_share: bool,
}

impl LevelBounds {
    /// Admits everything.
    pub(super) const OPEN: LevelBounds = LevelBounds { level: Level::OPEN, strict: Level::OPEN, is_share: false };
    const SHARE: u64 = 1 << 63;

    const fn to_bits(self) -> u64 {
        let share = if self.is_share { LevelBounds::SHARE } else { 0 };
        share | (self.level.0 as u64) << 32 | self.strict.0 as u64
    }

    fn from_bits(bits: u64) -> Self {
        let level = Level((bits >> 32) as u32 & !(1 << 31));
        LevelBounds { level, strict: Level(bits as u32), is_share: bits & LevelBounds::SHARE != 0 }
    }

    /// Returns the border at an `ease`, in a level's bits.
    fn interpolate(self, ease: f64) -> u32 {
        if ease >= 1.0 || self.strict >= self.level {
            return self.level.0;
        }
        self.strict.0 + (f64::from(self.level.0 - self.strict.0) * ease) as u32
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn tenants_share_slots_when_the_table_is_full() {
        let table = TenantTable::new(8);
        for tenant in 0..10_000 {
            let _ = table.record(Tenant(tenant), Priority::new(5), Cost(1));
        }
        let counted: u64 = (0..table.slots()).map(|index| table.slot(index).count(4)).sum();
        assert_eq!(counted, 10_000);
    }

    #[test]
    fn a_tenant_keeps_its_slot() {
        let table = TenantTable::new(64);
        let slot: *const TenantSlot = table.find(Tenant(7));
        for tenant in 100..1_000 {
            let _ = table.find(Tenant(tenant));
        }
        assert!(std::ptr::eq(slot, table.find(Tenant(7))));
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use leeward_core::sync::Arc;
    use loom::thread;

    /// Two cores record a new tenant at once: both count in one slot.
    #[test]
    fn a_new_tenant_gets_one_slot_under_concurrent_records() {
        loom::model(|| {
            let table = Arc::new(TenantTable::with_slots(1, 1));
            let other = Arc::clone(&table);
            let thread = thread::spawn(move || {
                let _ = other.record(Tenant(3), Priority::new(1), Cost(2));
            });
            let _ = table.record(Tenant(3), Priority::new(1), Cost(2));
            thread.join().unwrap();
            assert_eq!(table.slot(0).count(0), 4);
        });
    }
}
