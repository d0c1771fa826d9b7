//! Parsers of quantities in the usual notation. Strict: a bare number is not a duration, a duration
//! is not a rate, and an error lists the accepted input.

use super::Nanos;

/// Error of a parser: the text as written and the accepted input.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("`{written}` is not {expected}")]
pub struct UnitError {
    /// The text as it was written.
    pub written: String,
    /// Description of the accepted input.
    pub expected: &'static str,
}

fn error(written: &str, expected: &'static str) -> UnitError {
    // A hostile or mistaken megabyte must not fill the terminal.
    let shown: String = written.chars().take(40).collect();
    UnitError { written: shown, expected }
}

/// Splits `"12.5us"` into `12.5` and `"us"`. Only plain decimals: no sign, no exponent, no `inf`.
fn split_number(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    number.is_finite().then_some((number, text[end..].trim_start()))
}

/// Parses a span with its unit: `500ns`, `80us`, `80µs`, `1.1ms`, `2s`.
///
/// # Errors
/// A missing or unknown unit, a sign, a text that is no number, more than 10⁹ s, or less than half
/// a nanosecond.
pub fn parse_duration(text: &str) -> Result<Nanos, UnitError> {
    const EXPECTED: &str = "a duration such as `500ns`, `80us`, `1.1ms` or `2s`";
    let (number, unit) = split_number(text.trim()).ok_or_else(|| error(text, EXPECTED))?;
    let size = match unit {
        "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(error(text, EXPECTED)),
    };
    let nanos = number * size;
    if nanos > 1e18 {
        return Err(error(text, "a duration of at most 1000000000s"));
    }
    let rounded = (nanos + 0.5) as u64;
    // A caller that rejects zero would report a zero that the user did not write.
    if rounded == 0 && number > 0.0 {
        return Err(error(text, "a duration of at least 1ns, or `0ns`"));
    }
    Ok(Nanos(rounded))
}

/// Parses a plain number or a percentage: `0.02`, `2%`.
///
/// # Errors
/// Any other text, including a sign or an exponent.
pub fn parse_number(text: &str) -> Result<f64, UnitError> {
    const EXPECTED: &str = "a number such as `0.02`, `40` or `2%`";
    match split_number(text.trim()) {
        Some((number, "")) => Ok(number),
        Some((number, "%")) => Ok(number / 100.0),
        _ => Err(error(text, EXPECTED)),
    }
}

/// Parses a number with an optional scale: `400`, `850k`, `1.2M`.
///
/// # Errors
/// Any other text, including a sign or an exponent, and a number that is too large.
pub fn parse_scaled(text: &str) -> Result<f64, UnitError> {
    const EXPECTED: &str = "a rate such as `400`, `850k` or `1.2M` (per second)";
    let scaled = match split_number(text.trim()) {
        Some((number, "")) => number,
        Some((number, "k")) => number * 1e3,
        Some((number, "M")) => number * 1e6,
        _ => return Err(error(text, EXPECTED)),
    };
    // A number of 300 digits is finite, but may overflow times a million.
    if scaled.is_finite() { Ok(scaled) } else { Err(error(text, "a rate that is finite")) }
}

/// Parses a multiple: `1.4x`.
///
/// # Errors
/// Any text without the `x`.
pub fn parse_ratio(text: &str) -> Result<f64, UnitError> {
    const EXPECTED: &str = "a multiple such as `1.4x`";
    match split_number(text.trim()) {
        Some((number, "x")) => Ok(number),
        _ => Err(error(text, EXPECTED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_common_notations() {
        assert_eq!(parse_duration("80us"), Ok(Nanos::from_micros(80)));
        assert_eq!(parse_duration(" 1.1 ms "), Ok(Nanos::from_micros(1100)));
        assert_eq!(parse_duration("2s"), Ok(Nanos::from_secs(2)));
        assert_eq!(parse_number("0.1%"), Ok(0.001));
        assert_eq!(parse_scaled("850k"), Ok(850_000.0));
        assert_eq!(parse_scaled("1.2M"), Ok(1_200_000.0));
        assert_eq!(parse_ratio("1.4x"), Ok(1.4));
    }

    #[test]
    fn an_out_of_range_quantity_is_reported_as_such() {
        let message = |text| parse_duration(text).unwrap_err().to_string();
        assert_eq!(message("9999999999s"), "`9999999999s` is not a duration of at most 1000000000s");
        assert_eq!(message("0.1ns"), "`0.1ns` is not a duration of at least 1ns, or `0ns`");
        assert_eq!(parse_duration("0.5ns"), Ok(Nanos(1)));
        assert_eq!(parse_duration("0.000us"), Ok(Nanos::ZERO));
        let huge = format!("{}M", "9".repeat(308));
        assert!(parse_scaled(&huge).unwrap_err().to_string().ends_with("is not a rate that is finite"));
    }

    #[test]
    fn rejects_malformed_quantities() {
        for text in ["", "80", "us", "-1us", "1e3us", "80 years", "nanus", "infs", "1.2.3us", "9999999999999s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        for text in ["", "k", "-4k", "4kk", "4 x", "x"] {
            assert!(parse_scaled(text).is_err(), "{text}");
        }
        assert!(parse_ratio("1.4").is_err());
        assert!(parse_number("1us").is_err());
    }
}
