//! Columns that grow by rows in which values may be missing.

use super::{Column, Table, Texts, Values};

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// Numbers.
    Float,
    /// Whole numbers.
    Whole,
    /// Texts.
    Text,
}

/// A growing table: call [`Records::row`], then set the row's values.
pub(crate) struct Records {
    columns: Vec<Column>,
    rows: usize,
}

impl Records {
    pub(crate) fn new(fields: &[(&str, Field)]) -> Self {
        let column = |(name, field): &(&str, Field)| {
            let values = match field {
                Field::Float => Values::Float(Vec::new()),
                Field::Whole => Values::Whole(Vec::new()),
                Field::Text => Values::Text(Texts::default()),
            };
            Column { present: Some(Vec::new()), ..Column::new(name, values) }
        };
        Records { columns: fields.iter().map(column).collect(), rows: 0 }
    }

    /// Begins a row.
    pub(crate) fn row(&mut self) {
        self.fill();
        self.rows += 1;
    }

    /// Sets a number in the row.
    pub(crate) fn float(&mut self, name: &str, value: f64) {
        if let Some(Values::Float(values)) = self.column(name) {
            values.push(value);
        }
    }

    /// Sets an integer in the row.
    pub(crate) fn whole(&mut self, name: &str, value: i64) {
        if let Some(Values::Whole(values)) = self.column(name) {
            values.push(value);
        }
    }

    /// Sets a text in the row.
    pub(crate) fn text(&mut self, name: &str, value: &str) {
        if let Some(Values::Text(texts)) = self.column(name) {
            texts.push(value);
        }
    }

    /// Returns the table. Columns without missing values get no presence bits.
    pub(crate) fn finish(mut self) -> Table {
        self.fill();
        for column in &mut self.columns {
            column.present = column.present.take().filter(|present| present.contains(&false));
        }
        Table::new(self.columns)
    }

    /// Returns the values of a column, to which the caller adds one.
    fn column(&mut self, name: &str) -> Option<&mut Values> {
        let column = self.columns.iter_mut().find(|column| column.name == name)?;
        column.present.iter_mut().for_each(|present| present.push(true));
        Some(&mut column.values)
    }

    /// Fills the missing values of the last row.
    fn fill(&mut self) {
        let rows = self.rows;
        for column in self.columns.iter_mut().filter(|column| column.len() < rows) {
            match &mut column.values {
                Values::Float(values) => values.push(0.0),
                Values::Whole(values) => values.push(0),
                Values::Flag(values) => values.push(0),
                Values::Text(texts) => texts.push(""),
            }
            column.present.iter_mut().for_each(|present| present.push(false));
        }
    }
}
