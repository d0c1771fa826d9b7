//! Numbers as C parses them: memcached parses numbers in lines and in values this way.

/// Parses a sign and digits as C's `strtoull` does; white space may surround them.
///
/// Returns `None` where memcached rejects the number: no digits, more than 64 bits, or another
/// character after the digits.
fn digits(text: &[u8]) -> Option<(bool, u64)> {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0B;
    let start = text.iter().position(|byte| !is_space(byte))?;
    let is_negative = text[start] == b'-';
    let digits = &text[start + usize::from(matches!(text[start], b'-' | b'+'))..];
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    if end == 0 || digits.get(end).is_some_and(|byte| !is_space(byte) && *byte != 0) {
        return None;
    }
    let add = |sum: u64, digit: &u8| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    Some((is_negative, digits[..end].iter().try_fold(0, add)?))
}

/// Parses a number that may be negative.
pub(crate) fn signed(token: &[u8]) -> Option<i64> {
    match digits(token)? {
        (false, number) => number.try_into().ok(),
        (true, number) => 0i64.checked_sub_unsigned(number),
    }
}

/// Parses a 64-bit number.
///
/// As in memcached, a minus sign wraps the number, unless the result has the highest bit.
pub(crate) fn unsigned(token: &[u8]) -> Option<u64> {
    let (is_negative, number) = digits(token)?;
    let number = if is_negative { number.wrapping_neg() } else { number };
    (number <= i64::MAX as u64 || !token.contains(&b'-')).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_like_memcached() {
        for (text, expected) in [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            (" 12", Some(12)),
            ("12 ", Some(12)),
            ("1\t", Some(1)),
            ("1\r", Some(1)),
            ("\x0B1\x0Bx", Some(1)),
            ("7\0x", Some(7)),
            ("+5", Some(5)),
            ("12x", None),
            ("-0", Some(0)),
            ("-1", None),
            ("-9223372036854775808", None),
            ("-18446744073709551615", Some(1)),
            ("-18446744073709551616", None),
            ("", None),
            (" ", None),
            ("+", None),
            ("-", None),
            ("+-1", None),
            ("- 1", None),
        ] {
            assert_eq!(unsigned(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn signed_numbers_have_64_bits() {
        assert_eq!((signed(b"-7"), signed(b"7x")), (Some(-7), None));
        assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!((signed(b"9223372036854775808"), signed(b"-9223372036854775809")), (None, None));
    }
}
