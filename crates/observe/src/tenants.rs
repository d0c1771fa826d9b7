//! Work that was admitted and refused by tenant: the greatest tenants under their own names, all others together. Never here: shares,
//! and who enforces them.

use leeward_control::units::{Nanos, Tenant};
use serde::Serialize;
use std::sync::{Mutex, PoisonError};

/// Tenants that are told apart at a time. All others are `other`.
pub const TENANTS: usize = 20;

/// Accounts of tenants: space-saving (Metwally et al., ICDT 2005), whose newcomers take the place of the smallest. A tenant that loses its
/// place leaves its account to the others, so that no sum goes back.
#[derive(Debug, Default)]
pub struct Tenants(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    entries: Vec<Entry>,
    others: Account,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    tenant: Tenant,
    /// The algorithm's estimate, which takes over that of whoever was here before.
    weight: u64,
    account: Account,
}

/// Work by what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Account {
    /// Estimated time of requests that were admitted.
    pub admitted_ns: u64,
    /// Estimated time of requests that were refused.
    pub refused_ns: u64,
}

impl Account {
    fn add(&mut self, span: Nanos, is_admitted: bool) {
        let side = if is_admitted { &mut self.admitted_ns } else { &mut self.refused_ns };
        *side = side.wrapping_add(span.0);
    }
}

impl Tenants {
    /// Charges a request of about this cost to its tenant. [`Tenant::DEFAULT`] has no account: it costs a server without tenants nothing.
    pub fn charge(&self, tenant: Tenant, cost: Nanos, is_admitted: bool) {
        if tenant == Tenant::DEFAULT {
            return;
        }
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Where no cost is known, requests are counted.
        let more = cost.0.max(1);
        let Table { entries, others } = &mut *table;
        if let Some(entry) = entries.iter_mut().find(|entry| entry.tenant == tenant) {
            entry.weight = entry.weight.saturating_add(more);
            return entry.account.add(cost, is_admitted);
        }
        let mut entry = Entry { tenant, weight: more, account: Account::default() };
        entry.account.add(cost, is_admitted);
        if entries.len() < TENANTS {
            return entries.push(entry);
        }
        let Some(least) = entries.iter_mut().min_by_key(|entry| entry.weight) else { return };
        entry.weight = entry.weight.saturating_add(least.weight);
        others.admitted_ns = others.admitted_ns.wrapping_add(least.account.admitted_ns);
        others.refused_ns = others.refused_ns.wrapping_add(least.account.refused_ns);
        *least = entry;
    }

    /// Accounts so far, the greatest tenant first; in the end that of all `others` (`None`), if there were any.
    pub fn told(&self) -> Vec<(Option<Tenant>, Account)> {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entries = table.entries.clone();
        let others = table.others;
        drop(table);
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.weight));
        let has_others = others != Account::default();
        let known = entries.into_iter().map(|entry| (Some(entry.tenant), entry.account));
        known.chain(has_others.then_some((None, others))).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_keep_their_names_in_a_flood_of_others() {
        let tenants = Tenants::default();
        let mut charged = 0;
        for round in 0..10_000_u32 {
            for (tenant, cost) in [(1, 900), (2, 300), (100 + round, 10)] {
                tenants.charge(Tenant(tenant), Nanos(cost), round % 3 > 0);
                charged += cost;
            }
        }
        let told = tenants.told();
        assert_eq!(told.len(), TENANTS + 1);
        let names: Vec<_> = told.iter().map(|(tenant, _)| tenant.map(|tenant| tenant.0)).collect();
        assert_eq!((names[0], names[1], names[TENANTS]), (Some(1), Some(2), None));
        let first = told[0].1;
        assert_eq!((first.admitted_ns + first.refused_ns, first.refused_ns), (9_000_000, 900 * 3_334));
        let sum: u64 = told.iter().map(|(_, account)| account.admitted_ns + account.refused_ns).sum();
        assert_eq!(sum, charged, "work is in one account, and in one only");
    }

    #[test]
    fn whoever_names_no_tenant_has_no_account() {
        let tenants = Tenants::default();
        tenants.charge(Tenant::DEFAULT, Nanos(5), true);
        assert!(tenants.told().is_empty());
    }
}
