//! Declaration of a table's fields: `table!` takes each field once, with its type, text, quantity
//! and heading.
//!
//! The row's type, its JSON and its access by name follow from it. Does not contain the tables.

use serde::ser::{Serialize, SerializeMap};

/// Quantity that a field measures; determines its unit and presentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Requests per second.
    Requests,
    /// Messages per second.
    Messages,
    /// A time in microseconds.
    Micros,
    /// A time in milliseconds.
    Millis,
    /// A time in seconds.
    Seconds,
    /// A share of one, presented in percent.
    Share,
    /// A ratio.
    Multiple,
    /// A count.
    Count,
    /// A name, or a number used as a name.
    Name,
    /// Any other quantity.
    Plain,
}

/// Type of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// A number.
    Number,
    /// A text.
    Text,
}

/// Recommended storage type of a field's values, for large numbers of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A floating-point number.
    Float,
    /// A non-negative integer.
    Whole,
    /// A boolean, with the cells 1 and 0.
    Flag,
    /// A text.
    Text,
}

/// Value of a field in one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// A number.
    Number(f64),
    /// An integer, kept apart because a floating-point number may not hold it.
    Whole(u64),
    /// A text.
    Text(&'a str),
    /// The row has no value.
    Absent,
}

impl Cell<'_> {
    /// The value as a floating-point number; above 2⁵³ the nearest one.
    pub fn number(self) -> Option<f64> {
        match self {
            Cell::Number(number) => Some(number),
            Cell::Whole(number) => Some(number as f64),
            Cell::Text(_) | Cell::Absent => None,
        }
    }
}

/// Declaration of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name in files, scenarios and messages.
    pub name: &'static str,
    /// Type of the field's values.
    pub value_type: ValueType,
    /// Recommended storage type of its values.
    pub storage: Storage,
    /// Quantity of the field.
    pub quantity: Quantity,
    /// Heading for people.
    pub heading: &'static str,
}

/// A row of a table, or a part that rows of several tables embed.
pub trait Fields {
    /// Names of all fields, embedded parts included, in the order of files.
    const NAMES: &'static [&'static str];

    /// The field `name`; `None` if there is no such field.
    fn column(name: &str) -> Option<&'static Column>;

    /// Value of the field `name`; [`Cell::Absent`] if there is none.
    fn cell(&self, name: &str) -> Cell<'_>;
}

/// A type of field values. A `None` is left out of files.
pub trait Value: Serialize {
    /// Type of the values.
    const TYPE: ValueType;

    /// Recommended storage type.
    const STORAGE: Storage;

    /// The value as a cell.
    fn cell(&self) -> Cell<'_>;
}

impl Value for f64 {
    const TYPE: ValueType = ValueType::Number;
    const STORAGE: Storage = Storage::Float;

    fn cell(&self) -> Cell<'_> {
        Cell::Number(*self)
    }
}

impl Value for u32 {
    const TYPE: ValueType = ValueType::Number;
    const STORAGE: Storage = Storage::Whole;

    fn cell(&self) -> Cell<'_> {
        Cell::Whole(u64::from(*self))
    }
}

impl Value for u64 {
    const TYPE: ValueType = ValueType::Number;
    const STORAGE: Storage = Storage::Whole;

    fn cell(&self) -> Cell<'_> {
        Cell::Whole(*self)
    }
}

/// 1 for true, 0 for false.
impl Value for bool {
    const TYPE: ValueType = ValueType::Number;
    const STORAGE: Storage = Storage::Flag;

    fn cell(&self) -> Cell<'_> {
        Cell::Number(if *self { 1.0 } else { 0.0 })
    }
}

impl Value for String {
    const TYPE: ValueType = ValueType::Text;
    const STORAGE: Storage = Storage::Text;

    fn cell(&self) -> Cell<'_> {
        Cell::Text(self)
    }
}

impl<T: Value> Value for Option<T> {
    const TYPE: ValueType = T::TYPE;
    const STORAGE: Storage = T::STORAGE;

    fn cell(&self) -> Cell<'_> {
        self.as_ref().map_or(Cell::Absent, T::cell)
    }
}

/// Writes a field if the row has a value.
pub(crate) fn write<M: SerializeMap, V: Value>(map: &mut M, name: &'static str, value: &V) -> Result<(), M::Error> {
    if value.cell() == Cell::Absent { Ok(()) } else { map.serialize_entry(name, value) }
}

/// Declares a row:
///
/// ```text
/// table! {
///     /// What a row is.
///     Lock (run: RunKey) {            // embedded parts, whose fields are declared with them
///         /// What the field is.
///         lock: String, Name "Lock";  // type, quantity, heading
///         [run.label, run.seed]       // where files have these fields of an embedded part
///         /// …
///         wait_p99_us: f64, Micros "99th percentile wait for the lock";
///     }
/// }
/// ```
///
/// Files have the fields in the order of the declaration. Readers accept any order, but the same
/// run must give the same bytes.
macro_rules! table {
    (
        $(#[$meta:meta])*
        $row:ident $(($($part:ident: $key:ty),+))? {
            $(
                $([$($from:ident.$column:ident),+])?
                $(#[$field_meta:meta])*
                $field:ident: $value:ty, $quantity:ident $heading:literal;
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, ::serde::Deserialize)]
        pub struct $row {
            $($(
                #[doc = concat!("The row's [`", stringify!($key), "`]; files have its fields among the row's own.")]
                #[serde(flatten)]
                pub $part: $key,
            )+)?
            $($(#[$field_meta])* pub $field: $value,)*
        }

        impl ::serde::Serialize for $row {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use ::serde::ser::SerializeMap as _;
                let mut map = serializer.serialize_map(None)?;
                $(
                    $($($crate::columns::write(&mut map, stringify!($column), &self.$from.$column)?;)+)?
                    $crate::columns::write(&mut map, stringify!($field), &self.$field)?;
                )*
                map.end()
            }
        }

        impl $crate::columns::Fields for $row {
            const NAMES: &'static [&'static str] =
                &[$($($(stringify!($column),)+)? stringify!($field),)*];

            fn column(name: &str) -> Option<&'static $crate::columns::Column> {
                const OWN: &[$crate::columns::Column] = &[$($crate::columns::Column {
                    name: stringify!($field),
                    value_type: <$value as $crate::columns::Value>::TYPE,
                    storage: <$value as $crate::columns::Value>::STORAGE,
                    quantity: $crate::columns::Quantity::$quantity,
                    heading: $heading,
                },)*];
                let own = OWN.iter().find(|column| column.name == name);
                $($(let own = own.or_else(|| <$key as $crate::columns::Fields>::column(name));)+)?
                own
            }

            fn cell(&self, name: &str) -> $crate::columns::Cell<'_> {
                use $crate::columns::Value as _;
                match name {
                    $(
                        $($(stringify!($column) => self.$from.$column.cell(),)+)?
                        stringify!($field) => self.$field.cell(),
                    )*
                    _ => $crate::columns::Cell::Absent,
                }
            }
        }
    };
}

pub(crate) use table;
