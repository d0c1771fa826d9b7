//! Rounding, rates, shares and medians for the results. Does not contain the quantities themselves.

use leeward_core::units::Nanos;

/// Rounds to `decimals`, so that no row depends on a meaningless last bit.
pub(crate) fn round(value: f64, decimals: i32) -> f64 {
    let scale = 10f64.powi(decimals);
    let rounded = (value * scale).round() / scale;
    if rounded == 0.0 { 0.0 } else { rounded }
}

/// A time in µs, rounded.
pub(crate) fn micros(span: Nanos) -> f64 {
    round(span.as_micros_f64(), 3)
}

/// A rate per second, rounded to one decimal or to four significant digits, whichever is finer.
pub(crate) fn rate(per_second: f64) -> f64 {
    let size = per_second.abs();
    // From 100 on, one decimal leaves four digits. Values below 1e-12 are not distinguished.
    let decimals = if size < 100.0 { (3.0 - size.max(1e-12).log10().floor()) as i32 } else { 1 };
    round(per_second, decimals)
}

/// `count` per second of `span`; 0 for an empty span.
pub(crate) fn per_second(count: u64, span: Nanos) -> f64 {
    if span == Nanos::ZERO { 0.0 } else { rate(count as f64 / span.as_secs_f64()) }
}

/// `part` over `whole`; 0 if `whole` is 0.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { round(part as f64 / whole as f64, 6) }
}

/// Quantile of sorted values; 0 without values.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let index = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(index).copied().unwrap_or(0.0)
}

/// Median; for an even number of values the mean of the middle two. Sorts the values; 0 without
/// values.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_keep_four_digits_however_small_they_are() {
        for (exact, kept) in [
            (801_234.567, 801_234.6),
            (100.04, 100.0),
            (99.994, 99.99),
            (33.333_33, 33.33),
            (1.25, 1.25),
            (0.333_333, 0.3333),
            (0.000_123_456, 0.000_123_5),
            (-1.25, -1.25),
            (0.0, 0.0),
        ] {
            assert_eq!(rate(exact), kept, "{exact}");
        }
        assert_eq!(per_second(5, Nanos::from_secs(4)), 1.25);
        assert!(rate(1e-300) >= 0.0 && rate(f64::INFINITY).is_infinite());
    }
}
