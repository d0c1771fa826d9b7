//! The tables of the results by field name, for claims and plots.

use crate::results::{Lock, Point, Replica, Results, Shift, Window};

/// A table of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// [`Results::points`].
    Points,
    /// [`Results::windows`].
    Windows,
    /// [`Results::shifts`].
    Shifts,
    /// [`Results::locks`].
    Locks,
    /// [`Results::replicas`].
    Replicas,
}

/// Type of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Number,
    /// A text.
    Text,
}

/// A field's value in one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// A number.
    Number(f64),
    /// A text.
    Text(&'a str),
    /// This row has none.
    Absent,
}

/// Row of a table.
#[derive(Clone, Copy, Debug)]
pub enum Row<'a> {
    /// Of the points.
    Point(&'a Point),
    /// Of the time series.
    Window(&'a Window),
    /// Of the shifts.
    Shift(&'a Shift),
    /// Of the locks.
    Lock(&'a Lock),
    /// Of the replicas.
    Replica(&'a Replica),
}

impl Table {
    /// Its name in scenarios and messages.
    pub fn name(self) -> &'static str {
        match self {
            Table::Points => "points",
            Table::Windows => "windows",
            Table::Shifts => "shifts",
            Table::Locks => "locks",
            Table::Replicas => "replicas",
        }
    }

    fn fields(self) -> &'static [(&'static str, Kind)] {
        match self {
            Table::Points => POINT_FIELDS,
            Table::Windows => WINDOW_FIELDS,
            Table::Shifts => SHIFT_FIELDS,
            Table::Locks => LOCK_FIELDS,
            Table::Replicas => REPLICA_FIELDS,
        }
    }

    /// Type of the field called `name`; `None` if there is no such field.
    pub fn kind(self, name: &str) -> Option<Kind> {
        self.fields().iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// The names of its fields of one kind or of any, for messages.
    pub fn names(self, kind: Option<Kind>) -> String {
        let fits = |found: Kind| kind.is_none_or(|wanted| wanted == found);
        let names: Vec<&str> = self.fields().iter().filter(|(_, kind)| fits(*kind)).map(|(name, _)| *name).collect();
        names.join(", ")
    }

    /// Its rows that belong to one seed.
    pub fn rows<'a>(self, results: &'a Results, seed: u64) -> Vec<Row<'a>> {
        match self {
            Table::Points => results.points.iter().filter(|row| row.seed == seed).map(Row::Point).collect(),
            Table::Windows => results.windows.iter().filter(|row| row.seed == seed).map(Row::Window).collect(),
            Table::Shifts => results.shifts.iter().filter(|row| row.seed == seed).map(Row::Shift).collect(),
            Table::Locks => results.locks.iter().filter(|row| row.seed == seed).map(Row::Lock).collect(),
            Table::Replicas => results.replicas.iter().filter(|row| row.seed == seed).map(Row::Replica).collect(),
        }
    }
}

impl<'a> Row<'a> {
    /// The field called `name`; [`Cell::Absent`] if there is none.
    pub fn cell(self, name: &str) -> Cell<'a> {
        match self {
            Row::Point(row) => point_cell(row, name),
            Row::Window(row) => window_cell(row, name),
            Row::Shift(row) => shift_cell(row, name),
            Row::Lock(row) => lock_cell(row, name),
            Row::Replica(row) => replica_cell(row, name),
        }
    }
}

trait AsCell {
    fn as_cell(&self) -> Cell<'_>;
}

impl AsCell for f64 {
    fn as_cell(&self) -> Cell<'_> {
        Cell::Number(*self)
    }
}

impl AsCell for u32 {
    fn as_cell(&self) -> Cell<'_> {
        Cell::Number(f64::from(*self))
    }
}

impl AsCell for u64 {
    fn as_cell(&self) -> Cell<'_> {
        Cell::Number(*self as f64)
    }
}

impl AsCell for bool {
    fn as_cell(&self) -> Cell<'_> {
        Cell::Number(if *self { 1.0 } else { 0.0 })
    }
}

impl AsCell for Option<f64> {
    fn as_cell(&self) -> Cell<'_> {
        self.map_or(Cell::Absent, Cell::Number)
    }
}

