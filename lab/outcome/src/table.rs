//! The tables of the results by name, with their rows by field name, for claims and plots.

pub use crate::columns::{Cell, Column, Quantity, Storage, ValueType};

use crate::columns::Fields;
use crate::results::{KindRow, LockRow, PointRow, ReplicaRow, Results, RunKey, ServiceRow, ShiftRow, WindowRow};
use serde::Serialize;

/// Relative difference below which two numbers are equal, in claims and in filters of plots:
/// demands are computed from capacities that are not round.
pub const TOLERANCE: f64 = 0.005;

/// Declares the tables for claims and plots: variant, name, rows in the results, and row type.
macro_rules! tables {
    ($($(#[$meta:meta])* $variant:ident $rows:ident $row:ident;)*) => {
        /// A table of the results.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Table {
            $($(#[$meta])* $variant,)*
        }

        /// Row of a table.
        #[derive(Clone, Copy, Debug, Serialize)]
        #[serde(untagged)]
        pub enum Row<'a> {
            $(#[doc = concat!("Of the ", stringify!($rows), ".")] $row(&'a $row),)*
        }

        impl Table {
            /// All tables.
            pub const ALL: &'static [Table] = &[$(Table::$variant,)*];

            /// Name in scenarios and messages.
            pub fn name(self) -> &'static str {
                match self {
                    $(Table::$variant => stringify!($rows),)*
                }
            }

            /// Names of the fields, in the order of files.
            pub fn fields(self) -> &'static [&'static str] {
                match self {
                    $(Table::$variant => $row::NAMES,)*
                }
            }

            /// The field `name`; `None` if there is no such field.
            pub fn column(self, name: &str) -> Option<&'static Column> {
                match self {
                    $(Table::$variant => $row::column(name),)*
                }
            }

            /// Rows of the table.
            pub fn rows(self, results: &Results) -> Box<dyn Iterator<Item = Row<'_>> + '_> {
                match self {
                    $(Table::$variant => Box::new(results.$rows.iter().map(Row::$row)),)*
                }
            }
        }

        impl<'a> Row<'a> {
            /// Value of the field `name`; [`Cell::Absent`] if there is none.
            pub fn cell(self, name: &str) -> Cell<'a> {
                match self {
                    $(Row::$row(row) => row.cell(name),)*
                }
            }

            /// Run of the row.
            pub fn run(self) -> &'a RunKey {
                match self {
                    $(Row::$row(row) => &row.run,)*
                }
            }
        }

        $(
            impl TableRow for $row {
                fn run(&self) -> &RunKey {
                    &self.run
                }
            }
        )*
    };
}

/// A row that belongs to a run.
pub trait TableRow: Fields {
    /// Run of the row.
    fn run(&self) -> &RunKey;
}

tables! {
    /// [`Results::points`].
    Points points PointRow;
    /// [`Results::windows`].
    Windows windows WindowRow;
    /// [`Results::shifts`].
    Shifts shifts ShiftRow;
    /// [`Results::locks`].
    Locks locks LockRow;
    /// [`Results::replicas`].
    Replicas replicas ReplicaRow;
    /// [`Results::services`].
    Services services ServiceRow;
    /// [`Results::kinds`].
    Kinds kinds KindRow;
}

impl Table {
    /// Finds a table by name.
    pub fn find(name: &str) -> Option<Table> {
        Table::ALL.iter().copied().find(|table| table.name() == name)
    }

    /// Type of the field `name`; `None` if there is no such field.
    pub fn value_type(self, name: &str) -> Option<ValueType> {
        self.column(name).map(|column| column.value_type)
    }

    /// Names of the fields with this type of value, or of all, for messages.
    pub fn names(self, kind: Option<ValueType>) -> String {
        let fits = |name: &&&str| kind.is_none_or(|value_type| self.value_type(name) == Some(value_type));
        self.fields().iter().filter(fits).copied().collect::<Vec<_>>().join(", ")
    }
}

