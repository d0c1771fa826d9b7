//! Display units of the results' fields, and number formats. A field's name and quantity are
//! declared in `leeward-outcome`. Does not contain drawing.

pub(crate) use leeward_outcome::columns::Quantity;

use leeward_outcome::table;

/// Unit of an axis or a column: `shown = stored * factor`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Unit {
    pub(crate) factor: f64,
    pub(crate) suffix: &'static str,
}

/// Formats quantities for readers.
pub(crate) trait QuantityFormat: Copy {
    /// The unit in which values up to `max` read well.
    fn unit(self, max: f64) -> Unit;

    /// Formats a value with its unit and without trailing zeros, such as `801 k/s`.
    fn format(self, value: f64) -> String {
        let unit = self.unit(value.abs());
        let value = short(value * unit.factor);
        if unit.suffix.is_empty() { value } else { format!("{value} {}", unit.suffix) }
    }
}

impl QuantityFormat for Quantity {
    fn unit(self, max: f64) -> Unit {
        let (factor, suffix) = match self {
            Quantity::Requests if max < 1e3 => (1.0, "req/s"),
            Quantity::Requests => (1e-3, "k/s"),
            Quantity::Messages if max < 1e3 => (1.0, "messages/s"),
            Quantity::Messages => (1e-3, "k messages/s"),
            Quantity::Micros if max < 2e4 => (1.0, "µs"),
            Quantity::Micros if max < 1e7 => (1e-3, "ms"),
            Quantity::Micros => (1e-6, "s"),
            Quantity::Millis if max < 1e4 => (1.0, "ms"),
            Quantity::Millis => (1e-3, "s"),
            Quantity::Seconds => (1.0, "s"),
            Quantity::Share => (100.0, "%"),
            Quantity::Multiple => (1.0, "×"),
            Quantity::Count | Quantity::Name | Quantity::Plain => (1.0, ""),
        };
        Unit { factor, suffix }
    }
}

/// Display name and quantity of a field.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) quantity: Quantity,
}

impl Field {
    /// Looks up `key`.
    ///
    /// An undeclared field gets its name and unit from the key, because results may be newer than
    /// this version.
    pub(crate) fn lookup(key: &str) -> Field {
        match table::column(key) {
            Some(column) => Field { name: column.heading.into(), quantity: column.quantity },
            None => Field { name: title_of_key(key), quantity: quantity_of_key(key) },
        }
    }
}

fn quantity_of_key(key: &str) -> Quantity {
    match key {
        _ if key.ends_with("_rps") => Quantity::Requests,
        _ if key.ends_with("_mps") => Quantity::Messages,
        _ if key.ends_with("_us") => Quantity::Micros,
        _ if key.ends_with("_ms") => Quantity::Millis,
        _ if key.ends_with("_s") => Quantity::Seconds,
        _ => Quantity::Plain,
    }
}

fn title_of_key(key: &str) -> String {
    let words = key.replace('_', " ");
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// About three significant digits, with thousands separated: `1,234`, `56.7`, `0.0123`; a dash for
/// values that are not finite.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => "–".into(),
        0.0 => "0".into(),
        _ if size >= 1e12 => format!("{value:.2e}"),
        _ if size >= 99.95 => grouped(value, 0),
        _ if size >= 9.995 => grouped(value, 1),
        _ if size >= 0.9995 => grouped(value, 2),
        _ if size >= 0.0995 => grouped(value, 3),
        _ if size >= 1e-4 => grouped(value, 4),
        _ => format!("{value:.1e}"),
    }
}

/// As [`number`], without trailing zeros: `80` for `80.0`.
pub(crate) fn short(value: f64) -> String {
    let written = number(value);
    if !written.contains('.') || written.contains('e') {
        return written;
    }
    written.trim_end_matches('0').trim_end_matches('.').into()
}

/// Formats `value` with `decimals` decimals, and commas between thousands.
pub(crate) fn grouped(value: f64, decimals: usize) -> String {
    let written = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = written.split_once('.').unwrap_or((&written, ""));
    let mut out = String::new();
    if value < 0.0 && written.bytes().any(|digit| (b'1'..=b'9').contains(&digit)) {
        out.push('−');
    }
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_exact_enough() {
        let check = |value: f64, expected: &str| assert_eq!(number(value), expected);
        check(0.0, "0");
        check(801_234.0, "801,234");
        check(80.126, "80.1");
        check(1.4, "1.40");
        check(0.061, "0.0610");
        check(-1234.5, "−1,234");
        check(f64::NAN, "–");
        check(f64::INFINITY, "–");
        check(1e300, "1.00e300");
    }

    #[test]
    fn values_are_printed_in_a_suitable_unit() {
        let check =
            |key: &str, value: f64, expected: &str| assert_eq!(Field::lookup(key).quantity.format(value), expected);
        check("goodput_rps", 801_000.0, "801 k/s");
        check("p99_us", 180.0, "180 µs");
        check("p99_us", 300_000.0, "300 ms");
        check("drop_rate", 0.013, "1.3 %");
        check("demand_ratio", 1.4, "1.4 ×");
        check("made_up", 7.0, "7");
    }
}
