//! Division of what is admitted: equal shares for all tenants, the rest of a share that its tenant does not ask for
//! to the others (max-min), and inside a tenant the most important requests first. Never here: how much is admitted in all.

use super::table::{LEVELS, Level, LevelBounds, TenantTable};

/// Averaged demand of each place of the table, by priority.
pub(super) struct Shares {
    slots: Vec<SlotDemand>,
    /// Demand of each place, all priorities together.
    totals: Vec<f64>,
    /// Demands of the limited, while shares are divided.
    sorted: Vec<f64>,
    level: f64,
}

struct SlotDemand {
    /// Counters at the last tick.
    last_counts: [u64; LEVELS],
    /// Cost per nanosecond, averaged.
    rate: [f64; LEVELS],
    /// Whether the place has a level.
    limited: bool,
}

/// Part of a share that is left when a delay above the target nears what is late: cores catch up, and the most important stay
/// inside. Tuned on `edge-classes`: from 0.5 to 0.75 the highest of three classes loses 0.1 to 0.2 % at twice the capacity.
const STRICT_SHARE: f64 = 0.65;

/// A tenant whose demand has fallen to this many units per second gives its place back.
const MIN_DEMAND: f64 = 1e-11;

impl Shares {
    pub(super) fn new(places: usize) -> Self {
        let demand = || SlotDemand { last_counts: [0; LEVELS], rate: [0.0; LEVELS], limited: false };
        let totals = vec![0.0; places];
        Shares {
            slots: (0..places).map(|_| demand()).collect(),
            totals,
            sorted: Vec::with_capacity(places),
            level: 128.0,
        }
    }

    /// Adds what has arrived in `passed` nanoseconds to the averages. Returns the demand of all.
    pub(super) fn record(&mut self, table: &TenantTable, passed: f64, weight: f64) -> f64 {
        let mut all = 0.0;
        for (index, total) in self.totals.iter_mut().enumerate() {
            if *total == 0.0 && !table.is_taken(index) {
                continue;
            }
            let (place, demand) = (table.slot(index), &mut self.slots[index]);
            *total = 0.0;
            for (level, rate) in demand.rate.iter_mut().enumerate() {
                let count = place.count(level);
                let came = count.wrapping_sub(demand.last_counts[level]) as f64;
                demand.last_counts[level] = count;
                *rate += weight * (came / passed - *rate);
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
        let alone = self.totals.iter().filter(|total| **total > 0.0).count() <= 1;
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
            let (level, firm) = (level_of(&demand.rate, share), level_of(&demand.rate, share * STRICT_SHARE));
            lowest = lowest.min(level);
            // A tenant beside others that get all they ask for, or as much as this one, is over its share.
            table.slot(index).set(LevelBounds { level, strict: firm, is_share: !alone });
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

/// The level below which `share` of these rates lies, with the part of its own rate that is inside.
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

    /// Tenants with these demands; the shares that `allowed` gives.
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
                let place = table.find(Tenant(tenant as u32));
                let count = (0..demands[tenant])
                    .filter(|count| place.admits(Priority::new((count % 128 + 1) as u8), u64::MAX / 2, 1.0))
                    .count();
                count as f64
            })
            .collect()
    }

    #[test]
    fn an_equal_share_each_and_the_rest_to_those_who_want_it() {
        assert_eq!(divided(&[1_280, 1_280], 1_280.0), [640.0, 640.0]);
        assert_eq!(divided(&[128, 1_280, 1_280], 1_408.0), [128.0, 640.0, 640.0]);
        assert_eq!(divided(&[128, 1_280], 1e9), [128.0, 1_280.0]);
        assert_eq!(divided(&[1_280], 0.0), [0.0]);
    }

    #[test]
    fn the_most_important_are_inside() {
        let mut rates = [0.0; LEVELS];
        (rates[0], rates[16], rates[127]) = (2.0, 4.0, 8.0);
        assert_eq!(level_of(&rates, 3.0), Level::new(16, 0.25));
        assert_eq!(level_of(&rates, 14.0), Level::OPEN);
    }
}
