//! Conversion of rows of the results to columns.

use super::{Column, Table, Texts, Values};
use leeward_outcome::results::Results;
use leeward_outcome::table::{self as rows, Cell, Storage};

/// Columns that grow by rows.
pub(crate) struct Builder {
    columns: Vec<Column>,
    /// Number of columns that are not the results' own.
    extra: usize,
}

impl Builder {
    /// Creates the columns of a table of the results.
    pub(crate) fn of(table: rows::Table) -> Self {
        let column = |name: &&str| {
            let values = match table.column(name).map(|column| column.storage) {
                Some(Storage::Whole) => Values::Whole(Vec::new()),
                Some(Storage::Flag) => Values::Flag(Vec::new()),
                Some(Storage::Text) => Values::Text(Texts::default()),
                Some(Storage::Float) | None => Values::Float(Vec::new()),
            };
            Column::new(name, values)
        };
        Builder { columns: table.fields().iter().map(column).collect(), extra: 0 }
    }

    /// Adds a column after the results' own; it has numbers if all of `values` are numbers.
    pub(crate) fn extra(&mut self, name: &str, values: &[String]) {
        let numbers = values.iter().all(|value| value.parse::<f64>().is_ok_and(f64::is_finite));
        let values = if numbers { Values::Float(Vec::new()) } else { Values::Text(Texts::default()) };
        self.columns.push(Column::new(name, values));
        self.extra += 1;
    }

    /// Adds the rows of `results`, each with the same values of the extra columns.
    pub(crate) fn rows(&mut self, table: rows::Table, results: &Results, extra: &[&str]) {
        let own = self.columns.len() - self.extra;
        for row in table.rows(results) {
            for (column, name) in self.columns[..own].iter_mut().zip(table.fields()) {
                push(column, row.cell(name));
            }
            for (column, value) in self.columns[own..].iter_mut().zip(extra) {
                push(
                    column,
                    value
                        .parse()
                        .ok()
                        .filter(|_| matches!(column.values, Values::Float(_)))
                        .map_or(Cell::Text(value), Cell::Number),
                );
            }
        }
    }

    /// Returns the table.
    pub(crate) fn finish(self) -> Table {
        Table::new(self.columns)
    }
}

fn push(column: &mut Column, cell: Cell<'_>) {
    let before = column.len();
    if cell == Cell::Absent {
        column.present.get_or_insert_with(|| vec![true; before]).push(false);
    } else if let Some(present) = &mut column.present {
        present.push(true);
    }
    let number = cell.number().unwrap_or_default();
    match &mut column.values {
        Values::Float(values) => values.push(number),
        // Larger seeds are rejected before a run.
        Values::Whole(values) => values.push(if let Cell::Whole(whole) = cell { whole as i64 } else { number as i64 }),
        Values::Flag(values) => values.push(u8::from(number != 0.0)),
        Values::Text(texts) => texts.push(if let Cell::Text(text) = cell { text } else { "" }),
    }
}
