//! Numbers of labels: a trace names each text once.
//!
//! Does not write the texts.

use std::collections::HashMap;

/// Limit of different labels; the reader has the same.
const LABELS: usize = 1 << 16;
/// Longest label in bytes.
const LONGEST: usize = 63;
/// Label of requests beyond the limit.
const OTHER: &str = "(other)";

/// Numbers of the labels so far.
#[derive(Debug, Default)]
pub(super) struct Labels {
    numbers: HashMap<Box<str>, u32>,
}

impl Labels {
    /// Returns the number of a label, and its text if the trace does not have it yet.
    pub(super) fn number(&mut self, label: &str) -> (u32, Option<String>) {
        let mut end = label.len().min(LONGEST);
        while !label.is_char_boundary(end) {
            end -= 1;
        }
        let label = &label[..end];
        let is_full = self.numbers.len() + 2 >= LABELS;
        let label = if is_full && !self.numbers.contains_key(label) { OTHER } else { label };
        if let Some(number) = self.numbers.get(label) {
            return (*number, None);
        }
        let number = self.numbers.len() as u32 + 1;
        self.numbers.insert(label.into(), number);
        (number, Some(label.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_numbered_once_and_bounded() {
        let mut labels = Labels::default();
        assert_eq!(labels.number("GET"), (1, Some("GET".into())));
        assert_eq!(labels.number("SET"), (2, Some("SET".into())));
        assert_eq!(labels.number("GET"), (1, None));
        let long = "ä".repeat(50);
        assert_eq!(labels.number(&long).1.unwrap().len(), 62);
        for number in 0..LABELS {
            labels.number(&number.to_string());
        }
        assert!(labels.numbers.len() < LABELS);
        assert_eq!(labels.number("new"), labels.number("newer"));
        assert_eq!(labels.number("GET"), (1, None));
    }
}
