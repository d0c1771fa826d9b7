//! The declaration of a table's fields. `table!` takes each field once, with its type, its words, its
//! quantity and its heading; the row's type, its JSON and its access by name follow. Which tables there are is elsewhere.

use serde::ser::{Serialize, SerializeMap};

/// Quantity that a field measures; decides its unit and how it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Requests per second.
    Requests,
    /// Messages per second.
    Messages,
    /// A span kept in microseconds.
    Micros,
    /// A span kept in milliseconds.
    Millis,
    /// A span kept in seconds.
    Seconds,
    /// A share of one, shown in percent.
    Share,
    /// A multiple of something.
    Multiple,
    /// A number of things.
    Count,
    /// A name, or a number that names something.
    Name,
    /// Anything else.
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

/// How a field's values are best kept by whoever keeps many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A floating-point number.
    Float,
    /// A whole number that is not negative.
    Whole,
    /// True or false, of which cells are 1 and 0.
    Flag,
    /// A text.
    Text,
}

/// A field's value in one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// A number.
    Number(f64),
    /// A whole number, which a floating-point number may not hold.
    Whole(u64),
    /// A text.
    Text(&'a str),
    /// This row has none.
    Absent,
}

impl Cell<'_> {
    /// The number, whole or not; above 2⁵³ the nearest that there is.
    pub fn number(self) -> Option<f64> {
        match self {
            Cell::Number(number) => Some(number),
            Cell::Whole(number) => Some(number as f64),
            Cell::Text(_) | Cell::Absent => None,
        }
    }
}

/// A field as it was declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name in files, scenarios and messages.
    pub name: &'static str,
    /// Type of the field's values.
    pub value_type: ValueType,
    /// How its values are best kept.
    pub storage: Storage,
    /// Quantity of the field.
    pub quantity: Quantity,
    /// Its name for people.
    pub heading: &'static str,
}

/// A row of a table, or a part that the rows of several tables share.
pub trait Fields {
    /// The names of all fields in the order in which files have them, those of embedded parts included.
    const NAMES: &'static [&'static str];

    /// The field called `name`; `None` if there is no such field.
    fn column(name: &str) -> Option<&'static Column>;

    /// The value of the field called `name`; [`Cell::Absent`] if there is none.
    fn cell(&self, name: &str) -> Cell<'_>;
}

/// A type that a field may have. An `Option` without a value is left out of files.
pub trait Value: Serialize {
    /// Type of the values.
    const TYPE: ValueType;

    /// How they are best kept.
    const STORAGE: Storage;

    /// The value in a row.
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

/// 1 for true.
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

/// Writes a field, if its row has it.
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
/// Files have the fields in the order of the declaration: readers may take any, but the same run shall give the same bytes.
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
