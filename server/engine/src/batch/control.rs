//! Control messages of a datagram: the kernel's receive time and the count of lost datagrams.

use std::time::Duration;

/// Reads the receive time and the count of lost datagrams from control messages in the kernel's
/// layout.
pub(super) fn parse(control: &[u64]) -> (Option<Duration>, Option<u32>) {
    let (mut stamp, mut lost, mut rest) = (None, None, control);
    // A header is one word with the length in bytes, header included, and one with level and type.
    while let [length, kind, data @ ..] = rest
        && (16..=8 * rest.len() as u64).contains(length)
    {
        let [level, is] = halves(*kind);
        match (level as i32, is as i32, data) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, [seconds, nanos, ..]) if *length >= 32 => {
                stamp = (*nanos < 1_000_000_000).then(|| Duration::new(*seconds, *nanos as u32));
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL, [count, ..]) if *length >= 20 => lost = Some(halves(*count)[0]),
            _ => {}
        }
        rest = rest.get((*length as usize).div_ceil(8)..).unwrap_or_default();
    }
    (stamp, lost)
}

/// Splits a word into its 32-bit halves, in memory order.
fn halves(word: u64) -> [u32; 2] {
    let bytes = word.to_ne_bytes();
    let half = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    [half(0), half(4)]
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn word(low: i32, high: i32) -> u64 {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&low.to_ne_bytes());
        bytes[4..].copy_from_slice(&high.to_ne_bytes());
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn timestamp_and_drop_count_are_parsed_in_any_order() {
        let time = [32, word(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS), 5, 7];
        let count = [20, word(libc::SOL_SOCKET, libc::SO_RXQ_OVFL), word(9, 0)];
        let both = (Some(Duration::new(5, 7)), Some(9));
        assert_eq!(parse(&[&time[..], &count[..]].concat()), both);
        assert_eq!(parse(&[&count[..], &time[..]].concat()), both);
        assert_eq!(parse(&time), (both.0, None));
        assert_eq!(parse(&time[..3]), (None, None), "cut off");
        assert_eq!(parse(&[0; 8]), (None, None));
    }

    proptest! {
        #[test]
        fn any_control_bytes_parse_without_panic(control in prop::collection::vec(prop_oneof![any::<u64>(), 0..40_u64], 0..10)) {
            let _ = parse(&control);
        }
    }
}
