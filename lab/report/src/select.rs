//! Rows of a plot: read by field name, filtered, split into series and summarized over seeds. Does
//! not contain drawing.

use leeward_outcome::results::{Plot, Results};
use leeward_outcome::table::{TOLERANCE, Table};
use serde_json::{Map, Value};

use crate::fields::{self, QuantityFormat};
use crate::palette::{Palette, SeriesStyle};

/// Largest drawable value. Larger values are indistinguishable in a figure; the limit also keeps
/// sums from overflow.
const DRAWABLE_MAX: f64 = 1e15;

/// Values below this count as zero: a femtosecond in microseconds.
const DRAWABLE_MIN: f64 = 1e-9;

/// Row of a table, by field name.
pub(crate) type Row = Map<String, Value>;

/// A series of a plot.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) style: SeriesStyle,
}

/// A row that belongs to a plot.
#[derive(Clone, Debug)]
pub(crate) struct SelectedRow {
    /// Index into [`Selection::series`].
    pub(crate) series: usize,
    pub(crate) row: Row,
}

/// Rows from which a plot is drawn.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) series: Vec<Series>,
    pub(crate) rows: Vec<SelectedRow>,
}

impl Selection {
    /// Selects the rows of `plot`, and one series per distinct value of its series field, in order
    /// of appearance.
    pub(crate) fn new(results: &Results, plot: &Plot, palette: &Palette) -> Selection {
        let mut selection = Selection { series: Vec::new(), rows: Vec::new() };
        for row in table(results, &plot.table) {
            if !plot.only.iter().all(|filter| matches(&row, filter)) {
                continue;
            }
            let name = text(&row, &plot.series).unwrap_or_default();
            let series = selection.series.iter().position(|series| series.name == name).unwrap_or_else(|| {
                let series_style = palette.style(&plot.series, &name, selection.series.len());
                selection.series.push(Series { name, style: series_style });
                selection.series.len() - 1
            });
            selection.rows.push(SelectedRow { series, row });
        }
        selection
    }
}

/// All rows of a table of the results; none for an unknown table.
fn table(results: &Results, name: &str) -> Vec<Row> {
    let rows = Table::find(name).into_iter().flat_map(|table| table.rows(results));
    let as_map = |row| match serde_json::to_value(row) {
        Ok(Value::Object(row)) => Some(row),
        _ => None,
    };
    rows.filter_map(as_map).collect()
}

fn matches(row: &Row, filter: &str) -> bool {
    let Some((field, expected)) = filter.split_once('=') else { return false };
    let (field, expected) = (field.trim(), expected.trim());
    match (number(row, field), expected.parse::<f64>()) {
        (Some(value), Ok(expected)) => {
            let tolerance = if row.get(field).is_some_and(Value::is_f64) { TOLERANCE } else { 0.0 };
            (value - expected).abs() <= tolerance * expected.abs()
        }
        _ => text(row, field).is_some_and(|value| value == expected),
    }
}

/// The number in `field`, if it is drawable.
pub(crate) fn number(row: &Row, field: &str) -> Option<f64> {
    let value = row.get(field)?.as_f64().filter(|value| value.abs() <= DRAWABLE_MAX)?;
    Some(if value.abs() < DRAWABLE_MIN { 0.0 } else { value })
}

/// The value in `field`, formatted for readers.
pub(crate) fn text(row: &Row, field: &str) -> Option<String> {
    match row.get(field)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if !number.is_f64() => {
            Some(if field == "seed" { number.to_string() } else { fields::grouped(number.as_f64()?, 0) })
        }
        Value::Number(number) => Some(fields::Field::lookup(field).quantity.format(number.as_f64()?)),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

/// Median and range of a value over several seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) count: usize,
}

impl Summary {
    /// Summarizes finite `values`; `None` if there are none.
    pub(crate) fn from_values(mut values: Vec<f64>) -> Option<Summary> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Summary { median, min, max, count: values.len() })
    }

    /// Converts the summary to another unit.
    pub(crate) fn scale_by(self, factor: f64) -> Summary {
        Summary { median: self.median * factor, min: self.min * factor, max: self.max * factor, ..self }
    }

    /// Formats the summary, such as `801 k/s (795–803 over 3 seeds)`.
    pub(crate) fn format(self, quantity: fields::Quantity) -> String {
        let median = quantity.format(self.median);
        if self.count < 2 {
            return median;
        }
        let unit = quantity.unit(self.median.abs());
        let bound = |value: f64| fields::short(value * unit.factor);
        format!("{median} ({}–{} over {} seeds)", bound(self.min), bound(self.max), self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_compare_numbers_and_words() {
        let row: Row =
            serde_json::from_str(r#"{"demand_ratio": 1.2000000001, "service": "exp 10us", "p99_us": null}"#).unwrap();
        let check = |filter: &str, expected: bool| assert_eq!(matches(&row, filter), expected, "{filter}");
        check("demand_ratio=1.2", true);
        check("demand_ratio = 1.3", false);
        check("service=exp 10us", true);
        check("service=const", false);
        check("p99_us=1", false);
        check("nonsense", false);
        check("absent=1", false);
    }

    #[test]
    fn summaries_have_minimum_median_and_maximum() {
        let summary = Summary::from_values(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((summary.min, summary.median, summary.max), (1.0, 2.0, 3.0));
        assert_eq!(Summary::from_values(vec![1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Summary::from_values(vec![]), None);
    }
}