/// The field `name` of the first table that has it; a name means the same in all tables.
pub fn column(name: &str) -> Option<&'static Column> {
    Table::ALL.iter().find_map(|table| table.column(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::DeserializeOwned;

    /// Checks a row with a value in every field, made from the declaration: each field is written,
    /// read and named.
    fn check<T: TableRow + Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(table: Table) {
        let value = |name: &&str| match (table.value_type(name), *name) {
            (Some(ValueType::Text), _) => serde_json::Value::from("text"),
            (_, "recovered" | "settled" | "throughput_settled") => serde_json::Value::from(true),
            _ => serde_json::Value::from(1),
        };
        let all = T::NAMES.iter().map(|name| (name.to_string(), value(name)));
        let full: T = serde_json::from_value(serde_json::Value::Object(all.collect())).unwrap();
        let text = serde_json::to_string(&full).unwrap();
        let positions: Vec<usize> = T::NAMES.iter().map(|name| text.find(&format!("\"{name}\":")).unwrap()).collect();
        assert!(positions.is_sorted(), "written in the order of the declaration: {text}");
        assert_eq!(serde_json::from_str::<T>(&text).unwrap(), full);
        for name in T::NAMES {
            let kind = table.value_type(name).expect("every field is a column");
            match full.cell(name) {
                Cell::Number(_) | Cell::Whole(_) => assert_eq!(kind, ValueType::Number, "{name}"),
                Cell::Text(_) => assert_eq!(kind, ValueType::Text, "{name}"),
                Cell::Absent => panic!("{name} is not read"),
            }
        }
        // No field of an embedded part may be missing.
        let debug = format!("{full:?}");
        assert!(!debug.contains("None") && !debug.contains(": 0") && !debug.contains("\"\""), "{debug}");
        assert_eq!(full.cell("no such field"), Cell::Absent);
    }

    #[test]
    fn every_field_is_written_read_and_named() {
        check::<PointRow>(Table::Points);
        check::<WindowRow>(Table::Windows);
        check::<ShiftRow>(Table::Shifts);
        check::<LockRow>(Table::Locks);
        check::<ReplicaRow>(Table::Replicas);
        check::<ServiceRow>(Table::Services);
        check::<KindRow>(Table::Kinds);
    }

    #[test]
    fn unknown_values_are_omitted_and_missing_fields_are_errors() {
        let text = serde_json::to_string(&LockRow::default()).unwrap();
        for absent in ["kind", "\"p\"", "waiting", "utilization"] {
            assert!(!text.contains(absent), "{absent} in {text}");
        }
        assert_eq!(serde_json::from_str::<LockRow>(&text).unwrap(), LockRow::default());
        let error = serde_json::from_str::<LockRow>("{\"lock\": \"a\"}").unwrap_err().to_string();
        assert!(error.contains("missing field"), "{error}");
    }

    #[test]
    fn a_name_means_the_same_in_all_tables() {
        for table in Table::ALL {
            assert_eq!(Table::find(table.name()), Some(*table));
            for name in table.fields() {
                let kept = table.column(name).unwrap();
                assert_eq!(kept.value_type == ValueType::Text, kept.storage == Storage::Text, "{name}");
                assert_eq!(table.column(name), column(name), "{name} of {}", table.name());
            }
        }
        assert_eq!(column("no such field"), None);
        assert_eq!(Table::Shifts.names(Some(ValueType::Text)), "controller, label");
    }

    #[test]
    fn every_field_is_documented() {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results/fields.md");
        let text = std::fs::read_to_string(docs).unwrap();
        for table in Table::ALL {
            let heading = format!("\n## {}{}\n", table.name()[..1].to_uppercase(), &table.name()[1..]);
            let section = text.split_once(&heading).unwrap_or_else(|| panic!("no section `{heading}`")).1;
            let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
            for name in table.fields() {
                assert!(
                    section.contains(&format!("`{name}`")),
                    "{name} is missing in docs/results/fields.md, {heading}"
                );
            }
        }
    }
}
