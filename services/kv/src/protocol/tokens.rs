//! The tokens of a line, and the length of a data block.

pub(super) use crate::number::{signed, unsigned};

/// Splits `line` at spaces.
pub(super) fn tokens(line: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(|byte| *byte == b' ').filter(|token| !token.is_empty())
}

/// Returns the first `N` tokens, and the number of all tokens.
pub(super) fn first_tokens<const N: usize>(line: &[u8]) -> ([&[u8]; N], usize) {
    let mut all = [&[][..]; N];
    let mut count = 0;
    for token in tokens(line) {
        if let Some(slot) = all.get_mut(count) {
            *slot = token;
        }
        count += 1;
    }
    (all, count)
}

/// Greatest length of a data block, in bytes, whose block is skipped if it is too long. memcached's
/// limit reserves the line end.
const LENGTH_MAX: usize = i32::MAX as usize - 2;

/// Parses a client's number of seconds; `None` beyond 32 bits.
///
/// memcached wraps longer numbers, so that a time after 2038 expires at once.
pub(super) fn seconds(token: &[u8]) -> Option<i64> {
    signed(token).filter(|seconds| i32::try_from(*seconds).is_ok())
}

/// Parses the length of a data block, cut to 32 bits as memcached cuts it; `None` beyond its limit.
pub(super) fn length(token: &[u8]) -> Option<usize> {
    usize::try_from(signed(token)? as i32).ok().filter(|length| *length <= LENGTH_MAX)
}

/// Returns whether a command of this name exists.
pub(super) fn is_command(verb: &[u8]) -> bool {
    let with_items: &[&[u8]] = &[
        b"get", b"gets", b"gat", b"gats", b"set", b"add", b"replace", b"append", b"prepend", b"cas", b"incr", b"decr",
        b"delete", b"touch", b"mg", b"ms", b"md", b"ma", b"me",
    ];
    let others: &[&[u8]] = &[b"mn", b"flush_all", b"verbosity", b"version", b"stats", b"quit", b"shutdown"];
    with_items.contains(&verb) || others.contains(&verb)
}

pub(super) fn is_key(token: &[u8]) -> bool {
    (1..=crate::store::KEY_MAX).contains(&token.len())
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
    fn tokens_are_separated_by_spaces() {
        let (tokens, count) = first_tokens::<3>(b"  get  a b\tc d");
        assert_eq!((tokens, count), ([&b"get"[..], b"a", b"b\tc"], 4));
        assert_eq!(first_tokens::<2>(b"").1, 0);
    }

    #[test]
    fn number_tokens_are_bounded() {
        assert_eq!((length(b"5"), length(b"-1"), length(b"4294967296")), (Some(5), None, Some(0)));
        assert_eq!((length(b"2147483645"), length(b"2147483646")), (Some(LENGTH_MAX), None));
        for number in [0, 9, 10, u64::MAX] {
            let mut text = Vec::new();
            push_number(number, &mut text);
            assert_eq!(text, number.to_string().into_bytes());
            assert_eq!(unsigned(&text), Some(number));
        }
    }
}
