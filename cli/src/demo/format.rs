//! Numbers and names for readers.

/// Readable name of a controller's label.
pub(crate) fn controller(label: &str) -> &str {
    match label {
        "none" => "without control",
        "breakwater" => "Breakwater",
        other => other,
    }
}

/// Short form of the name.
pub(crate) fn controller_short(label: &str) -> &str {
    if label == "none" { "no control" } else { controller(label) }
}

/// Form of the name at the start of a sentence.
pub(crate) fn controller_capitalized(label: &str) -> &str {
    if label == "none" { "Without control" } else { controller(label) }
}

/// Formats a time with three digits and a unit: `85 µs`, `12.3 ms`, `1.20 s`.
pub(crate) fn format_us(us: f64) -> String {
    match us {
        us if !us.is_finite() => "–".into(),
        us if us < 9.95 => format!("{us:.1} µs"),
        us if us < 999.5 => format!("{us:.0} µs"),
        us if us < 9_995.0 => format!("{:.2} ms", us / 1e3),
        us if us < 99_950.0 => format!("{:.1} ms", us / 1e3),
        us if us < 999_500.0 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// Formats thousands per second: one decimal from 10 k/s on, four significant digits below.
pub(crate) fn thousands(per_second: f64) -> String {
    thousands_with(1, per_second)
}

/// Formats thousands per second with at least this many decimals.
pub(crate) fn thousands_with(decimals: usize, per_second: f64) -> String {
    let thousands = per_second / 1e3;
    let needed = match thousands.abs() {
        size if size > 0.0 && size < 10.0 => (3.0 - size.max(1e-6).log10().floor()) as usize,
        _ => 0,
    };
    format!("{thousands:.*}", decimals.max(needed))
}

/// Formats a rate with its unit: as [`thousands`] from 1 k/s on, with three digits below.
pub(crate) fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate >= 1e3 => format!("{} k/s", thousands(rate)),
        rate if rate > 0.0 && rate < 99.95 => format!("{rate:.1} /s"),
        rate => format!("{rate:.0} /s"),
    }
}

/// Formats a share of one in percent.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// Formats a multiple of the capacity without trailing zeros: `0.5x`, `2x`.
pub(crate) fn multiple(ratio: f64) -> String {
    let rounded = (ratio * 100.0).round() / 100.0;
    format!("{rounded}x")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_at_most() {
        let check = |us, expected: &str| assert_eq!(format_us(us), expected);
        check(7.25, "7.2 µs");
        check(85.4, "85 µs");
        check(1_234.0, "1.23 ms");
        check(45_678.0, "45.7 ms");
        check(1_200_000.0, "1.20 s");
        check(f64::NAN, "–");
        let rates = [54_012.0, 6_254.0, 850.0, 1.25, 0.0].map(thousands);
        assert_eq!(rates, ["54.0", "6.254", "0.8500", "0.001250", "0.0"]);
        let rates = [54_012.0, 1_250.0, 850.4, 26.54, 0.0].map(rate);
        assert_eq!(rates, ["54.0 k/s", "1.250 k/s", "850 /s", "26.5 /s", "0 /s"]);
        assert_eq!((thousands_with(0, 84_600.0), thousands_with(2, 12_345.0)), ("85".into(), "12.35".into()));
        assert_eq!((percent(0.0), percent(0.042), percent(0.93)), ("0 %".into(), "4.2 %".into(), "93 %".into()));
        assert_eq!((multiple(0.5), multiple(1.999_999), multiple(1.4)), ("0.5x".into(), "2x".into(), "1.4x".into()));
    }
}
