//! The words of a line and the numbers in them, as memcached takes them.

/// The words of `line`: what lies between spaces.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty())
}

/// Up to `N` words, and how many there are in all.
pub(super) fn first<const N: usize>(line: &[u8]) -> ([&[u8]; N], usize) {
    let mut all = [&[][..]; N];
    let mut count = 0;
    for word in words(line) {
        if let Some(place) = all.get_mut(count) {
            *place = word;
        }
        count += 1;
    }
    (all, count)
}

/// A number that may be negative.
pub(super) fn signed(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// A number of 64 bits.
pub(super) fn unsigned(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// A number of 32 bits: a client's flags.
pub(super) fn small(word: &[u8]) -> Option<u32> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// The length of a data block. memcached's own limit leaves room for the line end.
pub(super) fn length(word: &[u8]) -> Option<usize> {
    let length: i32 = std::str::from_utf8(word).ok()?.parse().ok()?;
    usize::try_from(length).ok().filter(|length| *length < i32::MAX as usize - 1)
}

pub(super) fn is_key(word: &[u8]) -> bool {
    (1..=crate::store::KEY_MAX).contains(&word.len())
}

/// Appends a number in decimal digits.
pub(super) fn push_number(number: u64, into: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    let mut rest = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    into.extend_from_slice(&digits[start..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lie_between_spaces() {
        let (words, count) = first::<3>(b"  get  a b\tc d");
        assert_eq!((words, count), ([&b"get"[..], b"a", b"b\tc"], 4));
        assert_eq!(first::<2>(b"").1, 0);
    }

    #[test]
    fn numbers_have_bounds() {
        assert_eq!((length(b"5"), length(b"-1"), length(b"2147483647")), (Some(5), None, None));
        assert_eq!((small(b"4294967295"), small(b"4294967296"), small(b"-1")), (Some(u32::MAX), None, None));
        assert_eq!((signed(b"-7"), signed(b"7x")), (Some(-7), None));
        for number in [0, 9, 10, u64::MAX] {
            let mut text = Vec::new();
            push_number(number, &mut text);
            assert_eq!(text, number.to_string().into_bytes());
            assert_eq!(unsigned(&text), Some(number));
        }
    }
}
