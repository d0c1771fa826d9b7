//! The kernel's receive time of a connection's bytes, and a request's age by it. Does not contain
//! system calls.

use leeward_core::units::Time;
use leeward_runtime::wall;

/// Reads the kernel's receive time from the control messages of `recvmsg`, in nanoseconds since the
/// epoch; 0: there is none.
pub(crate) fn parse(control: &[u64]) -> u64 {
    let mut rest = control;
    // A header is one word with the length in bytes, header included, and one with level and type.
    while let [length, kind, data @ ..] = rest
        && (16..=8 * rest.len() as u64).contains(length)
    {
        let bytes = kind.to_ne_bytes();
        let half = |at: usize| i32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let is_stamp = half(0) == libc::SOL_SOCKET && matches!(half(4), libc::SCM_TIMESTAMPNS | libc::SCM_TIMESTAMPING);
        if let ([seconds, nanos, ..], true, 32..) = (data, is_stamp, *length)
            && *nanos < 1_000_000_000
        {
            return seconds.checked_mul(1_000_000_000).and_then(|sum| sum.checked_add(*nanos)).unwrap_or(0);
        }
        rest = rest.get((*length as usize).div_ceil(8)..).unwrap_or_default();
    }
    0
}

/// Stamp of a connection after another read. `more`: the read before filled its buffer, so older
/// bytes are ahead of these.
pub(crate) fn after_read(before: u64, received: u64, more: bool) -> u64 {
    if more && before != 0 && received != 0 { before.min(received) } else { received }
}

/// Age of bytes with this stamp, in nanoseconds; `None` without a stamp.
///
/// The wall clock may be set: a stamp of the future has age 0.
#[inline]
pub(crate) fn age(stamp: u64, reading: Time) -> Option<u64> {
    if stamp == 0 { None } else { Some(wall::at(reading)?.saturating_sub(stamp)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_runtime::clock;
    use proptest::prelude::*;

    fn word(low: i32, high: i32) -> u64 {
        let [low, high] = [low.to_ne_bytes(), high.to_ne_bytes()];
        u64::from_ne_bytes([low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]])
    }

    #[test]
    fn a_stamp_is_found_among_other_messages() {
        let stamp = [32, word(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS), 5, 7];
        let hardware = [64, word(libc::SOL_SOCKET, libc::SCM_TIMESTAMPING), 6, 8, 0, 0, 0, 0];
        let count = [20, word(libc::SOL_SOCKET, libc::SO_RXQ_OVFL), word(9, 0)];
        assert_eq!(parse(&stamp), 5_000_000_007);
        assert_eq!(parse(&hardware), 6_000_000_008);
        assert_eq!(parse(&[&count[..], &stamp[..]].concat()), 5_000_000_007);
        assert_eq!((parse(&stamp[..3]), parse(&count), parse(&[0; 8]), parse(&[])), (0, 0, 0, 0));
        let odd = [32, stamp[1], u64::MAX, 7];
        assert_eq!((parse(&odd), parse(&[32, stamp[1], 5, 1_000_000_000])), (0, 0));
    }

    #[test]
    fn the_older_of_consecutive_reads_counts() {
        assert_eq!([after_read(5, 9, true), after_read(5, 9, false), after_read(0, 9, true)], [5, 9, 9]);
        assert_eq!(after_read(5, 0, true), 0, "without a stamp, the age is unknown");
    }

    #[test]
    fn a_changed_clock_gives_no_negative_age() {
        let now = clock::process();
        assert_eq!((age(0, now), age(u64::MAX, now)), (None, Some(0)));
        assert!(age(1, now).is_some_and(|age| age > 1_000_000_000));
    }

    proptest! {
        #[test]
        fn any_control_bytes_are_parsed(control in prop::collection::vec(prop_oneof![any::<u64>(), 0..70_u64], 0..12)) {
            let _ = parse(&control);
        }
    }
}
