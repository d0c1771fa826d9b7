//! Division of the admitted work: equal shares for all tenants, and the unused rest of a share for
//! the others (max-min). Within a tenant the most important requests come first. Does not contain
//! the total amount.

use super::table::{LEVELS, Level, LevelBounds, TenantTable};

/// Averaged demand of each slot of the table, by priority.
pub(super) struct Shares {
    slots: Vec<SlotDemand>,
    /// Demand of each slot, all priorities together.
    totals: Vec<f64>,
    /// Demands in order, while shares are divided.
    sorted: Vec<f64>,
    level: f64,
}

struct SlotDemand {
    /// Counters at the last tick.
    last_counts: [u64; LEVELS],
    /// Cost per nanosecond, averaged.
    rate: [f64; LEVELS],
    /// Whether the slot has a level.
    limited: bool,
}

/// Part of a share that remains when a delay above the target nears lateness: cores catch up, and
/// the most important requests are still admitted. Tuned on `edge-classes`: from 0.5 to 0.75 the
/// highest of three classes loses 0.1 to 0.2 % at twice the capacity.
const STRICT_SHARE: f64 = 0.65;

/// Demand (cost per nanosecond) below which a tenant gives its slot back.
const MIN_DEMAND: f64 = 1e-11;

impl Shares {
    pub(super) fn new(slots: usize) -> Self {
        let demand = || SlotDemand { last_counts: [0; LEVELS], rate: [0.0; LEVELS], limited: false };
        let totals = vec![0.0; slots];
        Shares {
            slots: (0..slots).map(|_| demand()).collect(),
            totals,
            sorted: Vec::with_capacity(slots),
            level: 128.0,
        }
    }

    /// Adds the arrivals of `elapsed_ns` nanoseconds to the averages. Returns the total demand.
    pub(super) fn record(&mut self, table: &TenantTable, elapsed_ns: f64, weight: f64) -> f64 {
        let mut all = 0.0;
        for (index, total) in self.totals.iter_mut().enumerate() {
            if *total == 0.0 && !table.is_taken(index) {
                continue;
            }
            let (slot, demand) = (table.slot(index), &mut self.slots[index]);
            *total = 0.0;
            for (level, rate) in demand.rate.iter_mut().enumerate() {
                let count = slot.count(level);
                let arrived = count.wrapping_sub(demand.last_counts[level]) as f64;
                demand.last_counts[level] = count;
                *rate += weight * (arrived / elapsed_ns - *rate);
                *total += *rate;
            }
            if *total < MIN_DEMAND {
                (demand.rate, demand.limited, *total) = ([0.0; LEVELS], false, 0.0);
                table.release(index);
            }
            all += *total;
        }
        all
    }

    /// Sets the levels so that `allowed` is admitted per nanosecond.
    pub(super) fn divide(&mut self, table: &TenantTable, allowed: f64) {
        let share = self.water_level(allowed);
        let is_alone = self.totals.iter().filter(|total| **total > 0.0).count() <= 1;
        let mut lowest = Level::OPEN;
        for (index, total) in self.totals.iter().enumerate() {
            if *total == 0.0 {
                continue;
            }
            let demand = &mut self.slots[index];
            let limited = *total > share;
            if !limited && !demand.limited {
                continue;
            }
            demand.limited = limited;
            if !limited {
                table.slot(index).set(LevelBounds::OPEN);
                continue;
            }
            let (level, strict_level) = (level_of(&demand.rate, share), level_of(&demand.rate, share * STRICT_SHARE));
            lowest = lowest.min(level);
            // A limited tenant beside other tenants is over its share.
            table.slot(index).set(LevelBounds { level, strict: strict_level, is_share: !is_alone });
        }
        self.level = lowest.to_f64();
    }

    /// The share `f` for which `Σ min(demand, f) = allowed`.
    fn water_level(&mut self, allowed: f64) -> f64 {
        if !allowed.is_finite() {
            return f64::INFINITY;
        }
        self.sorted.clear();
        self.sorted.extend(self.totals.iter().copied().filter(|total| *total > 0.0));
        self.sorted.sort_unstable_by(f64::total_cmp);
        let mut left = allowed.max(0.0);
        let count = self.sorted.len();
        for (index, total) in self.sorted.iter().enumerate() {
            let even = left / (count - index) as f64;
            if *total > even {
                return even;
            }
            left -= total;
        }
        f64::INFINITY
    }

    /// The lowest level of any tenant, 1..=128.
    pub(super) fn level(&self) -> f64 {
        self.level
    }
}

/// Returns the level that admits `share` of these rates; the rate on the border is admitted in
/// part.
fn level_of(rates: &[f64; LEVELS], share: f64) -> Level {
    let mut left = share;
    for (index, rate) in rates.iter().enumerate() {
        if *rate > left {
            return Level::new(index, left / rate);
        }
        left -= rate;
    }
    Level::OPEN
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use leeward_core::units::{Cost, Priority, Tenant};

    /// Creates tenants with these demands; returns their admitted requests at `allowed`.
    fn divided(demands: &[u64], allowed: f64) -> Vec<f64> {
        let table = TenantTable::new(64);
        let mut shares = Shares::new(table.slots());
        for (tenant, demand) in demands.iter().enumerate() {
            for count in 0..*demand {
                let priority = Priority::new((count % 128 + 1) as u8);
                let _ = table.record(Tenant(tenant as u32), priority, Cost(1));
            }
        }
        let _ = shares.record(&table, 1.0, 1.0);
        shares.divide(&table, allowed);
        (0..demands.len())
            .map(|tenant| {
                let slot = table.find(Tenant(tenant as u32));
                let count = (0..demands[tenant])
                    .filter(|count| slot.admits(Priority::new((count % 128 + 1) as u8), u64::MAX / 2, 1.0))
                    .count();
                count as f64
            })
            .collect()
    }

    #[test]
    fn shares_are_max_min_fair() {
        assert_eq!(divided(&[1_280, 1_280], 1_280.0), [640.0, 640.0]);
        assert_eq!(divided(&[128, 1_280, 1_280], 1_408.0), [128.0, 640.0, 640.0]);
        assert_eq!(divided(&[128, 1_280], 1e9), [128.0, 1_280.0]);
        assert_eq!(divided(&[1_280], 0.0), [0.0]);
    }

    #[test]
    fn the_level_admits_the_most_important_requests() {
        let mut rates = [0.0; LEVELS];
        (rates[0], rates[16], rates[127]) = (2.0, 4.0, 8.0);
        assert_eq!(level_of(&rates, 3.0), Level::new(16, 0.25));
        assert_eq!(level_of(&rates, 14.0), Level::OPEN);
    }
}
