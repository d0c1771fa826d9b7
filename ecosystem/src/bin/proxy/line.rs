//! One outcome: what was asked, what was got, and what the rivals got beside it.

use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) outcome: String,
    pub(crate) asked: String,
    pub(crate) got: String,
    /// The number that was compared; `None` where ours was not measured.
    pub(crate) value: Option<f64>,
    pub(crate) beside: String,
    /// `None` for lines without a bar, or not measured.
    pub(crate) met: Option<bool>,
}

/// A bar for a number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

impl Line {
    /// Compares a number with its bar. `show` prints a number with its unit.
    pub(crate) fn new(outcome: String, bar: Bar, value: Option<f64>, show: impl Fn(f64) -> String) -> Self {
        let (asked, met) = match bar {
            Bar::AtLeast(least) => (format!(">= {}", show(least)), value.map(|value| value >= least)),
            Bar::AtMost(most) => (format!("<= {}", show(most)), value.map(|value| value <= most)),
        };
        let got = value.map_or("not measured".into(), show);
        Line { outcome, asked, got, value, beside: String::new(), met }
    }

    pub(crate) fn beside(mut self, text: String) -> Self {
        self.beside = text;
        self
    }

    /// Adds something to what was got.
    pub(crate) fn with(mut self, more: &str) -> Self {
        if self.value.is_some() {
            self.got += more;
        }
        self
    }

    pub(crate) fn print(&self) {
        let verdict = self.met.map_or("", |met| if met { "met" } else { "MISSED" });
        let beside = if self.beside.is_empty() { String::new() } else { format!("  beside: {}", self.beside) };
        println!("{:<52} {:<10} {:<34} {verdict:<6}{beside}", self.outcome, self.asked, self.got);
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "outcome": self.outcome, "asked": self.asked, "got": self.got, "value": self.value,
            "beside": self.beside, "met": self.met,
        })
    }

    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        Some(Line {
            outcome: text("outcome")?,
            asked: text("asked")?,
            got: text("got")?,
            value: value["value"].as_f64(),
            beside: text("beside")?,
            met: value["met"].as_bool(),
        })
    }
}

/// The middle one; 0 of none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_at_its_bar_meets_it() {
        let of = |bar, value| Line::new("x".into(), bar, value, |ms| format!("{ms:.0} ms"));
        assert_eq!(of(Bar::AtMost(50.0), Some(50.0)).met, Some(true));
        assert_eq!(of(Bar::AtMost(50.0), Some(50.1)).met, Some(false));
        assert_eq!(of(Bar::AtLeast(50.0), Some(49.9)).met, Some(false));
        let none = of(Bar::AtLeast(50.0), None).with(", 3 rounds");
        assert_eq!((none.met, none.got.as_str(), none.asked.as_str()), (None, "not measured", ">= 50 ms"));
    }

    #[test]
    fn a_line_survives_its_file() {
        for value in [None, Some(0.5)] {
            let line = Line::new("x".into(), Bar::AtLeast(0.9), value, |x| x.to_string()).beside("y".into());
            assert_eq!(Line::from_json(&line.to_json()), Some(line));
        }
    }

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![]), 0.0);
    }
}