impl AsCell for Option<u64> {
    fn as_cell(&self) -> Cell<'_> {
        self.map_or(Cell::Absent, |number| Cell::Number(number as f64))
    }
}

impl AsCell for String {
    fn as_cell(&self) -> Cell<'_> {
        Cell::Text(self)
    }
}

macro_rules! table {
    ($fields:ident, $cell:ident, $row:ty, text: [$($text:ident),*], number: [$($number:ident),*]) => {
        const $fields: &[(&str, Kind)] =
            &[$((stringify!($text), Kind::Text),)* $((stringify!($number), Kind::Number),)*];

        fn $cell<'a>(row: &'a $row, name: &str) -> Cell<'a> {
            match name {
                $(stringify!($text) => row.$text.as_cell(),)*
                $(stringify!($number) => row.$number.as_cell(),)*
                _ => Cell::Absent,
            }
        }
    };
}

table!(
    POINT_FIELDS, point_cell, Point,
    text: [controller, label, service, allocator, balancing],
    number: [
        demand_rps, demand_ratio, clients, service_mean_us, capacity_rps, p, r, slo_us, seed, throughput_rps, goodput_rps,
        p50_us, p99_us, p999_us, mean_us, drop_rate, lock_drop_rate, expiry_rate, throttle_rate, retry_rate, failure_p99_us,
        reject_delay_mean_us, cpu_utilization, rx_per_request, tx_per_request, rx_mps, tx_mps, offered, unfinished, rtt_us, cores_mean,
        best_effort_share, predicted_goodput_rps, predicted_p99_us
    ]
);

table!(
    WINDOW_FIELDS, window_cell, Window,
    text: [controller, label],
    number: [
        seed, start_s, length_ms, demand_rps, throughput_rps, goodput_rps, p99_us, drops_rps, reject_delay_mean_us,
        delay_us, credit_pool, credits_issued, cores
    ]
);

table!(
    SHIFT_FIELDS, shift_cell, Shift,
    text: [controller, label],
    number: [
        seed, at_s, from_rps, to_rps, settled_goodput_rps, recovery_ms, recovered, reached_ms, goodput_dip_ratio, p99_peak_us,
        reject_delay_peak_us
    ]
);

table!(
    LOCK_FIELDS, lock_cell, Lock,
    text: [lock, kind, controller, label, service],
    number: [
        demand_rps, demand_ratio, clients, p, r, seed, acquired_rps, waited_rate, refused_rps, drop_share, wait_mean_us,
        wait_p50_us, wait_p99_us, waiting, utilization
    ]
);

table!(
    REPLICA_FIELDS, replica_cell, Replica,
    text: [controller, label, service],
    number: [
        replica, demand_rps, demand_ratio, clients, p, r, seed, attempts_rps, throughput_rps, p99_us, drop_rate, expiry_rate,
        cpu_utilization
    ]
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Every field of the schema can be named in a claim.
    #[test]
    fn no_field_is_left_out() {
        fn check(row: impl serde::Serialize, table: Table) {
            let value = serde_json::to_value(row).unwrap();
            for (name, value) in value.as_object().unwrap() {
                let kind = if value.is_string() { Kind::Text } else { Kind::Number };
                assert_eq!(table.kind(name), Some(kind), "{name}");
            }
            assert_eq!(value.as_object().unwrap().len(), table.fields().len());
        }
        let some = Some(0.0);
        let point = Point {
            allocator: "delay".into(),
            balancing: "oracle".into(),
            cores_mean: some,
            best_effort_share: some,
            p: some,
            r: some,
            lock_drop_rate: some,
            retry_rate: some,
            failure_p99_us: some,
            predicted_goodput_rps: some,
            predicted_p99_us: some,
            ..Point::default()
        };
        check(point, Table::Points);
        check(Window { credit_pool: some, credits_issued: some, cores: some, ..Window::default() }, Table::Windows);
        check(Shift::default(), Table::Shifts);
        let lock =
            Lock { kind: "mutex".into(), p: some, r: some, waiting: Some(0), utilization: some, ..Lock::default() };
        check(lock, Table::Locks);
        check(Replica { p: some, r: some, ..Replica::default() }, Table::Replicas);
    }
}
