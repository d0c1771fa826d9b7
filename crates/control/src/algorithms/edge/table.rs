//! Demand by tenant and priority, counted by cores and read by the slow half, and the levels that it answers with. The table
//! has a fixed size: a tenant takes a place while it sends, and shares one by chance if none is free where it looks.
//! Never here: what a level should be.

use crate::server::RejectReason;
use crate::sync::{AtomicU64, Ordering};
use crate::units::{Cost, Priority, Tenant};

/// Priorities that are told apart.
pub(super) const LEVELS: usize = Priority::LOWEST.level() as usize;
/// Places that a tenant looks at.
const LOOKS: usize = 8;
/// A place's tenant when it has none. Others are stored as their number plus one.
const FREE: u64 = 0;

pub(super) struct Table {
    /// Tenants of the places, side by side: the slow half looks at all of them each period.
    tenants: Vec<AtomicU64>,
    places: Vec<Place>,
    /// The first so many are taken by one tenant each; those behind are shared.
    own: usize,
}

pub(super) struct Place {
    /// Cost that has arrived, by priority.
    arrived: [AtomicU64; LEVELS],
    /// [`Level`] in bits, and whether it is a share.
    level: AtomicU64,
}

impl Table {
    pub(super) fn new(tenants: usize) -> Self {
        let own = tenants.max(1);
        // Enough that a flood of made-up tenants fills few of the places that a real one falls into.
        let shared = (own / 4).max(1);
        Table::of(own, shared)
    }

    fn of(own: usize, shared: usize) -> Self {
        let tenants = (0..own + shared).map(|_| AtomicU64::new(FREE)).collect();
        Table { tenants, places: (0..own + shared).map(|_| Place::new()).collect(), own }
    }

    pub(super) fn places(&self) -> usize {
        self.places.len()
    }

    pub(super) fn place(&self, index: usize) -> &Place {
        &self.places[index]
    }

    pub(super) fn is_taken(&self, index: usize) -> bool {
        self.tenants[index].load(Ordering::Relaxed) != FREE
    }

    /// Gives a place back. A core that counts at this moment counts for the next tenant: a request too many.
    pub(super) fn free(&self, index: usize) {
        self.places[index].level.store(Level::OPEN.0, Ordering::Relaxed);
        self.tenants[index].store(FREE, Ordering::Relaxed);
    }

    /// Counts a request of `tenant`; returns the tenant's place.
    pub(super) fn note(&self, tenant: Tenant, priority: Priority, cost: Cost) -> &Place {
        let place = self.find(tenant);
        place.arrived[index_of(priority)].fetch_add(cost.0.max(1).into(), Ordering::Relaxed);
        place
    }

    /// The tenant's place, taken if need be.
    pub(super) fn find(&self, tenant: Tenant) -> &Place {
        let name = u64::from(tenant.0) + 1;
        // Fibonacci hashing: neighbouring numbers fall far apart.
        let hash = name.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let looks = || (0..LOOKS.min(self.own)).map(|step| (hash as usize + step) % self.own);
        if let Some(index) = looks().find(|index| self.tenants[*index].load(Ordering::Relaxed) == name) {
            return &self.places[index];
        }
        // Another core may take a place meanwhile, for this very tenant perhaps.
        let taken = looks().find(|index| match self.tenants[*index].load(Ordering::Relaxed) {
            FREE => match self.tenants[*index].compare_exchange(FREE, name, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => true,
                Err(other) => other == name,
            },
            other => other == name,
        });
        let index = taken.unwrap_or_else(|| {
            let index = self.own + hash as usize % (self.places.len() - self.own);
            self.tenants[index].store(u64::MAX, Ordering::Relaxed);
            index
        });
        &self.places[index]
    }
}

impl Place {
    fn new() -> Self {
        Place { arrived: std::array::from_fn(|_| AtomicU64::new(0)), level: AtomicU64::new(Level::OPEN.0) }
    }

    pub(super) fn count(&self, level: usize) -> u64 {
        self.arrived[level].load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, level: Level, is_share: bool) {
        self.level.store(level.0 | if is_share { SHARE } else { 0 }, Ordering::Relaxed);
    }

    /// Whether the level lets a request of this priority in; `random` decides for those on the level itself.
    pub(super) fn admits(&self, priority: Priority, random: u64) -> bool {
        let bits = self.level.load(Ordering::Relaxed);
        let (whole, part) = (bits >> 32 & 0xff, bits & u64::from(u32::MAX));
        let index = index_of(priority) as u64;
        index < whole || (index == whole && random >> 32 < part)
    }

    /// Why this place's level refuses.
    pub(super) fn reason(&self) -> RejectReason {
        let is_share = self.level.load(Ordering::Relaxed) & SHARE != 0;
        if is_share { RejectReason::Share } else { RejectReason::Priority }
    }
}

fn index_of(priority: Priority) -> usize {
    usize::from(priority.level() - 1)
}

const SHARE: u64 = 1 << 63;

/// Border between the admitted and the refused: priorities before it whole, of the next a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Level(u64);

impl Level {
    /// Everything is admitted.
    pub(super) const OPEN: Level = Level((LEVELS as u64) << 32);

    /// The first `whole` priorities, and of the next this `part`.
    pub(super) fn new(whole: usize, part: f64) -> Self {
        let part = (part.clamp(0.0, 1.0) * f64::from(u32::MAX)) as u64;
        Level((whole.min(LEVELS) as u64) << 32 | part)
    }

    /// As a priority with a fraction, 1..=128.
    pub(super) fn as_number(self) -> f64 {
        (self.0 as f64 / 2f64.powi(32)).clamp(1.0, LEVELS as f64)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn more_tenants_than_places_share() {
        let table = Table::new(8);
        for tenant in 0..10_000 {
            let _ = table.note(Tenant(tenant), Priority::new(5), Cost(1));
        }
        let counted: u64 = (0..table.places()).map(|index| table.place(index).count(4)).sum();
        assert_eq!(counted, 10_000);
    }

    #[test]
    fn a_tenant_keeps_its_place_until_it_gives_it_back() {
        let table = Table::new(64);
        let place: *const Place = table.find(Tenant(7));
        for tenant in 100..1_000 {
            let _ = table.find(Tenant(tenant));
        }
        assert!(std::ptr::eq(place, table.find(Tenant(7))));
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::sync::Arc;
    use loom::thread;

    /// Two cores meet a new tenant at once: both count in one place.
    #[test]
    fn a_new_tenant_has_one_place() {
        loom::model(|| {
            let table = Arc::new(Table::of(1, 1));
            let other = Arc::clone(&table);
            let thread = thread::spawn(move || {
                let _ = other.note(Tenant(3), Priority::new(1), Cost(2));
            });
            let _ = table.note(Tenant(3), Priority::new(1), Cost(2));
            thread.join().unwrap();
            assert_eq!(table.place(0).count(0), 4);
        });
    }
}
