//! Tables for terminals: columns two spaces apart, numbers right-aligned. No colours, so that files
//! and mails show the same.

/// Width of wrapped text: that of the narrowest common terminals.
pub(crate) const WIDTH: usize = 80;

/// Alignment of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes a table with these headings; if all are empty, there is no heading line.
    pub(crate) fn new(columns: &[(&str, Align)]) -> Table {
        let columns = columns.iter().map(|(name, align)| ((*name).to_string(), *align)).collect();
        Table { columns, rows: Vec::new() }
    }

    /// Adds a row; one cell per column.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len(), "one cell per column");
        self.rows.push(cells);
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.max().unwrap_or(0).max(self.columns[column].0.chars().count())
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |cells: &[String]| {
            let padded = cells.iter().zip(&widths).zip(&self.columns).map(|((cell, width), (_, align))| match align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            });
            padded.collect::<Vec<_>>().join("  ").trim_end().to_string()
        };
        let headings: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        if headings.iter().any(|heading| !heading.is_empty()) {
            writeln!(f, "{}", line(&headings))?;
        }
        self.rows.iter().try_for_each(|row| writeln!(f, "{}", line(row)))
    }
}

/// Wraps `text` into lines of at most `width` characters, indented by `indent` spaces.
pub(crate) fn wrap(text: &str, indent: usize, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width.saturating_sub(indent) => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines.iter().map(|line| format!("{:indent$}{line}\n", "")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("what", Align::Left), ("k/s", Align::Right)]);
        table.row(vec!["breakwater".into(), "801".into()]);
        table.row(vec!["µ".into(), "1,000".into()]);
        assert_eq!(table.to_string(), "what          k/s\nbreakwater    801\nµ           1,000\n");
    }

    #[test]
    fn text_is_folded_at_words() {
        assert_eq!(wrap("one two three", 2, 10), "  one two\n  three\n");
    }
}
