//! Admitted and rejected work by tenant: the greatest tenants by name, all others together. Does
//! not contain shares or their enforcement.

use leeward_core::units::{Nanos, Tenant};
use serde::Serialize;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of tenants with series of their own. All others are `other`.
pub const TENANTS_MAX: usize = 20;

/// Charges that a core collects before it adds them to the shared table; otherwise cores would
/// contend for the table at each request.
const PENDING_MAX: u32 = 64;
/// Number of distinct tenants among these charges at which the core adds them at once.
const PENDING_TENANTS_MAX: usize = 16;

/// Number of further tenants that are tracked, because they may become one of the greatest.
const CANDIDATES: usize = 2 * TENANTS_MAX;

/// Usage by tenant, with series of their own for the greatest tenants.
///
/// Space-saving (Metwally et al., ICDT 2005) finds the greatest tenants among those without a
/// series: a new candidate replaces the smallest one. A candidate takes over a series when its
/// certain work exceeds the smallest tenant's with a series. Its earlier work stays with `other`,
/// and the series of the replaced tenant ends. So each piece of work is in exactly one series.
#[derive(Debug)]
pub struct Tenants {
    /// One stripe per core or shard, so that its lock is almost never contended.
    stripes: Box<[Stripe]>,
    totals: Mutex<TenantTotals>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(Mutex<PendingCharges>);

/// Charges that are not yet in the shared table.
#[derive(Debug, Default)]
struct PendingCharges {
    entries: Vec<Entry>,
    charges: u32,
}

#[derive(Debug, Default)]
struct TenantTotals {
    /// Tenants with series of their own.
    entries: Vec<Entry>,
    candidates: Vec<Candidate>,
    others: Usage,
}

/// Tenant without a series of its own.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    tenant: Tenant,
    /// The algorithm's estimate; `inherited` of it is the weight of the replaced candidate.
    weight: u64,
    inherited: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    tenant: Tenant,
    /// Work of the tenant since it is tracked.
    weight: u64,
    account: Usage,
}

/// Work of admitted and of rejected requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Estimated time of admitted requests.
    pub admitted_ns: u64,
    /// Estimated time of rejected requests.
    pub refused_ns: u64,
}

impl Usage {
    fn add(&mut self, span: Nanos, is_admitted: bool) {
        let side = if is_admitted { &mut self.admitted_ns } else { &mut self.refused_ns };
        *side = side.wrapping_add(span.0);
    }

    fn merge(&mut self, other: Usage) {
        self.admitted_ns = self.admitted_ns.wrapping_add(other.admitted_ns);
        self.refused_ns = self.refused_ns.wrapping_add(other.refused_ns);
    }
}

/// Adds to the entry of a tenant; returns false if the tenant has none.
fn try_add(entries: &mut [Entry], more: &Entry) -> bool {
    let Some(entry) = entries.iter_mut().find(|entry| entry.tenant == more.tenant) else { return false };
    entry.weight = entry.weight.saturating_add(more.weight);
    entry.account.merge(more.account);
    true
}

impl PendingCharges {
    fn flush(&mut self, to: &Mutex<TenantTotals>) {
        self.charges = 0;
        if self.entries.is_empty() {
            return;
        }
        let mut totals = lock(to);
        self.entries.drain(..).for_each(|entry| totals.charge(entry));
    }
}

impl TenantTotals {
    fn charge(&mut self, entry: Entry) {
        if try_add(&mut self.entries, &entry) {
            return;
        }
        if self.entries.len() < TENANTS_MAX {
            return self.entries.push(entry);
        }
        self.others.merge(entry.account);
        let surely = self.track(&entry);
        let Some(least) = self.entries.iter_mut().min_by_key(|entry| entry.weight) else { return };
        if surely > least.weight {
            *least = Entry { tenant: entry.tenant, weight: surely, account: Usage::default() };
            self.candidates.retain(|candidate| candidate.tenant != entry.tenant);
        }
    }

