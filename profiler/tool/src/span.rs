//! Formats durations and shares: `1.23 µs`.

/// Formats a duration in nanoseconds with a suitable unit and three digits.
///
/// ```
/// use leeward_profile::span::format_nanos;
/// let texts = [0, 999, 1_234, 45_678_000].map(format_nanos);
/// assert_eq!(texts, ["0 ns", "999 ns", "1.23 µs", "45.7 ms"]);
/// ```
pub fn format_nanos(nanos: u64) -> String {
    const UNITS: [(f64, &str); 3] = [(1e3, "µs"), (1e6, "ms"), (1e9, "s")];
    if nanos < 1000 {
        return format!("{nanos} ns");
    }
    let value = nanos as f64;
    let (scale, unit) = UNITS.into_iter().find(|(scale, _)| value < scale * 999.5).unwrap_or((1e9, "s"));
    let value = value / scale;
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {unit}")
}

/// Formats a share of a whole in per cent.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".into();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    let digits = usize::from(percent < 9.95);
    format!("{percent:.digits$} %")
}
