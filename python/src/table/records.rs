//! Columns that grow by rows of which not every one has every value.

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

/// A table that grows: [`Records::row`], then the row's values.
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

    /// Gives the row a number.
    pub(crate) fn float(&mut self, name: &str, value: f64) {
        if let Some(Values::Float(values)) = self.column(name) {
            values.push(value);
        }
    }

    /// Gives the row a whole number.
    pub(crate) fn whole(&mut self, name: &str, value: i64) {
        if let Some(Values::Whole(values)) = self.column(name) {
            values.push(value);
        }
    }

    /// Gives the row a text.
    pub(crate) fn text(&mut self, name: &str, value: &str) {
        if let Some(Values::Text(texts)) = self.column(name) {
            texts.push(value);
        }
    }

    /// The table. Columns of which every row has a value say so.
    pub(crate) fn finish(mut self) -> Table {
        self.fill();
        for column in &mut self.columns {
            column.present = column.present.take().filter(|present| present.contains(&false));
        }
        Table::new(self.columns)
    }

    /// The values of a column, one of which is about to be added.
    fn column(&mut self, name: &str) -> Option<&mut Values> {
        let column = self.columns.iter_mut().find(|column| column.name == name)?;
        column.present.iter_mut().for_each(|present| present.push(true));
        Some(&mut column.values)
    }

    /// Values of the last row that it was not given.
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