    /// Tracks a tenant without a series; returns the work that it has certainly caused.
    fn track(&mut self, entry: &Entry) -> u64 {
        let candidates = &mut self.candidates;
        if let Some(known) = candidates.iter_mut().find(|candidate| candidate.tenant == entry.tenant) {
            known.weight = known.weight.saturating_add(entry.weight);
            return known.weight.saturating_sub(known.inherited);
        }
        let new_candidate = |inherited: u64| Candidate {
            tenant: entry.tenant,
            weight: entry.weight.saturating_add(inherited),
            inherited,
        };
        if candidates.len() < CANDIDATES {
            candidates.push(new_candidate(0));
        } else if let Some(least) = candidates.iter_mut().min_by_key(|candidate| candidate.weight) {
            *least = new_candidate(least.weight);
        }
        entry.weight
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tenants {
    /// Makes an empty table for this many cores.
    pub fn new(cores: usize) -> Self {
        Tenants { stripes: (0..cores.max(1)).map(|_| Stripe::default()).collect(), totals: Mutex::default() }
    }

    /// Charges a request of about this cost to its tenant, on a core.
    ///
    /// [`Tenant::DEFAULT`] is not charged, so a server without tenants pays nothing.
    pub fn charge(&self, core: usize, tenant: Tenant, cost: Nanos, is_admitted: bool) {
        if tenant == Tenant::DEFAULT {
            return;
        }
        // Count requests while no cost is known.
        let mut entry = Entry { tenant, weight: cost.0.max(1), account: Usage::default() };
        entry.account.add(cost, is_admitted);
        let mut pending = lock(&self.stripes[core % self.stripes.len()].0);
        pending.charges += 1;
        if !try_add(&mut pending.entries, &entry) {
            pending.entries.push(entry);
        }
        if pending.charges >= PENDING_MAX || pending.entries.len() >= PENDING_TENANTS_MAX {
            pending.flush(&self.totals);
        }
    }

    /// Usage by tenant, the greatest tenant first. The last entry (`None`) is that of all others,
    /// if there were any.
    pub fn usage(&self) -> Vec<(Option<Tenant>, Usage)> {
        self.stripes.iter().for_each(|stripe| lock(&stripe.0).flush(&self.totals));
        let table = lock(&self.totals);
        let mut entries = table.entries.clone();
        let others = table.others;
        drop(table);
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.weight));
        let has_others = others != Usage::default();
        let known = entries.into_iter().map(|entry| (Some(entry.tenant), entry.account));
        known.chain(has_others.then_some((None, others))).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn numbers(tenants: &Tenants) -> Vec<Option<u32>> {
        tenants.usage().iter().map(|(tenant, _)| tenant.map(|tenant| tenant.0)).collect()
    }

    #[test]
    fn the_heaviest_tenants_are_kept_among_many_others() {
        let tenants = Tenants::new(2);
        let mut charged = 0;
        for round in 0..10_000_u32 {
            for (tenant, cost) in [(1, 900), (2, 300), (100 + round, 10)] {
                tenants.charge(round as usize, Tenant(tenant), Nanos(cost), round % 3 > 0);
                charged += cost;
            }
        }
        let usage = tenants.usage();
        assert_eq!(usage.len(), TENANTS_MAX + 1);
        let names = numbers(&tenants);
        assert_eq!((names[0], names[1], names[TENANTS_MAX]), (Some(1), Some(2), None));
        assert!(names[2..TENANTS_MAX].iter().all(|name| name.is_some_and(|name| name < 200)), "new series: {names:?}");
        let first = usage[0].1;
        assert_eq!((first.admitted_ns + first.refused_ns, first.refused_ns), (9_000_000, 900 * 3_334));
        let sum: u64 = usage.iter().map(|(_, account)| account.admitted_ns + account.refused_ns).sum();
        assert_eq!(sum, charged, "work is in one account, and in one only");
    }

    #[test]
    fn a_late_heavy_tenant_gets_a_slot_and_starts_at_zero() {
        let tenants = Tenants::new(1);
        (0..TENANTS_MAX as u32).for_each(|tenant| tenants.charge(0, Tenant(100 + tenant), Nanos(10), true));
        tenants.usage();
        let mut others = 0;
        for _ in 0..5 {
            tenants.charge(0, Tenant(7), Nanos(1_000), true);
            let usage = tenants.usage();
            let now = usage.iter().find(|(tenant, _)| tenant.is_none()).map_or(0, |(_, account)| account.admitted_ns);
            assert!(now >= others, "the others' sum went back");
            others = now;
        }
        let usage = tenants.usage();
        assert_eq!(usage[0], (Some(Tenant(7)), Usage { admitted_ns: 4_000, refused_ns: 0 }));
        assert_eq!(others, 1_000, "before it had a name");
        assert_eq!(usage.len(), TENANTS_MAX + 1);
    }

    #[test]
    fn requests_without_a_tenant_have_no_account() {
        let tenants = Tenants::new(1);
        tenants.charge(0, Tenant::DEFAULT, Nanos(5), true);
        assert!(tenants.usage().is_empty());
    }

    #[test]
    fn concurrent_charges_are_all_counted() {
        let tenants = Tenants::new(2);
        let sum = |tenants: &Tenants| tenants.usage().iter().map(|(_, account)| account.admitted_ns).sum::<u64>();
        std::thread::scope(|scope| {
            for core in 0..4 {
                let tenants = &tenants;
                scope.spawn(move || {
                    (0..10_000).for_each(|of| tenants.charge(core, Tenant(1 + of % 20), Nanos(3), true))
                });
            }
            let mut before = 0;
            for _ in 0..100 {
                let now = sum(&tenants);
                assert!(now >= before, "a sum went back");
                before = now;
            }
        });
        assert_eq!(sum(&tenants), 4 * 10_000 * 3);
    }
}
