//! Wake-up latency of a thread: quantiles by the CPU's idle time.
//!
//! Does not contain the choice of thread and CPU (`cpus`).

use leeward_core::units::Nanos;

/// Quantiles of wake-up latencies, one row per class of idle time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WakeTable {
    rows: [[Nanos; WakeTable::QUANTILES.len()]; 3],
}

impl WakeTable {
    /// Quantiles of a row, in thousandths.
    pub const QUANTILES: [u32; 6] = [10, 500, 900, 990, 999, 1_000];
    /// Upper bounds of the first and the second class of idle time.
    pub const CLASSES: [Nanos; 2] = [Nanos::from_micros(50), Nanos::from_millis(1)];

    /// A table in which every wake-up takes `span`.
    pub fn constant(span: Nanos) -> Self {
        WakeTable { rows: [[span; WakeTable::QUANTILES.len()]; 3] }
    }

    /// Creates a table from the rows of the three classes. Returns `None` unless each row ascends
    /// and no wake-up takes more than a second.
    pub fn new(rows: [[Nanos; WakeTable::QUANTILES.len()]; 3]) -> Option<Self> {
        let ascends = |row: &[Nanos]| row.is_sorted() && row.last().is_none_or(|last| *last <= Nanos::from_secs(1));
        rows.iter().all(|row| ascends(row)).then_some(WakeTable { rows })
    }

    /// Multiplies all latencies by `factor`.
    pub fn scaled(&self, factor: f64) -> Self {
        WakeTable { rows: self.rows.map(|row| row.map(|span| span.scale(factor))) }
    }

    /// The rows.
    pub fn rows(&self) -> &[[Nanos; WakeTable::QUANTILES.len()]; 3] {
        &self.rows
    }

    /// Latency at `unit` (0..1) of the distribution, for a CPU that was idle for `idle`; linear
    /// between quantiles.
    pub fn at(&self, idle: Nanos, unit: f64) -> Nanos {
        let class = WakeTable::CLASSES.iter().take_while(|limit| idle >= **limit).count();
        let row = &self.rows[class];
        let rank = unit * 1_000.0;
        let (mut below, mut from) = (row[0], f64::from(WakeTable::QUANTILES[0]));
        if rank <= from {
            return below;
        }
        for (quantile, span) in WakeTable::QUANTILES.iter().zip(row).skip(1) {
            let to = f64::from(*quantile);
            if rank <= to {
                let share = (rank - from) / (to - from);
                return below + span.saturating_sub(below).scale(share);
            }
            (below, from) = (*span, to);
        }
        below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_lie_between_the_quantiles_of_their_class() {
        let row = |us: u64| [1, 2, 3, 4, 5, 6].map(|step| Nanos::from_micros(us * step));
        let table = WakeTable::new([row(1), row(10), row(100)]).unwrap();
        let at = |idle_us, unit| table.at(Nanos::from_micros(idle_us), unit).0;
        assert_eq!((at(0, 0.0), at(0, 0.5), at(0, 0.7), at(0, 1.0)), (1_000, 2_000, 2_500, 6_000));
        assert_eq!((at(50, 0.5), at(999, 0.5), at(1_000, 0.5)), (20_000, 20_000, 200_000));
        let mut falling = row(1);
        falling[3] = Nanos::ZERO;
        assert_eq!(WakeTable::new([falling, row(1), row(1)]), None);
    }
}
