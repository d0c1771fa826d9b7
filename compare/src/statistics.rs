//! Median and spread of a few numbers.

use serde::Serialize;

/// Spread of a quantity over several rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// Median; for an even count, the mean of the middle two.
    pub(crate) median: f64,
    /// The smallest.
    pub(crate) least: f64,
    /// The largest.
    pub(crate) most: f64,
}

impl Spread {
    /// Spread of `numbers`; NaN if the list is empty or contains NaN.
    pub(crate) fn of(numbers: impl IntoIterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        if sorted.is_empty() || sorted.iter().any(|number| number.is_nan()) {
            return Spread { median: f64::NAN, least: f64::NAN, most: f64::NAN };
        }
        sorted.sort_by(f64::total_cmp);
        let (last, middle) = (sorted.len() - 1, sorted.len() / 2);
        let median = if last % 2 == 0 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Spread { median, least: sorted[0], most: sorted[last] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_median_minimum_and_maximum() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { median: 2.0, least: 1.0, most: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0]), Spread { median: 2.5, least: 1.0, most: 4.0 });
        assert_eq!(Spread::of([7.0]).median, 7.0);
        assert!(Spread::of([]).median.is_nan() && Spread::of([1.0, f64::NAN]).median.is_nan());
    }
}
